"""What stops a plan by its words alone, or by how its parts stand to each other: wrong rows are worse than none.

INVARIANT: what is taken away, joined in two ways or said roughly is asked back (tests/sql/planner/test_plan_meaning.py::test_asked_back).
"""

from __future__ import annotations

import re
from itertools import pairwise

from router.sql.planner.draft import Cond, Draft, Relation, Stop
from router.sql.planner.segment import Piece
from router.sql.planner.words import MOODS

_SAYS_WHICH = frozenset({"verb", "with", "not", "no", "except"})
_PARTS = frozenset({"with", "is", "not", "no", "except", "verb", "in", "of"})
"""Between two conditions these begin a second one of its own."""
_NOT_NOW = frozenset("was were had did used".split()) | MOODS - {"can"}
_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")


def refuse_words(pieces: list[Piece]) -> None:
    """Stops at what no part of the reader understands, before it reads."""
    _refuse_universal(pieces)
    _refuse_open_end(pieces)
    _refuse_rough(pieces)
    _refuse_moods(pieces)


def _refuse_universal(pieces: list[Piece]) -> None:
    """ "Who visited all museums", "not every student": a condition on each of many is not understood."""
    last = ""
    measured = any(piece.kind == "count" or piece.kind.startswith("agg:") for piece in pieces)
    for at, piece in enumerate(pieces):
        low = piece.words.lower()
        grouping = piece.kind == "each" and measured
        if last in _SAYS_WHICH and low in ("all", "each", "every") and piece.kind in ("fill", "each") and not grouping:
            raise Stop("planner_universal", (piece.words,), f"`{piece.words}` of many as a condition is not understood")
        state = next((one.kind for one in pieces[at + 1 :] if one.kind != "fill"), "")
        if last == "is" and low == "all" and state in ("value", "quoted", "number"):
            raise Stop("planner_universal", (piece.words,), f"`{piece.words}` of many as a condition is not understood")
        if piece.kind != "fill" or low == "all":
            last = piece.kind


def _refuse_open_end(pieces: list[Piece]) -> None:
    """ "From 2024 to …": what a period ends with is not passed over."""
    for one, other in pairwise(pieces):
        if one.kind == "period" and other.words.lower() in ("to", "now"):
            words = f"{one.words} {other.words}"
            raise Stop("planner_no_time", (words,), f"when `{words}` ends is not certain")


def _refuse_rough(pieces: list[Piece]) -> None:
    """ "About 100" is no 100, and 1.000 is one to some and a thousand to others."""
    for at, piece in enumerate(pieces):
        if piece.number is None or piece.kind != "number":
            continue
        if at and pieces[at - 1].words.lower().endswith("about"):
            raise Stop("planner_number", (f"about {piece.words}",), f"how far from {piece.words} is still about it is not said")
        if _THOUSANDS.fullmatch(piece.words):
            raise Stop("planner_number", (piece.words,), f"whether `{piece.words}` has a decimal point is not certain")


def _refuse_moods(pieces: list[Piece]) -> None:
    """ "Should be paid", "used to be open", "were ever open": what is stored is what is so now."""
    for at, (one, other) in enumerate(pairwise(pieces)):
        said, next_said = one.words.lower(), other.words.lower()
        state = next((piece for piece in pieces[at + 1 :] if piece.kind not in ("fill", "is")), None)
        is_state = state is not None and state.kind in ("value", "quoted", "name")
        mood = (
            (said in MOODS and next_said.split()[0] in ("be", "have")) or (said == "used" and next_said == "to") or said == "ever"
        )
        if one.kind in ("fill", "verb") and mood and is_state:
            raise Stop("planner_mood", (one.words,), f"whether `{one.words}` means what is so now is not certain")


def refuse_other_times(pieces: list[Piece], draft: Draft) -> None:
    """ "How many belts will we have", "were out of stock": what is in stock is so now."""
    for piece in pieces if draft.stock else ():
        said = set(piece.words.lower().split())
        if piece.kind in ("fill", "is", "with", "verb", "no") and said & _NOT_NOW:
            raise Stop("planner_mood", (piece.words,), f"whether `{piece.words}` means what is in stock now is not certain")


def refuse_shared_negation(pieces: list[Piece], draft: Draft) -> None:
    """ "Without status open and region West": whether the negation is of both."""
    said: list[Cond | Relation] = sorted([*draft.conds, *draft.relations], key=lambda one: one.at)
    for one, other in pairwise(said):
        lacks = one.negated and (isinstance(one, Relation) or one.never)
        between = [piece for piece in pieces if one.at < piece.at < other.at]
        joined = any(piece.words.lower() == "and" for piece in between) and not any(piece.kind in _PARTS for piece in between)
        if lacks and not other.negated and joined:
            raise Stop("planner_negation", (other.words,), f"whether `{other.words}` is denied, too, is not certain")


def refuse_after_exception(pieces: list[Piece], draft: Draft) -> None:
    """ "All but the open ones of Oakum Paper": whose claims are excepted, or whose claims are asked for?"""
    commas = [piece.at for piece in pieces if piece.kind == "comma"]
    others: list[Cond | Relation] = [*draft.conds, *draft.relations]
    for cond in [one for one in draft.conds if one.excepted]:
        for other in others:
            if other.at > cond.at and not any(cond.at < comma < other.at for comma in commas):
                message = f"whether `{other.words}` is said of what is excepted is not certain"
                raise Stop("planner_negation", (other.words,), message)


def refuse_precedence(pieces: list[Piece], draft: Draft, noun: int) -> None:
    """ "Of type R1 or open and in West" groups one way or the other; "open claims of type R1 or in West" only one way.
    `noun` is where the rows asked for are named."""
    conds = draft.conds
    clauses = [one.at for one in pieces if one.kind == "with"]
    for at, cond in enumerate(conds):
        if not cond.joined:
            continue
        first = at
        while conds[first].joined and first:
            first -= 1
        began = conds[first].at
        before = [one for one in conds[:first] if one.at > noun and not any(one.at < where < began for where in clauses)]
        after = [one for one in conds[at + 1 :] if not one.joined]
        if before or after:
            raise Stop("planner_or", (cond.words,), "what of `and` and `or` belongs together is not certain")
