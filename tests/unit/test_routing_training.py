"""The trainer finds the minimum, leaves out what it says it leaves out, and the figures are what their names say."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.doors import cli
from router.errors import UsageError
from router.evals import gated, routing, train_route
from router.evals.fit_logistic import Dense, build_sparse, fit_logistic
from router.evals.train_route import OWN_QUESTIONS, Row, build_material, fit_platt, leave_out, load_rows, seal_heads
from router.routing.decide import POINTS, decide
from router.routing.gates import UNJUDGED
from router.routing.heads import Likelihoods, parse_heads, score

SOURCES = (
    "kaggledbqa",
    "cranfield",
    "stackfaq",
    "clinc150/oos_test",
    "policyqa",
    "rasa-helpdesk",
    "pubmedqa",
    "tpl:hr",
    "tpl:parts",
)


def sample(count: int = 140) -> list[Row]:
    """Own questions under made-up sources, so that every fold has all routes."""
    rows = load_rows(OWN_QUESTIONS)
    random.Random(7).shuffle(rows)
    return [replace(row, source=SOURCES[at % len(SOURCES)]) for at, row in enumerate(rows[:count])]


def vectors_for(rows) -> np.ndarray:
    raw = np.random.default_rng(3).normal(size=(len(rows), 384))
    return raw / np.linalg.norm(raw, axis=1)[:, None]


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_the_fit_is_the_minimum():
    """No small step in any direction is better, and the bias alone solves the first-order condition."""
    rng = np.random.default_rng(1)
    dense, labels = rng.normal(size=(300, 6)), rng.integers(0, 2, 300).astype(float)
    sparse = build_sparse([{int(at): 1.0, 7: 0.5} for at in rng.integers(0, 7, 300)], 9)
    weights = rng.uniform(0.1, 3, 300)
    weights[:40] = 0
    found = fit_logistic([Dense(dense), sparse], labels, weights, 0.5)

    def loss(w: np.ndarray, bias: float) -> float:
        margins = dense @ w[:6] + sparse.forward(w[6:]) + bias
        return float(weights @ np.logaddexp(0, -(2 * labels - 1) * margins) + w @ w / (2 * 0.5))

    best = loss(found.weights, found.bias)
    for _ in range(200):
        step = rng.normal(size=15) * 10.0 ** rng.uniform(-3, 0)
        assert loss(found.weights + step, found.bias + rng.normal() * 0.01) > best - 1e-6
    assert best < loss(np.zeros(15), 0.0)


def test_rows_without_weight_are_not_seen():
    rng = np.random.default_rng(2)
    values, labels, weights = rng.normal(size=(80, 4)), rng.integers(0, 2, 80).astype(float), np.ones(80)
    weights[50:] = 0
    one = fit_logistic([Dense(values)], labels, weights, 1.0)
    labels[50:] = 1 - labels[50:]
    values[50:] *= 9
    other = fit_logistic([Dense(values)], labels, weights, 1.0)
    assert np.array_equal(one.weights, other.weights)


@given(st.lists(st.dictionaries(st.integers(0, 11), st.floats(-3, 3), max_size=5), min_size=1, max_size=12))
def test_sparse_products_are_those_of_the_dense_matrix(rows):
    plain = np.zeros((len(rows), 12))
    for at, row in enumerate(rows):
        for key, value in row.items():
            plain[at, key] = value
    matrix = build_sparse(rows, 12)
    assert matrix.forward(np.arange(12.0)) == pytest.approx(plain @ np.arange(12.0))
    assert matrix.back(np.arange(float(len(rows)))) == pytest.approx(np.arange(len(rows)) @ plain)


# --- leaving out ------------------------------------------------------------------------------------------------------


def test_a_source_that_is_left_out_is_not_seen():
    """With every answer of one fold turned round, that fold's own logits and calibration stay what they were."""
    rows = sample()
    fold = Row("", "sql", "cranfield").fold
    turned = [replace(row, route="none" if row.route != "none" else "sql") if row.fold == fold else row for row in rows]
    vectors = vectors_for(rows)
    before, after = leave_out(build_material(rows, vectors)), leave_out(build_material(turned, vectors))
    held = np.array([row.fold == fold for row in rows])
    assert held.sum() > 5
    assert np.array_equal(before[held], after[held])
    assert not np.allclose(before[~held], after[~held], equal_nan=True)
    assert fit_platt(rows, before, ~held) == fit_platt(turned, before, ~held)


