"""The record of a decision: what was asked and what was answered, as canonical bytes for a chain that can be verified.

Everything a reviewer later relies on is built here as values: the two records of a decision, the other records on the
same chain, the verification of a chain and the figures of `log summary`. Nothing here does I/O; `connectors/ledger.py`
stores the records and gives each its place. The module is longer than most because one list of fields is built, verified,
counted and documented here, and has to change in one place.

Personal inputs (question, mapped principal, later SQL) never stand in a body. They travel beside it under a random salt,
and only HMAC(salt, inputs) enters the chain: inputs can be erased and the chain still verifies.

INVARIANT: one value has one sequence of bytes: sorted keys, no floats, times in microseconds, scores in millionths
(tests/unit/test_decision.py::test_golden_bytes).
INVARIANT: no text of the question and no name, group or attribute of the principal stands in a body
(tests/unit/test_decision.py::test_personal_inputs_stay_out_of_the_body).
INVARIANT: every edit, deletion, insertion and reordering inside a chain is a fault
(tests/unit/test_decision_chain.py::test_each_manipulation_is_found).
INVARIANT: erased inputs are no fault, edited ones are (tests/unit/test_decision_chain.py::test_erased_inputs_leave_the_chain_verifiable).
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from router.domain import (
    CHAIN_START,
    Degraded,
    Link,
    Outcome,
    Passage,
    Principal,
    Question,
    Receipt,
    Record,
    Refusal,
    Revocation,
    Route,
    Stage,
    link_digest,
)
from router.errors import LedgerError

if TYPE_CHECKING:
    from pydantic import BaseModel

SCHEMA = 1
NO_TENANT = "-"
"""The chain of what happens before or beside tenants: refused tokens, loaded policies."""

PERSONAL = frozenset({"asked", "audit_use"})
"""Kinds that are born with personal inputs: without them they were erased."""

CONTENT_FORGOTTEN = "content_forgotten"

KEY_BYTES = 32
SALT_BYTES = 32
MAX_FAULTS = 1_000
MAX_REFUSED_KEYS = 256
QuestionForm = Literal["kept", "redacted", "digest"]

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_LONG = 2**63
_MINUTE_US = 60_000_000
_EMAIL = re.compile(r"[^\s@<>()\[\],;:\"]{1,64}@[^\s@<>()\[\],;:\"]{1,255}")
_NUMBER = re.compile(r"\+?\d(?:[ ./()-]{0,2}\d){5,}")


# --- bytes ------------------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical(value: Any) -> bytes:
    """The one sequence of bytes of a JSON value. A float, a foreign type or a key that is not text is refused."""
    _check_exact(value)
    # A lone surrogate has no UTF-8; its JSON escape is what `backslashreplace` writes, and `json.loads` reads it back.
    return _encode(value).encode("utf-8", "backslashreplace")


def _check_exact(value: Any) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if not -_LONG <= value < _LONG:
            raise _invalid("an integer beyond 64 bits")
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise _invalid("a key that is not text")
            _check_exact(item)
    elif kind is list:
        for item in value:
            _check_exact(item)
    else:
        raise _invalid(f"a value of type `{kind.__name__}`")


def _invalid(what: str) -> LedgerError:
    return LedgerError("record_invalid", f"{what} cannot stand in a record", "this is a fault in Pointsman: report it")


def millionths(score: float) -> int:
    """A score or margin between 0 and 1 as an integer; what rounds to 0 or 1 is within."""
    if not -1 < score < 2:  # NaN fails too
        raise _invalid(f"a score of `{score}`")
    whole = round(score * 1_000_000)
    if not 0 <= whole <= 1_000_000:
        raise _invalid(f"a score of `{score}`")
    return whole


def new_id(at_us: int, prefix: str = "d") -> str:
    """Ordered by millisecond, with 80 random bits nobody can guess: 26 characters of Crockford's base 32."""
    number = (at_us // 1000) << 80 | int.from_bytes(secrets.token_bytes(10))
    return prefix + "-" + "".join([_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5)])


