"""The connector against a server on this machine: every bad day of a provider is one of our codes, in time, counted, in our words."""

from __future__ import annotations

import gzip
import json
import logging
import time

import pytest

from connectors import claude
from connectors.claude import Claude
from router import attempts
from router.errors import Refused, SourceError
from tests import anthropic_server as fake

SCHEMA = {"type": "object", "properties": {"cannot": {"type": "string"}}}
CANARY = "CANARY-QUESTION"


@pytest.fixture(scope="module")
def server():
    yield from fake.serve()


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def model(request, server):
    made = Claude(key="sk-CANARY-KEY", model="claude-test", base_url=server.url, streaming=request.param)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)


def ask(model, deadline_s: float = 10.0, sizes: list[int] | None = None):
    counted = [] if sizes is None else sizes

    def attempt(left_s: float):
        return model.draft_hosted(
            "system", CANARY, SCHEMA, deadline_s=left_s, sending=lambda payload: counted.append(len(payload))
        )

    return attempts.Attempts("claude").run(attempt, deadline_s=deadline_s)


def code_of(model, **options) -> str:
    with pytest.raises(SourceError) as raised:
        ask(model, **options)
    shown = f"{raised.value} {raised.value.hint}"
    assert "PROVIDER" not in shown
    assert CANARY not in shown
    assert (raised.value.message, raised.value.hint, raised.value.retryable) == claude._CODES[raised.value.code]
    return raised.value.code


# --- what goes out ----------------------------------------------------------------------------------------------------