def test_every_fold_is_left_out_whole():
    assert Row("x", "sql", "clinc150/oos_test").group == "clinc_oos"
    assert Row("x", "sql", "clinc150/test:meta").group == "clinc_talk"
    assert Row("x", "sql", "covidqa-faq").fold == Row("x", "sql", "covidqa").fold
    assert Row("x", "sql", "multimodalqa/dev:TextQ").group in train_route.DROPPED
    assert {Row("x", "sql", f"tpl:{name}").fold for name in ("hr", "parts", "claims", "sales", "none")} == {-1, 8}
    assert 0 <= Row("x", "sql", "somebody's").fold < train_route.FOLD_COUNT - 1


def test_sealed_weights_give_what_was_fitted():
    rows = sample(60)
    vectors = vectors_for(rows)
    material = build_material(rows, vectors)
    heads = train_route.fit_heads(material, np.ones(len(rows), dtype=bool))
    sealed = seal_heads(heads)
    assert sealed == seal_heads(heads)
    read = parse_heads(sealed)
    logits = train_route.score_rows(material, heads)
    for row, vector, wanted in zip(rows[:10], vectors, logits, strict=False):
        found = score(read, row.question, vector.astype("<f4").tobytes())
        assert [found.rows, found.text, found.none] == pytest.approx(1 / (1 + np.exp(-wanted)), abs=2e-3)


def test_own_questions_are_whole():
    rows = load_rows(OWN_QUESTIONS)
    kinds = {
        kind: sum(row.group == kind for row in rows) for kind in ("own:compound", "own:howto", "own:command", "own:reference")
    }
    assert min(kinds.values()) >= 140
    assert sum(kinds.values()) == len(rows)
    assert len({gated.plain_words(row.question) or row.question for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        '{"question": "x"}',
        '{"question": "x", "route": "clarify"}',
        '{"question": 3, "route": "sql"}',
        "null",
        '{"route": "sql"}',
    ],
)
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "how many", "route": "sql"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"line `q\.jsonl:2`"):
        load_rows(path)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "how many", "route": "sql"}\n', encoding="utf-8-sig")
    assert [row.question for row in load_rows(path)] == ["how many"]


def test_a_file_without_questions_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n", encoding="utf-8")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("empty.jsonl", "bytes.jsonl", "none.jsonl"):
        with pytest.raises(UsageError):
            load_rows(tmp_path / name)


# --- figures ----------------------------------------------------------------------------------------------------------


def judged(route: str, likely: Likelihoods, source: str = "s") -> routing.Judged:
    needs = (route in ("sql", "both"), route in ("documents", "both"))
    decided = decide("x", likely, rows=UNJUDGED, text=UNJUDGED, point=POINTS["default"])
    return routing.Judged(Row("x", route, source), likely, decided, needs)


def test_the_figures_by_hand():
    report = routing.build_report(
        [
            judged("sql", Likelihoods(0.9, 0.1, 0.0)),
            judged("sql", Likelihoods(0.9, 0.3, 0.0)),  # one idle leg
            judged("documents", Likelihoods(0.9, 0.1, 0.0), "t"),  # missed and idle
            judged("none", Likelihoods(0.1, 0.1, 0.9), "t"),
        ]
    )
    assert report["questions"] == 4
    assert report["accuracy"] == 0.75
    assert report["needed_evidence_recall"] == round(2 / 3, 4)
    assert report["unneeded_search_share"] == 0.5
    assert report["confusion"]["documents"] == {"sql": 1}
    assert report["by_source"]["t"]["accuracy"] == 0.5
    assert report["by_route"]["sql"] == {
        "questions": 2,
        "precision": 0.6667,
        "recall": 1.0,
        "f1": 0.8,
        "needed_evidence_recall": 1.0,
        "unneeded_search_share": 0.3333,
    }
    assert report["macro_f1"] == 0.6
    assert report["auc"]["none"] == 1.0
    assert [point["coverage"] for point in report["risk_coverage"]] == [1.0, 0.95, 0.9, 0.8, 0.5]


def test_auc_is_the_chance_to_stand_above():
    assert routing.auc([0.1, 0.2, 0.3, 0.4], [False, False, True, True]) == 1.0
    assert routing.auc([0.5, 0.5], [True, False]) == 0.5
    assert routing.auc([0.4, 0.3, 0.2, 0.1], [False, False, True, True]) == 0.0
    assert routing.auc([0.4], [True]) is None


def test_calibration_error():
    assert routing.calibration_error([0.7] * 10, [True] * 7 + [False] * 3) == 0
    assert routing.calibration_error([1.0] * 4, [False] * 4) == 1


