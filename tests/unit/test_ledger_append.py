"""The ledger on SQLite: what is appended is read, in order, and shared commits stay honest."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors import ledger as module
from connectors.ledger import SqlLedger
from router import decision
from router.domain import CHAIN_START, Principal, Question, Record
from router.errors import LedgerError, UsageError

ADA = Principal("corp", "ada", "User", "fabrikam", frozenset({"corp:all"}), (), 0)
SECRET = "Where is the reserve key of depot 4?"


def ask(text: str = "Who opens the gate?", at_us: int = 1_770_000_000_000_000) -> Record:
    question = Question(text, datetime(2026, 2, 2, tzinfo=UTC), 10, 10.0)
    return decision.asked(principal=ADA, question=question, policy_version="a" * 64, at_us=at_us, key=b"k" * 32)


def row(tenant: str = "fabrikam", number: int = 0, at_us: int = 1) -> Record:
    return Record(tenant, f"d-{number}", "label_change", at_us, b'{"number":%d}' % number)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    opened = SqlLedger(tmp_path / "state" / "ledger.db")
    yield opened
    opened.close()


def file_of(ledger: SqlLedger) -> Path:
    assert ledger._path is not None
    return ledger._path


# --- append and read ---


def test_what_is_appended_is_read(ledger: SqlLedger) -> None:
    asked = ask()
    links = ledger.append([asked, row(number=1)])
    assert [link.seq for link in links] == [1, 2]
    assert [link.previous for link in links] == [CHAIN_START, links[0].digest]
    assert list(ledger.read("fabrikam")) == list(zip(links, [asked, row(number=1)], strict=True))
    assert list(ledger.read("fabrikam", decision_id=asked.decision_id)) == [(links[0], asked)]
    assert ledger.append([]) == []


@settings(max_examples=25, deadline=None)
@given(
    calls=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=40), st.booleans()), max_size=4), max_size=6),
)
def test_every_tenant_has_its_own_whole_chain(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[tuple[str, bytes, bool]]]
) -> None:
    ledger = SqlLedger(tmp_path_factory.mktemp("chains") / "ledger.db")
    expected: dict[str, list[Record]] = {}
    for call in calls:
        records = [
            Record(tenant, "d-x", "k", 1, body, b"i" if personal else None, b"s" if personal else None)
            for tenant, body, personal in call
        ]
        for record in records:
            expected.setdefault(record.tenant, []).append(record)
        assert len(ledger.append(records)) == len(records)
    assert ledger.tenants() == sorted(expected)
    for tenant, records in expected.items():
        assert [record for _, record in ledger.read(tenant)] == records
        assert {fault.code for fault in decision.verify_chain(ledger.read(tenant)).faults} <= {"inputs_edited"}
    ledger.close()


def test_reading_in_pages(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_ROWS", 7)
    ledger.append([row(number=number, at_us=1_000 - number if number % 10 == 0 else 1_000 + number) for number in range(1, 51)])
    seqs = [link.seq for link, _ in ledger.read("fabrikam")]
    assert seqs == list(range(1, 51))
    assert [link.seq for link, _ in ledger.read("fabrikam", after_seq=45)] == [46, 47, 48, 49, 50]
    for limit in (0, 1, 7, 8, 50, 99):
        assert len(list(ledger.read("fabrikam", limit=limit))) == min(limit, 50)
    late = [(link.seq, record.at_us) for link, record in ledger.read("fabrikam", since_us=1_020)]
    assert [seq for seq, _ in late] == [seq for seq in range(20, 51) if seq % 10], "records out of the order of time are not lost"
    assert list(ledger.read("fabrikam", since_us=5_000)) == []
    assert [link.seq for link, _ in ledger.read("fabrikam", since_us=1_020, after_seq=40, limit=3)] == [41, 42, 43]
    assert list(ledger.read("nobody")) == []


def test_a_reader_between_pages_holds_no_lock(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_ROWS", 2)
    ledger.append([row(number=number) for number in range(4)])
    reader = ledger.read("fabrikam")
    next(reader)
    other = SqlLedger(file_of(ledger), busy_s=0.1)
    other.append([row(number=9)])
    other.close()
    assert len(list(reader)) == 4


def test_reading_one_kind(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT_ROWS", 4)
    assert ledger.head("fabrikam") is None
    assert list(ledger.read_kind("fabrikam", "policy", after_seq=0, to_seq=9)) == []
    rows = [
        Record("fabrikam", f"d-{number}", "policy" if number in {3, 4, 5, 12} else "label_change", 1, b"x")
        for number in range(1, 13)
    ]
    links = ledger.append([*rows, row("contoso")])
    assert ledger.head("fabrikam") == links[-2]
    of_kind = [(links[number - 1], rows[number - 1]) for number in (3, 4, 5, 12)]
    assert list(ledger.read_kind("fabrikam", "policy", after_seq=0, to_seq=12)) == of_kind
    assert list(ledger.read_kind("fabrikam", "policy", after_seq=4, to_seq=11)) == of_kind[2:3]


def test_reading_creates_nothing(tmp_path: Path) -> None:
    ledger = SqlLedger(tmp_path / "ledger.db")
    assert ledger.tenants() == []
    assert list(ledger.read("fabrikam")) == []
    assert ledger.erase_inputs("fabrikam", ["d-1"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_reads_the_file(ledger: SqlLedger) -> None:
    ledger.append([ask()])
    assert stat.S_IMODE(file_of(ledger).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(ledger).parent.stat().st_mode) == 0o700


def test_durability_settings(ledger: SqlLedger) -> None:
    writer = ledger._open_writer().dbapi_connection
    assert writer is not None
    found = {name: writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "secure_delete")}  # type: ignore[attr-defined]
    assert found == {"journal_mode": "truncate", "synchronous": 2, "secure_delete": 1}


# --- append only ---


def test_rows_are_append_only(ledger: SqlLedger) -> None:
    ledger.append([ask()])
    with sqlite3.connect(file_of(ledger)) as other:
        for statement in ("UPDATE ledger_records SET body = x'00'", "DELETE FROM ledger_records"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                other.execute(statement)
    assert decision.verify_chain(ledger.read("fabrikam")).whole


def test_manipulation_of_the_file_is_found(ledger: SqlLedger) -> None:
    ledger.append([row(number=number) for number in range(9)])
    with sqlite3.connect(file_of(ledger)) as other:
        other.execute("DROP TRIGGER ledger_records_no_update")
        other.execute("DROP TRIGGER ledger_records_no_delete")
        other.execute("UPDATE ledger_records SET body = x'00' WHERE seq = 3")
        other.execute("DELETE FROM ledger_records WHERE seq = 6")
    faults = decision.verify_chain(ledger.read("fabrikam")).faults
    assert [(fault.seq, fault.code) for fault in faults] == [(3, "edited"), (7, "gap")]


# --- erasing ---


def test_erased_inputs_are_gone_from_the_disk(ledger: SqlLedger) -> None:
    asked = [ask(f"{SECRET} {number} " + "padding " * (400 * (number % 2))) for number in range(40)]
    ledger.append(asked)
    folder = file_of(ledger).parent
    assert SECRET.encode() in b"".join(path.read_bytes() for path in folder.iterdir())
    assert ledger.erase_inputs("northwind", [record.decision_id for record in asked]) == 0
    assert ledger.erase_inputs("fabrikam", [record.decision_id for record in asked[:20]] + ["d-unknown"]) == 20
    read = [record for _, record in ledger.read("fabrikam")]
    assert [record.inputs is None and record.salt is None for record in read] == [True] * 20 + [False] * 20
    verdict = decision.verify_chain(ledger.read("fabrikam"))
    assert verdict.whole
    assert verdict.erased == 20
    assert ledger.erase_inputs("fabrikam", [record.decision_id for record in asked]) == 20
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in folder.iterdir())


# --- shared commits ---


def _started(target: object, count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=target) for _ in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    return threads


def _wait_until(condition: object) -> None:
    for _ in range(500):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.01)
    raise AssertionError("timed out")


def test_group_commit(ledger: SqlLedger) -> None:
    """While a stranger holds the lock sixteen callers gather: one leads alone, the other fifteen share the second commit."""
    ledger.append([row()])
    before = ledger.commits
    with sqlite3.connect(file_of(ledger), isolation_level=None) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        threads = _started(lambda: ledger.append([ask()]), 16)
        _wait_until(lambda: len(ledger._queue) == 15)
        stranger.execute("ROLLBACK")
    for thread in threads:
        thread.join()
    assert ledger.commits - before == 2
    assert decision.verify_chain(ledger.read("fabrikam")).rows == 17


def test_sixteen_askers(ledger: SqlLedger) -> None:
    seen: list[int] = []

    def asker() -> None:
        for _ in range(20):
            seen.extend(link.seq for link in ledger.append([ask()]))

    for thread in _started(asker, 16):
        thread.join()
    assert sorted(seen) == list(range(1, 321)), "every caller got its own places"
    assert ledger.commits < 160
    assert decision.verify_chain(ledger.read("fabrikam")).whole


def test_a_group_is_bounded_but_a_call_is_not_split(ledger: SqlLedger) -> None:
    before = ledger.commits
    assert len(ledger.append([row(number=number) for number in range(3 * module.GROUP_RECORDS)])) == 3 * module.GROUP_RECORDS
    assert ledger.commits - before == 1


@pytest.mark.parametrize(
    "bad",
    [
        Record("", "d-1", "k", 1, b"{}"),
        Record("a\0b", "d-1", "k", 1, b"{}"),
        Record("fabrikam", "\ud800", "k", 1, b"{}"),
        Record("fabrikam", "d-1", "k", -1, b"{}"),
        Record("fabrikam", "d-1", "k", 2**63, b"{}"),
        Record("fabrikam", "d-1", "k", 1, b"{}", b"inputs without salt", None),
        Record("fabrikam", "d-1", "k", 1, "text"),  # type: ignore[arg-type]
        Record(None, "d-1", "k", 1, b"{}"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_record_spoils_only_its_own_call(ledger: SqlLedger, bad: Record) -> None:
    with pytest.raises(LedgerError) as raised:
        ledger.append([row(), bad])
    assert raised.value.code == "record_invalid"
    assert ledger.append([row()])[0].seq == 1, "nothing of the refused call is stored"


def test_failure_reaches_every_caller_of_the_group(ledger: SqlLedger) -> None:
    ledger.append([row()])
    ledger.close()
    short = SqlLedger(file_of(ledger), busy_s=0.3)
    short.append([row()])
    failures: list[LedgerError] = []

    def caller() -> None:
        try:
            short.append([row()])
        except LedgerError as error:
            failures.append(error)

    with sqlite3.connect(file_of(ledger), isolation_level=None) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        for thread in _started(caller, 8):
            thread.join()
        stranger.execute("ROLLBACK")
    assert {error.code for error in failures} == {"ledger_locked"}
    assert len(failures) == len({id(error) for error in failures}) == 8, "each caller has its own exception"
    assert short.append([row()])[0].seq == 3
    short.close()


def test_an_interrupted_follower_leaves_the_queue(ledger: SqlLedger) -> None:
    """Ctrl-C in the main thread while another thread commits."""
    ledger.append([row()])
    with sqlite3.connect(file_of(ledger), isolation_level=None) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        threads = _started(lambda: ledger.append([row()]), 1)
        _wait_until(lambda: ledger._led and not ledger._queue)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            ledger.append([row(number=666)])
        stranger.execute("ROLLBACK")
    for thread in threads:
        thread.join()
    assert ledger.append([row()])[0].seq == 3
    assert all(b"666" not in record.body for _, record in ledger.read("fabrikam"))


def test_an_interrupt_at_the_moment_of_promotion(ledger: SqlLedger) -> None:
    """The lead had just been given to the caller that is interrupted: the one behind it gets it."""
    interrupted, behind = module._Call([row()]), module._Call([row()])
    behind.wake.acquire()

    class Interrupted:
        def acquire(self) -> None:
            raise KeyboardInterrupt

    interrupted.wake = Interrupted()  # type: ignore[assignment]
    interrupted.leads = ledger._led = True
    ledger._queue = [interrupted, behind]
    with pytest.raises(KeyboardInterrupt):
        ledger._follow(interrupted)
    assert behind.leads
    assert not behind.wake.locked()
    assert ledger._queue == [behind]


def test_an_interrupted_leader_passes_the_lead_on(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.append([row()])
    insert, failures, links = ledger._insert, [], []

    def interrupted(cursor: object, group: object) -> object:
        _wait_until(lambda: len(ledger._queue) == 4)
        monkeypatch.setattr(ledger, "_insert", insert)
        raise KeyboardInterrupt

    def caller() -> None:
        try:
            links.extend(ledger.append([row()]))
        except KeyboardInterrupt:
            failures.append("interrupted")

    monkeypatch.setattr(ledger, "_insert", interrupted)
    for thread in _started(caller, 5):
        thread.join()
    assert failures == ["interrupted"]
    assert sorted(link.seq for link in links) == [2, 3, 4, 5]
    assert decision.verify_chain(ledger.read("fabrikam")).whole


# --- opening ---


def test_check_writes_nothing(ledger: SqlLedger) -> None:
    ledger.check()
    assert ledger.tenants() == []
    ledger.append([row()])
    ledger.check()
    assert [link.seq for link, _ in ledger.read("fabrikam")] == [1]


def test_closing_and_opening_again(ledger: SqlLedger) -> None:
    ledger.append([row()])
    ledger.close()
    assert ledger.append([row()])[0].seq == 2
    second = SqlLedger(file_of(ledger))
    assert second.append([row()])[0].seq == 3
    second.close()


@pytest.mark.parametrize("address", ["ledger.db", "sqlite:///ledger.db", "mysql://host/db", "not an address", ""])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError) as raised:
        SqlLedger(address)
    assert raised.value.code == "ledger_address"
