"""SQL that somebody wrote: governed rows with a record, refusals that are answers, and what only an auditor is shown."""

import json
import shutil
from pathlib import Path

import pytest

from router.app import Router, make_development_issuer, make_tables
from router.config import load_settings
from router.decision import decision_model
from router.domain import TableColumn
from router.doors.cli import _run
from router.errors import Refused, SourceError

SQL = Path(__file__).parents[1] / "sql"
VIEWS = ("claims_v", "approvals_v", "inventory_v", "depots_v")
COUNT = "SELECT count(*) AS n, max(amount) AS most FROM claims_v"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(SQL / "policies", folder / "policies")
    with (folder / "policies" / "tables.cedar").open("a", encoding="utf-8") as out:
        out.write(
            '@id("auditors") @reason("auditors read how a text was governed") @owner("security")\n'
            'permit (principal in Pointsman::Group::"dev:auditors", action == Pointsman::Action::"audit", resource);\n'
        )
    people = (folder / "policies" / "people.yaml").read_text(encoding="utf-8")
    people += '  auditor: { issuer: dev, sub: auditor, tenant: "1", groups: [analysts, auditors] }\n'
    people += '  guest: { issuer: dev, sub: guest, tenant: "1", groups: [guests] }\n'
    (folder / "policies" / "people.yaml").write_text(people, encoding="utf-8")
    make_tables((SQL / "fixture.sql").read_text(encoding="utf-8"), folder / "world.duckdb")
    tables = "".join(f'[tables.{name}]\npath = "world.duckdb"\ntable = "main.{name}"\n' for name in VIEWS)
    (folder / "pointsman.toml").write_text(f'state = "state"\n{tables}', encoding="utf-8")
    make_development_issuer(load_settings(folder / "pointsman.toml"))
    return folder / "pointsman.toml"


@pytest.fixture(scope="module")
def router(config):
    with Router.open(config) as router:
        router.copy_tables()
        yield router


def ask(router, text, person="analyst-1", **options):
    return router.ask_sql(text, token=router.mint(person), **options)


def records(router, answer):
    return [(link, record) for link, record in router.ledger.read("1", decision_id=answer.decision_id)]


def test_two_people_get_their_own_numbers(router):
    ours, theirs = ask(router, COUNT), ask(router, COUNT, "analyst-3")
    assert ours.table.rows[0][0] == theirs.table.rows[0][0] == 120
    assert theirs.table.rows[0][1] == "987654.32"
    assert float(ours.table.rows[0][1]) < 20_000


def test_masks_say_so(router):
    table = ask(router, "SELECT claimant_name FROM claims_v LIMIT 3").table
    assert table.columns == (TableColumn("claimant_name", "VARCHAR", masked=True),)
    assert all(row[0].endswith("***") for row in table.rows)


def test_every_text_is_recorded_before_its_rows_are_returned(router):
    answer = ask(router, COUNT)
    (_, asked), (link, answered) = records(router, answer)
    assert (asked.kind, answered.kind) == ("asked", "answered")
    body = json.loads(answered.body)
    decision_model().model_validate(body | {"seq": link.seq, "previous": link.previous, "digest": link.digest})
    assert body["route"]["name"] == "sql"
    assert body["sql"]["tables"] == ["claims_v"]
    assert body["sql"]["rows"] == 1
    assert body["policies"] == ["analysts-query", "tenant-wall"]
    assert [receipt["leg"] for receipt in body["filter_digests"]] == ["sql:claims_v"]
    assert b"tenant_id" not in answered.body


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM employees", "sql_unknown_table"),
        ("DROP VIEW claims_v", "sql_not_select"),
        ("SELECT 1; SELECT 2", "sql_not_one"),
    ],
)
@pytest.mark.parametrize("run", [True, False])
def test_a_refusal_is_an_answer_with_a_record(router, text, code, run):
    answer = ask(router, text, run=run)
    assert (answer.outcome, answer.verdict.code, answer.table) == ("refused", code, None)
    body = json.loads(records(router, answer)[1][1].body)
    assert body["refusal"]["code"] == code
    assert "employees" not in json.dumps(answer.as_json())


@pytest.mark.parametrize("run", [True, False])
def test_a_hidden_column_is_no_column(router, run):
    answers = [ask(router, f"SELECT {name} FROM claims_v", run=run) for name in ("claimant_phone", "no_such_column")]
    assert [answer.verdict.code for answer in answers] == ["sql_unknown_column"] * 2
    hidden, absent = (answer.as_json() | {"decision_id": ""} for answer in answers)
    assert hidden == absent


@pytest.mark.parametrize("run", [True, False])
def test_what_fails_while_it_runs_is_on_record(router, run):
    """The gate let it through: which filters and policies it met does not depend on its end."""
    text = "SELECT CAST(claimant_name AS INTEGER) FROM claims_v" if run else "SELECT no_such_column FROM claims_v"
    answer = ask(router, text, run=run)
    assert answer.outcome == "refused"
    body = json.loads(records(router, answer)[1][1].body)
    assert body["refusal"]["code"] == ("sql_value" if run else "sql_unknown_column")
    assert [receipt["leg"] for receipt in body["filter_digests"]] == ["sql:claims_v"]
    assert body["policies"] == ["analysts-query", "tenant-wall"]
    assert body["sql"]["tables"] == ["claims_v"]


def test_a_text_is_judged_once(router):
    stages = [json.loads(records(router, ask(router, COUNT, run=run))[1][1].body)["stages"] for run in (True, False)]
    assert ["rows" in one for one in stages] == [True, False]
    assert ["gate" in one for one in stages] == [False, True]


def test_nothing_granted_is_no_table(router):
    assert ask(router, COUNT, "guest").verdict.code == ask(router, "SELECT 1 FROM nowhere", "guest").verdict.code


def test_generated_text_needs_audit(router):
    for run in (True, False):
        assert "tenant_id" not in json.dumps(ask(router, COUNT, run=run).as_json())
        assert "generated" in ask(router, COUNT, "auditor", run=run).as_json()


def test_check_runs_nothing(router):
    answer = ask(router, COUNT, run=False)
    assert (answer.table, answer.outcome, answer.verdict.tables) == (None, "answered", ("claims_v",))


def test_a_token_that_is_none_is_refused(router):
    with pytest.raises(Refused):
        router.ask_sql(COUNT, token="x.y.z")


def test_before_the_first_copy(config, tmp_path):
    text = config.read_text(encoding="utf-8").replace('state = "state"', f'state = "{tmp_path}"')
    (config.parent / "other.toml").write_text(text, encoding="utf-8")
    make_development_issuer(load_settings(config.parent / "other.toml"))
    with Router.open(config.parent / "other.toml") as router:
        with pytest.raises(SourceError) as found:
            ask(router, COUNT)
        assert found.value.code == "tables_missing"
        assert found.value.decision_id


def test_commands(router, config, capsys):
    assert _run(["sql", "run", COUNT, "--as", "analyst-2", "--json", "--config", str(config)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows"][0][0] == 120
    assert shown["columns"][0] == {"name": "n", "type": "BIGINT", "masked": False}
    with pytest.raises(SystemExit) as ended:
        _run(["sql", "check", "SELECT * FROM employees", "--as", "analyst-2", "--config", str(config)])
    assert ended.value.code == Refused.exit_code
    assert "sql_unknown_table" in capsys.readouterr().out
