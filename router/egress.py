"""The one place through which text reaches a hosted model: judged by `disclose`, counted for the record, closed with the decision.

A hosted connector is no `Model`, `Embedder` or `Reranker`; for one decision, or one run of indexing, `Egress` makes them of it.
What may not go is refused before anything is opened, and the line goes on without it and says so. No text is kept or logged here:
an entry holds who, why, classes, bytes and a keyed digest of the payload. What comes back is untrusted and checked here.

INVARIANT: without a permit for provider, purpose and every class nothing is sent (tests/unit/test_egress.py::test_nothing_is_sent_without_a_permit,
tests/sql/draft/test_draft_by_claude.py::test_not_permitted_sends_nothing).
INVARIANT: every attempt stands in the record, a failed one too (tests/unit/test_egress.py::test_every_attempt_is_counted).
INVARIANT: after the decision is sealed nothing leaves for it (tests/unit/test_egress.py::test_nothing_leaves_after_sealing).
INVARIANT: hosted connectors are made in app.py alone and called here alone (tests/unit/test_egress.py::test_one_way_out).
INVARIANT: a vector is of the asked length, finite and not zero, a score finite and of a text that was sent, each once
(tests/unit/test_egress.py::test_vectors_are_checked, ::test_scores_are_checked).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from router.attempts import Attempts
from router.domain import CLASSES, Embedded, ModelCard, Principal, Purpose
from router.errors import Refused, SourceError
from router.ports import (
    BatchSeen,
    ContextAsk,
    ContextReply,
    ContextWriter,
    Embedder,
    HostedContexts,
    HostedEmbedder,
    HostedModel,
    HostedReranker,
    Model,
    ModelReply,
    Reranker,
)

DISCLOSED_AS: Mapping[str, str] = {
    "embed_question": "embed",
    "embed_chunks": "embed",
    "rerank": "rerank",
    "context": "context",
    "draft_sql": "draft",
    "route": "route",
    "plan_search": "search",
}
"""What a purpose is called in policies: `context.purpose` of `disclose`, and the word in the record."""
INDEXING_S = 120.0
"""For the vectors of one document, tries and pauses together."""


class Judge(Protocol):
    """`PolicySet.may_disclose`: truthy where a permit covers it."""

    def __call__(self, principal: Principal, *, provider: str, purpose: str, sensitivity: int) -> object: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """One attempt to send: how many texts, of which classes, how many bytes in all, their keyed digest; then what it cost."""

    provider: str
    model: str
    purpose: str
    classes: tuple[int, ...]
    bytes: int
    items: int
    digest: str
    tokens: int = 0
    cost_micros: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**self.before(), "tokens": self.tokens, "cost_micros": self.cost_micros}

    def before(self) -> dict[str, Any]:
        """What is known before the first byte has left."""
        return {
            "provider": self.provider,
            "model": self.model,
            "purpose": self.purpose,
            "classes": list(self.classes),
            "bytes": self.bytes,
            "items": self.items,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class RemoteEmbedder:
    """A hosted embedder with what is known of its provider. Prices are in millionths."""

    hosted: HostedEmbedder
    calls: Attempts
    micros_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A hosted model that fills in schemas."""

    hosted: HostedModel
    calls: Attempts
    micros_per_input: float = 0.0
    micros_per_output: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteReranker:
    hosted: HostedReranker
    calls: Attempts
    micros_per_search: float = 0.0


def index_card(local: ModelCard, remote: RemoteEmbedder | None) -> ModelCard:
    """What an index records: the hosted model's vectors beside the local one's word pieces, or the local one's alone."""
    if remote is None:
        return local
    hosted = remote.hosted
    said = json.dumps([hosted.provider, hosted.model, hosted.dimensions, hosted.variant, local.id])
    name = f"{hosted.provider}/{hosted.model}"
    digest = hashlib.sha256(said.encode()).hexdigest()
    return ModelCard(name, digest, hosted.dimensions, local.token_dimensions, local.max_tokens)


