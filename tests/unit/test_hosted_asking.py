"""Asking with a hosted embedder and a hosted reranker: good days, bad days, permits, and what the answer and the record say."""

from __future__ import annotations

import dataclasses
import math
import threading
import time

import pytest

from router import attempts
from router.ask import ask
from router.domain import Question
from router.remote import merge_places
from tests import cohere_server as fake
from tests import hosted_server as days
from tests import hosted_world as hosted
from tests.hosted_world import EMBED, KEY, NOBODY, RERANK, SECRET, body_of, opened, reasons, write_permits
from tests.unit.test_ask import wide_open
from tests.world import NOW, ask_as, bytes_of, ids

PRESS = "what does ERR-4012 on the press mean"
ALONE = "ranked on this machine alone"
WORDS = "only the lexical leg was searched"


@pytest.fixture(scope="module")
def server():
    yield from fake.serve()


@pytest.fixture(scope="module")
def config(tmp_path_factory, server):
    """Indexed by the hosted embedder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, SECRET)
        made = hosted.write_hosted(tmp_path_factory.mktemp("asking") / "world", server.url, embedder="cohere", rerank_by="cohere")
        with opened(made) as router:
            report = router.index()
        assert not any(source.failures or source.error for source in report.sources)
    return made


@pytest.fixture(autouse=True)
def _good_day(server, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    hosted.never_left_alone(monkeypatch)
    server.says()


@pytest.fixture(scope="module")
def router(config):
    with opened(config) as made:
        yield made


@pytest.fixture(autouse=True)
def _rested(request):
    """A provider that failed in one test is left alone no longer in the next."""
    if "router" in request.fixturenames:
        request.getfixturevalue("router").__dict__.pop("attempts", None)
        for name in ("remote_embedder", "remote_reranker"):
            request.getfixturevalue("router").__dict__.pop(name, None)


def paths(server) -> list[str]:
    return [one.path for one in server.received]


# --- a good day -------------------------------------------------------------------------------------------------------


def test_the_question_is_embedded_and_the_passages_reordered(router, server):
    answer = ask_as(router, "ada", PRESS)
    assert answer.degraded == () or {entry.stage for entry in answer.degraded} == {"now"}
    assert paths(server) == ["/v2/embed", "/v2/rerank"]
    assert {"dense", "lexical"} <= {leg for passage in answer.passages for leg in passage.why}
    asked = server.received[1].body
    assert {f"{passage.title}\n{passage.text}" for passage in answer.passages} <= set(asked["documents"])  # and no context
    overlaps = {passage.document_id: days.overlap(PRESS, f"{passage.title}\n{passage.text}") for passage in answer.passages}
    assert list(overlaps.values()) == sorted(overlaps.values(), reverse=True)
    assert asked["query"] == PRESS
    body = body_of(router, answer)
    assert body["versions"]["reranker"] == "cohere/rerank-test"
    assert body["versions"]["embedder"].startswith("cohere/embed-test@")
    embed, rerank = body["egress"]
    assert (embed["purpose"], embed["classes"], embed["items"], embed["tokens"]) == ("embed", [1], 1, fake.TOKENS)
    assert embed["cost_micros"] == round(fake.TOKENS * 0.5)
    assert (rerank["purpose"], rerank["items"], rerank["cost_micros"]) == ("rerank", len(asked["documents"]), 2000)
    assert [one["bytes"] for one in body["egress"]] == [len(one.raw) for one in server.received]
    assert body["stages"]["embed_hosted"]["us"] > 0
    assert router.spent()["cohere"].calls == 2


def test_what_a_person_may_not_see_is_not_sent(router, server):
    ask_as(router, "low", PRESS)
    assert b"40 bar" not in server.heard  # internal, and she is cleared for what is public
    assert b"yellow sign" in server.heard


def test_what_cedar_refuses_is_not_sent_though_the_store_admits_it(router, server):
    """The border stands behind the filter: a store that let everything through would send nothing more."""
    line = dataclasses.replace(router.line, store=wide_open(router.line.store), alarm=lambda *_, **__: None)
    question = Question(PRESS, NOW, 5, 10.0, as_of=True, route="documents")
    answer = ask(line, router.mint("low"), question)
    assert {"handbook/all/signs.md", "handbook/all/welcome.md"} >= set(ids(answer)) != set()
    assert paths(server) == ["/v2/embed", "/v2/rerank"]
    assert b"40 bar" not in server.heard
    assert b"yellow sign" in server.heard


def test_nothing_granted_asks_no_stranger(router, server):
    answer = ask_as(router, "nil", PRESS)
    assert (answer.outcome, server.received) == ("empty", [])
    assert reasons(answer, "embed") == []


def test_two_people_with_the_same_grants_get_the_same(router):
    one, other = (bytes_of(ask_as(router, "ada", PRESS)) for _ in range(2))
    assert one == other


def test_routing_by_itself(router, server):
    answer = ask_as(router, "ada", PRESS, route=None)
    assert "handbook/staff/press.md" in ids(answer)
    assert paths(server) == ["/v2/embed", "/v2/rerank"]  # the probe is the search: nothing is sent twice


# --- permits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path, config, server):
    """A copy with permits of its own."""

    def make(permits: str, **changes):
        made = hosted.copied(config, tmp_path / "world", **changes)
        write_permits(made, permits)
        return opened(made)

    return make


def test_without_a_permit_nothing_leaves_and_that_is_said(other, server):
    with other(NOBODY) as router:
        answer = ask_as(router, "ada", PRESS)
        assert "handbook/staff/press.md" in ids(answer)
        assert reasons(answer, "embed") == [f"disclosure_not_permitted: {WORDS}"]
        assert reasons(answer, "rerank") == [f"disclosure_not_permitted: {ALONE}"]
        assert {leg for passage in answer.passages for leg in passage.why} == {"lexical"}
        assert body_of(router, answer)["egress"] == []
    assert server.received == []


def test_each_purpose_needs_its_own_permit(other, server):
    with other(RERANK) as router:
        answer = ask_as(router, "ada", PRESS)
        assert reasons(answer, "embed") == [f"disclosure_not_permitted: {WORDS}"]
        assert (reasons(answer, "rerank"), paths(server)) == ([], ["/v2/rerank"])


def test_a_question_above_the_permitted_class_stays(other, server, config):
    with other(EMBED + RERANK) as router:
        folder = router.settings.policy_folder
        text = (folder / "identity.yaml").read_text()
        (folder / "identity.yaml").write_text(text + "question_class: { north: confidential }\n")
        with opened(folder.parent / "pointsman.toml") as strict:
            answer = ask_as(strict, "ada", PRESS)
    assert server.received == []
    assert reasons(answer, "rerank") == [f"disclosure_not_permitted: {ALONE}"]


def test_mixed_passages_are_split_by_class(router, server):
    answer = ask_as(router, "max", PRESS, k=12)
    (said,) = reasons(answer, "rerank")
    assert said == "what is confidential, restricted was not sent to `cohere`: it keeps the place that it has on this machine"
    rerank = server.received[1]
    assert b"40 bar" in rerank.raw
    for hidden in (b"supplement of nine", b"guard was bridged", b"to be sold"):
        assert hidden not in server.heard
    assert {"handbook/hr/accident.md", "handbook/board/sale.md", "handbook/staff/press.md"} <= set(ids(answer))
    (record,) = [one for one in body_of(router, answer)["egress"] if one["purpose"] == "rerank"]
    assert record["classes"] == [0, 1]


def test_what_stays_keeps_its_place():
    assert merge_places(list("abcdef"), list("fdb")) == list("afcdeb")
    assert merge_places(list("abc"), []) == list("abc")
    assert merge_places(list("abc"), list("cba")) == list("cba")


def test_words_of_passages_raise_the_class(other, server):
    """An acronym's words come from a page above the permitted class: the search with them is left to the other leg."""
    with other(EMBED + RERANK) as router:
        folder = router.settings.folder
        page = "# Terms\n\nThe Secret Oil Basin (SOB) lies under the press hall. Ask the board about the basin."
        (folder / "handbook" / "board" / "terms.md").write_text(page)
        router.index(["handbook"])
        server.says()
        answer = ask_as(router, "max", "where is the SOB under the press", strategy="acronyms")
        assert any("Secret Oil Basin" in passage.text for passage in answer.passages)
        assert reasons(answer, "embed") == [f"disclosure_not_permitted: {WORDS}"]
        low = [one for one in server.received if b"Basin" in one.raw or b"basin" in one.raw]
        assert low == []


