"""Requests to OpenSearch: one deadline over all tries, failures in our own words, bulk writes that give way when told to.

INVARIANT: a search that lacks a shard or ran out of time is a failure, though OpenSearch says 200
(tests/unit/test_opensearch_wire.py::test_trap_partial_hits_come_as_200).
INVARIANT: no error and no log line of the client shows a host, a query, a label or a text (…::test_errors_show_nothing).
INVARIANT: only what is safe to send again is sent again: reads, and writes of whole entries under ids of our own
(…::test_what_is_tried_again).
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opensearchpy import OpenSearch, Urllib3HttpConnection, exceptions

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
"""How long a question waits for a shard that is missing."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_RECOVERY_PAUSE_S = 0.05, 5.0, 0.4
_RECOVERS = frozenset({"store_unavailable", "store_unreachable"})
_NODE_LOST = frozenset(
    {
        "cluster_manager_not_discovered_exception",
        "connect_transport_exception",
        "index_shard_closed_exception",
        "no_shard_available_action_exception",
        "node_closed_exception",
        "node_disconnected_exception",
        "node_not_connected_exception",
        "receive_timeout_transport_exception",
        "search_context_missing_exception",
        "shard_not_found_exception",
        "unavailable_shards_exception",
    }
)
"""Of a node that went while it was asked, between its hits and their fields for instance: 404, 500 or 503, and gone a moment later."""
_BUSY_TRIES = 3
_NDJSON = {"content-type": "application/x-ndjson"}


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
            raise _late()
        return left


class _Unanswered(exceptions.ConnectionTimeout):
    """With the connection that it was."""

    def __init__(self, error: exceptions.ConnectionTimeout, connection: _Connection) -> None:
        super().__init__(*error.args)
        self.connection = connection


