"""Contexts through the real client against a server on this machine: one by one and in batches, what goes out and what is read."""

from __future__ import annotations

import json
import time

import pytest

from connectors.claude import CONTEXT_TOKENS, Claude
from router.errors import Refused, SourceError
from router.ports import ContextAsk, Tokens
from tests import anthropic_server as fake

ASK = ContextAsk("a" * 64, "SYSTEM", "DOCUMENT " * 30, "CHUNK", shared=True)
OTHER = ContextAsk("b" * 64, "SYSTEM", "DOCUMENT " * 30, "CHUNK 2", shared=True)
ALONE = ContextAsk("c" * 64, "SYSTEM", "ANOTHER DOCUMENT", "CHUNK 3", shared=False)


@pytest.fixture(scope="module")
def running():
    yield from fake.serve()


@pytest.fixture
def server(running):
    running.says(fake.contexts())
    running.batches = fake.Batches()
    return running


@pytest.fixture
def claude(server):
    made = Claude(key="sk-CANARY-KEY", model="claude-test", base_url=server.url)
    yield made
    made.close()


def write(claude, ask=ASK, sending=lambda _: None, deadline_s=5.0):
    return claude.context_hosted(ask, deadline_s=deadline_s, sending=sending)


def submit(claude, *asks, sending=lambda _: None):
    return claude.submit_hosted(asks, deadline_s=5.0, sending=sending)


def test_the_document_comes_first_and_is_kept(claude, server):
    sent: list[bytes] = []
    first = write(claude, sending=sent.append)
    second = write(claude, OTHER)
    assert (first.text, first.model, first.code) == ("Says where it stands.", fake.MODEL, "")
    assert (first.tokens.cache_write > 0, first.tokens.cache_read) == (True, 0)
    assert (second.tokens.cache_write, second.tokens.cache_read) == (0, first.tokens.cache_write)
    body = server.received[0].body
    document, chunk = body["messages"][0]["content"]
    assert (document["text"], chunk) == (ASK.document, {"type": "text", "text": "CHUNK"})
    assert document["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert (body["system"], body["max_tokens"], body["thinking"]) == ("SYSTEM", CONTEXT_TOKENS["off"], {"type": "disabled"})
    assert "tools" not in body
    assert sent == [server.received[0].text.encode()]


def test_a_document_for_one_ask_is_not_kept(claude, server):
    assert write(claude, ALONE).tokens.cache_write == 0
    assert "cache_control" not in server.received[0].text


def test_a_model_that_thinks_may(server):
    claude = Claude(key="k", model="m", base_url=server.url, thinking="model")
    thought = {"type": "thinking", "thinking": "PROVIDER-WORDS", "signature": "x"}
    server.says(fake.content([thought, {"type": "text", "text": "So."}], stop="end_turn"))
    assert write(claude).text == "So."
    body = server.received[0].body
    assert (body["max_tokens"], "thinking" in body) == (CONTEXT_TOKENS["model"], False)
    claude.close()


@pytest.mark.parametrize(
    ("reply", "text", "code"),
    [
        (fake.content([{"type": "text", "text": "Half a sen"}], stop="max_tokens"), "Half a sen", ""),
        (fake.content([{"type": "text", "text": "No."}], stop="refusal"), "", "model_refused"),
        (fake.content([], stop="end_turn"), "", "model_reply_invalid"),
        (fake.content([{"type": "text", "text": "  \n "}], stop="end_turn"), "", "model_reply_invalid"),
        (fake.content([{"type": "text", "text": 7}, 3], stop="end_turn"), "", "model_reply_invalid"),
        (fake.answer({"x": 1}), "", "model_reply_invalid"),
    ],
)
def test_what_is_read_of_an_answer(claude, server, reply, text, code):
    server.says(reply)
    found = write(claude)
    assert (found.text, found.code) == (text, code)
    assert found.tokens == Tokens(10, 0, 0, 10), "paid for all the same"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (fake.failure(401), "model_unauthorised"),
        (fake.failure(400), "model_rejected"),
        (fake.failure(429), "model_rate_limited"),
        (fake.failure(500), "model_failed"),
        (fake.failure(529), "model_overloaded"),
        (fake.cut_stream(), "model_unreachable"),
        (fake.reset(), "model_unreachable"),
        (fake.raw(b"[]"), "model_reply_invalid"),
        (fake.endless(), "model_reply_too_large"),
        (fake.slow(2.0, fake.contexts()), "model_late"),
    ],
)
def test_bad_days_are_codes_after_one_attempt(claude, server, reply, code):
    server.says(reply)
    with pytest.raises(SourceError) as raised:
        write(claude, deadline_s=1.0)
    assert (raised.value.code, len(server.received)) == (code, 1)
    assert "PROVIDER" not in f"{raised.value}{raised.value.hint}"


