"""A run that waits for its batch, through the router: what was revoked meanwhile stays revoked, and what thinking costs is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.app import Router
from router.config import load_settings
from tests import anthropic_server as fake
from tests.context_world import manual
from tests.world import ask_as, write_world

PERMIT = """@id("contexts") @reason("x") @owner("security")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"claude")
when { context.purpose == "context" && context.class <= 1 };
"""
QUESTION = "which valve has bolt 7"


@pytest.fixture(scope="module")
def running():
    yield from fake.serve()


@pytest.fixture
def server(running, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_TEST_KEY", "sk-CANARY-KEY")
    running.says(fake.contexts())
    running.batches = fake.Batches()
    return running


def written(root: Path, server: fake.AnthropicServer, provider: str = "", contexts: str = 'send = "batch"') -> Path:
    config = write_world(root, {"handbook/staff/pump.md": manual("Pump", 1)})
    text = config.read_text().replace('path = "handbook"\n', 'path = "handbook"\ncontexts = "claude"\n')
    text += f"\n[contexts]\n{contexts}\n"
    text += f'[providers.claude]\nkey_env = "ANTHROPIC_TEST_KEY"\nmodel = "m"\nbase_url = "{server.url}"\n{provider}'
    config.write_text(text)
    (root / "policies" / "disclosure.cedar").write_text(PERMIT)
    return config


CHANGES = {
    "labels": ("handbook/labels.yaml", '"staff/**", groups: ["dev:staff"]', '"staff/**", groups: ["dev:hr"]'),
    "envelope": ("policies/sources.yaml", 'groups: ["dev:staff", "dev:hr", "dev:board"]', 'groups: ["dev:hr", "dev:board"]'),
    "least": ("policies/sources.yaml", "least: public", "least: confidential"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_that_waited_undoes_no_revocation(tmp_path, server, change):
    """Made in the moment in which the batch was sent: the same run shows nothing of it any more once its answers are there."""
    config = written(tmp_path / "world", server)
    name, old, new = CHANGES[change]
    path, seen = config.parent / name, []
    with Router(load_settings(config)) as router:

        def revoked(_: object) -> None:
            with Router(load_settings(config)) as other:
                seen.append(ask_as(other, "ada", QUESTION, k=10).outcome)
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new, 1))

        server.batches.creating = revoked
        router.index(["handbook"])
        assert seen == ["answered"]
        assert ask_as(router, "ada", QUESTION, k=10).outcome == "empty"
        assert set(server.batches.paid.values()) == {1}


def test_a_source_that_is_declared_no_more_is_left_alone(tmp_path, server):
    """While a run waited: it brings nothing back, and the next run removes it."""
    config = written(tmp_path / "world", server)
    sources = config.parent / "policies" / "sources.yaml"
    with Router(load_settings(config)) as router:

        def withdrawn(_: object) -> None:
            lines = sources.read_text().splitlines(keepends=True)
            sources.write_text("".join(line for line in lines if not line.lstrip().startswith("handbook:")))

        server.batches.creating = withdrawn
        report = router.index(["handbook"])
        assert (report.sources[0].indexed, report.contexts.written > 0) == (1, True)
        chunks = sum(info.chunks for info in router.store.documents("north"))
        assert chunks == report.sources[0].chunks


@pytest.mark.parametrize("send", ["direct", "batch"])
def test_an_estimate_counts_what_may_be_thought(tmp_path, server, send):
    """Every answer as long as the request allows it: what the estimate says at most is the most."""
    server.batches.message = lambda params: {
        **fake.Batches.message(server.batches, params),
        "usage": {"input_tokens": 700, "output_tokens": params["max_tokens"]},
    }
    prices = f'send = "{send}"\nprice_input = 3.0\nprice_output = 15.0'
    config = written(tmp_path / "world", server, 'thinking = "model"\n', prices)
    with Router(load_settings(config)) as router:
        estimate = router.index(["handbook"], estimate=True).sources[0].estimate
        report = router.index(["handbook"])
        assert estimate.contexts == report.contexts.written > 0
        assert report.contexts.tokens.output == 4_096 * report.contexts.written == estimate.most.output
        assert report.contexts.money <= estimate.money(batch=send == "batch")[1]


def test_a_source_that_another_run_brought_in_stays(tmp_path, monkeypatch):
    """Declared and indexed after this run had read which sources there are, and before it got the lock."""
    config = write_world(tmp_path / "world")
    declared = config.parent / "policies" / "sources.yaml"
    whole = declared.read_text()
    declared.write_text("\n".join(line for line in whole.splitlines() if "notes:" not in line) + "\n")

    def notes(router):
        return sum(info.source == "notes" for name in router.store.tenants() for info in router.store.documents(name))

    with Router(load_settings(config)) as router:
        router.index()
        real = router.index_jobs

        def later(*arguments, **options):
            declared.write_text(whole)
            with Router(load_settings(config)) as other:
                other.index()
                assert notes(other) > 0
            return real(*arguments, **options)

        monkeypatch.setattr(router, "index_jobs", later)
        router.index()
    with Router(load_settings(config)) as router:
        assert notes(router) > 0
        assert not [gone for gone in router.manifest.gone() if gone.source == "notes"]
