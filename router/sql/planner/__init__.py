"""The planner: a question in English to a form over what one caller may use, or an abstention that says why.

Words are bound by a lexicon of the catalogue and of its stored values, never by likeness. It answers only what it can explain
word by word; what it cannot say precisely it leaves to a person, a tool or a model.

INVARIANT: every word of the question is explained (tests/sql/planner/test_plan_invariants.py::test_every_word_is_explained).
INVARIANT: everything bound is in the compiled SQL (tests/sql/planner/test_plan_invariants.py::test_everything_bound_is_in_the_sql).
INVARIANT: a form that is returned compiles (tests/sql/planner/test_plan_invariants.py::test_a_planned_form_compiles_and_runs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches

from router.errors import Refused
from router.sql.form import Explained, Form
from router.sql.planner.index import Index, StoredValues, build_index
from router.sql.planner.tokens import Token

__all__ = [
    "CURATED",
    "DERIVED",
    "Abstention",
    "Index",
    "StoredValues",
    "build_index",
    "only_question",
    "plan_question",
    "reads_as_question",
]

CURATED, DERIVED = 0.7, 0.8
"""Confidence from which a plan is run without asking: with synonyms and labels written by people, and without. Where the curves of
`eval text-to-sql` bend: below, what is won in answers is right less often."""

PER_TURN = 0.03
"""What confidence a plan loses that was found only by putting the question in other words."""

MOST_CHARS = 1_000
MOST_TOKENS = 120
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Abstention:
    """No plan. `unbound` are the words that are to blame, `nearest` names of the catalogue that look like them."""

    code: str
    unbound: tuple[str, ...]
    understood: tuple[Explained, ...]
    nearest: tuple[str, ...]
    message: str


def plan_question(text: str, index: Index, today: date) -> Form | Abstention:
    """The form that the question asks for. No text raises."""
    from router.sql.planner.segment import spread
    from router.sql.planner.tokens import tokenise
    from router.sql.planner.turns import turned

    if len(text) > MOST_CHARS:
        return Abstention("planner_too_long", (), (), (), f"the question is longer than {MOST_CHARS} characters")
    tokens = tuple(spread(tokenise(text[: MOST_CHARS + 1]), index))
    if not tokens or len(tokens) > MOST_TOKENS:
        return Abstention("planner_nothing_asked", (), (), (), "there is no question, or too much of it")
    planned = _plan(tokens, index, today)
    if isinstance(planned, Form):
        return planned
    forms: dict[Form, Form] = {}
    for other in turned(tokens, index):
        found = _plan(other, index, today)
        if isinstance(found, Form):
            forms.setdefault(replace(found, confidence=1.0, explained=()), found)
    if len(forms) > 1:
        message = "the question may be put in two ways that mean different things"
        return Abstention("planner_ambiguous", (), planned.understood, (), message)
    return next((replace(one, confidence=max(0.0, one.confidence - PER_TURN)) for one in forms.values()), planned)


def _plan(tokens: tuple[Token, ...], index: Index, today: date) -> Form | Abstention:
    from router.sql.compile import lower_form
    from router.sql.planner.automaton import read_pieces
    from router.sql.planner.draft import Stop
    from router.sql.planner.literals import named
    from router.sql.planner.masks import hold_masks
    from router.sql.planner.segment import segment
    from router.sql.planner.shape import shape_form

    pieces = named(segment(tokens, index, today), index)
    unknown = tuple(piece.words for piece in pieces if piece.kind == "unknown")
    understood = tuple(Explained(piece.words, piece.kind) for piece in pieces if piece.kind in ("name", "value", "period"))
    if unknown:
        return Abstention("planner_unknown", unknown, understood, _nearest(unknown, index), _not_known(unknown))
    try:
        form = hold_masks(shape_form(read_pieces(pieces, index), index), index)
        lower_form(form, index.catalog)
        told = {one.words: one.bound for one in form.explained}
    except Stop as stop:
        return Abstention(stop.code, stop.words, understood, _nearest(stop.words, index), stop.message)
    except Refused as refused:
        return Abstention(refused.code, (), understood, (), refused.message)
    spelled = ((piece, _spelled(tokens[piece.at : piece.at + piece.length])) for piece in pieces)
    explained = tuple(Explained(said, told.get(piece.words, piece.kind)) for piece, said in spelled if said)
    return replace(form, explained=explained)


def _spelled(tokens: tuple[Token, ...]) -> str:
    return " ".join(token.spelled for token in tokens if token.spelled)


def only_question(text: str, index: Index, today: date) -> str | None:
    """The sentence that asks, where what stands before it is about who asks and changes nothing."""
    from router.sql.planner.sentences import only_question as found

    return found(text, index, today)


def reads_as_question(value: str, index: Index) -> bool:
    """Whether a stored value of several words reads like a part of a question: `by region`. It can be meant in quotes only."""
    from router.sql.planner.segment import reads_otherwise
    from router.sql.planner.tokens import tokenise

    tokens = tokenise(value[:MOST_CHARS])
    return 1 < len(tokens) <= MOST_TOKENS and reads_otherwise(tokens, value, {}, index, date(2000, 1, 1))


def _not_known(words: tuple[str, ...]) -> str:
    listed = [f"`{word}`" for word in dict.fromkeys(words)]
    if len(listed) == 1:
        return f"{listed[0]} is not known here"
    more = len(listed) - MOST_NAMED
    if more > 1:
        return f"{', '.join(listed[:MOST_NAMED])} and {more} more words are not known here"
    return f"{', '.join(listed[:-1])} and {listed[-1]} are not known here"


def _nearest(words: tuple[str, ...], index: Index) -> tuple[str, ...]:
    """Names of the catalogue that look like the words: suggestions, nothing is bound by them."""
    found: dict[str, None] = {}
    for word in words[:3]:
        for near in get_close_matches(word.lower(), index.names, n=2, cutoff=0.75):
            found.setdefault(near)
    return tuple(found)
