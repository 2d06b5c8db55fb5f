"""Tables in DuckDB: governed rows from processes that can be killed.

The parent hands a text and the caller's grants to one of a few warm workers. A worker holds one snapshot, locked down, and runs
the gate itself; what comes back is JSON. Nothing that a text does can cost more than its worker: DuckDB says of itself that it
has no inner borders, that its memory limit does not count every string and its clock does not stop every function.

The file is longer than most because both ends of one pipe, the lock-down and the lowering of filters change together.

INVARIANT: a statement is over after its limit and half a second, whatever it does, and its worker's memory is bounded
(tests/sql/test_worker.py::test_bombs_end_in_time, ::test_memory_is_bounded).
INVARIANT: a worker that is killed costs its caller a code and nobody else anything
(tests/sql/test_worker.py::test_killed_worker_costs_its_caller_only).
INVARIANT: no state of a connection survives a statement (tests/sql/test_worker.py::test_nothing_survives_a_statement).
INVARIANT: nothing that a worker sends is unpickled, and no text of the engine leaves it
(tests/sql/test_worker.py::test_errors_are_codes).
INVARIANT: a row filter is lowered as the reference evaluator judges (tests/sql/test_lowering.py::test_agrees_with_the_reference).
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import duckdb

from router.domain import ColumnGrant, SqlLimits, Table, TableColumn, TableGrant, Verdict
from router.errors import PointsmanError, Refused, SourceError, UsageError
from router.filters import Always, And, Eq, Filter, Ge, Gt, Has, In, Kind, Le, Like, Lt, Never, Not, Or, Overlaps, Within
from router.forked import confine, start_without_main

Mode = Literal["views", "copies"]
_Op = Literal["check", "bind", "run"]
"""What is asked of a worker: the gate alone; names and types of columns too, without a row; the rows."""
SERVED = "served"
"""The catalogue of the snapshot inside a worker: never `main`'s own, so that no unqualified name reaches it."""

RECYCLE_AFTER = 1_000
_GRACE_S = 0.4  # then SIGKILL: a process of some hundred MB takes a tenth of a second to die
_LONG_S = 0.25
_START_S = 20.0
_BESIDE_MB = 512  # beside the engine's own memory limit: both parsers' trees, and what that limit does not count
_AMONG_S = 60.0
_FETCH = 1_000
_RECURSION = 5_000  # sqlglot takes a dozen frames for one level of nesting, and the gate allows 64 levels


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's functions, each found by its name inside the worker (`router/sql/gate.py`; connectors do not import it)."""

    check_text: Callable[[str, SqlLimits], None]
    check_versions: Callable[[Any], None]
    govern: Callable[..., Any]
    refuse: Callable[[str], Refused]


# --- row filters ------------------------------------------------------------------------------------------------------


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def lower_filter(f: Filter, attributes: Mapping[str, tuple[str, Kind]]) -> str:
    """DuckDB SQL of two values: what is NULL is not true, and its negation is. Literals are typed as their attribute is."""

    def expr(name: str) -> str:
        return f"({attributes[name][0]})"

    def texts(values: Iterator[str] | Sequence[str]) -> str:
        return "[" + ", ".join(quote_text(value) for value in sorted(values)) + "]::VARCHAR[]"

    match f:
        case Always():
            return "TRUE"
        case Never():
            return "FALSE"
        case And(items):
            return _joined("AND", [lower_filter(item, attributes) for item in items]) if items else "TRUE"
        case Or(items):
            return _joined("OR", [lower_filter(item, attributes) for item in items]) if items else "FALSE"
        case Not(item):
            return f"(({lower_filter(item, attributes)}) IS NOT TRUE)"
        case Has(name):
            return "TRUE" if attributes[name][1] == "set" else f"({expr(name)} IS NOT NULL)"
        case Eq(name, value):
            return f"({expr(name)} = {_literal(value)})"
        case In(name, values):
            return f"({expr(name)} IN ({', '.join(sorted(map(_literal, values)))}))" if values else "FALSE"
        case Lt(name, bound):
            return f"({expr(name)} < {_literal(bound)})"
        case Le(name, bound):
            return f"({expr(name)} <= {_literal(bound)})"
        case Gt(name, bound):
            return f"({expr(name)} > {_literal(bound)})"
        case Ge(name, bound):
            return f"({expr(name)} >= {_literal(bound)})"
        case Overlaps(name, strings):
            return f"(list_has_any({expr(name)}, {texts(tuple(strings))}) IS TRUE)"
        case Within(name, strings):
            return f"(list_has_all({texts(tuple(strings))}, coalesce({expr(name)}, [])))"
        case Like(name, parts):
            pattern = "%".join(part.replace("!", "!!").replace("%", "!%").replace("_", "!_") for part in parts)
            return f"({expr(name)} LIKE {quote_text(pattern)} ESCAPE '!')"


