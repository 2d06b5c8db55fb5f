"""`ask` where nobody here can read the question: a hosted model drafts, if the policies let the question go, and whatever it says or
fails in ends in governed rows or in asking back. The SDK is the real one; the provider is a server on this machine."""

import json
import time

import pytest

from router import attempts
from router.app import Router
from router.decision import decision_model
from tests import anthropic_server as fake
from tests.claims_world import NOW, build_claims_world
from tests.hosted_world import never_left_alone

KEY = "POINTSMAN_TEST_CLAUDE_KEY"
HARD = "Why did the claims in region west rise so steeply?"
PERMIT = """
@id("draft-internal") @reason("questions may go to Claude to be drafted") @owner("security")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"claude")
when { context.purpose == "draft" && context.class <= 1 };
"""
COUNT_FORM = {
    "from": "claims_v",
    "measures": [{"agg": "count", "of": "*"}],
    "where": [{"field": "claims_v.region", "op": "=", "value": "west"}],
}


@pytest.fixture(scope="module")
def server():
    yield from fake.serve()


@pytest.fixture(autouse=True)
def _never_left_alone(monkeypatch):
    never_left_alone(monkeypatch)


def opened(folder, server, *, streaming=False, disclosure=PERMIT):
    settings = f'[providers.claude]\nkey_env = "{KEY}"\nmodel = "claude-test"\nbase_url = "{server.url}"\n'
    settings += f"streaming = {str(streaming).lower()}\n"
    return Router.open(build_claims_world(folder, settings=settings, disclosure=disclosure))


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "streamed"])
def router(request, tmp_path_factory, server):
    patch = pytest.MonkeyPatch()
    patch.setenv(KEY, "sk-CANARY-KEY")
    with opened(tmp_path_factory.mktemp("world"), server, streaming=request.param) as router:
        router.copy_tables()
        yield router
    patch.undo()


def ask(router, text=HARD, person="analyst-1", **options):
    return router.ask(text, token=router.mint(person), route="sql", now=NOW, **options)


def body_of(router, answer):
    *_, (link, record) = router.ledger.read("1", decision_id=answer.decision_id)
    body = json.loads(record.body)
    decision_model().model_validate(body | {"seq": link.seq, "previous": link.previous, "digest": link.digest})
    return body


def test_a_form_of_the_model_is_read_out_and_run(router, server):
    server.says(fake.answer({"form": COUNT_FORM}))
    answer = ask(router)
    assert answer.outcome == "answered", (answer.clarify, answer.degraded)
    (table,) = answer.tables
    assert table.origin == "model"
    assert "west" in table.reading
    sent = body_of(router, answer)["egress"]
    assert [(one["provider"], one["purpose"], one["classes"], one["items"]) for one in sent] == [("claude", "draft", [1], 1)]
    assert sent[0]["bytes"] == server.received[0].size


def test_sql_of_the_model_meets_the_gate_and_says_so(router, server):
    server.says(fake.answer({"sql": "SELECT region, max(amount) AS most FROM claims_v GROUP BY region ORDER BY region"}))
    answer = ask(router)
    assert answer.outcome == "answered", (answer.clarify, answer.degraded)
    assert [entry.leg for entry in answer.filters] == ["sql:claims_v"]
    assert "model" in answer.tables[0].reading


