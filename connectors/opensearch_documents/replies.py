"""What OpenSearch answered, read at one place: whatever is not there, is of another kind or of another index is an error of ours with
a code, and never a hit, an empty list, or a fault of the program. A reply comes from a machine that may be restored wrongly, stand
behind a proxy that answers for it, or be another server altogether.

INVARIANT: a search that lacks a shard or ran out of time is a failure, though OpenSearch says 200
(tests/unit/test_opensearch_wire.py::test_trap_partial_hits_come_as_200).
INVARIANT: no reply, however wrong, is anything else than a value of its kind or a `SourceError`
(tests/unit/test_opensearch_replies.py::test_no_reply_is_a_fault_of_ours).
INVARIANT: a hit of another index than the one that was asked is refused (…::test_hits_of_another_index_are_refused).
INVARIANT: "nothing there" is said by OpenSearch itself, never by what answers in its place (…::test_what_says_that_nothing_is_there).
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from router.errors import SourceError

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


# --- kinds ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Around what takes a reply apart, and nothing else."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        raise invalid() from None


def object_of(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise invalid()
    return value


def list_of(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise invalid()
    return value


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise invalid()
    return value


def count_of(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise invalid()
    return value


def number_of(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise invalid()
    return float(value)


def truth_of(value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid()
    return value


# --- searches ---------------------------------------------------------------------------------------------------------


def check_answer(answer: Any) -> None:
    """Raises unless the search saw every shard to its end."""
    held = object_of(answer)
    if "error" in held:
        raise failure(*reason_of(held))
    if held.get("status", 200) != 200:
        raise failure(reason_of(held)[0], "")
    if held.get("timed_out"):
        raise late()
    if not _is_whole(held):
        raise failure(503, "partial")
    if held.get("timed_out") is not False:
        raise invalid()


def _is_whole(answer: Mapping[str, Any]) -> bool:
    shards = answer.get("_shards")
    if not isinstance(shards, dict):
        return False
    return shards.get("failed") == 0 and type(shards.get("total")) is int and shards.get("successful") == shards["total"]


def check_shards(answer: Any) -> None:
    """Of calls that are no search: each shard that was asked did as it was told. Copies that are not there yet are not asked."""
    shards = object_of(object_of(answer).get("_shards"))
    if count_of(shards.get("failed")):
        raise failure(503, "partial")


def check_whole(answer: Any) -> None:
    """Of calls that count or open: no shard is missing."""
    if not _is_whole(object_of(answer)):
        raise failure(503, "partial")


def check_done(answer: Any) -> None:
    """Of changes to the cluster: all nodes took them, in time."""
    if not truth_of(object_of(answer).get("acknowledged")):
        raise failure(503, "")


def answers_of(reply: Any, count: int) -> list[dict[str, Any]]:
    """Of several searches: one answer each."""
    answers = list_of(object_of(reply).get("responses"))
    if len(answers) != count or not all(isinstance(answer, dict) for answer in answers):
        raise invalid()
    return answers


def hits_of(answer: Mapping[str, Any], index: str, most: int, *, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """At most `most` hits of this very index. With `fields`, each brings a value of those and nothing else, which also tells the legs
    of a search apart."""
    hits = list_of(object_of(answer.get("hits")).get("hits"))
    if len(hits) > most:
        raise invalid()
    expected = set(fields)
    for hit in hits:
        held = object_of(hit)
        check_index(held, index)
        if expected:
            values = object_of(held.get("fields"))
            if values.keys() != expected:
                raise invalid()
            for value in values.values():
                if not isinstance(value, list) or len(value) != 1:
                    raise invalid()
    return hits


def is_of(answer: Mapping[str, Any], index: str) -> bool:
    """Whether no hit is of another index; an answer that failed has none."""
    hits = answer.get("hits")
    return not isinstance(hits, dict) or all(object_of(hit).get("_index") == index for hit in list_of(hits.get("hits")))


def check_index(held: Mapping[str, Any], index: str) -> None:
    if text_of(held.get("_index")) != index:
        raise mixed()


def scores_of(hits: Sequence[Mapping[str, Any]]) -> list[float]:
    """What they were sorted by."""
    with reading():
        return [number_of(list_of(hit["sort"])[0]) for hit in hits]


# --- writes -----------------------------------------------------------------------------------------------------------


def refused_of(reply: Any, entries: Sequence[str], *, missing_ok: bool) -> list[str]:
    """Entries of a bulk request that the cluster was too busy for. Raises on any other failure, and unless the reply speaks of each
    entry by its name, in their order."""
    held = object_of(reply)
    if "error" in held:
        raise failure(*reason_of(held))
    failed, items = truth_of(held.get("errors")), list_of(held.get("items"))
    if len(items) != len(entries):
        raise invalid()
    again: list[str] = []
    seen = False
    for item, entry in zip(items, entries, strict=True):
        operation, name = _named(entry)
        result = object_of(object_of(item).get(operation))
        if len(item) != 1 or text_of(result.get("_id")) != name:
            raise invalid()
        status, kind = count_of(result.get("status")), _kind_of(result.get("error"))
        seen = seen or bool(kind)
        if 200 <= status < 300 and "error" not in result:
            continue
        if status == 404 and (operation == "delete" or missing_ok):
            continue
        if status == 429 and kind != "cluster_block_exception":
            again.append(entry)
        else:
            raise failure(status, kind)
    if seen != failed:
        raise invalid()
    return again


def _named(entry: str) -> tuple[str, str]:
    [(operation, target)] = json.loads(entry[: entry.index("\n")]).items()
    return operation, target["_id"]


def _kind_of(error: Any) -> str:
    return "" if error is None else text_of(object_of(error).get("type"))


def rows_of(reply: Any, index: str, entries: Sequence[str]) -> list[dict[str, Any] | None]:
    """Of `_mget`: what each entry holds, None for one that is not there."""
    docs = list_of(object_of(reply).get("docs"))
    if len(docs) != len(entries):
        raise invalid()
    found: list[dict[str, Any] | None] = []
    for doc, entry in zip(docs, entries, strict=True):
        held = object_of(doc)
        if "error" in held:
            raise failure(503, "")
        check_index(held, index)
        if text_of(held.get("_id")) != entry:
            raise invalid()
        found.append(dict(object_of(held.get("_source"))) if truth_of(held.get("found")) else None)
    return found


def check_copied(reply: Any) -> None:
    """All that was found is there."""
    held = object_of(reply)
    if list_of(held.get("failures")) or truth_of(held.get("timed_out")) or count_of(held.get("version_conflicts")):
        raise failure(500, "")
    if count_of(held.get("created")) != count_of(held.get("total")):
        raise failure(500, "")


# --- failures ---------------------------------------------------------------------------------------------------------


def is_absent(error: Any) -> bool:
    """Whether a 404 is OpenSearch saying that there is no such index, entry or alias. A proxy says 404 too."""
    if not isinstance(error, dict):
        return False
    if error.get("found") is False and isinstance(error.get("_index"), str):
        return True
    told = error.get("error")
    if isinstance(told, dict):
        return told.get("type") == "index_not_found_exception"
    return isinstance(told, str) and told.startswith("alias [") and error.get("status") == 404


def reason_of(answer: Mapping[str, Any]) -> tuple[int, str]:
    """Status and type of what is said to have failed, of whatever kind they are."""
    error, status = answer.get("error"), answer.get("status")
    if type(status) is not int:
        status = 500
    return status, cause_of(error) if isinstance(error, dict) else ""


def cause_of(error: Any) -> str:
    """The type of what happened; a search that failed says it of its shards, or of what stopped it."""
    kind = _type_of(error)
    if not kind.startswith("search_phase"):
        return kind
    shards = error.get("failed_shards")
    causes = [_type_of(cause.get("reason")) for cause in shards if isinstance(cause, dict)] if isinstance(shards, list) else []
    return next(filter(None, [*causes, _type_of(error.get("caused_by"))]), kind)


def _type_of(error: Any) -> str:
    kind = error.get("type") if isinstance(error, dict) else None
    return kind if isinstance(kind, str) else ""


def kind_of(info: Any) -> str:
    """The type of a whole request's failure."""
    error = info.get("error") if isinstance(info, dict) else None
    roots = error.get("root_cause") if isinstance(error, dict) else None
    root = _type_of(roots[0]) if isinstance(roots, list) and roots else ""
    return root or cause_of(error)


def late() -> SourceError:
    return SourceError(
        "deadline", "OpenSearch did not answer in time", "raise the deadline or narrow the question", retryable=True
    )


def invalid() -> SourceError:
    return SourceError(
        "store_reply_invalid", "OpenSearch answered something that cannot be read", "check `hosts` and what stands between"
    )


def too_large() -> SourceError:
    return SourceError("store_reply_too_large", "OpenSearch answered more than is read", "check `hosts`, or ask for less at once")


def mixed() -> SourceError:
    return SourceError(
        "store_mixed",
        "OpenSearch answered from another index than the tenant's current one",
        "look at what the tenant's alias names: it must be one index",
    )


def failure(status: int, kind: str) -> SourceError:
    """By status and type of OpenSearch's error, never by its text."""
    if kind == "cluster_block_exception":
        return SourceError(
            "store_read_only",
            "OpenSearch takes no writes (its disk is full, or the index is blocked)",
            "free space, lift the block",
        )
    if kind == "task_cancelled_exception":
        return late()
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
