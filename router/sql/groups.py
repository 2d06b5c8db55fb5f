"""Measures of groups: every measure from the rows of its own dataset, several datasets stitched by group.

Over one dataset this is SELECT … GROUP BY. Over a bridge the rows are first made one for each (row, group), so that a row counts
once a group and an average is an average of rows. Over several datasets each is aggregated apart; the parts are put below each
other and brought together by group, which is the draft's full outer join without its trouble with missing values.

INVARIANT: no measure changes with what is joined to it (tests/sql/form/test_compile.py::test_no_join_multiplies_a_measure).
INVARIANT: below `min_group` rows a group does not appear (tests/sql/form/test_compile.py::test_small_groups_do_not_appear).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from router.errors import Refused
from router.sql.branch import Branch, Names, key_of, literal, quoted, text_of
from router.sql.compilation import Compiled, Plan, direction
from router.sql.expressions import aggregates, column, expand_field, expand_metric, expand_ref, not_found, reads, rows_of
from router.sql.form import STAR, Aggregated, By, Dim, Label, Measure, Named, Order
from router.sql.paths import connected, one_way
from router.sql.predicates import canonical, refuse_single

_CALLS: Mapping[str, type[exp.AggFunc]] = {
    "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max, "median": exp.Median, "count": exp.Count,
}  # fmt: skip
_NEVER_ADDED = frozenset({"String", "Boolean", "Date", "Time", "DateTime", "DateTimeTz"})
_COUNTING = (exp.Count, exp.CountIf, exp.ApproxDistinct)

Replace = Callable[[exp.Expr], exp.Expr]


@dataclass(frozen=True, slots=True)
class _Group:
    """One expression to group by, with the name of its column; `dim` is where in the form it comes from."""

    tree: exp.Expr
    name: str
    dim: Dim
    table: str
    via: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One branch ready to be selected from: its groups and leaves as text, its FROM and WHERE, and its HAVING."""

    groups: list[str]
    leaves: dict[str, str]
    source: str
    having: str
    guarded: bool

    def select(self, listed: str) -> str:
        grouped = f"GROUP BY {', '.join(self.groups)}" if self.groups else ""
        return " ".join(part for part in (f"SELECT {listed}", self.source, grouped, self.having) if part)


def lower_groups(plan: Plan) -> Compiled:
    """An aggregation query: one row a group; without groups one row."""
    form = plan.form
    groups = [part for dim in form.by for part in _groups_of(plan, dim)]
    measures = [_measure_tree(plan, measure) for measure in form.measures]
    having = [_measure_tree(plan, one.measure) for one in form.having]
    order = [None if isinstance(one.by, By | Label) else _measure_tree(plan, one.by) for one in form.order]
    trees = [*measures, *having, *(tree for tree in order if tree is not None)]
    homes = _homes(plan, trees)
    parts = {home: _part(plan, home, groups, _leaves(plan, home, trees)) for home in homes}
    columns = Names()
    names = [columns.fresh(group.name) for group in groups] + [columns.fresh(name_of(measure)) for measure in form.measures]
    if len(homes) == 1:
        only = parts[homes[0]]
        return _finish(
            plan, only, lambda leaf: _raw(only.leaves[text_of(leaf)]), only.groups, (measures, having, order), names, groups
        )
    stitched, replace = _stitch(plan, parts, groups)
    return _finish(plan, stitched, replace, stitched.groups, (measures, having, order), names, groups)


