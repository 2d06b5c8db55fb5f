"""May what is granted hold the answer? Two gates that close a leg, apart from the wording: one for rows, one for text.

The rows gate compares the question with the names of granted datasets, fields and metrics, by words and by vectors; the text
gate is a cheap search of the granted documents, judged by how much of the question its best hit covers. Both numbers are
logistic fits (49 schemas, three collections; routing figures in router/model/ROUTE.md).

INVARIANT: a gate is a function of the question and of what is granted; a name that is not granted is in neither
(tests/unit/test_routing_gates.py::test_a_name_that_is_not_granted_changes_nothing).
INVARIANT: an exact hit (stored value, identifier, tool) opens the rows leg whatever the numbers say (…::test_an_exact_hit_forces).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.catalog import Catalog
from router.lexicon import identifiers
from router.routing.features import named_cues
from router.routing.language import is_foreign

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

ROWS_OPEN, TEXT_OPEN = 0.1, 0.2
"""Above these a leg may be searched: they keep 0.98 of the right catalogues and 0.997 of the right collections."""
MAX_NAMES = 4_000
CHARS = 1_000
MOST_KEYWORDS = 3
KEYWORDS_HELD = 0.5
"""The share of what two words could score that the best chunk reaches, from which on they are looked for."""
_MOST_REASONS = 3
LONGEST_VALUE = 5
"""Words of a stored value that is looked for in a question."""

_STOP = frozenset(
    """
    a an the of in on at by for to from with without about as into over under between than that which who whose whom what when
    where why how is are was were be been do does did can could may might must should will would shall has have had i we you he
    she it they my our your his her its their me us them this these those there here and or but if not no nor so also then please
    all any each every some most least more less many much few list show give find tell return get name need want make use used
    using per how's what's same different other only both either there's
    """.split()
)
_HUMP = re.compile(r"([a-z])([A-Z])")
_LETTERS = re.compile(r"[a-z0-9]+")
_PLURALS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"))


@dataclass(frozen=True, slots=True)
class Gate:
    """`open` lies between 0 and 1. `forced` is an exact hit. `because` names words of the question that are granted names."""

    open: float
    threshold: float
    forced: bool = False
    because: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.forced or self.open > self.threshold


UNJUDGED = Gate(1.0, 0.0)
"""Wording alone: no catalogue and no probe was asked."""
CLOSED = Gate(0.0, 0.0)
"""Nothing of that kind is granted."""


@dataclass(frozen=True, slots=True)
class NamedThings:
    """What the rows gate knows of one caller's catalogue. Built once per grant and kept: the vectors are what costs."""

    words: frozenset[str]
    vectors: Floats


@dataclass(frozen=True, slots=True)
class Probe:
    """What a cheap search of the granted documents found: the best score of the lexical leg (k1 1.2, b 0.75), the score that is
    `possible` (the sum of 2.2 idf over the question's terms, absent ones too), how many chunks are granted, and the best cosine."""

    bm25: float
    possible: float
    chunks: int
    cosine: float


def content_words(question: str) -> list[str]:
    """The question's distinct words that carry content, in order."""
    return list(dict.fromkeys(content_tokens(question[:CHARS])))


def content_tokens(text: str) -> list[str]:
    """Words that carry content: compounds taken apart, plurals made singular."""
    found = (_singular(word) for word in _LETTERS.findall(_spoken(text).lower()))
    return [word for word in found if word not in _STOP and (len(word) > 1 or word.isdigit())]


def _singular(word: str) -> str:
    for ending, instead in _PLURALS:
        if word.endswith(ending) and len(word) > 4:
            return word[: -len(ending)] + instead
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


# --- rows -------------------------------------------------------------------------------------------------------------


def build_named(catalog: Catalog, embed: Callable[[str], bytes]) -> NamedThings:
    """`catalog` is the part that is granted. Vectors are of "dataset" and of "dataset field", underscores as spaces."""
    import numpy as np

    names = [*catalog_names(catalog)]
    vectors = [np.frombuffer(embed(text), "<f4") for text in dict.fromkeys(_phrases(catalog))]
    matrix = np.stack(vectors[:MAX_NAMES]) if vectors else np.zeros((0, 1), np.float32)
    return NamedThings(frozenset(word for name in names for word in content_words(name)), matrix)


def catalog_names(catalog: Catalog) -> list[str]:
    """Names and synonyms of datasets, fields, roles and metrics."""
    named: list[str] = []
    for dataset in catalog.datasets:
        named += [dataset.name, *dataset.synonyms]
        for field in dataset.fields:
            named += [field.name, *field.synonyms]
    for metric in catalog.metrics:
        named += [metric.name, *metric.synonyms]
    return [*named, *(role for relationship in catalog.relationships for role in relationship.synonyms)]


def _phrases(catalog: Catalog) -> list[str]:
    phrases: list[str] = []
    for dataset in catalog.datasets:
        name = _spoken(dataset.name)
        phrases += [name, *(f"{name} {_spoken(field.name)}" for field in dataset.fields)]
    return phrases