def _literal(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return f"({value})::BIGINT" if isinstance(value, int) else f"{quote_text(value)}::VARCHAR"


def _joined(joint: str, terms: list[str]) -> str:
    """The engine bounds the depth of an expression: halve long chains."""
    if len(terms) <= 8:
        return "(" + f" {joint} ".join(terms) + ")"
    middle = len(terms) // 2
    return f"({_joined(joint, terms[:middle])} {joint} {_joined(joint, terms[middle:])})"


_TYPES_OF: dict[Kind, frozenset[str]] = {
    "string": frozenset({"VARCHAR"}),
    "long": frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}),
    "bool": frozenset({"BOOLEAN"}),
    "set": frozenset({"VARCHAR[]"}),
}


def relation_name(grant: TableGrant, catalog: str = SERVED) -> str:
    return ".".join(quote_name(part) for part in (catalog, *_two(grant.relation)))


def _two(relation: str) -> tuple[str, str]:
    schema, _, name = relation.rpartition(".")
    return schema or "main", name


RAW_PREFIX = "pointsman_raw_"
"""As in the gate's rewriting: what a predicate may see of a masked column, and no sub-query projects."""


def governed_select(grant: TableGrant, catalog: str = SERVED, *, raw: bool = True) -> str:
    """The rows and columns of one grant: the filter sees the raw row, whatever a mask is called. With `raw`, also the raw values
    that predicates may see."""
    attributes = {name: (expression, kind) for name, expression, kind in grant.attributes}
    kept = [_column(column) for column in grant.columns]
    seen = [column.name for column in grant.columns if raw and column.mask is not None and column.filter_raw]
    columns = ", ".join(kept + [f"{quote_name(name)} AS {quote_name(RAW_PREFIX + name.lower())}" for name in seen])
    return f"SELECT {columns} FROM (SELECT * FROM {relation_name(grant, catalog)} WHERE {lower_filter(grant.filter, attributes)})"


def _column(column: ColumnGrant) -> str:
    return quote_name(column.name) if column.mask is None else f"({column.mask}) AS {quote_name(column.name)}"


# --- the parent -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """What a worker is started with: one snapshot, its limits, and in mode `copies` the only grants it will ever serve."""

    database: str
    gate: Gate
    limits: SqlLimits
    copies: bytes | None


