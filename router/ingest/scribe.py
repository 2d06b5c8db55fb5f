"""Has contexts written for one tenant during one run: what is known from before, what may be asked, what is asked, and what it cost.

A few are asked one by one; more wait for the end of their source and go as batches, one class of text each, which nobody waits
for while documents are indexed: until an answer is there, a chunk stands under its structural context. What was asked is on disk
before it is sent, and what was answered before it is used, so that a run that is killed pays for nothing twice.

INVARIANT: text of a class goes only where a permit covers it, alone or in a batch of that class (tests/unit/test_scribe.py::
test_batches_are_of_one_class, tests/e2e/test_context_canaries.py).
INVARIANT: a batch is open until the provider told of each ask what became of it, or that it never had it; what may have been paid is
not sent again before the provider has thrown the answers away (tests/unit/test_scribe.py::test_what_may_have_been_paid_is_not_sent_again).
INVARIANT: what came without a count is charged as set aside (…::test_what_is_not_counted_is_charged).
INVARIANT: a killed run finds its batches again, also one whose id never came back (tests/faults/test_context_running.py::
test_killed_anywhere_pays_once).
INVARIANT: what is spent and on its way stays within the cap (tests/unit/test_scribe.py::test_nothing_is_asked_beyond_the_cap).
INVARIANT: whatever a provider does, a chunk is indexed (tests/unit/test_scribe.py::test_bad_days_leave_structural_contexts).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from router.domain import CLASSES, Chunk, Purpose
from router.errors import PointsmanError, Refused, SourceError
from router.ingest.written_context import (
    MOST_CHARS,
    PROMPT_VERSION,
    REPLY_TOKENS,
    Prices,
    bound_ask,
    build_asks,
    build_whole,
    clean_context,
    document_hash,
)
from router.ports import ContextAsk, ContextCache, ContextReply, ContextWriter, OpenBatch, Tokens, WrittenContext

CALL_S, BATCH_S = 90.0, 600.0
BATCH_ITEMS, BATCH_BYTES = 10_000, 32_000_000
LOST_AFTER_US = 600_000_000
"""A batch that the provider does not list after so long never arrived."""
KEPT_US = 29 * 86_400 * 1_000_000
"""So long a provider keeps answers; what it did not tell by then it never will."""
READ_TRIES = 3
"""How often a run reads what an ended batch does not tell whole; then it is the next run's."""
SKEW_US = 3_600_000_000
"""How far two clocks may differ; whose a batch is is seen by its keys."""
FIRST_POLL_S, LAST_POLL_S = 1.0, 30.0
GIVE_UP_AFTER = 3
"""Failures in a row; then the run asks nobody any more."""
FOR_GOOD = frozenset({"model_refused", "model_reply_invalid"})
"""Answers without a context that were paid for: not asked again."""
_HOPELESS = frozenset({"model_unauthorised", "model_unknown", "model_resting"})
_MAYBE_PAID = frozenset({"model_late", "model_unreachable", "model_failed", "model_reply_invalid", "model_reply_too_large"})
"""Where the error is none that may be tried again: the answer may have been made, and its count lost with it."""
_TELLS_NOTHING = frozenset({"model_unknown", "model_rejected", "model_reply_invalid", "model_reply_too_large"})
"""What is said of a batch, again and again, by who will not say more: another key, another gateway."""
_NEVER_ARRIVED = frozenset({"model_unauthorised", "model_unknown", "model_rejected", "model_rate_limited", "model_overloaded"})
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Writing:
    """How contexts are asked for. `auto` asks the first `batch_from` of a run one by one and the others in batches. Caps are for one
    run; what earlier runs sent and nobody has collected yet counts."""

    send: Literal["auto", "direct", "batch"] = "auto"
    batch_from: int = 50
    window_tokens: int = 120_000
    spend_cap: float | None = None
    token_cap: int | None = None
    prices: Prices | None = None
    reply_tokens: int = REPLY_TOKENS["off"]


