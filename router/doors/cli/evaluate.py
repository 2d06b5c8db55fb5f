"""`eval retrieval`, `eval strategies`, `eval routing`, `eval sql`, `eval text-to-sql` and `eval access`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from router.app import Router
from router.config import OpenSearchSettings, ProviderSettings, load_settings
from router.doors.cli.index import progress_bar
from router.doors.cli.output import console, print_json, print_table, say
from router.errors import CHECK_FAILED, SourceError, UsageError
from router.evals import access, retrieval


def run_retrieval(
    collection: Path,
    *,
    contexts: str,
    fusion: str,
    legs: str,
    rerank: str,
    strategy: str,
    transform: str | None,
    queries: int | None,
    store: str,
    as_json: bool,
    config: Path | None,
) -> None:
    providers = _providers(config)
    chosen = _chosen(strategy, transform)
    written = load_settings(config).contexts if config is not None else None
    options = retrieval.parse_options(
        contexts,
        fusion,
        legs,
        rerank,
        queries,
        chosen,
        providers=providers,
        written=written,
        store=store,
        cluster=_cluster(config),
    )
    with progress_bar() as progress:
        report = retrieval.run_retrieval(collection, options, progress, providers)
    _print(report, as_json=as_json)


def run_strategies(collection: Path, *, names: list[str], queries: int | None, as_json: bool, config: Path | None) -> None:
    from router.evals import strategies

    with progress_bar() as progress:
        report = strategies.run_strategies(
            collection, names=names, queries=queries, providers=_providers(config), progress=progress
        )
    if as_json:
        print_json(report)
        return
    figures = ("ndcg_at_10", "recall_at_20", "recall_at_100", "mrr_at_10")
    for name, one in report["classes"].items():
        columns = ("strategy", *figures, "ms p50", "ms p95", "searches", "model calls", "failed calls")
        costs = ("searches", "model_calls", "model_failed")
        rows = [
            (arm["strategy"], *(arm[figure] for figure in figures), *arm["ms"].values(), *(arm[cost] for cost in costs))
            for arm in one["arms"]
        ]
        _figures(columns, rows, f"{name}: {one['queries']} questions")
    if report["not_run"]:
        from router.search.strategies import STRATEGIES

        models = [name for name in report["not_run"] if STRATEGIES[name].model]
        asks = f" (need a model, from --config with a provider: {', '.join(models)})" if models else ""
        say(f"not run: {', '.join(report['not_run'])}{asks}")


def _chosen(strategy: str, transform: str | None) -> str:
    """A transform is a strategy of its own; with another one beside it there would be two."""
    from router.search.strategies import STRATEGIES

    if transform is None:
        return strategy
    known = [name for name, one in STRATEGIES.items() if one.transform]
    if transform not in known or strategy != "simple":
        raise UsageError(
            "option_unknown", f"`{transform}` is not a value of --transform here", f"one of {', '.join(known)}, alone"
        )
    return transform


def _providers(config: Path | None) -> ProviderSettings | None:
    """Hosted models are evaluated only where a configuration is named on the command line."""
    if config is None:
        return None
    providers = load_settings(config).providers
    return providers if providers.claude is not None or providers.cohere is not None else None


def _cluster(config: Path | None) -> OpenSearchSettings | None:
    """The cluster that the configuration names, its files of certificates by whole paths."""
    settings = load_settings(config) if config is not None else None
    if settings is None or settings.stores.opensearch is None:
        return None
    named = settings.stores.opensearch
    files = {name: settings.at(path) for name in ("ca", "client_cert", "client_key") if (path := getattr(named, name))}
    return named.model_copy(update=files)


def run_routing(
    file: Path,
    *,
    point: str,
    leave_source_out: bool,
    without: list[str],
    train: list[Path],
    catalogs: list[Path],
    collections: list[Path],
    as_json: bool,
) -> None:
    from router.evals import routing
    from router.routing.decide import parse_point

    options = routing.Options(
        parse_point(point), leave_source_out, tuple(without), tuple(train) or None, tuple(catalogs), tuple(collections)
    )
    report = routing.run_routing(file, options, lambda text: console(error=True).print(text) if sys.stderr.isatty() else None)
    if as_json:
        print_json(report)
    else:
        _print_routing(report)


def _print_routing(report: dict[str, Any]) -> None:
    """Figures, then each head, what was taken for what, sources, and how far the surest can be trusted."""
    told = ("questions", "accuracy", "macro_f1", *_LEGS, "documents_that_search_rows", "ece")
    _print({name: report[name] for name in told} | {name: report[name] for name in ("routes", "ms", "settings")})
    heads = [(name, report["auc"][name], report["ece_heads"][name]) for name in report["auc"]]
    _figures(("needs", "auc", "calibration error"), heads, "heads")
    routes = tuple(report["confusion"])
    confusion = [(route, *(report["confusion"][route].get(other, 0) for other in routes)) for route in routes]
    _figures(("is, taken for", *routes), confusion, "confusion")
    for part, first in (("by_route", "route"), ("by_source", "source")):
        columns = tuple(next(iter(report[part].values()), {}))
        _figures((first, *columns), [(name, *one.values()) for name, one in report[part].items()], part)
    surest = [(f"{one['coverage']:.0%}", one["accuracy"]) for one in report["risk_coverage"]]
    _figures(("the surest", "accuracy"), surest, "risk and coverage")


_LEGS = ("needed_evidence_recall", "unneeded_search_share")


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


def run_text_to_sql(
    folder: Path,
    *,
    gold: str,
    synonyms: Path | None,
    seeds: int,
    confidence: float | None,
    now: str | None,
    as_json: bool,
) -> None:
    from router.evals.text_to_sql.run import parse_options
    from router.evals.text_to_sql.run import run_text_to_sql as judge_all

    options = parse_options(folder, gold, synonyms, seeds, confidence, _day(now))
    with _counting("questions") as progress:
        report = judge_all(options, progress).as_json()
    if as_json:
        print_json(report)
    else:
        _print_text_to_sql(report)


def _print_text_to_sql(report: dict[str, Any]) -> None:
    """Figures, curve and classes; the answers that were wrong stand in the JSON."""
    told = ("questions", "judged", "answered", "right", "abstained", "coverage", "precision", "confidence", "gold_failed")
    left_out = {f"left out: {name}": found for name, found in report["left_out"].items()}
    _print({name: report[name] for name in told} | left_out | {"precision": _precision(report)})
    for name, parts in report["statements_skipped"].items():
        say(f"{name}: {len(parts)} statements of its script could not be run", "yellow")
    columns = ("judged", "answered", "right", "coverage", "precision")

    def row(first: str, one: dict[str, Any]) -> tuple[Any, ...]:
        return (first, *(one[name] for name in columns[:-1]), _precision(one))

    curve = [row(f"{one['confidence']:g}", one) for one in report["curve"]]
    _figures(("confidence", *columns), curve, "by least confidence")
    for part, first in (("by_type", "kind of question"), ("by_database", "database")):
        _figures((first, *columns), [row(name, one) for name, one in report[part].items()], part)
    say(f"{len(report['wrong'])} wrong; --json tells each")


def _precision(one: dict[str, Any]) -> Any:
    """Of no answer there is none."""
    return one["precision"] if one["answered"] else None


def _day(now: str | None) -> date:
    try:
        return datetime.now(UTC).date() if now is None else date.fromisoformat(now)
    except ValueError:
        raise UsageError("now_malformed", f"`{now}` is not a date", "write YYYY-MM-DD") from None


@contextmanager
def _counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """On standard error, only when that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(error=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(report: dict[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        print_json(report)
        return
    wide = max(20, *map(len, report))
    for name, value in report.items():
        say(f"{name:<{wide}} {_told(value)}")


def _told(value: Any) -> str:
    """A value of a report for people: what is nested is told in one line, what is not known by a dash."""
    if isinstance(value, dict):
        told = [f"{name} {_told(one)}" if not isinstance(one, dict) else f"{name}: {_told(one)}" for name, one in value.items()]
        return ("; " if any(isinstance(one, dict) for one in value.values()) else ", ").join(told) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {None: "-", True: "yes", False: "no"}[value]
    return str(round(value, 4)) if isinstance(value, float) else str(value)


def _figures(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str) -> None:
    """One name a row and its figures, under each other."""
    named = [column.replace("_", " ") for column in columns]
    print_table(named, [(first, *map(_told, rest)) for first, *rest in rows], title=title.replace("_", " "), figures=True)