@dataclass(slots=True, eq=False)
class _Worker:
    process: Any
    pipe: Connection
    database: str
    copies: bytes | None
    base_kb: int = 0
    served: bytes = b""
    done: int = 0
    worn: bool = False

    def grown_kb(self) -> int:
        """The most that it has held beyond what it held when it was ready, as the system counts it; 0 once it is gone."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
            return int(status.split("VmHWM:")[1].split()[0]) - self.base_kb
        return 0

    def kill(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.pipe.close()
        with contextlib.suppress(ValueError):
            self.process.kill()
            self.process.join()  # and not closed: the interpreter joins what it knows at exit, on another thread than this


@dataclass(slots=True, eq=False)
class _Ticket:
    tenant: str
    ready: threading.Event = field(default_factory=threading.Event)


class DuckTables:
    """The port `SqlEngine` over snapshots of one database. Thread-safe. `database` names the current snapshot: when it names
    another, new workers are started on it and the old ones end after the statement they are in."""

    def __init__(
        self,
        gate: Gate,
        database: Path | str | Callable[[], Path | str],
        *,
        limits: SqlLimits | None = None,
        workers: int = 4,
        mode: Mode = "views",
        recycle_after: int = RECYCLE_AFTER,
    ) -> None:
        if sys.platform != "linux":
            raise SourceError(
                "sql_off", "tables are served on Linux only", "run this part on Linux: elsewhere a worker cannot be confined"
            )
        self._gate = gate
        self._database = database if callable(database) else lambda: database
        self._limits = limits or SqlLimits()
        self._workers = workers
        self._mode = mode
        self._recycle_after = recycle_after
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._running: dict[str, int] = {}
        self._waiting: deque[_Ticket] = deque()
        self._asked_at: dict[str, float] = {}
        self._grown_kb = 0
        self._closed = False

    # the port

    def run_governed(
        self,
        text: str,
        grants: tuple[TableGrant, ...],
        *,
        tenant: str,
        today: date,
        limits: SqlLimits,
        deadline_s: float,
        compiled: bool = False,
        judged: Callable[[Verdict], None] = lambda _: None,
    ) -> Table:
        reply = self._ask("run", text, grants, tenant, today, limits, deadline_s, compiled, judged)
        try:
            columns = tuple(TableColumn(str(name), str(kind), bool(masked)) for name, kind, masked in reply["columns"])
            rows = tuple(tuple(row) for row in reply["rows"])
            return Table(columns, rows, bool(reply["truncated"]), text, str(reply["generated"]))
        except (KeyError, TypeError, ValueError):
            raise _lost() from None

    def check(
        self,
        text: str,
        grants: tuple[TableGrant, ...],
        *,
        tenant: str,
        today: date,
        limits: SqlLimits,
        deadline_s: float,
        compiled: bool = False,
        bound: bool = False,
    ) -> Verdict:
        told = Verdict("", "")

        def judged(verdict: Verdict) -> None:
            nonlocal told
            told = verdict

        try:
            self._ask("bind" if bound else "check", text, grants, tenant, today, limits, deadline_s, compiled, judged)
        except Refused as refusal:
            return replace(told, code=refusal.code, reason=refusal.message)
        return told

    @property
    def grown_mb(self) -> int:
        """The most memory that any worker took for statements so far; `cap_mb` is what none may take."""
        with self._lock:
            self._grown_kb = max([self._grown_kb, *(worker.grown_kb() for worker in self._all)])
            return self._grown_kb >> 10

    @property
    def cap_mb(self) -> int:
        return self._limits.memory_mb + _BESIDE_MB

    def warm(self) -> None:
        """Start every worker now; the first statements then wait for none."""
        if self._mode == "views":
            while self._refill():
                pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers, self._idle = list(self._all), []
            self._all.clear()
        for worker in workers:
            self._retire(worker)

    def __enter__(self) -> DuckTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _retire(self, worker: _Worker) -> None:
        self._grown_kb = max(self._grown_kb, worker.grown_kb())
        worker.kill()

    # one statement

    def _ask(
        self,
        op: _Op,
        text: str,
        grants: tuple[TableGrant, ...],
        tenant: str,
        today: date,
        limits: SqlLimits,
        deadline_s: float,
        compiled: bool,
        judged: Callable[[Verdict], None],
    ) -> dict[str, Any]:
        """The last reply of a worker. `judged` hears first what the gate let through, whatever becomes of it afterwards."""
        self._gate.check_text(text, limits)
        until, cut = time.monotonic() + deadline_s, False
        served = pickle.dumps(grants, protocol=5)
        with self._slot(tenant, until):
            worker = self._take(served)
            try:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise _busy()
                cut = left_s < limits.timeout_s
                reply = self._talk(worker, op, text, served, today, limits, min(limits.timeout_s, left_s), compiled, judged)
            except BaseException as error:
                worker.worn = True  # whatever it is doing now, nobody waits for it
                if cut and isinstance(error, Refused) and error.code == _TIME:
                    raise _late() from None
                raise
            finally:
                self._give_back(worker)
        if "code" in reply:
            raise _late() if cut and reply["code"] == _TIME else self._error(str(reply["code"]))
        return reply

    def _talk(
        self,
        worker: _Worker,
        op: _Op,
        text: str,
        served: bytes,
        today: date,
        limits: SqlLimits,
        time_s: float,
        compiled: bool,
        judged: Callable[[Verdict], None],
    ) -> dict[str, Any]:
        request = pickle.dumps((op, text, served, today, limits, time_s, compiled), protocol=5)
        worker.served, worker.done = served, worker.done + 1
        began = time.monotonic()
        try:
            worker.pipe.send_bytes(request)
        except (OSError, ValueError):
            raise self._ended(worker) from None
        reply = self._hear(worker, began, time_s)
        if "code" not in reply:
            judged(_verdict(reply))
            if op != "check":
                reply = self._hear(worker, began, time_s)
        if reply.get("code") == "sql_limit_memory":
            worker.worn = True
        return reply

    def _hear(self, worker: _Worker, began: float, time_s: float) -> dict[str, Any]:
        """The next reply to what was sent at `began` and may take `time_s` in all."""

        def left_s(whole_s: float) -> float:
            return max(0.0, began + whole_s - time.monotonic())

        try:
            if not worker.pipe.poll(left_s(min(_LONG_S, time_s))):
                self._demote(worker)
                if not worker.pipe.poll(left_s(time_s) + _GRACE_S):
                    self._retire(worker)
                    raise self._gate.refuse("sql_limit_time")
            reply = json.loads(worker.pipe.recv_bytes())
        except (OSError, EOFError, ValueError):
            raise self._ended(worker) from None
        if not isinstance(reply, dict):
            raise self._ended(worker)
        return reply

    def _demote(self, worker: _Worker) -> None:
        """A long statement makes way for short ones; the process is not used again, since priority is not given back."""
        worker.worn = True
        with contextlib.suppress(OSError, ValueError):
            os.setpriority(os.PRIO_PROCESS, worker.process.pid, 10)

    def _ended(self, worker: _Worker) -> PointsmanError:
        """What became of a worker that no longer answers."""
        code = None
        with contextlib.suppress(ValueError):
            worker.process.join(_GRACE_S)
            code = worker.process.exitcode
        worker.worn = True
        if code == -signal.SIGXCPU:
            return self._gate.refuse("sql_limit_time")
        if code == -signal.SIGABRT:  # an allocation that failed where the engine cannot catch it
            return self._gate.refuse("sql_limit_memory")
        return _lost()

    def _error(self, code: str) -> PointsmanError:
        if code in _FAULTS:
            return SourceError(code, *_FAULTS[code])
        try:
            return self._gate.refuse(code)
        except KeyError:
            return _lost()

    # who gets a worker: tenants in turn, none more than half of them while others ask

    @contextlib.contextmanager
    def _slot(self, tenant: str, until: float) -> Iterator[None]:
        ticket = _Ticket(tenant)
        with self._lock:
            self._asked_at[tenant] = time.monotonic()
            self._waiting.append(ticket)
            self._admit()
        try:
            if not ticket.ready.wait(max(0.0, until - time.monotonic())):
                raise _busy()
            yield
        finally:
            with self._lock:
                if ticket.ready.is_set():
                    self._running[tenant] -= 1
                    if not self._running[tenant]:
                        del self._running[tenant]
                else:
                    self._waiting.remove(ticket)
                self._admit()

    def _admit(self) -> None:
        now = time.monotonic()
        if len(self._asked_at) > 1:
            self._asked_at = {tenant: at for tenant, at in self._asked_at.items() if now - at < _AMONG_S}
        most = max(1, self._workers // 2) if len(self._asked_at) > 1 else self._workers
        while sum(self._running.values()) < self._workers:
            fit = [ticket for ticket in self._waiting if self._running.get(ticket.tenant, 0) < most]
            if not fit:
                return
            ticket = min(fit, key=lambda ticket: self._running.get(ticket.tenant, 0))  # the first of the tenant with fewest
            self._waiting.remove(ticket)
            self._running[ticket.tenant] = self._running.get(ticket.tenant, 0) + 1
            ticket.ready.set()

    def _take(self, served: bytes) -> _Worker:
        database, copies = str(self._database()), served if self._mode == "copies" else None
        with self._lock:
            if self._closed:
                raise SourceError("sql_closed", "the tables are closed")
            stale = [worker for worker in self._idle if worker.database != database]
            fit = [worker for worker in self._idle if worker.database == database and worker.copies == copies]
            chosen = next((worker for worker in reversed(fit) if worker.served == served), fit[-1] if fit else None)
            if chosen is None and not stale and len(self._all) >= self._workers and self._idle:
                stale = [self._idle[0]]  # copies for somebody else
            for worker in stale:
                self._idle.remove(worker)
                self._all.discard(worker)
            if chosen is not None:
                self._idle.remove(chosen)
        for worker in stale:
            self._retire(worker)
        return chosen or self._start(database, copies)

    def _give_back(self, worker: _Worker) -> None:
        worn = worker.worn or worker.done >= self._recycle_after or worker.database != str(self._database())
        with self._lock:
            if not worn and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        self._retire(worker)
        if worker.copies is None and not self._closed:
            threading.Thread(target=self._refill_quietly, daemon=True, name="duckdb-tables-refill").start()

    def _refill(self) -> bool:
        """One new worker if one is missing, so that the next statement finds it warm. Whether there was room for it."""
        with self._lock:
            if self._closed or len(self._all) >= self._workers:
                return False
        worker = self._start(str(self._database()), None)
        with self._lock:
            surplus = self._closed or len(self._all) > self._workers  # another thread was faster
            if surplus:
                self._all.discard(worker)
            else:
                self._idle.append(worker)
        if surplus:
            self._retire(worker)
        return not surplus

    def _refill_quietly(self) -> None:
        with contextlib.suppress(SourceError):  # the next statement meets the same error, and somebody hears it
            self._refill()

    def _start(self, database: str, copies: bytes | None) -> _Worker:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, self._gate.govern.__module__, "sqlglot.dialects.duckdb"])
        ours, theirs = context.Pipe()
        job = _Job(database, self._gate, self._limits, copies)
        process = context.Process(target=_serve, args=(theirs, job), daemon=True, name="duckdb-tables")
        start_without_main(process)
        theirs.close()
        worker = _Worker(process, ours, database, copies)
        try:
            answer = json.loads(ours.recv_bytes()) if ours.poll(_START_S) else {"code": "sql_start"}
        except (OSError, EOFError, ValueError):
            answer = {"code": "sql_start"}
        except BaseException:  # Ctrl-C: nobody else knows of this process yet
            worker.kill()
            raise
        if answer.get("code"):
            worker.kill()
            raise self._error(answer["code"])
        worker.base_kb = worker.grown_kb()
        with self._lock:
            if self._closed:
                worker.kill()
                raise SourceError("sql_closed", "the tables are closed")
            self._all.add(worker)
        return worker


_FAULTS = {
    "sql_start": ("no worker for tables could be started", "see the log; `pointsman doctor` checks the database"),
    "sql_database": ("the snapshot of the tables cannot be opened", "run `pointsman index --full` to make a new one"),
    "sql_relation": (
        "a table of the catalogue is not in the snapshot as governance describes it",
        "run `pointsman catalog check`",
    ),
    "sql_attribute": ("a row attribute has another type than governance says", "run `pointsman catalog check`"),
    "sql_version": ("another version of duckdb or sqlglot than the gate knows", "install the pinned versions"),
}


_TIME = "sql_limit_time"


def _late() -> SourceError:
    """The caller's own deadline ended it, so that nothing was refused: with more time it may end well."""
    return SourceError("deadline", "the rows did not come before the deadline", "raise the deadline", retryable=True)


