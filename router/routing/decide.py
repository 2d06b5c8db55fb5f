"""From likelihoods and gates to the legs that are searched, by what a wrong choice costs.

A leg that was needed and not searched costs an answer, an idle leg costs milliseconds. So each leg is searched from a likelihood
of 1 / (1 + miss) on, where `miss` says how many idle legs one missed leg is worth. Uncertainty therefore widens: first both
legs, and only when the gates leave neither, a question back. There is a declared way out of every state and no exception.

INVARIANT: gates close legs and never open one that the likelihoods did not ask for, except by an exact hit or in place of a leg
that was closed (tests/unit/test_routing_decide.py::test_gates_only_close_forced_or_instead).
INVARIANT: reasons name only words of the question and what the caller's own gates say, so nothing that is not granted
(tests/unit/test_routing_gates.py::test_reasons_of_the_narrower_name_nothing_of_the_wider).
INVARIANT: a name that may not be known and one that does not exist give the same decision
(…::test_a_hidden_name_reads_as_one_that_does_not_exist).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from router.errors import UsageError
from router.routing.features import named_cues
from router.routing.gates import Gate
from router.routing.heads import Likelihoods

Name = Literal["documents", "sql", "both", "none", "clarify"]


@dataclass(frozen=True, slots=True)
class Point:
    """Where the rule stands: a leg is searched above `leg`, nothing above `none`."""

    leg: float
    none: float


POINTS: Mapping[str, Point] = {
    "thrifty": Point(0.5, 0.5),  # a miss costs as much as an idle leg
    "default": Point(1 / 6, 0.75),  # as much as five; a question left without any search as much as three
    "careful": Point(0.1, 0.75),  # as much as nine
}


INSTEAD = 0.5
"""A leg that nobody asked for takes the place of one that was closed only where what is granted speaks for it by itself."""


@dataclass(frozen=True, slots=True)
class Decided:
    """`scores` of the four routes add up to 1. `margin` is the lead of the best over the next. `abstained` says that legs are
    searched, or asked about, for want of certainty rather than because they were likely. `options` belong to `clarify`."""

    route: Name
    scores: Mapping[str, float]
    margin: float
    abstained: bool
    reasons: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def rows(self) -> bool:
        return self.route in ("sql", "both")

    @property
    def text(self) -> bool:
        return self.route in ("documents", "both")


def parse_point(text: str) -> Point:
    """`default`, `thrifty`, `careful`, or two costs: `MISS/NONE`, each in idle legs (`4/2`)."""
    if text in POINTS:
        return POINTS[text]
    try:
        miss, none = (float(part) for part in text.split("/"))
    except ValueError:
        miss = none = -1.0
    if not (0 < miss < 1_000 and 0 < none < 1_000):
        raise UsageError(
            "point_unknown", f"`{text}` is no operating point", f"one of {', '.join(POINTS)}, or two costs as in 4/2"
        )
    return build_point(miss, none)


def build_point(miss: float, none: float) -> Point:
    """From costs in idle legs: of a leg that was needed and not searched, and of a question left without any search."""
    return Point(1 / (1 + miss), none / (1 + none))


def class_scores(likely: Likelihoods) -> dict[str, float]:
    """What each route's chance is when rows and text are independent; adds up to 1."""
    r, t = likely.rows, likely.text
    shares = {"documents": (1 - r) * t, "sql": r * (1 - t), "both": r * t}
    rest = (1 - likely.none) / max(sum(shares.values()), 1e-9)
    scores = {name: share * rest for name, share in shares.items()}
    scores["none"] = max(0.0, 1.0 - sum(scores.values()))
    return scores


def decide(
    question: str,
    likely: Likelihoods,
    *,
    rows: Gate,
    text: Gate,
    point: Point = POINTS["default"],
    options: Sequence[str] = (),
) -> Decided:
    """`options` are two or three granted names to ask back with; without them a closed road is searched as documents."""
    scores = class_scores(likely)
    best, second = sorted(scores.values(), reverse=True)[:2]
    margin = best - second
    if likely.none > point.none and not rows.forced and not text.forced:
        return Decided("none", scores, margin, abstained=False, reasons=("nothing to look up: small talk or a command",))
    wanted = _wanted(likely, point, rows, text)
    search = (wanted[0] and rows.is_open, wanted[1] and text.is_open)
    reasons = [
        *_reasons("rows", wanted[0], rows, likely.rows, question),
        *_reasons("text", wanted[1], text, likely.text, question),
    ]
    if search == (False, False):
        search = (not wanted[0] and _speaks(rows), not wanted[1] and _speaks(text))
        if search == (False, False):
            return _closed(scores, margin, options)
        reasons.append("searched instead of what was closed")
        return Decided(_name(search), scores, margin, abstained=True, reasons=tuple(reasons))
    unsure = (search[0] and likely.rows < 0.5 and not rows.forced) or (search[1] and likely.text < 0.5 and not text.forced)
    return Decided(_name(search), scores, margin, abstained=unsure, reasons=tuple(reasons))


def _wanted(likely: Likelihoods, point: Point, rows: Gate, text: Gate) -> tuple[bool, bool]:
    """By cost; where neither is likely enough, the likelier one."""
    wanted = (likely.rows > point.leg or rows.forced, likely.text > point.leg or text.forced)
    if wanted == (False, False):
        return likely.rows >= likely.text, likely.rows < likely.text
    return wanted


def _speaks(gate: Gate) -> bool:
    return gate.is_open and gate.open >= INSTEAD


def _name(search: tuple[bool, bool]) -> Name:
    return "both" if search == (True, True) else "sql" if search[0] else "documents"


def _closed(scores: Mapping[str, float], margin: float, options: Sequence[str]) -> Decided:
    reason = ("nothing granted to you seems to hold this",)
    if not options:
        return Decided("documents", scores, margin, abstained=True, reasons=reason)
    return Decided("clarify", scores, margin, abstained=True, reasons=reason, options=tuple(options[:3]))


# --- reasons ----------------------------------------------------------------------------------------------------------

_ROW_CUES = ("howmany", "howmuch", "total", "avg", "superl", "listverb", "perx", "compar", "ident", "biz")
_TEXT_CUES = ("howto", "why", "policy", "acc", "explain", "can_i", "trouble", "codeid", "whatdoes")
_LEG_WORDS = {"rows": "tables", "text": "documents"}
_LONGEST = 40


def _reasons(leg: Literal["rows", "text"], wanted: bool, gate: Gate, likely: float, question: str) -> list[str]:
    """At most two: why the wording asks for the leg, and what the gate said."""
    if not wanted:
        return []
    name = _LEG_WORDS[leg]
    if not gate.is_open:
        return [f"{name} not searched: none of yours seem to hold this"]
    if gate.forced:
        return [f"{name}: {', '.join(gate.because)}"]
    found = named_cues(question)
    cues = [found[cue] for cue in (_ROW_CUES if leg == "rows" else _TEXT_CUES) if found.get(cue)][:2]
    worded = f" (`{'`, `'.join(cue[:_LONGEST].lower() for cue in cues)}`)" if cues and likely >= 0.5 else ""
    sure = "the wording asks for" if likely >= 0.5 else "not unlikely enough to leave out"
    out = [f"{name}: {sure} {'figures or rows' if leg == 'rows' else 'prose'}{worded}"]
    if gate.because:
        out.append(f"{name}: {', '.join(gate.because)}")
    return out