def _finish(
    plan: Plan,
    part: _Part,
    replace: Replace,
    keys: list[str],
    trees: tuple[list[exp.Expr], list[exp.Expr], list[exp.Expr | None]],
    names: list[str],
    groups: list[_Group],
) -> Compiled:
    """SELECT, HAVING and ORDER BY over one part, in which every leaf has become text."""
    measures, having, order = trees
    shown = [*keys, *(_written(tree, replace) for tree in measures)]
    listed = ", ".join(f"{text} AS {quoted(name)}" for text, name in zip(shown, names, strict=True))
    asked = [
        f"{_written(tree, replace)} {one.op} {literal(one.value.value)}"
        for tree, one in zip(having, plan.form.having, strict=True)
    ]
    wanted: dict[str, str] = {}
    for tree, one in zip(order, plan.form.order, strict=True):
        for text in [_written(tree, replace)] if tree is not None else _ordered_groups(one, groups, keys):
            wanted.setdefault(text, direction(one))
    if wanted or plan.form.limit is not None:
        for text in keys:
            wanted.setdefault(text, "ASC NULLS LAST")
    sql = part.select(listed)
    if asked:
        sql += f" {'AND' if part.having else 'HAVING'} {' AND '.join(asked)}"
    tail = f"ORDER BY {', '.join(f'{text} {way}' for text, way in wanted.items())}" if wanted else ""
    return plan.compiled([sql, tail, plan.limit_text()], names)


def _ordered_groups(order: Order, groups: list[_Group], keys: list[str]) -> list[str]:
    found = [key for key, group in zip(keys, groups, strict=True) if group.dim == order.by]
    if not found:
        raise Refused(
            "form_order", "groups are ordered by something that they are not grouped by", "order by one of `by` or by a measure"
        )
    return found


def _written(tree: exp.Expr, replace: Replace) -> str:
    """A measure with every aggregate replaced."""
    whole = exp.Paren(this=tree.copy())
    for leaf in aggregates(whole):
        leaf.replace(replace(leaf))
    return text_of(whole.this)


def _raw(text: str) -> exp.Expr:
    """Finished text inside a tree."""
    return exp.Var(this=text)


# --- what is grouped by and measured --------------------------------------------------------------------------------------


def name_of(measure: Measure) -> str:
    """The column's name: `sum_amount`, `claims_count`, the metric's own."""
    if isinstance(measure, Named):
        return measure.metric
    if measure.of.field == STAR:
        return f"{measure.of.dataset}_count"
    return f"{measure.agg}_{measure.of.field}"


def _groups_of(plan: Plan, dim: Dim) -> list[_Group]:
    catalog = plan.catalog
    if isinstance(dim, By):
        plain, table = plan.field_of(dim.ref), canonical(catalog, dim.ref)
        name = f"{plain.name}_{dim.grain}" if dim.grain else plain.name
        return [_Group(expand_ref(catalog, table, plain.name), name, dim, table, dim.ref.via)]
    dataset = catalog.dataset(dim.dataset)
    if dataset is None:
        raise not_found(dim.dataset, "dataset")
    keys = key_of(plan.catalog, dataset.name)
    label = dataset.field(dataset.label) if dataset.label else None
    found = [] if label is None else [_Group(expand_field(catalog, dataset, label), label.name, dim, dataset.name, dim.via)]
    known = {text_of(group.tree) for group in found}
    own = [_Group(column(dataset.name, key), key, dim, dataset.name, dim.via) for key in keys]
    return [*found, *(group for group in own if text_of(group.tree) not in known)]


def _measure_tree(plan: Plan, measure: Measure) -> exp.Expr:
    """A measure over columns of datasets. Whatever stands outside an aggregate is refused."""
    if isinstance(measure, Aggregated):
        return _aggregated(plan, measure)
    tree = exp.Paren(this=expand_metric(plan.catalog, measure.metric))
    tables = {table for table, _ in reads(tree)}
    for star in [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Column)]:
        star.replace(rows_of(plan.start if plan.start in tables or not tables else min(tables)))
    inside = {id(node) for leaf in aggregates(tree) for node in leaf.walk()}
    outside = [node for node in tree.find_all(exp.Column, exp.Window) if id(node) not in inside]
    if any(isinstance(node, exp.Window) for node in outside):
        raise Refused("form_window", f"`{measure.metric}` is a windowed metric", "put a windowed field into an aggregate")
    if outside:
        name = f"{outside[0].args['table'].name}.{outside[0].name}"
        raise Refused(
            "E_UNAGGREGATED_FINER_GRAIN_REFERENCE", f"`{name}` stands outside an aggregate in `{measure.metric}`", "aggregate it"
        )
    inner: exp.Expr = tree.this
    return inner


