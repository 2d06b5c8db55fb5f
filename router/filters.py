"""The closed algebra of filters: what policy compiles to, what stores lower, and the oracle that decides who is right.

A `Filter` says of one thing (a document, a row) whether it may be seen. There is no value that means "no filter":
`Always` has to be written down by policy, and connectors take a `Filter`, never an optional one.

The module is above 600 lines because checking, simplifying, evaluating, the digest and the wording all walk the same closed set
of nodes: a new node is one change in one place.

INVARIANT: in a guarded filter every comparison is dominated by `Has` on its field, so that two-valued logic here and
three-valued logic in a store agree on things that lack the field (tests/unit/test_filters.py::test_guard_dominates).
INVARIANT: literals have exactly the type of their field; a mistyped one raises before any I/O
(tests/unit/test_filters.py::test_mistyped_literal_is_refused).
INVARIANT: NUL and lone surrogates never stand in a literal (tests/unit/test_filters.py::test_hostile_literal).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from router.errors import PolicyError

Kind = Literal["string", "long", "bool", "set"]
Scalar = str | int | bool
Attributes = Mapping[str, "Scalar | frozenset[str]"]

MAX_DEPTH = 32
MAX_NODES = 4_000
MAX_VALUES = 10_000
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One attribute of an entity type. A thing that lacks a required scalar is invisible; sets are always present."""

    kind: Kind
    required: bool


@dataclass(frozen=True, slots=True)
class EntityType:
    """What may be said of one kind of thing: attribute name -> field."""

    name: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Always:
    """True of every thing."""


@dataclass(frozen=True, slots=True)
class Never:
    """True of nothing."""


@dataclass(frozen=True, slots=True)
class Eq:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class In:
    """The scalar is one of `values`."""

    field: str
    values: frozenset[Scalar]


