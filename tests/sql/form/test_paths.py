"""Ways through relationships: which are safe, which are two, and how a search that could be endless ends."""

from __future__ import annotations

import pytest

from router.catalog import Catalog, Dataset
from router.errors import Refused
from router.sql.paths import build_graph, connected, find_bridge, one_way, reversed_way, safe_ways
from tests.sql.form.worlds import F_AMBIG, F_BRIDGE, F_BRIDGE_NONE, F_CHAIN, F_PRELUDE, F_REFLEXIVE, link, table


def names(way):
    return [step.relationship for step in way]


def test_two_ways_are_named():
    with pytest.raises(Refused) as caught:
        one_way(build_graph(F_AMBIG), "orders", "users")
    assert caught.value.code == "E_AMBIGUOUS_PATH"
    assert "order_placed_by" in caught.value.message
    assert "order_fulfilled_by" in caught.value.message
    assert names(one_way(build_graph(F_AMBIG), "orders", "users", ("order_placed_by",))) == ["order_placed_by"]


def test_cardinality_follows_from_keys():
    graph = build_graph(F_PRELUDE)
    assert [(step.there, step.to_one) for step in graph["customers"]] == [("orders", False), ("returns", False)]
    assert [(step.there, step.to_one) for step in graph["orders"]] == [("customers", True)]
    keyless = Catalog("x", (table("a", "k", ""), table("b", "k", "")), (link("r", "a", "k", "b", "k"),))
    assert not any(step.to_one for steps in build_graph(keyless).values() for step in steps)
    twins = Catalog("x", (table("a", "k", "k"), Dataset("b", "b", (), (), (("K",),))), (link("r", "a", "k", "b", "k"),))
    assert all(step.to_one for steps in build_graph(twins).values() for step in steps)
    wider = Catalog("x", (table("a", "k m", ""), table("b", "k m", "k")), (link("r", "a", "k m", "b", "k m"),))
    assert [step.to_one for step in build_graph(wider)["a"]] == [True]


def test_chain_is_followed_and_walked_back():
    graph = build_graph(F_CHAIN)
    way = one_way(graph, "order_lines", "segments")
    assert names(way) == ["line_to_order", "ord_to_cust", "cust_to_segment"]
    assert [step.there for step in reversed_way(graph, way)] == ["customers", "orders", "order_lines"]
    assert one_way(graph, "segments", "orders") is None


def test_self_reference_is_taken_only_when_named():
    graph = build_graph(F_REFLEXIVE)
    assert safe_ways(graph, "employees", "employees") == [()]
    assert names(one_way(graph, "employees", "employees", ("reports_to",))) == ["reports_to"]


def test_bridge_is_the_nearest():
    assert find_bridge(build_graph(F_BRIDGE), "movies", "actors").dataset == "appearances"
    assert find_bridge(build_graph(F_BRIDGE_NONE), "movies", "actors") is None
    assert not connected(build_graph(F_BRIDGE_NONE), "movies", "actors")
    longer = Catalog(
        "x",
        (*F_BRIDGE.datasets, table("scenes", "scene_id actor_id movie_id", "scene_id")),
        (*F_BRIDGE.relationships, link("scene", "scenes", "actor_id movie_id", "appearances", "actor_id movie_id")),
    )
    assert find_bridge(build_graph(longer), "movies", "actors").dataset == "appearances"
    second = Catalog(
        "x",
        (*F_BRIDGE.datasets, table("reviews", "actor_id movie_id", "")),
        (
            *F_BRIDGE.relationships,
            link("of_actor", "reviews", "actor_id", "actors", "actor_id"),
            link("of_movie", "reviews", "movie_id", "movies", "movie_id"),
        ),
    )
    with pytest.raises(Refused, match="E_AMBIGUOUS_PATH"):
        find_bridge(build_graph(second), "movies", "actors")


def test_dense_graph_ends():
    count = 14
    datasets = tuple(table(f"d{n}", "id " + " ".join(f"r{m}" for m in range(count)), "id") for n in range(count))
    links = tuple(link(f"l{n}_{m}", f"d{n}", f"r{m}", f"d{m}", "id") for n in range(count) for m in range(count) if n != m)
    with pytest.raises(Refused, match="E_AMBIGUOUS_PATH"):
        one_way(build_graph(Catalog("x", datasets, links)), "d0", "d13")