def _busy() -> SourceError:
    return SourceError("sql_busy", "no worker for tables became free in time", "try again", retryable=True)


def _verdict(reply: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict("", "", str(reply["generated"]), tuple(map(str, reply["tables"])))
    except (KeyError, TypeError):
        raise _lost() from None


def _lost() -> SourceError:
    return SourceError("sql_worker_lost", "the worker for tables ended before it answered", "try again", retryable=True)


# --- inside the worker ------------------------------------------------------------------------------------------------

_CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 1,
    "max_temp_directory_size": "0KB",
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "allow_extension_repositories": "forbidden",
}
_BY_STATISTICS = "join_order,build_side_probe_side,statistics_propagation,compressed_materialization,partitioned_execution"
"""Optimizers that choose by how many rows there are and of which values, rows of others included. What they choose shows in the
order of rows, in what a LIMIT keeps and in the last digits of sums, so joins run as they are written
(tests/sql/test_blind_order.py)."""
_LOCK_DOWN = (  # the order matters: each closes what the next could still open
    "SET enable_progress_bar = false",
    f"SET disabled_optimizers = '{_BY_STATISTICS}'",
    "SET enable_external_access = false",
    "SET disabled_filesystems = 'LocalFileSystem'",
    "SET lock_configuration = true",
)