@dataclass(slots=True)
class Purse:
    """What a run, or the rounds of a watch together, may spend and has spent, over all tenants. `counted` are the batches that are in
    `promised`, `heard` the asks of each whose answers are in `batched`: neither is added twice."""

    writing: Writing
    direct: Tokens = field(default_factory=Tokens)
    batched: Tokens = field(default_factory=Tokens)
    promised: Tokens = field(default_factory=Tokens)
    counted: set[str] = field(default_factory=set)
    heard: dict[str, set[str]] = field(default_factory=dict)

    def reserve(self, worst: Tokens, *, batch: bool) -> bool:
        """Whether that much more is within the caps; a batch's share is set aside."""
        prices = self.writing.prices
        costs = self.money() + (prices.of(worst, batch=batch) if prices is not None else 0.0)
        tokens = self.tokens.total + self.promised.total + worst.total
        if self.writing.spend_cap is not None and (prices is None or costs > self.writing.spend_cap):
            return False
        if self.writing.token_cap is not None and tokens > self.writing.token_cap:
            return False
        if batch:
            self.promised += worst
        return True

    def release(self, worst: Tokens) -> None:
        was = self.promised
        self.promised = Tokens(
            max(0, was.fresh - worst.fresh), max(0, was.cache_write - worst.cache_write),
            max(0, was.cache_read - worst.cache_read), max(0, was.output - worst.output),
        )  # fmt: skip

    @property
    def tokens(self) -> Tokens:
        return self.direct + self.batched

    def money(self, *, promised: bool = True) -> float:
        prices = self.writing.prices
        if prices is None:
            return 0.0
        spent = prices.of(self.direct, batch=False) + prices.of(self.batched, batch=True)
        return spent + (prices.of(self.promised, batch=True) if promised else 0.0)


@dataclass(frozen=True, slots=True)
class Told:
    """The contexts of one document's chunks, None where there is none; `codes` say why, and `again` that a later run may do better."""

    texts: tuple[str | None, ...]
    codes: Mapping[str, int] = field(default_factory=dict)
    again: bool = False
    waiting: bool = False


@dataclass(slots=True)
class Tally:
    """Of one run, over all its rounds: of a document what the latest look at it found. `uncounted` answers came without a count, or
    were lost, and are charged as they were set aside."""

    written: int = 0
    direct: int = 0
    batched: int = 0
    uncounted: int = 0
    unsent: Counter[str] = field(default_factory=Counter)
    told: dict[tuple[str, str], tuple[int, Counter[str]]] = field(default_factory=dict)

    @property
    def reused(self) -> int:
        """Contexts that stand in the index and were written by an earlier run."""
        return sum(reused for reused, _ in self.told.values())

    @property
    def structural(self) -> Counter[str]:
        """Chunks that stand under a structural context, by reason."""
        return sum((codes for _, codes in self.told.values()), Counter(self.unsent))


