"""What `eval` prints for people: figures under each other, never a value as Python writes it."""

from __future__ import annotations

import pytest

from router.doors.cli import evaluate
from router.evals import routing
from router.evals.train_route import Row
from router.routing.decide import POINTS, decide
from router.routing.gates import UNJUDGED
from router.routing.heads import Likelihoods


@pytest.fixture
def routed():
    likely = Likelihoods(0.9, 0.1, 0.0)
    decided = decide("x", likely, rows=UNJUDGED, text=UNJUDGED, point=POINTS["default"])
    judged = [routing.Judged(Row("x", route, "own"), likely, decided, (route == "sql", False)) for route in ("sql", "none")]
    times = {"embed": {"p50": 1.5, "p95": 3.0}}
    return {**routing.build_report(judged), "ms": times, "settings": {"weights": "shipped", "point": [1 / 6, 0.75]}}


def test_routing_is_told_in_tables(routed, capsys):
    evaluate._print_routing(routed)
    out = capsys.readouterr().out
    assert not set("{}[]'") & set(out)
    assert "None" not in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for wanted in ("heads", "confusion", "by route", "by source", "risk and coverage", "ms embed: p50 1.5, p95 3.0"):
        assert wanted in lines
    assert "settings weights shipped, point 0.1667, 0.75" in lines
    assert any(line.startswith("needs auc calibration error") for line in lines)
    assert any(line.startswith("own 2 0.5") for line in lines)


def test_every_figure_of_routing_is_told(routed, capsys):
    """A figure that the report gains is not lost for people."""
    evaluate._print_routing({**routed, "questions": 4711})
    assert "4711" in capsys.readouterr().out
    told = {
        "questions",
        "accuracy",
        "macro_f1",
        "needed_evidence_recall",
        "unneeded_search_share",
        "documents_that_search_rows",
        "ece",
    }
    tables = {"by_route", "by_source", "confusion", "risk_coverage", "auc", "ece_heads", "routes", "ms", "settings"}
    assert set(routed) == told | tables


def test_figures_stand_under_each_other(capsys):
    evaluate._figures(("name", "one_thing"), [("a", 7), ("b", 123.0), ("c", None)], "some_title")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "some title"
    ends = {len(line.rstrip()) for line in lines if line.strip() and line.strip()[0] in "abc"}
    assert len(ends) == 1


def test_text_to_sql_has_no_precision_without_answers(capsys):
    figures = {"judged": 3, "answered": 0, "right": 0, "coverage": 0.0, "precision": 0.0}
    report = figures | {
        "questions": 3,
        "abstained": 3,
        "confidence": 0.8,
        "gold_failed": 0,
        "left_out": {"tied": 1},
        "statements_skipped": {},
        "curve": [{"confidence": 0.5, **figures}],
        "by_type": {"count": {**figures, "answered": 1, "precision": 100.0}},
        "by_database": {"shop": figures},
        "wrong": [],
    }
    evaluate._print_text_to_sql(report)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "precision -" in lines
    assert "shop 3 0 0 0.0 -" in lines
    assert "count 3 1 0 0.0 100.0" in lines
    assert "left out: tied 1" in lines
