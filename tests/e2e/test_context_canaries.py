"""Written contexts through the whole program: what left, that it was on record first, that nothing forbidden was in it, and that no
context is ever shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from router.app import Router
from router.config import load_settings
from router.decision import summary
from router.doors import cli
from tests import anthropic_server as fake
from tests.context_world import Remembering, manual
from tests.world import ask_as, write_world

KEY = "POINTSMAN_TEST_CONTEXT_KEY"
PERMIT = """
@id("contexts-internal") @reason("internal text may have contexts written by Claude") @owner("security")
permit (principal is Pointsman::Service, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"claude")
when {{ context.purpose == "{purpose}" && context.class <= {most} }};
"""


def page(name: str) -> str:
    """Of a few chunks."""
    return manual(name, 1)


PAGES = {
    "handbook/all/welcome.md": page("OPENPAGE"),
    "handbook/staff/press.md": page("INTERNALPAGE"),
    "handbook/hr/pay.md": page("CANARYPAY"),
    "handbook/board/sale.md": page("CANARYSALE"),
    "notes/monday.md": page("NOTEPAGE"),
    "notes/hidden/wednesday.md": page("CANARYHIDDEN"),
    "elsewhere/press.md": page("SOUTHPAGE"),
}
CONTEXT = "ZYGOTE harrowing context of"


@pytest.fixture(scope="module")
def running():
    yield from fake.serve()


@pytest.fixture
def server(running):
    running.says(fake.contexts())
    running.batches = fake.Batches(writes=lambda chunk: CONTEXT + " " + chunk.split("valve")[0][-30:])
    return running


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(KEY, "sk-CANARY-KEY")


def build(folder: Path, server, *, send="direct", purpose="context", most=1, contexts="claude", more="") -> Path:
    config = write_world(folder, PAGES)
    text = config.read_text()
    for name in ("handbook", "notes", "elsewhere"):
        text = text.replace(f'path = "{name}"\n', f'path = "{name}"\ncontexts = "{contexts}"\n')
    provider = f'[providers.claude]\nkey_env = "{KEY}"\nmodel = "claude-test"\nbase_url = "{server.url}"\n'
    config.write_text(f'{text}\n[search]\nrelevance = "off"\n[contexts]\nsend = "{send}"\n{more}\n{provider}')
    (folder / "policies" / "disclosure.cedar").write_text(PERMIT.format(purpose=purpose, most=most))
    return config


def opened(*args, **options) -> Router:
    made = Router(load_settings(build(*args, **options)))
    made.__dict__["embedder"] = Remembering()  # the real one, that reads no text twice
    return made


def records(router: Router, kind: str = "egress") -> list[dict]:
    return [
        json.loads(record.body)
        for tenant in ("north", "south")
        for _, record in router.ledger.read(tenant)
        if record.kind == kind
    ]


@pytest.mark.parametrize("send", ["direct", "batch"])
def test_no_byte_of_a_forbidden_class_leaves(tmp_path, server, send):
    """Over indexing, changes of labels both ways, rebuilding and asking."""
    with opened(tmp_path / "w", server, send=send) as router:
        router.index()
        labels = router.settings.folder / "handbook" / "labels.yaml"
        before = labels.read_text()
        raised = before.replace(
            '"staff/**", groups: ["dev:staff"], sensitivity: internal', '"staff/**", groups: ["dev:hr"], sensitivity: restricted'
        )
        assert raised != before
        labels.write_text(raised)
        staff = router.settings.folder / "handbook" / "staff" / "press.md"
        staff.write_text(page("CANARYLATER"))
        router.index()
        router.index(full=True)
        answer = ask_as(router, "max", "which valve has bolt 7", k=20)
        assert answer.passages
        heard = server.heard
    assert all(name in heard for name in ("OPENPAGE", "INTERNALPAGE", "NOTEPAGE", "SOUTHPAGE"))
    assert [name for name in ("CANARYPAY", "CANARYSALE", "CANARYHIDDEN", "CANARYLATER") if name in heard] == []
    assert not any(word in heard for word in ("dev:hr", "dev:staff", "sensitivity", "labels.yaml", "handbook/", str(tmp_path)))


@pytest.mark.parametrize("send", ["direct", "batch"])
def test_every_attempt_is_on_record_before_it_goes(tmp_path, server, send):
    with opened(tmp_path / "w", server, send=send) as router:
        report = router.index()
        sent = records(router)
        posts = [one for one in server.received if one.size]
        assert [one["bytes"] for one in sent] == [one.size for one in sorted(posts, key=lambda one: "SOUTHPAGE" in one.text)]
        assert {(one["by"], one["provider"], one["model"], one["purpose"]) for one in sent} == {
            ("service:indexer", "claude", "claude-test", "context")
        }
        assert all(len(one["classes"]) == 1 for one in sent), "of one class each"
        assert {tuple(one["classes"]) for one in sent} == {(0,), (1,)}
        assert all(one["run_id"] and len(one["digest"]) == 64 for one in sent)
        assert len({one["digest"] for one in sent}) == len(sent)
        written = report.contexts.written
        assert sum(one["items"] for one in sent) == written
        rows = [row for tenant in ("north", "south") for row in router.ledger.read(tenant)]
        assert summary(rows).egress_bytes == {"claude: context": sum(one.size for one in posts)}
        assert not any(b"ZYGOTE" in record.body or b"PAGE" in record.body for _, record in rows)


@pytest.mark.parametrize("options", [{"most": -1}, {"purpose": "draft"}])
def test_no_permit_sends_nothing_and_says_so(tmp_path, server, options):
    with opened(tmp_path / "w", server, **options) as router:
        report = router.index()
        assert (server.received, records(router), report.contexts.written) == ([], [], 0)
        assert report.contexts.structural["not_permitted"] > 5
        assert all(source.indexed and not source.error for source in report.sources)
        assert ask_as(router, "ada", "which valve has bolt 7").passages
        assert router.index_verify() == []


def test_a_person_has_no_part_in_it(tmp_path, server):
    """A permit for people is none for the service that indexes."""
    config = build(tmp_path / "w", server)
    policy = tmp_path / "w" / "policies" / "disclosure.cedar"
    policy.write_text(policy.read_text().replace("Pointsman::Service", "Pointsman::User"))
    with Router(load_settings(config)) as router:
        assert router.index().contexts.written == 0
    assert server.received == []


def test_a_context_is_searched_and_never_shown(tmp_path, server, caplog):
    """Not in an answer, in whatever field, not in the record, not in the log; what it says finds the chunk all the same."""
    caplog.set_level(logging.DEBUG)
    with opened(tmp_path / "w", server) as router:
        router.index()
        answer = ask_as(router, "ada", "harrowing zygote", k=20)
        assert answer.passages
        assert any("lexical" in passage.why for passage in answer.passages), "BM25 read it: no text says it"
        body = answer.as_json()
        body.pop("notes", None)  # which quote the question's own words
        shown = json.dumps(body).casefold()
        assert "zygote" not in shown
        assert "harrowing" not in shown
        bodies = b"".join(record.body for tenant in ("north", "south") for _, record in router.ledger.read(tenant))
        assert b"ZYGOTE" not in bodies
        log = (router.state / "pointsman.jsonl").read_text()
        assert "ZYGOTE" not in log
        assert "ZYGOTE" not in caplog.text
        hidden = ask_as(router, "nil", "harrowing zygote", k=20)
        assert (hidden.outcome, hidden.passages) == ("empty", ())


def test_contexts_change_nothing_of_who_sees_what(tmp_path, server):
    """Each person's documents are the same with contexts of any kind."""

    def seen(contexts: str) -> dict[str, set[str]]:
        with opened(tmp_path / contexts, server, contexts=contexts) as router:
            router.index()
            return {
                person: {passage.document_id for passage in ask_as(router, person, "which valve has bolt 7", k=50).passages}
                for person in ("ada", "hal", "max", "low", "bob", "sue", "nil")
            }

    assert seen("claude") == seen("structure")


