"""The demonstration holds what it promises, in the checkout and from an installed wheel."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from router.app import Router, make_database, make_development_issuer
from router.config import load_settings
from router.plain import parse_yaml
from tests.world import ROOT

demo = importlib.import_module("router.doors.cli.demo")  # the package's own `demo` is the command
demo_tables = importlib.import_module("router.doors.cli.demo_tables")
QUESTIONS, NOW = demo.load_questions(ROOT / "deploy" / "demo" / "questions.yaml")
TABLES = parse_yaml((ROOT / "deploy" / "demo" / "questions.yaml").read_text(encoding="utf-8"))["tables"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy, so that neither a state left in the checkout helps nor this test leaves one."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(ROOT / "deploy" / "demo", folder / "deploy" / "demo", ignore=shutil.ignore_patterns("state"))
    shutil.copytree(ROOT / "policies", folder / "policies")
    return folder / "deploy" / "demo"


@pytest.fixture(scope="module")
def router(place):
    settings = load_settings(place / "pointsman.toml")
    make_development_issuer(settings)
    make_database(settings.state_folder / "tickets.sqlite", (place / "tickets.sql").read_text(encoding="utf-8"))
    with Router(settings) as made:
        runpy.run_path(str(place / "tables" / "make_tables.py"))["make_tables"](settings.state_folder / "made")
        report = made.index()
        assert [table.error for table in made.copy_tables()] == [None] * 5
        failed = [(source.source, source.error, source.failures) for source in report.sources if source.error or source.failures]
        made.report = report
        made.failed = failed
        yield made


def test_everything_but_what_is_meant_to_fail_is_indexed(router):
    """A document without labels, outside its envelope or unreadable is there to be reported, never by accident a whole source."""
    assert sum(source.indexed for source in router.report.sources) >= 120
    assert all(source.indexed > 0 for source in router.report.sources)
    assert [(name, error) for name, error, _ in router.failed if error] == []
    reasons = {item.reason for _, _, failures in router.failed for item in failures}
    assert not reasons & {"crashed", "timeout", "memory", "gone", "unreadable"}, router.failed


@pytest.mark.parametrize("entry", QUESTIONS, ids=[f"{at}-{entry['as']}" for at, entry in enumerate(QUESTIONS)])
def test_question_holds(router, entry):
    """Every expected document is among the first five, and nothing that may never be seen is, however many are asked for."""
    [asked] = demo.ask_all(router, [entry], NOW)
    assert asked.problem == ""
    if asked.answer is None:
        assert entry["outcome"] == "refused"
        return
    assert {entry.stage for entry in asked.answer.degraded} <= {"now"}
    everything = router.ask(entry["ask"], token=router.mint(entry["as"]), now=NOW, k=50)
    assert not {passage.document_id for passage in everything.passages} & set(entry.get("never") or ())


@pytest.fixture(scope="module")
def asked_rows(router, place):
    return demo_tables.ask_rows(router, place / "questions.yaml")


@pytest.mark.parametrize("at", range(len(TABLES)), ids=[f"{at}-{entry['as']}" for at, entry in enumerate(TABLES)])
def test_rows_are_as_promised(asked_rows, at):
    item = asked_rows[at]
    assert item.problem == ""
    assert {entry.stage for entry in getattr(item.answer, "degraded", ())} <= {"now"}


def test_what_is_suggested_is_answered(router, asked_rows):
    """What the demonstration ends with can be typed as it stands: the route is chosen, and evidence comes."""
    told = [entry for entry in QUESTIONS if entry.get("shows")]
    suggested = demo.suggested(demo.ask_all(router, told, NOW), asked_rows)
    assert len(suggested) == len({person for _, person in suggested}) == 3
    answers = [router.ask(question, token=router.mint(person), now=NOW) for question, person in suggested]
    assert [answer.outcome for answer in answers] == ["answered"] * 3
    one, other, counted = answers
    assert {passage.document_id for passage in one.passages} != {passage.document_id for passage in other.passages}
    assert counted.tables


def test_every_kind_of_draft_is_shown(asked_rows):
    assert {item.table.origin for item in asked_rows if item.table is not None} >= {"tool", "planner"}
    assert any(column.masked for item in asked_rows if item.table is not None for column in item.table.columns)


def test_enough_is_asked_by_enough_people():
    assert len(QUESTIONS) >= 12
    assert len({entry["as"] for entry in QUESTIONS}) >= 6
    pairs = {}
    for entry in QUESTIONS:
        if "pair" in entry:
            pairs.setdefault(entry["pair"], []).append(entry)
    assert len(pairs) >= 3
    assert all(len({entry["ask"] for entry in pair}) == 1 and len({entry["as"] for entry in pair}) > 1 for pair in pairs.values())


def test_named_documents_exist(router):
    """A `never` that names nothing would promise nothing."""
    held = {document for tenant in ("fabrikam", "contoso") for _, document, _ in router.store.labelled(tenant)}
    for entry in QUESTIONS:
        assert set(entry.get("expect") or ()) <= held, entry["ask"]
        assert set(entry.get("never") or ()) <= held, entry["ask"]


def test_policies_of_the_demonstration_are_sound():
    from router.review.check import check_policies

    assert [finding for finding in check_policies(ROOT / "policies") if finding.level == "error"] == []


# --- from a wheel -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of what is tracked and what lies around, as a maintainer's checkout would be."""
    target = tmp_path_factory.mktemp("wheel")
    state = ROOT / "deploy" / "demo" / "state"
    marked = not state.exists()
    if marked:
        (state / "keys").mkdir(parents=True)
        (state / "keys" / "development.pem").write_text("a key that must not travel")
    try:
        call = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
        subprocess.run(call, cwd=ROOT, check=True, capture_output=True, timeout=120)
    finally:
        if marked:
            shutil.rmtree(state)
    [built] = target.glob("*.whl")
    return built


