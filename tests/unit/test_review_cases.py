"""Cases: decided by the enforcing code, failing when decision or deciding policy is another, and covering every policy."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.errors import PolicyError
from router.filters import NEVER
from router.policy import PolicySet, load_policies
from router.review.cases import load_things, run_cases

ROOT = Path(__file__).parents[2] / "policies"
NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(ROOT, tmp_path / "policies"))


def add(folder, *rows):
    with (folder / "cases" / "documents.csv").open("a") as out:
        out.writelines(f"{row}\n" for row in rows)


def failing(folder):
    return [(result.case.line, result.problem) for result in run_cases(folder, NOW).results if not result.passed]


def test_every_case_of_the_demonstration_passes_and_covers_every_policy():
    report = run_cases(ROOT, NOW)
    assert [(result.case, result.problem) for result in report.results if not result.passed] == []
    assert report.uncovered == ()
    assert report.passed
    assert len(report.results) >= 40


def test_wrong_expectations_fail(folder):
    lines = len((folder / "cases" / "documents.csv").read_text().splitlines())
    add(
        folder,
        "ada,search,conveyor-service-chapter,deny,",
        "ada,search,conveyor-service-chapter,allow,public-pages",
        "ada,search,conveyor-service-chapter,allow,",
        "ada,search,conveyor-design-limits,deny,",
        "ada,search,conveyor-service-chapter,allow,staff-read-their-groups",
        "kim,search,conveyor-service-chapter,deny,tenant_missing",
        "kim,search,conveyor-service-chapter,allow,staff-read-their-groups",
    )
    found = failing(folder)
    assert [line - lines for line, _ in found] == [1, 2, 3, 4, 7]
    assert "staff-read-their-groups" in found[0][1]


def test_a_changed_policy_fails_its_cases(folder):
    path = folder / "documents.cedar"
    path.write_text(path.read_text().replace("resource.sensitivity == 0", "resource.sensitivity <= 1"))
    assert failing(folder)


def test_a_policy_without_a_case_is_named(folder):
    with (folder / "documents.cedar").open("a") as out:
        out.write(
            '\n@id("new-one") @reason("r") @owner("o")\npermit (principal, action == Pointsman::Action::"search", resource)'
            ' when { resource has owner && resource.owner == "nobody" };\n'
        )
    report = run_cases(folder, NOW)
    assert report.uncovered == ("new-one",)
    assert not report.passed


def test_a_filter_that_disagrees_with_cedar_fails_the_case(folder, monkeypatch):
    real = PolicySet.grants

    def narrowed(self, principal, now):
        grants = real(self, principal, now)
        from dataclasses import replace

        return replace(grants, search=tuple(replace(grant, filter=NEVER) for grant in grants.search))

    monkeypatch.setattr(PolicySet, "grants", narrowed)
    assert any("filter hides" in problem for _, problem in failing(folder))


def test_time_is_an_input():
    later = run_cases(ROOT, datetime(2100, 1, 1, tzinfo=UTC))
    assert [result.case.resource for result in later.results if not result.passed] == ["approval-limits-next"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("adda,search,leave-page,allow,x", "`adda`"),
        ("ada,serch,leave-page,allow,x", "`serch`"),
        ("ada,search,leave-pages,allow,x", "`leave-pages`"),
        ("ada,search,fabrikam-decision,allow,x", "Decision"),
        ("ada,audit,leave-page,allow,x", "Document"),
        ("ada,search,leave-page,maybe,x", "`maybe`"),
        ("ada,search,leave-page", "3 columns"),
    ],
)
def test_malformed_rows(folder, row, said):
    add(folder, row)
    lines = len((folder / "cases" / "documents.csv").read_text().splitlines())
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert said in caught.value.message
    assert f"documents.csv:{lines}" in caught.value.message


def test_all_bad_rows_are_named(folder):
    lines = len((folder / "cases" / "documents.csv").read_text().splitlines())
    add(folder, "adda,search,leave-page,allow,x", "ada,search,leave-page,allow,", "ada;search;leave-page;allow;x")
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert f"documents.csv:{lines + 1}: nobody is called `adda`" in caught.value.message
    assert f"documents.csv:{lines + 3}: the row has 1 column" in caught.value.message
    assert f"documents.csv:{lines + 2}" not in caught.value.message


@pytest.mark.parametrize(
    "first", ["person;action;resource;expected;decided_by", "person,action,thing,expected,decided_by", "", '"']
)
def test_columns_are_told(folder, first):
    (folder / "cases" / "documents.csv").write_text(f"{first}\nada,search,leave-page,allow,\n")
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert caught.value.hint == "expected 5 columns: person,action,resource,expected,decided_by; commas, not semicolons"


@pytest.mark.parametrize("body", [b"\xff\xfe", b"person\0", None])
def test_a_case_file_that_cannot_be_read(folder, body):
    path = folder / "cases" / "more.csv"
    if body is None:
        os.mkfifo(path)
    else:
        path.write_bytes(body)
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert "cases/more.csv" in caught.value.message


def test_people_that_are_missing(folder):
    (folder / "people.yaml").unlink()
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert "people.yaml" in caught.value.message
    assert "people.yaml" in caught.value.hint


def test_labels_of_a_thing_are_in_nfc_as_indexed_ones_are(folder):
    with (folder / "cases" / "things.yaml").open("a") as out:
        out.write(
            "  typed: { type: Document, source: people, attributes: { groups: [], sensitivity: public, owner: Cafe\u0301 } }\n"
        )
    assert load_things(folder, load_policies(folder))["typed"].attributes["owner"] == "Caf\u00e9"


@pytest.mark.parametrize(
    "thing",
    [
        "{ type: Document, source: nowhere, attributes: { groups: [], sensitivity: public } }",
        "{ type: Document, source: rules, attributes: { groups: [] } }",
        "{ type: Document, source: rules, attributes: { groups: [], sensitivity: secret } }",
        "{ type: Document, source: rules, attributes: { groups: corp:all, sensitivity: public } }",
        "{ type: Document, source: rules, attributes: { groups: [], sensitivity: public, tenant: contoso } }",
        "{ type: Document, source: rules, attributes: { groups: [], sensitivity: public, effective_from: soon } }",
        "{ type: Provider, id: x, context: { purpose: rerank } }",
        "{ type: Documents }",
    ],
)
def test_malformed_things(folder, thing):
    with (folder / "cases" / "things.yaml").open("a") as out:
        out.write(f"  wrong: {thing}\n")
    with pytest.raises(PolicyError) as caught:
        run_cases(folder, NOW)
    assert "cases/things.yaml:" in caught.value.message


def test_no_cases(folder):
    for path in (folder / "cases").glob("*.csv"):
        path.unlink()
    with pytest.raises(PolicyError):
        run_cases(folder, NOW)
