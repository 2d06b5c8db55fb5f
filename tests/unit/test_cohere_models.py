"""Cohere's client against a server on this machine: every bad day of a provider is one of our codes, in time, counted, in our words."""

from __future__ import annotations

import json
import logging
import math
import time

import pytest

from connectors import cohere_models
from connectors.cohere_models import Cohere, CohereEmbedder, CohereReranker
from router.errors import Refused, SourceError
from tests import cohere_server as fake
from tests import hosted_server as days

KEY = "co-CANARY-KEY"
TEXTS = ["the press runs at 40 bar", "CANARY-TEXT of the oil filter"]


@pytest.fixture(scope="module")
def server():
    yield from fake.serve()


@pytest.fixture(autouse=True)
def _good_day(server):
    server.says()


@pytest.fixture
def connection(server):
    made = Cohere(key=KEY, base_url=server.url)
    yield made
    made.close()


def embed(connection, *, deadline_s=10.0, sent=None, question=False, **options):
    options = {"model": "embed-test", "dimensions": days.DIMENSIONS, **options}
    noted = [] if sent is None else sent
    embedder = CohereEmbedder(connection, **options)
    return embedder.embed_hosted(TEXTS, question=question, deadline_s=deadline_s, sending=noted.append)


def rerank(connection, *, deadline_s=10.0, sent=None):
    noted = [] if sent is None else sent
    reranker = CohereReranker(connection, model="rerank-test")
    return reranker.rerank_hosted("which oil filter", TEXTS, deadline_s=deadline_s, sending=noted.append)


BOTH = pytest.mark.parametrize("call", [embed, rerank])


def error_of(call, *arguments, **options) -> SourceError:
    with pytest.raises(SourceError) as raised:
        call(*arguments, **options)
    assert raised.value.code in cohere_models._CODES
    return raised.value


# --- a good day -------------------------------------------------------------------------------------------------------


def test_vectors_come_in_the_order_of_the_texts(connection, server):
    sent: list[bytes] = []
    reply = embed(connection, sent=sent)
    assert reply.rows == [days.vector(text) for text in TEXTS]
    assert reply.tokens == fake.TOKENS
    (received,) = server.received
    assert received.path == "/v2/embed"
    assert received.body == {
        "model": "embed-test",
        "texts": TEXTS,
        "input_type": "search_document",
        "embedding_types": ["float"],
        "truncate": "END",
        "output_dimension": days.DIMENSIONS,
    }
    assert sent == [received.raw]


def test_questions_are_embedded_as_questions(connection, server):
    embed(connection, question=True, ask_dimensions=False)
    (received,) = server.received
    assert received.body["input_type"] == "search_query"
    assert "output_dimension" not in received.body


def test_scores_come_with_the_places_of_the_texts(connection, server):
    sent: list[bytes] = []
    reply = rerank(connection, sent=sent)
    assert [at for at, _ in reply.pairs] == [1, 0]  # best first, as the provider has it
    assert reply.searches == fake.SEARCHES
    (received,) = server.received
    assert (received.path, received.body["documents"], received.body["top_n"]) == ("/v2/rerank", TEXTS, 2)
    assert sent == [received.raw]


def test_only_what_is_needed_is_said(connection, server):
    embed(connection)
    (received,) = server.received
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["user-agent"] == "pointsman"
    assert set(received.headers) <= {
        "host", "connection", "accept", "content-length", "content-type", "authorization", "user-agent", "accept-encoding",
    }  # fmt: skip


def test_environment_is_ignored(server, monkeypatch):
    other = "http://127.0.0.1:9/never"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy", "CO_API_URL"):
        monkeypatch.setenv(name, other)
    monkeypatch.setenv("CO_API_KEY", "co-OF-THE-ENVIRONMENT")
    made = Cohere(key=KEY, base_url=server.url)
    embed(made)
    assert b"OF-THE-ENVIRONMENT" not in server.heard
    assert error_of(embed, Cohere(key="", base_url=server.url)).code == "model_key_missing"
    assert len(server.received) == 1


# --- bad days ---------------------------------------------------------------------------------------------------------

