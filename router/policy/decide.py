"""Decides: what a principal may search (grants, before anything is searched) and each thing in full (recheck, after).

Both ask the same Cedar policies. `grants` asks once with the resource unknown and turns what is left open into one
filter per source; `recheck` asks the whole question again for every passage whose text is about to leave.

INVARIANT: an error, a missing decision, an unknown principal or a residual not understood is a refusal or a deny,
never a wider filter (tests/faults/test_policies.py).
INVARIANT: grants depend on policy version, mapped principal and UTC day, and on nothing else
(tests/unit/test_policy_grants.py::test_memo_key).
INVARIANT: a filter admits exactly what Cedar in full allows inside the envelope that sources.yaml gives the source today,
whatever it gave when the document was indexed (tests/unit/test_policy_agreement.py).
INVARIANT: a filter that no store can take is a refusal here, never an error further down
(tests/faults/test_policies.py::test_filter_too_large_is_refused_not_widened, ::test_too_many_sources_times_policies).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from router.catalog import Catalog
from router.domain import (
    SINCE_FIELD,
    SOURCE_FIELD,
    UNTIL_FIELD,
    ColumnGrant,
    Grant,
    Grants,
    Issuer,
    Labels,
    Principal,
    Source,
    TableGrant,
    with_spans,
)
from router.errors import PolicyError, Refused
from router.filters import (
    ALWAYS,
    NEVER,
    And,
    EntityType,
    Ge,
    Part,
    Scalar,
    Within,
    check_joined,
    compile_part,
    join_parts,
    join_sources,
    may_hold,
)
from router.memo import Memo
from router.policy.governance import DatasetFacts
from router.policy.residual import FALSE, Member, Open, fold, read_residual
from router.policy.schema import NAMESPACE
from router.policy.tables import COLUMN_ACTIONS, build_table, column_attributes, compile_rows, grant_columns
from router.sql.tools import Tool

QUESTION_CLASS = 1
"""Internal: the class of a question where identity.yaml says nothing else of its tenant."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Statement:
    """One policy as reviewed, and `body`, its tree in Cedar's JSON form."""

    policy_id: str
    effect: str
    reason: str
    owner: str
    file: str
    line: int
    text: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Cedar's full decision on one thing. `policies` are the ids that decided; `why` says what else denied it."""

    allowed: bool
    policies: tuple[str, ...] = ()
    why: str = ""

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class Engine:
    """Cedar's parsed policies and schema, compiled once at load, and what was computed from them per principal.

    Cedar knows policies by position (`policy0`); `ids` turns that into the @id that reviewers gave.
    """

    policies: Any
    schema: Any
    ids: Mapping[str, str]
    effects: Mapping[str, str]
    granted: Memo = field(default_factory=Memo)
    entities: Memo = field(default_factory=Memo)
    envelopes: Memo = field(default_factory=Memo)


def build_engine(statements: Sequence[Statement], schema: Any) -> Engine:
    """Parse the text that was checked. (Keyed JSON would carry the ids, but Cedar reads it only 128 levels deep.)"""
    import cedarpy

    policies = cedarpy.PolicySet.from_str("\n".join(statement.text for statement in statements))
    ids = {f"policy{at}": statement.policy_id for at, statement in enumerate(statements)}
    return Engine(policies, schema, ids, {statement.policy_id: statement.effect for statement in statements})