class Fault(Exception):  # noqa: N818 (a code on its way to the parent)
    """`args[0]` is a code of `_FAULTS` or of the gate."""


class _Parsing:
    """DuckDB as a parser: a bare connection that holds nothing and may read nothing."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config=_CONFIG | {"memory_limit": "64MB"})
        for setting in _LOCK_DOWN:
            self._con.execute(setting)

    def versions(self) -> tuple[str, str]:
        from importlib.metadata import version

        return duckdb.__version__, version("sqlglot")

    def statements(self, text: str) -> list[tuple[str, int]]:
        try:
            return [(found.type.name, len(found.named_parameters)) for found in self._con.extract_statements(text)]
        except duckdb.Error:
            raise ValueError from None

    def trees(self, texts: Sequence[str]) -> list[Any]:
        calls = ", ".join("json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)" for _ in texts)
        try:
            row = self._con.execute(f"SELECT {calls}", list(texts)).fetchone()
        except duckdb.Error:
            return [None] * len(texts)
        trees = [json.loads(cell) for cell in row or ()]
        return [None if tree.get("error") else tree.get("statements") for tree in trees]


class _Served:
    """The locked-down engine over one snapshot; a fresh connection for every statement, made ready before it is asked for."""

    def __init__(self, job: _Job) -> None:
        limits = job.limits
        config = _CONFIG | {"memory_limit": f"{limits.memory_mb}MB", "max_execution_time": int(limits.timeout_s * 1000)}
        self._root = duckdb.connect(":memory:", config=config)
        self._views = job.copies is None
        self._catalog = SERVED
        self._checked: set[bytes] = set()
        self._ready: tuple[bytes, Any, set[str]] | None = None
        try:
            self._root.execute(f"ATTACH {quote_text(job.database)} AS {SERVED} (READ_ONLY)")
            if job.copies is not None:
                self._copy(pickle.loads(job.copies))  # noqa: S301 (from the parent)
        except (duckdb.Error, OSError):
            raise Fault("sql_database") from None
        for setting in _LOCK_DOWN:
            self._root.execute(setting)

    def _copy(self, grants: Sequence[TableGrant]) -> None:
        """Mode `copies`: only the granted rows and columns stay in this process; the snapshot is let go."""
        self._root.execute("CREATE SCHEMA copies")
        for grant in grants:
            self._check(self._root, grant)
            self._root.execute(f"CREATE TABLE memory.copies.{quote_name(grant.name)} AS {governed_select(grant)}")
        self._root.execute(f"DETACH {SERVED}")

    def session(self, served: bytes, grants: Mapping[str, TableGrant], tables: Sequence[str]) -> Any:
        ready, self._ready = self._ready, None
        if ready is not None and ready[0] == served:
            _, con, there = ready
        else:
            if ready is not None:
                ready[1].close()
            con, there = self._root.cursor(), set()
        for name in tables:
            if name not in there:
                self._view(con, grants[name])
        return con

    def prepare(self, served: bytes, grants: Mapping[str, TableGrant], tables: Sequence[str]) -> None:
        """The next statement of the same caller over the same tables finds its connection made."""
        con = self._root.cursor()
        try:
            for name in tables:
                self._view(con, grants[name])
        except Fault:
            con.close()
            return
        if self._ready is not None:
            self._ready[1].close()
        self._ready = (served, con, set(tables))

    def _view(self, con: Any, grant: TableGrant) -> None:
        select = governed_select(grant) if self._views else f"SELECT * FROM memory.copies.{quote_name(grant.name)}"
        try:
            if self._views:
                self._check(con, grant)
            con.execute(f"CREATE TEMP SECURE VIEW {quote_name(grant.name)} AS {select}")
        except duckdb.Error:
            raise Fault("sql_relation") from None

    def _check(self, con: Any, grant: TableGrant) -> None:
        """Once a worker: attributes have the types that the filter's literals have."""
        key = pickle.dumps((grant.relation, grant.attributes))
        if key in self._checked or not grant.attributes:
            return
        expressions = ", ".join(f"({expression})" for _, expression, _ in grant.attributes)
        try:
            types = [str(row[1]) for row in con.execute(f"SELECT {expressions} FROM {relation_name(grant)} LIMIT 0").description]
        except duckdb.Error:
            raise Fault("sql_relation") from None
        if any(kind not in _TYPES_OF[spec] for kind, (_, _, spec) in zip(types, grant.attributes, strict=True)):
            raise Fault("sql_attribute")
        self._checked.add(key)