class Sending:
    """A permit in use: called with the payload before each attempt, and judged anew each time. A hosted connector gets nothing else of
    the policies."""

    def __init__(self, egress: Egress, sent: Sent, purpose: Purpose, calls: Attempts) -> None:
        self._egress, self._sent, self._purpose, self._calls = egress, sent, purpose, calls
        self._at = -1

    def __call__(self, payload: bytes) -> None:
        if not self._egress.covers(self._sent.provider, self._purpose):
            raise _refused(self._sent.provider)
        self._sent = replace(self._sent, bytes=len(payload), digest=self._egress.digest(payload))
        self._at = self._egress.note(self._sent, self._purpose.decision_id)
        self._calls.sent(self._sent.items, len(payload))

    def cost(self, *, tokens: int = 0, searches: int = 0, cost_micros: int = 0) -> None:
        """What the latest attempt came to, by the provider's own count."""
        self._egress.note_cost(self._at, tokens, cost_micros)
        self._calls.cost(tokens=tokens, searches=searches, cost_micros=cost_micros)


@dataclass(slots=True)
class Egress:
    """What may leave for one decision or run, and what did. Thread-safe: a call that outlives its deadline still asks here.

    `salt` keys the digests of what was sent: a decision's own, so that they say nothing once its inputs are erased. `record` puts each
    attempt on record, durably, before its first byte, so that a process that is killed leaves nothing unsaid; `keep` also keeps it
    here, for the decision's own record.
    """

    principal: Principal
    may_disclose: Judge
    salt: bytes
    record: Callable[[Sent, str], None]
    keep: bool = True
    _sent: list[Sent] = field(default_factory=list)
    _sealed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def model(self, remote: RemoteModel) -> Model:
        return _JudgedModel(remote, self)

    def contexts(self, hosted: HostedContexts, calls: Attempts) -> ContextWriter:
        return _JudgedContexts(hosted, calls, self)

    def reranker(self, remote: RemoteReranker) -> Reranker:
        return _JudgedReranker(remote, self)

    def embed(
        self, remote: RemoteEmbedder, texts: Sequence[str], purpose: Purpose, *, question: bool, deadline_s: float
    ) -> list[bytes]:
        """One unit vector a text, in batches as the provider takes them. Raises `Refused` before the first byte, `SourceError` after."""
        hosted, until = remote.hosted, time.monotonic() + deadline_s
        vectors: list[bytes] = []
        for start in range(0, len(texts), hosted.most_texts):
            batch = texts[start : start + hosted.most_texts]
            sending = self.permit(hosted.provider, hosted.model, purpose, len(batch), remote.calls)

            def attempt(left_s: float, batch: Sequence[str] = batch, sending: Sending = sending) -> list[bytes]:
                reply = hosted.embed_hosted(batch, question=question, deadline_s=left_s, sending=sending)
                sending.cost(tokens=reply.tokens, cost_micros=round(reply.tokens * remote.micros_per_token))
                return check_vectors(reply.rows, len(batch), hosted.dimensions)

            # nobody waits for an index, so that a bad minute of the provider is waited out
            left_s = max(0.001, until - time.monotonic())
            vectors += remote.calls.run(attempt, deadline_s=left_s, patient=not question)
        return vectors

    def permitted(self, provider: str, purpose: str, classes: Iterable[int]) -> frozenset[int]:
        """Which of the classes may go for this purpose."""
        word = DISCLOSED_AS[purpose]
        return frozenset(
            one for one in classes if self.may_disclose(self.principal, provider=provider, purpose=word, sensitivity=one)
        )

    def covers(self, provider: str, purpose: Purpose) -> bool:
        """Whether all of it may go now."""
        return self.permitted(provider, purpose.name, purpose.classes) == purpose.classes

    def permit(self, provider: str, model: str, purpose: Purpose, items: int, calls: Attempts) -> Sending:
        """Judge; returns what counts each attempt. Raises `Refused`."""
        word = DISCLOSED_AS.get(purpose.name)
        known = purpose.classes and all(type(one) is int and 0 <= one < len(CLASSES) for one in purpose.classes)
        if word is None or not known or purpose.principal != self.principal.name:
            raise _refused(provider)
        if not self.covers(provider, purpose):
            raise _refused(provider)
        return Sending(self, Sent(provider, model, word, tuple(sorted(purpose.classes)), 0, items, ""), purpose, calls)

    def digest(self, payload: bytes) -> str:
        return hmac.digest(self.salt, payload, "sha256").hex()

    def note(self, sent: Sent, decision_id: str) -> int:
        """On record from now on; its place among what is kept. Raises `Refused` once the decision is sealed, `LedgerError` where it
        cannot be recorded."""
        with self._lock:
            if self._sealed:
                raise Refused("egress_sealed", "the decision is on record: nothing more is sent for it", "ask again")
            at = len(self._sent) if self.keep else -1
            if self.keep:
                self._sent.append(sent)
            self.record(sent, decision_id)  # under the lock: a seal in between would put `answered` before it
        return at

    def note_cost(self, at: int, tokens: int, cost_micros: int) -> None:
        with self._lock:
            if at >= 0:
                self._sent[at] = replace(self._sent[at], tokens=tokens, cost_micros=cost_micros)

    def sent(self) -> tuple[Sent, ...]:
        with self._lock:
            return tuple(self._sent)

    def seal(self) -> list[dict[str, Any]]:
        """The record's `egress`; from now on every attempt is stopped before its first byte."""
        with self._lock:
            self._sealed = True
            return [sent.as_json() for sent in self._sent]


