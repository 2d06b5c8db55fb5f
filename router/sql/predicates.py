"""Conditions of a form as SQL text over one branch.

INVARIANT: a condition on the many side is EXISTS or a correlated count, never a join
(tests/sql/form/test_compile.py::test_condition_on_the_many_side_repeats_nothing).
INVARIANT: a literal is quoted whatever it holds (tests/sql/form/test_compile.py::test_literals_are_never_sql).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from sqlglot import exp

from router.catalog import Catalog
from router.errors import Refused
from router.sql.branch import Branch, Node, Role, key_of, literal, text_of
from router.sql.expressions import expand_ref
from router.sql.form import AgainstAll, AnyOf, Compare, Exists, Pred, Ref, Scalar
from router.sql.paths import Graph, Step, Way, ambiguous, connected, find_bridge, one_way, reversed_way, safe_ways

_NUMBERS = frozenset({"Integer", "Decimal", "Float"})
_SIMPLE = frozenset({"=", "<>", ">", ">=", "<", "<="})


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a condition stands. `anchor` is the dataset whose rows `has` speaks of."""

    branch: Branch
    anchor: str
    min_group: Mapping[str, int]


def lower_pred(pred: Pred, scope: Scope) -> str:
    match pred:
        case Compare():
            return _compare(pred, scope.branch)
        case AgainstAll():
            return _against_all(pred, scope)
        case AnyOf(preds):
            return "(" + " OR ".join(lower_pred(one, scope) for one in preds) + ")"
        case Exists():
            return _exists(pred, scope)


def field_text(branch: Branch, ref: Ref, role: Role = "condition") -> str:
    """The field over the branch's aliases, in brackets where it is more than one term."""
    if not ref.dataset and branch.catalog.metric(ref.field) is not None:
        code = "E_AGGREGATE_IN_WHERE" if role == "condition" else "E_AGGREGATE_IN_SCALAR_QUERY"
        raise Refused(
            code, f"`{ref.field}` is an aggregate, which a scalar row does not have", "put it into `measures` or `having`"
        )
    tree = branch.resolve(expand_ref(branch.catalog, ref.dataset, ref.field), {canonical(branch.catalog, ref): ref.via}, role)
    text = text_of(tree)
    return text if tree.key in ("column", "paren", "anonymous") else f"({text})"


_OF_MANY = (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.Sum, exp.Avg)


def refuse_single(trees: Iterable[exp.Expr]) -> None:
    """An extreme or a middle value is one row's own, however many stand around it."""
    if any(not isinstance(tree, _OF_MANY) for tree in trees):
        raise Refused(
            "form_min_group",
            "the greatest, least or middle value of rows that may only be measured in groups is one row's own",
            "ask for a count, a sum or an average",
        )


def refuse_small(branch: Branch, min_group: Mapping[str, int]) -> None:
    """Rows that may only be counted in groups are neither shown nor asked after one by one."""
    small = sorted({node.dataset for node in branch.nodes.values()} & set(min_group))
    if small:
        raise Refused("form_min_group", f"rows of `{small[0]}` may only be counted in groups", "ask for a measure of it")


def canonical(catalog: Catalog, ref: Ref) -> str:
    """The dataset's name as the catalogue spells it."""
    found = catalog.dataset(ref.dataset)
    return found.name if found else ref.dataset


def _compare(pred: Compare, branch: Branch) -> str:
    at = field_text(branch, pred.ref)
    values = [_typed(branch.catalog, pred.ref, value.value) for value in pred.values]
    if pred.op in ("is_null", "not_null"):
        return f"{at} IS {'NOT ' if pred.op == 'not_null' else ''}NULL"
    if not values:
        raise Refused("form_invalid", f"`{pred.ref}` is compared with nothing", "give a value")
    if pred.op in _SIMPLE:
        return f"{at} {pred.op} {literal(values[0])}"
    if pred.op == "between":
        if len(values) != 2:
            raise Refused("form_invalid", f"`between` on `{pred.ref}` needs two values", "give the lower and the upper one")
        return f"{at} BETWEEN {literal(values[0])} AND {literal(values[1])}"
    if pred.op in ("in", "not_in"):
        listed = ", ".join(literal(value) for value in values)
        return f"{at} {'NOT ' if pred.op == 'not_in' else ''}IN ({listed})"
    function = {"contains": "contains", "not_contains": "NOT contains", "starts": "starts_with", "ends": "ends_with"}[pred.op]
    return f"{function}(lower({at}), lower({literal(str(values[0]))}))"