def principal_digest(key: bytes, tenant: str, name: str) -> str:
    """How a principal stands in a body: the same for all decisions of one person, meaningless without the record key."""
    if len(key) != KEY_BYTES:
        raise LedgerError("record_invalid", f"the record key has {len(key)} bytes", f"give a record key of {KEY_BYTES} bytes")
    return hmac.digest(key, _text(json.dumps(["principal", tenant, name])), "sha256").hex()


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


# --- asked and answered -----------------------------------------------------------------------------------------------


def asked(
    *,
    principal: Principal,
    question: Question,
    policy_version: str,
    at_us: int,
    key: bytes,
    form: QuestionForm = "kept",
    decision_id: str | None = None,
    salt: bytes | None = None,
) -> Record:
    """Opens a decision: durable before anything is searched. `decision_id` and `salt` are given only by tests."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    decision_id = new_id(at_us) if decision_id is None else decision_id
    inputs = canonical(
        {
            "principal": {
                "name": principal.name,
                "kind": principal.kind,
                "groups": sorted(principal.groups),
                "attributes": {
                    name: sorted(value) if isinstance(value, frozenset) else value for name, value in principal.attributes
                },
            },
            "question": _question_input(question.text, form, key, salt),
            "request": {
                "k": question.k,
                "now_us": round(question.now.timestamp() * 1_000_000),
                "deadline_us": round(question.deadline_s * 1_000_000),
                **_wishes(question),
            },
            **({"context": [_question_input(one, form, key, salt) for one in question.context]} if question.context else {}),
        }
    )
    body = {
        "schema": SCHEMA,
        "decision_id": decision_id,
        "at": at_us,
        "tenant": principal.tenant,
        "principal": principal_digest(key, principal.tenant, principal.name),
        "question": {"form": form, "digest": inputs_digest(salt, inputs)},
        "policy_version": policy_version,
    }
    return Record(principal.tenant, decision_id, "asked", at_us, canonical(body), inputs, salt)


def _question_input(text: str, form: QuestionForm, key: bytes, salt: bytes) -> dict[str, Any]:
    if form == "kept":
        return {"text": text}
    if form == "redacted":
        return {"text": redact(text)}
    # Keyed, so that a copy of the ledger alone does not allow guessing; salted, so that equal questions look unequal.
    return {"digest": hmac.digest(key, salt + _text(text), "sha256").hex()}


def redact(text: str) -> str:
    """Mail addresses and numbers of six digits or more (telephone, account, card) are replaced. Names are not found."""
    return _NUMBER.sub("[number]", _EMAIL.sub("[mail]", text))


def _wishes(question: Question) -> dict[str, Any]:
    """What the caller asked for beside the question, where anything was."""
    wishes = {
        "route": question.route,
        "strategy": question.strategy,
        "sources": list(question.sources),
        "filters": list(question.filters),
    }
    return {name: wish for name, wish in wishes.items() if wish}


def inputs_digest(salt: bytes, inputs: bytes) -> str:
    return hmac.digest(salt, inputs, "sha256").hex()


def answered(
    *,
    asked: Record,
    at_us: int,
    outcome: Outcome,
    policy_version: str,
    total_us: int,
    route: Route | None = None,
    refusal: Refusal | None = None,
    filters: Sequence[Receipt] = (),
    policies: Iterable[str] = (),
    stages: Sequence[Stage] = (),
    evidence: Sequence[Passage] = (),
    sql: Mapping[str, Any] | None = None,
    egress: Sequence[Mapping[str, Any]] = (),
    degraded: Sequence[Degraded] = (),
    versions: Mapping[str, str] | None = None,
    data_versions: Mapping[str, str] | None = None,
    dropped: Mapping[str, int] | None = None,
    cache: str | None = None,
) -> Record:
    """Seals a decision: durable before anything is returned. Holds the whole decision, so that one row is enough to read."""
    body = json.loads(asked.body)
    body.update(
        {
            "route": None if route is None else _route_json(route),
            "margin": None if route is None else millionths(route.margin),
            "outcome": outcome,
            "refusal": None if refusal is None else {"code": refusal.code, "reason": refusal.reason},
            "policy_version": policy_version,
            "filter_digests": [{"leg": receipt.leg, "digest": receipt.digest} for receipt in filters],
            "policies": sorted(set(policies)),
            "stages": _stages_json(stages),
            "total_us": total_us,
            "evidence": [{"rank": passage.rank, "id": passage.chunk_id} for passage in evidence],
            "sql": None if sql is None else dict(sql),
            "egress": [dict(sent) for sent in egress],
            "degraded": [{"stage": entry.stage, "reason": entry.reason} for entry in degraded],
            "versions": dict(versions or {}),
            "data_versions": dict(data_versions or {}),
            "dropped": dict(dropped or {}),
            "cache": cache,
        }
    )
    return Record(asked.tenant, asked.decision_id, "answered", at_us, canonical(body))


def sql_record(asked: Record, generated: str, tables: Iterable[str], rows: int) -> Mapping[str, Any] | None:
    """Which tables were read and how much came of it; of the text only a digest under the decision's own salt."""
    if not generated or asked.salt is None:
        return None
    return {"digest": inputs_digest(asked.salt, generated.encode()), "tables": sorted(tables), "rows": rows}


