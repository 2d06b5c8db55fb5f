"""The starter: loads and passes its own cases whatever it is filled with, and writes nowhere else."""

import json
import re
import shlex
import textwrap
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from router.doors.cli import _run
from router.errors import UsageError
from router.policy import load_policies
from router.review.cases import map_person, run_cases
from router.review.check import check_policies
from router.starter import read_starter, write_starter

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "filled",
    [
        {},
        {"tenant": "me", "group": "dev:staff", "sensitivity": "public"},
        {"tenant": "a: {tenant} 'x' \"y\" # é", "group": "x, y]", "sensitivity": "restricted"},
        {"tenant": "null", "group": "true", "sensitivity": "confidential"},
        {"tenant": "2026-01-01", "group": "visitors", "sensitivity": "internal"},
        {"tenant": "\\1 {group}", "group": "{tenant}"},
    ],
)
def test_starter_passes_its_own_checks(tmp_path, filled):
    write_starter(tmp_path / "x", **filled)
    policies = tmp_path / "x" / "policies"
    assert check_policies(policies) == []
    report = run_cases(policies, NOW)
    assert report.passed, [result.problem for result in report.results] + list(report.uncovered)


def test_ada_finds_and_bob_does_not(tmp_path):
    documents = tmp_path / "docs"
    documents.mkdir()
    write_starter(tmp_path / "x", documents=documents, tenant="me", group="staff", sensitivity="internal")
    policies = load_policies(tmp_path / "x" / "policies")
    assert set(policies.people) == {"ada", "bob"}
    assert map_person("ada", policies).groups == {"dev:staff"}
    assert [grant.source for grant in policies.grants(map_person("ada", policies), NOW).search] == ["documents"]
    bob = map_person("bob", policies)
    labels = {"tenant": "me", "groups": frozenset({"dev:staff"}), "sensitivity": 1}
    assert not policies.recheck(bob, NOW, [("documents", "d", labels)])[0]
    assert policies.sources["documents"].labels == "labels/documents.yaml"
    assert policies.sources["documents"].groups == {"dev:staff"}


def test_documents_are_named_absolutely_and_left_alone(tmp_path, monkeypatch):
    documents = tmp_path / 'my "docs" é'
    documents.mkdir()
    (documents / "a.md").write_text("# a")
    monkeypatch.chdir(tmp_path)
    written = write_starter(Path("x"), documents=Path('my "docs" é'))
    settings = tomllib.loads((tmp_path / "x" / "pointsman.toml").read_text())
    assert settings["sources"]["documents"]["path"] == str(documents)
    assert [path.name for path in documents.iterdir()] == ["a.md"]
    assert not (tmp_path / "x" / "documents").exists()
    labels = yaml.safe_load((tmp_path / "x" / "labels" / "documents.yaml").read_text())
    assert labels["rules"][0] == {"match": "**", "groups": ["dev:staff"], "sensitivity": "internal"}
    assert all((tmp_path / "x" / path).is_file() for path in written)


def test_without_documents_there_are_sample_pages(tmp_path):
    write_starter(tmp_path / "x")
    settings = tomllib.loads((tmp_path / "x" / "pointsman.toml").read_text())
    assert settings["sources"]["documents"]["path"] == "documents"
    assert len(list((tmp_path / "x" / "documents").glob("*.md"))) == 3
    assert (tmp_path / "x" / ".gitignore").read_text() == "state/\n"


def test_no_mark_is_left(tmp_path):
    write_starter(tmp_path / "x")
    for path in (tmp_path / "x").rglob("*.*"):
        if path.suffix in (".yaml", ".toml"):
            assert not [
                mark for mark in ("{tenant}", "{group}", "{documents}", "{clear", "{sens", "{bare") if mark in path.read_text()
            ]
    assert "{" + "tenant}" not in read_starter("policies/00-never.cedar")


def test_target_must_be_empty(tmp_path):
    target = tmp_path / "x"
    target.mkdir()
    write_starter(target)
    before = json.dumps(sorted(str(path) for path in tmp_path.rglob("*")))
    for wrong in (target, target / "pointsman.toml"):
        with pytest.raises(UsageError) as caught:
            write_starter(wrong)
        assert caught.value.code == "target_not_empty"
    assert json.dumps(sorted(str(path) for path in tmp_path.rglob("*"))) == before


def test_target_may_not_lie_in_the_documents(tmp_path):
    with pytest.raises(UsageError) as caught:
        write_starter(tmp_path / "x", documents=tmp_path)
    assert caught.value.code == "target_inside_documents"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"sensitivity": "secret"},
        {"group": "corp:staff"},
        {"group": ""},
        {"group": "dev:"},
        {"tenant": " "},
        {"tenant": "a\nb"},
        {"tenant": "a\0b"},
        {"documents": Path("/nowhere/at/all")},
    ],
)
def test_bad_input_writes_nothing(tmp_path, wrong):
    with pytest.raises(UsageError):
        write_starter(tmp_path / "x", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="space"):
        write_starter(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["policies/README.md", "router/starter/policies/README.md"])
def test_what_a_reader_copies_runs_as_it_stands(place):
    """Explanations among commands stand behind a `#`, so that the whole block may be pasted into a shell."""
    text = (Path(__file__).parents[2] / place).read_text()
    (block,) = [block for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if not language]
    lines = block.strip().splitlines()
    assert sum(line.startswith("pointsman ") for line in lines) >= 3
    assert all(line.startswith(("pointsman ", "# ")) and len(shlex.split(line, comments=True)) != 1 for line in lines)
    assert not [line for line in lines if "  " in line]


