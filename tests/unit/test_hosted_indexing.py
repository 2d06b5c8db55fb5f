"""Indexing with a hosted embedder: batches, classes, records before the first byte, bad days and the next run."""

from __future__ import annotations

import json
import math

import pytest

from connectors import cohere_models
from router import attempts
from router.errors import SourceError, UsageError
from router.ingest.written_context import estimate_tokens
from tests import cohere_server, embeddings_server
from tests import hosted_server as days
from tests import hosted_world as hosted
from tests.hosted_world import EMBED, KEY, NOBODY, SECRET, index_records, opened, reasons, write_permits
from tests.world import ask_as, ids, write_page

PRESS = "what does ERR-4012 on the press mean"
HIDDEN = {
    "handbook/hr/pay.md", "handbook/hr/accident.md", "handbook/board/sale.md", "notes/hidden/wednesday.md",
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    yield from cohere_server.serve()


@pytest.fixture(autouse=True)
def _good_day(server, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    hosted.never_left_alone(monkeypatch)
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.1)
    server.says()


@pytest.fixture
def config(tmp_path, server):
    """Not indexed yet."""
    return hosted.write_hosted(tmp_path / "world", server.url, embedder="cohere", rerank_by="local", permits=EMBED)


def failures(report) -> dict[str, str]:
    return {f"{one.source}/{failure.key}": failure.reason for one in report.sources for failure in one.failures}


def notes(report) -> set[str]:
    return {
        f"{one.source}/{note.key}" for one in report.sources for note in one.notes if note.reason == "disclosure_not_permitted"
    }


def test_an_estimate_comes_before_the_first_byte(config, server):
    with opened(config) as router:
        said = [one.embedding for one in router.index(estimate=True).sources]
        assert server.received == []
        assert index_records(router) == []
        report = router.index()
        assert {one.provider for one in said} == {"cohere"}
        assert sum(one.documents for one in said) == sum(one.indexed for one in report.sources) - len(HIDDEN)
        assert sum(one.local for one in said) == len(HIDDEN)
        sent = [text for one in server.received for text in one.body["texts"]]
        assert sum(one.texts for one in said) == len(sent)
        assert sum(one.tokens for one in said) == sum(estimate_tokens(text) for text in sent)
        assert sum(one.cost_micros for one in said) == pytest.approx(0.5 * sum(one.tokens for one in said), abs=len(said))
        assert all(one.embedding.texts == 0 for one in router.index(estimate=True).sources)  # nothing is left to be done


def test_what_may_go_goes_and_what_may_not_is_found_by_its_words(config, server):
    with opened(config) as router:
        report = router.index()
        assert failures(report) == {}
        assert notes(report) == HIDDEN
        sent = index_records(router)
        assert len(sent) == len(server.received) == sum(one.indexed for one in report.sources) - len(HIDDEN)
        assert {(one["provider"], one["model"], one["purpose"], one["by"]) for one in sent} == {
            ("cohere", "embed-test", "embed", "service:indexer")
        }
        assert {tuple(one["classes"]) for one in sent} == {(0,), (1,)}
        assert {one["run_id"] for one in sent} == {report.run_id}
        assert sorted(one["bytes"] for one in sent) == sorted(len(one.raw) for one in server.received)
        assert sum(one["items"] for one in sent) == sum(len(one.body["texts"]) for one in server.received)
        assert all(len(one["digest"]) == 64 for one in sent)
        assert {one.body["input_type"] for one in server.received} == {"search_document"}
        answer = ask_as(router, "max", "the accident at the press", k=10)
        found = {passage.document_id: passage.why for passage in answer.passages}
        assert "lexical" in found["handbook/hr/accident.md"]
        lines = map(json.loads, (config.parent / "state" / "pointsman.jsonl").read_text().splitlines())
        (spent,) = [line for line in lines if line["event"] == "hosted_spent"]
        calls, tokens = len(sent), len(sent) * cohere_server.TOKENS
        assert (spent["provider"], spent["calls"], spent["tokens"]) == ("cohere", calls, tokens)
        assert spent["cost_micros"] == calls * round(cohere_server.TOKENS * 0.5)
        assert spent["bytes"] == sum(one["bytes"] for one in sent)
        assert router.index_verify() == []


def test_indexing_is_judged_as_a_service_of_its_tenant(config, server):
    """People's permits are not its own, and neither is the other tenant's."""
    for whose in ("principal is Pointsman::User", "principal is Pointsman::Service"):
        permit = EMBED.replace("permit (principal,", f"permit ({whose},")
        write_permits(config, permit.replace("context.class <= 1", 'context.class <= 1 && principal.tenant == "south"'))
        with opened(config) as router:
            report = router.index(full=True)
            assert failures(report) == {}
            tenants = {one["tenant"] for one in index_records(router)}
        assert tenants == (set() if "User" in whose else {"south"})
    assert b"The South's press" in server.heard
    assert b"40 bar" not in server.heard


def test_nothing_permitted_nothing_sent(config, server):
    write_permits(config, NOBODY)
    with opened(config) as router:
        report = router.index()
        assert failures(report) == {}
        assert len(notes(report)) == sum(one.indexed for one in report.sources)
        assert index_records(router) == []
        assert "handbook/staff/press.md" in ids(ask_as(router, "ada", PRESS))
    assert server.received == []


BAD_DAYS = {
    "401": (days.failure(401), "model_unauthorised"),
    "429": (days.failure(429, retry_after="1000"), "model_rate_limited"),
    "500": (days.failure(500), "model_failed"),
    "529": (days.failure(529), "model_overloaded"),
    "cut off": (days.cut_off(), "model_unreachable"),
    "wrong length": (cohere_server.embeds(lambda rows: [row[:-1] for row in rows]), "model_reply_invalid"),
    "NaN": (cohere_server.embeds(lambda rows: days.spoiled(rows, 0, math.nan)), "model_reply_invalid"),
    "fewer": (cohere_server.embeds(lambda rows: rows[:-1]), "model_reply_invalid"),
}


def failing(page: bytes, reply: days.Reply) -> days.Reply:
    """A bad day for one page, a good one for all others."""
    return lambda handler, request: (reply if page in request.raw else cohere_server.good())(handler, request)


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_document_that_fails_is_resumed(tmp_path, server, day):
    """The others are indexed, it is reported with its reason, and the next run embeds it alone."""
    reply, code = BAD_DAYS[day]
    pages = {"handbook/staff/press.md": "# Pressing\n\nThe press runs at 40 bar.", "handbook/staff/oil.md": "# Oil\n\nOil is 50."}
    config = hosted.write_hosted(tmp_path / "world", server.url, embedder="cohere", permits=EMBED, pages=pages)
    server.says(failing(b"40 bar", reply))
    with opened(config) as router:
        report = router.index()
        assert failures(report) == {"handbook/staff/press.md": code}
        assert len(index_records(router)) == len(server.received)
        assert ids(ask_as(router, "ada", "oil")) == ["handbook/staff/oil.md"]
        server.says()
        assert failures(router.index()) == {}
        assert [b"40 bar" in one.raw for one in server.received] == [True]
        assert "handbook/staff/press.md" in ids(ask_as(router, "ada", "at how many bar does the press run"))
        server.says()
        router.index()
    assert server.received == []


def test_a_document_that_changed_stays_as_it_was_until_it_can_be_embedded(config, server):
    with opened(config) as router:
        router.index()
        write_page(config.parent, "handbook/staff/press.md", "# Pressing plates\n\nThe press runs at 90 bar.")
        server.says(failing(b"90 bar", days.failure(500)))
        assert failures(router.index(["handbook"])) == {"handbook/staff/press.md": "model_failed"}
        (passage,) = [one for one in ask_as(router, "ada", PRESS).passages if one.document_id == "handbook/staff/press.md"]
        assert "40 bar" in passage.text
        server.says()
        assert failures(router.index(["handbook"])) == {}
        texts = [passage.text for passage in ask_as(router, "ada", "at how many bar does the press run").passages]
    assert any("90 bar" in text for text in texts)


def test_narrowed_labels_do_not_wait(config, server):
    """It may no longer be shown to who saw it, whether the provider answers or not."""
    with opened(config) as router:
        router.index()
        assert "handbook/all/welcome.md" in ids(ask_as(router, "low", "helmet near the press", k=20))
        write_page(
            config.parent, "handbook/all/welcome.md", "---\nsensitivity: internal\n---\n# Welcome\n\nWear a helmet at 90 bar."
        )
        server.says(failing(b"90 bar", days.failure(500)))
        assert failures(router.index(["handbook"])) == {"handbook/all/welcome.md": "model_failed"}
        server.says()
        assert "handbook/all/welcome.md" not in ids(ask_as(router, "low", "helmet near the press", k=20))
        assert failures(router.index(["handbook"])) == {}
        assert "handbook/all/welcome.md" in ids(ask_as(router, "ada", "helmet near the press", k=20))
        assert "handbook/all/welcome.md" not in ids(ask_as(router, "low", "helmet near the press", k=20))


def test_a_full_build_is_not_shown_with_holes(config, server):
    with opened(config) as router:
        router.index()
        before = ids(ask_as(router, "ada", PRESS, k=20))
        server.says(failing(b"40 bar", days.failure(401)))
        with pytest.raises(SourceError) as raised:
            router.index(full=True)
        assert raised.value.code == "model_unauthorised"
        server.says()
        assert ids(ask_as(router, "ada", PRESS, k=20)) == before
        router.index(full=True)
        assert ids(ask_as(router, "ada", PRESS, k=20)) == before


def test_a_provider_that_refuses_the_key_is_not_sent_the_rest(config, server, monkeypatch):
    monkeypatch.setattr(attempts, "_REFUSES_US", frozenset({"model_unauthorised"}))
    server.says(days.failure(401))
    with opened(config) as router:
        found = failures(router.index(["handbook"]))
        assert len(server.received) == 1
        assert len(found) > 1
        assert set(found.values()) == {"model_unauthorised"}


def test_a_bad_minute_is_waited_out(config, server, monkeypatch):
    monkeypatch.setattr(attempts, "PATIENCE_S", 60.0)
    server.says(*[days.failure(429)] * 8, cohere_server.good())
    with opened(config) as router:
        assert failures(router.index(["handbook"])) == {}


def test_a_provider_that_is_down_does_not_hold_the_run(config, server, monkeypatch):
    monkeypatch.setattr(attempts, "OPEN_AFTER", 5)
    server.says(days.failure(500))
    with opened(config) as router:
        report = router.index(["handbook"])
        found = failures(report)
        assert len(server.received) <= 2 * attempts.OPEN_AFTER
        assert {"model_failed", "model_resting"} >= set(found.values())
        assert "handbook/hr/pay.md" not in found  # it is not sent, so it does not fail
        assert router.spent()["cohere"].failed == len(server.received)


def test_the_ledger_comes_first(config, server, monkeypatch):
    """What cannot be recorded is not sent."""
    from router.errors import LedgerError

    with opened(config) as router:
        append = router.ledger.append

        def full(records):
            if any(record.kind == "egress" for record in records):
                raise LedgerError("ledger_full", "the ledger cannot record")
            return append(records)

        monkeypatch.setattr(router.ledger, "append", full)
        with pytest.raises(LedgerError):
            router.index()
    assert server.received == []


def test_another_model_needs_a_new_index(config, server):
    with opened(config) as router:
        router.index()
    config.write_text(config.read_text().replace("embed-test", "embed-other"))
    with opened(config) as router:
        with pytest.raises(UsageError) as raised:
            router.index()
        assert raised.value.code == "model_changed"
        router.index(full=True)
        assert "handbook/staff/press.md" in ids(ask_as(router, "ada", PRESS))


def test_long_documents_go_in_batches(tmp_path, server, monkeypatch):
    monkeypatch.setattr(cohere_models.CohereEmbedder, "most_texts", 5)
    parts = "\n\n".join(f"## Part {at}\n\n" + f"word{at} press oil guard " * 40 for at in range(12))
    config = hosted.write_hosted(
        tmp_path / "world", server.url, embedder="cohere", permits=EMBED, pages={"handbook/staff/long.md": f"# Long\n\n{parts}"}
    )
    with opened(config) as router:
        report = router.index()
        assert failures(report) == {}
        sizes = [len(one.body["texts"]) for one in server.received]
        assert (max(sizes), sum(sizes)) == (5, sum(one.chunks for one in report.sources))
        assert [one["items"] for one in index_records(router)] == sizes


# --- an endpoint of one's own -----------------------------------------------------------------------------------------


def test_an_endpoint_of_ones_own(tmp_path):
    """Indexed and asked through the other wire format, under its own name in the policies."""
    for server in embeddings_server.serve():
        config = hosted.write_hosted(tmp_path / "world", server.url, embedder="openai_compatible", permits=EMBED)
        with opened(config) as router:
            report = router.index()
            assert (failures(report), notes(report)) == ({}, HIDDEN)
            server.says()
            answer = ask_as(router, "ada", PRESS)
            assert "handbook/staff/press.md" in ids(answer)
            assert any("dense" in passage.why for passage in answer.passages)
            assert json.loads(server.received[0].raw)["input"] == [PRESS]
            assert hosted.body_of(router, answer)["egress"][0]["provider"] == "openai_compatible"
            server.says(days.failure(503))
            assert reasons(ask_as(router, "ada", PRESS), "embed") == ["model_overloaded: only the lexical leg was searched"]
