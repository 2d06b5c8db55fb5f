"""`policies test`: the reviewed cases, decided by the code that enforces, and which policies no case covers.

A case says that a person may or may not do something with a thing, and which policy decides. A document and a row are judged
twice, by the filter that searches or reads and by Cedar in full, a column by what is granted and by Cedar in full; that the two
agree is part of passing.

INVARIANT: a case passes only if decision and deciding policy are as written (tests/unit/test_review_cases.py).
INVARIANT: a row or a column that policy allows and nobody could reach fails its case (tests/unit/test_review_rows.py).
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from router.domain import CLASSES, ColumnGrant, Principal
from router.errors import PolicyError, Refused
from router.filters import Field, Scalar, matches
from router.identity import LATEST_S, map_claims
from router.policy import PolicySet, Verdict, load_policies
from router.policy.strict import Entry, Faults, decode, nearest, read_regular, top

COLUMNS = ["person", "action", "resource", "expected", "decided_by"]
COLUMN_ACTIONS = ("read_column", "read_masked", "filter_raw")
ACTIONS = ("search", "query", *COLUMN_ACTIONS, "audit", "explain_own", "disclose")
_CODE = "cases_malformed"
_COLUMNS_HINT = f"expected {len(COLUMNS)} columns: {','.join(COLUMNS)}; commas, not semicolons"
_PEOPLE_HINT = "write people.yaml beside identity.yaml: `people: { ada: { issuer: ..., sub: ada, ... } }`"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: `person` may (`allow`) or may not (`deny`) do `action` with `resource`; empty `decided_by` = no policy did."""

    file: str
    line: int
    person: str
    action: str
    resource: str
    expected: str
    decided_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case as decided. `policies` are those that decided; `problem` is empty when it passed."""

    case: Case
    got: str
    policies: tuple[str, ...]
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class CaseReport:
    """All cases; `uncovered` are the ids of policies that decide no case."""

    results: tuple[CaseResult, ...]
    uncovered: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return bool(self.results) and not self.uncovered and all(result.passed for result in self.results)


@dataclass(frozen=True, slots=True)
class Thing:
    """What a case speaks of: in the words of labels a Document of a source, a Decision, or a Provider with a context; a row of a
    dataset by its row attributes; a Column by its name. `source` is the dataset of a row or a column."""

    name: str
    kind: str
    source: str
    thing_id: str
    attributes: Mapping[str, Scalar | frozenset[str]]


def run_cases(folder: Path, now: datetime) -> CaseReport:
    """Decide every row of cases/*.csv. Raises `PolicyError` where folder or cases cannot be read."""
    policies = load_policies(folder)
    things = load_things(folder, policies)
    cases = load_cases(folder, policies, things)
    results = tuple(_run(case, policies, things[case.resource], now) for case in cases)
    deciding = {policy_id for result in results if result.passed for policy_id in result.policies}
    uncovered = tuple(sorted({statement.policy_id for statement in policies.statements} - deciding))
    return CaseReport(results, uncovered)


def _run(case: Case, policies: PolicySet, thing: Thing, now: datetime) -> CaseResult:
    try:
        principal = map_person(case.person, policies)
        verdict, problem = _decide(case.action, policies, principal, thing, now)
    except Refused as refusal:
        verdict, problem = Verdict(allowed=False, policies=(refusal.code,)), ""
    got = "allow" if verdict.allowed else "deny"
    return CaseResult(case, got, verdict.policies, problem or _compare(case, got, verdict))


def _compare(case: Case, got: str, verdict: Verdict) -> str:
    decided = ", ".join(verdict.policies) or "no policy"
    if verdict.why:
        return f"the thing cannot be judged ({verdict.why})"
    if got != case.expected:
        return f"expected {case.expected}, got {got}, decided by {decided}"
    if not case.decided_by and verdict.policies:
        return f"expected that no policy decides, but {decided} did"
    if missing := [policy_id for policy_id in case.decided_by if policy_id not in verdict.policies]:
        return f"expected to be decided by {', '.join(missing)}, but {decided} did"
    return ""


def map_person(name: str, policies: PolicySet) -> Principal:
    """The principal that the person's token would become."""
    claims = policies.people[name]
    return map_claims(claims["issuer"], {**claims, "exp": LATEST_S}, policies.issuers, policies.types)


def _decide(action: str, policies: PolicySet, principal: Principal, thing: Thing, now: datetime) -> tuple[Verdict, str]:
    if action == "disclose":
        context = thing.attributes
        purpose, sensitivity = str(context["purpose"]), int(context["class"])  # type: ignore[arg-type]
        return policies.may_disclose(principal, provider=thing.thing_id, purpose=purpose, sensitivity=sensitivity), ""
    if action in COLUMN_ACTIONS:
        return _decide_column(action, policies, principal, thing, now)
    if action == "query":
        return _decide_row(policies, principal, thing, now)
    if action != "search":
        return policies.authorize(principal, now, action, tenant=str(thing.attributes["tenant"])), ""
    verdict = policies.recheck(principal, now, [(thing.source, thing.name, thing.attributes)])[0]
    grants = {grant.source: grant.filter for grant in policies.grants(principal, now).search}
    found = thing.source in grants and matches(grants[thing.source], thing.attributes)
    if found != verdict.allowed:
        return verdict, f"the filter {'admits' if found else 'hides'} what Cedar in full {'denies' if found else 'allows'}"
    return verdict, ""


def _decide_row(policies: PolicySet, principal: Principal, thing: Thing, now: datetime) -> tuple[Verdict, str]:
    verdict = policies.judge_rows(principal, now, thing.source, [thing.attributes])[0]
    grant = next((grant for grant in policies.grants(principal, now).query if grant.name == thing.source), None)
    if grant is None:
        columns = policies.judge_columns(principal, now, thing.source)
        reached = any(columns[name, "read_column"] or columns[name, "read_masked"] for name, _ in columns)
        problem = "the rows may be read, but no column of them" if not reached else "no filter admits what Cedar in full allows"
        return verdict, problem if verdict else ""
    found = matches(grant.filter, thing.attributes)
    if found != verdict.allowed:
        return verdict, f"the filter {'admits' if found else 'hides'} what Cedar in full {'denies' if found else 'allows'}"
    return verdict, ""


def _decide_column(action: str, policies: PolicySet, principal: Principal, thing: Thing, now: datetime) -> tuple[Verdict, str]:
    judged = policies.judge_columns(principal, now, thing.source)
    may = {asked: judged[thing.thing_id, asked].allowed for asked in COLUMN_ACTIONS}
    verdict = judged[thing.thing_id, action]
    facts = policies.datasets[thing.source].column(thing.thing_id)
    assert facts is not None
    if action == "read_masked" and verdict and facts.mask is None and not may["read_column"]:
        return verdict, "it may be read masked, but governance.yaml gives it no mask, so it exists for nobody like that"
    grant = next((grant for grant in policies.grants(principal, now).query if grant.name == thing.source), None)
    if grant is None:
        return verdict, ""  # no row of the table is theirs, so no column is asked for
    wanted = wanted_column(facts.name, facts.mask, may)
    granted = next((column for column in grant.columns if column.name == facts.name), None)
    if granted != wanted:
        return verdict, f"Cedar in full says {_as_words(wanted)}, and granted is {_as_words(granted)}"
    return verdict, ""


def wanted_column(name: str, mask: str | None, may: Mapping[str, bool]) -> ColumnGrant | None:
    """What a grant has to say of a column, given Cedar's three verdicts: reading raw wins, and without a mask nothing is masked."""
    if may["read_column"]:
        return ColumnGrant(name)
    return ColumnGrant(name, mask, may["filter_raw"]) if may["read_masked"] and mask is not None else None


def _as_words(column: ColumnGrant | None) -> str:
    if column is None:
        return "nothing"
    if column.mask is None:
        return "the column"
    return "its mask, and the raw value in predicates" if column.filter_raw else "its mask"


# --- reading ----------------------------------------------------------------------------------------------------------


def load_things(folder: Path, policies: PolicySet) -> dict[str, Thing]:
    """The things of cases/things.yaml by name; raises `PolicyError` for the first thing wrong."""
    faults = Faults()
    file = "cases/things.yaml"
    body = _read(folder / file, file, faults)
    entry = None if body is None else top({file: body}, file, faults)
    things: dict[str, Thing] = {}
    if entry is not None:
        entry.only(("things",))
        section = entry.child("things")
        things = section.children(lambda name, child: _thing(name, child, policies)) if section else {}
    faults.refuse()
    return things


def _read(path: Path, file: str, faults: Faults) -> bytes | None:
    try:
        return read_regular(path)
    except OSError as error:
        faults.add(_CODE, file, 0, f"the file cannot be read ({error.strerror})", "restore it from review")
        return None


def _thing(name: str, entry: Entry, policies: PolicySet) -> Thing | None:
    kind = entry.text("type")
    match kind:
        case "Document":
            entry.only(("type", "source", "attributes"))
            source = policies.sources.get(entry.text("source"))
            if source is None:
                entry.fault(
                    "source",
                    f"has the source `{entry.body.get('source')}`",
                    nearest(str(entry.body.get("source")), policies.sources),
                )
                return None
            fields = {name: spec for name, spec in policies.document_type.fields.items() if name != "tenant"}
            attributes = _attributes(entry.child("attributes"), fields)
            return Thing(name, kind, source.name, name, {**attributes, "tenant": source.tenant})
        case "Decision":
            entry.only(("type", "attributes"))
            return Thing(name, kind, "", name, _attributes(entry.child("attributes"), policies.types["Decision"].fields))
        case "Provider":
            entry.only(("type", "id", "context"))
            fields = {"purpose": Field("string", required=True), "class": Field("long", required=True)}
            return Thing(name, kind, "", entry.text("id"), _attributes(entry.child("context"), fields))
        case "Column":
            return _column(name, entry, policies)
    if kind in policies.datasets:
        entry.only(("type", "attributes"))
        return Thing(name, kind, kind, name, _attributes(entry.child("attributes"), policies.types[kind].fields))
    entry.fault(
        "type", f"has the type `{kind}`", nearest(kind, ("Document", "Decision", "Provider", "Column", *policies.datasets))
    )
    return None


def _column(name: str, entry: Entry, policies: PolicySet) -> Thing | None:
    """Named and no more: its tags are those of governance.yaml, its tenant is that of whoever asks."""
    entry.only(("type", "dataset", "column"))
    dataset, column = entry.text("dataset"), entry.text("column")
    facts = policies.datasets.get(dataset)
    if facts is None:
        entry.fault("dataset", f"has the dataset `{dataset}`", nearest(dataset, policies.datasets))
        return None
    found = facts.column(column)
    if found is None:
        entry.fault("column", f"has the column `{column}`", nearest(column, [known.name for known in facts.columns]))
        return None
    return Thing(name, "Column", dataset, found.name, {})


def _attributes(entry: Entry | None, fields: Mapping[str, Field]) -> dict[str, Scalar | frozenset[str]]:
    if entry is None:
        return {}
    entry.only(fields)
    found: dict[str, Scalar | frozenset[str]] = {}
    for name, spec in fields.items():
        if name in entry.body:
            value = _value(name, spec, entry.body[name])
            if value is None:
                entry.fault(name, f"has a `{name}` that is not a {spec.kind}", "write it as labels.yaml would")
            else:
                found[name] = value
        elif spec.required:
            entry.fault(name, f"lacks `{name}`", "every required attribute must be there")
    return found


def _value(name: str, spec: Field, value: Any) -> Scalar | frozenset[str] | None:
    """A label as people write it: class names and dates become numbers, text is in NFC."""
    if isinstance(value, str):
        value = unicodedata.normalize("NFC", value)
    if spec.kind == "set":
        texts = value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None
        return None if texts is None else frozenset(unicodedata.normalize("NFC", item) for item in texts)
    if spec.kind == "long" and isinstance(value, str):
        if name in ("sensitivity", "class"):
            return CLASSES.index(value) if value in CLASSES else None
        try:
            day = date.fromisoformat(value)
        except ValueError:
            return None
        return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
    kind = {"string": str, "long": int, "bool": bool}[spec.kind]
    return kind(value) if type(value) is kind else None


def load_cases(folder: Path, policies: PolicySet, things: Mapping[str, Thing]) -> list[Case]:
    """Every row of cases/*.csv; raises `PolicyError` that names every row which cannot be read."""
    cases: list[Case] = []
    faults = Faults()
    for path in sorted((folder / "cases").glob("*.csv")):
        file = f"cases/{path.name}"
        body = _read(path, file, faults)
        text = None if body is None else decode({file: body}, file, faults)
        if text is not None:
            cases += _rows(file, text, policies, things, faults)
    if (cases or faults.items) and "people.yaml" not in policies.raw:
        raise PolicyError(_CODE, "people.yaml: the file is missing, and the cases speak of its people", _PEOPLE_HINT)
    if faults.items:
        said = "; ".join(f"{fault.where}: {fault.message}" for fault in faults.items)
        raise PolicyError(_CODE, said, faults.items[0].hint)
    if not cases:
        raise PolicyError(_CODE, "cases: there is no case", _COLUMNS_HINT)
    return cases


def _rows(file: str, text: str, policies: PolicySet, things: Mapping[str, Thing], faults: Faults) -> list[Case]:
    cases: list[Case] = []
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            if rows.line_num == 1:
                if [cell.strip() for cell in row] != COLUMNS:
                    faults.add(_CODE, file, 1, f"the first line is not {','.join(COLUMNS)}", _COLUMNS_HINT)
                    return []
            elif row and not row[0].startswith("#"):
                case = Case(file, rows.line_num, *_cells(row), tuple(row[-1].split()))
                if problem := _problem(case, row, policies, things):
                    faults.add(_CODE, file, case.line, *problem)
                else:
                    cases.append(case)
    except csv.Error as error:
        faults.add(_CODE, file, rows.line_num, str(error), _COLUMNS_HINT)
    return cases


def _cells(row: Sequence[str]) -> tuple[str, str, str, str]:
    """The first four cells; a row of another length is the problem of `_problem`."""
    first, second, third, fourth = [*(cell.strip() for cell in row), "", "", "", ""][:4]
    return first, second, third, fourth


def _problem(case: Case, row: Sequence[str], policies: PolicySet, things: Mapping[str, Thing]) -> tuple[str, str] | None:
    """What is wrong with a row, and what to do."""
    if len(row) != len(COLUMNS):
        return f"the row has {len(row)} column{'s' * (len(row) != 1)}", _COLUMNS_HINT
    if case.person not in policies.people:
        return f"nobody is called `{case.person}`", nearest(case.person, policies.people)
    if case.action not in ACTIONS:
        return f"`{case.action}` is no action of a case", nearest(case.action, ACTIONS)
    if case.resource not in things:
        return f"nothing is called `{case.resource}`", nearest(case.resource, things)
    thing = things[case.resource]
    wanted = {"search": "Document", "query": "row", "disclose": "Provider", **dict.fromkeys(COLUMN_ACTIONS, "Column")}
    kind = "row" if thing.kind in policies.datasets else thing.kind
    if kind != (needed := wanted.get(case.action, "Decision")):
        return f"`{case.action}` is asked of a {kind}", f"it is for a {needed}"
    if case.expected not in ("allow", "deny"):
        return f"`{case.expected}` is neither allow nor deny", "write `allow` or `deny`"
    return None