DAYS = {
    "401": (days.failure(401), "model_unauthorised"),
    "403": (days.failure(403), "model_unauthorised"),
    "498": (days.failure(498), "model_unauthorised"),
    "404": (days.failure(404), "model_unknown"),
    "400": (days.failure(400), "model_rejected"),
    "422": (days.failure(422), "model_rejected"),
    "429": (days.failure(429), "model_rate_limited"),
    "500": (days.failure(500), "model_failed"),
    "501": (days.failure(501), "model_failed"),
    "503": (days.failure(503), "model_overloaded"),
    "529": (days.failure(529), "model_overloaded"),
    "an error that is no JSON": (days.raw(b"<html>PROVIDER-WORDS", 502, "text/html"), "model_failed"),
    "no JSON": (days.raw(b"<html>PROVIDER-WORDS"), "model_reply_invalid"),
    "half a JSON": (days.raw(b'{"embeddings": {"float": [[0.1'), "model_reply_invalid"),
    "deep": (days.raw(b"[" * 100_000), "model_reply_invalid"),
    "cut off": (days.cut_off(), "model_unreachable"),
    "reset": (days.reset(), "model_unreachable"),
    "compressed": (days.raw(b"x", content_encoding="gzip"), "model_reply_invalid"),
    "elsewhere": (days.redirect("http://127.0.0.1:9/never"), "model_rejected"),
}


@BOTH
@pytest.mark.parametrize("day", DAYS)
def test_each_failure_has_its_code(connection, server, call, day):
    """One attempt, noted, in our words."""
    reply, code = DAYS[day]
    server.says(reply)
    sent: list[bytes] = []
    error = error_of(call, connection, sent=sent)
    assert error.code == code
    assert (error.message, error.hint, error.retryable) == cohere_models._CODES[code]
    assert "PROVIDER-WORDS" not in f"{error} {error.hint} {error.__cause__} {error.__context__ and ''}"
    assert len(server.received) == len(sent) == 1


@pytest.mark.parametrize(("said", "kept"), [("7", 7.0), ("0.5", 0.5), ("soon", 0.0), ("-3", 0.0), ("nan", 0.0), ("1e12", 0.0)])
def test_retry_after_is_handed_on(connection, server, said, kept):
    server.says(days.failure(429, retry_after=said))
    assert error_of(embed, connection).retry_after_s == kept
    assert len(server.received) == 1  # the client itself tries nothing again


def test_nobody_there():
    assert error_of(embed, Cohere(key=KEY, base_url="http://127.0.0.1:9")).code == "model_unreachable"


def dripping_header(seconds: float):
    """A byte of a header now and then: no single read is ever late."""

    def reply(handler, request) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
        handler.close_connection = True

    return reply


@BOTH
@pytest.mark.parametrize(
    "reply", [days.slow(3.0, fake.good()), days.trickle(3.0), dripping_header(3.0)], ids=["slow", "trickle", "header"]
)
def test_slow_replies_end_in_time(connection, server, call, reply):
    server.says(reply)
    began = time.monotonic()
    assert error_of(call, connection, deadline_s=0.3).code == "model_late"
    assert time.monotonic() - began < 1.5


@BOTH
def test_huge_reply_is_cut(connection, server, call, monkeypatch):
    monkeypatch.setattr(cohere_models, "MAX_REPLY_BYTES", 1_000_000)
    server.says(days.endless())
    assert error_of(call, connection).code == "model_reply_too_large"


@BOTH
def test_what_sending_raises_stops_the_attempt(connection, server, call, monkeypatch):
    class Stop(list):
        def append(self, _):
            raise Refused("egress_sealed", "no")

    with pytest.raises(Refused):
        call(connection, sent=Stop())
    assert server.received == []


@pytest.mark.parametrize(
    "body",
    [b"null", b"[]", b"5", b'"x"', b"{}", b'{"embeddings": 5}', b'{"embeddings": {"float": "x"}}', b'{"results": {"a": 1}}',
     b'{"results": [5, null]}', b'{"id": [], "embeddings": {"float": [["a"]]}, "meta": {"billed_units": {"input_tokens": "x"}}}',
     b'{"id": "x", "results": [{}], "embeddings": null, "meta": 7}'],
)  # fmt: skip
def test_odd_replies_never_raise_anything_else(connection, server, body):
    """What is not seen here is seen in `router/egress.py`, which checks whatever rows and scores there are."""
    from router.egress import check_scores, check_vectors

    server.says(days.raw(body))
    with pytest.raises(SourceError) as raised:
        check_vectors(embed(connection).rows, 2, days.DIMENSIONS)
    assert raised.value.code == "model_reply_invalid"
    with pytest.raises(SourceError) as raised:
        check_scores(rerank(connection).pairs, 2)
    assert raised.value.code == "model_reply_invalid"


def test_numbers_are_handed_on_as_they_are(connection, server):
    server.says(fake.embeds(lambda rows: days.spoiled(rows, 0, math.nan)))
    assert math.isnan(embed(connection).rows[0][0])


def test_nothing_is_logged(connection, server, caplog):
    with caplog.at_level(logging.DEBUG):
        for name in ("cohere", "httpx", "httpcore"):
            assert logging.getLogger(name).getEffectiveLevel() >= logging.ERROR
        embed(connection)
        server.says(days.failure(500))
        error_of(rerank, connection)
    assert "CANARY" not in json.dumps([record.getMessage() for record in caplog.records])