class _Clock(threading.Thread):
    """Interrupts the statement that is still running when its time is over."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._change = threading.Condition()
        self._armed: tuple[float, Any] | None = None

    def run(self) -> None:
        with self._change:
            while True:
                if self._armed is None:
                    self._change.wait()
                    continue
                left_s = self._armed[0] - time.monotonic()
                if left_s > 0:
                    self._change.wait(left_s)
                    continue
                self._armed[1].interrupt()
                self._armed = (time.monotonic() + 0.1, self._armed[1])  # a statement between two checks is asked again

    @contextlib.contextmanager
    def stopping(self, con: Any, until: float) -> Iterator[None]:
        with self._change:
            self._armed = (until, con)
            self._change.notify()
        try:
            yield
        finally:
            with self._change:
                self._armed = None


def _serve(pipe: Connection, job: _Job) -> None:
    sys.setrecursionlimit(_RECURSION)
    try:
        parsing = _Parsing()
        job.gate.check_versions(parsing)
        served = _Served(job)
    except Fault as fault:
        _send(pipe, json.dumps({"code": fault.args[0]}).encode())
        return
    except PointsmanError as error:
        _send(pipe, json.dumps({"code": error.code}).encode())
        return
    clock = _Clock()
    clock.start()
    confine(more_memory_mb=job.limits.memory_mb + _BESIDE_MB, cpu=True)
    if not _send(pipe, b"{}"):
        return
    known: dict[bytes, dict[str, TableGrant]] = {}
    while True:
        try:
            request = pickle.loads(pipe.recv_bytes())  # noqa: S301 (from the parent)
        except (EOFError, OSError):
            return
        _allow_cpu(request[5])
        reply, used = _answer(parsing, served, clock, job.gate, request, known, partial(_send, pipe))
        if not _send(pipe, reply):
            return
        if used is not None:
            served.prepare(*used)


def _send(pipe: Connection, body: bytes) -> bool:
    """Whether somebody is still there; one who left needs no words about it on the terminal."""
    try:
        pipe.send_bytes(body)
    except OSError:
        return False
    return True


_Used = tuple[bytes, dict[str, TableGrant], tuple[str, ...]]


def _answer(
    parsing: _Parsing,
    served: _Served,
    clock: _Clock,
    gate: Gate,
    request: Any,
    known: dict[bytes, dict[str, TableGrant]],
    tell: Callable[[bytes], object],
) -> tuple[bytes, _Used | None]:
    """The last reply. What the gate lets through is told before the engine that holds data sees any of it."""
    op, text, key, today, limits, time_s, compiled = request
    until = time.monotonic() + time_s
    try:
        if key not in known:
            known.clear()
            known[key] = {grant.name: grant for grant in pickle.loads(key)}  # noqa: S301 (from the parent)
        grants = known[key]
        governed = gate.govern(parsing, text, tuple(grants.values()), today, limits, compiled)
        verdict = json.dumps({"generated": governed.sql, "tables": governed.tables}).encode()
        if op == "check":
            return verdict, None
        tell(verdict)
        con = served.session(key, grants, governed.tables)
        try:
            with clock.stopping(con, until):
                reply = _run(con, governed, limits) if op == "run" else _bind(con, governed)
        finally:
            con.close()
    except Fault as fault:
        return json.dumps({"code": fault.args[0]}).encode(), None
    except PointsmanError as error:
        return json.dumps({"code": error.code}).encode(), None
    except MemoryError:
        return b'{"code": "sql_limit_memory"}', None
    except RecursionError:
        return b'{"code": "sql_too_large"}', None
    except Exception as error:  # noqa: BLE001 (whatever the engine raises, its words stay here)
        return json.dumps({"code": _code_of(error)}).encode(), None
    return reply, (key, grants, governed.tables)


def _code_of(error: BaseException) -> str:
    if isinstance(error, duckdb.InterruptException):
        return "sql_limit_time"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "sql_limit_memory"
    if isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException):
        return "sql_unknown_column"
    text = str(error)
    if "max_execution_time" in text or "INTERRUPT" in text.upper():
        return "sql_limit_time"
    return "sql_limit_memory" if "llocat" in text or "emory" in text else "sql_value"


def _bind(con: Any, governed: Any) -> bytes:
    """Names and types are looked up as when it runs; nothing is planned and no row is read."""
    con.execute(f"DESCRIBE {governed.sql}")
    return b"{}"


def _run(con: Any, governed: Any, limits: SqlLimits) -> bytes:
    """Rows as JSON, cut at the caps. Every row is written down as it comes: no more than one batch is held twice."""
    con.execute(governed.sql)
    columns = [[name, str(kind), name.lower() in governed.masked] for name, kind, *_ in con.description]
    rows: list[str] = []
    size, truncated = 0, False
    while not truncated and (batch := con.fetchmany(min(_FETCH, limits.max_rows + 1 - len(rows)))):
        for row in batch:
            line = _ENCODER.encode([plain_value(value) for value in row])
            size += len(line)
            if size > limits.max_bytes or len(rows) >= limits.max_rows:
                truncated = True
                break
            rows.append(line)
    head = _ENCODER.encode({"columns": columns, "truncated": truncated, "generated": governed.sql})
    return f'{head[:-1]},"rows":[{",".join(rows)}]}}'.encode()


_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)
_AS_IT_IS = (str, bool, int, type(None))


def plain_value(value: Any) -> Any:
    """A value as JSON holds it without loss; its column's type says what it was."""
    if isinstance(value, _AS_IT_IS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime | date | clock_time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain_value(item) for key, item in value.items()}
        return [[plain_value(key), plain_value(item)] for key, item in value.items()]
    return value.hex() if isinstance(value, bytes) else str(value)