@dataclass(frozen=True, slots=True)
class _JudgedModel:
    """Implements `router.ports.Model`."""

    remote: RemoteModel
    egress: Egress

    def draft(self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: Purpose, deadline_s: float) -> ModelReply:
        hosted, calls = self.remote.hosted, self.remote.calls
        sending = self.egress.permit(hosted.provider, hosted.model, purpose, 1, calls)

        def attempt(left_s: float) -> ModelReply:
            reply = hosted.draft_hosted(system, prompt, schema, deadline_s=left_s, sending=sending)
            read = reply.tokens.total - reply.tokens.output
            cost = read * self.remote.micros_per_input + reply.tokens.output * self.remote.micros_per_output
            sending.cost(tokens=reply.tokens.total, cost_micros=round(cost))
            return reply

        return calls.run(attempt, deadline_s=deadline_s)


@dataclass(frozen=True, slots=True)
class _JudgedReranker:
    """Implements `router.ports.Reranker`."""

    remote: RemoteReranker
    egress: Egress

    def rerank(self, question: str, texts: Sequence[str], purpose: Purpose, *, deadline_s: float) -> list[float]:
        hosted, calls = self.remote.hosted, self.remote.calls
        sending = self.egress.permit(hosted.provider, hosted.model, purpose, len(texts), calls)

        def attempt(left_s: float) -> list[float]:
            reply = hosted.rerank_hosted(question, texts, deadline_s=left_s, sending=sending)
            sending.cost(searches=reply.searches, cost_micros=round(reply.searches * self.remote.micros_per_search))
            return check_scores(reply.pairs, len(texts))

        return calls.run(attempt, deadline_s=deadline_s)


@dataclass(frozen=True, slots=True)
class _JudgedContexts:
    """Implements `router.ports.ContextWriter`. A batch is sent once: the first may have arrived."""

    hosted: HostedContexts
    calls: Attempts
    egress: Egress

    @property
    def model(self) -> str:
        return self.hosted.model

    def permits(self, sensitivity: int) -> bool:
        return bool(self.egress.permitted(self.hosted.provider, "context", [sensitivity]))

    def write(self, ask: ContextAsk, *, purpose: Purpose, deadline_s: float) -> ContextReply:
        sending = self.egress.permit(self.hosted.provider, self.hosted.model, purpose, 1, self.calls)

        def attempt(left_s: float) -> ContextReply:
            reply = self.hosted.context_hosted(ask, deadline_s=left_s, sending=sending)
            sending.cost(tokens=reply.tokens.total)
            return reply

        return self.calls.run(attempt, deadline_s=deadline_s)

    def submit(self, asks: Sequence[ContextAsk], *, purpose: Purpose, deadline_s: float) -> str:
        sending = self.egress.permit(self.hosted.provider, self.hosted.model, purpose, len(asks), self.calls)
        return self.hosted.submit_hosted(asks, deadline_s=deadline_s, sending=sending)

    def ended(self, batch_id: str, *, deadline_s: float) -> bool:
        return self.hosted.ended_hosted(batch_id, deadline_s=deadline_s)

    def results(self, batch_id: str, *, deadline_s: float) -> Iterator[tuple[str, ContextReply]]:
        return self.hosted.results_hosted(batch_id, deadline_s=deadline_s)

    def batches(self, since_us: int, *, deadline_s: float) -> list[BatchSeen]:
        return self.hosted.batches_hosted(since_us, deadline_s=deadline_s)


