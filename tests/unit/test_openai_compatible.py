"""The connector of OpenAI-compatible endpoints against a server on this machine: codes, time, bytes, order."""

from __future__ import annotations

import time

import pytest

from connectors import openai_compatible
from connectors.openai_compatible import OpenAICompatible
from router.egress import check_vectors
from router.errors import Refused, SourceError
from tests import embeddings_server as fake
from tests import hosted_server as days

KEY = "sk-CANARY-KEY"
TEXTS = ["the press runs at 40 bar", "the oil filter", "ein Öl\ud800"]


@pytest.fixture(scope="module")
def server():
    yield from fake.serve()


@pytest.fixture(autouse=True)
def _good_day(server):
    server.says()


def made(server, **options) -> OpenAICompatible:
    options = {"base_url": f"{server.url}/v1", "model": "e5-test", "dimensions": days.DIMENSIONS, "key": KEY, **options}
    return OpenAICompatible(**options)


def embed(server, *, deadline_s=10.0, question=False, sent=None, **options):
    noted = [] if sent is None else sent
    return made(server, **options).embed_hosted(TEXTS, question=question, deadline_s=deadline_s, sending=noted.append)


def error_of(*arguments, **options) -> SourceError:
    with pytest.raises(SourceError) as raised:
        embed(*arguments, **options)
    assert raised.value.code in openai_compatible._CODES
    return raised.value


# --- a good day -------------------------------------------------------------------------------------------------------


def test_what_is_asked(server):
    sent: list[bytes] = []
    reply = embed(server, sent=sent)
    (received,) = server.received
    assert received.path == "/v1/embeddings"
    assert received.body == {"model": "e5-test", "input": [*TEXTS[:2], "ein Öl?"], "encoding_format": "float"}
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert sent == [received.raw]
    assert (len(reply.rows), reply.tokens) == (3, 5)


def test_prefixes_dimensions_and_no_key(server):
    embed(server, question=True, question_prefix="query: ", passage_prefix="passage: ", ask_dimensions=True, key=None)
    embed(server, question_prefix="query: ", passage_prefix="passage: ")
    question, passages = (one.body for one in server.received)
    assert (question["input"][0], question["dimensions"]) == (f"query: {TEXTS[0]}", days.DIMENSIONS)
    assert passages["input"][0] == f"passage: {TEXTS[0]}"
    assert "authorization" not in server.received[0].headers
    assert made(server, question_prefix="query: ").variant != made(server).variant


def test_rows_are_put_in_order(server):
    server.says(fake.embeds(lambda data: data[::-1]))
    assert embed(server).rows[:2] == [days.vector(text) for text in TEXTS[:2]]


def test_environment_is_ignored(server, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/never")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-OF-THE-ENVIRONMENT")
    embed(server, key=None)
    assert b"OF-THE-ENVIRONMENT" not in server.heard
    assert error_of(server, key="").code == "model_key_missing"
    assert len(server.received) == 1


# --- bad days ---------------------------------------------------------------------------------------------------------

DAYS = {
    "401": (days.failure(401), "model_unauthorised"),
    "404": (days.failure(404), "model_unknown"),
    "400": (days.failure(400), "model_rejected"),
    "429": (days.failure(429), "model_rate_limited"),
    "500": (days.failure(500), "model_failed"),
    "529": (days.failure(529), "model_overloaded"),
    "no JSON": (days.raw(b"<html>PROVIDER-WORDS"), "model_reply_invalid"),
    "no UTF-8": (days.raw(b"\xff\xfe{}"), "model_reply_invalid"),
    "deep": (days.raw(b"[" * 100_000), "model_reply_invalid"),
    "nothing": (days.raw(b""), "model_reply_invalid"),
    "no list": (days.raw(b'{"data": {"index": 0}}'), "model_reply_invalid"),
    "cut off": (days.cut_off(), "model_unreachable"),
    "reset": (days.reset(), "model_unreachable"),
    "elsewhere": (days.redirect("http://127.0.0.1:9/never"), "model_rejected"),
    "twice": (fake.embeds(lambda data: [*data[:2], data[0]]), "model_reply_invalid"),
    "out of range": (fake.embeds(lambda data: [*data[:2], {**data[2], "index": 3}]), "model_reply_invalid"),
    "below range": (fake.embeds(lambda data: [*data[:2], {**data[2], "index": -1}]), "model_reply_invalid"),
    "a place that is true": (fake.embeds(lambda data: [{**data[0], "index": False}, *data[1:]]), "model_reply_invalid"),
    "no place": (fake.embeds(lambda data: [{"embedding": []}, *data[1:]]), "model_reply_invalid"),
    "odd entries": (fake.embeds(lambda data: [None, 5, "x"]), "model_reply_invalid"),
}


@pytest.mark.parametrize("day", DAYS)
def test_each_failure_has_its_code(server, day):
    reply, code = DAYS[day]
    server.says(reply)
    sent: list[bytes] = []
    error = error_of(server, sent=sent)
    assert error.code == code
    assert (error.message, error.hint, error.retryable) == openai_compatible._CODES[code]
    assert "PROVIDER-WORDS" not in f"{error} {error.hint}"
    assert len(server.received) == len(sent) == 1


def test_retry_after_is_handed_on(server):
    for status in (429, 503):
        server.says(days.failure(status, retry_after="7"))
        assert error_of(server).retry_after_s == 7.0


def test_fewer_rows_than_texts_are_seen_by_who_checks(server):
    server.says(fake.embeds(lambda data: data[:2]))
    with pytest.raises(SourceError) as raised:
        check_vectors(embed(server).rows, len(TEXTS), days.DIMENSIONS)
    assert raised.value.code == "model_reply_invalid"


def trickling_header(seconds: float) -> days.Reply:
    """A header that never ends: the body's bounds do not help here."""

    def reply(handler, _):
        until = time.monotonic() + seconds
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        while time.monotonic() < until:
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
        handler.close_connection = True

    return reply


@pytest.mark.parametrize(
    "reply", [days.slow(3.0, fake.good()), days.trickle(3.0), trickling_header(3.0)], ids=["slow", "trickle", "header"]
)
def test_slow_replies_end_in_time(server, reply):
    server.says(reply)
    began = time.monotonic()
    assert error_of(server, deadline_s=0.3).code == "model_late"
    assert time.monotonic() - began < 1.0


def test_huge_reply_is_cut(server, monkeypatch):
    monkeypatch.setattr(openai_compatible, "MAX_REPLY_BYTES", 1_000_000)
    server.says(days.endless())
    assert error_of(server).code == "model_reply_too_large"


def test_nobody_there(server):
    assert error_of(server, base_url="http://127.0.0.1:9").code == "model_unreachable"


def test_a_server_without_its_certificate(server):
    """The address says https, and the other side does not speak it."""
    assert error_of(server, base_url=server.url.replace("http:", "https:"), deadline_s=3.0).code == "model_unreachable"


def test_what_sending_raises_stops_the_attempt(server):
    class Stop(list):
        def append(self, _):
            raise Refused("egress_sealed", "no")

    with pytest.raises(Refused):
        embed(server, sent=Stop())
    assert server.received == []