def _allow_cpu(time_s: float) -> None:
    """The soft limit of processor time moves on with every statement; what runs past it is ended by the system."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + time_s) + 1, hard))


# --- physical copies: what eval and the suites compare with -----------------------------------------------------------


def build_database(script: str, target: Path) -> None:
    """A DuckDB file from a script of DDL and rows. For evaluation: the script is trusted.

    Raises `UsageError` with the number of the statement that cannot be run; the engine's own words could hold its rows."""
    with contextlib.closing(duckdb.connect(str(target), config=_CLOSED)) as con:
        try:
            statements = con.extract_statements(script)
        except duckdb.Error as error:
            line = re.search(r"^LINE (\d+):", str(error), re.MULTILINE)
            where = f"line {line[1]} of the script is" if line else "the script is"
            raise UsageError("script_malformed", f"{where} no SQL that DuckDB reads", "correct it") from None
        for number, statement in enumerate(statements, 1):
            kind = statement.type.name.lower()
            try:
                con.execute(statement)
            except duckdb.IOException:
                raise SourceError(
                    "script_failed", f"statement {number} of the script ({kind}) could not read or write", "check paths and disk"
                ) from None
            except (duckdb.Error, RuntimeError):
                hint = f"run the script with DuckDB itself, which says what is wrong with its statement {number}"
                message = f"DuckDB refuses statement {number} of the script ({kind})"
                raise UsageError("script_refused", message, hint) from None


_CLOSED: dict[str, Any] = {
    name: _CONFIG[name]
    for name in (
        "python_enable_replacements",
        "autoload_known_extensions",
        "autoinstall_known_extensions",
        "allow_community_extensions",
        "allow_persistent_secrets",
    )
}


def _open_served(database: Path | str) -> Any:
    con = duckdb.connect(":memory:", config=_CLOSED | {"threads": 1, "memory_limit": "1GB"})
    try:
        con.execute(f"ATTACH {quote_text(str(database))} AS {SERVED} (READ_ONLY, TYPE duckdb)")
    except (duckdb.Error, OSError):
        con.close()
        raise SourceError("sql_database", *_FAULTS["sql_database"]) from None
    return con


