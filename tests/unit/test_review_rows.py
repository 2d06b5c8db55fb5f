"""Cases about rows and columns: decided by the code that enforces, and failing where nobody could reach what policy allows."""

import dataclasses
from datetime import UTC, datetime

import pytest

from router.errors import PolicyError
from router.filters import NEVER
from router.policy import PolicySet
from router.review.cases import run_cases
from tests.rows_world import edit, write_policies

NOW = datetime(2026, 11, 30, tzinfo=UTC)
THINGS = """things:
  row-of-1: { type: claims_v, attributes: { tenant: "1", region: west, groups: [a], reported: 2026-02-01, paid: false } }
  row-of-2: { type: claims_v, attributes: { tenant: "2", groups: [], reported: 2026-02-01, paid: true } }
  status: { type: Column, dataset: claims_v, column: Status }
  name: { type: Column, dataset: claims_v, column: claimant_name }
  phone: { type: Column, dataset: claims_v, column: claimant_phone }
  depots-row: { type: depots_v, attributes: { tenant: "1" } }
"""
CASES = """person,action,resource,expected,decided_by
analyst-1,query,row-of-1,allow,analysts-query
analyst-1,query,row-of-2,deny,tenant-wall
analyst-2,query,row-of-2,deny,west-only
analyst-1,read_column,status,allow,analysts-read-plain
analyst-1,read_column,name,deny,
analyst-1,read_masked,name,allow,personal-masked
analyst-1,filter_raw,name,deny,
analyst-1,read_column,phone,deny,
analyst-1,query,depots-row,allow,analysts-query
stranger,query,row-of-1,deny,
stranger,read_column,status,deny,
"""


@pytest.fixture
def folder(tmp_path):
    folder = write_policies(tmp_path / "policies")
    (folder / "cases").mkdir()
    (folder / "cases" / "things.yaml").write_text(THINGS)
    (folder / "cases" / "tables.csv").write_text(CASES)
    return folder


def failing(folder):
    return {result.case.line: result.problem for result in run_cases(folder, NOW).results if not result.passed}


def test_rows_and_columns_are_decided(folder):
    report = run_cases(folder, NOW)
    assert [(result.case.line, result.problem) for result in report.results if not result.passed] == []
    assert report.uncovered == ()


def test_wrong_expectations_fail(folder):
    with (folder / "cases" / "tables.csv").open("a") as out:
        out.write(
            "analyst-1,query,row-of-1,deny,\nanalyst-1,query,row-of-2,deny,west-only\nanalyst-1,read_masked,status,allow,\n"
            "analyst-1,read_column,status,allow,personal-masked\n"
        )
    found = failing(folder)
    assert set(found) == {13, 15, 16}, found
    assert found[16] == "expected to be decided by personal-masked, but analysts-read-plain did"


def test_a_changed_policy_fails_its_cases(folder):
    edit(folder, "tables.cedar", 'resource.region == "west"', 'resource.region == "east"')
    assert set(failing(folder)) == {2, 11}


def test_a_filter_that_disagrees_with_cedar_fails_the_case(folder, monkeypatch):
    real = PolicySet.grants

    def narrowed(self, principal, now):
        grants = real(self, principal, now)
        return dataclasses.replace(grants, query=tuple(dataclasses.replace(grant, filter=NEVER) for grant in grants.query))

    monkeypatch.setattr(PolicySet, "grants", narrowed)
    assert failing(folder) == dict.fromkeys((2, 10), "the filter hides what Cedar in full allows")


def test_columns_that_are_granted_otherwise_fail_the_case(folder, monkeypatch):
    real = PolicySet.grants

    def unmasked(self, principal, now):
        grants = real(self, principal, now)
        query = (
            dataclasses.replace(grant, columns=tuple(dataclasses.replace(column, mask=None) for column in grant.columns))
            for grant in grants.query
        )
        return dataclasses.replace(grants, query=tuple(query))

    monkeypatch.setattr(PolicySet, "grants", unmasked)
    assert failing(folder) == dict.fromkeys((6, 7, 8), "Cedar in full says its mask, and granted is the column")


def test_rows_without_a_column_are_reached_by_nobody(folder):
    edit(folder, "tables.cedar", 'contains("plain")', 'contains("plain") && resource.tags.contains("personal")')
    problems = failing(folder)
    assert problems[10] == "the rows may be read, but no column of them"


def test_a_mask_that_is_not_there(folder):
    edit(folder, "governance.yaml", """{ tags: [personal], mask: "substr(claimant_name, 1, 1) || '***'" }""", "[personal]")
    assert "no mask" in failing(folder)[7]


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("{ type: claim_v, attributes: { tenant: '1' } }", "did you mean `claims_v`"),
        ("{ type: claims_v, attributes: { tenant: '1', groups: [], paid: true } }", "lacks `reported`"),
        ("{ type: claims_v, attributes: { groups: [], reported: 1, paid: true } }", "lacks `tenant`"),
        ("{ type: claims_v, attributes: { tenant: 1, groups: [], reported: 1, paid: true } }", "not a string"),
        ("{ type: claims_v, attributes: { tenant: '1', groups: [], reported: 1, paid: true, regio: x } }", "unknown key `regio`"),
        (
            "{ type: claims_v, source: x, attributes: { tenant: '1', groups: [], reported: 1, paid: true } }",
            "unknown key `source`",
        ),
        ("{ type: Column, dataset: claims, column: status }", "did you mean `claims_v`"),
        ("{ type: Column, dataset: claims_v, column: state }", "did you mean `status`"),
        ("{ type: Column, dataset: claims_v }", "needs `column`"),
        ("{ type: Column, dataset: claims_v, column: status, attributes: {} }", "unknown key `attributes`"),
    ],
)
def test_malformed_things(folder, thing, said):
    with (folder / "cases" / "things.yaml").open("a") as out:
        out.write(f"  wrong: {thing}\n")
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert "cases/things.yaml:8" in caught.value.message
    assert said in f"{caught.value.message}; {caught.value.hint}"


@pytest.mark.parametrize(
    ("row", "said", "hint"),
    [
        ("analyst-1,query,status,allow,x", "`query` is asked of a Column", "it is for a row"),
        ("analyst-1,read_column,row-of-1,allow,x", "`read_column` is asked of a row", "it is for a Column"),
        ("analyst-1,search,row-of-1,allow,x", "`search` is asked of a row", "it is for a Document"),
        ("analyst-1,audit,phone,allow,x", "`audit` is asked of a Column", "it is for a Decision"),
        ("analyst-1,read_colum,phone,allow,x", "`read_colum` is no action", "did you mean `read_column`"),
    ],
)
def test_malformed_rows(folder, row, said, hint):
    with (folder / "cases" / "tables.csv").open("a") as out:
        out.write(f"{row}\n")
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert f"cases/tables.csv:13: {said}" in caught.value.message
    assert caught.value.hint == hint
