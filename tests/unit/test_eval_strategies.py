"""`eval strategies`: every arm over one collection, `simple` on top, costs beside quality."""

from __future__ import annotations

import json
import shutil

import pytest

from router.errors import UsageError
from router.evals.retrieval import load_collection, parse_options
from router.evals.strategies import build_compound, parse_arms, run_strategies
from router.search.strategies import STRATEGIES
from tests.unit.test_evals import write
from tests.world import run_command

TOPICS = ["torque of the belt", "oil of the press", "guard of the feeder", "speed of the conveyor"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    corpus = [{"_id": f"d{at}", "title": topic, "text": f"Here stands the {topic}."} for at, topic in enumerate(TOPICS)]
    queries = [{"_id": f"q{at}", "text": f"what is the {topic}?"} for at, topic in enumerate(TOPICS)]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{at}\td{at}\t1\n" for at in range(len(TOPICS)))
    return write(tmp_path_factory.mktemp("strategies") / "c", corpus=corpus, queries=queries, qrels=qrels)


def test_every_arm_that_needs_no_model(folder):
    report = run_strategies(folder)
    assert set(report["classes"]) == {"own", "compound"}
    for one in report["classes"].values():
        names = [arm["strategy"] for arm in one["arms"]]
        assert names[0] == "simple"
        assert set(names) == {name for name, known in STRATEGIES.items() if not known.model}
        for arm in one["arms"]:
            assert arm["ndcg_at_10"] > 50
            assert arm["searches"] >= 1
            assert arm["model_calls"] == arm["model_failed"] == 0
            assert arm["ms"]["p95"] >= arm["ms"]["p50"] > 0
    assert set(report["not_run"]) == {name for name, known in STRATEGIES.items() if known.model}
    compound = {arm["strategy"]: arm for arm in report["classes"]["compound"]["arms"]}
    assert compound["decomposed"]["searches"] == 2
    assert compound["simple"]["searches"] == 1
    assert report["classes"]["compound"]["queries"] == 2


def test_compound_questions_have_both_answers(folder):
    asked = build_compound(load_collection(folder), None)
    assert asked.queries[0] == ("q0+q2", "what is the torque of the belt and what is the guard of the feeder?")
    assert asked.judged["q0+q2"] == {"d0": 1.0, "d2": 1.0}


def test_arms_are_named():
    assert parse_arms(["feedback", "feedback"], model=False) == ["simple", "feedback"]
    for names in (["clever"], ["hyde"]):
        with pytest.raises(UsageError):
            parse_arms(names, model=False)
    assert "hyde" in parse_arms([], model=True)


def test_strategy_of_retrieval_is_checked():
    with pytest.raises(UsageError):
        parse_options("none", "zsum", "both", "local", None, "clever")
    with pytest.raises(UsageError):
        parse_options("none", "zsum", "both", "local", None, "rounds")
    assert parse_options("none", "zsum", "both", "local", None, "feedback").strategy == "feedback"


def test_on_the_command_line(folder):
    done = run_command("eval", "strategies", folder, "--strategy", "decomposed", "--queries", "4", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [arm["strategy"] for arm in report["classes"]["own"]["arms"]] == ["simple", "decomposed"]
    done = run_command("eval", "retrieval", folder, "--transform", "acronyms", "--json", cwd=folder)
    assert json.loads(done.stdout)["settings"]["strategy"] == "acronyms"
    for wrong in (["eval", "retrieval", folder, "--transform", "feedback"], ["eval", "strategies", folder, "--strategy", "hyde"]):
        assert run_command(*wrong, cwd=folder).returncode == 2


def test_a_collection_without_judged_queries_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "unjudged")
    (copy / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nnobody\tnothing\t1\n", encoding="utf-8")
    done = run_command("eval", "strategies", copy, "--json", cwd=copy)
    assert done.returncode == 2
    assert b"collection_empty" in done.stdout