def test_retry_after_is_passed_on(claude, server):
    server.says(fake.failure(429, retry_after="7"))
    with pytest.raises(SourceError) as raised:
        write(claude)
    assert raised.value.retry_after_s == 7.0


def dripping(seconds: float):
    """A byte of a header now and then: no single read is ever late."""

    def reply(handler, request) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(b"a")
            handler.wfile.flush()
            time.sleep(0.05)
        handler.close_connection = True

    return reply


def test_dripping_headers_end_in_time(claude, server):
    """On a new connection, and on one that was kept."""
    for replies in ([dripping(4.0)], [fake.contexts(), dripping(4.0)]):
        server.says(*replies)
        for _ in replies[1:]:
            write(claude)
        began = time.monotonic()
        with pytest.raises(SourceError) as raised:
            write(claude, deadline_s=0.4)
        assert (raised.value.code, time.monotonic() - began < 1.2) == ("model_late", True)
    server.says(fake.contexts())
    assert write(claude).text, "the next call has a time of its own"


@pytest.mark.parametrize(
    ("reply", "retryable"),
    [
        (fake.failure(429), True),
        (fake.failure(500), True),
        (fake.failure(529), True),
        (fake.raw(b'{"type":"error","error":{"type":"overloaded_error","message":"PROVIDER-WORDS"}}'), True),
        (fake.cut_stream(), False),
        (fake.reset(), False),
        (fake.failure(502), False),
        (fake.failure(504), False),
        (fake.raw(b"{"), False),
        (fake.raw(b'{"ok": true}'), False),
        (fake.slow(2.0, fake.contexts()), False),
        (dripping(2.0), False),
    ],
)
def test_what_may_have_been_paid_is_not_tried_again(claude, server, reply, retryable):
    server.says(reply)
    with pytest.raises(SourceError) as raised:
        write(claude, deadline_s=0.5)
    assert raised.value.retryable is retryable


