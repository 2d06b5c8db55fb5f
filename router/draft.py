"""From a question about rows to one draft: a query tool, else the planner. Who drafts last is asked only where nobody before could.

INVARIANT: a draft of the planner below its threshold is shown as a reading, never run (tests/unit/test_table_leg.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal

from router.domain import Clarify
from router.errors import Refused
from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.planner import CURATED, DERIVED, Abstention, plan_question
from router.sql.reading import read_form
from router.sql.tools import match_tools
from router.sql.vocabulary import Vocabulary

Similarity = Callable[[str, tuple[str, ...]], list[float]]


@dataclass(frozen=True, slots=True)
class Draft:
    """One SELECT over governed names. `reads` are the datasets it touches."""

    origin: Literal["tool", "metric", "planner", "model"]
    sql: str
    reading: str
    reads: tuple[str, ...]


def draft(text: str, vocabulary: Vocabulary, today: date, similarity: Similarity) -> Draft | Clarify:
    """Never raises for what a question says: what cannot be drafted is asked back."""
    matched = match_tools(text, vocabulary.tools, today, similarity)
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
    try:
        compiled = lower_form(form, vocabulary.catalog, min_group=vocabulary.min_group)
    except Refused as refused:
        return Clarify(f"{tell(form)}, which cannot be answered: {refused.message}", ())
    reads = tuple(sorted({dataset for dataset, _ in compiled.reads}))
    return Draft(origin, compiled.sql, tell(form), reads)


def tell(form: Form) -> str:
    """In plain words: the marks of bold type are for pages."""
    return f"I read your question as: {read_form(form).replace('**', '')}"
