"""Requests to OpenSearch: one deadline over all tries, failures in our own words, bulk writes that give way when told to.

INVARIANT: no error and no log line of the client shows a host, a query, a label or a text
(tests/unit/test_opensearch_wire.py::test_errors_show_nothing).
INVARIANT: only what is safe to send again is sent again: reads, and writes of whole entries under ids of our own
(…::test_what_is_tried_again).
INVARIANT: one deadline holds over all tries, pauses, hosts and the reading of replies
(tests/unit/test_opensearch_replies.py::test_hosts_that_break_off_late).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opensearchpy import OpenSearch, exceptions

from connectors.opensearch_documents.connection import Connection, Unanswered, Unsent
from connectors.opensearch_documents.replies import (
    answers_of,
    check_answer,
    failure,
    invalid,
    is_absent,
    kind_of,
    late,
    reason_of,
    refused_of,
)
from router.errors import SourceError

POOL = 16
DEAD_S = 5.0
"""After so long a host that failed is tried again."""
BATCH_BYTES = 4_000_000
BATCH_ENTRIES = 1_000
LEAST_ENTRIES = 20
PATIENCE_S = 120.0
"""How long writes that are told to wait are sent again."""
RECOVERY_S = 4.0
"""How long a question waits for a shard that is missing or a node that is busy, and half of what it has left at most."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_RECOVERY_PAUSE_S = 0.05, 5.0, 0.4
_RECOVERS = frozenset({"store_unavailable", "store_unreachable"})
_AGAIN = _RECOVERS | {"store_busy"}
_SAFE_METHODS = frozenset({"DELETE", "GET", "HEAD"})
_SAFE_CALLS = frozenset(
    {
        "_bulk",
        "_count",
        "_flush",
        "_forcemerge",
        "_mapping",
        "_mget",
        "_msearch",
        "_refresh",
        "_search",
        "point_in_time",
    }
)
"""Calls that may be sent twice. Of all others it must be read what became of them."""
_NDJSON = {"content-type": "application/x-ndjson"}
_BULK_FIELDS = "errors,items.*._id,items.*.status,items.*.error.type,error.type,status"


@dataclass(frozen=True, slots=True)
class Place:
    """Where OpenSearch is and how it is spoken to. Every host is an URL; `https` is checked against `ca` or the system's CAs."""

    hosts: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class Deadline:
    """Seconds that are left for all requests of one call. A patient one waits for a busy cluster as long as there is time."""

    def __init__(self, seconds: float, *, patient: bool = False) -> None:
        self._end = time.monotonic() + seconds
        self.patient = patient

    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def left_s(self) -> float:
        """Raises when nothing is left, before anything is sent."""
        left = self._end - time.monotonic()
        if left <= 0.001:
            raise late()
        return left


