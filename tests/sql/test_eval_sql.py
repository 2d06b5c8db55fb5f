"""`eval sql` finds nothing on the corpus, and finds what is wrong where something is."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from router.app import make_tables
from router.doors.cli import _run
from router.errors import SourceError, UsageError
from router.evals import sql

HERE = Path(__file__).parent
ROWS = [json.loads(line) for line in (HERE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]


def few(tmp_path, rows):
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def evaluate(capsys, cases, policies=HERE / "policies"):
    command = [
        "eval",
        "sql",
        "--database",
        str(HERE / "fixture.sql"),
        "--policies",
        str(policies),
        "--cases",
        str(cases),
        "--json",
    ]
    return _run(command), json.loads(capsys.readouterr().out)


def test_corpus(capsys, tmp_path):
    quick = [row for row in ROWS if "exhausts a limit" not in row["why"]]
    accepted = sum(row["must"] == "accept" for row in quick)
    code, shown = evaluate(capsys, few(tmp_path, quick))
    assert code == 0
    assert (shown["cases"], shown["people"]) == (len(quick), 3)
    assert (shown["accepted"], shown["rejected"]) == (accepted, len(quick) - accepted)
    assert shown["leaks"] == shown["false_refusals"] == shown["mismatches"] == shown["limits_broken"] == []
    assert shown["ordered"] > 15
    assert 0 < shown["memory_mb"] <= shown["memory_cap_mb"]
    assert 0 < shown["gate_ms"]["p50"] <= shown["gate_ms"]["p95"]


def test_wrong_expectations_are_found(capsys, tmp_path):
    rows = [
        {"id": "leak", "sql": "SELECT count(*) FROM claims_v", "must": "reject"},
        {"id": "refusal", "sql": "SELECT * FROM employees", "must": "accept"},
        {"id": "right", "sql": "SELECT count(*) FROM claims_v", "must": "accept"},
    ]
    with pytest.raises(SystemExit) as ended:
        evaluate(capsys, few(tmp_path, rows))
    assert ended.value.code == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["leaks"], shown["false_refusals"], shown["mismatches"]) == (["leak"], ["refusal"], [])
    assert (shown["accepted"], shown["rejected"]) == (1, 0)


class Altered:
    """The real copies, answering otherwise."""

    def __init__(self, real, change):
        self.real, self.change = real, change

    def run(self, text):
        return self.change(self.real.run(text))

    def close(self):
        self.real.close()


def judged(monkeypatch, tmp_path, text, change):
    real = sql.open_copies
    monkeypatch.setattr(sql, "open_copies", lambda *arguments: Altered(real(*arguments), change))
    cases = few(tmp_path, [{"id": "one", "sql": text, "must": "accept"}])
    return sql.run_sql(HERE / "fixture.sql", HERE / "policies", cases)


@pytest.mark.parametrize(
    "change",
    [lambda rows: [*rows, ("stranger",)], lambda rows: rows[1:], lambda rows: [("stranger",), *rows[1:]]],
    ids=["more", "fewer", "other"],
)
def test_a_difference_is_a_mismatch(monkeypatch, tmp_path, change):
    report = judged(monkeypatch, tmp_path, "SELECT status FROM claims_v", change)
    assert report.mismatches == ["one"]
    assert not report.sound


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("SELECT status, amount FROM claims_v", False),
        ("SELECT claim_id, amount FROM claims_v ORDER BY claim_id", True),
        ("SELECT status, claim_id FROM claims_v ORDER BY 2 DESC", True),
        ("SELECT amount FROM claims_v ORDER BY claim_id", False),
    ],
)
def test_order_counts_where_the_text_orders(monkeypatch, tmp_path, text, ordered):
    """The same rows the other way round."""
    report = judged(monkeypatch, tmp_path, text, lambda rows: rows[::-1])
    assert report.mismatches == (["one"] if ordered else [])
    assert report.as_json()["ordered"] == ordered


@pytest.mark.parametrize(
    ("text", "columns", "positions"),
    [
        ("SELECT a, b FROM t ORDER BY b, a", "a b", (1, 0)),
        ("SELECT a, b FROM t ORDER BY B DESC NULLS LAST", "a b", (1,)),
        ("SELECT a, b FROM t ORDER BY ALL", "a b", (0, 1)),
        ("SELECT a, b FROM t ORDER BY 2", "a b", (1,)),
        ("SELECT a, b FROM t ORDER BY 3", "a b", ()),
        ("SELECT a, b FROM t ORDER BY a, a + b, b", "a b", (0,)),
        ("SELECT a, b FROM t ORDER BY a COLLATE NOCASE", "a b", ()),
        ("SELECT * FROM t ORDER BY b", "a b", (1,)),
        ("SELECT * FROM t ORDER BY t.b", "a b", ()),
        ("SELECT x.a, y.a AS b FROM x, y ORDER BY y.a", "a b", (1,)),
        ("SELECT upper(y.a) AS a FROM y ORDER BY y.a", "a", ()),
        ("SELECT x.a, y.a FROM x, y ORDER BY a", "a a", ()),
        ("SELECT a FROM t UNION SELECT a FROM u ORDER BY a", "a", (0,)),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a)", "a", ()),
        ("SELECT sum(a) OVER (ORDER BY a) AS s FROM t", "s", ()),
        ("FROM t SELECT a ORDER BY a LIMIT 3", "a", (0,)),
        ("SELECT (", "a", ()),
    ],
)
def test_ordered_columns(text, columns, positions):
    assert sql.ordered_columns(text, columns.split()) == positions


def test_memory_over_its_cap_breaks_a_limit(monkeypatch, tmp_path):
    cases = few(tmp_path, [{"id": at, "sql": f"SELECT {at} AS x", "must": "accept"} for at in (1, 2, 3)])
    grown = iter((7, 10_000, 10_000))
    monkeypatch.setattr("connectors.duckdb_tables.DuckTables.grown_mb", property(lambda _: next(grown)))
    report = sql.run_sql(HERE / "fixture.sql", HERE / "policies", cases)
    assert report.limits_broken == ["2"]
    assert report.as_json()["memory_mb"] == 10_000


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"id": 1, "sql": "x", "must": "maybe"}', ""])
def test_cases_that_are_none(tmp_path, line):
    path = tmp_path / "cases.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(UsageError) as found:
        sql.load_cases(path)
    assert found.value.code == "cases_malformed"


def test_a_byte_order_mark_is_no_part_of_the_first_case(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": 1, "sql": "SELECT 1", "must": "reject"}\n', encoding="utf-8-sig")
    assert [case.text for case in sql.load_cases(path)] == ["SELECT 1"]


def test_missing_files(tmp_path):
    cases = few(tmp_path, ROWS[:1])
    with pytest.raises(UsageError):
        sql.run_sql(tmp_path / "no.sql", HERE / "policies", cases)
    with pytest.raises(UsageError):
        sql.run_sql(HERE / "fixture.sql", HERE / "policies", tmp_path / "no.jsonl")


def test_a_folder_without_people(tmp_path):
    shutil.copytree(HERE / "policies", tmp_path / "policies")
    (tmp_path / "policies" / "people.yaml").unlink()
    with pytest.raises(UsageError) as found:
        sql.run_sql(HERE / "fixture.sql", tmp_path / "policies", few(tmp_path, ROWS[:1]))
    assert found.value.code == "nobody_to_judge"


@pytest.mark.parametrize("body", [b"nonsense" * 1000, b"", b"SQLite format 3\0" + b"\0" * 4080])
def test_a_database_that_is_none(tmp_path, body):
    path = tmp_path / "broken.duckdb"
    path.write_bytes(body)
    with pytest.raises(SourceError) as found:
        sql.run_sql(path, HERE / "policies", few(tmp_path, ROWS[:1]))
    assert found.value.code == "database_unreadable"
    assert found.value.hint


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("eval") / "whole.duckdb"
    make_tables((HERE / "fixture.sql").read_text(encoding="utf-8"), path)
    return path


def test_a_database_that_is_damaged_inside(tmp_path, database):
    whole = database.read_bytes()
    path = tmp_path / "damaged.duckdb"
    path.write_bytes(whole[:12288] + b"\xff" * (len(whole) - 12288))
    with pytest.raises(SourceError) as found:
        sql.run_sql(path, HERE / "policies", few(tmp_path, ROWS[:1]))
    assert found.value.code in {"database_unreadable", "sql_relation"}


def test_a_database_that_somebody_writes(tmp_path, database):
    hold = "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
    path = tmp_path / "held.duckdb"
    path.write_bytes(database.read_bytes())
    command = [sys.executable, "-c", hold, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SourceError) as found:
            sql.run_sql(path, HERE / "policies", few(tmp_path, ROWS[:1]))
    finally:
        holder.communicate("")
    assert (found.value.code, found.value.retryable) == ("database_locked", True)


def test_a_database_without_the_governed_tables(tmp_path):
    path = tmp_path / "other.duckdb"
    make_tables("CREATE TABLE other AS SELECT 1 AS n", path)
    with pytest.raises(SourceError) as found:
        sql.run_sql(path, HERE / "policies", few(tmp_path, ROWS[:1]))
    assert found.value.code == "sql_relation"


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (
            b"CREATE TABLE t (a INTEGER);\nINSERT INTO t VALUES (1);\nINSERT INTO t VALUES ('CANARY');",
            "script_refused",
            "statement 3 of",
        ),
        (b"CREATE TABLE t (a INTEGER UNIQUE);\nINSERT INTO t VALUES (77077), (77077);", "script_refused", "statement 2 of"),
        (b"SELECT * FROM canary_table;", "script_refused", "statement 1 of the script (select)"),
        (b"CREATE TABLE t (a INTEGER);\n\nCREATE TABEL canary (a INTEGER);", "script_malformed", "line 3 of"),
        (b"SELECT 'CANARY\xff';", "script_malformed", "is not UTF-8"),
        (b"COPY (SELECT 1) TO '/nowhere/canary/x.csv';", "script_failed", "statement 1 of"),
    ],
)
def test_a_script_that_is_wrong(tmp_path, capsys, caplog, script, code, said):
    """The number of the statement, and nothing that stands in it."""
    path = tmp_path / "script.sql"
    path.write_bytes(script)
    cases = few(tmp_path, ROWS[:1])
    exit_code = _run(
        ["eval", "sql", "--database", str(path), "--policies", str(HERE / "policies"), "--cases", str(cases), "--json"]
    )
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert (exit_code, error["code"]) == (4 if code == "script_failed" else 2, code)
    assert said in error["message"]
    assert error["hint"]
    assert "canary" not in f"{out}{err}{caplog.text}".lower()
    assert "77077" not in f"{out}{err}{caplog.text}"


def test_texts_may_hold_any_character(tmp_path):
    """Attacks do; only a newline ends a case."""
    texts = ["SELECT 1\u2028 -- x", "a\x85b", "a\x0cb", "\ufeffSELECT 1"]
    path = tmp_path / "cases.jsonl"
    lines = [json.dumps({"id": at, "sql": text, "must": "reject"}, ensure_ascii=False) for at, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [case.text for case in sql.load_cases(path)] == texts
