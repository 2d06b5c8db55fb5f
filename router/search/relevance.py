"""Whether what was found answers the question: keep it, search once more, or say that it is not there.

A calibrated likelihood over features of the caller's own hits; the weights are data with their recipe beside them
(`python -m router.evals.train_relevance`). The order of passages is never changed here.

INVARIANT: with the dense leg gone nothing is judged and everything is kept (tests/unit/test_search_relevance.py::test_nothing_is_judged_without_vectors).
INVARIANT: only what the caller may see is looked at, so a hidden document moves no judgement (…::test_judgement_of_the_callers_own).
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from router.domain import Candidate, Chunk, Passage, Ranked, Table
from router.lexicon import STOP_WORDS, identifiers
from router.search.decomposed import clauses
from router.search.naming import holds, holds_code, named_things, read_passage, share_held

Judgement = Literal["keep", "again", "empty"]

FEATURES = ("cosine", "lexical", "maxsim", "covered", "best_covered", "gap", "agreement", "identifiers", "code")
JUDGED = 20
"""Passages whose text is looked at."""
MOST_WORDS = 60
"""A longer question (a pasted trace, a mail) is unlike those that the weights were fitted on: it is not judged."""
COVERING = 3
NEAREST = 3
_DEPTH = 10
_WORD = re.compile(r"[^\W_]+")
_ZERO = re.compile(r"-?0+(\.0+)?")


@dataclass(frozen=True, slots=True)
class Found:
    """What the question's own search found: raw scores, as the store gave them. `maxsim` is of `ranked`, in that order."""

    text: str
    candidates: Sequence[Candidate]
    possible: float
    ranked: Sequence[Ranked]
    maxsim: Sequence[float]


@dataclass(frozen=True, slots=True)
class Gate:
    """`again` and `empty` are likelihoods below which is searched once more, and below which nothing is said to be found."""

    weights: tuple[float, ...]
    bias: float
    again: float
    empty: float

    def likelihood(self, values: Sequence[float]) -> float:
        score = self.bias + sum(weight * value for weight, value in zip(self.weights, values, strict=True))
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, score))))

    def doubt(self, likely: float) -> float:
        """The likelihood where another answer stands beside: so much less that only what needs no second search is kept."""
        return _of_odds(_odds(likely) * _odds(self.empty) / _odds(self.again))

    def judge(self, values: Sequence[float], *, last: bool) -> Judgement:
        """`last` says that there is no further search: then it is kept or empty."""
        likely = self.likelihood(values)
        if last:
            return "empty" if likely < self.empty else "keep"
        return "again" if likely < self.again else "keep"


@functools.cache
def load_gate() -> Gate:
    """The weights that are shipped."""
    return parse_gate(json.loads(files("router").joinpath("model", "relevance.json").read_text(encoding="utf-8")))


def parse_gate(body: Mapping[str, Any]) -> Gate:
    weights = tuple(float(body["weights"][name]) for name in FEATURES)
    return Gate(weights, float(body["bias"]), float(body["again"]), float(body["empty"]))


def weigh(likely: float, prior: float) -> float:
    """The likelihood where the question was unlikely to need text at all: odds times odds. From a half on the wording says nothing
    against it, and the likelihood stays."""
    return likely if prior >= 0.5 else _of_odds(_odds(likely) * _odds(prior))


def _odds(chance: float) -> float:
    return chance / max(1e-9, 1 - chance)


def _of_odds(odds: float) -> float:
    return odds / (1 + odds)


def prior_of_text(scores: Mapping[str, float]) -> float:
    """How likely the wording makes it that text is needed, where something is to be looked up at all; 1 where nobody weighed it."""
    text = scores.get("documents", 0.0) + scores.get("contextual", 0.0) + scores.get("both", 0.0)
    whole = text + scores.get("sql", 0.0)
    return text / whole if whole > 0 else 1.0


def prior_of_part(rows: float, text: float) -> float:
    """The same of one part of a question, by the likelihoods of its two legs."""
    both = rows + text - rows * text
    return text / both if both > 0 else 1.0


def asks_for_rows(scores: Mapping[str, float]) -> bool:
    """Whether rows alone are likelier than not to be what is asked for."""
    return prior_of_text(scores) < 0.5


def settled_by_rows(text: str, scores: Mapping[str, float], tables: Sequence[Table]) -> bool:
    """Whether tables have read one question, that asks for rows, and found that there is none: a table explains every word of what
    it answers, and a passage is only near. A zero and an empty cell tell nothing."""
    told = any(_tells(cell) for table in tables for row in table.rows for cell in row)
    return bool(tables) and not told and asks_for_rows(scores) and len(clauses(text)) == 1


def _tells(cell: object) -> bool:
    return cell is not None and not (isinstance(cell, int | float | str) and bool(_ZERO.fullmatch(str(cell))))


