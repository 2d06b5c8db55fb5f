"""Nothing leaves unasked: no import and no command opens a socket or writes outside its folders, parser processes included.

Each process below starts with `sitecustomize.py` in front, which writes down every audit event of a socket and of writing; the
fork server and the parsers it makes are Python processes too and write theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world import ROOT

WATCHER = """
import os, sys

_NOTES = os.open(os.environ["QUIET_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {"os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.link": (1,), "os.symlink": (1,),
          "os.truncate": (0,), "shutil.copyfile": (1,), "sqlite3.connect": (0,)}

def _note(kind, what):
    os.write(_NOTES, (kind + "\\t" + repr(what) + "\\n").encode("utf-8", "replace"))

def _watch(event, arguments):
    if event == "socket.__new__":
        if int(arguments[1]) != 1:  # AF_UNIX: how the fork server is spoken to
            _note("socket", [int(argument) for argument in arguments[1:]])
    elif event == "socket.connect" or event == "socket.bind" or event == "socket.sendto":
        if not isinstance(arguments[1], (str, bytes)):
            _note("socket", [event, arguments[1]])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"):
        _note("socket", [event, arguments])
    elif event in ("urllib.Request", "http.client.connect", "ftplib.connect", "smtplib.connect"):
        _note("socket", [event])
    elif event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, bytes, os.PathLike)) and flags & _WRITES:
            _note("write", os.path.abspath(os.fsdecode(path)))
    elif event in _PATHS:
        for at in _PATHS[event]:
            if isinstance(arguments[at], (str, bytes, os.PathLike)) and os.fsdecode(arguments[at]) != ":memory:":
                _note("write", os.path.abspath(os.fsdecode(arguments[at])))

_note("process", " ".join(sys.orig_argv)[:300])
sys.addaudithook(_watch)
"""
COMMAND = "from router.doors.cli import main; main()"
IMPORT_ALL = """
import importlib, pkgutil
import router, connectors
found = [
    module.name
    for package in (router, connectors)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not module.name.endswith("__main__")
]
for name in found:
    importlib.import_module(name)
print(len(found))
"""


class Quiet:
    """A fresh home, a fresh folder, and the notes of every process started here."""

    def __init__(self, place: Path) -> None:
        self.home, self.work, self.temp, self.notes = place / "home", place / "work", place / "temp", place / "notes"
        watcher = place / "watcher"
        for folder in (self.home, self.work, self.temp, watcher):
            folder.mkdir()
        (watcher / "sitecustomize.py").write_text(WATCHER)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}  # CI is not among them
        self.env = {
            **kept,
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "PYTHONPATH": f"{watcher}{os.pathsep}{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "QUIET_NOTES": str(self.notes),
        }

    def run(self, *arguments: str, script: str = COMMAND) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            check=False, cwd=self.work, env=self.env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def events(self, kind: str) -> list[str]:
        lines = [line.partition("\t") for line in self.notes.read_text().splitlines()]
        return [what for name, _, what in lines if name == kind]

    def outside(self) -> list[str]:
        allowed = (f"'{self.work}", f"'{self.temp}", "'/dev/null'", "'/dev/shm/sem.", "'/dev/tty")
        return [path for path in self.events("write") if not path.startswith(allowed)]

    def left_in_home(self) -> list[str]:
        return [str(path) for path in self.home.rglob("*")]

    def left_in_temp(self) -> list[str]:
        return [str(path) for path in self.temp.rglob("*")]


@pytest.fixture
def quiet(tmp_path):
    return Quiet(tmp_path)


def check(quiet: Quiet) -> None:
    assert quiet.events("process"), "the watcher did not run"
    assert quiet.events("socket") == []
    assert quiet.outside() == []
    assert quiet.left_in_home() == []


def test_the_watcher_sees_what_it_must(quiet):
    quiet.run(
        script="import socket\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()\n"
        "open('/dev/null', 'w').close()\n"
        "import os; open(os.path.expanduser('~/left'), 'w').close()\n"
    )
    assert len(quiet.events("socket")) == 1
    assert quiet.outside() == [repr(str(quiet.home / "left"))]
    assert quiet.left_in_home() == [str(quiet.home / "left")]


LOOKS_FOR_IPV6 = ["[10, 1, 0]", "['socket.bind', ('::1', 0)]"]
"""What urllib3, under the client of OpenSearch, does when it is imported: it binds this machine's own address and closes it."""


def test_importing_everything_is_quiet(quiet):
    assert int(quiet.run(script=IMPORT_ALL)) > 40
    assert quiet.events("socket") in ([], LOOKS_FOR_IPV6)
    assert quiet.outside() == []
    assert quiet.left_in_home() == []
    assert quiet.events("write") == []


def test_commands_are_quiet(quiet):
    quiet.run("--help")
    notes = quiet.work / "notes"
    notes.mkdir()
    (notes / "page.md").write_text("# Kiln\n\nThe kiln is fired to 1240 degrees.\n")
    (notes / "code.py").write_text("def fire(kiln):\n    return kiln.heat(1240)\n")
    (notes / "table.csv").write_text("kiln,degrees\nlarge,1240\n")
    quiet.run("init", "x", "--documents", "notes")
    config = ("--config", "x/pointsman.toml")
    report = json.loads(quiet.run("index", *config, "--json"))
    assert report["sources"][0]["indexed"] == 3
    assert report["sources"][0]["failures"] == []
    answer = json.loads(quiet.run("ask", "how hot is the kiln", "--as", "ada", *config, "--json"))
    assert answer["outcome"] == "answered"
    quiet.run("ask", "how hot is the kiln", "--as", "bob", *config)
    quiet.run("whoami", "--as", "ada", *config)
    quiet.run("log", "verify", *config)
    quiet.run("log", "tail", *config)
    quiet.run("index", "status", *config)
    quiet.run("index", "verify", *config)
    quiet.run("policies", "check", *config)
    quiet.run("policies", "test", *config)
    quiet.run("doctor", *config)
    quiet.run("eval", "access", "--cases", "50", *config)
    check(quiet)
    assert any("forkserver" in line or "multiprocessing" in line for line in quiet.events("process")), "no parser was watched"
    assert quiet.left_in_temp() == []
    assert sorted(path.name for path in notes.iterdir()) == ["code.py", "page.md", "table.csv"]


def test_state_is_its_owners_only(quiet):
    quiet.run("init", "x")
    quiet.run("index", "--config", "x/pointsman.toml")
    quiet.run("ask", "the line", "--as", "ada", "--config", "x/pointsman.toml")
    state = quiet.work / "x" / "state"
    assert state.stat().st_mode & 0o077 == 0
    for private in ("keys/development.pem", "keys/record.key", "ledger.sqlite", "pointsman.jsonl"):
        assert (state / private).stat().st_mode & 0o077 == 0, private
