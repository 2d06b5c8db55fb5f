"""The rule by cost: what is searched, what is asked back, and that there is always a way out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import UsageError
from router.routing.decide import POINTS, Point, build_point, class_scores, decide, parse_point
from router.routing.gates import CLOSED, UNJUDGED, Gate
from router.routing.heads import Likelihoods

SHARE = st.floats(0, 1)
GATE = st.builds(Gate, SHARE, SHARE, st.booleans())
LIKELY = st.builds(Likelihoods, SHARE, SHARE, SHARE)
SHUT = Gate(0.02, 0.1)


def route(r: float, t: float, n: float = 0.0, *, rows: Gate = UNJUDGED, text: Gate = UNJUDGED, options=()) -> str:
    return decide("how many and why", Likelihoods(r, t, n), rows=rows, text=text, options=options).route


def test_each_leg_by_its_price():
    assert route(0.9, 0.05) == "sql"
    assert route(0.05, 0.9) == "documents"
    assert route(0.9, 0.9) == "both"
    assert route(0.9, 0.2) == "both"
    assert route(0.05, 0.1) == "documents"
    assert route(0.1, 0.05) == "sql"
    assert route(0.9, 0.9, 0.8) == "none"
    assert route(0.9, 0.9, 0.7) == "both"


def test_points_are_costs():
    assert POINTS["thrifty"] == build_point(1, 1)
    assert build_point(4, 3) == Point(0.2, 0.75)
    assert POINTS["default"] == build_point(5, 3)
    assert POINTS["careful"] == build_point(9, 3)
    assert parse_point("4/3") == Point(0.2, 0.75)
    assert parse_point("careful") is POINTS["careful"]


@pytest.mark.parametrize("text", ["", "cheap", "4", "4/", "/4", "-1/3", "0/1", "nan/1", "1/inf", "1/2/3", "4 / x", "`"])
def test_other_points_are_refused(text):
    with pytest.raises(UsageError, match="is no operating point"):
        parse_point(text)


def test_a_gate_vetoes_its_leg():
    assert route(0.9, 0.9, rows=SHUT) == "documents"
    assert route(0.9, 0.9, text=SHUT) == "sql"
    assert route(0.9, 0.9, rows=CLOSED) == "documents"


def test_the_other_leg_is_searched_before_anybody_is_asked():
    found = decide("why", Likelihoods(0.9, 0.05, 0.0), rows=SHUT, text=UNJUDGED, options=("claims",))
    assert found.route == "documents"
    assert found.abstained
    assert found.reasons == ("tables not searched: none of yours seem to hold this", "searched instead of what was closed")


def test_clarify_only_when_the_gates_leave_nothing():
    found = decide("x", Likelihoods(0.9, 0.9, 0.0), rows=SHUT, text=SHUT, options=("claims", "handbook", "depots", "leases"))
    assert found.route == "clarify"
    assert found.options == ("claims", "handbook", "depots")
    assert found.reasons == ("nothing granted to you seems to hold this",)
    assert decide("x", Likelihoods(0.9, 0.9, 0.0), rows=SHUT, text=SHUT).route == "documents"


def test_low_confidence_is_said():
    assert decide("x", Likelihoods(0.9, 0.3, 0.0), rows=UNJUDGED, text=UNJUDGED).abstained
    assert not decide("x", Likelihoods(0.9, 0.1, 0.0), rows=UNJUDGED, text=UNJUDGED).abstained


def test_reasons_quote_the_question():
    found = decide("How many claims breach the policy?", Likelihoods(0.9, 0.8, 0.0), rows=UNJUDGED, text=UNJUDGED)
    assert found.reasons == (
        "tables: the wording asks for figures or rows (`how many`)",
        "documents: the wording asks for prose (`policy`, `breach`)",
    )


@given(LIKELY)
def test_scores_add_up_and_lead_by_the_margin(likely):
    scores = class_scores(likely)
    assert sum(scores.values()) == pytest.approx(1)
    assert all(value >= 0 for value in scores.values())


@given(LIKELY, GATE, GATE, st.sampled_from([*POINTS.values()]), st.lists(st.text(max_size=5), max_size=4), st.text(max_size=60))
def test_there_is_always_a_way_out(likely, rows, text, point, options, question):
    found = decide(question, likely, rows=rows, text=text, point=point, options=options)
    assert found.route in ("documents", "sql", "both", "none", "clarify")
    assert bool(found.options) == (found.route == "clarify")
    assert 0 <= found.margin <= 1
    assert found.reasons


@given(LIKELY, GATE, GATE)
def test_gates_only_close_forced_or_instead(likely, rows, text):
    free = decide("x", likely, rows=UNJUDGED, text=UNJUDGED)
    found = decide("x", likely, rows=rows, text=text, options=("a",))
    instead = "searched instead of what was closed" in found.reasons
    for done, wanted, gate in ((found.rows, free.rows, rows), (found.text, free.text, text)):
        if done:
            assert gate.is_open
            assert wanted or rows.forced or text.forced or instead


def test_more_likely_never_searches_less():
    grid = [at / 10 for at in range(11)]
    for t, n in itertools.product(grid, grid):
        searched = [decide("x", Likelihoods(r, t, n), rows=UNJUDGED, text=UNJUDGED).rows for r in grid]
        assert searched == sorted(searched)