class Wire:
    """One client with a pool of connections a host; threads may share it."""

    def __init__(self, place: Place) -> None:
        _silence_client()
        more: dict[str, Any] = {}
        if place.username is not None:
            more["http_auth"] = (place.username, place.password or "")
        if any(host.startswith("https:") for host in place.hosts):
            more |= {"verify_certs": True, "ca_certs": place.ca, "client_cert": place.client_cert, "client_key": place.client_key}
        self._several = len(place.hosts) > 1
        self._tries = 1 + max(1, len(place.hosts))
        self._client = OpenSearch(
            list(place.hosts),
            connection_class=Connection,
            pool_maxsize=POOL,
            max_retries=0,  # ours know of the deadline, and of what may be sent twice
            retry_on_timeout=False,
            dead_timeout=DEAD_S,
            timeout_cutoff=0,
            **more,
        )
        self._batch = BATCH_ENTRIES

    def close(self) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline,
        body: str | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        absent_ok: bool = False,
        lines: bool = False,
        busy_s: float = RECOVERY_S,
    ) -> Any:
        """One request. None for what is not there, where that is no fault. A host that fails gives way to the next; one that says
        nothing costs half of what is left, is asked once and then by nobody for a while; one that is busy is asked again after a
        pause. What may not be sent twice is sent again only when it reached nobody."""
        safe = method in _SAFE_METHODS or path.rpartition("/")[2] in _SAFE_CALLS
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        tries, pause_s, slow = 0, _FIRST_PAUSE_S, False
        busy_until = time.monotonic() + (deadline.left_s() if deadline.patient else min(busy_s, deadline.left_s() / 2))
        while True:
            left_s = deadline.left_s()
            wait_s = left_s / 2 if self._several and safe and not slow else left_s
            try:
                reply = self._client.transport.perform_request(
                    method, path, params=dict(params or {}), body=text, timeout=wait_s, headers=_NDJSON if lines else None
                )
                if reply is None:  # a `null`, which must not be taken for what is not there
                    raise invalid()
                return reply
            except SourceError:
                raise
            except exceptions.NotFoundError as error:
                if absent_ok and is_absent(error.info):
                    return None
                raise translate(error) from None
            except Unanswered as error:
                self._client.transport.mark_dead(error.connection)
                if slow or not self._several or not safe:
                    raise translate(error) from None
                slow = True
            except exceptions.TransportError as error:
                tries += 1
                if _is_busy(error) and safe:
                    if time.monotonic() + pause_s >= busy_until:
                        raise translate(error) from None
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                elif tries >= self._tries or not _is_lost(error, safe=safe) or deadline.is_over():
                    raise translate(error) from None
            except (exceptions.OpenSearchException, OSError, ValueError, RecursionError) as error:
                raise translate(error) from None

    def search_many(self, index: str, parts: Sequence[str], *, deadline: Deadline) -> list[dict[str, Any]] | None:
        """Answers of several searches in one request, each as it came; None where the index is not there. While a cluster that
        lost a node names new primaries, a shard is missing for a moment: asked again as long as half of the deadline is left. A part
        that a node is too busy for is asked again like a whole request."""
        end, pause_s = time.monotonic() + min(RECOVERY_S, deadline.left_s() / 2), _FIRST_PAUSE_S
        while True:
            try:
                answers = self._search_once(index, parts, deadline)
                codes = {_code_of(answer) for answer in answers or ()}
                if not codes & _AGAIN or time.monotonic() + pause_s > end:
                    return answers
            except SourceError as error:
                if not self._several or error.code not in _RECOVERS or time.monotonic() + pause_s > end:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RECOVERY_PAUSE_S)

    def _search_once(self, index: str, parts: Sequence[str], deadline: Deadline) -> list[dict[str, Any]] | None:
        wait_ms = max(1, int(deadline.left_s() * 1000))
        # A count is of one question under one filter and is not asked again: kept by a node, it would push out what is.
        head = f'{{"allow_partial_search_results":false,"request_cache":false,"cancel_after_time_interval":"{wait_ms}ms"}}\n'
        body = "".join(f"{head}{part}\n" for part in parts)
        found = self.send("POST", f"/{index}/_msearch", body=body, deadline=deadline, absent_ok=True, lines=True)
        if found is None:
            return None
        answers = answers_of(found, len(parts))
        if any("error" in answer and reason_of(answer)[1] == "index_not_found_exception" for answer in answers):
            return None
        return answers

    def write_many(self, index: str, entries: Iterator[str] | Sequence[str], *, missing_ok: bool = False) -> None:
        """Bulk entries in their order, in batches that shrink when the cluster is busy. What it refuses to take now is sent again,
        and nothing else; what it refuses for good raises."""
        held: list[str] = []
        size = 0
        for entry in entries:
            held.append(entry)
            size += len(entry)
            if size >= BATCH_BYTES or len(held) >= self._batch:
                self._write_batch(index, held, missing_ok=missing_ok)
                held, size = [], 0
        if held:
            self._write_batch(index, held, missing_ok=missing_ok)

    def _write_batch(self, index: str, entries: list[str], *, missing_ok: bool) -> None:
        end, pause_s = Deadline(PATIENCE_S), _FIRST_PAUSE_S
        while entries:
            try:
                answer = self.send(
                    "POST",
                    f"/{index}/_bulk",
                    body="".join(entries),
                    params={"filter_path": _BULK_FIELDS, "timeout": "30s"},
                    deadline=Deadline(PATIENCE_S),
                    lines=True,
                    busy_s=4 * _FIRST_PAUSE_S,  # then smaller batches are more likely to be taken
                )
            except SourceError as error:
                if error.code != "store_busy":
                    raise
                if len(entries) > LEAST_ENTRIES:  # also a breaker that finds the whole request too large
                    middle = len(entries) // 2
                    for part in (entries[:middle], entries[middle:]):
                        self._write_batch(index, part, missing_ok=missing_ok)
                    return
                refused = entries
            else:
                refused = refused_of(answer, entries, missing_ok=missing_ok)
            if refused:
                self._batch = max(LEAST_ENTRIES, self._batch // 2)
                if end.is_over():
                    raise failure(429, "")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            elif self._batch < BATCH_ENTRIES:
                self._batch = min(BATCH_ENTRIES, self._batch + LEAST_ENTRIES)
            entries = refused


def _code_of(answer: Mapping[str, Any]) -> str:
    try:
        check_answer(answer)
    except SourceError as error:
        return error.code
    return ""


def _is_busy(error: exceptions.TransportError) -> bool:
    return error.status_code == 429 and kind_of(error.info) != "cluster_block_exception"


def _is_lost(error: exceptions.TransportError, *, safe: bool) -> bool:
    """Whether another host may know better. Nobody knows what became of a request that reached a host which then broke off."""
    if isinstance(error, exceptions.SSLError):
        return False
    if isinstance(error, Unsent):
        return True
    return safe and (isinstance(error, exceptions.ConnectionError) or error.status_code in (502, 503, 504))


def translate(error: Exception) -> SourceError:
    """The client's exceptions as ours; nothing of their text gets out."""
    match error:
        case exceptions.ConnectionTimeout():
            return late()
        case exceptions.SSLError():
            return SourceError(
                "store_untrusted", "the certificate of OpenSearch cannot be trusted", "check `ca` under `[stores.opensearch]`"
            )
        case exceptions.ConnectionError():
            return failure(0, "")
        case exceptions.NotFoundError() if not is_absent(error.info):
            kind = kind_of(error.info)
            return failure(400, kind) if kind else invalid()
        case exceptions.TransportError():
            return failure(int(error.status_code), kind_of(error.info))
        case exceptions.SerializationError() | ValueError() | RecursionError():
            return invalid()
    return failure(0 if isinstance(error, OSError) else 500, "")


def _silence_client() -> None:
    """The client would write addresses and whole queries to its log, and a failure to standard error. What failed is our error."""
    for name in ("opensearch", "opensearchpy.trace"):
        logging.getLogger(name).disabled = True