def _aggregated(plan: Plan, measure: Aggregated) -> exp.Expr:
    of = measure.of
    if of.field == STAR:
        found = plan.catalog.dataset(of.dataset)
        if found is None:
            raise not_found(of.dataset, "dataset")
        if measure.agg != "count":
            raise Refused("form_aggregate", f"`{measure.agg}` of rows says nothing", "name a field")
        return exp.Count(this=rows_of(found.name), big_int=True)
    kind = plan.field_of(of).datatype
    if measure.agg in ("sum", "avg", "median") and kind in _NEVER_ADDED:
        raise Refused(
            "form_aggregate", f"`{measure.agg}` of `{of}` says nothing: it is {kind}", "count it, or take its least or greatest"
        )
    tree = expand_ref(plan.catalog, of.dataset, of.field)
    if measure.agg == "count_distinct":
        return exp.Count(this=exp.Distinct(expressions=[tree]), big_int=True)
    return _CALLS[measure.agg](this=tree)


def _homes(plan: Plan, trees: list[exp.Expr]) -> list[str]:
    """The datasets that measures are about, in order; without a measure the one the form is about."""
    found = list(dict.fromkeys(_home(plan, leaf) for tree in trees for leaf in aggregates(tree))) or [plan.start]
    for other in found[1:] if not plan.form.by else ():
        if not connected(plan.graph, found[0], other):
            raise Refused(
                "E3013_NO_STITCHING_DIMENSION",
                f"`{found[0]}` and `{other}` have no shared dimension, and no path leads from one to the other",
                "ask for each alone, or declare a relationship",
            )
    return found


def _home(plan: Plan, leaf: exp.Expr) -> str:
    """The dataset whose rows an aggregate is over: the one from which all others that it reads follow."""
    tables = sorted({table for table, _ in reads(leaf)}) or [plan.start]
    if len(tables) == 1:
        return tables[0]
    finest = [one for one in tables if all(one_way(plan.graph, one, other) is not None for other in tables)]
    if finest:
        return finest[0]
    apart = [other for other in tables[1:] if not connected(plan.graph, tables[0], other)]
    named = " and ".join(f"`{name}`" for name in tables)
    if apart:
        raise Refused("E3013_NO_STITCHING_DIMENSION", f"one measure is over {named}, which share no dimension", "make two of it")
    raise Refused("E_AMBIGUOUS_MEASURE_GRAIN", f"one measure is over the rows of {named} at once", "make two of it")


def _leaves(plan: Plan, home: str, trees: list[exp.Expr]) -> list[exp.Expr]:
    found = {text_of(leaf): leaf for tree in trees for leaf in aggregates(tree) if _home(plan, leaf) == home}
    return list(found.values())


# --- one branch -----------------------------------------------------------------------------------------------------------


def _part(plan: Plan, home: str, groups: list[_Group], leaves: list[exp.Expr]) -> _Part:
    """One dataset's rows with all they are grouped and restricted by."""
    branch = Branch(plan.catalog, plan.graph, plan.names, plan.reads, home)
    keys = [_group_text(branch, group) for group in groups]
    resolved = [_starred(branch.resolve(leaf, {})) for leaf in leaves]
    where = plan.where_of(branch)
    guards = _guards(plan, branch)
    if guards:
        refuse_single(leaves)
    if branch.bridge is None:
        source = f"{branch.sources()} {where}".strip()
    else:
        source, keys = _once_a_group(plan, branch, keys, [*resolved, *(guard for guard, _ in guards)], where)
    having = " AND ".join(f"{text_of(guard)} >= {least}" for guard, least in guards)
    texts = {text_of(leaf): text_of(done) for leaf, done in zip(leaves, resolved, strict=True)}
    return _Part(keys, texts, source, f"HAVING {having}" if having else "", guarded=bool(guards))


