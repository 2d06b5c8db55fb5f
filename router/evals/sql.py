"""`eval sql`: hostile and honest texts for every person, against physical copies of what that person may see.

A text that must be accepted answers as it does on a database that holds only the granted rows and columns, in the same order as far
as it asks for one; one that must be rejected leaves a code. No worker takes more time or memory than it may. The policy folder is
the given one, through the same loading, tokens, grants, gate and workers as ever; only the state folder, and with it the
development issuer's key, is thrown away.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from router.app import Router, make_development_issuer, make_tables, open_copies, open_tables, read_relations
from router.config import parse_settings
from router.domain import SqlLimits, TableGrant
from router.errors import PointsmanError, Refused, UsageError
from router.ports import SqlEngine

OVER_S = 0.6
"""How long after its limit a statement may still be there."""
DEADLINE_S = 60.0


class Measured(SqlEngine, Protocol):
    """An engine that knows how much memory its workers took, and how much none may take."""

    @property
    def grown_mb(self) -> int: ...
    @property
    def cap_mb(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Case:
    number: str
    text: str
    accept: bool


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    tenant: str
    grants: tuple[TableGrant, ...]


@dataclass(slots=True)
class SqlReport:
    """Ids of cases, each once, in order. `rejected` and `accepted` count the cases that went so for every person."""

    cases: int
    people: int
    rejected: int = 0
    accepted: int = 0
    leaks: list[str] = field(default_factory=list)
    false_refusals: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    limits_broken: list[str] = field(default_factory=list)
    gate_s: list[float] = field(default_factory=list)
    worker_s: list[float] = field(default_factory=list)
    ordered: set[str] = field(default_factory=set)
    memory_mb: int = 0
    cap_mb: int = 0

    @property
    def sound(self) -> bool:
        return not (self.leaks or self.false_refusals or self.mismatches or self.limits_broken)

    def as_json(self) -> dict[str, Any]:
        lists = {name: getattr(self, name) for name in ("leaks", "false_refusals", "mismatches", "limits_broken")}
        counts = {name: getattr(self, name) for name in ("cases", "people", "rejected", "accepted")}
        memory = {"ordered": len(self.ordered), "memory_mb": self.memory_mb, "memory_cap_mb": self.cap_mb}
        return counts | lists | memory | {"gate_ms": _spread(self.gate_s), "worker_ms": _spread(self.worker_s)}


def run_sql(database: Path, policies: Path, cases_file: Path, progress: Callable[[int, int], None] | None = None) -> SqlReport:
    """Every case for every person in the folder's people.yaml. Raises `UsageError` and `PolicyError` before anything is run."""
    cases = load_cases(cases_file)
    with tempfile.TemporaryDirectory(prefix="pointsman-eval-") as place:
        people = _people(policies, Path(place))
        served = _database(database, Path(place))
        report = SqlReport(len(cases), len(people))
        with open_tables(served) as engine:
            engine.warm()
            with _copies(served, people) as copies:
                for at, case in enumerate(cases, 1):
                    _judge(case, people, engine, copies, report)
                    if progress is not None:
                        progress(at, len(cases))
    return report


def load_cases(path: Path) -> list[Case]:
    cases: list[Case] = []
    try:
        for line in path.read_text(encoding="utf-8-sig").split("\n"):  # a text may hold other ends of lines
            if line.strip():
                row = json.loads(line)
                if row["must"] not in ("accept", "reject"):
                    raise ValueError(row["must"])
                cases.append(Case(str(row["id"]), str(row["sql"]), row["must"] == "accept"))
    except OSError:
        raise UsageError("cases_missing", f"the cases `{path}` cannot be read", "name a file of JSON lines") from None
    except (ValueError, KeyError, TypeError) as error:
        message = f"line {len(cases) + 1} of `{path}` is no case ({type(error).__name__})"
        raise UsageError("cases_malformed", message, "each line has `id`, `sql` and `must`, which is accept or reject") from None
    if not cases or len({case.number for case in cases}) < len(cases):
        raise UsageError("cases_malformed", f"`{path}` holds no case, or an id twice", "each line has an `id` of its own")
    return cases


def _people(folder: Path, place: Path) -> list[Person]:
    """Who they are is taken from verified tokens, as at every door."""
    settings = parse_settings({"policies": str(folder.absolute()), "state": str(place / "state")}, place)
    make_development_issuer(settings)
    people = []
    with Router(settings) as router:
        policies = router.policies.current()
        if not policies.people or not policies.datasets:
            raise UsageError("nobody_to_judge", f"`{folder}` names no people or no datasets", "see people.yaml, governance.yaml")
        for name in policies.people:
            principal = router.whoami(router.mint(name))
            people.append(Person(name, principal.tenant, policies.grants(principal, datetime.now(UTC)).query))
    return people