def _route_json(route: Route) -> dict[str, Any]:
    return {
        "name": route.name,
        "scores": {name: millionths(score) for name, score in route.scores.items()},
        "abstained": route.abstained,
        "reasons": list(route.reasons),
    }


def _stages_json(stages: Sequence[Stage]) -> dict[str, Any]:
    """A stage that ran twice is one entry: times added, the first count in, the last count out."""
    found: dict[str, Any] = {}
    for stage in stages:
        entry = found.setdefault(stage.name, {"us": 0, "in": stage.count_in, "out": None})
        entry["us"] += stage.us
        entry["out"] = stage.count_out
    return found


def decision_line(record: Record, link: Link) -> dict[str, Any]:
    """The decision as one JSON document: the sealed body with its place in the chain. It holds no personal input."""
    line: dict[str, Any] = json.loads(record.body)
    line.update(seq=link.seq, previous=link.previous, digest=link.digest)
    return line


def load_inputs(record: Record) -> dict[str, Any] | None:
    """The personal inputs of a stored record, None where they were erased. Edited ones are refused, never shown."""
    if record.inputs is None or record.salt is None:
        return None
    if not _inputs_match(record, record.inputs, record.salt):
        raise LedgerError("ledger_corrupt", "the inputs of this record were changed", "run `pointsman log verify`")
    inputs: dict[str, Any] = json.loads(record.inputs)
    return inputs


# --- other records on the same chain ----------------------------------------------------------------------------------


def label_change(*, tenant: str, at_us: int, by: str, source: str, document_id: str, old: str | None, new: str | None) -> Record:
    """A document's labels changed from one digest to another. `by` names the indexing service, or is a principal's digest."""
    return _event(tenant, "label_change", at_us, {"by": by, "source": source, "document_id": document_id, "old": old, "new": new})


def content_forgotten(*, tenant: str, at_us: int, by: str, source: str, content_hashes: Sequence[str]) -> Record:
    """Contents of a source are kept out from now on (`index forget`): it outlives the manifest, which is lost or put back more easily."""
    facts = {"by": by, "source": source, "content_hashes": sorted(content_hashes)}
    return _event(tenant, CONTENT_FORGOTTEN, at_us, facts)


def load_forgotten(record: Record) -> tuple[str, tuple[str, ...]]:
    """The source and the hashes that such a record names."""
    body = json.loads(record.body)
    return body["source"], tuple(body["content_hashes"])


def generation_switched(
    *, tenant: str, at_us: int, by: str, old: str | None, new: str, cause: str, figures: Mapping[str, int]
) -> Record:
    """Askers of a tenant see another generation of its documents from now on, or a new one was kept from them (`kept_aside`)."""
    return _event(tenant, "generation", at_us, {"by": by, "old": old, "new": new, "cause": cause, "figures": dict(figures)})


