"""The synonym files of the text-to-SQL benchmark keep the rules that a curator of a real catalogue is held to.

Whether tables and columns exist is checked by `eval text-to-sql --synonyms`, which has the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.plain import parse_yaml
from router.review.catalog import AGGREGATE_WORDS

FOLDER = Path(__file__).parents[1] / "bench" / "synonyms"
FILES = sorted(FOLDER.glob("*/*.yaml"))


def read(path: Path) -> dict[str, Any]:
    parsed = parse_yaml(path.read_text(encoding="utf-8"))
    assert isinstance(parsed, dict)
    return parsed


def fold(text: str) -> str:
    """A name as it is spoken: `homeTeam_id` is `home team id`."""
    return re.sub(r"[\s_]+", " ", re.sub(r"([a-z])([A-Z])", r"\1 \2", text)).strip().lower()


def owned(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(place, synonym) of everything that is not a metric: a metric may be called `average price`."""
    for name, dataset in model["datasets"].items():
        yield from ((name, text) for text in dataset.get("synonyms", []))
        for column, texts in dataset.get("fields", {}).items():
            yield from ((f"{name}.{column}", text) for text in texts)
    for name, body in model.get("relationships", {}).items():
        yield from ((name, text) for text in (body if isinstance(body, list) else body.get("synonyms", [])))


def test_every_set_has_its_databases() -> None:
    assert {folder.name: len(list(folder.glob("*.yaml"))) for folder in FOLDER.iterdir()} == {
        "spider_dev": 20,
        "kaggledbqa": 8,
        "defog": 11,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
class TestOneFile:
    def test_has_only_known_keys_and_lists_of_text(self, path: Path) -> None:
        model = read(path)
        assert path.read_text(encoding="utf-8").startswith("# from the schema alone; no question was read\n")
        assert set(model) <= {"datasets", "relationships", "metrics"}
        for dataset in model["datasets"].values():
            assert set(dataset) <= {"synonyms", "label", "time", "fields", "key"}
            assert all(isinstance(dataset.get(key, ""), str) for key in ("label", "time"))
        for metric in model.get("metrics", {}).values():
            assert set(metric) == {"expression", "synonyms"}
        for place, text in owned(model):
            assert isinstance(text, str), place
            assert text == text.lower().strip(), place
            assert text, place

    def test_no_synonym_holds_an_aggregate_word(self, path: Path) -> None:
        held = [(place, text) for place, text in owned(read(path)) if AGGREGATE_WORDS & set(re.findall(r"\w+", text))]
        assert held == []

    def test_no_synonym_means_two_datasets(self, path: Path) -> None:
        model = read(path)
        names = [
            (fold(text), name) for name, dataset in model["datasets"].items() for text in (name, *dataset.get("synonyms", []))
        ]
        clashes = {text for text, name in names if any(text == other and name != owner for other, owner in names)}
        assert clashes == set()
        assert len(names) == len(set(names)), "a synonym that only repeats the name, or comes twice"

    def test_no_synonym_means_two_fields_or_a_dataset(self, path: Path) -> None:
        model = read(path)
        datasets = {fold(text) for name, dataset in model["datasets"].items() for text in (name, *dataset.get("synonyms", []))}
        for name, dataset in model["datasets"].items():
            texts = [fold(text) for synonyms in dataset.get("fields", {}).values() for text in synonyms]
            assert len(texts) == len(set(texts)), name
            assert datasets & set(texts) == set(), name

    def test_a_role_is_named_by_its_key_column(self, path: Path) -> None:
        model = read(path)
        for place, body in model.get("relationships", {}).items():
            for end in (place,) if isinstance(body, list) else (body["from"], body["to"]):
                dataset, _, column = end.rpartition(".")
                assert dataset in model["datasets"], place
                assert column, place

    def test_a_metric_is_one_expression_over_known_datasets(self, path: Path) -> None:
        import sqlglot
        from sqlglot import exp

        model = read(path)
        for name, metric in model.get("metrics", {}).items():
            tree = sqlglot.parse_one(metric["expression"])
            assert tree.find(exp.AggFunc), name
            assert {column.table for column in tree.find_all(exp.Column)} <= set(model["datasets"]), name
