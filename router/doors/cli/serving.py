"""`serve` and `mcp`: the doors for programs, started from the command line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from router.app import Router
from router.doors.cli.asking import read_token
from router.doors.cli.output import print_json, say
from router.errors import UsageError


def run_serve(host: str, port: int, *, as_json: bool, config: Path | None) -> None:
    _need("fastapi", "serve", "http")
    _need("uvicorn", "serve", "http")
    from router.doors import http

    def announce(url: str) -> None:
        if as_json:
            print_json({"url": url})
        else:
            say(f"listening on {url}, OpenAPI at {url}/docs; Ctrl-C stops it")

    with Router.open(config, development=http.is_loopback(host)) as router:
        router.open_models()
        http.serve(router, host, port, announce)


def run_mcp(token: Path, *, config: Path | None) -> None:
    _need("mcp", "mcp", "mcp")
    from router.doors import mcp

    with Router.open(config) as router:
        router.open_models()
        mcp.serve(router, lambda: read_token(router, None, token))


def _need(package: str, command: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UsageError(
            "package_missing", f"`pointsman {command}` needs the package `{package}`", f"install `pointsman[{extra}]`"
        )