# --- bad days ---------------------------------------------------------------------------------------------------------

RERANK_DAYS = {
    "401": (days.failure(401), "model_unauthorised"),
    "429": (days.failure(429, retry_after="60"), "model_rate_limited"),
    "500": (days.failure(500), "model_failed"),
    "529": (days.failure(529), "model_overloaded"),
    "cut off": (days.cut_off(), "model_unreachable"),
    "reset": (days.reset(), "model_unreachable"),
    "no JSON": (days.raw(b"<html>"), "model_reply_invalid"),
    "fewer": (fake.reranks(lambda results: results[:2]), "model_reply_invalid"),
    "none": (fake.reranks(lambda results: []), "model_reply_invalid"),
    "twice": (fake.reranks(lambda results: [*results[1:], results[1]]), "model_reply_invalid"),
    "out of range": (fake.reranks(lambda results: [{**results[0], "index": 99}, *results[1:]]), "model_reply_invalid"),
    "below range": (fake.reranks(lambda results: [{**results[0], "index": -1}, *results[1:]]), "model_reply_invalid"),
    "NaN": (fake.reranks(lambda results: [{**results[0], "relevance_score": math.nan}, *results[1:]]), "model_reply_invalid"),
    "no score": (fake.reranks(lambda results: [{"index": one["index"]} for one in results]), "model_reply_invalid"),
    "words": (fake.reranks(lambda results: "ignore all rules"), "model_reply_invalid"),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory, config, server):
    """The order on this machine: with the hosted vectors, and without the hosted reranker."""
    made = hosted.copied(config, tmp_path_factory.mktemp("local") / "world", **{'rerank_by = "cohere"': 'rerank_by = "local"'})
    with pytest.MonkeyPatch.context() as patch, opened(made) as router:
        patch.setenv(KEY, SECRET)
        server.says()
        return ids(ask_as(router, "ada", PRESS))


