"""A door that really runs: `pointsman serve` in a process of its own over the small world, and what a stranger's client sends it."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.oidc import mint_token
from router.app import Router
from tests import rows_world
from tests.world import ROOT

COMMAND = [sys.executable, "-c", "from router.doors.cli import main; main()"]
QUESTION = "what does ERR-4012 on the press mean"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


@dataclass(frozen=True)
class Served:
    """One running server. `folder` is that of its configuration."""

    url: str
    config: Path
    process: subprocess.Popen[bytes]

    @property
    def folder(self) -> Path:
        return self.config.parent

    def send(self, method: str, path: str, *, headers: Any = (), body: bytes | Iterator[bytes] | None = None) -> Reply:
        """`headers` are pairs, so that one can be sent twice."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        try:
            connection.putrequest(method, path)
            chunked = body is not None and not isinstance(body, bytes)
            for name, value in dict(headers).items() if isinstance(headers, Mapping) else headers:
                connection.putheader(name, value)
            if chunked:
                connection.putheader("Transfer-Encoding", "chunked")
            elif body is not None:
                connection.putheader("Content-Length", str(len(body)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # sent away before it was all said
                connection.endheaders(body, encode_chunked=chunked)
            answered = connection.getresponse()
            return Reply(
                answered.status, {name.lower(): value for name, value in answered.getheaders()}, answered.read().decode()
            )
        finally:
            connection.close()

    def get(self, path: str, token: str | None = None) -> Reply:
        return self.send("GET", path, headers=bearer(token))

    def ask(self, bearer_token: str | None, question: str = QUESTION, *, headers: Any = (), **more: Any) -> Reply:
        body = json.dumps({"question": question, **more}).encode()
        return self.send(
            "POST", "/v1/ask", headers=[*bearer(bearer_token), ("Content-Type", "application/json"), *headers], body=body
        )


def bearer(token: str | None) -> list[tuple[str, str]]:
    return [] if token is None else [("Authorization", f"Bearer {token}")]


@contextlib.contextmanager
def serving(config: Path, *, stop: int = signal.SIGTERM) -> Iterator[Served]:
    """Stopped by a signal at the end, if it still runs; then it must end well, and without a trace on standard error."""
    errors = config.parent / "stderr.txt"
    command = [*COMMAND, "serve", "--port", "0", "--json", "--config", str(config)]
    with errors.open("wb") as error:
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=error, cwd=config.parent)
    try:
        line = process.stdout.readline()
        assert line, errors.read_text()
        yield Served(json.loads(line)["url"], config, process)
        process.send_signal(stop)
        assert process.wait(30) == 0
        assert "Traceback" not in errors.read_text()
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def token_of(
    router: Router, person: str, *, iss: str | None = None, aud: str | None = None, age_s: int = 0, **claims: Any
) -> str:
    """A token of the development issuer as `pointsman token` makes it, or one that is wrong in one respect."""
    from dataclasses import replace

    policies = router.policies.current()
    said = policies.people[person]
    issuer = policies.issuers[str(said["issuer"])]
    issuer = replace(issuer, iss=iss or issuer.iss, audiences=(aud,) if aud else issuer.audiences)
    return mint_token({**said, **claims}, issuer, router.development_key, now_s=int(time.time()) - age_s)


@functools.cache
def rows_config() -> Path:
    """The world of tables, made once for both doors."""
    made = tempfile.TemporaryDirectory(prefix="pointsman-rows-")
    _KEPT.append(made)
    return rows_world.build_rows_world(Path(made.name) / "world")


_KEPT: list[Any] = []

HOLDER = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Held by another process: two libraries of SQLite in one process do not see each other's locks."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.stdin.close()
        holder.wait(20)
        holder.stdout.close()