def test_who_was_never_reached_was_not_paid(server):
    claude = Claude(key="k", model="m", base_url="http://127.0.0.1:9")
    with pytest.raises(SourceError) as raised:
        write(claude)
    assert (raised.value.code, raised.value.retryable) == ("model_unreachable", True)
    claude.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [("overloaded_error", "model_overloaded"), ("rate_limit_error", "model_rate_limited"), ("api_error", "model_failed")],
)
def test_an_error_that_comes_as_200_is_one(claude, server, kind, code):
    """No answer that was paid for: neither as a context nor as a result of a batch."""
    body = {"type": "error", "error": {"type": kind, "message": "PROVIDER-WORDS"}}
    server.says(fake.raw(json.dumps(body).encode()))
    with pytest.raises(SourceError) as raised:
        write(claude)
    assert raised.value.code == code
    server.batches.message = lambda params: body
    assert list(claude.results_hosted(submit(claude, ASK), deadline_s=5.0)) == []


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": 9}, {"output_tokens": 9}, {"input_tokens": -1, "output_tokens": 9}, "x"]
)
def test_half_a_count_is_none(claude, server, usage):
    server.says(fake.raw(json.dumps({"content": [{"type": "text", "text": "So."}], "usage": usage}).encode()))
    assert write(claude).tokens == Tokens()


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_sent_ends_and_is_read(claude, server):
    server.batches.polls = 2
    sent: list[bytes] = []
    name = submit(claude, ASK, OTHER, ALONE, sending=sent.append)
    assert len(sent) == 1
    (request,) = server.received
    assert [one["custom_id"] for one in request.body["requests"]] == [ASK.key, OTHER.key, ALONE.key]
    assert request.body["requests"][0]["params"]["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"
    assert [claude.ended_hosted(name, deadline_s=5.0) for _ in range(2)] == [False, True]
    found = dict(claude.results_hosted(name, deadline_s=5.0))
    assert {key: reply.text for key, reply in found.items()} == dict.fromkeys(
        (ASK.key, OTHER.key, ALONE.key), "Says where it stands."
    )
    assert sum(reply.tokens.cache_read > 0 for reply in found.values()) == 1
    assert all(one.headers["authorization"] == "Bearer sk-CANARY-KEY" for one in server.received), "no other host was asked"


def test_each_result_has_its_code(claude, server):
    kinds = {ASK.key: "errored", OTHER.key: "expired", ALONE.key: "canceled"}
    server.batches.becomes = kinds.__getitem__
    name = submit(claude, ASK, OTHER, ALONE)
    found = {key: reply.code for key, reply in claude.results_hosted(name, deadline_s=5.0)}
    assert found == {ASK.key: "model_rejected", OTHER.key: "model_late", ALONE.key: "model_late"}


def test_batches_are_listed(claude, server):
    names = [submit(claude, ASK), submit(claude, ASK, OTHER)]
    seen = claude.batches_hosted(0, deadline_s=5.0)
    assert [(one.batch_id, one.items) for one in seen] == [(names[1], 2), (names[0], 1)]
    assert claude.batches_hosted(2**60, deadline_s=5.0) == []
    assert [one.size for one in server.received[2:]] == [0, 0], "nothing but the address"


LISTED = {"id": "msgbatch_1", "created_at": "2026-01-01T00:00:00Z", "request_counts": {"succeeded": 1}}


@pytest.mark.parametrize(
    "page",
    [[], {}, {"data": None}, {"data": [{}]}, {"data": [{**LISTED, "created_at": "soon"}]}, {"data": [{**LISTED, "id": "a/b"}]}],
)
def test_a_list_that_is_none_says_nothing(claude, server, page):
    """What is not in a list counts as never sent, and would be paid for again."""
    server.batches.get = lambda handler, _: handler.send(200, json.dumps(page).encode())
    with pytest.raises(SourceError) as raised:
        claude.batches_hosted(0, deadline_s=5.0)
    assert raised.value.code == "model_reply_invalid"


def test_a_list_that_is_too_long_says_nothing(claude, server, monkeypatch):
    monkeypatch.setattr("connectors.claude.MOST_LISTED", 3)
    server.batches.get = lambda handler, _: handler.send(200, json.dumps({"data": [LISTED] * 2, "has_more": True}).encode())
    with pytest.raises(SourceError) as raised:
        claude.batches_hosted(0, deadline_s=5.0)
    assert raised.value.code == "model_reply_too_large"


@pytest.mark.parametrize("name", ["../../v1/secrets", "a/b", "", "x" * 200, "a?b", "é"])
def test_no_name_of_a_batch_leads_elsewhere(claude, server, name):
    with pytest.raises(SourceError):
        list(claude.results_hosted(name, deadline_s=5.0))
    assert server.received == []


def test_an_unknown_batch_and_odd_lines(claude, server, monkeypatch):
    with pytest.raises(SourceError) as raised:
        claude.ended_hosted("msgbatch_none", deadline_s=5.0)
    assert raised.value.code == "model_unknown"
    lines = [
        b"{",
        b"[]",
        b'{"custom_id": 7}',
        b'{"custom_id": "k", "result": {"type": "succeeded", "message": 3}}',
        b"\xff",
        b"[" * 9_000,
    ]
    good = json.dumps(
        server.batches.result({"custom_id": "good", "params": {"messages": [{"content": [{"text": "d"}, {"text": "c"}]}]}})
    )
    monkeypatch.setattr(
        server.batches, "get", lambda handler, _: handler.send(200, b"\n".join([*lines, good.encode()])), raising=False
    )
    assert [(key, reply.code) for key, reply in claude.results_hosted("msgbatch_1", deadline_s=5.0)] == [("good", "")]


def test_what_stops_the_sending_stops_the_batch(claude, server):
    def no(_: bytes) -> None:
        raise Refused("egress_sealed", "no")

    for call in (lambda: submit(claude, ASK, sending=no), lambda: write(claude, sending=no)):
        with pytest.raises(Refused):
            call()
    assert server.received == []
