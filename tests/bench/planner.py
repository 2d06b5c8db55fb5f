"""What planning a question costs over the embedding of one, at 50, 500 and 5,000 fields, and what an index of 200 fields costs.

Catalogues are made of pronounceable names: ten fields a dataset, every third dataset pointing at the one before it, and names such
as `region`, `status` and `amount` in all of them, as in a real one. Twenty stored texts a field of text.
Questions are of a dozen kinds, about datasets all over the catalogue; some are declined early, as people's are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from router.catalog import Catalog, Dataset, DatasetField, Relationship
from router.domain import Purpose
from router.sql.form import Form
from router.sql.planner import Index, StoredValues, build_index, plan_question
from tests.bench.measure import Figure, run_pairs

SIZES = ((50, 1.0), (500, 4.0), (5_000, 16.0))
"""Fields, and the bar: times the embedding of one question. Aim at 5,000: 6."""

BUILD_BAR, BUILT_FIELDS = 40.0, 200
PER_DATASET, VALUES_PER_FIELD = 10, 50
DAY = date(2026, 12, 1)
PURPOSE = Purpose("bench", "embed_question", frozenset(), "d-0")
_SOUNDS = "ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe pi po ra re ri ro ta te ti to".split()
QUESTIONS = (
    "How many {d} are there?",
    "What is the average amount of {d} per region?",
    "Show the {f} and status of the {d} with an amount above 500",
    "How many {d} in region {v} are there?",
    "Which {d} have the highest amount?",
    "total amount of {d} by month in 2026",
    "List the {f} of {d} ordered by amount descending",
    "How many {d} have no {e}?",
    "How many {d} were reported last month?",
    "Which {f} has the most {d}?",
    "Why did the {d} of last week go up so much?",
    "Is there a way to see {d} that nobody has looked at?",
)


def make_catalog(fields: int, seed: int = 7) -> tuple[Catalog, list[StoredValues]]:
    """The catalogue of so many fields, and its stored texts."""
    pick = random.Random(seed)
    words = iter(_words(pick, fields * 3))
    datasets: list[Dataset] = []
    links: list[Relationship] = []
    stored: list[StoredValues] = []
    for at in range(max(1, fields // PER_DATASET)):
        name = next(words)
        own = [next(words) for _ in range(PER_DATASET - 6)]
        made = [
            DatasetField(f"{name}_id", f"{name}_id", datatype="Integer"),
            DatasetField("region", "region", datatype="String", synonyms=(f"{name} area",)),
            DatasetField("status", "status", datatype="String"),
            DatasetField("amount", "amount", datatype="Decimal"),
            DatasetField("reported_at", "reported_at", datatype="DateTime", is_time=True),
            DatasetField("parent_id", "parent_id", datatype="Integer"),
            *(DatasetField(f"{one}_{next(words)}", one, datatype="String", synonyms=(one,)) for one in own),
        ]
        datasets.append(Dataset(name, f"main.{name}", tuple(made), (f"{name}_id",), label=made[6].name, time="reported_at"))
        if at % 3:
            before = datasets[at - 1].name
            links.append(Relationship(f"{name}_of_{before}", name, before, ("parent_id",), (f"{before}_id",)))
        for one in made[6:]:
            values = tuple(
                f"{pick.choice(_SOUNDS)}{pick.choice(_SOUNDS)}{pick.choice(_SOUNDS)} {pick.choice(_SOUNDS)}x"
                for _ in range(VALUES_PER_FIELD)
            )
            stored.append(StoredValues(name, one.name, tuple(dict.fromkeys(values))))
        stored.append(StoredValues(name, "region", ("west", "east", "north", "south")))
    return Catalog("bench", tuple(datasets), tuple(links)), stored


def _words(pick: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault("".join(pick.choice(_SOUNDS) for _ in range(pick.choice((2, 3, 3, 4)))) + pick.choice("nrlk"))
    return list(found)


def make_questions(catalog: Catalog, seed: int = 11) -> list[str]:
    pick = random.Random(seed)
    made = []
    for at in range(120):
        here = pick.randrange(len(catalog.datasets))
        dataset = catalog.datasets[here]
        child = next(
            (one.from_dataset for one in catalog.relationships if one.to_dataset == dataset.name), catalog.datasets[0].name
        )
        text = QUESTIONS[at % len(QUESTIONS)]
        made.append(text.format(d=dataset.name + "s", f=dataset.fields[7].synonyms[0], v="west", e=child + "s"))
    return made


def run(_: Path) -> Iterator[Figure]:
    from connectors.local_models import load_embedder
    from router.app import MODEL_FOLDER

    model = load_embedder(MODEL_FOLDER)
    for fields, bar in SIZES:
        catalog, stored = make_catalog(fields)
        index, questions = build_index(catalog, stored), make_questions(catalog)
        answered = sum(isinstance(plan_question(text, index, DAY), Form) for text in questions)
        assert answered >= len(questions) // 2, f"{answered} of {len(questions)} are answered: the figure would be of refusals"
        yield _planning(model, index, questions, bar, f"{fields} fields", answered, sum(len(one.values) for one in stored))
    catalog, stored = make_catalog(BUILT_FIELDS)
    text = "How many open claims in region West are older than 30 days?"
    yield run_pairs(lambda _: build_index(catalog, stored), lambda _: model.embed_question(text, PURPOSE), 20).figure(
        "plan index", f"index of {BUILT_FIELDS} fields : embedding of one question", BUILD_BAR
    )


def _planning(model, index: Index, questions: list[str], bar: float, size: str, answered: int, values: int) -> Figure:
    count = len(questions)
    pairs = run_pairs(
        lambda at: plan_question(questions[at % count], index, DAY),
        lambda at: model.embed_question(questions[at % count], PURPOSE),
        2 * count,
        warm=count,
    )
    note = f"{values} stored texts, {answered} of {count} questions answered"
    return pairs.figure(f"plan {size}", "planning : embedding of one question", bar, note=note)