def _group_text(branch: Branch, group: _Group) -> str:
    text = text_of(branch.resolve(group.tree, {group.table: group.via}, "group"))
    grain = group.dim.grain if isinstance(group.dim, By) else None
    return f"CAST(date_trunc('{grain}', {text}) AS DATE)" if grain else text


def _starred(tree: exp.Expr) -> exp.Expr:
    for found in list(tree.find_all(exp.Column)):
        if found.name == STAR:
            found.replace(exp.Star())
    return tree


def _guards(plan: Plan, branch: Branch) -> list[tuple[exp.Expr, int]]:
    """For every dataset with a least size of groups that the branch touches: its rows in a group, and how many there must be."""
    found: list[tuple[exp.Expr, int]] = []
    for node in list(branch.nodes.values()):
        least = plan.min_group.get(node.dataset)
        if least is None:
            continue
        key = [] if node is branch.base else [branch.column_of(node, name) for name in key_of(plan.catalog, node.dataset)]
        rows = exp.Star() if not key else exp.Distinct(expressions=key if len(key) == 1 else [exp.Tuple(expressions=key)])
        found.append((exp.Count(this=rows, big_int=True), least))
    return found


def _once_a_group(plan: Plan, branch: Branch, keys: list[str], trees: list[exp.Expr], where: str) -> tuple[str, list[str]]:
    """Over a bridge: the distinct (row, group) pairs with what is measured of each row. Changes `trees` to speak of the pairs."""
    pairs = plan.names.fresh("pairs")
    own = [text_of(branch.column_of(branch.base, name)) for name in key_of(plan.catalog, branch.home)]
    used: dict[str, str] = {}
    for tree in trees:
        for found in list(tree.find_all(exp.Column)):
            name = used.setdefault(text_of(found), f"c{len(used) + 1}")
            found.replace(column(pairs, name))
    listed = [f"{text} AS g{number}" for number, text in enumerate(keys, 1)]
    listed += [f"{text} AS k{number}" for number, text in enumerate(own, 1)]
    listed += [f"{text} AS {name}" for text, name in used.items()]
    inner = f"SELECT DISTINCT {', '.join(listed)} {branch.sources()} {where}".strip()
    return f"FROM ({inner}) AS {quoted(pairs)}", [f"{quoted(pairs)}.g{number}" for number in range(1, len(keys) + 1)]


# --- several branches -----------------------------------------------------------------------------------------------------


def _stitch(plan: Plan, parts: dict[str, _Part], groups: list[_Group]) -> tuple[_Part, Replace]:
    """The parts below each other, brought together by group. A count of nothing is 0, except where groups are held back."""
    name = plan.names.fresh("parts")
    cells = {
        (home, text): f"m{number}" for number, (home, text) in enumerate(((h, t) for h, p in parts.items() for t in p.leaves), 1)
    }
    selects = []
    for home, part in parts.items():
        listed = [f"{text} AS g{number}" for number, text in enumerate(part.groups, 1)]
        listed += [f"{part.leaves[text] if owner == home else 'NULL'} AS {cell}" for (owner, text), cell in cells.items()]
        selects.append(part.select(", ".join(listed)))
    keys = [f"{quoted(name)}.g{number}" for number in range(1, len(groups) + 1)]

    def replace(leaf: exp.Expr) -> exp.Expr:
        home = _home(plan, leaf)
        cell = f"max({quoted(name)}.{cells[home, text_of(leaf)]})"
        counting = isinstance(leaf.this if isinstance(leaf, exp.Filter) else leaf, _COUNTING)
        return _raw(f"coalesce({cell}, 0)" if counting and not parts[home].guarded else cell)

    return _Part(keys, {}, f"FROM ({' UNION ALL '.join(selects)}) AS {quoted(name)}", "", guarded=False), replace