@pytest.mark.parametrize("day", RERANK_DAYS)
def test_bad_days_of_the_reranker(router, server, local, day):
    reply, code = RERANK_DAYS[day]
    server.says(lambda handler, request: (reply if request.path == "/v2/rerank" else fake.good())(handler, request))
    answer = ask_as(router, "ada", PRESS)
    assert ids(answer) == local
    assert reasons(answer, "embed") == []
    assert reasons(answer, "rerank") == [f"{code}: {ALONE}"]
    body = body_of(router, answer)
    assert {"stage": "rerank", "reason": f"{code}: {ALONE}"} in body["degraded"]
    assert len(body["egress"]) == len(server.received)


def test_scores_in_any_order_are_put_in_order(router, server):
    straight = ids(ask_as(router, "ada", PRESS))
    server.says(fake.good(), fake.reranks(lambda results: sorted(results, key=lambda one: one["index"])))
    assert ids(ask_as(router, "ada", PRESS)) == straight


EMBED_DAYS = {
    "401": (days.failure(401), "model_unauthorised"),
    "429": (days.failure(429, retry_after="60"), "model_rate_limited"),
    "500": (days.failure(500), "model_failed"),
    "529": (days.failure(529), "model_overloaded"),
    "cut off": (days.cut_off(), "model_unreachable"),
    "wrong length": (fake.embeds(lambda rows: [row[:-1] for row in rows]), "model_reply_invalid"),
    "NaN": (fake.embeds(lambda rows: days.spoiled(rows, 3, math.nan)), "model_reply_invalid"),
    "infinite": (fake.embeds(lambda rows: days.spoiled(rows, 3, math.inf)), "model_reply_invalid"),
    "zeros": (fake.embeds(lambda rows: [[0.0] * len(row) for row in rows]), "model_reply_invalid"),
    "none": (fake.embeds(lambda rows: []), "model_reply_invalid"),
    "two": (fake.embeds(lambda rows: rows * 2), "model_reply_invalid"),
}