class Scribe:
    """`writer` is None where no provider is configured or its key is missing. Not thread-safe: a run has one line."""

    def __init__(
        self,
        tenant: str,
        writer: ContextWriter | None,
        cache: ContextCache,
        purse: Purse,
        *,
        model: str,
        principal: str,
        now_us: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tenant, self._writer, self._cache, self.purse = tenant, writer, cache, purse
        self._model, self._principal, self._now_us, self._sleep = model, principal, now_us, sleep
        self._writing = purse.writing
        self._permitted: dict[int, bool] = {}
        self._queue: dict[int, list[tuple[ContextAsk, Tokens]]] = {}
        self._sizes: dict[int, int] = {}
        self._queued: set[str] = set()
        self._not_theirs: set[str] = set()
        self._failures = 0
        self._own: set[str] = set()
        self._unread: Counter[str] = Counter()
        self.stopped = ""
        self.tally = Tally()

    @property
    def version(self) -> str:
        """Of what stands in an index: prompt, model and window. The hash of the document is the manifest's."""
        return f"{PROMPT_VERSION}:{self._model}:{self._writing.window_tokens}"

    def permits(self, sensitivity: int) -> bool:
        """Whether documents of this class have written contexts, by the policies at the begin of the round; each sending is judged anew."""
        if sensitivity not in self._permitted:
            known = self._writer is not None and 0 <= sensitivity < len(CLASSES)
            self._permitted[sensitivity] = known and self._writer is not None and self._writer.permits(sensitivity)
        return self._permitted[sensitivity]

    def begin_round(self) -> None:
        """Before the line runs again in one run: permits are those of now, and where only what was set aside filled the cap, there is
        room again."""
        self._permitted.clear()
        self.tally.unsent.clear()
        if self.stopped == "spend_cap":
            self.stopped = ""

    # --- one document -------------------------------------------------------------------------------------------------

    def asks(self, chunks: Sequence[Chunk], within: str) -> list[ContextAsk]:
        whole = build_whole(chunks, within)
        return build_asks(whole, chunks, tenant=self._tenant, model=self._model, window_tokens=self._writing.window_tokens)

    def tell(self, chunks: Sequence[Chunk], within: str, *, source: str, document_id: str, sensitivity: int, run_id: str) -> Told:
        """Contexts of one document that stands under one set of labels, from it alone. Raises nothing of the provider's."""
        asks = self.asks(chunks, within)
        keys = [ask.key for ask in asks]
        self._cache.use(self._tenant, source, document_id, keys)
        reasons: Counter[str] = Counter()
        self.tally.told[source, document_id] = 0, reasons
        if not asks:
            return Told((None,) * len(chunks))
        if not self.permits(sensitivity):
            reasons["not_permitted" if self._writer is not None else "no_model"] = len(asks)
            return Told((None,) * len(chunks))
        known = self._cache.find(self._tenant, keys)
        reused = sum(bool(known[key].text) and key not in self._own for key in keys if key in known)
        missing = {ask.key: ask for ask in asks if ask.key not in known}
        on_way = self._cache.on_their_way(self._tenant, list(missing)) | (self._queued & missing.keys())
        codes = dict.fromkeys(on_way, "waiting")
        todo = [ask for key, ask in missing.items() if key not in on_way]
        codes |= self._write(todo, known, sensitivity, run_id) if todo else {}
        said = Counter(codes[key] if key in codes else known[key].code for key in keys if key in codes or known[key].code)
        reasons.update({code: count for code, count in said.items() if code != "waiting"})
        self.tally.told[source, document_id] = reused, reasons
        texts = tuple(known[key].text or None if key in known else None for key in keys)
        return Told(texts, dict(said), bool(codes), "waiting" in codes.values())

    def measure(self, chunks: Sequence[Chunk], within: str, sensitivity: int) -> list[ContextAsk]:
        """What would be asked for, without asking."""
        if not self.permits(sensitivity):
            return []
        asks = self.asks(chunks, within)
        keys = [ask.key for ask in asks]
        known = self._cache.find(self._tenant, keys).keys() | self._cache.on_their_way(self._tenant, keys)
        return list({ask.key: ask for ask in asks if ask.key not in known}.values())

    def _write(
        self, todo: Sequence[ContextAsk], known: dict[str, WrittenContext], sensitivity: int, run_id: str
    ) -> dict[str, str]:
        """Ask now or later; adds to `known`; returns why of the others."""
        if self.stopped:
            return {ask.key: self.stopped for ask in todo}
        direct = self._writing.send == "direct" or (
            self._writing.send == "auto" and self.tally.direct + len(todo) <= self._writing.batch_from
        )
        codes: dict[str, str] = {}
        for ask in todo:
            if direct:
                codes |= self._ask(ask, known, sensitivity, run_id)
            else:
                codes[ask.key] = self._enqueue(ask, sensitivity, run_id)
        return codes

    def _ask(self, ask: ContextAsk, known: dict[str, WrittenContext], sensitivity: int, run_id: str) -> dict[str, str]:
        """One call, on disk before it is used."""
        worst = bound_ask(ask, self._writing.prices, self._writing.reply_tokens)
        if not self.stopped and not self.purse.reserve(worst, batch=False):
            self.stopped = "spend_cap"
        if self.stopped or self._writer is None:
            return {ask.key: self.stopped or "no_model"}
        self.tally.direct += 1
        try:
            reply = self._writer.write(ask, purpose=self._purpose(sensitivity, run_id), deadline_s=CALL_S)
        except Refused as refusal:
            return {ask.key: refusal.code}
        except SourceError as error:
            self._failed(error.code)
            if error.code in _MAYBE_PAID and not error.retryable:
                self.purse.direct += worst
                self.tally.uncounted += 1
            return {ask.key: error.code}
        self._failures = 0
        counted = bool(reply.tokens.total)
        self.purse.direct += reply.tokens if counted else worst
        self.tally.uncounted += not counted
        made = self._made(ask.key, document_hash(ask), reply, paid=counted)
        if made is None:
            return {ask.key: reply.code or "model_reply_invalid"}
        self._cache.write(self._tenant, [made])
        self.tally.written += bool(made.text)
        self._own.add(ask.key)
        known[ask.key] = made
        return {}

    def _failed(self, code: str) -> None:
        self._failures += 1
        if code in _HOPELESS or self._failures >= GIVE_UP_AFTER:
            self.stopped = code

    def _made(self, key: str, hashed: str, reply: ContextReply, *, paid: bool) -> WrittenContext | None:
        """What is kept of an answer; None where asking again may help, as where nothing was written and nothing paid."""
        text = clean_context(reply.text)
        code = "" if text else reply.code or "model_reply_invalid"
        if code and (code not in FOR_GOOD or not paid):
            return None
        answered_by = clean_context(reply.model)[:MOST_CHARS]
        return WrittenContext(key, text, code, self._model, PROMPT_VERSION, hashed, answered_by, self._now_us())

    def _purpose(self, sensitivity: int, run_id: str) -> Purpose:
        return Purpose(self._principal, "context", frozenset({sensitivity}), run_id)

    # --- batches ------------------------------------------------------------------------------------------------------

    def _enqueue(self, ask: ContextAsk, sensitivity: int, run_id: str) -> str:
        worst = bound_ask(ask, self._writing.prices, self._writing.reply_tokens)
        if self.stopped or not self.purse.reserve(worst, batch=True):
            self.stopped = self.stopped or "spend_cap"
            return self.stopped
        queue = self._queue.setdefault(sensitivity, [])
        queue.append((ask, worst))
        self._queued.add(ask.key)
        self._sizes[sensitivity] = self._sizes.get(sensitivity, 0) + len(ask.document) + len(ask.chunk)
        if len(queue) >= BATCH_ITEMS or self._sizes[sensitivity] >= BATCH_BYTES:
            self._send(sensitivity, run_id)
        return "waiting"

    def submit(self, run_id: str) -> None:
        """Send what is queued: a batch for each class."""
        for sensitivity in sorted(self._queue):
            self._send(sensitivity, run_id)

    def _send(self, sensitivity: int, run_id: str) -> None:
        queue = self._queue.pop(sensitivity, [])
        self._sizes.pop(sensitivity, None)
        if not queue or self._writer is None:
            return
        asks = [ask for ask, _ in queue]
        worst = sum((tokens for _, tokens in queue), Tokens())
        batch = OpenBatch(uuid.uuid4().hex, self._tenant, "", sensitivity, len(asks), self._now_us(), worst)
        self._cache.begin(batch, {ask.key: document_hash(ask) for ask in asks})
        self.purse.counted.add(batch.intent)
        self._queued.difference_update(ask.key for ask in asks)
        try:
            batch_id = self._submitted(asks, sensitivity, run_id)
        except SourceError as error:
            if error.code in _NEVER_ARRIVED:  # else it may run there, and is looked for
                self._closed(batch)
            self._failed(error.code)
            self.tally.unsent[error.code] += len(asks)
            return
        except PointsmanError as error:
            self._closed(batch)
            if not isinstance(error, Refused):
                raise
            self.tally.unsent[error.code] += len(asks)
            return
        self._cache.named(batch.intent, batch_id)
        self.tally.batched += len(asks)

    def _submitted(self, asks: Sequence[ContextAsk], sensitivity: int, run_id: str) -> str:
        """Tried again only where the provider says that it did not take it."""
        assert self._writer is not None
        for tried in range(1, _TRIES + 1):
            try:
                return self._writer.submit(asks, purpose=self._purpose(sensitivity, run_id), deadline_s=BATCH_S)
            except SourceError as error:
                if (
                    error.code not in ("model_rate_limited", "model_overloaded")
                    or tried == _TRIES
                    or error.retry_after_s > BATCH_S
                ):
                    raise
                self._sleep(max(error.retry_after_s, FIRST_POLL_S))
        raise AssertionError("the last try returns or raises")

    def _closed(self, batch: OpenBatch) -> None:
        self._cache.end(batch.intent)
        if batch.intent in self.purse.counted:
            self.purse.counted.discard(batch.intent)
            self.purse.release(batch.worst)

    def collect(self) -> int:
        """Keep what ended batches say, without waiting; returns how many contexts came in or may be asked for again."""
        gained = 0
        for batch in self._cache.open_batches(self._tenant):
            if batch.intent not in self.purse.counted:  # of a run before this one
                self.purse.counted.add(batch.intent)
                self.purse.promised += batch.worst
            if self._writer is None or self._unread[batch.intent] >= READ_TRIES:
                continue
            try:
                gained += self._collected(batch)
            except SourceError as error:
                if error.code in _TELLS_NOTHING:
                    gained += self._not_told(batch)
                elif error.code in _HOPELESS:
                    self.stopped = self.stopped or error.code
        return gained

    def _not_told(self, batch: OpenBatch) -> int:
        """Of what may have been paid nothing is sent again, until the provider has thrown away what there was. Sooner a new model asks
        anew, whose contexts are others."""
        self._unread[batch.intent] += 1
        if self._now_us() - batch.at_us <= KEPT_US:
            return 0
        self._closed(batch)
        return self._left(batch)

    def _left(self, batch: OpenBatch) -> int:
        return batch.items - len(self.purse.heard.get(batch.intent, ()))

    def _collected(self, batch: OpenBatch) -> int:
        assert self._writer is not None
        while True:
            found = batch if batch.batch_id else self._found_again(batch)
            if found is None:
                return self._given_up(batch)
            if not self._writer.ended(found.batch_id, deadline_s=CALL_S):
                return 0 if self._now_us() - batch.at_us <= KEPT_US else self._not_told(batch)
            gained = self._kept(found)
            if gained is not None:
                if self._left(batch):
                    return gained + self._not_told(batch)
                self._closed(batch)
                return gained
            self._not_theirs.add(found.batch_id)
            self._cache.named(batch.intent, "")
            batch = replace(batch, batch_id="")

    def _found_again(self, batch: OpenBatch) -> OpenBatch | None:
        """A batch whose id was lost: the oldest that nobody knows, of as many requests; whose answers they are is seen by their keys."""
        assert self._writer is not None
        taken = {other.batch_id for other in self._cache.open_batches(self._tenant)} | self._not_theirs
        now_us = self._now_us()
        ahead = batch.at_us > now_us + SKEW_US  # the clock was, so that nobody knows when it was begun
        seen = self._writer.batches(now_us - KEPT_US if ahead else batch.at_us - SKEW_US, deadline_s=CALL_S)
        fitting = [one for one in seen if one.items == batch.items and one.batch_id not in taken]
        if fitting:
            found = min(fitting, key=lambda one: (one.at_us, one.batch_id))
            self._cache.named(batch.intent, found.batch_id)
            return replace(batch, batch_id=found.batch_id)
        if ahead:
            self._cache.dated(batch.intent, now_us)
        return None

    def _given_up(self, batch: OpenBatch) -> int:
        """One that the provider does not list was not sent, or is not listed yet."""
        if self._now_us() - batch.at_us <= LOST_AFTER_US:
            return 0
        self._closed(batch)
        return batch.items

    def _kept(self, batch: OpenBatch) -> int | None:
        """How many contexts a batch gave that were not heard before; None where it is somebody else's. Of two answers to one ask the
        first counts."""
        assert self._writer is not None
        asked, told, others = self._cache.keys_of(batch.intent), dict[str, ContextReply](), 0
        for key, reply in self._writer.results(batch.batch_id, deadline_s=BATCH_S):
            if key in asked:
                told.setdefault(key, reply)
            else:
                others += 1
        if others and not told:
            return None
        heard = self.purse.heard.setdefault(batch.intent, set())
        new = {key: reply for key, reply in told.items() if key not in heard}
        answers = {key: reply for key, reply in new.items() if not reply.code or reply.code in FOR_GOOD}
        made = [self._made(key, asked[key], reply, paid=key in answers) for key, reply in new.items()]
        rows = [row for row in made if row is not None]
        self._cache.write(self._tenant, rows)
        heard.update(new)
        written = [row.key for row in rows if row.text]
        self._own.update(written)
        self.tally.written += len(written)
        uncounted = sum(not reply.tokens.total for reply in answers.values())
        self.tally.uncounted += uncounted
        self.purse.batched += sum((reply.tokens for reply in new.values()), _share(batch.worst, uncounted, batch.items))
        return len(written)

    @property
    def waiting(self) -> int:
        """Contexts that open batches were asked for and did not tell of yet."""
        return sum(map(self._left, self._cache.open_batches(self._tenant))) if self._writer is not None else 0

    @property
    def unclear(self) -> int:
        """Those of them of which the provider does not say what became of them."""
        if self._writer is None:
            return 0
        return sum(self._left(batch) for batch in self._cache.open_batches(self._tenant) if self._unread[batch.intent])

    def wait(self, until_s: float, told: Callable[[int], None] | None = None) -> int:
        """Collect until no batch is open that may still tell something, or `time.monotonic()` is `until_s`; returns what `collect` does."""
        gained, pause_s = 0, FIRST_POLL_S
        while True:
            gained += self.collect()
            if told is not None:
                told(self.waiting)
            open_ones = [one for one in self._cache.open_batches(self._tenant) if self._unread[one.intent] < READ_TRIES]
            if not open_ones or self._writer is None or self.stopped in _HOPELESS or time.monotonic() + pause_s > until_s:
                return gained
            self._sleep(pause_s)
            pause_s = min(LAST_POLL_S, pause_s * 1.5)

    # --- what is no longer there --------------------------------------------------------------------------------------

    def prune(self, source: str, document_ids: Sequence[str]) -> int:
        """Of a source as it is now listed."""
        return self._cache.prune(self._tenant, source, document_ids)


def _share(worst: Tokens, items: int, of: int) -> Tokens:
    """What some asks of a batch were set aside at, rounded up."""
    parts = (worst.fresh, worst.cache_write, worst.cache_read, worst.output)
    return Tokens(*(-(-part * items // max(1, of)) for part in parts))