def _typed(catalog: Catalog, ref: Ref, value: Scalar) -> Scalar:
    """The value as the field's declared type has it; what cannot be of that type is refused here, not by the engine."""
    dataset = catalog.dataset(ref.dataset)
    found = dataset.field(ref.field) if dataset else None
    kind = found.datatype if found else None
    if kind == "String" and not isinstance(value, str):
        return str(value)
    wrong = (
        (kind in _NUMBERS and isinstance(value, str | bool | date))
        or (kind == "Boolean" and not isinstance(value, bool))
        or (kind in ("Date", "DateTime", "DateTimeTz") and not isinstance(value, date) and not _is_date(value))
    )
    if wrong:
        raise Refused("form_value", f"`{ref}` is {kind} and is compared with something else", "give a value of that type")
    return value


def _is_date(value: Scalar) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _against_all(pred: AgainstAll, scope: Scope) -> str:
    branch = scope.branch
    at = field_text(branch, pred.ref)
    home = canonical(branch.catalog, pred.ref)
    apart = Branch(branch.catalog, branch.graph, branch.names, branch.reads, home)
    inner = field_text(apart, Ref(home, pred.ref.field))
    least = scope.min_group.get(home)
    if least is not None and pred.agg in ("min", "max", "median"):
        refuse_single([exp.Max(this=exp.null())])
    refuse_small(apart, {name: number for name, number in scope.min_group.items() if name != home})
    call = f"count(DISTINCT {inner})" if pred.agg == "count_distinct" else f"{pred.agg}({inner})"
    shown = call if least is None else f"CASE WHEN count(*) >= {least} THEN {call} END"
    return f"{at} {pred.op} (SELECT {shown} {apart.sources()})"


def _exists(pred: Exists, scope: Scope) -> str:
    branch = scope.branch
    catalog, graph = branch.catalog, branch.graph
    found = catalog.dataset(pred.dataset)
    if found is None:
        raise Refused("E_NAME_NOT_FOUND", f"there is no dataset `{pred.dataset}`", "use a dataset of the catalogue")
    ties = _ties(graph, scope.anchor, found.name, pred.via)
    inner = Branch(catalog, graph, branch.names, branch.reads, ties.root, prefix=ties.chain if ties.far else ())
    last = inner.join(ties.chain)
    tied = inner.base if ties.far else last
    outer = branch.node(scope.anchor)
    conditions = [
        f"{text_of(inner.column_of(tied, here))} = {text_of(branch.column_of(outer, there))}" for here, there in ties.link.pairs
    ]
    conditions += [lower_pred(one, Scope(inner, found.name, scope.min_group)) for one in pred.where]
    refuse_small(inner, scope.min_group)
    where = f"{inner.sources(len(ties.chain))} WHERE {' AND '.join(conditions)}"
    if pred.count is not None:
        op, number = pred.count
        test = f"(SELECT count({_counted(inner, last, found.name, ties.far)}) {where}) {op} {literal(number)}"
        return f"NOT ({test})" if pred.negated else test
    return f"{'NOT ' if pred.negated else ''}EXISTS (SELECT 1 {where})"


@dataclass(frozen=True, slots=True)
class _Ties:
    """How a sub-query hangs on the outer row: it starts at `root` and joins `chain`. Where `far`, the rows asked for stand at the
    end of the chain and its start is tied by `link`; else they stand at the start and the end of the chain is tied."""

    root: str
    chain: Way
    link: Step
    far: bool


def _ties(graph: Graph, anchor: str, child: str, via: tuple[str, ...]) -> _Ties:
    """Three ways lead from a row to its rows of `child`: the child points at it, it points at the child, or a bridge at both."""
    if child == anchor and not via:
        up: list[Way] = [(step,) for step in graph[child] if step.there == child and step.to_one]
    else:
        up = [way for way in safe_ways(graph, child, anchor, via) if way]
    if len(up) > 1:
        raise ambiguous(anchor, child, [tuple(step.relationship for step in way) for way in up])
    if up:
        return _Ties(child, up[0][:-1], up[0][-1], far=False)
    down = one_way(graph, anchor, child, via)
    if down:
        return _Ties(down[0].there, down[1:], reversed_way(graph, down[:1])[0], far=True)
    bridge = find_bridge(graph, anchor, child, via)
    if bridge is None:
        code = "E3012_MN_NO_SAFE_REWRITE" if connected(graph, anchor, child) else "E_NO_PATH"
        raise Refused(
            code, f"no path ties rows of `{child}` to those of `{anchor}`", "declare a relationship or a bridge dataset"
        )
    if len(bridge.home) != 1:
        raise Refused("form_bridge", f"the bridge `{bridge.dataset}` lies more than one step from `{anchor}`", "ask in two steps")
    return _Ties(bridge.dataset, bridge.goal, bridge.home[0], far=True)


def _counted(inner: Branch, node: Node, dataset: str, far: bool) -> str:
    """What a correlated count counts: rows, or over a bridge each row of the far side once."""
    if not far:
        return "*"
    key = [text_of(inner.column_of(node, name)) for name in key_of(inner.catalog, dataset)]
    return f"DISTINCT {key[0]}" if len(key) == 1 else f"DISTINCT ({', '.join(key)})"
