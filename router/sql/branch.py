"""The rows one measure is computed from: its own dataset, and what is joined to it without repeating a row.

A branch grows as columns are asked for. Every join is a LEFT JOIN along a safe way, so that no row of the home dataset is lost
or repeated; a field beyond a bridge marks the branch as fanned out, and `compile.py` then takes each row once a group.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Literal

from sqlglot import exp

from router.catalog import Catalog
from router.errors import Refused
from router.sql.expressions import column
from router.sql.form import STAR, Scalar
from router.sql.paths import Bridge, Graph, Step, Way, connected, find_bridge, one_way, reversed_way

Role = Literal["row", "group", "condition"]
Key = tuple[tuple[str, bool], ...]


def text_of(tree: exp.Expr) -> str:
    return tree.sql("duckdb", identify=True, comments=False)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(value: Scalar) -> str:
    """A value as DuckDB reads it. Text is quoted; nothing of it is ever SQL."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        if "\0" in value:
            raise Refused("form_value", "a value holds a zero byte", "leave it out")
        return _text(value)
    if not isfinite(value):
        raise Refused("form_value", "a number is not finite", "give a finite number")
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


_UNSEEN = ("Cc", "Cf", "Co", "Cn")


def _text(value: str) -> str:
    """Signs that a display drops are written by their bytes, so that the SQL that is shown is the SQL that is run; the gate takes no
    control sign as it is."""
    unseen = {char for char in value if char not in "\t\n" and unicodedata.category(char) in _UNSEEN}
    quoted_value = value.replace("'", "''")
    if not unseen:
        return f"'{quoted_value}'"
    escaped = quoted_value.replace("\\", "\\\\")
    for char in sorted(unseen):
        escaped = escaped.replace(char, "".join(f"\\x{byte:02x}" for byte in char.encode()))
    return f"E'{escaped}'"


