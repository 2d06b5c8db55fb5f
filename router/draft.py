"""From a question about rows to one draft: a query tool, else the planner. Who drafts last is asked only where nobody before could.

INVARIANT: a draft of the planner below its threshold is shown as a reading, never run (tests/unit/test_table_leg.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from router.domain import Clarify
from router.errors import Refused
from router.search.decomposed import clauses, points_back
from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.planner import CURATED, DERIVED, Abstention, only_question, plan_question
from router.sql.reading import read_form
from router.sql.tools import match_tools
from router.sql.vocabulary import Vocabulary

MOST_PARTS = 3

Similarity = Callable[[str, tuple[str, ...]], list[float]]


@dataclass(frozen=True, slots=True)
class Draft:
    """One SELECT over governed names. `reads` are the datasets it touches, `why` who drafted it and the words that it stands on."""

    origin: Literal["tool", "metric", "planner", "model"]
    sql: str
    reading: str
    reads: tuple[str, ...]
    why: tuple[str, ...] = ()


def draft(text: str, vocabulary: Vocabulary, today: date, similarity: Similarity) -> tuple[Draft, ...] | Clarify:
    """Never raises for what a question says: what cannot be drafted is asked back.

    Of several questions in one, those are drafted that can be, each for itself; one that leans on another is not."""
    whole = _draft_one(text, vocabulary, today, similarity)
    if isinstance(whole, Draft):
        return (whole,)
    parts = clauses(text)[:MOST_PARTS]
    asked = only_question(text, vocabulary.index, today) if len(parts) == 1 else None
    if asked is not None:
        found = _draft_one(asked, vocabulary, today, similarity)
        return (replace(found, reading=f"Of `{asked}`: {found.reading}"),) if isinstance(found, Draft) else whole
    alone = [part for at, part in enumerate(parts) if at == 0 or not points_back(part)] if len(parts) > 1 else []
    drafts = ((part, _draft_one(part, vocabulary, today, similarity)) for part in alone)
    return tuple(replace(one, reading=f"Of `{part}`: {one.reading}") for part, one in drafts if isinstance(one, Draft)) or whole


def _draft_one(text: str, vocabulary: Vocabulary, today: date, similarity: Similarity) -> Draft | Clarify:
    try:
        matched = match_tools(text, vocabulary.tools, today, similarity)
    except Exception:  # noqa: BLE001 (a model may fail in any way: the words decide alone, and who gave `similarity` says so)
        matched = match_tools(text, vocabulary.tools, today)
    if matched is not None:
        return _compiled("tool", matched.form, vocabulary)
    planned = plan_question(text, vocabulary.index, today)
    if isinstance(planned, Abstention):
        return Clarify(planned.message, planned.nearest)
    if planned.confidence < (CURATED if is_curated(vocabulary) else DERIVED):
        return Clarify("I am not sure that I read your question as you mean it", (tell(planned),))
    return _compiled("planner", planned, vocabulary)


def is_curated(vocabulary: Vocabulary) -> bool:
    """Whether somebody wrote down what people call things."""
    return any(one.synonyms or any(field.synonyms for field in one.fields) for one in vocabulary.catalog.datasets)


def _compiled(origin: Literal["tool", "planner"], form: Form, vocabulary: Vocabulary) -> Draft | Clarify:
    catalog = vocabulary.index.catalog if origin == "planner" else vocabulary.catalog
    try:
        compiled = lower_form(form, catalog, min_group=vocabulary.min_group)
    except Refused as refused:
        return Clarify(f"{tell(form)}, which cannot be answered: {refused.message}", ())
    reads = tuple(sorted({dataset for dataset, _ in compiled.reads}))
    why = (origin, *_named_words(form, vocabulary))
    return Draft(origin, compiled.sql, tell(form) + small_groups(reads, vocabulary), reads, why)


def _named_words(form: Form, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Words of the question that stand for granted names and values, in order and once each."""
    catalog = vocabulary.catalog
    names = {one.name.lower() for one in catalog.datasets} | {one.name.lower() for one in catalog.metrics}
    bound = (one.words for one in form.explained if one.bound == "value" or one.bound.partition(".")[0].lower() in names)
    return tuple(dict.fromkeys(bound))


def small_groups(reads: tuple[str, ...], vocabulary: Vocabulary) -> str:
    """What the numbers leave out, where reviewers set a least group: without it `the fewest` would be read as it stands."""
    least = max((number for name, number in vocabulary.min_group.items() if name in reads), default=0)
    return f" (groups of fewer than {least} rows are left out)" if least else ""


def tell(form: Form) -> str:
    """In plain words: the marks of bold type are for pages."""
    return f"I read your question as: {read_form(form, bold='')}"