def generations_compared(
    *, tenant: str, at_us: int, by: str, old: str, new: str, accepted: bool, figures: Mapping[str, int]
) -> Record:
    """Saved questions were asked of two generations, as people of people.yaml; figures in thousandths of a point."""
    return _event(
        tenant,
        "generations_compared",
        at_us,
        {"by": by, "old": old, "new": new, "accepted": accepted, "figures": dict(figures)},
    )


def index_run(
    *,
    tenant: str,
    at_us: int,
    by: str,
    source: str,
    generation: str,
    total_us: int,
    counts: Mapping[str, int],
    failures: Mapping[str, int],
    data_version: str,
    store: str = "",
    run_id: str = "",
    revoked: Iterable[tuple[int, int]] = (),
) -> Record:
    """One run of indexing over one source; `failures` by reason. `revoked` holds (microseconds, documents): how long after a change of
    labels, or a removal, documents were no longer found as before."""
    facts = {"by": by, "source": source, "generation": generation, "total_us": total_us, "data_version": data_version}
    facts |= {"store": store, "run_id": run_id, "revoked": [list(pair) for pair in revoked]}
    return _event(tenant, "index_run", at_us, {**facts, "counts": dict(counts), "failures": dict(failures)})


def index_egress(*, tenant: str, at_us: int, by: str, run_id: str, policy_version: str, sent: Mapping[str, Any]) -> Record:
    """Text of documents is about to leave for one run of indexing: who, to whom, why, of which classes, and a digest; no text."""
    return _event(tenant, "egress", at_us, {"by": by, "run_id": run_id, "policy_version": policy_version, **sent})


def question_egress(*, asked: Record, at_us: int, policy_version: str, sent: Mapping[str, Any]) -> Record:
    """The same for one decision, between its two phases, so that it is on record also where the process ends before the second."""
    body = {"schema": SCHEMA, "record_id": asked.decision_id, "kind": "egress", "at": at_us, "tenant": asked.tenant}
    return Record(asked.tenant, asked.decision_id, "egress", at_us, canonical({**body, "policy_version": policy_version, **sent}))


def policy_loaded(*, at_us: int, policy_version: str, previous_version: str | None) -> Record:
    return _event(NO_TENANT, "policy_loaded", at_us, {"policy_version": policy_version, "previous_version": previous_version})


def refused_tokens(*, at_us: int, issuer: str, code: str, count: int) -> Record:
    """How often tokens of one issuer were refused for one reason in the minute that begins at `at_us`."""
    return _event(NO_TENANT, "refused_tokens", at_us, {"issuer": issuer, "code": code, "count": count})


def audit_use(
    *, tenant: str, at_us: int, principal: Principal, key: bytes, action: str, target: str, subject: str | None = None
) -> Record:
    """A reviewer used `audit`: `target` is a decision, a document or a command; whom it was about is a personal input."""
    salt = secrets.token_bytes(SALT_BYTES)
    inputs = canonical({"reviewer": principal.name, "subject": subject})
    facts = {
        "principal": principal_digest(key, principal.tenant, principal.name),
        "action": action,
        "target": target,
        "inputs": {"digest": inputs_digest(salt, inputs)},
    }
    return _event(tenant, "audit_use", at_us, facts, inputs, salt)


def _event(
    tenant: str, kind: str, at_us: int, facts: Mapping[str, Any], inputs: bytes | None = None, salt: bytes | None = None
) -> Record:
    record_id = new_id(at_us, "r")
    body = {"schema": SCHEMA, "record_id": record_id, "kind": kind, "at": at_us, "tenant": tenant, **facts}
    return Record(tenant, record_id, kind, at_us, canonical(body), inputs, salt)