def read_values(database: Path, relation: str, tenant: str, columns: Sequence[str], *, most: int) -> list[tuple[Any, ...]]:
    """Each distinct combination of these columns behind the tenant that `tenant`, an expression of governance.yaml, gives for it; none
    where there are more than `most`. For columns whose values a reviewer marked as everybody's."""
    schema, table = _two(relation)
    wanted = ", ".join(f"CAST({quote_name(column)} AS VARCHAR)" for column in columns)
    place = f"{SERVED}.{quote_name(schema)}.{quote_name(table)}"
    con = _open_served(database)
    try:
        rows = con.execute(
            f"SELECT DISTINCT CAST(({tenant}) AS VARCHAR), {wanted} FROM {place} ORDER BY ALL LIMIT {most + 1}"
        ).fetchall()
    except duckdb.Error:
        raise SourceError("sql_relation", *_FAULTS["sql_relation"]) from None
    finally:
        con.close()
    return rows if len(rows) <= most else []


class PhysicalCopies:
    """A plain engine that holds only the granted rows and columns, under the governed names. Runs any text unguarded: an
    oracle for evaluation, never a door."""

    def __init__(self, database: Path | str, grants: Sequence[TableGrant], limits: SqlLimits | None = None) -> None:
        self._limits = limits or SqlLimits()
        self._con = _open_served(database)
        try:
            for grant in grants:
                self._con.execute(f"CREATE TABLE memory.main.{quote_name(grant.name)} AS {governed_select(grant, raw=False)}")
        except duckdb.Error:
            self._con.close()
            raise SourceError("sql_relation", *_FAULTS["sql_relation"]) from None
        self._con.execute(f"DETACH {SERVED}")
        for setting in _LOCK_DOWN:
            self._con.execute(setting)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """All rows, as `Table` has them. Raises `ValueError` where the text does not run."""
        con = self._con.cursor()
        try:
            return [tuple(plain_value(value) for value in row) for row in con.execute(text).fetchall()]
        except duckdb.Error as error:
            raise ValueError(type(error).__name__) from None
        finally:
            con.close()

    def close(self) -> None:
        self._con.close()


class LiveRows:
    """The rows that are served now, as policies know them: some of every kind that their row attributes tell apart. For evaluation,
    which holds every filter against Cedar in full; never a door.

    What a filter admits is asked of the same rows with the same words that a worker uses."""

    def __init__(self, database: Path, *, of_each: int = 2, most: int = 20_000) -> None:
        self._of_each, self._most = of_each, most
        self._con = _open_served(database)

    def read(self, name: str, relation: str, attributes: Sequence[tuple[str, str, Kind]]) -> list[dict[str, Any]]:
        """Row attributes as policies get them, in the order that `admitted` counts in: what is NULL is not there, a set is empty."""
        values = ", ".join(f"({expression})" for _, expression, _ in attributes)
        schema, table = _two(relation)
        select = (
            f"SELECT *, row_number() OVER (ORDER BY {values}) AS {_NUMBER} FROM {SERVED}.{quote_name(schema)}.{quote_name(table)}"
        )
        few = f"QUALIFY row_number() OVER (PARTITION BY {values}) <= {self._of_each} ORDER BY {_NUMBER} LIMIT {self._most}"
        try:
            self._con.execute(f"CREATE OR REPLACE TABLE memory.main.{quote_name(name)} AS {select} {few}")
            result = self._con.execute(f"SELECT {values} FROM memory.main.{quote_name(name)} ORDER BY {_NUMBER}")
            types = [str(column[1]) for column in result.description]
            rows = result.fetchall()
        except duckdb.Error:
            raise SourceError("sql_relation", *_FAULTS["sql_relation"]) from None
        if any(kind not in _TYPES_OF[spec] for kind, (_, _, spec) in zip(types, attributes, strict=True)):
            raise SourceError("sql_attribute", *_FAULTS["sql_attribute"])
        return [
            {
                attribute: frozenset(cell or ()) if kind == "set" else cell
                for (attribute, _, kind), cell in zip(attributes, row, strict=True)
                if cell is not None or kind == "set"
            }
            for row in rows
        ]

    def admitted(self, grant: TableGrant) -> list[bool]:
        """Of each row that was read of this dataset, whether the grant's filter admits it."""
        attributes = {name: (expression, kind) for name, expression, kind in grant.attributes}
        text = f"SELECT {lower_filter(grant.filter, attributes)} FROM memory.main.{quote_name(grant.name)} ORDER BY {_NUMBER}"
        try:
            return [row[0] is True for row in self._con.execute(text).fetchall()]
        except duckdb.Error:
            raise SourceError("sql_attribute", *_FAULTS["sql_attribute"]) from None

    def close(self) -> None:
        self._con.close()


_NUMBER = "pointsman_number"