def test_a_leg_whose_evidence_is_not_there_does_not_count():
    one = replace(judged("both", Likelihoods(0.9, 0.01, 0.0)), needs=(True, None))
    report = routing.build_report([one, judged("none", Likelihoods(0, 0, 1.0))])
    assert report["needed_evidence_recall"] == 1.0
    assert report["auc"] == {"rows": 1.0, "text": None, "none": 1.0}


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    path = tmp_path_factory.mktemp("routing") / "q.jsonl"
    path.write_text(
        "".join(json.dumps({"question": row.question, "route": row.route, "source": row.source}) + "\n" for row in sample(40))
    )
    return path


def test_shipped_weights_on_a_file(questions):
    report = routing.run_routing(questions, routing.Options())
    assert report["questions"] == 40
    assert report["settings"]["weights"] == "shipped"
    assert set(report["ms"]) == {"embed", "score"}
    assert report["needed_evidence_recall"] > 0.9
    assert json.loads(json.dumps(report)) == report


def test_sources_are_left_out_of_a_run(questions):
    report = routing.run_routing(questions, routing.Options(without=("cranfield", "clinc_oos")))
    assert "cranfield" not in report["by_source"]
    assert "clinc150/oos_test" not in report["by_source"]
    with pytest.raises(UsageError, match="no question is left"):
        routing.run_routing(questions, routing.Options(without=tuple({*SOURCES, "tpl", "clinc_oos"})))


def test_gates_of_a_run(questions, tmp_path):
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        "semantic_model:\n- name: m\n  datasets:\n  - name: meters\n    fields:\n    - name: replaced_on\n"
        "      ai_context: {synonyms: [changed]}\n  metrics:\n  - name: meter_count\n"
    )
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "Field guide", "text": "how to seal a meter"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "sealing a meter"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    report = routing.run_routing(questions, routing.Options(catalogs=(catalog,), collections=(tmp_path,)))
    free = routing.run_routing(questions, routing.Options())
    assert report["by_route"]["documents"]["unneeded_search_share"] is None or report["routes"] != free["routes"]
    with pytest.raises(UsageError, match="is no catalogue"):
        routing.run_routing(questions, routing.Options(catalogs=(tmp_path / "qrels.tsv",)))


def test_training_writes_what_ships(tmp_path, questions, monkeypatch, capsys):
    """The module's own entry, on few questions: a file of the right shapes, and its digest said."""
    monkeypatch.setattr(train_route, "OWN_QUESTIONS", questions)
    out = tmp_path / "route.npz"
    assert train_route.main([str(questions), "-o", str(out)]) == 0
    whole = out.read_bytes()
    parse_heads(whole)
    assert train_route.main([str(questions), "-o", str(out), "--without", "cranfield"]) == 0
    assert out.read_bytes() != whole
    assert "sha256" in capsys.readouterr().out
    assert train_route.main([str(tmp_path / "nowhere.jsonl"), "-o", str(out)]) == 2


@pytest.fixture
def command(capfd, monkeypatch):
    """(exit code, standard output, standard error) of a command in this process."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        try:
            code = cli._run([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_the_command_prints_one_document(questions, command):
    code, out, _ = command("eval", "routing", questions, "--point", "careful", "--json")
    assert code == 0
    report = json.loads(out)
    assert {
        "questions",
        "accuracy",
        "macro_f1",
        "by_route",
        "by_source",
        "needed_evidence_recall",
        "unneeded_search_share",
    } <= set(report)
    assert {"auc", "ece", "risk_coverage", "ms", "confusion"} <= set(report)
    assert report["settings"]["point"] == [0.1, 0.75]


def test_the_command_prints_tables(questions, command):
    code, out, _ = command("eval", "routing", questions)
    assert code == 0
    assert re.search(r"^needed_evidence_recall +0\.\d+$", out, re.M)
    for title in ("confusion", "by route", "by source", "risk and coverage"):
        assert re.search(rf"^ *{title}", out, re.M)


def test_the_command_refuses_what_it_cannot_use(questions, command, tmp_path):
    for arguments in ((questions, "--point", "cheap"), (tmp_path / "none.jsonl",), (questions, "--collection", tmp_path)):
        code, out, _ = command("eval", "routing", *arguments, "--json")
        assert code == 2
        assert set(json.loads(out)["error"]) == {"code", "message", "hint"}


def test_leaving_out_trains_again(questions, command, tmp_path):
    """More questions are taken from the file beside, and named."""
    beside = questions.with_name(routing.TRAINING_FILE)
    beside.write_text('{"question": "how many meters failed", "route": "sql", "source": "defog"}\n', encoding="utf-8")
    code, out, _ = command("eval", "routing", questions, "--leave-source-out", "--without-source", "cranfield", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["settings"]["files"] == ["q.jsonl", "routing_train.jsonl", "route_questions.jsonl"]
    assert "score" not in report["ms"]
    assert report["questions"] + report["settings"]["never_left_out"] < 40
