"""`eval sql` finds nothing on the corpus, and finds what is wrong where something is."""

import json
import shutil
from pathlib import Path

import pytest

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
    """The real copies, with one row too many."""

    def __init__(self, real):
        self.real = real

    def run(self, text):
        return [*self.real.run(text), ("stranger",)]

    def close(self):
        self.real.close()


def test_a_difference_is_a_mismatch(monkeypatch, tmp_path):
    real = sql.open_copies
    monkeypatch.setattr(sql, "open_copies", lambda *arguments: Altered(real(*arguments)))
    cases = few(tmp_path, [{"id": "one", "sql": "SELECT status FROM claims_v", "must": "accept"}])
    report = sql.run_sql(HERE / "fixture.sql", HERE / "policies", cases)
    assert report.mismatches == ["one"]
    assert not report.sound


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"id": 1, "sql": "x", "must": "maybe"}', ""])
def test_cases_that_are_none(tmp_path, line):
    path = tmp_path / "cases.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(UsageError) as found:
        sql.load_cases(path)
    assert found.value.code == "cases_malformed"


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


def test_a_database_that_is_none(tmp_path):
    path = tmp_path / "broken.duckdb"
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(SourceError) as found:
        sql.run_sql(path, HERE / "policies", few(tmp_path, ROWS[:1]))
    assert found.value.code == "sql_database"


def test_texts_may_hold_any_character(tmp_path):
    """Attacks do; only a newline ends a case."""
    texts = ["SELECT 1\u2028 -- x", "a\x85b", "a\x0cb", "\ufeffSELECT 1"]
    path = tmp_path / "cases.jsonl"
    lines = [json.dumps({"id": at, "sql": text, "must": "reject"}, ensure_ascii=False) for at, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [case.text for case in sql.load_cases(path)] == texts
