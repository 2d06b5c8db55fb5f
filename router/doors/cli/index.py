"""`index` and its subcommands."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from router.app import Router
from router.domain import Revocation
from router.doors.cli.generations import compared_json, generations_json, print_compared, print_generations
from router.doors.cli.output import console, one_line, print_json, print_table, say
from router.errors import CHECK_FAILED, SourceError, UsageError

if TYPE_CHECKING:
    from router.domain import TableSnapshot
    from router.ingest.freshness import Freshness
    from router.ingest.tables import TableReport
    from router.ingest.watch import Round
    from router.ingest.workshop import (
        ContextEstimate,
        ContextReport,
        Contexts,
        EmbeddingEstimate,
        IndexReport,
        Progress,
        SourceReport,
    )


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """Documents done, rate and time left, on standard error, only when that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console(error=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(progress: Progress) -> None:
            if progress.source not in tasks:
                tasks[progress.source] = bar.add_task(progress.source, total=progress.total, rate="")
            rate = f"{progress.chunks / progress.elapsed_s:.0f} chunks/s" if progress.elapsed_s > 0 else ""
            bar.update(tasks[progress.source], completed=progress.done, total=progress.total, rate=rate)

        yield show


def run_index(
    sources: Sequence[str],
    *,
    full: bool,
    dry_run: bool,
    as_json: bool,
    config: Path | None,
    estimate: bool = False,
    contexts: str | None = None,
    spend_cap: float | None = None,
    compare: Path | None = None,
) -> None:
    """Documents and tables; a name stands for what is called so, a source, a table or both. A dry run copies no table."""
    wanted = _parse_contexts(contexts)
    with Router.open(config) as router, progress_bar() as progress:
        router.check_comparison(compare, full=full, dry_run=dry_run, estimate=estimate)
        tables = [name for name in sources if name in router.settings.tables]
        named = [name for name in sources if name not in tables or name in router.settings.sources]
        copied = router.copy_tables(tables, full=full) if not (dry_run or estimate) and (tables or not sources) else []
        report = None
        if named or not sources:  # after the tables: what their public values name is looked for in documents
            report = router.index(
                named,
                full=full,
                dry_run=dry_run,
                estimate=estimate,
                contexts=wanted,
                spend_cap=spend_cap,
                compare=compare,
                progress=progress,
            )
    if as_json:
        print_json({**(report_json(report) if report is not None else {}), "tables": [_table_json(item) for item in copied]})
    else:
        if report is not None:
            print_report(report)
        print_tables(copied)
    errors = [*(source.error for source in (report.sources if report is not None else ())), *(item.error for item in copied)]
    codes = [error.exit_code for error in errors if error is not None]
    if report is not None and any(item.reason.startswith("model_") for one in report.sources for item in one.failures):
        codes.append(SourceError.exit_code)  # an engine failed: what it did not embed is not indexed
    if codes:
        raise SystemExit(max(codes))
    if report is not None and not all(one.accepted for one in report.compared):
        raise SystemExit(CHECK_FAILED)


def run_watch(
    sources: Sequence[str],
    *,
    every_s: float | None,
    as_json: bool,
    config: Path | None,
    contexts: str | None = None,
    spend_cap: float | None = None,
) -> None:
    """Rounds of `run_index` until SIGTERM (exit code 0) or Ctrl-C (130): what was begun ends with its transaction."""
    import signal

    from router.ingest.watch import Stop

    wanted, stop = _parse_contexts(contexts), Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with Router.open(config) as router:
            tables = [name for name in sources if name in router.settings.tables]
            named = [name for name in sources if name not in tables or name in router.settings.sources]
            if sources and not named:
                raise UsageError("watch_without_source", "only tables are named", "name a source, or none for all")
            if named:
                router.jobs(named)
            told = _Told(as_json)
            if sys.stderr.isatty():
                pause_s = router.settings.index.every_s if every_s is None else every_s
                console(error=True).print(f"looking every {pause_s:g} s; Ctrl-C ends it", style="dim")
            for done in router.watch(
                named,
                stop=stop,
                tables=(tables or None) if sources else (),
                every_s=every_s,
                contexts=wanted,
                spend_cap=spend_cap,
                progress=_progress_line if sys.stderr.isatty() else None,
            ):
                told.tell(done)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
    if stop.signal == signal.SIGINT:
        raise KeyboardInterrupt


def _progress_line(progress: Progress) -> None:
    """One line that is written over, on standard error."""
    sys.stderr.write(
        f"\r\x1b[K{progress.source}: {progress.done} of {progress.total}, {progress.documents_per_s:.0f} documents/s"
    )
    if progress.done == progress.total:
        sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


class _Told:
    """Rounds as a stream: one JSON document a round; for people only what changed, and what failed or is well again."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._wrong: dict[str, str] = {}

    def tell(self, done: Round) -> None:
        if self._as_json:
            print_json(round_json(done))
            return
        at = time.strftime("%H:%M:%S", time.localtime(done.at_us / 1e6))
        wrong = {name: f"{error.code}: {error.message}" for name, error in done.failed.items()}
        wrong |= {name: self._wrong[name] for name in done.resting if name in self._wrong}
        for name, error in (("this round", done.error), ("tables", done.seen.not_copied)):
            if error is not None:
                wrong[name] = f"{error.code}: {error.message}"
        for name in [name for name in self._wrong if name not in wrong]:
            say(f"{at}  {name}: well again", "green")
        for name, what in wrong.items():
            if self._wrong.get(name) != what:
                say(f"{at}  {one_line(name)}: {one_line(what)}; it is tried again, later each time", "red")
        self._wrong = wrong
        if done.changed:
            say(f"{at}  {_round_words(done)}")


def _round_words(done: Round) -> str:
    report = done.seen.report
    reports = report.sources if report is not None else ()
    words = [f"{sum(getattr(one, name) for one in reports)} {name}" for name in ("indexed", "relabelled", "removed")]
    revoked = Revocation.of(pair for one in reports for pair in one.revoked)
    if revoked.documents:
        words.append(f"what was taken away was gone {revoked.max_us / 1e6:.1f} s after its change at the latest")
    words += [f"table {table.table} {table.outcome}" for table in done.seen.tables if table.outcome != "unchanged"]
    return f"{', '.join(words)}; {done.elapsed_s:.1f} s"


def round_json(done: Round) -> dict[str, Any]:
    """One line of `index --watch --json`; of a round that changed nothing a short one."""
    report = done.seen.report
    body: dict[str, Any] = {
        "round": done.number,
        "at_us": done.at_us,
        "elapsed_s": round(done.elapsed_s, 3),
        "changed": done.changed,
        "next_s": round(done.next_s, 3),
    }
    if report is not None and (done.changed or any(source.failures for source in report.sources)):
        body |= report_json(report)
    if tables := [_table_json(item) for item in done.seen.tables if item.outcome != "unchanged"]:
        body["tables"] = tables
    if done.failed:
        body["failed"] = {name: error.as_json()["error"] for name, error in done.failed.items()}
    if done.resting:
        body["resting"] = {name: round(for_s, 3) for name, for_s in done.resting.items()}
    for name, error in (("error", done.error), ("not_copied", done.seen.not_copied)):
        if error is not None:
            body |= {name: error.as_json()["error"]}
    return body


def _parse_contexts(contexts: str | None) -> Contexts | None:
    from router.ingest.workshop import Contexts

    if contexts is not None and contexts not in get_args(Contexts):
        raise UsageError(
            "contexts_unknown", f"there are no contexts `{contexts}`", f"choose one of {', '.join(get_args(Contexts))}"
        )
    return cast("Contexts | None", contexts)


def report_json(report: IndexReport) -> dict[str, Any]:
    return {
        **({"contexts": dataclasses.asdict(report.contexts)} if report.contexts is not None else {}),
        **({"compared": compared_json(report.compared)} if report.compared else {}),
        "run_id": report.run_id,
        "dry_run": report.dry_run,
        "elapsed_s": round(report.elapsed_s, 3),
        "sources": [_source_json(source) for source in report.sources],
        "revocation": dataclasses.asdict(Revocation.of(pair for source in report.sources for pair in source.revoked)),
    }


def _table_json(item: TableReport) -> dict[str, Any]:
    error = item.error.as_json()["error"] if item.error is not None else None
    return {"table": item.table, "outcome": item.outcome, "rows": item.rows, "error": error}


def print_tables(copied: Sequence[TableReport]) -> None:
    """What became of each table; of one that could not be copied, why, and what to do."""
    if copied:
        print_table(("table", "outcome", "rows"), [(item.table, item.outcome, item.rows) for item in copied])
    for item in copied:
        if item.error is not None:
            say(f"{item.table}: {item.error.message}" + (f"; {item.error.hint}" if item.error.hint else ""), "bold red")


def _source_json(source: SourceReport) -> dict[str, Any]:
    return {
        **{name: getattr(source, name) for name in ("source", "tenant", *COUNTS)},
        "failures": [{"key": item.key, "reason": item.reason, "detail": item.detail} for item in source.failures],
        "notes": [{"key": item.key, "reason": item.reason, "detail": item.detail} for item in source.notes],
        "error": source.error.as_json()["error"] if source.error is not None else None,
        **({"estimate": _estimate_json(source.estimate)} if source.estimate is not None else {}),
        **({"embedding": dataclasses.asdict(source.embedding)} if source.embedding is not None else {}),
    }


def _estimate_json(estimate: ContextEstimate) -> dict[str, Any]:
    """Money is [expected, at most], for one call after another and for batches; null without prices."""
    return {
        "documents": estimate.documents,
        "contexts": estimate.contexts,
        "local_documents": estimate.local,
        "tokens": {"expected": dataclasses.asdict(estimate.expected), "most": dataclasses.asdict(estimate.most)},
        "currency": estimate.prices.currency if estimate.prices is not None else None,
        "direct": estimate.money(batch=False),
        "batch": estimate.money(batch=True),
    }


COUNTS = ("listed", "unchanged", "indexed", "relabelled", "removed", "chunks")


def print_report(report: IndexReport, *, details: bool = True) -> None:
    rows = [(source.source, *(getattr(source, name) for name in COUNTS), len(source.failures)) for source in report.sources]
    print_table(("source", *COUNTS, "not indexed"), rows, title="would be done" if report.dry_run else None)
    for source in report.sources:
        if source.error is not None:
            say(f"{source.source}: {source.error.message}" + (f"; {source.error.hint}" if source.error.hint else ""), "bold red")
        for item in source.failures if details else ():
            say(f"not indexed  {one_line(source.source + '/' + item.key)}  {item.reason}: {one_line(item.detail)}", "yellow")
        for item in source.notes if details else ():
            say(f"note  {one_line(source.source + '/' + item.key)}  {item.reason}: {one_line(item.detail)}", "dim")
        if source.estimate is not None:
            _print_estimate(source.source, source.estimate)
        if source.embedding is not None:
            _print_embedding(source.source, source.embedding)
    if report.contexts is not None:
        _print_contexts(report.contexts)
    print_compared(report.compared)
    if not report.dry_run:
        say(f"{sum(source.chunks for source in report.sources)} chunks in {report.elapsed_s:.1f} s", "dim")


def _print_estimate(source: str, estimate: ContextEstimate) -> None:
    tokens = f"about {estimate.expected.total:,} tokens, at most {estimate.most.total:,} if the provider keeps no document"
    say(f"{source}: {estimate.contexts} contexts of {estimate.documents} documents would be written, {tokens}")
    if (batch := estimate.money(batch=True)) is not None and (direct := estimate.money(batch=False)) is not None:
        assert estimate.prices is not None
        currency = estimate.prices.currency
        say(
            f"{source}: in batches {batch[0]:.2f} to {batch[1]:.2f} {currency}, one by one {direct[0]:.2f} to {direct[1]:.2f} {currency}"
        )
    else:
        say("no money without `price_input` and `price_output` in `[contexts]`", "dim")
    if estimate.local:
        say(f"{source}: {estimate.local} documents may not be sent; they get structural contexts", "dim")


def _print_embedding(source: str, embedding: EmbeddingEstimate) -> None:
    cost = f", {embedding.cost_micros / 1e6:.4f} by `embed_price`" if embedding.cost_micros else ""
    texts = f"{embedding.texts} texts of {embedding.documents} documents would be embedded by {embedding.provider}"
    say(f"{source}: {texts}, about {embedding.tokens:,} tokens{cost}")
    if embedding.local:
        say(f"{source}: {embedding.local} documents may not be sent; they are found by their words alone", "dim")


def _print_contexts(contexts: ContextReport) -> None:
    spent = f", {contexts.money:.2f} {contexts.currency}" if contexts.money is not None else ""
    say(f"contexts: {contexts.written} written, {contexts.reused} from before; {contexts.tokens.total:,} tokens{spent}", "dim")
    for reason, count in sorted(contexts.structural.items()):
        said = REASONS_LOCAL.get(reason, reason)
        say(f"contexts: {count} chunks stand under a structural one: {said}", "yellow")
    if contexts.waiting > contexts.unclear:
        say(
            f"contexts: {contexts.waiting - contexts.unclear} are not answered yet; the next `pointsman index` collects them",
            "yellow",
        )
    if contexts.unclear:
        say(
            f"contexts: of {contexts.unclear} the provider does not say what became of them; they may be paid, so each run looks for their"
            " answers and they are sent again 29 days after they were sent, or with another `model`",
            "yellow",
        )
    if contexts.uncounted:
        say(
            f"contexts: {contexts.uncounted} came without a count, or were lost, and are counted at what they cost at most",
            "yellow",
        )
    if contexts.stopped:
        say(f"contexts: nothing more was asked: {REASONS_LOCAL.get(contexts.stopped, contexts.stopped)}", "yellow")


REASONS_LOCAL = {
    "not_permitted": "no `disclose` permit for this class and purpose `context`",
    "disclosure_not_permitted": "a permit was withdrawn during the run",
    "no_model": "the key of `[providers.claude]` is not there",
    "spend_cap": "the cap was reached; the next run goes on",
    "model_refused": "the model declined",
    "policy_broken": "the policy folder is broken; what came is kept, and the next run indexes it",
    "policy_invalid": "the policy folder is broken; what came is kept, and the next run indexes it",
    "index_busy": "another run is at work; what came is kept, and the next run indexes it",
}
"""Why a chunk stands under a structural context, in words."""


def run_deleted(*, as_json: bool, config: Path | None) -> None:
    """What was there and was removed, latest first."""
    with Router.open(config) as router:
        found = router.manifest.gone()
    if as_json:
        print_json({"deleted": [{**dataclasses.asdict(item), "document_id": f"{item.source}/{item.key}"} for item in found]})
        return
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(item.at_us / 1e6)),
            f"{item.source}/{item.key}",
            item.tenant,
            item.cause,
            item.content_hash[:16],
        )
        for item in found
    ]
    print_table(("removed (UTC)", "document", "tenant", "why", "digest"), rows)


def run_status(*, as_json: bool, config: Path | None, deleted: bool = False) -> None:
    """Counts, ages, failures and freshness; or what was removed."""
    if deleted:
        run_deleted(as_json=as_json, config=config)
        return
    with Router.open(config) as router:
        status, tables, freshness = router.index_status(), router.snapshots.current(), router.freshness()
        generations = router.generations()
    if as_json:
        print_json(
            {
                **dataclasses.asdict(status),
                "tables": dataclasses.asdict(tables) if tables is not None else None,
                "generations": generations_json(generations),
                "freshness": [{**dataclasses.asdict(one), "lag_us": one.lag_us(time.time_ns() // 1000)} for one in freshness],
            }
        )
        return
    rows = [
        (
            item.source,
            item.tenant,
            item.documents,
            item.chunks,
            item.versions,
            sum(item.failures.values()),
            _age(item.newest_us),
            _age(item.oldest_us),
            item.generation,
        )
        for item in status.sources
    ]
    print_table(("source", "tenant", "documents", "chunks", "versions", "not indexed", "newest", "oldest", "generation"), rows)
    _print_freshness(freshness)
    for item in status.sources:
        for reason, count in item.failures.items():
            say(f"{item.source}: {count} not indexed: {reason}", "yellow")
    print_generations(generations)
    if tables is not None:
        _print_snapshot(tables)


def _print_freshness(freshness: Sequence[Freshness]) -> None:
    from router.ingest.freshness import UNTOLD

    rows = [
        (
            item.source,
            item.changes if item.changes is not None else "unknown",
            _age(item.newest_us) if item.newest_us else "",
            _age(item.oldest_us) if item.oldest_us else "",
            _age(item.good_at_us),
            f"{item.failures} since ({item.code})" if item.failures else "",
        )
        for item in freshness
    ]
    print_table(("source", "changes not indexed", "the newest", "the oldest", "last good run", "failed runs"), rows)
    for item in freshness:
        if item.changes is None and item.untold != UNTOLD:
            say(f"{item.source}: cannot be looked at now: {item.untold}", "yellow")


def _print_snapshot(snapshot: TableSnapshot) -> None:
    """Rows and age of every table; what could not be copied is told beside its last copy."""
    rows = [
        (table.name, table.origin, table.rows, len(table.columns), _age(table.copied_at_us), snapshot.version[:12])
        for table in snapshot.tables
    ]
    if rows:
        print_table(("table", "from", "rows", "columns", "copied", "snapshot"), rows)
    failed = [(table.name, table.failed, table.failed_at_us) for table in snapshot.tables if table.failed]
    for name, code, at_us in (*failed, *snapshot.failures):
        say(f"{name}: not copied {_age(at_us)}: {code}", "yellow")


def _age(at_us: int) -> str:
    if not at_us:
        return "never"
    seconds = max(0.0, time.time() - at_us / 1e6)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def run_forget(document: str, *, as_json: bool, config: Path | None) -> None:
    with Router.open(config) as router:
        gone = router.index_forget(document)
    if as_json:
        print_json(dataclasses.asdict(gone))
    else:
        names = ", ".join(one_line(name) for name in gone.documents)
        say(f"erased {names} from {gone.generations} generations; the same content is not indexed again")
        for name in gone.let_go:
            say(f"{name} was damaged and nobody could go back to it: it was removed whole", "yellow")
