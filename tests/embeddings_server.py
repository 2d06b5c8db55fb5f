"""A server on this machine that speaks the wire format of OpenAI-compatible `/embeddings` endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.hosted_server import Handler, HostedServer, Received, Reply, serving, vector


def serve() -> Iterator[HostedServer]:
    """For a fixture."""
    with serving(good()) as server:
        yield server


def good() -> Reply:
    return embeds(lambda data: data)


def embeds(change: Callable[[list[dict[str, Any]]], Any]) -> Reply:
    """The list `data`, changed by the test."""

    def reply(handler: Handler, request: Received) -> None:
        data = [{"object": "embedding", "index": at, "embedding": vector(text)} for at, text in enumerate(request.body["input"])]
        body = {
            "object": "list",
            "data": change(data),
            "model": request.body["model"],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }
        handler.send(200, json.dumps(body).encode())

    return reply