def test_a_forced_call_of_one_tool(model, server):
    server.says(fake.answer({"cannot": "déjà"}))
    sizes: list[int] = []
    reply = ask(model, sizes=sizes)
    assert reply.value == {"cannot": "déjà"}
    assert (reply.model, reply.tokens.total) == (fake.MODEL, 20)
    (request,) = server.received
    assert request.path == "/v1/messages"
    assert sizes == [request.size]
    assert request.body["tools"][0]["input_schema"] == SCHEMA
    assert request.body["thinking"] == {"type": "disabled"}
    assert request.body["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
    assert request.body["messages"] == [{"role": "user", "content": CANARY}]
    assert request.body["system"] == "system"
    assert request.headers["authorization"] == "Bearer sk-CANARY-KEY"


def test_a_model_that_thinks_is_not_forced(server):
    thought = {"type": "thinking", "thinking": "PROVIDER-WORDS", "signature": "x"}
    call = {"type": "tool_use", "id": "t", "name": "answer", "input": {"cannot": "x"}}
    for streaming in (False, True):
        model = Claude(key="k", model="m", base_url=server.url, streaming=streaming, thinking="model")
        server.says(fake.content([thought, {"type": "text", "text": "so"}, call], stop="tool_use"))
        assert ask(model).value == {"cannot": "x"}
        (request,) = server.received
        assert "thinking" not in request.body
        assert request.body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
        model.close()


def test_environment_is_ignored(model, server, monkeypatch):
    for name, value in {
        "ANTHROPIC_API_KEY": "ENV-1",
        "ANTHROPIC_AUTH_TOKEN": "ENV-2",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/ENV-3",
        "ANTHROPIC_CUSTOM_HEADERS": "x-env: ENV-4",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "SSL_CERT_FILE": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    server.says(fake.answer({"cannot": ""}))
    ask(model)
    assert "ENV-" not in server.heard
    assert set(server.received[0].headers) == {
        "host", "connection", "accept", "accept-encoding", "content-length", "content-type", "user-agent", "authorization",
        "anthropic-version",
    }  # fmt: skip
    assert server.received[0].headers["user-agent"] == "pointsman"


def test_nothing_is_logged(model, server, caplog):
    caplog.set_level(logging.DEBUG)
    server.says(fake.failure(500), fake.answer({"cannot": ""}))
    ask(model)
    assert "CANARY" not in caplog.text


def test_a_redirect_is_not_followed(model, server):
    server.says(fake.raw(b"", status=307, location=f"{server.url}/elsewhere"))
    assert code_of(model) == "model_rejected"
    assert [request.path for request in server.received] == ["/v1/messages"]


def test_what_sending_raises_stops_the_attempt(model, server):
    server.says(fake.answer({}))

    def sending(_: bytes) -> None:
        raise Refused("egress_sealed", "no")

    with pytest.raises(Refused) as raised:
        model.draft_hosted("s", "p", SCHEMA, deadline_s=5.0, sending=sending)
    assert raised.value.code == "egress_sealed"
    assert server.received == []


# --- what comes back --------------------------------------------------------------------------------------------------

DAYS = {
    "401": (fake.failure(401, "authentication_error"), "model_unauthorised", 1),
    "403": (fake.failure(403, "permission_error"), "model_unauthorised", 1),
    "404": (fake.failure(404, "not_found_error"), "model_unknown", 1),
    "400": (fake.failure(400, "invalid_request_error"), "model_rejected", 1),
    "413": (fake.failure(413, "request_too_large"), "model_rejected", 1),
    "429": (fake.failure(429, "rate_limit_error"), "model_rate_limited", 4),
    "529": (fake.failure(529, "overloaded_error"), "model_overloaded", 4),
    "500": (fake.failure(500), "model_failed", 4),
    "503, a page": (fake.raw(b"<html>PROVIDER", "text/html", 503), "model_failed", 4),
    "overloaded in the stream": (fake.failing_stream("overloaded_error"), "model_overloaded", 4),
    "reset": (fake.reset(), "model_unreachable", 4),
    "cut off": (fake.cut_stream(), "model_unreachable", 4),
    "truncated": (fake.answer({"sql": "SELECT"}, stop="max_tokens"), "model_truncated", 1),
    "declined": (fake.content([], stop="refusal"), "model_refused", 1),
    "nothing": (fake.content([], stop="end_turn"), "model_reply_invalid", 1),
    "only words": (fake.text("PROVIDER-WORDS"), "model_reply_invalid", 1),
    "another tool": (fake.answer({}, name="other"), "model_reply_invalid", 1),
    "two calls": (
        fake.content([{"type": "tool_use", "id": str(at), "name": "answer", "input": {}} for at in (1, 2)], stop="tool_use"),
        "model_reply_invalid",
        1,
    ),
    "a list": (fake.answer([1]), "model_reply_invalid", 1),
    "no JSON": (fake.unparsable(), "model_reply_invalid", 1),
    "deep": (fake.raw(b"[" * 200_000), "model_reply_invalid", 1),
    "a page": (fake.raw(b"<html>PROVIDER</html>", "text/html"), "model_reply_invalid", 1),
    "packed": (fake.raw(gzip.compress(b" " * 10_000_000), content_encoding="gzip"), "model_reply_invalid", 1),
    "endless": (fake.endless(), "model_reply_too_large", 1),
}


@pytest.mark.parametrize("day", DAYS)
def test_each_failure_has_its_code(model, server, day):
    reply, code, attempts = DAYS[day]
    server.says(reply)
    sizes: list[int] = []
    found = code_of(model, sizes=sizes)
    if day in ("deep", "a page") and model._streaming:
        assert found in ("model_unreachable", "model_reply_invalid")  # a stream without an event
    else:
        assert found == code
        assert len(server.received) == attempts
    assert sizes == [request.size for request in server.received]


@pytest.mark.parametrize("bad", ["429", "529", "500", "reset"])
def test_a_bad_moment_is_tried_again(model, server, bad):
    server.says(DAYS[bad][0], DAYS[bad][0], fake.answer({"cannot": "x"}))
    assert ask(model).value == {"cannot": "x"}
    assert len(server.received) == 3


def test_nobody_there(server):
    model = Claude(key="k", model="m", base_url="http://127.0.0.1:9")
    assert code_of(model) == "model_unreachable"


# --- time -------------------------------------------------------------------------------------------------------------


def test_retry_after_is_kept_inside_the_deadline(model, server):
    server.says(fake.failure(429, retry_after="0.4"), fake.answer({"cannot": "x"}))
    start = time.monotonic()
    assert ask(model).value == {"cannot": "x"}
    assert time.monotonic() - start >= 0.4


@pytest.mark.parametrize("wait", ["30", "1e300", "inf", "nan", "-5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_retry_after_never_outlives_the_deadline(model, server, wait):
    server.says(fake.failure(429, retry_after=wait))
    start = time.monotonic()
    assert code_of(model, deadline_s=1.0) == "model_rate_limited"
    assert time.monotonic() - start < 1.5
    assert len(server.received) == (1 if wait == "30" else 4)


def test_slow_replies_end_in_time(model, server):
    for reply in (fake.slow(3.0, fake.answer({})), fake.trickle(3.0)):
        server.says(reply)
        start = time.monotonic()
        assert code_of(model, deadline_s=0.5) == "model_late"
        assert time.monotonic() - start < 1.3
        assert len(server.received) == 1


def test_no_time_left_sends_nothing(model, server):
    server.says(fake.answer({}))
    with pytest.raises(SourceError) as raised:
        model.draft_hosted("s", "p", SCHEMA, deadline_s=0.0, sending=lambda payload: None)
    assert raised.value.code == "model_late"
    assert server.received == []


def test_huge_reply_is_cut(model, server):
    server.says(fake.answer({"cannot": "x" * 2_000_000}))
    assert code_of(model) == "model_reply_too_large"
    server.says(fake.answer({"cannot": json.dumps("x" * 40_000)}))
    assert len(ask(model).value["cannot"]) > 40_000