@dataclass(frozen=True, slots=True)
class IndexEmbedder:
    """Implements `router.ports.Embedder` for one run of indexing: the hosted model's vectors, the local one's word pieces. What may
    not go gets a vector of zeros, which is near to nothing, so that its words alone find it. `egress` is of a document's tenant;
    `within` bounds a call in time."""

    local: Embedder
    remote: RemoteEmbedder
    egress: Callable[[str], Egress]
    within: Callable[[float, Callable[[], list[bytes]]], list[bytes]]

    @property
    def card(self) -> ModelCard:
        return index_card(self.local.card, self.remote)

    def count_tokens(self, text: str) -> int:
        return self.local.count_tokens(text)

    def permits(self, tenant: str, sensitivity: int) -> bool:
        """Whether text of this class may be embedded there."""
        return bool(self.egress(tenant).permitted(self.remote.hosted.provider, "embed_chunks", [sensitivity]))

    def embed_question(self, text: str, purpose: Purpose) -> Embedded:
        return self._embed([text], purpose, question=True)[0]

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:
        return self._embed(texts, purpose, question=False)

    def _embed(self, texts: Sequence[str], purpose: Purpose, *, question: bool) -> list[Embedded]:
        pieces = self.local.embed_chunks(texts, purpose)
        calls = max(1, -(-len(texts) // self.remote.hosted.most_texts))
        deadline_s, egress = INDEXING_S * calls, self.egress(purpose.tenant)

        def call() -> list[bytes]:
            return egress.embed(self.remote, texts, purpose, question=question, deadline_s=0.9 * deadline_s)

        try:
            vectors = self.within(deadline_s, call)
        except Refused:
            vectors = [bytes(4 * self.remote.hosted.dimensions)] * len(texts)
        return [replace(piece, vector=vector) for piece, vector in zip(pieces, vectors, strict=True)]


# --- what comes back --------------------------------------------------------------------------------------------------


def check_vectors(rows: Any, count: int, dimensions: int) -> list[bytes]:
    """Rows of a stranger as float32 of unit length. Raises `SourceError` where one is not what was asked for."""
    import numpy as np

    if not isinstance(rows, list) or len(rows) != count:
        raise _invalid("another number of vectors than of texts")
    vectors: list[bytes] = []
    for row in rows:
        if not isinstance(row, list) or len(row) != dimensions or not all(type(one) in (int, float) for one in row):
            raise _invalid("a vector of another length than `dimensions` says, or of something else than numbers")
        try:
            values = np.array(row, dtype=np.float64)
        except OverflowError:
            raise _invalid("a vector that is not finite") from None
        largest = float(np.abs(values).max())
        if not 0 < largest < math.inf:  # NaN is neither
            raise _invalid("a vector that is zero or not finite")
        values = values / largest  # first, or the squares of huge numbers would overflow
        vectors.append((values / float(np.sqrt((values * values).sum()))).astype("<f4").tobytes())
    return vectors


def check_scores(pairs: Any, count: int) -> list[float]:
    """Scores of a stranger, in the order of the texts. Raises `SourceError` unless each text has one finite score."""
    scores: dict[int, float] = {}
    for at, score in pairs:
        if type(at) is not int or not 0 <= at < count or at in scores:
            raise _invalid("a score of a text that was not sent, or two of one")
        if type(score) not in (int, float) or not -math.inf < score < math.inf or abs(score) > _LARGEST:
            raise _invalid("a score that is no finite number")
        scores[at] = float(score)
    if len(scores) < count:
        raise _invalid("fewer scores than texts")
    return [scores[at] for at in range(count)]


_LARGEST = 1e300
"""Also whole numbers beyond what a float holds are no scores."""


def _invalid(what: str) -> SourceError:
    return SourceError("model_reply_invalid", f"the provider gave {what}", "check its model and settings")


def _refused(provider: str) -> Refused:
    return Refused(
        "disclosure_not_permitted",
        f"the policies do not permit sending this text to `{provider}`",
        "it is handled here without it; a `disclose` permit would have to cover provider, purpose and class",
    )
