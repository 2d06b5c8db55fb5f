"""What a strategy is: a generator that yields batches of searches, receives their hits and returns the final order.

It says what to search and never how: `execute` embeds, applies filter and deadline, and counts. A strategy has no filter to
widen and no store to ask, so whatever it asks for comes back of what the caller may see.

INVARIANT: no strategy can name a filter: a `Query` has none (tests/unit/test_search_strategies.py::test_a_query_names_no_filter).
INVARIANT: the final order holds nothing that no search of the question found (…::test_nothing_but_what_was_searched).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from router.domain import Candidate, Embedded, Ranked
from router.errors import SourceError

MAX_QUERIES = 6
"""Of one batch; what a strategy wants above it is left out, so that no reply of a model multiplies the work without end."""


@dataclass(frozen=True, slots=True)
class Query:
    """One search. `text` is for the lexical leg (None switches it off), `meaning` for the dense one: a text that is embedded, or a
    ready vector. `candidates` replaces the plan's number of hits of each leg."""

    text: str | None
    meaning: str | bytes | None
    candidates: int | None = None


def plain(text: str, candidates: int | None = None) -> Query:
    """The same words for both legs."""
    return Query(text, text, candidates)


@dataclass(frozen=True, slots=True)
class Hits:
    """What one search found, fused, best first. `question` is None where the dense leg did not run."""

    query: Query
    question: Embedded | None
    candidates: tuple[Candidate, ...]
    admitted: int = 0
    possible: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """Candidates in an order, and what they are to be reranked against. `depth` replaces the plan's number of reranked ones."""

    text: str
    question: Embedded | None
    candidates: tuple[Candidate, ...]
    depth: int | None = None


@dataclass(slots=True)
class Trace:
    """What the strategy cost. `queries` are texts of the question's own making: never logged, never recorded. `undisclosed` are calls
    that the policies did not permit: neither made nor failed."""

    strategy: str
    searches: int = 0
    queries: list[str] = field(default_factory=list)
    model_calls: int = 0
    model_failed: int = 0
    undisclosed: int = 0
    notes: list[str] = field(default_factory=list)

    def words(self) -> str:
        """For the stage's note: counts alone."""
        said = f"{self.strategy}: {self.searches} {'search' if self.searches == 1 else 'searches'}"
        if self.model_calls:
            said += f", {self.model_calls} model {'call' if self.model_calls == 1 else 'calls'}"
            said += f", {self.model_failed} failed" if self.model_failed else ""
        return "; ".join([said, *self.notes])


Drafting = Callable[[str, str, Mapping[str, Any], frozenset[int]], Any]
"""(system, prompt, schema, classes of what is shown beside the question) -> what the model said, unchecked. Raises what went wrong."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a strategy may do besides searching. `rank` loads, reranks and, of several parts, takes turns; `shown` are those of some
    passages whose text may leave the process; `vectors` are float32 in the order asked for; `whole_chunks` bounds a source that is
    handed over in full; `likelihood` is how likely it is that passages answer the question, None where that
    cannot be said; `likelihood_of` is the same by another search's hits; `first` are the hits of the question as it was asked."""

    rank: Callable[[Sequence[Part]], tuple[Ranked, ...]]
    vectors: Callable[[Sequence[str]], list[bytes]]
    shown: Callable[[Sequence[Ranked]], list[Ranked]]
    draft: Drafting | None
    candidates: int
    rerank: int
    trace: Trace
    whole_chunks: int = 0
    likelihood: Callable[[Sequence[Ranked]], float | None] = lambda _: None
    likelihood_of: Callable[[Hits, Sequence[Ranked]], float | None] = lambda _, __: None
    first: Callable[[], Hits | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Ordered:
    """The final order. `whole` says that it is all there is, so that it is not cut at the number of passages wanted; `answers` is
    False where nothing of it is likely to answer: the passages are then the nearest, and no evidence."""

    passages: tuple[Ranked, ...]
    whole: bool = False
    answers: bool = True


Batch = tuple[Query, ...]
Searching = Generator[Batch, tuple[Hits, ...], Ordered]
Strategy = Callable[[str, Tools], Searching]
Shape = Literal["mechanical", "model"]


def drive(searching: Searching, search: Callable[[Batch], tuple[Hits, ...]]) -> Ordered:
    """Run a strategy to its end. Its first batch must find something to search; where a later one fails, it goes on without."""
    try:
        batch = next(searching)
        hits = search(batch[:MAX_QUERIES])
        while True:
            batch = searching.send(hits)
            try:
                hits = search(batch[:MAX_QUERIES])
            except SourceError as error:
                if not error.retryable:
                    raise
                hits = ()
    except StopIteration as end:
        ordered: Ordered = end.value
        return ordered
