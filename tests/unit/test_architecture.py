"""The shape of the house: layers, names, sizes, and that every promise written down names a test that exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer.main

from router.doors import cli
from tests.world import ROOT

FILES = [path for folder in ("router", "connectors") for path in sorted((ROOT / folder).rglob("*.py"))]
ADRS = sorted((ROOT / "adr").glob("0*.md"))
LONGEST = 600
FORBIDDEN = {"manager", "service", "helper", "helpers", "utils", "util", "base", "common", "misc", "core"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# --- layers and names -------------------------------------------------------------------------------------------------


def test_contracts_of_the_layers_hold():
    """Every import points downward, connectors know only nouns, cedarpy stands in one place: pyproject.toml has the contracts."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
    assert int(re.search(r"(\d+) kept", done.stdout)[1]) >= 6


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_module_is_named_by_what_it_is(path):
    assert path.stem not in FORBIDDEN
    assert not any(part in FORBIDDEN for part in path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef):
            words = {word.lower() for word in re.findall(r"[A-Z][a-z]+", node.name)}
            assert not words & (FORBIDDEN - {"service", "core"}), node.name


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_long_module_says_why(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    doc = ast.get_docstring(tree_of(path)) or ""
    assert lines <= LONGEST or re.search(r"longer than most|above 600|one layout|because", doc), f"{lines} lines and no reason"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_what_is_public_says_what_it_is(path):
    """Modules and public classes always; public functions and methods where they are more than a line or two."""
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module"
    silent = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
        and node.end_lineno - node.body[0].lineno > 30
    ]
    assert silent == []


def test_request_threads_stand_in_one_place():
    """Process pools only where files are parsed and where tables are served; a thread for a request only in execute.py (that of
    the tables fills the pool again, and one in each worker holds its clock; a copy of a table waits in one for its engine)."""
    allowed = {"router/execute.py", "connectors/duckdb_tables.py", "connectors/table_snapshots.py"}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if re.search(r"threading\.Thread\(|ThreadPoolExecutor|ProcessPoolExecutor", text):
            assert name_of(path) in allowed, name_of(path)
        if re.search(r"get_context\(|multiprocessing\.Process", text):
            assert name_of(path) in {"router/ingest/parse.py", "connectors/duckdb_tables.py"}


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TODO|FIXME|HACK)\b|# *XXX|raise NotImplementedError|pytest\.(mark\.)?(skip|xfail)\b")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    found = [name_of(path) for path in [*FILES, *tests] if marks.search(path.read_text(encoding="utf-8"))]
    found = [name for name in found if not name.startswith("tests/postgres/")]  # skips where no PostgreSQL was started
    assert found == []


# --- promises ---------------------------------------------------------------------------------------------------------


@cache
def names_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    text = path.read_text(encoding="utf-8")
    found = {node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for suite in re.findall(r"^from (tests[\w.]+) import \*", text, re.M):
        found |= names_in(suite.replace(".", "/") + ".py")
    return frozenset(found)


def check_reference(where: str, text: str) -> int:
    """`tests/x.py`, `tests/x.py::test_a, ::test_b` and `…::test_c`, which is the file named before; returns how many."""
    count, file = 0, ""
    text = re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)
    for match in re.finditer(r"(tests/[\w/]+\.py)|::\s*(\w+)", text):
        count += 1
        if match[1]:
            file = match[1]
            assert (ROOT / file).is_file(), f"{where} names {file}"
        elif file:
            assert match[2] in names_in(file), f"{where} names {file}::{match[2]}"
    return count


def test_every_invariant_names_a_test_that_exists():
    invariants = 0
    for path in FILES:
        doc = path.read_text(encoding="utf-8")
        for at in [match.start() for match in re.finditer("INVARIANT", doc)]:
            body = doc[at : at + 900]
            body = body[
                : next((stop.start() for stop in re.finditer(r'INVARIANT|"""|\n\n', body) if stop.start() > 5), len(body))
            ]
            invariants += 1
            before = doc[:at]
            nearest = re.findall(r"tests/[\w/]+\.py", before)
            wanted = body if re.search(r"tests/", body) else f"{nearest[-1] if nearest else ''} {body}"
            if "…::" in body and nearest and not re.search(r"tests/", body):
                wanted = f"{nearest[-1]} {body}"
            if "tests/" in body or "::" in body:
                assert check_reference(f"{name_of(path)}: {body[:60]}", wanted) > 0
    assert invariants >= 40


