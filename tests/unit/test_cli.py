"""The command line: names, flags, exit codes and shapes of interface.md, section 1, each provoked for real."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from router.app import Router
from router.domain import Answer, Passage, Receipt, Route, Span, Stage
from router.doors import cli
from router.doors.cli import asking, output
from router.errors import LedgerError, PolicyError, Refused, SourceError, UsageError
from tests import world
from tests.world import run_command

QUESTION = "what does ERR-4012 on the press mean"
ANSWER_KEYS = {
    "decision_id", "outcome", "route", "passages", "tables", "stages", "degraded", "policy_version", "filters",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "world"
    world.build_world(folder)
    with Router.open(folder / "pointsman.toml") as router:
        world.ask_as(router, "ada", QUESTION)
        (folder / "ada.token").write_text(router.mint("ada") + "\n")
    return folder


@pytest.fixture
def command(folder, monkeypatch, capfd):
    """Run a command in this process, standing in the world's folder: (exit code, standard output, standard error)."""
    monkeypatch.delenv("POINTSMAN_CONFIG", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(folder)

    def run(*arguments):
        try:
            code = cli._run([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def one_document(text):
    """Exactly one JSON document on one line, and nothing else."""
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return json.loads(text)


def commands(group=None, path=()):
    """Every command with its full name."""
    group = typer.main.get_command(cli.app) if group is None else group
    for name, inner in sorted(group.commands.items()):
        if hasattr(inner, "commands"):
            yield from commands(inner, (*path, name))
        else:
            yield (*path, name), inner


# --- one document -----------------------------------------------------------------------------------------------------


JSON_COMMANDS = [
    ("ask", QUESTION, "--as", "ada"),
    ("ask", QUESTION, "--token", "ada.token", "-k", "2", "--now", "2026-06-15"),
    ("ask", QUESTION, "--as", "bob"),
    ("whoami", "--as", "hal"),
    ("token", "ada", "--minutes", "5"),
    ("index", "--dry-run"),
    ("index", "notes"),
    ("index", "status"),
    ("index", "verify"),
    ("policies", "check"),
    ("log", "verify"),
    ("log", "summary", "--since", "7d"),
    ("egress", "prove", "--class", "internal"),
    ("doctor",),
    ("eval", "access", "--cases", "20"),
    ("catalog", "check"),
]


@pytest.mark.parametrize("arguments", JSON_COMMANDS, ids=" ".join)
def test_json_is_exactly_one_document(command, arguments):
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, "")
    assert isinstance(one_document(out), dict)


@pytest.mark.parametrize("arguments", JSON_COMMANDS, ids=" ".join)
def test_the_same_for_people_is_text(command, arguments):
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    assert out.strip()
    assert not out.startswith("{")
    assert "\x1b" not in out


def test_every_command_is_tried_as_json():
    tried = {tuple(part for part in arguments if part.isalpha() and part.islower())[:2] for arguments in JSON_COMMANDS}
    named = {name for name, _ in commands()}
    elsewhere = {
        ("init",), ("demo",), ("index", "forget"), ("index", "rollback"), ("policies", "test"), ("log", "tail"), ("log", "show"), ("eval", "retrieval"),
        ("eval", "text-to-sql"), ("eval", "routing"), ("eval", "strategies"),  # each has tests of its own
        ("eval", "sql"), ("sql", "check"), ("sql", "run"), ("catalog", "derive"),  # tests/sql/test_eval_sql.py, tests/unit/test_ask_sql.py
        ("serve",), ("mcp",),  # tests/e2e/test_http.py, tests/e2e/test_mcp.py: they end when they are told to
    }  # fmt: skip
    for name in named - elsewhere:
        wanted = name if name != ("index", "run") else ("index", "notes")
        assert any(case[: len(wanted)] == wanted for case in tried), name


def test_answer_as_json_has_the_promised_keys(command):
    body = one_document(command("ask", QUESTION, "--as", "ada", "--json")[1])
    assert body.keys() - {"notes", "nearest"} == ANSWER_KEYS
    assert body["passages"][0].keys() == {
        "rank", "source", "document_id", "chunk_id", "title", "heading_path", "text", "uri", "span", "version", "effective_from", "why",
    }  # fmt: skip


def test_a_stream_is_one_document_a_line(command):
    code, out, _ = command("log", "tail", "-n", "3", "--json")
    assert code == 0
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert 0 < len(kinds) <= 3


def test_log_show_as_oneself_has_the_question_and_nobody_else(command):
    decision = one_document(command("ask", QUESTION, "--as", "ada", "--json")[1])["decision_id"]
    bare = one_document(command("log", "show", decision, "--json")[1])
    assert "inputs" not in bare
    assert QUESTION not in json.dumps(bare)
    own = one_document(command("log", "show", decision, "--as", "ada", "--json")[1])
    assert own["inputs"]["question"]["text"] == QUESTION
    code, out, _ = command("log", "show", decision, "--as", "hal", "--json")
    assert (code, one_document(out)["error"]["code"]) == (3, "not_permitted")
    code, out, _ = command("log", "show", decision, "--as", "sue", "--json")
    assert (code, one_document(out)["error"]["code"]) == (3, "not_permitted")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json", "--config", "{config}", "index", "status"),
        ("--config={config}", "index", "--json", "status"),
        ("index", "--json", "--config", "{config}", "status"),
        ("index", "--config={config}", "status", "--json"),
        ("index", "status", "--config", "{config}", "--json"),
        ("log", "--config", "{config}", "--json", "verify"),
        ("--json", "policies", "--config", "{config}", "check"),
    ],
    ids=" ".join,
)
def test_both_flags_stand_before_between_or_after(command, folder, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*(argument.format(config=folder / "pointsman.toml") for argument in arguments))
    assert (code, err) == (0, "")
    one_document(out)