@dataclass(slots=True)
class Names:
    """Aliases that no other alias of the statement has."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name.lower() in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name.lower())
        return name


@dataclass(slots=True)
class Node:
    """One dataset joined into a branch. `columns` and `windows` are what of it is used; windows run over all of its rows."""

    alias: str
    dataset: str
    parent: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    columns: dict[str, None] = field(default_factory=dict)
    windows: dict[str, str] = field(default_factory=dict)

    def source(self) -> str:
        if not self.windows:
            return f"{quoted(self.dataset)} AS {quoted(self.alias)}"
        table = quoted(self.dataset)
        plain = [f"{table}.{quoted(name)}" for name in self.columns]
        extra = [f"{text} AS {quoted(name)}" for text, name in self.windows.items()]
        return f"(SELECT {', '.join([*plain, *extra])} FROM {table}) AS {quoted(self.alias)}"


@dataclass(slots=True)
class Branch:
    """`home` is where rows come from, `start` the dataset from which ways begin: elsewhere only inside EXISTS over a bridge."""

    catalog: Catalog
    graph: Graph
    names: Names
    reads: set[tuple[str, str]]
    home: str
    rows_only: bool = False
    prefix: Way = ()
    nodes: dict[Key, Node] = field(default_factory=dict)
    bridge: Bridge | None = None

    def __post_init__(self) -> None:
        self.nodes[()] = Node(self.names.fresh(self.home), self.home)
        self.join(self.prefix)

    @property
    def base(self) -> Node:
        return self.nodes[()]

    @property
    def start(self) -> str:
        return self.prefix[-1].there if self.prefix else self.home

    def node(self, dataset: str, via: tuple[str, ...] = (), role: Role = "condition") -> Node:
        """The joined dataset, joined now if need be; where no safe way leads there, the refusal the role asks for."""
        way = one_way(self.graph, self.start, dataset, via)
        if way is not None:
            return self.join((*self.prefix, *way))
        if self.rows_only or role == "row":
            self._refuse_rows(dataset)
        if one_way(self.graph, dataset, self.start) is not None and dataset != self.start:
            raise _finer(self.start, dataset, role)
        bridge = find_bridge(self.graph, self.start, dataset, via)
        if bridge is None:
            raise _unreachable(self.graph, self.start, dataset)
        if self.bridge is not None and self.bridge.dataset != bridge.dataset:
            raise Refused(
                "E3012_MN_NO_SAFE_REWRITE",
                f"`{self.start}` would be crossed with `{dataset}` over two bridges, `{self.bridge.dataset}` and `{bridge.dataset}`",
                "ask for one of them at a time",
            )
        self.bridge = bridge
        return self.join((*self.prefix, *reversed_way(self.graph, bridge.home), *bridge.goal))

    def column(self, dataset: str, name: str, via: tuple[str, ...] = (), role: Role = "condition") -> exp.Column:
        node = self.node(dataset, via, role)
        return self.column_of(node, name)

    def column_of(self, node: Node, name: str) -> exp.Column:
        self.reads.add((node.dataset, name))
        node.columns.setdefault(name)
        return column(node.alias, name)

    def resolve(self, tree: exp.Expr, via: Mapping[str, tuple[str, ...]], role: Role = "condition") -> exp.Expr:
        """An expanded expression over this branch's aliases. `via` says by dataset which way to take. An own copy."""
        whole = exp.Paren(this=tree.copy())
        plain = [found for found in whole.find_all(exp.Column) if found.find_ancestor(exp.Window) is None]
        for window in list(whole.find_all(exp.Window)):
            window.replace(self._window(window, via, role))
        for found in plain:
            if found.name != STAR:
                found.replace(self.column(found.table, found.name, via.get(found.table, ()), role))
        inner: exp.Expr = whole.this
        return inner.pop() if inner.parent else inner

    def _window(self, window: exp.Window, via: Mapping[str, tuple[str, ...]], role: Role) -> exp.Column:
        tables = {found.table for found in window.find_all(exp.Column)}
        if len(tables) != 1:
            raise Refused(
                "form_window", "a window over several datasets cannot be computed", "keep a windowed field to its own dataset"
            )
        table = tables.pop()
        node = self.node(table, via.get(table, ()), role)
        for found in window.find_all(exp.Column):
            self.reads.add((node.dataset, found.name))
        name = node.windows.setdefault(text_of(window), f"window_{len(node.windows) + 1}")
        return column(node.alias, name)

    def join(self, way: Way) -> Node:
        """The node at the end of a way from `home`; joined where it is not yet."""
        key: Key = ()
        node = self.base
        for step in way:
            key = (*key, (step.relationship, step.to_one))
            known = self.nodes.get(key)
            node = known if known is not None else self._add(key, node, step)
        return node

    def _add(self, key: Key, parent: Node, step: Step) -> Node:
        node = Node(self.names.fresh(step.there), step.there, parent.alias, step.pairs)
        for here, there in step.pairs:
            self.column_of(parent, here)
            self.column_of(node, there)
        self.nodes[key] = node
        return node

    def sources(self, inner: int = 0) -> str:
        """FROM and joins. The first `inner` of them are inner joins: the way that EXISTS itself is about."""
        parts = [f"FROM {self.base.source()}"]
        for number, node in enumerate(list(self.nodes.values())[1:]):
            on = " AND ".join(f"{quoted(node.parent)}.{quoted(a)} = {quoted(node.alias)}.{quoted(b)}" for a, b in node.pairs)
            parts.append(f"{'JOIN' if number < inner else 'LEFT JOIN'} {node.source()} ON {on}")
        return " ".join(parts)

    def _refuse_rows(self, dataset: str) -> None:
        if not connected(self.graph, self.start, dataset):
            raise _unreachable(self.graph, self.start, dataset)
        raise Refused(
            "E_FAN_OUT_IN_SCALAR_QUERY",
            f"the rows of `{self.start}` would be repeated by those of `{dataset}`: a scalar query with fan-out has no single home",
            f"ask for an aggregation of one side, or for the rows of `{dataset}`",
        )


def key_of(catalog: Catalog, dataset: str) -> list[str]:
    """The primary key's columns, or a refusal: without one, rows cannot be told apart."""
    found = catalog.dataset(dataset)
    if found is None or not found.primary_key:
        raise Refused(
            "E_PRIMARY_KEY_REQUIRED", f"`{dataset}` has no primary key that may be used", "declare one in the catalogue"
        )
    return list(found.primary_key)


def _finer(home: str, dataset: str, role: Role) -> Refused:
    if role == "group":
        return Refused(
            "E_UNSAFE_REAGGREGATION",
            f"grouping by `{dataset}` would count rows of `{home}` once for each of its `{dataset}`",
            f"measure `{dataset}` itself, pre-aggregate to `{home}`, or group by a field that one row of `{home}` has once",
        )
    return Refused(
        "E_UNAGGREGATED_FINER_GRAIN_REFERENCE",
        f"one row of `{home}` has many of `{dataset}`, so a condition on `{dataset}` says nothing of it",
        f"say `has` {json.dumps(dataset)}, or aggregate `{dataset}`",
    )


def _unreachable(graph: Graph, home: str, dataset: str) -> Refused:
    if connected(graph, home, dataset):
        return Refused(
            "E3012_MN_NO_SAFE_REWRITE",
            f"`{home}` and `{dataset}` are many to many, and there is no bridge between them",
            "declare a bridge dataset, or group by what both share",
        )
    return Refused(
        "E_NO_PATH", f"no path of relationships, and so no bridge, leads from `{home}` to `{dataset}`", "declare a relationship"
    )
