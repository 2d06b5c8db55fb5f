"""Rows of a SQL table as documents."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from connectors.sql_sources import Rows
from router.domain import Entry, Rejected, Source
from router.errors import PointsmanError
from router.ingest.build import index_sources
from router.ingest.workshop import SourceJob, SourceReport
from tests.ingest_world import ENVELOPE, TENANT, World

SETUP = """
CREATE TABLE tickets(ticket_id, title, body, machine, opened_on, group_name, sensitivity);
INSERT INTO tickets VALUES
 ('T-1', 'Belt slips', 'It slips after an hour.\n\nWe tightened it to 12 Nm.', 'CX-400', '2026-01-02', 'hr', 'confidential'),
 ('T-2', 'Lamp', 'The lamp is red.', NULL, '2026-01-03', 'all, hr', 1),
 ('T-3', 'No label', 'Nobody labelled it.', 'PM-7', '2026-01-04', NULL, 'internal');
"""


class Tickets:
    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.file = root / "tickets.sqlite"
        self.execute(SETUP)

    def execute(self, script: str) -> None:
        connection = sqlite3.connect(self.file)
        connection.executescript(script)
        connection.close()

    def rows(self, **changes: Any) -> Rows:
        settings: dict[str, Any] = {
            "database": f"sqlite:///{self.file}",
            "query": "SELECT * FROM tickets;",
            "id_column": "ticket_id",
            "title_column": "title",
            "text_columns": ["title", "body", "machine", "opened_on"],
            "label_columns": {"groups": "group_name", "sensitivity": "sensitivity"},
            "envelope": ENVELOPE,
        }
        return Rows(**{**settings, **changes})

    def index(self, **changes: Any) -> SourceReport:
        source = Source("docs", TENANT, "rows", ENVELOPE, 1, "", "")
        return index_sources([SourceJob(source, self.rows(**changes))], self.world.workshop()).sources[0]


@pytest.fixture
def tickets(tmp_path: Path) -> Tickets:
    return Tickets(tmp_path)


def test_rows_are_documents(tickets: Tickets) -> None:
    report = tickets.index()
    assert (report.listed, report.indexed) == (3, 2)
    assert tickets.world.failed(report) == {"T-3": "incomplete_labels"}
    assert tickets.world.ids() == ["T-1", "T-2"]
    (stored,) = tickets.world.load("docs/T-1#0")
    assert stored.chunk.title == "Belt slips"
    assert stored.chunk.text == (
        "Belt slips\n\nIt slips after an hour.\n\nWe tightened it to 12 Nm.\n\nmachine: CX-400\n\nopened on: 2026-01-02"
    )
    assert stored.chunk.uri.startswith("file:///")
    assert stored.chunk.uri.endswith("#T-1")
    assert stored.labels == {"tenant": TENANT, "groups": frozenset({"corp:hr"}), "sensitivity": 2}
    assert tickets.world.labels()["T-2"]["groups"] == frozenset({"corp:all", "corp:hr"})


def test_changes_of_rows(tickets: Tickets) -> None:
    tickets.index()
    assert tickets.index().unchanged == 2
    tickets.execute("UPDATE tickets SET sensitivity = 'restricted' WHERE ticket_id = 'T-2'")
    report = tickets.index()
    assert (report.relabelled, report.indexed, report.unchanged) == (1, 0, 1)
    tickets.execute(
        "UPDATE tickets SET body = 'The lamp is green.' WHERE ticket_id = 'T-2'; DELETE FROM tickets WHERE ticket_id = 'T-1'"
    )
    report = tickets.index()
    assert (report.removed, report.indexed) == (1, 1)
    assert "green" in tickets.world.text("T-2")


def test_keys(tickets: Tickets) -> None:
    tickets.execute("INSERT INTO tickets VALUES (NULL, 'x', 'y', NULL, NULL, 'all', 1), (' ', 'x', 'y', NULL, NULL, 'all', 1)")
    items = list(tickets.rows().entries())
    assert [item.key for item in items if isinstance(item, Entry)] == ["T-1", "T-2", "T-3"]
    assert [item.reason for item in items if isinstance(item, Rejected)] == ["row_without_id", "row_without_id"]
    tickets.execute("INSERT INTO tickets VALUES ('T-1', 'x', 'y', NULL, NULL, 'all', 1)")
    found = {item.key: item.reason for item in tickets.rows().entries() if isinstance(item, Rejected)}
    assert found == {"row 4": "row_without_id", "row 5": "row_without_id", "T-1": "repeated_key"}


@pytest.mark.parametrize(
    ("identity", "left"),
    [("' T-1 '", ["T-1", "T-2"]), ("'T-1'", ["T-2"]), ("'T-1', 'x', 'y', NULL, NULL, 'all', 1), ('T-1'", ["T-2"]), ("NULL", ["T-1", "T-2"]),
     ("'a' || char(10)", ["T-1", "T-2"]), ("'row 5'", ["T-1", "T-2", "row 5"])],
)  # fmt: skip
def test_one_bad_row(tickets: Tickets, identity: str, left: list[str]) -> None:
    """It is refused, with its double; the labels of all other rows change as they should."""
    tickets.index()
    tickets.execute(
        "UPDATE tickets SET sensitivity = 'restricted' WHERE ticket_id = 'T-2';"
        f"INSERT INTO tickets VALUES ({identity}, 'spam', 'spam', NULL, NULL, 'all', 1)"
    )
    report = tickets.index()
    assert report.error is None
    assert tickets.world.ids() == left
    assert tickets.world.labels()["T-2"]["sensitivity"] == 3


def test_groups_in_a_cell(tickets: Tickets) -> None:
    envelope = frozenset({"corp:Sales, EMEA", "corp:Sales", "corp:hr"})

    def groups(cell: str) -> object:
        tickets.execute(f"UPDATE tickets SET group_name = '{cell}'")
        rows = tickets.rows(envelope=envelope)
        entry = next(item for item in rows.entries() if isinstance(item, Entry))
        return rows.labels(entry).rules[0]["groups"]

    assert groups("Sales, EMEA") == ["corp:Sales, EMEA"]
    assert groups("corp:Sales, EMEA") == ["corp:Sales, EMEA"]
    assert groups('["Sales, EMEA", "hr"]') == ["corp:Sales, EMEA", "corp:hr"]
    assert groups("hr, Sales") == ["corp:hr", "corp:Sales"]
    assert groups(" hr ") == ["corp: hr "]  # refused by the labels: compared exactly, there is no such group
    assert groups("[1]") == [1]
    assert groups("[hr") == ["[hr"]


def test_bare_groups(tickets: Tickets) -> None:
    assert tickets.index(envelope=frozenset({"corp:hr", "other:all"})).listed == 3
    assert tickets.world.ids() == []  # two issuers: a bare name could be either's
    tickets.execute("UPDATE tickets SET group_name = 'corp:hr'")
    assert tickets.index(envelope=frozenset({"corp:hr", "other:all"})).indexed == 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"query": "SELECT ticket_id FROM tickets"}, "column_missing"),
        ({"query": "SELECT nonsense FROM"}, "source_unavailable"),
        ({"database": "sqlite:////nowhere/at/all.sqlite"}, "source_unavailable"),
        ({"database": "what is this"}, "database_url"),
    ],
)
def test_a_source_that_fails_changes_nothing(tickets: Tickets, changes: dict[str, Any], code: str) -> None:
    tickets.index()
    try:
        report = tickets.index(**changes)
        assert report.error is not None
        found = report.error.code
    except PointsmanError as error:
        found = error.code
    assert found == code
    assert tickets.world.ids() == ["T-1", "T-2"]


def test_a_query_cannot_write(tickets: Tickets) -> None:
    tickets.index()
    report = tickets.index(query="DELETE FROM tickets RETURNING *")
    assert report.error is not None
    assert len(list(tickets.rows().entries())) == 3


def test_rows_beyond_memory_are_read_again(tickets: Tickets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sql_sources._KEPT_ROWS", 0)
    assert tickets.index().indexed == 2
    rows = tickets.rows()
    first = next(item for item in rows.entries() if isinstance(item, Entry))
    tickets.execute("UPDATE tickets SET body = 'other' WHERE ticket_id = 'T-1'")
    with pytest.raises(PointsmanError, match="changed_while_read"):
        rows.read(first)
    tickets.execute("DELETE FROM tickets")
    with pytest.raises(PointsmanError, match="gone"):
        rows.read(first)


def test_hostile_values(tickets: Tickets) -> None:
    tickets.execute(
        "UPDATE tickets SET ticket_id = 'it''s \"1\"; --', body = 'NUL ' || char(0) || ' inside', group_name = 'corp:all' || char(0) WHERE ticket_id = 'T-1'"
    )
    report = tickets.index()
    assert set(tickets.world.failed(report).values()) == {"bad_label", "incomplete_labels"}
    tickets.execute("UPDATE tickets SET group_name = 'all'")
    tickets.index()
    assert 'it\'s "1"; --' in tickets.world.ids()
    assert "\0" not in tickets.world.text('it\'s "1"; --')