def _spoken(name: str) -> str:
    return _HUMP.sub(r"\1 \2", name).replace("_", " ")


def gate_rows(question: str, vector: bytes, named: NamedThings, exact: Sequence[str] = ()) -> Gate:
    """`exact` are reasons in words for an exact hit: a stored value that is open to the caller, an identifier, a tool."""
    import numpy as np

    if exact:
        return Gate(1.0, ROWS_OPEN, forced=True, because=tuple(exact[:_MOST_REASONS]))
    if not len(named.vectors):
        return CLOSED
    words = content_words(question)
    known = [word for word in words if word in named.words]
    covered = len(known) / max(1, len(words))
    cosines = np.sort(named.vectors @ np.frombuffer(vector, "<f4"))[::-1]
    best, three = float(cosines[0]), float(cosines[:3].mean())
    score = 5.221 * covered + 6.449 * best + 5.982 * three - 5.322
    because = (_stand(known),) if known else ()
    return Gate(_sigmoid(score), ROWS_OPEN, because=because)


def gate_rows_by_words(question: str, catalog: Catalog, exact: Sequence[str] = ()) -> Gate:
    """Where nothing could be embedded: open where a word of the question is a granted name."""
    if exact:
        return Gate(1.0, ROWS_OPEN, forced=True, because=tuple(exact[:_MOST_REASONS]))
    names = {word for name in catalog_names(catalog) for word in content_words(name)}
    known = [word for word in content_words(question) if word in names]
    return Gate(1.0, ROWS_OPEN, because=(_stand(known),)) if known else CLOSED


def _stand(known: Sequence[str]) -> str:
    return f"`{'`, `'.join(known[:_MOST_REASONS])}` stand in your tables"


# --- text -------------------------------------------------------------------------------------------------------------


def gate_text(probe: Probe, exact: Sequence[str] = ()) -> Gate:
    """How much of what the question asks for the best granted chunk could cover, and how close the nearest one is. `exact` are
    reasons in words for a search whatever the numbers say."""
    if probe.chunks <= 0:
        return CLOSED
    if exact:
        return Gate(1.0, TEXT_OPEN, forced=True, because=tuple(exact[:_MOST_REASONS]))
    covered = probe.bm25 / probe.possible if probe.possible > 0 else 0.0
    return Gate(_sigmoid(6.897 * min(1.0, covered) + 10.456 * probe.cosine - 5.638), TEXT_OPEN)


def idf(chunks: int, holding: int) -> float:
    return math.log(1 + (chunks - holding + 0.5) / (holding + 0.5))


def _sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, score))))


# --- exact hits -------------------------------------------------------------------------------------------------------


def is_keywords(question: str, probe: Probe) -> bool:
    """Whether the question is a word or two to look for, most of which the granted documents hold: `press`, `belt tension`. Small
    talk is short, too, but it shows by its words."""
    words = _LETTERS.findall(question[:CHARS].lower())
    spoken = named_cues(question)
    return (
        0 < len(words) <= MOST_KEYWORDS
        and len(content_words(question)) == len(set(words))
        and not any(cue in spoken for cue in ("greet", "greet0"))
        and probe.bm25 >= KEYWORDS_HELD * probe.possible > 0
    )


def looked_up(question: str, probe: Probe) -> tuple[str, ...]:
    """Reasons in words for a search whatever the wording says: identifiers alone, another language, words to look for."""
    named = bare_identifiers(question, identifiers(question)) if probe.bm25 > 0 else ()
    reasons = tuple(f"`{name}` is looked for by name" for name in named)
    if is_foreign(question):
        return (*reasons, "the question does not look English")
    return (*reasons, "these are words to look for") if is_keywords(question, probe) else reasons


def bare_identifiers(question: str, named: Sequence[str]) -> tuple[str, ...]:
    """Identifiers where the question is little else: `ERR-5204`, `what is SB-2025-04`. Its wording then says nothing."""
    parts = {part for name in named for part in content_tokens(name)}
    others = [word for word in content_words(question) if word not in parts]
    return tuple(named) if named and len(others) < 2 else ()


def exact_hits(question: str, values: Collection[str], named: Sequence[str]) -> tuple[str, ...]:
    """Reasons for what of the question is a stored value that the caller may see: an identifier, or two words or more that stand
    there together. One plain word (`open`, `north`) is none: half of all questions about documents hold one.

    `values` are in lower case; `named` are those of `router.lexicon.identifiers`."""
    words = _LETTERS.findall(question[:CHARS].lower())
    runs = (" ".join(words[at : at + size]) for size in range(LONGEST_VALUE, 1, -1) for at in range(len(words) - size + 1))
    hits = dict.fromkeys(found for found in (*named, *runs) if found in values)
    return tuple(f"`{found}` is a stored value" for found in list(hits)[:_MOST_REASONS])