@dataclass(frozen=True, slots=True, eq=False)
class PolicySet:
    """One version of the policy folder. Immutable; only its memo grows."""

    version: str
    raw: Mapping[str, bytes] = field(repr=False)
    types: Mapping[str, EntityType] = field(repr=False)
    issuers: Mapping[str, Issuer] = field(repr=False)
    sources: Mapping[str, Source] = field(repr=False)
    people: Mapping[str, Mapping[str, Any]] = field(repr=False)
    datasets: Mapping[str, DatasetFacts] = field(repr=False)
    catalog: Catalog | None = field(repr=False)
    statements: tuple[Statement, ...] = field(repr=False)
    engine: Engine = field(repr=False)
    tools: tuple[Tool, ...] = field(default=(), repr=False)
    question_classes: Mapping[str, int] = field(default_factory=dict, repr=False)
    stored_type: EntityType = field(init=False, repr=False)
    """The document type with what stores keep of versions beside: one object for as long as this version is in force."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored_type", with_spans(self.document_type))

    @property
    def document_type(self) -> EntityType:
        """What may be said of a document: the attributes that labels carry and filters compare."""
        return self.types["Document"]

    def grants(self, principal: Principal, now: datetime) -> Grants:
        """What `principal` may search and query today, by source and dataset. Raises `Refused` where no sound filter can be given."""
        day_ms = to_day_ms(now)
        key = (_exact(principal), day_ms)

        def decide() -> tuple[tuple[Grant, ...], Part, tuple[TableGrant, ...]]:
            return *self._grants(principal, day_ms), self._tables(principal, day_ms)

        granted, joined, query = self.engine.granted.get(key, decide, _weight(principal))
        return Grants(principal, self.version, day_ms, granted, joined, query)

    def recheck(self, principal: Principal, now: datetime, things: Sequence[tuple[str, str, Labels]]) -> list[Verdict]:
        """Cedar in full on each (source, document id, labels); in order. Whatever cannot be judged is denied."""
        context = {"now": to_day_ms(now)}
        judged: dict[Hashable, Verdict | None] = {}
        keys: list[Hashable] = []
        asked: list[tuple[Hashable, dict[str, Any]]] = []
        for source, _, labels in things:
            # Policies cannot name a document, so equal labels in one source have one verdict.
            key = (source, tuple(sorted((name, type(value).__name__, value) for name, value in labels.items())))
            keys.append(key)
            if key not in judged:
                judged[key] = self._refuse_labels(source, labels)
                if judged[key] is None:
                    asked.append((key, _document(f"{len(asked):032x}", source, labels)))
        verdicts = self._authorize(principal, "search", [entity for _, entity in asked], context)
        judged.update((key, verdict) for (key, _), verdict in zip(asked, verdicts, strict=True))
        return [verdict for key in keys if (verdict := judged[key]) is not None]

    def judge_rows(self, principal: Principal, now: datetime, dataset: str, rows: Sequence[Labels]) -> list[Verdict]:
        """Cedar in full on the row attributes of some rows of a dataset; what the filter of its grant is compared with."""
        things = [_entity(dataset, f"{at:032x}", row) for at, row in enumerate(rows)]
        return self._authorize(principal, "query", things, {"now": to_day_ms(now)})

    def judge_columns(self, principal: Principal, now: datetime, dataset: str) -> dict[tuple[str, str], Verdict]:
        """Cedar in full on every column of a dataset, by (column, action); what the columns of its grant are compared with."""
        facts, entity = self.datasets[dataset], self.types["Column"]
        things = [
            _entity("Column", f"{at:032x}", column_attributes(facts, column, principal.tenant, entity))
            for at, column in enumerate(facts.columns)
        ]
        return {
            (column.name, action): verdict
            for action in COLUMN_ACTIONS
            for column, verdict in zip(
                facts.columns, self._authorize(principal, action, things, {"now": to_day_ms(now)}), strict=True
            )
        }

    def authorize(self, principal: Principal, now: datetime, action: str, *, tenant: str) -> Verdict:
        """`audit` or `explain_own` on the decisions of a tenant."""
        entity = _entity("Decision", "0" * 32, {"tenant": tenant})
        return self._authorize(principal, action, [entity], {"now": to_day_ms(now)})[0]

    def may_disclose(self, principal: Principal, *, provider: str, purpose: str, sensitivity: int) -> Verdict:
        """Whether text of this class may go to this provider for this purpose, asked for by `principal`."""
        context = {"purpose": purpose, "class": sensitivity}
        return self._authorize(principal, "disclose", [_entity("Provider", provider, {})], context)[0]

    def question_class(self, tenant: str) -> int:
        """The least class of every question of the tenant; what stands beside it can only raise it."""
        return self.question_classes.get(tenant, QUESTION_CLASS)

    # --- partial --------------------------------------------------------------------------------------------------

    def _grants(self, principal: Principal, day_ms: int) -> tuple[tuple[Grant, ...], Part]:
        """By source, and all of them in one filter."""
        names = sorted(source.name for source in self.sources.values() if source.tenant == principal.tenant)
        if not names:
            return (), join_sources((), SOURCE_FIELD)
        parts: dict[Hashable, Part] = {}
        compiled: dict[Hashable, tuple[Part, tuple[str, ...]]] = {}
        reaching: dict[Hashable, bool] = {}
        residuals = self._residuals(principal, "search", day_ms)
        try:
            open_trees = {policy_id: _read(residual, "Document") for policy_id, residual in residuals.items()}
        except PolicyError as error:
            raise _refused(error) from error
        # A policy that is false for this principal is silent everywhere, as permit and as forbid: most are, in a large folder.
        said = {policy_id: (tree, _members(tree)) for policy_id, tree in open_trees.items() if tree is not FALSE}
        members = list(dict.fromkeys(member for _, own in said.values() for member in own))
        granted: list[tuple[Grant, Part]] = []
        for name in names:
            # Sources with one envelope that no policy tells apart share one filter; what does not speak of sources, all share.
            source = self.sources[name]
            kind = (source.groups, source.least, *[name in member.sources for member in members])
            if kind not in compiled:
                compiled[kind] = self._compile(said, name, parts)
                # Groups that no label of the source may carry, or too low a clearance: nothing of it exists for this caller.
                reaching[kind] = may_hold(compiled[kind][0].filter, {"groups": source.groups}, {"sensitivity": source.least})
            part, speaking = compiled[kind]
            if reaching[kind]:
                granted.append((Grant(name, part.filter, speaking), part))
        joined = join_sources(((grant.source, part) for grant, part in granted), SOURCE_FIELD)
        try:
            check_joined(joined)
        except PolicyError as error:
            raise _refused(error) from error
        return tuple(grant for grant, _ in granted), joined

    def _residuals(self, principal: Principal, action: str, day_ms: int) -> dict[str, Any]:
        """One partial evaluation of the whole set, by policy id; every policy must come back."""
        import cedarpy

        request = {
            "principal": f'{NAMESPACE}::{principal.kind}::"{principal_id(principal)}"',
            "action": f'{NAMESPACE}::Action::"{action}"',
            "context": {"now": day_ms},
        }
        entities = self._principal_entities(principal)
        result = cedarpy.is_authorized_partial(request, self.engine.policies, entities, self.engine.schema)
        if result.diagnostics.errors or result.diagnostics.unknown_entities:
            raise Refused("policy_evaluation", "the policies cannot be evaluated for this identity", "ask the policy owners")
        ids, residuals = self.engine.ids, result.residuals
        if residuals.keys() != ids.keys():
            raise Refused("policy_no_decision", "the policies gave no decision for this identity", "ask the policy owners")
        return {policy_id: residuals[position] for position, policy_id in ids.items()}

    # --- tables ---------------------------------------------------------------------------------------------------

    def _tables(self, principal: Principal, day_ms: int) -> tuple[TableGrant, ...]:
        """By dataset; one without a row or a column for this principal is absent."""
        if not self.datasets:
            return ()
        residuals = self._residuals(principal, "query", day_ms)
        rows: dict[str, tuple[Part, tuple[str, ...]]] = {}
        try:
            for residual in residuals.values():
                _need_open_scope(residual)
            for name in sorted(self.datasets):
                part, speaking = compile_rows(residuals, self.engine.effects, self.types[name])
                if part.filter != NEVER:
                    rows[name] = part, speaking
        except PolicyError as error:
            raise _refused(error) from error
        columns = self._columns(principal, day_ms, [self.datasets[name] for name in rows])
        return tuple(
            build_table(self.datasets[name], columns[name], part.filter, speaking)
            for name, (part, speaking) in rows.items()
            if columns[name]
        )

    def _columns(self, principal: Principal, day_ms: int, datasets: Sequence[DatasetFacts]) -> dict[str, tuple[ColumnGrant, ...]]:
        """Cedar in full on every column; those that policies cannot tell apart are asked of once."""
        entity = self.types["Column"]
        asked = {
            (facts.name, column.name): column_attributes(facts, column, principal.tenant, entity)
            for facts in datasets
            for column in facts.columns
        }
        things: dict[Hashable, dict[str, Any]] = {}
        for attributes in asked.values():
            things.setdefault(tuple(sorted(attributes.items())), _entity("Column", f"{len(things):032x}", attributes))
        verdicts = {
            action: self._authorize(principal, action, list(things.values()), {"now": day_ms}) for action in COLUMN_ACTIONS
        }
        may = {key: {action: said[at].allowed for action, said in verdicts.items()} for at, key in enumerate(things)}
        return {
            facts.name: grant_columns(
                (column, may[tuple(sorted(asked[facts.name, column.name].items()))]) for column in facts.columns
            )
            for facts in datasets
        }

    def _compile(
        self, said: Mapping[str, tuple[Open, list[Member]]], source: str, parts: dict[Hashable, Part]
    ) -> tuple[Part, tuple[str, ...]]:
        """As Cedar decides: some permit speaks and no forbid does, inside the envelope; and the ids of those that may speak."""
        speaking: list[str] = []
        permits: list[Part] = []
        vetoes: list[Part] = []
        try:
            for policy_id, (tree, members) in said.items():
                forbids = self.engine.effects[policy_id] == "forbid"
                key: Hashable = (policy_id, *[source in member.sources for member in members]) if members else policy_id
                part = parts.get(key)
                if part is None:
                    part = parts[key] = compile_part(fold(tree, source), self.document_type, negated=forbids)
                if part.filter is not (ALWAYS if forbids else NEVER):
                    speaking.append(policy_id)
                    (vetoes if forbids else permits).append(part)
            return join_parts(permits, [*vetoes, self._envelope(source)], self.document_type), tuple(sorted(speaking))
        except PolicyError as error:
            raise _refused(error) from error

    def _envelope(self, source: str) -> Part:
        """What no label of the source may leave, as a part of its filter: a narrower envelope holds at once, not when indexed."""
        declared = self.sources[source]

        def build() -> Part:
            inside = And((Within("groups", declared.groups), Ge("sensitivity", declared.least)))
            return compile_part(inside, self.document_type)

        return self.engine.envelopes.get((declared.groups, declared.least), build)  # type: ignore[no-any-return]

    # --- in full --------------------------------------------------------------------------------------------------

    def _authorize(
        self, principal: Principal, action: str, things: Sequence[dict[str, Any]], context: Mapping[str, Any]
    ) -> list[Verdict]:
        """One batch; where Cedar refuses to read it, one by one, so that only the bad thing is denied."""
        if not things:
            return []
        try:
            return self._ask(principal, action, things, context)
        except ValueError:
            if len(things) == 1:
                return [Verdict(allowed=False, why="malformed")]
            return [self._authorize(principal, action, [thing], context)[0] for thing in things]

    def _ask(
        self, principal: Principal, action: str, things: Sequence[dict[str, Any]], context: Mapping[str, Any]
    ) -> list[Verdict]:
        import cedarpy

        entities = self._principal_entities(principal).with_added_json_str(json.dumps(things), self.engine.schema)
        who = {"type": f"{NAMESPACE}::{principal.kind}", "id": principal_id(principal)}
        what = {"type": f"{NAMESPACE}::Action", "id": action}
        requests = [{"principal": who, "action": what, "resource": thing["uid"], "context": context} for thing in things]
        results = cedarpy.is_authorized_batch(requests, self.engine.policies, entities, self.engine.schema)
        if len(results) != len(requests):
            raise ValueError("cedar answered another number of questions")
        return [_verdict(result, self.engine.ids) for result in results]

    def _principal_entities(self, principal: Principal) -> Any:
        import cedarpy

        def build() -> Any:
            attributes: dict[str, Any] = {"tenant": principal.tenant, "groups": principal.groups, **dict(principal.attributes)}
            entity = _entity(principal.kind, principal_id(principal), attributes)
            entity["parents"] = [{"type": f"{NAMESPACE}::Group", "id": group} for group in sorted(principal.groups)]
            try:
                return cedarpy.Entities.from_json_str(json.dumps([entity]), self.engine.schema)
            except ValueError as error:
                hint = "its claims do not fit the schema's User or Service"
                raise Refused("principal_malformed", "this identity cannot be judged by the policies", hint) from error

        return self.engine.entities.get(_exact(principal), build, _weight(principal))

    def _refuse_labels(self, source: str, labels: Labels) -> Verdict | None:
        """A deny without asking Cedar where a thing is not what its source says it is; None where Cedar decides."""
        declared = self.sources.get(source)
        if declared is None or labels.get(SOURCE_FIELD, source) != source:
            return Verdict(allowed=False, why="source_unknown")
        if labels.get("tenant") != declared.tenant:
            return Verdict(allowed=False, why="tenant_mismatch")
        if any("\0" in text for value in labels.values() for text in _texts(value)):
            return Verdict(allowed=False, why="malformed")
        groups, sensitivity = labels.get("groups"), labels.get("sensitivity")
        if isinstance(groups, frozenset) and not groups <= declared.groups:
            return Verdict(allowed=False, why="envelope")
        if type(sensitivity) is int and sensitivity < declared.least:
            return Verdict(allowed=False, why="envelope")
        return None


def to_day_ms(now: datetime) -> int:
    """`context.now`: the start of the UTC day, in epoch milliseconds."""
    if now.tzinfo is None:
        raise PolicyError("now_without_zone", "`now` has no time zone", "give an aware time")
    return (now - _EPOCH) // _DAY * 86_400_000


def principal_id(principal: Principal) -> str:
    """Opaque and safe in Cedar's surface syntax, which partial evaluation takes ids in."""
    return hashlib.sha256(f"{principal.kind}\0{principal.name}".encode()).hexdigest()[:32]


