"""The recipe of the relevance gate: what is reported is held out, what is shipped comes of it."""

from __future__ import annotations

import json
import random
from importlib.resources import files

import pytest

from router.evals import train_relevance
from router.evals.train_relevance import Seen, fit, foreign_questions, held_out
from router.search.relevance import FEATURES, load_gate, parse_gate
from tests.unit.test_evals import write


def seen(name, *, shift=0.0, code=0.0, count=60):
    """Own questions high, foreign ones low, those whose answer was taken away between."""
    rng = random.Random(name)
    found = []
    for kind, level in (("own", 0.8), ("foreign", 0.2), ("removed", 0.6)):
        for _ in range(count):
            values = [level - shift + rng.gauss(0, 0.1) for _ in FEATURES]
            values[FEATURES.index("code")] = code
            found.append(Seen(name, kind, tuple(values)))
    return found


WORLD = [*seen("a"), *seen("b", shift=-0.03), *seen("c", shift=0.12, code=1.0)]


def test_figures_are_held_out():
    """The figure of a collection does not change with that collection's own labels: its fit has not seen them."""
    figures = held_out(WORLD)
    for name, one in figures.items():
        assert one["recognised"] >= 80, name
        assert one["lost"] <= 10, name
        assert [point["lost"] for point in one["curve"]] == sorted(point["lost"] for point in one["curve"])
    spoiled = [
        Seen(one.collection, one.kind, tuple(-value for value in one.values)) if one.collection == "b" else one for one in WORLD
    ]
    assert fit([one for one in spoiled if one.collection != "b"]) == fit([one for one in WORLD if one.collection != "b"])
    assert held_out(spoiled)["b"] != figures["b"]
    assert held_out(spoiled)["a"] != figures["a"], "the other figures are of fits that have seen it"


def test_the_hard_case_is_not_fitted():
    assert fit(WORLD) == fit([one for one in WORLD if one.kind != "removed"])


def test_code_has_a_threshold_of_its_own():
    assert fit(WORLD)["weights"]["code"] > 0


def test_what_is_shipped_is_of_the_recipe():
    body = json.loads(files("router").joinpath("model", "relevance.json").read_text(encoding="utf-8"))
    assert set(body["weights"]) == set(FEATURES)
    assert load_gate() == parse_gate(body)
    lost = [one["lost"] for one in body["held_out"].values()]
    assert sum(lost) / len(lost) <= 3.0
    assert max(lost) <= 5.0
    assert min(one["recognised"] for one in body["held_out"].values()) >= 80.0


@pytest.mark.timeout(120)
def test_a_run_over_two_collections(tmp_path, monkeypatch, capsys):
    """Small, and whole: index, ask, fit, write."""
    subjects = {
        "machines": ["torque of the belt", "oil of the press", "guard of the feeder", "speed of the conveyor", "lamp of the scanner", "filter of the pump"],
        "people": ["holiday of new staff", "pay at night", "badge at the gate", "sick leave notice", "travel by car", "lunch in the canteen"],
    }  # fmt: skip
    for name, topics in subjects.items():
        corpus = [
            {"_id": f"d{at}", "title": topic, "text": f"This page tells the {topic} in full."} for at, topic in enumerate(topics)
        ]
        queries = [{"_id": f"q{at}", "text": f"what is the {topic}"} for at, topic in enumerate(topics)]
        qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{at}\td{at}\t1\n" for at in range(len(topics)))
        write(tmp_path / name, corpus=corpus, queries=queries, qrels=qrels)
    output = tmp_path / "relevance.json"
    monkeypatch.setattr("sys.argv", ["train", str(tmp_path / "machines"), str(tmp_path / "people"), "-o", str(output)])
    train_relevance.main()
    body = json.loads(output.read_text())
    assert body["questions"] == 2 * (6 + 6 + 6)
    assert parse_gate(body)
    assert set(json.loads(capsys.readouterr().out)) == {"machines", "people"}


def test_foreign_questions_are_of_the_others():
    class Stub:
        def __init__(self, texts):
            self.queries = tuple((str(at), text) for at, text in enumerate(texts))

    loaded = {"a": Stub(["a1", "a2"]), "b": Stub(["b1"]), "c": Stub(["c1", "c2"])}
    assert set(foreign_questions("a", loaded)) == {"b1", "c1", "c2"}
