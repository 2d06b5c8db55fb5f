"""A stored value that holds signs of control: its question is answered, and its SQL can be copied from where it is shown."""

import duckdb

from router.app import Router
from tests.claims_world import NOW, build_claims_world


def test_a_stored_value_with_signs_of_control_can_be_asked_for(tmp_path):
    """The SQL that is shown writes them out; the gate still takes none as it is."""
    config = build_claims_world(tmp_path)
    with duckdb.connect(str(tmp_path / "world.duckdb")) as con:
        con.execute("UPDATE claims SET status = 'on' || chr(27) || '[31mhold' WHERE status = 'open'")
    with Router.open(config) as router:
        router.copy_tables()
        answer = router.ask("How many claims have status on 31mhold?", token=router.mint("analyst-1"), now=NOW)
        assert answer.outcome == "answered", answer.clarify
        (table,) = answer.tables
        assert table.rows[0][0] > 0
        assert "E'on\\x1b[31mhold'" in table.sql
        assert router.ask_sql(table.sql, token=router.mint("analyst-1")).table.rows == table.rows
        raw = router.ask_sql("SELECT 'on\x1b'", token=router.mint("analyst-1"))
        assert raw.verdict.code == "sql_characters"