ATTACKS = {
    "another relation": "SELECT * FROM employees",
    "the catalogue": "SELECT * FROM information_schema.tables",
    "a file": "SELECT * FROM read_csv('/etc/passwd')",
    "a write": "DROP VIEW claims_v",
    "two statements": "SELECT 1; SELECT 2",
    "a hidden column": "SELECT claimant_phone FROM claims_v",
    "a setting": "SELECT current_setting('secret_directory')",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_the_reply_is_asked_back(router, server, attack):
    server.says(fake.answer({"sql": ATTACKS[attack]}))
    answer = ask(router)
    assert (answer.outcome, answer.tables) == ("clarify", ())
    assert [entry.stage for entry in answer.degraded if entry.stage == "model"] == ["model"]
    assert ATTACKS[attack] not in json.dumps(answer.as_json())
    assert 1 <= len(server.received) <= 2


def test_one_round_of_repair_with_the_code_alone(router, server):
    server.says(fake.answer({"sql": "SELECT wrong_column FROM claims_v"}), fake.answer({"form": COUNT_FORM}))
    answer = ask(router)
    assert answer.outcome == "answered", answer.degraded
    assert len(server.received) == 2
    assert len(body_of(router, answer)["egress"]) == 2


BAD_DAYS = {
    "rate limited for long": fake.failure(429, "rate_limit_error", retry_after="30"),
    "overloaded": fake.failure(529, "overloaded_error"),
    "failed": fake.failure(500),
    "truncated": fake.answer({"sql": "SELECT"}, stop="max_tokens"),
    "declined": fake.content([], stop="refusal"),
    "no JSON": fake.unparsable(),
    "a reply of another shape": fake.answer({"form": {"from": 1}}),
    "cannot": fake.answer({"cannot": "CANARY-WORDS"}),
    "reset": fake.reset(),
    "late": fake.slow(30.0, fake.answer({"form": COUNT_FORM})),
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_bad_day_of_the_provider_is_asked_back(router, server, day):
    server.says(BAD_DAYS[day])
    answer = ask(router, deadline_s=3.0)
    assert (answer.outcome, answer.tables) == ("clarify", ())
    assert answer.clarify is not None
    assert "model" in [entry.stage for entry in answer.degraded]
    shown = json.dumps(answer.as_json())
    assert "CANARY" not in shown
    assert "PROVIDER" not in shown
    assert len(body_of(router, answer)["egress"]) == len(server.received)


def test_what_the_server_heard_is_what_the_caller_may_see(router, server):
    server.says(fake.answer({"cannot": ""}))
    ask(router)
    heard = server.heard
    for hidden in ("claimant_phone", "claimant_name", "approver_email", "employees", "tenant_id = ", "CANARY-KEY-IN-BODY"):
        assert hidden not in heard
    assert "claims_v" in heard


def test_what_is_understood_here_is_not_sent(router, server):
    server.says(fake.answer({"cannot": ""}))
    assert ask(router, "How many claims per region?").tables[0].origin == "planner"
    assert server.received == []


@pytest.mark.parametrize("disclosure", ["", PERMIT.replace("<= 1", "<= 0"), PERMIT.replace('draft"', 'rerank"')])
def test_without_a_permit_nothing_is_sent(tmp_path, server, monkeypatch, disclosure):
    monkeypatch.setenv(KEY, "sk-CANARY-KEY")
    server.says(fake.answer({"form": COUNT_FORM}))
    with opened(tmp_path, server, disclosure=disclosure) as router:
        router.copy_tables()
        answer = ask(router)
        assert (answer.outcome, server.received) == ("clarify", [])
        assert "disclosure_not_permitted" in next(entry.reason for entry in answer.degraded if entry.stage == "model")
        assert body_of(router, answer)["egress"] == []


def test_without_a_key_there_is_no_model(tmp_path, server, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    server.says(fake.answer({"form": COUNT_FORM}))
    with opened(tmp_path, server) as router:
        router.copy_tables()
        answer = ask(router)
        assert (answer.outcome, server.received) == ("clarify", [])
        assert "model" not in [entry.stage for entry in answer.degraded]


def test_a_server_that_drips_holds_nobody_past_the_deadline(router, server):
    """Headers that come one by one pass every time limit of a read; the question's own ends it."""

    def drip(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for at in range(60):
            handler.wfile.write(f"X-{at}: y\r\n".encode())
            handler.wfile.flush()
            time.sleep(0.2)

    server.says(drip)
    start = time.monotonic()
    answer = ask(router, deadline_s=2.0)
    assert time.monotonic() - start < 6.0
    assert answer.outcome == "clarify"
    assert "model" in [entry.stage for entry in answer.degraded]


def test_a_provider_that_is_down_is_left_alone(tmp_path, server, monkeypatch):
    """After a few failures nobody waits for it, and that is said."""
    monkeypatch.setattr(attempts, "OPEN_AFTER", 2)
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv(KEY, "sk-CANARY-KEY")
    with opened(tmp_path, server) as router:
        router.copy_tables()
        server.says(fake.failure(500))
        ask(router)
        heard = len(server.received)
        answer = ask(router)
        assert [entry.reason.partition(":")[0] for entry in answer.degraded if entry.stage == "model"] == ["model_resting"]
        assert len(server.received) == heard == 2
        assert router.spent()["claude"].failed == 2