def features(found: Found) -> tuple[float, ...]:
    """In the order of FEATURES, each about 0 to 1."""
    best = sorted((candidate.cosine for candidate in found.candidates), reverse=True)
    lexical = max((candidate.bm25 for candidate in found.candidates), default=0.0)
    texts = [_evidence(item) for item in found.ranked[:JUDGED]]
    asked = _stems(found.text) - _STOP_STEMS
    covered, best_covered = _coverage(asked, [_stems(text) for text in texts])
    rest = best[_DEPTH // 2 :]
    return (
        best[0] if best else 0.0,
        min(1.0, lexical / found.possible) if found.possible > 0 else 0.0,
        max(found.maxsim, default=0.0),
        covered,
        best_covered,
        best[0] - sum(rest) / len(rest) if rest else 0.0,
        _agreement(found.candidates),
        share_held(found.text, [read_passage(text) for text in texts]),
        1.0 if sum(item.stored.chunk.kind == "code" for item in found.ranked[:COVERING]) * 2 > COVERING else 0.0,
    )


def _coverage(asked: set[str], held: Sequence[set[str]]) -> tuple[float, float]:
    """Share of the question's stems in the first few passages together, and in the one that holds most; a stem counts by how few of
    the passages hold it."""
    if not asked or not held:
        return 0.0, 0.0
    weight = {stem: math.log(1 + (len(held) + 1) / (1 + sum(stem in one for one in held))) for stem in asked}
    total = sum(weight.values())
    together: set[str] = set().union(*held[:COVERING])
    shares = [sum(weight[stem] for stem in asked & one) / total for one in held]
    return sum(weight[stem] for stem in asked & together) / total, max(shares)


def _agreement(candidates: Sequence[Candidate]) -> float:
    """Share of the first hits by vectors that are also among the first by words."""
    depth = min(_DEPTH, len(candidates))
    if not depth:
        return 0.0
    dense = sorted(candidates, key=lambda one: (-one.cosine, one.chunk_id))[:depth]
    lexical = sorted(candidates, key=lambda one: (-one.bm25, one.chunk_id))[:depth]
    lexical = [one for one in lexical if one.bm25 > 0]
    return len({one.chunk_id for one in dense} & {one.chunk_id for one in lexical}) / depth


def _evidence(item: Ranked) -> str:
    chunk = item.stored.chunk
    return "\n".join((chunk.title, *chunk.heading_path, chunk.text))


def missing_identifiers(text: str, texts: Sequence[str]) -> list[str]:
    """Identifiers of the question that stand in none of the texts, as written in small letters."""
    lowered = [one.lower() for one in texts]
    return [word for word in identifiers(text) if not any(word in one for one in lowered)]


def names_nothing(text: str, ranked: Sequence[Ranked]) -> bool:
    """Whether the question names things by codes (`CX-900`, `send_with_retry`) of which no passage holds a single one: what is like
    them is no answer about them. Plain numbers are no names: a year need not stand in its answer."""
    named = [word for word in identifiers(text) if any(char.isalpha() for char in word)]
    if not named:
        return False
    held = [read_passage(_evidence(item)) for item in ranked]
    return not any(holds_code(one, name) for name in named for one in held)


def is_about(text: str, ranked: Sequence[Ranked]) -> bool:
    """Whether a passage stands under a title or headings that hold all that the question names: it is about that thing, whatever
    the wording seems to ask for."""
    named = named_things(text)
    titles = [read_passage("\n".join((item.stored.chunk.title, *item.stored.chunk.heading_path))) for item in ranked]
    return bool(named) and any(all(holds(title, name) for name in named) for title in titles)


def build_note(text: str, ranked: Sequence[Ranked]) -> str:
    """What is to be said of identifiers that no passage contains; empty where there is nothing to say."""
    missing = missing_identifiers(text, [_evidence(item) for item in ranked])
    if not missing or not ranked:
        return ""
    listed = ", ".join(f"`{word[:60]}`" for word in missing[:3])
    return f"{listed} {'stands' if len(missing) == 1 else 'stand'} in none of the passages found"


def build_nearest(near: Sequence[Chunk | Passage]) -> tuple[str, ...]:
    """Headings of the nearest passages, once each: what the caller may see beside the question, of passages judged in full."""
    named = (" > ".join(dict.fromkeys((one.title, *one.heading_path))) for one in near)
    return tuple(dict.fromkeys(name for name in named if name))[:NEAREST]


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in _WORD.findall(text.lower()[:20_000]) if len(word) > 1}


def _stem(word: str) -> str:
    """Rough: what words of one family share. Both sides are cut alike, so it need not be a word."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "ly", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_STOP_STEMS = frozenset(_stem(word) for word in STOP_WORDS)