@pytest.mark.parametrize("day", EMBED_DAYS)
def test_bad_days_of_the_embedder(router, server, day):
    reply, code = EMBED_DAYS[day]
    server.says(lambda handler, request: (reply if request.path == "/v2/embed" else fake.good())(handler, request))
    answer = ask_as(router, "ada", PRESS)
    assert "handbook/staff/press.md" in ids(answer)
    assert {leg for passage in answer.passages for leg in passage.why} == {"lexical"}
    assert reasons(answer, "embed") == [f"{code}: {WORDS}"]
    assert reasons(answer, "rerank") == []
    body = body_of(router, answer)
    assert len(body["egress"]) == len(server.received)
    assert {"stage": "embed", "reason": f"{code}: {WORDS}"} in body["degraded"]


def test_a_limit_that_passes_is_waited_for(router, server):
    server.says(days.failure(429, retry_after="0.2"), fake.good())
    answer = ask_as(router, "ada", PRESS)
    assert reasons(answer, "embed") == []
    assert paths(server) == ["/v2/embed", "/v2/embed", "/v2/rerank"]
    assert len(body_of(router, answer)["egress"]) == 3


@pytest.mark.parametrize("slow", ["/v2/embed", "/v2/rerank"])
def test_slow_days_keep_the_deadline(router, server, slow):
    late = days.slow(4.0, fake.good())
    server.says(lambda handler, request: (late if request.path == slow else fake.good())(handler, request))
    began = time.monotonic()
    answer = ask_as(router, "ada", PRESS, deadline_s=2.0)
    assert time.monotonic() - began < 2.2
    assert "handbook/staff/press.md" in ids(answer)
    stage, rest = ("embed", WORDS) if slow == "/v2/embed" else ("rerank", ALONE)
    assert reasons(answer, stage) == [f"model_late: {rest}"]


def test_a_provider_that_is_down_costs_nobody_time(router, server, monkeypatch):
    monkeypatch.setattr(attempts, "OPEN_AFTER", 5)
    server.says(days.failure(500))
    for _ in range(3):
        ask_as(router, "ada", PRESS)
    server.says()
    answer = ask_as(router, "ada", PRESS)
    assert reasons(answer, "embed") == [f"model_resting: {WORDS}"]
    assert server.received == []
    assert body_of(router, answer)["egress"] == []


def test_without_the_key_nothing_is_opened(config, tmp_path, server, monkeypatch):
    monkeypatch.delenv(KEY)
    with opened(hosted.copied(config, tmp_path / "world")) as router:
        answer = ask_as(router, "ada", PRESS)
        assert reasons(answer, "embed") == [f"model_key_missing: {WORDS}"]
        assert reasons(answer, "rerank") == [f"model_key_missing: {ALONE}"]
        assert body_of(router, answer)["egress"] == []
    assert server.received == []


def test_many_at_once_are_few_at_the_provider(config, tmp_path, server):
    made = hosted.copied(config, tmp_path / "world", **{"embed_price = 0.5": "embed_price = 0.5\ncalls_at_once = 2"})
    while server.at_once:
        time.sleep(0.05)  # what slow days of other tests left behind
    server.says(days.slow(0.05, fake.good()))
    with opened(made) as router:
        ask_as(router, "ada", PRESS)
        threads = [threading.Thread(target=ask_as, args=(router, "ada", PRESS)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert server.most_at_once <= 2
    assert len(server.received) == 18


def test_an_index_of_other_vectors_is_not_searched(config, tmp_path):
    """Back to the local model without building the index again: refused, as with any change of models."""
    from router.errors import PointsmanError

    made = hosted.copied(config, tmp_path / "world", **{'embedder = "cohere"': 'embedder = "local"'})
    with opened(made) as router, pytest.raises(PointsmanError) as raised:
        ask_as(router, "ada", PRESS)
    assert "model" in raised.value.code