def test_wheel_holds_what_an_install_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "router/world/policies/00-never.cedar",
        "router/world/policies/people.yaml",
        "router/world/deploy/demo/pointsman.toml",
        "router/world/deploy/demo/questions.yaml",
        "router/world/deploy/demo/tickets.sql",
        "router/world/deploy/demo/tables/make_tables.py",
        "router/world/policies/catalog.yaml",
        "router/world/policies/tables.cedar",
        "router/starter/pointsman.toml",
        "router/starter/gitignore",
        "router/starter/policies/00-never.cedar",
        "router/starter/documents/first-steps.md",
        "router/py.typed",
        "connectors/sqlite_documents.py",
    ):
        assert needed in names, needed
    assert any(name.startswith("router/model/") and name.endswith(".onnx") for name in names)
    sources = {
        name.removeprefix("router/world/deploy/demo/documents/").split("/")[0] for name in names if "/demo/documents/" in name
    }
    assert len(sources) >= 8


def test_wheel_holds_no_key_and_no_state(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {"router/evals/route_questions.jsonl"}  # questions that the router's weights were trained with, written for it
    state = (".pem", ".key", ".sqlite", ".jsonl", ".pyc")
    assert [name for name in names if "/state/" in name or (name.endswith(state) and name not in shipped)] == []
    assert [name for name in names if name.startswith(("tests/", "adr/"))] == []


def test_installed_wheel_runs_the_demonstration(wheel, tmp_path):
    """In an empty home, from outside the checkout, with nothing of it on the path."""
    target, home = tmp_path / "target", tmp_path / "home"
    home.mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=120)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    script = "import router; assert router.__file__.startswith(%r), router.__file__\nfrom router.doors.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script % str(target), "demo", "--dir", "shown", "--json"],
        check=False, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    shown = [*printed["questions"], *printed["tables"]]
    assert len(shown) == len(QUESTIONS) + len(TABLES)
    assert [item["problem"] for item in shown if item["problem"]] == []
    assert list(home.iterdir()) == []
    assert (tmp_path / "shown" / "policies" / "README.md").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"target", "home", "shown"}
    assert not list(Path(target).rglob("state"))