def test_last_word_on_the_configuration_is_nearest_to_the_command(command, folder, tmp_path):
    code, _, err = command("--config", tmp_path / "gone.toml", "index", "status", "--config", folder / "pointsman.toml", "--json")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("arguments", [(), ("--full",), ("handbook",), ("--dry-run", "notes"), ("--json", "handbook")])
def test_index_without_a_word_indexes(command, arguments):
    code, out, err = command("index", *arguments)
    assert (code, err) == (0, "")
    assert "handbook" in out or "notes" in out


# --- exit codes -------------------------------------------------------------------------------------------------------


def error_of(command, *arguments):
    code, out, _ = command(*arguments, "--json")
    body = one_document(out)
    assert set(body) == {"error"}
    assert {"code", "message", "hint"} <= set(body["error"]) <= {"code", "message", "hint", "decision_id"}
    code_too, out_too, err_too = command(*arguments)
    assert (code_too, out_too) == (code, "")
    assert body["error"]["code"] in err_too or "Usage:" in err_too
    return code, body["error"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ask",), "usage"),
        (("nonsense",), "usage"),
        (("ask", "q", "--nope"), "usage"),
        (("ask", "q", "-k", "many", "--as", "ada"), "usage"),
        (("log",), "usage"),
        ((), "usage"),
        (("ask", "q"), "identity_missing"),
        (("ask", "q", "--as", "ada", "--token", "ada.token"), "identity_missing"),
        (("ask", "q", "--as", "nobody"), "person_unknown"),
        (("ask", "q", "--token", "gone.token"), "token_unreadable"),
        (("ask", "q", "--as", "ada", "--people", "pointsman.toml"), "people_unreadable"),
        (("ask", "", "--as", "ada"), "question_empty"),
        (("ask", "q", "--as", "ada", "-k", "0"), "k_out_of_range"),
        (("ask", "q", "--as", "ada", "-k", "51"), "k_out_of_range"),
        (("ask", "q", "--as", "ada", "--now", "yesterday"), "now_malformed"),
        (("whoami", "--as", "ada", "--config", "gone.toml"), "config_missing"),
        (("index", "nosuch"), "source_unknown"),
        (("index", "forget", "nosuch/page.md"), "document_unknown"),
        (("log", "show", "d-none"), "decision_unknown"),
        (("log", "summary", "--since", "soon"), "since_malformed"),
        (("eval", "retrieval", "gone"), "collection_missing"),
        (("eval", "retrieval", "gone", "--fusion", "sum"), "option_unknown"),
        (("init", "."), "target_not_empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_2_for_wrong_usage(command, arguments, expected):
    code, error = error_of(command, *arguments)
    assert (code, error["code"]) == (2, expected)
    assert error["hint"]


def test_2_for_a_wrong_configuration_names_the_nearest_key(command, tmp_path):
    (tmp_path / "wrong.toml").write_text("[search]\ncandidats = 10\n")
    code, error = error_of(command, "whoami", "--as", "ada", "--config", tmp_path / "wrong.toml")
    assert (code, error["code"], error["hint"]) == (2, "config_unknown_key", "did you mean `candidates`")


def test_2_for_a_wrong_policy_folder(command, tmp_path):
    config = world.write_world(tmp_path / "w")
    (tmp_path / "w" / "policies" / "documents.cedar").write_text('@id("x") permit (principal, action, resource);')
    code, error = error_of(command, "ask", "q", "--as", "ada", "--config", config)
    assert code == 2
    assert error["code"].startswith("policy")
    code, out, _ = command("policies", "check", "--config", config, "--json")
    assert code == 2
    assert one_document(out)["ok"] is False


def test_3_for_a_refused_token(command, tmp_path):
    (tmp_path / "bad.token").write_text("a.b.c")
    code, error = error_of(command, "ask", QUESTION, "--token", tmp_path / "bad.token")
    assert (code, error["code"]) == (3, "token_malformed")
    code, error = error_of(command, "whoami", "--as", "out")
    assert (code, error["code"]) == (3, "tenant_not_allowed")


def test_3_for_a_refusal_by_policy_that_is_still_an_answer(command, folder, tmp_path):
    config = world.build_world(tmp_path / "w")
    with (tmp_path / "w" / "policies" / "documents.cedar").open("a") as file:
        file.write(
            '\n@id("all-mine") @reason("r") @owner("o") permit (principal, action == Pointsman::Action::"search", resource)\n'
            "when { resource.groups.containsAll(principal.groups) };\n"
        )
    people = tmp_path / "people.yaml"
    groups = ", ".join(f"g{number}" for number in range(5_000))
    people.write_text(f"people:\n  big: {{ issuer: dev, sub: big, tenant: north, groups: [{groups}], clearance: 1 }}\n")
    code, out, _ = command("ask", "q", "--as", "big", "--people", people, "--config", config, "--json")
    body = one_document(out)
    assert code == 3
    assert (body["outcome"], body["refusal"]["code"], body["passages"]) == ("refused", "policy_too_large", [])
    code, out, _ = command("ask", "q", "--as", "big", "--people", people, "--config", config)
    assert code == 3
    assert "refused  policy_too_large" in out


def test_4_for_a_broken_store(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    for file in (tmp_path / "w" / "state" / "stores").rglob("*.sqlite"):
        file.write_bytes(b"not a database at all, but longer than the header" * 100)
    code, error = error_of(command, "ask", QUESTION, "--as", "ada", "--config", config)
    assert (code, error["code"]) == (4, "store_corrupt")
    assert error["decision_id"].startswith("d-")


def test_4_for_a_source_that_cannot_be_listed(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    (tmp_path / "w" / "notes").rename(tmp_path / "w" / "gone")
    code, out, _ = command("index", "--config", config, "--json")
    assert code == 4
    report = one_document(out)
    failed = {source["source"]: source["error"] for source in report["sources"] if source["error"]}
    assert list(failed) == ["notes"]
    assert failed["notes"]["code"]


def test_5_for_a_ledger_that_cannot_record(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    ledger = tmp_path / "w" / "state" / "ledger.sqlite"
    ledger.write_bytes(b"no ledger, but longer than the header of a database" * 100)
    code, error = error_of(command, "ask", QUESTION, "--as", "ada", "--config", config)
    assert (code, error["code"]) == (5, "ledger_corrupt")


def test_1_for_a_broken_chain(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    with sqlite3.connect(tmp_path / "w" / "state" / "ledger.sqlite") as con:
        con.execute("DROP TRIGGER ledger_records_no_update")
        con.execute("UPDATE ledger_records SET at_us = at_us + 1 WHERE seq = 2 AND tenant = 'north'")
    con.close()
    code, out, _ = command("log", "verify", "--config", config, "--json")
    assert code == 1
    assert one_document(out)["whole"] is False
    code, out, _ = command("log", "verify", "--config", config)
    assert code == 1
    assert "BROKEN" in out


def test_1_for_an_index_that_differs(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    (tmp_path / "w" / "notes" / "monday.md").unlink()
    code, out, _ = command("index", "verify", "--config", config, "--json")
    assert code == 1
    assert one_document(out)["ok"] is False


def test_1_for_a_failing_case(command, tmp_path):
    assert command("init", tmp_path / "w")[0] == 0
    config = tmp_path / "w" / "pointsman.toml"
    assert command("policies", "test", "--config", config)[0] == 0
    cases = tmp_path / "w" / "policies" / "cases" / "documents.csv"
    text = cases.read_text()
    assert "allow" in text
    cases.write_text(text.replace("allow", "deny", 1))
    code, out, _ = command("policies", "test", "--config", config, "--json")
    assert code == 1
    assert one_document(out)["passed"] is False


def test_1_for_doctor_with_a_fault(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    assert command("doctor", "--config", config)[0] == 0
    (tmp_path / "w" / "state" / "keys" / "record.key").chmod(0o644)
    code, out, _ = command("doctor", "--config", config, "--json")
    assert code == 1
    faults = {check["name"]: check for check in one_document(out)["checks"] if check["level"] == "fault"}
    assert "record key" in faults
    assert faults["record key"]["hint"]


def test_doctor_without_a_configuration(command, tmp_path):
    code, out, _ = command("doctor", "--config", tmp_path / "gone.toml", "--json")
    assert code == 1
    assert [check["name"] for check in one_document(out)["checks"]] == ["python", "configuration"]


def test_a_fault_of_our_own_keeps_the_shape(command, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("what nobody foresaw")

    monkeypatch.setattr(Router, "whoami", broken)
    code, out, err = command("whoami", "--as", "ada", "--json")
    assert (code, one_document(out)["error"]["code"]) == (4, "fault")
    assert "ZeroDivisionError" in err
    assert "nobody foresaw" not in out


def test_exit_codes_of_the_tree():
    codes = [kind.exit_code for kind in (UsageError, PolicyError, Refused, SourceError, LedgerError)]
    assert codes == [2, 2, 3, 4, 5]


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("log", "tail", "-n", "50"), ("ask", QUESTION, "--as", "ada", "--json"), ("--help",)], ids=" ".join
)
def test_a_reader_that_goes_away_is_no_finding(folder, arguments):
    """141, as of other programs whose reader has gone; 1 would say that a check found something."""
    call = [sys.executable, "-c", "from router.doors.cli import main; main()", *arguments]
    started = subprocess.Popen(
        call, cwd=folder, env={"PYTHONPATH": str(world.ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    started.stdout.close()
    err = started.stderr.read()
    assert (started.wait(30), err) == (141, b"")


def test_question_that_begins_with_a_dash(command):
    code, out, _ = command("ask", "--as", "ada", "--json", "--", "--what does ERR-4012 mean")
    assert code == 0
    assert one_document(out)["outcome"] == "answered"


def test_json_after_the_dashes_is_a_question(command):
    code, out, _ = command("ask", "--as", "ada", "--", "--json")
    assert code == 0
    assert not out.startswith("{")


def test_question_of_bytes_that_are_no_text(folder):
    done = run_command("ask", b"press \xff\xfe".decode("utf-8", "surrogateescape"), "--as", "ada", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["outcome"] == "answered"


def test_output_that_cannot_show_a_character(folder):
    done = run_command(
        "ask", "press \u2192 \U0001f6a7", "--as", "ada", cwd=folder, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, _ in commands()], ids=" ".join)
def test_help_has_one_runnable_example(command, name):
    code, out, err = command(*name, "--help")
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert flat.count("Example: pointsman ") == 1
    words = shlex.split(example_of(flat))
    shown = ("index",) if name == ("index", "run") else name
    assert tuple(words[1 : 1 + len(shown)]) == shown


def example_of(flat):
    return re.search(r"Example: (pointsman .*?)( Arguments:| Options:|$)", flat)[1]


def test_examples_run(command, tmp_path):
    """In a fresh starter, as a reader would type them; names that stand for the reader's own are replaced."""
    assert command("init", tmp_path / "x")[0] == 0
    config = tmp_path / "x" / "pointsman.toml"
    assert command("index", "--config", config)[0] == 0
    decision = one_document(command("ask", "the line", "--as", "ada", "--config", config, "--json")[1])["decision_id"]
    own = {
        "handbook": "documents", "handbook/hr/leave.md": "documents/first-steps.md", "d-01…": decision, "sam": "ada",
    }  # fmt: skip
    for name, _ in commands():
        if name in (
            ("init",),
            ("demo",),
            ("index", "rollback"),
            ("eval", "retrieval"),
            ("eval", "sql"),
            ("eval", "text-to-sql"),
            ("eval", "routing"),
            ("eval", "strategies"),
            ("sql", "check"),
            ("sql", "run"),
            ("catalog", "derive"),
            ("serve",),
            ("mcp",),
        ):
            continue  # these make or need a folder of their own, or go on until they are told: below, in tests/e2e, and where tables are
        words = shlex.split(example_of(" ".join(command(*name, "--help")[1].split())))[1:]
        code, _, err = command(*(own.get(word, word) for word in words), "--config", config)
        assert (name, code, err) == (name, 0, "")


def test_init_with_documents_of_ones_own(command, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "page.md").write_text("# Kiln\n\nThe kiln is fired to 1240 degrees.\n")
    before = sorted(path.name for path in notes.iterdir())
    code, out, _ = command("init", tmp_path / "x", "--documents", notes, "--tenant", "me", "--group", "staff", "--json")
    assert code == 0
    assert one_document(out)["people"] == ["ada", "bob"]
    config = tmp_path / "x" / "pointsman.toml"
    assert command("index", "--config", config)[0] == 0
    found = one_document(command("ask", "how hot is the kiln", "--as", "ada", "--config", config, "--json")[1])
    assert [passage["document_id"] for passage in found["passages"]] == ["documents/page.md"]
    hidden = one_document(command("ask", "how hot is the kiln", "--as", "bob", "--config", config, "--json")[1])
    assert hidden["outcome"] == "empty"
    assert sorted(path.name for path in notes.iterdir()) == before


def test_index_forget_erases(command, tmp_path):
    config = world.build_world(tmp_path / "w")
    code, out, _ = command("index", "forget", "notes/monday.md", "--config", config, "--json")
    assert code == 0
    assert one_document(out)["documents"] == ["notes/monday.md"]
    body = one_document(command("ask", QUESTION, "--as", "ada", "-k", "50", "--config", config, "--json")[1])
    assert "notes/monday.md" not in [passage["document_id"] for passage in body["passages"]]


def test_importing_the_command_line_is_cheap():
    """What is heavy is imported by the command that needs it."""
    heavy = ("numpy", "onnxruntime", "sqlalchemy", "duckdb", "sqlglot", "cedarpy", "pydantic", "structlog", "jwt", "apsw", "yaml")
    script = f"import sys; import router.doors.cli; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=world.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- hostile text -----------------------------------------------------------------------------------------------------

HOSTILE = (
    "\x1b[31mred\x1b[0m [red]markup[/red] \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \u202egnirts \u2066iso\u2069 "
    "\x9b2J \x07 \x08\x08 \ud800 \u200bzero \U000e0041tag :bomb:"
)


def hostile_answer():
    passage = Passage(
        1, "notes", f"notes/{HOSTILE}\nsecond line.md", "c#0", f"title {HOSTILE}\nof two lines", ("head", HOSTILE), f"{HOSTILE}\n" * 3,
        "javascript:alert(1)", Span(sheet=f"sheet {HOSTILE}\n"), f"v {HOSTILE}\n", None, ("dense",),
    )  # fmt: skip
    return Answer(
        "d-1",
        "answered",
        Route("documents", {}, 1.0, False, ()),
        (passage,),
        (Stage("search", 5),),
        (),
        "p" * 64,
        (Receipt("dense", "d" * 64),),
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_text_is_printed_plain(monkeypatch, capsys, terminal):
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    asking.print_answer(hostile_answer())
    out = capsys.readouterr().out
    own = re.compile(r"\x1b\[[0-9;]*m") if terminal else re.compile("$^")
    assert ("\x1b[" in out) is terminal
    bare = own.sub("", out)
    for character in "\x1b\x07\x08\x9b\u202e\u2066\u2069\ud800\u200b\U000e0041":
        assert character not in bare, repr(character)
    assert "[red]markup[/red]" in bare
    assert ":bomb:" in bare
    assert "]8;;http://evil.example" in bare
    title, place = bare.splitlines()[:2]
    assert title.startswith("1  title")
    assert title.endswith("of two lines")
    assert "second line.md" in place


def test_hostile_text_in_json_is_ascii(capsys):
    output.print_json(hostile_answer().as_json())
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert one_document(out)["passages"][0]["text"].startswith("\x1b[31m")


def test_hostile_page_from_file_to_terminal(tmp_path):
    place = "notes/[red]a\x1b[2Jb\nc.md"
    hostile = f"# Press \x1b]0;owned\x07 [blink]title[/]\n\nThe press {HOSTILE.replace(chr(0xD800), '')}\n"
    config = world.build_world(tmp_path / "w", {place: hostile + "The press is cleaned on Friday before the late shift.\n" * 40})
    done = run_command("ask", "press", "--as", "ada", "--config", config, cwd=tmp_path, env={"FORCE_COLOR": "1"})
    out = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert "[red]a" in out
    bare = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert not set(bare) & set("\x1b\x07\x08\x9b\u202e\u2066\u2069\u200b\U000e0041")


def test_hostile_error_is_printed_plain(capsys):
    output.print_error(UsageError("c", f"there is no `{HOSTILE}`", HOSTILE), as_json=False)
    err = capsys.readouterr().err
    assert not set(err) & set("\x1b\x07\x08\x9b\u202e\u2066\u2069\ud800\u200b")
    assert "[red]markup[/red]" in err


def test_no_terminal_codes_where_there_is_no_terminal(folder):
    for arguments in (("ask", QUESTION, "--as", "ada"), ("index", "status"), ("log", "tail"), ("doctor",), ("ask", "q")):
        done = run_command(*arguments, cwd=folder)
        assert b"\x1b" not in done.stdout + done.stderr, arguments


def test_progress_is_shown_on_a_terminal_only(tmp_path):
    config = world.write_world(tmp_path / "w")
    done = run_command("index", "--config", config, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    one_document(done.stdout.decode())


def test_token_file_of_any_length_is_refused_not_read_for_ever(command, tmp_path):
    path = Path(tmp_path / "long.token")
    path.write_bytes(b"x" * 3_000_000)
    code, error = error_of(command, "whoami", "--token", path)
    assert code == 3
    assert "xxxx" not in error["message"]


def test_an_error_that_ctrl_c_raised_elsewhere_is_an_interruption(monkeypatch, capsys):
    def load(*_, **__):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stopped:
            raise ImportError("a native module was stopped while it was loaded") from stopped

    monkeypatch.setattr(cli, "app", load)
    assert cli._run(["doctor"]) == cli.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err