class RefusedTokens:
    """Sums refused tokens per minute, issuer and code, so that a flood of them is a few rows a minute.

    The issuer of a refused token is a stranger's text: it is cut, and beyond `MAX_REFUSED_KEYS` pairs a minute is `other`.
    """

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._lock = threading.Lock()
        self._minute_us = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, issuer: str, code: str) -> list[Record]:
        """Count one refusal; returns the records of an earlier minute that is now over, to be appended."""
        minute_us = self._clock_us() // _MINUTE_US * _MINUTE_US
        with self._lock:
            done = self._take() if minute_us != self._minute_us else []
            self._minute_us = minute_us
            pair = (issuer[:64], code)
            if pair not in self._counts and len(self._counts) >= MAX_REFUSED_KEYS:
                pair = ("other", code)
            self._counts[pair] += 1
        return done

    def drain(self) -> list[Record]:
        """What was counted and not yet returned: for the end of the process, and for whoever looks at the ledger."""
        with self._lock:
            return self._take()

    def _take(self) -> list[Record]:
        at_us, counts, self._counts = self._minute_us, self._counts, Counter()
        return [refused_tokens(at_us=at_us, issuer=issuer, code=code, count=n) for (issuer, code), n in sorted(counts.items())]


# --- verification -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place of a chain. `code`: edited, gap, reordered, broken, inputs_edited, unasked, truncated, replaced."""

    seq: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict over one chain. Open decisions (asked, never answered) and erased inputs are facts, not faults."""

    rows: int
    faults: tuple[Fault, ...]
    fault_count: int
    open: tuple[str, ...]
    erased: int
    head: Link | None

    @property
    def whole(self) -> bool:
        return self.fault_count == 0


def verify_chain(rows: Iterable[tuple[Link, Record]], *, anchor: tuple[int, str] | None = None) -> Verified:
    """Walk one tenant's chain from its start, as a stream. `anchor` is a (seq, digest) noted outside the ledger.

    A chain cut at its tail, or rewritten as a whole by somebody who may write the database, is consistent in itself: only
    an anchor shows it. Every decision line in the log is one.
    """
    faults = _Faults()
    open_ids: dict[str, None] = {}
    count, erased, expected, previous, head = 0, 0, 1, CHAIN_START, None
    for link, record in rows:
        count += 1
        if link.seq != expected or link.previous != previous:
            faults.place(link, expected)
        if link_digest(link.seq, link.previous, record) != link.digest:
            faults.add(link.seq, "edited", "the record does not match its digest")
        if record.inputs is None:
            erased += record.kind in PERSONAL
        elif not (record.salt and _inputs_match(record, record.inputs, record.salt)):
            faults.add(link.seq, "inputs_edited", "the inputs do not match the digest in the record")
        if record.kind == "asked":
            open_ids[record.decision_id] = None
        elif record.kind == "answered" and open_ids.pop(record.decision_id, 0) == 0:
            faults.add(link.seq, "unasked", "an answer stands on record without its question before it")
        if anchor is not None and link.seq == anchor[0] and link.digest != anchor[1]:
            faults.add(link.seq, "replaced", "the record is not the one that the anchor names")
        expected, previous, head = link.seq + 1, link.digest, link
    if anchor is not None and anchor[0] >= expected:
        faults.add(expected, "truncated", f"the chain ends at {expected - 1}, the anchor names {anchor[0]}")
    return Verified(count, tuple(faults.kept), faults.count, tuple(open_ids), erased, head)


class _Faults:
    """Counts all, keeps the first thousand: a chain of millions may be wrong in every row."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self.count = 0

    def add(self, seq: int, code: str, message: str) -> None:
        self.count += 1
        if len(self.kept) < MAX_FAULTS:
            self.kept.append(Fault(seq, code, message))

    def place(self, link: Link, expected: int) -> None:
        if link.seq > expected:
            self.add(link.seq, "gap", f"records {expected} to {link.seq - 1} are missing")
        elif link.seq < expected:
            self.add(link.seq, "reordered", f"record {link.seq} stands where {expected} belongs")
        else:
            self.add(link.seq, "broken", "the record before it is not the one it was chained to")


