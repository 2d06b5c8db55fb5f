"""`eval retrieval`, `eval sql` and `eval access`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from router.app import Router
from router.doors.cli.index import progress_bar
from router.doors.cli.output import print_json, say
from router.errors import CHECK_FAILED, SourceError
from router.evals import access, retrieval


def run_retrieval(
    collection: Path, *, contexts: str, fusion: str, legs: str, rerank: str, queries: int | None, as_json: bool
) -> None:
    options = retrieval.parse_options(contexts, fusion, legs, rerank, queries)
    with progress_bar() as progress:
        report = retrieval.run_retrieval(collection, options, progress)
    _print(report, as_json=as_json)


def run_access(cases: int, seed: int, *, as_json: bool, config: Path | None) -> None:
    """Exit code 1 with a leak, an over-block or a disagreement."""
    with Router.open(config) as router:
        report = access.run_access(router, cases, seed)
    if not report.documents and not report.rows:
        raise SourceError("nothing_indexed", "there is no document and no row to judge", "run `pointsman index` first")
    _print(access.as_json(report), as_json=as_json)
    if report.leaks or report.over_blocks or report.disagreements:
        raise SystemExit(CHECK_FAILED)


def run_sql(database: Path, policies: Path, cases: Path, *, as_json: bool) -> None:
    """Exit code 1 with a leak, a false refusal, a mismatch or a broken limit."""
    from router.evals import sql

    report = sql.run_sql(database, policies, cases)
    _print(report.as_json(), as_json=as_json)
    if not report.sound:
        raise SystemExit(CHECK_FAILED)


def _print(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        say(f"{name:<20} {value}")