@dataclass(frozen=True, slots=True)
class Lt:
    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Le:
    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Gt:
    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Ge:
    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Overlaps:
    """The set shares at least one element with `values`."""

    field: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Within:
    """Every element of the set is in `values`; true of the empty set."""

    field: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Like:
    """Cedar's `like`: literal parts joined by wildcards that match any run of characters, matched against the whole string."""

    field: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """The thing has the attribute. Of a set field this is true, the empty set included."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    item: Filter


Comparison = Eq | In | Lt | Le | Gt | Ge | Overlaps | Within | Like
Filter = Always | Never | Comparison | Has | And | Or | Not

ALWAYS = Always()
NEVER = Never()
_NOT = '["not",'
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
_quote = json.encoder.encode_basestring_ascii
_ORDERED = {Lt: "<", Le: "<=", Gt: ">", Ge: ">="}


# --- the reference evaluator: the oracle of every suite ---------------------------------------------------------------


def matches(f: Filter, thing: Attributes) -> bool:
    """Two-valued truth of `f` for one thing. A comparison on a missing scalar is false; a missing set reads as empty."""
    match f:
        case Always():
            return True
        case Never():
            return False
        case And(items):
            return all(matches(item, thing) for item in items)
        case Or(items):
            return any(matches(item, thing) for item in items)
        case Not(item):
            return not matches(item, thing)
        case Has(name):
            return name in thing
        case Overlaps(name, values):
            return not values.isdisjoint(_as_set(thing.get(name, frozenset())))
        case Within(name, values):
            return _as_set(thing.get(name, frozenset())) <= values
        case Eq(name, value):
            return name in thing and _same(thing[name], value)
        case In(name, values):
            return name in thing and any(_same(thing[name], value) for value in values)
        case Like(name, parts):
            return name in thing and like(str(thing[name]), parts)
        case Lt() | Le() | Gt() | Ge():
            return f.field in thing and _ordered(f, thing[f.field])


def _as_set(value: Scalar | frozenset[str]) -> frozenset[str]:
    return value if isinstance(value, frozenset) else frozenset()


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


def _ordered(f: Lt | Le | Gt | Ge, value: object) -> bool:
    if type(value) is not int:
        return False
    match f:
        case Lt(_, bound):
            return value < bound
        case Le(_, bound):
            return value <= bound
        case Gt(_, bound):
            return value > bound
        case Ge(_, bound):
            return value >= bound


def fits(thing: Attributes, entity: EntityType) -> bool:
    """Whether Cedar would judge the thing at all: nothing undeclared, every value of its type, every required set there.

    What does not fit is invisible to everybody, whatever a filter says; missing required scalars are the filter's to demand.
    """
    for name, value in thing.items():
        spec = entity.fields.get(name)
        if spec is None or not _is_a(spec.kind, value):
            return False
    return all(name in thing for name, spec in entity.fields.items() if spec.kind == "set" and spec.required)


def _is_a(kind: Kind, value: object) -> bool:
    if kind == "set":
        return isinstance(value, frozenset) and all(type(item) is str for item in value)
    return type(value) is _LITERAL[kind] and (kind != "long" or LONG_MIN <= cast(int, value) <= LONG_MAX)


def like(text: str, parts: tuple[str, ...]) -> bool:
    """Whether `text` is `parts` joined by wildcards. Linear: each middle part is taken at its first place."""
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


# --- building ---------------------------------------------------------------------------------------------------------


def all_of(items: Iterable[Filter]) -> Filter:
    """Conjunction; of nothing it is `Always`, so callers that mean "may see" must add their own terms."""
    return And(tuple(items))


def any_of(items: Iterable[Filter]) -> Filter:
    """Disjunction; of nothing it is `Never`."""
    return Or(tuple(items))


def compile_filter(f: Filter, entity: EntityType) -> Filter:
    """Check, guard and simplify `f`, demanding every required scalar of `entity`. The only form that connectors are given."""
    check(f, entity)
    compiled = simplify(And((*map(Has, _required(entity)), guard(f, entity))), entity)
    _check_size(compiled)
    return compiled


def compile_part(f: Filter, entity: EntityType, *, negated: bool = False) -> Part:
    """`f` (or its negation) checked, guarded and simplified for a place where every required scalar is there.

    Only `join_parts` makes something of it that may be given to a connector. Many joins may share one part.
    """
    if isinstance(f, Always | Never):
        return _NEVER_PART if isinstance(f, Always) is negated else _ALWAYS_PART
    check(f, entity)
    return _simplify(_negate(guard(f, entity), negated=negated), entity, frozenset(_required(entity)))


def join_parts(permits: Iterable[Part], vetoes: Iterable[Part], entity: EntityType) -> Part:
    """Some permit and every veto, demanding every required scalar: like `compile_filter`, of parts compiled before."""
    required = (_atom(Has(name)) for name in _required(entity))
    compiled = _join(And, (*required, _join(Or, permits), *vetoes))
    _check_size(compiled.filter)
    return compiled


def join_sources(granted: Iterable[tuple[str, Part]], field: str) -> Part:
    """One filter over several sources, named in `field`, each under its own part; those that share a part stand together.

    Parts are compared by their text: `Eq("x", 1)` and `Eq("x", True)` are equal to Python and not to policy.
    """
    sharing: dict[str, tuple[Part, set[str]]] = {}
    for source, part in granted:
        sharing.setdefault(part.key, (part, set()))[1].add(source)
    return _join(Or, (_join(And, (_named(field, names), part)) for part, names in sharing.values()))


def check_joined(joined: Part) -> None:
    """Refuse more nodes than every store can take. Each writes a bracket, so few brackets are few nodes: most need no counting."""
    if joined.key.count("[") > MAX_NODES:
        _check_size(joined.filter)


def _named(field: str, names: set[str]) -> Part:
    return _atom(In(field, frozenset(names)) if len(names) > 1 else Eq(field, *names))


def _required(entity: EntityType) -> list[str]:
    return [name for name, spec in entity.fields.items() if spec.required and spec.kind != "set"]


def check(f: Filter, entity: EntityType) -> None:
    """Refuse unknown fields, mistyped literals, hostile text and filters that are too large."""
    _check_size(f)
    for node in walk(f):
        if isinstance(node, Always | Never | And | Or | Not):
            continue
        spec = entity.fields.get(node.field)
        if spec is None:
            raise PolicyError(
                "filter_unknown_field", f"`{entity.name}` has no attribute `{node.field}`", "declare it in schema.cedarschema"
            )
        _check_literals(node, spec, entity)


def may_hold(f: Filter, sets: Mapping[str, frozenset[str]], least: Mapping[str, int]) -> bool:
    """False only where nothing can match whose sets lie within `sets` and whose numbers are no less than `least`.

    `f` has its Not inside, as simplifying leaves it; a leaf that is not understood may hold."""
    match f:
        case Never():
            return False
        case And(items):
            return all(may_hold(item, sets, least) for item in items)
        case Or(items):
            return any(may_hold(item, sets, least) for item in items)
        case Overlaps(field, values) if field in sets:
            return not values.isdisjoint(sets[field])
        case Le(field, value) | Eq(field, value) if field in least and type(value) is int:
            return value >= least[field]
        case Lt(field, value) if field in least and type(value) is int:
            return value > least[field]
    return True


def walk(f: Filter) -> Iterable[Filter]:
    """Every node, parents first."""
    stack = [f]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, And | Or):
            stack.extend(reversed(node.items))
        elif isinstance(node, Not):
            stack.append(node.item)


def _check_size(f: Filter) -> None:
    """Refuse a filter that is deeper or has more nodes than every store can take."""
    depth, count, level = 0, 0, [f]
    while level:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise PolicyError(
                "filter_too_large",
                f"a filter is deeper than {MAX_DEPTH} or has more than {MAX_NODES} nodes",
                "simplify the policy",
            )
        below: list[Filter] = []
        for node in level:
            if isinstance(node, And | Or):
                below.extend(node.items)
            elif isinstance(node, Not):
                below.append(node.item)
        level = below


_LITERAL = {"string": str, "long": int, "bool": bool, "set": str}


def _check_literals(node: Comparison | Has, spec: Field, entity: EntityType) -> None:
    where = f"`{entity.name}.{node.field}`"
    if isinstance(node, Has):
        return
    if isinstance(node, Overlaps | Within) != (spec.kind == "set"):
        raise PolicyError(
            "filter_type", f"{where} is a {spec.kind} and cannot be compared this way", "use a comparison of its type"
        )
    if isinstance(node, Lt | Le | Gt | Ge) and spec.kind != "long":
        raise PolicyError(
            "filter_type", f"{where} is a {spec.kind} and has no order", "only a Long can be compared by <, <=, > and >="
        )
    if isinstance(node, Like) and spec.kind != "string":
        raise PolicyError(
            "filter_type", f"{where} is a {spec.kind}; `like` needs a String", "compare it with a literal of its type"
        )
    literals = _literals(node)
    if len(literals) > MAX_VALUES:
        raise PolicyError(
            "filter_too_large", f"a set of {len(literals)} values for {where} is over {MAX_VALUES}", "use fewer groups or values"
        )
    wrong = {type(literal) for literal in literals} - {_LITERAL[spec.kind]}
    if wrong:
        raise PolicyError(
            "filter_type", f"{where} is a {spec.kind} but is compared with a {wrong.pop().__name__}", "use a literal of its type"
        )
    if _LITERAL[spec.kind] is str:
        check_text("".join(cast(tuple[str, ...], literals)), where)  # all at once: a group list is long
    elif not all(LONG_MIN <= cast(int, literal) <= LONG_MAX for literal in literals):
        raise PolicyError("filter_type", f"a literal for {where} is outside 64 bits", "use a smaller number")


def _literals(node: Comparison) -> tuple[Scalar, ...]:
    match node:
        case In(_, scalars):
            return tuple(scalars)
        case Overlaps(_, values) | Within(_, values):
            return tuple(values)
        case Like(_, parts):
            return parts
        case Eq(_, value):
            return (value,)
        case Lt(_, bound) | Le(_, bound) | Gt(_, bound) | Ge(_, bound):
            return (bound,)


def check_text(text: str, where: str) -> None:
    """Refuse NUL and lone surrogates: stores cut or reject such text, each in its own way."""
    if "\0" in text:
        raise PolicyError("hostile_text", f"a NUL character stands in {where}", "remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PolicyError("hostile_text", f"a lone surrogate stands in {where}", "remove it") from None


# --- guarding and simplifying -----------------------------------------------------------------------------------------


def guard(f: Filter, entity: EntityType) -> Filter:
    """Put `Has` before every comparison on a scalar. Truth under `matches` does not change."""
    match f:
        case And(items):
            return And(tuple(guard(item, entity) for item in items))
        case Or(items):
            return Or(tuple(guard(item, entity) for item in items))
        case Not(item):
            return Not(guard(item, entity))
        case Eq(name) | In(name) | Lt(name) | Le(name) | Gt(name) | Ge(name) | Like(name):
            return And((Has(name), f))
        case _:
            return f


def simplify(f: Filter, entity: EntityType) -> Filter:
    """An equivalent filter in a stable form: Not pushed to the leaves, nested And and Or flattened, constants folded.

    A `Has` that a conjunct above already demands is folded away below it, so that the tenant wall stays a plain
    top-level conjunct that an index can serve. Set fields always exist, so `Has` of one is `Always`.
    """
    return _simplify(_negate(f, negated=False), entity, frozenset()).filter


class Part(NamedTuple):
    """A simplified filter with its canonical text, and the same of its items where it is And or Or."""

    key: str
    filter: Filter
    terms: tuple[Part, ...] = ()


def _negate(f: Filter, *, negated: bool) -> Filter:
    match f:
        case Not(item):
            return _negate(item, negated=not negated)
        case And(items):
            inner = tuple(_negate(item, negated=negated) for item in items)
            return Or(inner) if negated else And(inner)
        case Or(items):
            inner = tuple(_negate(item, negated=negated) for item in items)
            return And(inner) if negated else Or(inner)
        case Always():
            return NEVER if negated else ALWAYS
        case Never():
            return ALWAYS if negated else NEVER
        case _:
            return Not(f) if negated else f


def _simplify(f: Filter, entity: EntityType, held: frozenset[str]) -> Part:
    """`held`: the fields that a conjunct above demands with `Has`."""
    match f:
        case And(items):
            return _simplify_and(items, entity, held)
        case Or(items):
            return _join(Or, (_simplify(item, entity, held) for item in items))
        case Not(item):
            inner = _leaf(item, entity, held)
            return _atom(NEVER if inner == ALWAYS else ALWAYS if inner == NEVER else Not(inner))
        case _:
            return _atom(_leaf(f, entity, held))


def _atom(f: Filter) -> Part:
    if isinstance(f, Always | Never):
        return _ALWAYS_PART if isinstance(f, Always) else _NEVER_PART
    return Part(canonical(f), f)


def _leaf(f: Filter, entity: EntityType, held: frozenset[str]) -> Filter:
    match f:
        case Has(name) if name in held or entity.fields[name].kind == "set":
            return ALWAYS
        case In(name, values):
            if not values:
                return NEVER
            return Eq(name, next(iter(values))) if len(values) == 1 else f
        case Overlaps(_, strings) if not strings:
            return NEVER
        case Like(name, parts) if len(parts) == 1:
            return Eq(name, parts[0])
        case _:
            return f


def _simplify_and(items: tuple[Filter, ...], entity: EntityType, held: frozenset[str]) -> Part:
    flat = _flatten(And, items)
    demanded = {item.field for item in flat if isinstance(item, Has) and entity.fields[item.field].kind != "set"}
    below = held | demanded
    rest = (_simplify(item, entity, below) for item in flat if not isinstance(item, Has))
    joined = _join(And, (*(_atom(Has(name)) for name in sorted(demanded - held)), *rest))
    surfaced = {term.filter.field for term in joined.terms if isinstance(term.filter, Has)} - below
    if surfaced and isinstance(joined.filter, And):  # an item came down to a conjunction: its `Has` holds for its neighbours too
        return _simplify_and(joined.filter.items, entity, held)
    return joined


def _flatten(kind: type[And] | type[Or], items: Iterable[Filter]) -> list[Filter]:
    flat: list[Filter] = []
    for item in items:
        if isinstance(item, kind):
            flat.extend(_flatten(kind, item.items))
        else:
            flat.append(item)
    return flat


def _join(kind: type[And] | type[Or], items: Iterable[Part]) -> Part:
    """Flattened, sorted, without repetition; a leaf beside its own negation decides the whole."""
    neutral, zero = (_ALWAYS_PART, _NEVER_PART) if kind is And else (_NEVER_PART, _ALWAYS_PART)
    kept: dict[str, Part] = {}
    for item in items:
        for term in item.terms if isinstance(item.filter, kind) else (item,):
            if term.key == zero.key:
                return zero
            kept[term.key] = term
    kept.pop(neutral.key, None)
    if any(_opposite(term) in kept for term in kept.values() if not term.terms):
        return zero
    if len(kept) < 2:
        return next(iter(kept.values()), neutral)
    terms = tuple(kept[key] for key in sorted(kept))
    name = "and" if kind is And else "or"
    return Part(f'["{name}",{",".join(term.key for term in terms)}]', kind(tuple(term.filter for term in terms)), terms)


def _opposite(leaf: Part) -> str:
    """The canonical text of the negated leaf, from its own."""
    return leaf.key[len(_NOT) : -1] if isinstance(leaf.filter, Not) else f"{_NOT}{leaf.key}]"


_ALWAYS_PART, _NEVER_PART = Part('["always"]', ALWAYS), Part('["never"]', NEVER)


# --- canonical form, digest, words ------------------------------------------------------------------------------------


def as_json(f: Filter) -> list[object]:
    """A JSON shape that states the filter completely; sets sorted by type and value."""
    match f:
        case Always():
            return ["always"]
        case Never():
            return ["never"]
        case And(items):
            return ["and", *(as_json(item) for item in items)]
        case Or(items):
            return ["or", *(as_json(item) for item in items)]
        case Not(item):
            return ["not", as_json(item)]
        case Has(name):
            return ["has", name]
        case In(name, scalars):
            return ["in", name, sorted(scalars, key=lambda v: (type(v).__name__, v))]
        case Overlaps(name, values):
            return ["overlaps", name, sorted(values)]
        case Within(name, values):
            return ["within", name, sorted(values)]
        case Like(name, parts):
            return ["like", name, list(parts)]
        case Eq(name, value):
            return ["eq", name, value]
        case Lt(name, bound) | Le(name, bound) | Gt(name, bound) | Ge(name, bound):
            return [_ORDERED[type(f)], name, bound]


def canonical(f: Filter) -> str:
    """Canonical JSON text of `as_json`; equal filters in simplified form have equal text.

    Written out for the nodes that are many: grants are compiled anew for every person and day.
    """
    match f:
        case Not(item):
            return f"{_NOT}{canonical(item)}]"
        case Has(name):
            return f'["has",{_quote(name)}]'
        case Eq(name, str() as value):
            return f'["eq",{_quote(name)},{_quote(value)}]'
        case Overlaps(name, values):
            return f'["overlaps",{_quote(name)},[{",".join(map(_quote, sorted(values)))}]]'
        case Lt(name, bound) | Le(name, bound) | Gt(name, bound) | Ge(name, bound):
            return f'["{_ORDERED[type(f)]}",{_quote(name)},{bound}]'
    return _ENCODER.encode(as_json(f))


def digest(f: Filter, *, key: bytes, tenant: str, source: str, text: str | None = None) -> str:
    """HMAC-SHA-256 over the canonical JSON, tenant and source: a receipt that does not reveal the filter by guessing.

    `text` is the filter's canonical text where it is known already.
    """
    body = json.dumps([tenant, source, canonical(f) if text is None else text], ensure_ascii=True, separators=(",", ":"))
    return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()


def words(f: Filter) -> str:
    """The filter in plain English, for reviewers."""
    match f:
        case Always():
            return "everything"
        case Never():
            return "nothing"
        case And(items):
            return " and ".join(_bracket(item) for item in items) or "everything"
        case Or(items):
            return " or ".join(_bracket(item) for item in items) or "nothing"
        case Not(Has(name)):
            return f"{name} is absent"
        case Not(Eq(name, value)):
            return f"{name} is not {_say(value)}"
        case Not(item):
            return f"not ({words(item)})"
        case Has(name):
            return f"{name} is present"
        case Eq(name, value):
            return f"{name} is {_say(value)}"
        case In(name, scalars):
            return f"{name} is one of {_list(scalars)}"
        case Overlaps(name, values):
            return f"{name} shares one of {_list(values)}"
        case Within(name, values):
            return f"{name} holds nothing but {_list(values)}" if values else f"{name} is empty"
        case Like(name, parts):
            return f"{name} looks like {_say('*'.join(parts))}"
        case Lt(name, bound):
            return f"{name} is below {bound}"
        case Le(name, bound):
            return f"{name} is at most {bound}"
        case Gt(name, bound):
            return f"{name} is above {bound}"
        case Ge(name, bound):
            return f"{name} is at least {bound}"


def _bracket(f: Filter) -> str:
    return f"({words(f)})" if isinstance(f, And | Or) else words(f)


def _say(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(values: Iterable[Scalar], most: int = 8) -> str:
    ordered = sorted(values, key=lambda v: (type(v).__name__, v))
    shown = ", ".join(_say(value) for value in ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"