def _refused(error: PolicyError) -> Refused:
    if error.code == "filter_too_large":
        hint = "ask the policy owners: see `pointsman policies check`, and let the token carry fewer groups"
        return Refused("policy_too_large", "the policies make a filter for this identity that is too large to search under", hint)
    return Refused(error.code, error.message, error.hint)


def _exact(principal: Principal) -> Hashable:
    """The principal as a key; Python holds 1 and True for equal, a policy does not."""
    return principal, tuple(type(value) for _, value in principal.attributes)


def _weight(principal: Principal) -> int:
    """People with thousands of groups are remembered at the cost of many others."""
    return 1 + len(principal.groups) // 50


def _need_open_scope(residual: Mapping[str, Any]) -> None:
    if any(residual[part]["op"] != "All" for part in ("principal", "action", "resource")):
        raise PolicyError("residual_unknown", "a policy left its scope open", "report it; nothing was granted")


def _read(residual: Mapping[str, Any], entity: str) -> Open:
    _need_open_scope(residual)
    return read_residual(residual, entity)


def _members(tree: Open) -> list[Member]:
    if isinstance(tree.leaf, Member):
        return [tree.leaf]
    return [member for item in tree.items for member in _members(item)]


def _verdict(result: Any, ids: Mapping[str, str]) -> Verdict:
    policies = tuple(sorted(ids[position] for position in result.diagnostics.reasons))
    if result.diagnostics.errors:
        return Verdict(allowed=False, policies=policies, why="error")
    return Verdict(allowed=result.allowed, policies=policies)


_STORES_OWN = frozenset({SOURCE_FIELD, SINCE_FIELD, UNTIL_FIELD})


def _document(thing_id: str, source: str, labels: Labels) -> dict[str, Any]:
    entity = _entity("Document", thing_id, {name: value for name, value in labels.items() if name not in _STORES_OWN})
    entity["parents"] = [{"type": f"{NAMESPACE}::Source", "id": source}]
    return entity


def _entity(kind: str, thing_id: str, attributes: Mapping[str, Scalar | frozenset[str]]) -> dict[str, Any]:
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in attributes.items()}
    return {"uid": {"type": f"{NAMESPACE}::{kind}", "id": thing_id}, "attrs": plain, "parents": []}


def _texts(value: Scalar | frozenset[str]) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, frozenset) else (value,) if isinstance(value, str) else ()