def test_forgetting_leaves_no_byte_anywhere(tmp_path, server):
    with opened(tmp_path / "w", server) as router:
        router.index()
        cache = router.state / "contexts.sqlite"
        assert b"INTERNALPAGE" in cache.read_bytes()
        assert cache.stat().st_mode & 0o077 == 0
        gone = router.index_forget("handbook/staff/press.md")
        assert gone.documents == ("handbook/staff/press.md",)
        assert b"INTERNALPAGE" not in cache.read_bytes()
        assert b"OPENPAGE" in cache.read_bytes()
        posts = len(server.received)
        router.index()
        assert len(server.received) == posts
    state = tmp_path / "w" / "state"
    left = [path.name for path in state.rglob("*") if path.is_file() and b"INTERNALPAGE" in path.read_bytes()]
    assert left == []


def test_a_source_that_is_withdrawn_leaves_no_context(tmp_path, server):
    with opened(tmp_path / "w", server) as router:
        router.index()
        folder = router.settings.folder
        declared = folder / "policies" / "sources.yaml"
        declared.write_text("".join(line for line in declared.read_text().splitlines(keepends=True) if "elsewhere:" not in line))
        text = (folder / "pointsman.toml").read_text()
        (folder / "pointsman.toml").write_text(text.replace('[sources.elsewhere]\npath = "elsewhere"\ncontexts = "claude"\n', ""))
    with Router(load_settings(folder / "pointsman.toml")) as router:
        router.index()
        kept = (router.state / "contexts.sqlite").read_bytes()
        assert (b"SOUTHPAGE" in kept, b"OPENPAGE" in kept) == (False, True)