def _inputs_match(record: Record, inputs: bytes, salt: bytes) -> bool:
    # 256 bits under a keyed hash do not appear by chance: looking for them saves parsing the body of every row.
    return b'"digest":"%b"' % inputs_digest(salt, inputs).encode() in record.body


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    count: int
    p50_us: int
    p95_us: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of `log summary` over a stretch of one or several chains."""

    rows: int
    kinds: Mapping[str, int]
    open: int
    routes: Mapping[str, int]
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]
    refused_tokens: Mapping[str, int]
    degraded: Mapping[str, int]
    dropped: Mapping[str, int]
    egress_bytes: Mapping[str, int]
    cache: Mapping[str, int]
    total: Spread
    stages: Mapping[str, Spread]
    revocations: Mapping[str, Revocation] = field(default_factory=dict)


class _Tally:
    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {
            name: Counter()
            for name in ("routes", "outcomes", "refusals", "refused_tokens", "degraded", "dropped", "egress_bytes", "cache")
        }
        self.total_us = array("q")
        self.stages_us: dict[str, array[int]] = {}
        self.revoked: dict[str, list[tuple[int, int]]] = {}

    def answered(self, body: Mapping[str, Any], *, sent_counted: bool) -> None:
        counts = self.counts
        counts["routes"][body["route"]["name"] if body["route"] else "-"] += 1
        counts["outcomes"][body["outcome"]] += 1
        if body["refusal"]:
            counts["refusals"][body["refusal"]["code"]] += 1
        counts["degraded"].update(f"{entry['stage']}: {entry['reason']}" for entry in body["degraded"])
        counts["dropped"].update(body["dropped"])
        if body.get("cache"):  # records of before it was there have none
            counts["cache"][body["cache"]] += 1
        for sent in () if sent_counted else body["egress"]:
            self.sent(sent)
        self.total_us.append(body["total_us"])
        for name, stage in body["stages"].items():
            self.stages_us.setdefault(name, array("q")).append(stage["us"])

    def indexed(self, body: Mapping[str, Any]) -> None:
        if pairs := body.get("revoked"):
            self.revoked.setdefault(body["store"], []).extend((us, count) for us, count in pairs)

    def sent(self, sent: Mapping[str, Any]) -> None:
        self.counts["egress_bytes"][f"{sent['provider']}: {sent['purpose']}"] += sent["bytes"]


def summary(rows: Iterable[tuple[Link, Record]], since_us: int = 0) -> Summary:
    """Counts and latencies of the records since `since_us`; exact percentiles, eight bytes a stage and decision."""
    tally, kinds, open_ids, sent_by = _Tally(), Counter[str](), set[str](), set[str]()
    for _, record in rows:
        if record.at_us < since_us:
            continue
        kinds[record.kind] += 1
        if record.kind == "asked":
            open_ids.add(record.decision_id)
        elif record.kind == "answered":
            open_ids.discard(record.decision_id)
            tally.answered(json.loads(record.body), sent_counted=record.decision_id in sent_by)
        elif record.kind == "egress":
            sent_by.add(record.decision_id)
            tally.sent(json.loads(record.body))
        elif record.kind == "index_run":
            tally.indexed(json.loads(record.body))
        elif record.kind == "refused_tokens":
            body = json.loads(record.body)
            tally.counts["refused_tokens"][f"{body['issuer']}: {body['code']}"] += body["count"]
    return Summary(
        rows=kinds.total(),
        kinds=dict(kinds),
        open=len(open_ids),
        total=_spread(tally.total_us),
        stages={name: _spread(values) for name, values in tally.stages_us.items()},
        revocations={name: Revocation.of(pairs) for name, pairs in tally.revoked.items()},
        **{name: dict(counter.most_common()) for name, counter in tally.counts.items()},
    )


def _spread(values: array[int]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(0, 0, 0)
    return Spread(len(ordered), *(ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 95)))


# --- the documented schema --------------------------------------------------------------------------------------------


@cache
def decision_model() -> type[BaseModel]:
    """The Decision as a strict model: the documented schema, and what tests hold every built record against."""
    from pydantic import BaseModel, ConfigDict, Field

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=True)

    class QuestionDigest(Strict):
        form: QuestionForm
        digest: str

    class RouteTaken(Strict):
        name: Literal["documents", "contextual", "sql", "both", "none", "clarify"]
        scores: dict[str, int]
        abstained: bool
        reasons: list[str]

    class RefusalGiven(Strict):
        code: str
        reason: str

    class FilterDigest(Strict):
        leg: str
        digest: str

    class StageTaken(Strict):
        us: int
        count_in: int | None = Field(alias="in")
        count_out: int | None = Field(alias="out")

    class Evidence(Strict):
        rank: int
        id: str

    class Sql(Strict):
        digest: str
        tables: list[str]
        rows: int

    class Egress(Strict):
        provider: str
        model: str
        purpose: str
        classes: list[int]
        bytes: int
        items: int
        digest: str
        tokens: int
        cost_micros: int

    class Degradation(Strict):
        stage: str
        reason: str

    class Decision(Strict):
        schema_: Literal[1] = Field(alias="schema", description="version of this list")
        decision_id: str = Field(
            description="`d-` and 26 characters, ordered by time; the same in the answer and in both records"
        )
        seq: int = Field(description="place in the tenant's chain, from 1 without gaps")
        at: int = Field(description="when the question was asked, microseconds since 1970 UTC")
        tenant: str = Field(description="tenant of the principal")
        principal: str = Field(description="keyed digest of tenant and name; the name itself is a personal input")
        question: QuestionDigest = Field(description="form (kept, redacted, digest) and the salted digest of all personal inputs")
        route: RouteTaken | None = Field(description="route, its scores in millionths, reasons; null when refused before routing")
        margin: int | None = Field(description="margin of the route in millionths")
        outcome: Literal["answered", "empty", "clarify", "none", "refused"] = Field(description="how it ended")
        refusal: RefusalGiven | None = Field(description="code and reason of a refusal")
        policy_version: str = Field(description="digest of the policy folder that decided")
        filter_digests: list[FilterDigest] = Field(description="keyed digest of the filter that each leg ran under")
        policies: list[str] = Field(description="ids of the policies that decided")
        stages: dict[str, StageTaken] = Field(description="name to time in microseconds and counts in and out")
        total_us: int = Field(description="whole time in microseconds")
        evidence: list[Evidence] = Field(description="rank and id of each passage, no text")
        sql: Sql | None = Field(description="salted digest of the generated text, tables, rows; null without SQL")
        egress: list[Egress] = Field(
            description="each attempt to send: provider, model, purpose, classes, bytes, items, digest of the payload under the "
            "decision's salt; tokens and millionths that it cost, where the provider says so"
        )
        degraded: list[Degradation] = Field(description="stages that fell back, with the reason")
        versions: dict[str, str] = Field(description="program, models and engines")
        data_versions: dict[str, str] = Field(description="version of each store that was searched")
        dropped: dict[str, int] = Field(description="stage to how many it dropped; never shown to the caller")
        cache: Literal["hit", "miss", "bypass"] | None = Field(
            default=None,
            description="whether the evidence was kept from before (`[cache]`): `hit`, `miss`, or `bypass` where none may be kept; null where it is off",
        )
        previous: str = Field(description="digest of the record before it in the chain")
        digest: str = Field(description="SHA-256 over place, previous, tenant, id, kind, time and body")

    return Decision


def decision_fields_markdown() -> str:
    """The field list of the documentation, generated from the model."""
    rows = [
        f"| `{field.alias or name}` | {_type_words(field.annotation)} | {field.description} |"
        for name, field in decision_model().model_fields.items()
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) + "\n"


def _type_words(annotation: Any) -> str:
    """`list[str]` for a list of text, `object` for a model, `or null` for an option."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "null"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (list, dict):
        return f"{origin.__name__} of {_type_words(inner[-1])}"
    if inner:
        return " or ".join(_type_words(part) for part in inner)
    names = {str: "text", int: "integer", bool: "true or false"}
    return names.get(annotation, "object")