class _Connection(Urllib3HttpConnection):
    """One host's connections, which say of themselves that they got no answer in time: the client does not remember it."""

    def perform_request(self, *request: Any, **more: Any) -> Any:
        try:
            return super().perform_request(*request, **more)
        except exceptions.ConnectionTimeout as error:
            raise _Unanswered(error, self) from None


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
        self._client = OpenSearch(
            list(place.hosts),
            connection_class=_Connection,
            pool_maxsize=POOL,
            max_retries=max(1, len(place.hosts)),
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
    ) -> Any:
        """One request. None for what is not there, where that is no fault. A host that says nothing costs half of what is left, is
        asked once and then by nobody for a while; one that is busy is asked again after a pause."""
        tries, pause_s, slow = 0, _FIRST_PAUSE_S, False
        while True:
            left_s = deadline.left_s()
            wait_s = left_s / 2 if self._several and not slow else left_s
            try:
                return self._client.transport.perform_request(
                    method,
                    path,
                    params=dict(params or {}),
                    body=body if isinstance(body, str) or body is None else json.dumps(body),
                    timeout=wait_s,
                    headers=_NDJSON if lines else None,
                )
            except exceptions.NotFoundError as error:
                if absent_ok:
                    return None
                raise translate(error) from None
            except _Unanswered as error:
                self._client.transport.mark_dead(error.connection)
                if slow or not self._several:
                    raise translate(error) from None
                slow = True
            except exceptions.TransportError as error:
                tries += 1
                busy = error.status_code == 429 and _kind(error) != "cluster_block_exception"
                if not busy or (tries >= _BUSY_TRIES and not deadline.patient) or deadline.left_s() <= pause_s:
                    raise translate(error) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except (exceptions.OpenSearchException, OSError, ValueError) as error:
                raise translate(error) from None

    def search_many(self, index: str, parts: Sequence[str], *, deadline: Deadline) -> list[dict[str, Any]] | None:
        """Answers of several searches in one request, each as it came; None where the index is not there. While a cluster that
        lost a node names new primaries, a shard is missing for a moment: asked again as long as half of the deadline is left. A part
        that a node is too busy for is asked again like a whole request."""
        end, pause_s, tries = time.monotonic() + min(RECOVERY_S, deadline.left_s() / 2), _FIRST_PAUSE_S, 0
        while True:
            try:
                answers = self._search_once(index, parts, deadline)
                tries += 1
                codes = {_code_of(answer) for answer in answers or ()}
                again = codes & _RECOVERS or ("store_busy" in codes and tries < _BUSY_TRIES)
                if not again or time.monotonic() + pause_s > end:
                    return answers
            except SourceError as error:
                if not self._several or error.code not in _RECOVERS or time.monotonic() + pause_s > end:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RECOVERY_PAUSE_S)

    def _search_once(self, index: str, parts: Sequence[str], deadline: Deadline) -> list[dict[str, Any]] | None:
        wait_ms = max(1, int(deadline.left_s() * 1000))
        head = f'{{"allow_partial_search_results":false,"cancel_after_time_interval":"{wait_ms}ms"}}\n'
        body = "".join(f"{head}{part}\n" for part in parts)
        found = self.send("POST", f"/{index}/_msearch", body=body, deadline=deadline, absent_ok=True, lines=True)
        if found is None:
            return None
        answers: list[dict[str, Any]] = found["responses"]
        if any(_reason(answer)[1] == "index_not_found_exception" for answer in answers):
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
                    params={"filter_path": "errors,items.*.status,items.*.error.type", "timeout": "30s"},
                    deadline=Deadline(PATIENCE_S),
                    lines=True,
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
                refused = _refused(answer, entries, missing_ok=missing_ok)
            if refused:
                self._batch = max(LEAST_ENTRIES, self._batch // 2)
                if end.is_over():
                    raise failure(429, "")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            elif self._batch < BATCH_ENTRIES:
                self._batch = min(BATCH_ENTRIES, self._batch + LEAST_ENTRIES)
            entries = refused


def _refused(answer: Mapping[str, Any], entries: list[str], *, missing_ok: bool) -> list[str]:
    """Entries that the cluster was too busy for. Raises on any other failure."""
    if not answer.get("errors"):
        return []
    again: list[str] = []
    for item, entry in zip(answer["items"], entries, strict=True):
        [(operation, result)] = item.items()
        status, kind = int(result["status"]), str(result.get("error", {}).get("type", ""))
        if status < 300 or (status == 404 and (operation == "delete" or missing_ok)):
            continue
        if status == 429 and kind != "cluster_block_exception":
            again.append(entry)
        else:
            raise failure(status, kind)
    return again


def check_answer(answer: Mapping[str, Any]) -> None:
    """Raises unless the search saw every shard to its end."""
    if "error" in answer:
        raise failure(*_reason(answer))
    if answer.get("timed_out"):
        raise _late()
    shards = answer.get("_shards", {})
    if shards.get("failed", 1) or shards.get("successful") != shards.get("total"):
        raise failure(503, "partial")


def _code_of(answer: Mapping[str, Any]) -> str:
    try:
        check_answer(answer)
    except SourceError as error:
        return error.code
    return ""


def _reason(answer: Mapping[str, Any]) -> tuple[int, str]:
    error = answer.get("error")
    if not isinstance(error, Mapping):
        return int(answer.get("status", 200)), ""
    return int(answer.get("status", 500)), _cause(error)


def _cause(error: Mapping[str, Any]) -> str:
    """The type of what happened; a search that failed says it of its shards, or of what stopped it."""
    kind = str(error.get("type", ""))
    if not kind.startswith("search_phase"):
        return kind
    causes = [cause.get("reason", {}).get("type", "") for cause in error.get("failed_shards", ())]
    return str(next(filter(None, [*causes, error.get("caused_by", {}).get("type")]), kind))


# --- failures ---------------------------------------------------------------------------------------------------------


def _late() -> SourceError:
    return SourceError(
        "deadline", "OpenSearch did not answer in time", "raise the deadline or narrow the question", retryable=True
    )


def _kind(error: exceptions.TransportError) -> str:
    info: Any = error.info
    with contextlib.suppress(KeyError, IndexError, TypeError):
        return str(info["error"]["root_cause"][0]["type"])
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        return _cause(info["error"])
    return str(error.error)


def translate(error: Exception) -> SourceError:
    """The client's exceptions as ours; nothing of their text gets out."""
    match error:
        case exceptions.ConnectionTimeout():
            return _late()
        case exceptions.SSLError():
            return SourceError(
                "store_untrusted", "the certificate of OpenSearch cannot be trusted", "check `ca` under `[stores.opensearch]`"
            )
        case exceptions.ConnectionError():
            return failure(0, "")
        case exceptions.TransportError():
            return failure(int(error.status_code), _kind(error))
        case exceptions.SerializationError():
            return SourceError("store_corrupt", "OpenSearch answered something else than JSON", "check `hosts`")
    return failure(0 if isinstance(error, OSError) else 500, "")


def failure(status: int, kind: str) -> SourceError:
    """By status and type of OpenSearch's error, never by its text."""
    if kind == "cluster_block_exception":
        return SourceError(
            "store_read_only",
            "OpenSearch takes no writes (its disk is full, or the index is blocked)",
            "free space, lift the block",
        )
    if kind == "task_cancelled_exception":
        return _late()
    match 503 if kind in _NODE_LOST else status:
        case 0:
            return SourceError(
                "store_unreachable", "OpenSearch cannot be reached", "check that it runs and `hosts`", retryable=True
            )
        case 401 | 403:
            return SourceError("store_denied", "OpenSearch does not accept these credentials", "check `[stores.opensearch]`")
        case 404:
            return SourceError("store_missing", "nothing has been indexed here yet", "run `pointsman index`")
        case 409:
            return SourceError("store_busy", "another process writes to the document store", "try again", retryable=True)
        case 429:
            return SourceError("store_busy", "OpenSearch is too busy", "try again in a moment", retryable=True)
        case 502 | 503 | 504:
            return SourceError(
                "store_unavailable", "OpenSearch lacks a part of the index", "wait until the cluster is whole", retryable=True
            )
    return SourceError("store_failed", f"OpenSearch refused a request ({status})", "run `pointsman index verify`")


def _silence_client() -> None:
    """The client would write addresses and whole queries to its log, and a failure to standard error. What failed is our error."""
    for name in ("opensearch", "opensearchpy.trace"):
        logging.getLogger(name).disabled = True
