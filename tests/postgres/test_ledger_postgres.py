"""The ledger on a real PostgreSQL: the same promises through the same code. `deploy/dev/postgres.sh start` gives one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from connectors.ledger import SqlLedger
from router import decision
from router.domain import Principal, Question, Record
from router.errors import LedgerError

ROOT = Path(__file__).parents[2]
ADA = Principal("corp", "ada", "User", "fabrikam", frozenset({"corp:all"}), (), 0)
APPENDER = """
import json, os, sys, threading
from connectors.ledger import SqlLedger
from router.domain import Record

ledger = SqlLedger(sys.argv[1])

def work(number):
    for turn in range(int(sys.argv[2])):
        # Both orders of tenants: groups of two processes must not deadlock.
        tenants = ("t0", "t1") if (number + turn) % 2 else ("t1", "t0")
        links = ledger.append([Record(tenant, f"d-{os.getpid()}-{number}-{turn}", "k", 1, b"{}") for tenant in tenants])
        os.write(1, (json.dumps([[tenant, link.seq, link.digest] for tenant, link in zip(tenants, links)]) + "\\n").encode())

workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
"""


@pytest.fixture(scope="module")
def server() -> str:
    address = os.environ.get("POINTSMAN_TEST_POSTGRES", "")
    if not address:
        pytest.fail('set POINTSMAN_TEST_POSTGRES="$(deploy/dev/postgres.sh start)"')
    return address


@pytest.fixture
def address(server: str) -> Iterator[str]:
    """A database of its own for each test."""
    name = f"ledger_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@pytest.fixture
def ledger(address: str) -> Iterator[SqlLedger]:
    opened = SqlLedger(address, busy_s=0.5)
    yield opened
    opened.close()


def ask(text: str = "Who opens the gate?") -> Record:
    question = Question(text, datetime(2026, 2, 2, tzinfo=UTC), 10, 10.0)
    return decision.asked(principal=ADA, question=question, policy_version="a" * 64, at_us=1_770_000_000_000_000, key=b"k" * 32)


def row(number: int = 0, tenant: str = "fabrikam") -> Record:
    return Record(tenant, f"d-{number}", "label_change", number, b'{"number":%d}' % number)


def code_of(ledger: SqlLedger) -> str:
    with pytest.raises(LedgerError) as raised:
        ledger.append([row()])
    assert raised.value.__cause__ is None
    return raised.value.code


def test_what_is_appended_is_read(ledger: SqlLedger) -> None:
    assert ledger.tenants() == []
    assert list(ledger.read("fabrikam")) == []
    ledger.check()
    records = [ask("a \ud800 lone surrogate, NUL \0"), row(7), row(8)]
    links = ledger.append(records)
    assert ledger.append([row(1, "northwind")])[0].seq == 1
    assert list(ledger.read("fabrikam")) == list(zip(links, records, strict=True))
    assert [record for _, record in ledger.read("fabrikam", since_us=8, after_seq=1)] == [row(8)]
    assert [record for _, record in ledger.read("fabrikam", decision_id="d-7")] == [row(7)]
    assert [link.seq for link, _ in ledger.read("fabrikam", limit=2)] == [1, 2]
    assert ledger.tenants() == ["fabrikam", "northwind"]
    assert decision.verify_chain(ledger.read("fabrikam")).whole


def test_same_chain_as_on_sqlite(ledger: SqlLedger, tmp_path: Path) -> None:
    records = [ask(), row(1), row(2)]
    assert ledger.append(records) == SqlLedger(tmp_path / "ledger.db").append(records)


def test_rows_are_append_only(ledger: SqlLedger, address: str) -> None:
    ledger.append([ask()])
    for statement in ("UPDATE ledger_records SET seq = 9", "DELETE FROM ledger_records", "TRUNCATE ledger_records"):
        with psycopg.connect(address) as other, pytest.raises(psycopg.errors.RaiseException, match="append only"):
            other.execute(statement)  # type: ignore[arg-type]


def test_manipulation_is_found(ledger: SqlLedger, address: str) -> None:
    ledger.append([ask() for _ in range(5)])
    with psycopg.connect(address) as other:
        other.execute("DROP TRIGGER ledger_records_append_only ON ledger_records")
        other.execute("UPDATE ledger_records SET at_us = at_us + 1 WHERE seq = 2")
        other.execute("DELETE FROM ledger_records WHERE seq = 4")
    assert [fault.code for fault in decision.verify_chain(ledger.read("fabrikam")).faults] == ["edited", "gap"]


def test_erased_inputs_leave_the_chain_verifiable(ledger: SqlLedger) -> None:
    asked = [ask() for _ in range(5)]
    ledger.append(asked)
    assert ledger.erase_inputs("fabrikam", [record.decision_id for record in asked[:3]]) == 3
    verdict = decision.verify_chain(ledger.read("fabrikam"))
    assert verdict.whole
    assert verdict.erased == 3
    kept = [record for _, record in ledger.read("fabrikam")]
    assert kept == [dataclasses.replace(record, inputs=None, salt=None) for record in asked[:3]] + asked[3:]


def test_sixteen_askers_share_commits(ledger: SqlLedger) -> None:
    seen: list[int] = []

    def asker() -> None:
        for _ in range(20):
            seen.extend(link.seq for link in ledger.append([ask()]))

    threads = [threading.Thread(target=asker) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 321))
    assert ledger.commits < 160
    assert decision.verify_chain(ledger.read("fabrikam")).whole


def test_eight_processes_append(address: str) -> None:
    """All create the schema at once, then append to two tenants in both orders."""
    command = [sys.executable, "-c", APPENDER, address, "10"]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [errors for _, errors in outputs] == [""] * 8
    places = [place for output, _ in outputs for line in output.splitlines() for place in json.loads(line)]
    ledger = SqlLedger(address)
    for tenant in ("t0", "t1"):
        assert sorted(seq for name, seq, _ in places if name == tenant) == list(range(1, 161))
        assert decision.verify_chain(ledger.read(tenant)).whole
    ledger.close()


def test_kill_while_appending(address: str) -> None:
    rows: dict[tuple[str, int], str] = {}
    for _ in range(3):
        command = [sys.executable, "-c", APPENDER, address, "100000"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(20)]
        process.kill()
        lines += process.stdout.readlines()
        process.communicate()
        for line in lines:
            if line.endswith("\n"):
                rows |= {(tenant, seq): digest for tenant, seq, digest in json.loads(line)}
    ledger = SqlLedger(address)
    stored = {(tenant, link.seq): link.digest for tenant in ledger.tenants() for link, _ in ledger.read(tenant)}
    assert rows
    assert rows.items() <= stored.items()
    assert all(decision.verify_chain(ledger.read(tenant)).whole for tenant in ledger.tenants())
    ledger.close()


def test_a_lost_connection_is_opened_again(ledger: SqlLedger, server: str) -> None:
    """The server was restarted, or an idle connection cut: the next record is written, once."""
    ledger.append([row()])
    assert len(list(ledger.read("fabrikam"))) == 1
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'ledger_%'")
    assert [link.seq for link in ledger.append([row()])] == [2]
    assert len(list(ledger.read("fabrikam"))) == 2


def test_locked_tenant(ledger: SqlLedger, address: str) -> None:
    ledger.append([row()])
    with psycopg.connect(address) as other:
        other.execute("LOCK TABLE ledger_records IN EXCLUSIVE MODE")
        assert code_of(ledger) == "ledger_locked"
    assert ledger.append([row()])[0].seq == 2


def test_read_only_server(ledger: SqlLedger, address: str, server: str) -> None:
    ledger.append([row()])
    name = sa.make_url(address).database
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")  # type: ignore[arg-type]
    late = SqlLedger(address)
    assert code_of(late) == "ledger_unwritable"
    with pytest.raises(LedgerError):
        late.check()
    assert len(list(late.read("fabrikam"))) == 1
    late.close()


def test_newer_schema(ledger: SqlLedger, address: str) -> None:
    ledger.append([row()])
    with psycopg.connect(address) as other:
        other.execute("UPDATE ledger_schema SET version = 2")
    assert code_of(SqlLedger(address)) == "ledger_newer"


def test_commits_are_durable_whatever_the_server_prefers(ledger: SqlLedger, address: str, server: str) -> None:
    name = sa.make_url(address).database
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")  # type: ignore[arg-type]
    ledger.append([row()])
    cursor = ledger._open_writer().cursor()
    cursor.execute("SHOW synchronous_commit")
    assert cursor.fetchone() == ("on",)
