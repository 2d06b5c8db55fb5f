"""The index's view of the relationships and of years: what counts as a second way, and what is called a year."""

from __future__ import annotations

from dataclasses import replace

from router.catalog import Catalog, Dataset, DatasetField, Relationship
from router.sql.paths import build_graph, safe_ways
from router.sql.planner import build_index

NAMES = ("reading", "station", "station_extra", "city")


def world(*links: tuple[str, str]) -> Catalog:
    """Every dataset has a key `id` and a column to each other; a link leads from that column to the key."""
    fields = tuple(DatasetField(name, name, datatype="Integer") for name in ("id", *(f"{name}_id" for name in NAMES)))
    datasets = tuple(Dataset(name, f"main.{name}", fields, ("id",)) for name in NAMES)
    joins = tuple(Relationship(f"{one}_{other}", one, other, (f"{other}_id",), ("id",)) for one, other in links)
    return Catalog("world", datasets, joins)


def one_to_one(catalog: Catalog) -> Catalog:
    """`station_extra` has one row a station."""
    return replace(
        catalog,
        datasets=tuple(
            replace(one, primary_key=("station_id",)) if one.name == "station_extra" else one for one in catalog.datasets
        ),
    )


def test_back_over_a_one_to_one_step_is_no_second_way() -> None:
    catalog = one_to_one(world(("reading", "station"), ("station_extra", "station"), ("station", "city")))
    found = build_index(catalog).to_one("reading")
    assert found == {"reading": (0, 1), "station": (1, 1), "station_extra": (2, 1), "city": (2, 1)}


def test_ways_are_told_as_the_compiler_finds_them() -> None:
    catalog = one_to_one(world(("reading", "station"), ("reading", "city"), ("station_extra", "station"), ("station", "city")))
    index, graph = build_index(catalog), build_graph(catalog)
    assert index.to_one("reading")["city"] == (1, 2)
    for start in NAMES:
        for goal, (_, ways) in index.to_one(start).items():
            assert min(len(safe_ways(graph, start, goal)), 2) == ways, (start, goal)


def test_a_number_that_people_call_a_year_is_one() -> None:
    catalog = world()
    station = replace(
        catalog.datasets[1],
        fields=(DatasetField("yearid", "yearid", datatype="Integer", synonyms=("ballot year",)), DatasetField("yeast", "yeast")),
    )
    index = build_index(replace(catalog, datasets=(station,)))
    assert index.info["station", "yearid"].year
    assert not index.info["station", "yeast"].year


def test_a_count_of_a_dataset_is_not_the_number_that_its_rows_have() -> None:
    fields = tuple(DatasetField(name, name, datatype="String") for name in ("flight_number", "crew_number"))
    phrases = build_index(Catalog("world", (Dataset("flight", "main.flight", fields),), ())).phrases
    assert phrases["crew", "number"].fields == {"flight": {"crew_number": 1.0}}
    assert phrases["number", "of", "crew"].fields == {"flight": {"crew_number": 0.9}}
    assert ("number", "of", "flight") not in phrases or not phrases["number", "of", "flight"].fields
