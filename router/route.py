"""Which legs a question needs: chosen by its caller, or decided by likelihoods and gates at an operating point.

INVARIANT: a route is a function of the question and of what is granted
(tests/unit/test_routing_gates.py::test_reasons_of_the_narrower_name_nothing_of_the_wider).
"""

from __future__ import annotations

from collections.abc import Sequence

from router.domain import Route, Wanted
from router.routing.decide import Decided, Name, Point, decide
from router.routing.gates import Gate
from router.routing.heads import Heads, score

UNCERTAIN = "the question could not be read by the model: everything that may hold it is searched"


def chosen(wanted: Wanted) -> Route:
    return Route(wanted, {wanted: 1.0}, 1.0, abstained=False, reasons=("chosen by the caller",))


def choose(
    text: str, vector: bytes | None, heads: Heads, *, rows: Gate, prose: Gate, point: Point, options: Sequence[str]
) -> tuple[Route, tuple[str, ...]]:
    """The route, and what to ask back where it is `clarify`. Without a vector every open leg is searched."""
    if vector is None:
        name: Name = "both" if rows.is_open and prose.is_open else "sql" if rows.is_open else "documents"
        return Route(name, {}, 0.0, abstained=True, reasons=(UNCERTAIN,)), ()
    decided: Decided = decide(text, score(heads, text, vector), rows=rows, text=prose, point=point, options=options)
    route = Route(decided.route, decided.scores, decided.margin, abstained=decided.abstained, reasons=decided.reasons)
    return route, decided.options