def test_every_reference_to_a_test_is_to_one_that_exists():
    for path in FILES:
        for match in re.finditer(
            r"tests/[\w/]+\.py(?:::\w+)?", re.sub(r"\.py::\s*\n\s*(?:#\s*)?", ".py::", path.read_text(encoding="utf-8"))
        ):
            check_reference(name_of(path), match[0])


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in ADRS if not path.name.startswith("0000")], ids=lambda path: path.stem)
def test_decision_names_the_test_that_enforces_it(path):
    text = path.read_text(encoding="utf-8")
    match = re.search(r"Enforced by:?\s*(.+)", text, re.S)
    assert match, "no line `Enforced by:`"
    assert check_reference(path.name, match[1]) > 0


def test_decisions_have_numbers_of_their_own_and_a_status():
    numbers = [path.name[:4] for path in ADRS]
    assert len(set(numbers)) == len(numbers) >= 12
    for path in ADRS[1:]:
        assert re.search(r"^Status: (accepted|superseded|proposed)", path.read_text(encoding="utf-8"), re.M), path.name
    assert len(list((ROOT / "adr" / "rejected").glob("*.md"))) >= 3


def commands() -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()

    def walk(group, path):
        for name, inner in group.commands.items():
            found.add((*path, name))
            if hasattr(inner, "commands"):
                walk(inner, (*path, name))

    walk(typer.main.get_command(cli.app), ())
    return found


@pytest.mark.parametrize(
    "place",
    [
        "README.md",
        "deploy/runbook.md",
        "policies/README.md",
        "router/starter/policies/README.md",
        "deploy/demo/README.md",
        ".ci/run",
    ],
)
def test_commands_shown_exist(place):
    """Every `pointsman …` of a document is a command, and each of its flags is known to it."""
    known = commands()
    group = typer.main.get_command(cli.app)
    shown = re.findall(
        r"(?:^|[`$ /])pointsman((?: +(?:--?[\w-]+|[^\s`|&;]+))+)", (ROOT / place).read_text(encoding="utf-8"), re.M
    )
    tried = 0
    for text in shown:
        words = text.split()
        while words and words[0] in ("--config", "--json"):
            words = words[2:] if words[0] == "--config" else words[1:]
        if not words or not re.fullmatch(r"[a-z-]+", words[0]):
            continue
        if (words[0],) not in known:
            assert place.endswith(".md"), (place, text)
            assert words[0] in {"needs", "is", "in", "returns", "runs", "can", "from", "and", "has", "does", "it", "as"}, (
                place,
                text,
            )
            continue
        command, rest = group.commands[words[0]], words[1:]
        if hasattr(command, "commands"):
            inner = rest[0] if rest and rest[0] in command.commands else "run" if "run" in command.commands else None
            if inner is None:
                continue
            command, rest = command.commands[inner], rest[1:] if rest and rest[0] == inner else rest
        flags = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for word in rest:
            if re.fullmatch(r"--[a-z-]+|-[a-z]", word.rstrip(".,:)")):
                assert word.rstrip(".,:)") in flags, (place, text)
        tried += 1
    assert tried > 0 or place in {"deploy/demo/README.md", "policies/README.md", "router/starter/policies/README.md"}


def test_documents_link_to_files_that_exist():
    for place in ("README.md", "deploy/runbook.md", "CHANGELOG.md", "policies/README.md"):
        text = (ROOT / place).read_text(encoding="utf-8")
        for named in re.findall(
            r"`((?:router|connectors|policies|adr|deploy|tests)/[\w./-]+\.(?:py|md|toml|yaml|cedar|sh|txt))`", text
        ):
            assert (ROOT / named).exists(), (place, named)


def test_field_list_of_the_record_is_made_from_the_model():
    from router import decision

    [make] = [value for name, value in vars(decision).items() if name.endswith("_markdown")]
    assert make() in (ROOT / "deploy" / "decision.md").read_text(encoding="utf-8")


def test_changelog_has_this_version():
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(
        rf"^## .*({re.escape(version)}|Unreleased)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M | re.I
    )


def test_nothing_of_a_builders_machine_is_committed():
    names = subprocess.run(["git", "ls-files", "-z"], check=False, cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    machine = re.compile(r"(?<![\w.])/(?:root|home/\w+|work)/(?!\.\.\.)")
    for name in names:
        path = ROOT / name
        if name and path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".cedar", ".sh", ""}:
            text = path.read_text(encoding="utf-8", errors="replace")
            if not name.startswith(("deploy/demo/documents", "tests/files")):
                assert not machine.search(text), (name, machine.search(text))