def test_without_the_key_everything_is_local_and_said(tmp_path, server, monkeypatch):
    monkeypatch.delenv(KEY)
    with opened(tmp_path / "w", server) as router:
        report = router.index()
        assert set(report.contexts.structural) == {"no_model"}
        assert server.received == []
        assert report.sources[0].indexed


def test_one_purse_for_all_tenants(tmp_path, server):
    prices = "price_input = 3.0\nprice_output = 15.0\nspend_cap = 0.02\n"
    with opened(tmp_path / "w", server, more=prices) as router:
        report = router.index()
        assert report.contexts.stopped == "spend_cap"
        assert 0 < report.contexts.money <= 0.02
        assert report.contexts.written == len(server.batches.paid) < 20
        assert all(source.indexed for source in report.sources)
        for _ in range(3):
            router.index(spend_cap=0.02)
        assert set(server.batches.paid.values()) == {1}


# --- at the command line ----------------------------------------------------------------------------------------------

PRICES = "price_input = 3.0\nprice_output = 15.0\nprice_cache_read = 0.3\n"


@pytest.fixture
def command(monkeypatch, capfd):
    monkeypatch.setenv("NO_COLOR", "1")

    def run(config: Path, *arguments: str):
        try:
            code = cli._run([*arguments, "--config", str(config)])
        except SystemExit as stop:
            code = stop.code
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_an_estimate_comes_before_anything_is_sent(tmp_path, server, command):
    config = build(tmp_path / "w", server, more=PRICES)
    code, out, _ = command(config, "index", "--estimate", "--json")
    assert (code, server.received) == (0, [])
    sources = {one["source"]: one["estimate"] for one in json.loads(out)["sources"]}
    handbook = sources["handbook"]
    assert (handbook["documents"], handbook["local_documents"], handbook["currency"]) == (2, 2, "USD")
    assert 0 < handbook["batch"][0] <= handbook["batch"][1] < handbook["direct"][1]
    code, out, _ = command(config, "index", "--estimate")
    assert code == 0
    assert "contexts of 2 documents would be written" in out
    assert "2 documents may not be sent" in out
    assert "USD" in out
    code, out, _ = command(config, "index", "--json")
    report = json.loads(out)["contexts"]
    assert report["written"] == sum(one["contexts"] for one in sources.values())
    assert report["money"] <= sum(one["direct"][0] for one in sources.values())
    code, out, _ = command(config, "index")
    assert "from before" in out
    assert server.batches.paid.total() == report["written"]


def test_without_prices_there_are_tokens_only(tmp_path, server, command):
    config = build(tmp_path / "w", server)
    code, out, _ = command(config, "index", "--estimate")
    assert (code, "no money without" in out, "tokens" in out) == (0, True, True)
    code, _, err = command(config, "index", "--spend-cap", "1")
    assert (code, "price_input" in err) == (2, True)
    assert server.received == []


def test_a_cap_stops_and_says_so(tmp_path, server, command):
    config = build(tmp_path / "w", server, more=PRICES)
    code, out, _ = command(config, "index", "--spend-cap", "0.02")
    assert code == 0
    assert "the cap was reached; the next run goes on" in out
    assert 0 < server.batches.paid.total() < 10


def test_contexts_for_one_run(tmp_path, server, command):
    config = build(tmp_path / "w", server, contexts="structure")
    assert command(config, "index")[0] == 0
    assert server.received == []
    code, out, _ = command(config, "index", "handbook", "--contexts", "claude")
    assert code == 0
    assert "written" in out
    assert "no `disclose` permit" in out
    assert "OPENPAGE" in server.heard
    assert "NOTEPAGE" not in server.heard, "not the sources that were not named"
    code, _, err = command(config, "index", "--contexts", "nonsense")
    assert (code, "none, structure, both, claude" in err) == (2, True)
    config.write_text(config.read_text().partition("[providers.claude]")[0])
    code, _, err = command(config, "index", "--contexts", "claude")
    assert (code, "[providers.claude]" in err) == (2, True)


def test_the_configuration_is_held_to_reason(tmp_path, server, command):
    config = build(tmp_path / "w", server)
    config.write_text(config.read_text().partition("[providers.claude]")[0])
    code, _, err = command(config, "index")
    assert (code, "no `[providers.claude]`" in err.replace("\n", " ")) == (2, True)
    config = build(tmp_path / "v", server, more="spend_cap = 1.0\n")
    code, _, err = command(config, "index")
    assert (code, "cannot be held without prices" in err.replace("\n", " ")) == (2, True)
