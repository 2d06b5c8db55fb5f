"""A server on this machine that speaks the wire format of Cohere's API v2 for embed and rerank."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.hosted_server import Handler, HostedServer, Received, Reply, overlap, serving, vector

TOKENS, SEARCHES = 7, 1


def serve() -> Iterator[HostedServer]:
    """For a fixture: a server that embeds and reranks."""
    with serving(good()) as server:
        yield server


def good() -> Reply:
    def reply(handler: Handler, request: Received) -> None:
        (_embedded if request.path == "/v2/embed" else _reranked)(handler, request)

    return reply


def embeds(change: Callable[[list[list[float]]], Any]) -> Reply:
    """The vectors, changed by the test."""
    return lambda handler, request: _embedded(handler, request, change)


def reranks(change: Callable[[list[dict[str, Any]]], Any]) -> Reply:
    """The results, best first, changed by the test."""
    return lambda handler, request: _reranked(handler, request, change)


def _embedded(handler: Handler, request: Received, change: Callable[[list[list[float]]], Any] = lambda rows: rows) -> None:
    texts = request.body["texts"]
    body = {
        "id": "e-1",
        "response_type": "embeddings_by_type",
        "texts": texts,
        "embeddings": {"float": change([vector(text) for text in texts])},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": TOKENS}},
    }
    handler.send(200, json.dumps(body).encode())


def _reranked(
    handler: Handler, request: Received, change: Callable[[list[dict[str, Any]]], Any] = lambda results: results
) -> None:
    asked, texts = request.body["query"], request.body["documents"]
    results = [{"index": at, "relevance_score": overlap(asked, text)} for at, text in enumerate(texts)]
    results.sort(key=lambda one: -one["relevance_score"])
    body = {
        "id": "r-1",
        "results": change(results[: request.body.get("top_n", len(results))]),
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": SEARCHES}},
    }
    handler.send(200, json.dumps(body).encode())