# --- tables -----------------------------------------------------------------------------------------------------------


def fenced(text, language, heading="Adding a table"):
    """The blocks of one language under a heading, unindented."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```$", section, re.M | re.S)]


def with_parts(folder):
    """A starter with the table `parts`, every block of the page put where it says; the page."""
    assert _run(["init", str(folder)]) == 0
    readme = (folder / "policies" / "README.md").read_text()
    (folder / "parts.csv").write_text("part,stock,buyer\nPN-2,7,Zoe\nPN-1,3,Adam\n")
    (table,) = fenced(readme, "toml")
    with (folder / "pointsman.toml").open("a") as out:
        out.write(table)
    schema, permits = fenced(readme, "cedar")
    facts, things = fenced(readme, "yaml")
    (cases,) = fenced(readme, "csv")
    path = folder / "policies" / "schema.cedarschema"
    text = path.read_text().replace('action "query", "read_column"', 'action "read_column"')
    path.write_text(text.rstrip().removesuffix("}") + schema + "}\n")
    (folder / "policies" / "governance.yaml").write_text(facts)
    (folder / "policies" / "tables.cedar").write_text(permits)
    with (folder / "policies" / "cases" / "things.yaml").open("a") as out:
        out.write(textwrap.indent(things, "  "))
    (folder / "policies" / "cases" / "tables.csv").write_text(cases)
    return readme


def test_a_table_is_added_as_the_readme_says(tmp_path, capsys):
    """Every command of the page is run."""
    folder = tmp_path / "x"
    first, second = fenced(with_parts(folder), "sh")
    commands = [shlex.split(line.partition(" > ")[0]) for line in [*first.splitlines(), *second.splitlines()]]
    for program, *arguments in commands:
        assert program == "pointsman"
        config = ["--config", str(folder / "pointsman.toml")]
        shown = [] if arguments[:2] == ["catalog", "derive"] else ["--json"]
        capsys.readouterr()
        assert _run([*arguments, *config, *shown]) == 0, capsys.readouterr()
        out = capsys.readouterr().out
        if arguments[:2] == ["catalog", "derive"]:
            (folder / "policies" / "catalog.yaml").write_text(out)
        if arguments[:2] == ["sql", "run"]:
            assert json.loads(out)["rows"] == [["PN-1", 3, "A***"], ["PN-2", 7, "Z***"]]
    assert [dataset.name for dataset in load_policies(folder / "policies").catalog.datasets] == ["parts"]


def with_sales(folder):
    """And with a second table of the same tenant, whose columns everybody of the group may read; the page."""
    readme, policies = with_parts(folder), folder / "policies"
    (folder / "sales.csv").write_text("sale,part,pieces\n1,PN-1,2\n2,PN-1,5\n3,PN-2,1\n")
    with (folder / "pointsman.toml").open("a") as out:
        out.write('\n[tables.sales]\npath = "sales.csv"\n')
    schema = (policies / "schema.cedarschema").read_text().replace("resource: [parts]", "resource: [parts, sales]")
    (policies / "schema.cedarschema").write_text(
        schema.replace("entity parts =", "entity sales = { tenant: String };\n  entity parts =")
    )
    facts = "  sales:\n    attributes: { tenant: \"'me'\" }\n    columns: { sale: [plain], part: [plain], pieces: [plain] }\n"
    with (policies / "governance.yaml").open("a") as out:
        out.write(facts)
    permit = (policies / "tables.cedar").read_text().partition("\n\n")[0].replace("parts", "sales")
    with (policies / "tables.cedar").open("a") as out:
        out.write("\n" + permit + "\n")
    return readme


def test_two_tables_are_tied_as_the_readme_says(tmp_path, capsys):
    """Each command of the page is run; without what it adds, the questions are asked back."""
    folder = tmp_path / "x"
    readme = with_sales(folder)
    (tied,) = fenced(readme, "yaml", "Two tables in one question")
    (block,) = fenced(readme, "bash", "Two tables in one question")

    def run(*arguments):
        capsys.readouterr()
        assert _run([*arguments, "--config", str(folder / "pointsman.toml")]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    run("index")
    catalog = folder / "policies" / "catalog.yaml"
    catalog.write_text(run("catalog", "derive"))
    check, key, *questions = [shlex.split(line)[1:] for line in block.splitlines()]
    assert [json.loads(run(*asked, "--json"))["outcome"] for asked in questions] == ["clarify", "clarify"]
    said = yaml.safe_load(tied)
    document = yaml.safe_load(catalog.read_text())
    (model,) = document["semantic_model"]
    keys = {one["name"]: one["primary_key"] for one in said["datasets"]}
    model["datasets"] = [{**one, "primary_key": keys[one["name"]]} for one in model["datasets"]]
    catalog.write_text(yaml.safe_dump(document))
    assert json.loads(run(*questions[0], "--json"))["outcome"] == "clarify"
    model["relationships"] = said["relationships"]
    catalog.write_text(yaml.safe_dump(document))
    assert json.loads(run(*check, "--json"))["findings"] == []
    assert json.loads(run(*key, "--json"))["rows"] == []
    assert [json.loads(run(*asked, "--json"))["tables"][0]["rows"] for asked in questions] == [[[2]], [["PN-1"]]]
