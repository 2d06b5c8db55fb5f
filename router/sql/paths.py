"""Ways through the relationships. From declared keys alone it follows which side of each is the one side.

A way is safe where every step leads to at most one row. A field that no safe way reaches may still be reached over a bridge,
a dataset with safe ways to both ends; everything else is refused, because a plain join would count rows twice.

INVARIANT: two ways are an error that names them all, never a choice (tests/sql/form/test_paths.py::test_two_ways_are_named).
INVARIANT: no step of a safe way can meet two rows (tests/sql/form/test_paths.py::test_cardinality_follows_from_keys).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from router.catalog import Catalog
from router.errors import Refused

MOST_NAMED = 16
"""Ways named in a refusal, and the number at which the search for more of them stops."""

MOST_STEPS = 20_000
"""Bound of one search: a graph that needs more is refused as ambiguous."""


@dataclass(frozen=True, slots=True)
class Step:
    """One relationship in one direction. `pairs` are (column here, column there); `to_one`: at most one row there."""

    relationship: str
    here: str
    there: str
    pairs: tuple[tuple[str, str], ...]
    to_one: bool


Way = tuple[Step, ...]
Graph = Mapping[str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Bridge:
    """A dataset with safe ways to both ends."""

    dataset: str
    home: Way
    goal: Way


def build_graph(catalog: Catalog) -> Graph:
    """Every relationship in both directions, by the dataset where the step starts. Names are those of the catalogue."""
    steps: dict[str, list[Step]] = {dataset.name: [] for dataset in catalog.datasets}
    for relationship in catalog.relationships:
        one, other = catalog.dataset(relationship.from_dataset), catalog.dataset(relationship.to_dataset)
        if one is None or other is None:
            continue
        forth = tuple(zip(relationship.from_columns, relationship.to_columns, strict=True))
        back = tuple((there, here) for here, there in forth)
        there_unique = _unique(other.keys, relationship.to_columns)
        here_unique = _unique(one.keys, relationship.from_columns)
        steps[one.name].append(Step(relationship.name, one.name, other.name, forth, there_unique))
        steps[other.name].append(Step(relationship.name, other.name, one.name, back, here_unique and one is not other))
    return {name: tuple(found) for name, found in steps.items()}


def _unique(keys: tuple[frozenset[str], ...], columns: tuple[str, ...]) -> bool:
    wanted = frozenset(column.lower() for column in columns)
    return any(key <= wanted for key in keys)


def reversed_way(graph: Graph, way: Way) -> Way:
    """The same way walked from its end to its start."""
    return tuple(
        next(
            step
            for step in graph[forth.there]
            if step.relationship == forth.relationship and step.pairs == tuple((b, a) for a, b in forth.pairs)
        )
        for forth in reversed(way)
    )


def safe_ways(graph: Graph, start: str, goal: str, via: tuple[str, ...] = ()) -> list[Way]:
    """Every way of to-one steps that visits no dataset twice and takes every relationship of `via`; at most `MOST_NAMED`."""
    if start == goal and not via:
        return [()]
    near = _reaching(graph, goal)
    found: list[Way] = []
    budget = MOST_STEPS
    for way in _walk(graph, start, goal, near):
        budget -= 1
        if way and way[-1].there == goal and set(via) <= {step.relationship for step in way}:
            found.append(way)
        if len(found) == MOST_NAMED or budget == 0:
            break
    if budget == 0:
        raise Refused("E_AMBIGUOUS_PATH", f"there are too many ways from `{start}` to `{goal}`", "name the relationship to take")
    return found


def _walk(graph: Graph, start: str, goal: str, near: frozenset[str]) -> Iterator[Way]:
    stack: list[tuple[Way, frozenset[str]]] = [((), frozenset({start}))]
    while stack:
        way, seen = stack.pop()
        yield way
        here = way[-1].there if way else start
        if way and here == goal:
            continue
        ahead = [step for step in reversed(graph[here]) if step.to_one and step.there in near]
        stack.extend(
            ((*way, step), seen | {step.there}) for step in ahead if step.there not in seen or step.there == goal == start
        )


def _reaching(graph: Graph, goal: str) -> frozenset[str]:
    """Datasets with a safe way to `goal`."""
    before: dict[str, set[str]] = {name: set() for name in graph}
    for steps in graph.values():
        for step in steps:
            if step.to_one:
                before[step.there].add(step.here)
    found, todo = {goal}, [goal]
    while todo:
        fresh = before[todo.pop()] - found
        found |= fresh
        todo.extend(fresh)
    return frozenset(found)


def connected(graph: Graph, start: str, goal: str) -> bool:
    """Whether any relationships at all lead from one to the other."""
    found, todo = {start}, [start]
    while todo:
        for step in graph[todo.pop()]:
            if step.there not in found:
                found.add(step.there)
                todo.append(step.there)
    return goal in found


def one_way(graph: Graph, start: str, goal: str, via: tuple[str, ...] = ()) -> Way | None:
    """The safe way, None where there is none; two are `E_AMBIGUOUS_PATH`."""
    ways = safe_ways(graph, start, goal, via)
    if len(ways) > 1:
        raise ambiguous(start, goal, [tuple(step.relationship for step in way) for way in ways])
    return ways[0] if ways else None


def ambiguous(start: str, goal: str, ways: list[tuple[str, ...]]) -> Refused:
    named = ", ".join(f"`{' > '.join(way)}`" for way in sorted(ways))
    return Refused(
        "E_AMBIGUOUS_PATH", f"`{goal}` is reached from `{start}` in more than one way: {named}", "name the relationship to take"
    )


def find_bridge(graph: Graph, home: str, goal: str, via: tuple[str, ...] = ()) -> Bridge | None:
    """The nearest dataset with safe ways to both ends; two of them, or two ways from one, are `E_AMBIGUOUS_PATH`."""
    found: list[Bridge] = []
    for name in graph:
        if name in (home, goal):
            continue
        for there in safe_ways(graph, name, home):
            for here in safe_ways(graph, name, goal):
                taken = {step.relationship for step in (*there, *here)}
                apart = not {step.there for step in there} & {step.there for step in here}
                if apart and set(via) <= taken:
                    found.append(Bridge(name, there, here))
    near = [bridge for bridge in found if not any(_passes(bridge, other.dataset) for other in found)]
    if len(near) > 1:
        raise ambiguous(home, goal, [tuple(s.relationship for s in (*reversed(b.home), *b.goal)) for b in near])
    return near[0] if near else None


def _passes(bridge: Bridge, name: str) -> bool:
    """Both ways of the bridge lead through `name`, which is then the nearer bridge."""
    return any(step.there == name for step in bridge.home) and any(step.there == name for step in bridge.goal)