def _database(path: Path, place: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            "database_missing", f"there is no database `{path}`", "name a .duckdb file, or a .sql script that makes one"
        )
    if path.suffix != ".sql":
        read_relations(str(path))  # says in its own words what is wrong with the file
        return path
    made = place / "tables.duckdb"
    try:
        make_tables(path.read_text(encoding="utf-8-sig"), made)
    except UnicodeDecodeError:
        raise UsageError("script_malformed", f"the script `{path}` is not UTF-8", "save it as UTF-8") from None
    except OSError:
        raise UsageError("database_missing", f"the script `{path}` cannot be read", "may this user read it") from None
    return made


@contextmanager
def _copies(database: Path, people: Sequence[Person]) -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {}
    try:
        for person in people:
            made[person.name] = open_copies(database, person.grants)
        yield made
    finally:
        for copy in made.values():
            copy.close()


# --- one case ---------------------------------------------------------------------------------------------------------


def _judge(case: Case, people: Sequence[Person], engine: Measured, copies: dict[str, Any], report: SqlReport) -> None:
    found: set[str] = set()
    for person in people:
        found |= _judge_for(case, person, engine, copies[person.name], report)
    before, report.memory_mb, report.cap_mb = report.memory_mb, engine.grown_mb, engine.cap_mb
    if report.memory_mb > max(before, report.cap_mb):  # a peak is the case's that first reached it
        found.add("limits_broken")
    for name in ("leaks", "false_refusals", "mismatches", "limits_broken"):
        if name in found:
            getattr(report, name).append(case.number)
    report.accepted += found == {"accepted"}
    report.rejected += found == {"rejected"}


def _judge_for(case: Case, person: Person, engine: SqlEngine, copies: Any, report: SqlReport) -> set[str]:
    """What became of one text for one person."""
    limits, today = SqlLimits(), datetime.now(UTC).date()
    found: set[str] = set()
    began = time.perf_counter()
    try:
        table = engine.run_governed(
            case.text, person.grants, tenant=person.tenant, today=today, limits=limits, deadline_s=DEADLINE_S
        )
    except PointsmanError as error:
        # Only a refusal is an answer; a worker that was lost broke a bound that should have held.
        found.add("rejected" if isinstance(error, Refused) else "limits_broken")
        if case.accept:
            found.add("false_refusals")
        took_s = time.perf_counter() - began
    else:
        took_s = time.perf_counter() - began
        found.add("accepted")
        if not case.accept:
            found.add("leaks")
        else:
            ordered = ordered_columns(case.text, [column.name for column in table.columns])
            report.ordered |= {case.number} if ordered else set()
            if not _equal(table.rows, case.text, copies, ordered, truncated=table.truncated):
                found.add("mismatches")
        if len(table.rows) > limits.max_rows:
            found.add("limits_broken")
    if took_s > limits.timeout_s + OVER_S:
        found.add("limits_broken")
    if case.accept and "accepted" in found:
        report.worker_s.append(took_s)
        began = time.perf_counter()
        try:
            engine.check(case.text, person.grants, tenant=person.tenant, today=today, limits=limits, deadline_s=DEADLINE_S)
        except PointsmanError:
            found.add("limits_broken")
        report.gate_s.append(time.perf_counter() - began)
    return found


def _equal(rows: Sequence[Sequence[Any]], text: str, copies: Any, ordered: Sequence[int], *, truncated: bool) -> bool:
    """As multisets, floats to nine digits, and in one sequence of whatever the text sorts by: where that is a key, of the rows."""
    try:
        whole = copies.run(text)
    except ValueError:
        return False
    found, wanted = Counter(map(_key, rows)), Counter(map(_key, whole))
    if not (found <= wanted if truncated else found == wanted):
        return False
    return all(
        _key(row[at] for at in ordered) == _key(other[at] for at in ordered) for row, other in zip(rows, whole, strict=False)
    )


def ordered_columns(text: str, columns: Sequence[str]) -> tuple[int, ...]:
    """Positions of the output columns that the text sorts by, the first first, up to the first term that is none of them."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(text, read="duckdb")
    except (SqlglotError, RecursionError):
        return ()
    order = tree.args.get("order")
    found: list[int] = []
    for term in order.expressions if isinstance(order, exp.Order) else ():
        wanted = term.this
        if isinstance(wanted, exp.Var) and wanted.name.upper() == "ALL":
            return tuple(range(len(columns)))
        at = _position(wanted, tree, columns)
        if at is None:
            break
        found.append(at)
    return tuple(found)


def _position(wanted: Any, tree: Any, columns: Sequence[str]) -> int | None:
    from sqlglot import exp

    if isinstance(wanted, exp.Literal) and not wanted.is_string:
        at = int(wanted.this) - 1 if wanted.this.isdigit() else -1
        return at if 0 <= at < len(columns) else None
    if not isinstance(wanted, exp.Column):
        return None
    if not wanted.table:  # an output column comes before one of the tables
        same = [at for at, name in enumerate(columns) if name.lower() == wanted.name.lower()]
        return same[0] if len(same) == 1 else None
    shown = list(tree.selects)
    if len(shown) != len(columns):
        return None
    return next((at for at, one in enumerate(shown) if one.unalias() == wanted), None)


def _key(row: Iterable[Any]) -> str:
    return json.dumps(_rounded(list(row)), sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2) if ordered else 0.0
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
