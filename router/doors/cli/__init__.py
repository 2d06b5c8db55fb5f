"""The command line: names, flags and help. What a command does stands in the modules beside this one, which are imported
when it runs, so that `pointsman --help` costs what Typer costs. The file is longer than most because every flag stands here."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from router.errors import INTERRUPTED, PointsmanError, UsageError

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration; else POINTSMAN_CONFIG, else the nearest pointsman.toml."),
]
Person = Annotated[
    str | None, typer.Option("--as", metavar="PERSON", help="A person in people.yaml, by a token of the development issuer.")
]
Token = Annotated[Path | None, typer.Option("--token", metavar="FILE", help="A file that holds a bearer token.")]
People = Annotated[Path | None, typer.Option("--people", metavar="FILE", help="Another people.yaml for --as.")]
Since = Annotated[str, typer.Option(help="How far back: 30m, 12h, 7d.")]


class _DefaultGroup(TyperGroup):
    """`pointsman index [SOURCE…]` beside `pointsman index status`: what is no command's name goes to `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = 0
        while at < len(args) and args[at].partition("=")[0] in ("--json", "--config"):
            at += 2 if args[at] == "--config" else 1
        if args[at : at + 1] not in (["--help"], ["-h"]) and (at >= len(args) or args[at] not in self.commands):
            args = [*args[:at], "run", *args[at:]]
        return super().parse_args(ctx, args)


_PLAIN: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["--help", "-h"]},
}
app = typer.Typer(
    help="Pointsman: a governed-retrieval router. It returns evidence that the caller may see, with a receipt.", **_PLAIN
)
index_app = typer.Typer(
    help="Bring documents and tables up to date (the default; options: `pointsman index run --help`), show, check or erase. "
    "Example: pointsman index manuals --full",
    cls=_DefaultGroup,
    **{**_PLAIN, "no_args_is_help": False},
)
policies_app = typer.Typer(help="Check and test the policy folder.", **_PLAIN)
eval_app = typer.Typer(help="Measure on anybody's data.", **_PLAIN)
log_app = typer.Typer(help="Read and verify the ledger of decisions.", **_PLAIN)
app.add_typer(index_app, name="index")
app.add_typer(policies_app, name="policies")
app.add_typer(eval_app, name="eval")
sql_app = typer.Typer(help="Ask the tables in SQL, as somebody: one SELECT over governed names.", **_PLAIN)
app.add_typer(log_app, name="log")
app.add_typer(sql_app, name="sql")
egress_app = typer.Typer(help="What text left for hosted models, by the ledger.", **_PLAIN)
app.add_typer(egress_app, name="egress")
catalog_app = typer.Typer(help="A first catalogue from a database, and what is wrong with the present one.", **_PLAIN)
app.add_typer(catalog_app, name="catalog")


@app.callback()
@index_app.callback()
@policies_app.callback()
@eval_app.callback()
@log_app.callback()
@sql_app.callback()
@catalog_app.callback()
@egress_app.callback()
def root(ctx: typer.Context, json: Json = False, config: Config = None) -> None:
    outer: dict[str, Any] = ctx.find_object(dict) or {}
    ctx.obj = {"json": json or outer.get("json"), "config": config or outer.get("config")}


def _options(ctx: typer.Context, json: bool, config: Path | None) -> dict[str, Any]:
    """Both flags are taken before, between and after the words of a command's name."""
    outer: dict[str, Any] = ctx.find_object(dict) or {}
    _FLAGS["json"] = json = json or bool(outer.get("json"))
    return {"as_json": json, "config": config or outer.get("config")}


_FLAGS = {"json": False}


@app.command()
def init(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    documents: Annotated[Path | None, typer.Option(metavar="DIR", help="Your own documents; nothing is written there.")] = None,
    tenant: Annotated[str, typer.Option(help="Whose documents they are.")] = "me",
    group: Annotated[str, typer.Option(help="The group that may read them.")] = "staff",
    sensitivity: Annotated[str, typer.Option(help="public, internal, confidential or restricted.")] = "internal",
    json: Json = False,
    config: Config = None,
) -> None:
    """Make a working starter: configuration, policies, a development issuer, two people.

    Example: pointsman init x --documents ~/notes --tenant me --group staff
    """
    from router.doors.cli.setup import run_init

    options = _options(ctx, json, config)
    run_init(folder, documents=documents, tenant=tenant, group=group, sensitivity=sensitivity, as_json=options["as_json"])


@index_app.command("run")
def index_run(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Sources and tables; all when none is named.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Rebuild into a new generation, then switch.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Say what written contexts and hosted embeddings would take, in tokens and money; nothing is sent or done.",
        ),
    ] = False,
    contexts: Annotated[
        str | None,
        typer.Option(help="In this run: none, structure, both or claude, instead of what pointsman.toml says of each source."),
    ] = None,
    spend_cap: Annotated[
        float | None, typer.Option(help="The most that this run may spend on contexts, in the currency of the prices.", min=0)
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --full: saved questions that the new generation is held against before it is shown; default: `[index] compare`.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C or SIGTERM; with --json one line a round.")
    ] = False,
    every: Annotated[
        float | None, typer.Option(help="With --watch: seconds from one round to the next; default: `[index] every_s`.", min=0.2)
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Bring documents and tables up to date. Example: pointsman index handbook"""
    from router.doors.cli.index import run_index, run_watch

    if watch:
        if full or dry_run or estimate or compare is not None:
            raise UsageError(
                "watch_alone", "--watch goes with none of --full, --dry-run, --estimate and --compare", "leave one out"
            )
        run_watch(sources or [], every_s=every, contexts=contexts, spend_cap=spend_cap, **_options(ctx, json, config))
        return
    if every is not None:
        raise UsageError("every_without_watch", "--every goes with --watch", "add it")
    run_index(
        sources or [],
        full=full,
        dry_run=dry_run,
        estimate=estimate,
        contexts=contexts,
        spend_cap=spend_cap,
        compare=compare,
        **_options(ctx, json, config),
    )


@index_app.command("status")
def index_status(
    ctx: typer.Context,
    deleted: Annotated[bool, typer.Option("--deleted", help="What was there and was removed: when, and which bytes.")] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Counts, ages, what is not indexed yet, model and failures by reason. Example: pointsman index status"""
    from router.doors.cli.index import run_status

    run_status(deleted=deleted, **_options(ctx, json, config))


@index_app.command("verify")
def index_verify(
    ctx: typer.Context,
    repair: Annotated[
        bool, typer.Option("--repair", help="Bring them in step: remove what is in doubt and make it again from its source.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Reconcile manifest, store, sources and tables; exit code 1 when they differ. Example: pointsman index verify --repair"""
    from router.doors.cli.generations import run_verify

    run_verify(repair=repair, **_options(ctx, json, config))


@index_app.command("rollback")
def index_rollback(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Whose documents; may be left out where there is one tenant.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="GENERATION", help="Another one that `index status` shows; default: the previous one.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show the previous generation again, brought in step with labels and removals of now. Example: pointsman index rollback"""
    from router.doors.cli.generations import run_rollback

    run_rollback(tenant, to, **_options(ctx, json, config))


@index_app.command("forget")
def index_forget(
    ctx: typer.Context, document: Annotated[str, typer.Argument(metavar="DOCUMENT")], json: Json = False, config: Config = None
) -> None:
    """Erase a document from all generations and keep it out. Example: pointsman index forget handbook/hr/leave.md"""
    from router.doors.cli.index import run_forget

    run_forget(document, **_options(ctx, json, config))


@app.command()
def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION")],
    person: Person = None,
    token: Token = None,
    people: People = None,
    k: Annotated[int, typer.Option("-k", help="Passages wanted, 1 to 50.")] = 5,
    route: Annotated[
        str | None, typer.Option(help="Search only this: documents, contextual (their contextual index), sql (tables) or both.")
    ] = None,
    context: Annotated[list[str] | None, typer.Option(help="An earlier question, oldest first; may be repeated.")] = None,
    strategy: Annotated[str | None, typer.Option(help="How documents are searched: simple, decomposed, feedback, ...")] = None,
    source: Annotated[list[str] | None, typer.Option(metavar="S", help="Only this source; may be repeated.")] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only documents labelled so, under the policies; may be repeated."),
    ] = None,
    now: Annotated[str | None, typer.Option(help="Ask as of this date (YYYY-MM-DD).")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Ask a question as somebody. Example: pointsman ask "what does ERR-4012 mean" --as ada"""
    from router.doors.cli.asking import run_ask

    run_ask(
        question,
        person=person,
        token=token,
        people=people,
        k=k,
        route=route,
        context=context or (),
        strategy=strategy,
        sources=source or (),
        filters=filter or (),
        now=now,
        **_options(ctx, json, config),
    )


@app.command()
def whoami(
    ctx: typer.Context,
    person: Person = None,
    token: Token = None,
    people: People = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Who a token makes you: tenant, groups, clearance. Example: pointsman whoami --as ada"""
    from router.doors.cli.asking import run_whoami

    run_whoami(person=person, token=token, people=people, **_options(ctx, json, config))


@app.command("token")
def mint_token(
    ctx: typer.Context,
    person: Annotated[str, typer.Argument(metavar="PERSON")],
    minutes: Annotated[int, typer.Option(min=1, max=1440, help="How long it is valid.")] = 15,
    people: People = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """A signed token of the development issuer. Example: pointsman token ada --minutes 60"""
    from router.doors.cli.asking import run_token

    run_token(person, minutes=minutes, people=people, **_options(ctx, json, config))


@policies_app.command("check")
def policies_check(ctx: typer.Context, json: Json = False, config: Config = None) -> None:
    """Load the policy folder strictly and say everything that is wrong. Example: pointsman policies check"""
    from router.doors.cli.policy import run_check

    run_check(**_options(ctx, json, config))


@policies_app.command("test")
def policies_test(ctx: typer.Context, json: Json = False, config: Config = None) -> None:
    """Run the CSV cases; exit code 1 when one fails. Example: pointsman policies test"""
    from router.doors.cli.policy import run_cases_command

    run_cases_command(**_options(ctx, json, config))


@log_app.command("tail")
def log_tail(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    lines: Annotated[int, typer.Option("-n", min=1, help="How many decisions.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """The latest rows of the ledger: ids, digests and counts, no text (with --json one document a line). Example: pointsman log tail -n 5"""
    from router.doors.cli.log import run_tail

    run_tail(tenant=tenant, lines=lines, follow=follow, **_options(ctx, json, config))


@log_app.command("show")
def log_show(
    ctx: typer.Context,
    decision: Annotated[str, typer.Argument(metavar="ID")],
    person: Person = None,
    token: Token = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """One decision; its question only with `audit`, or your own. Example: pointsman log show d-01… --as ada"""
    from router.doors.cli.log import run_show

    run_show(decision, person=person, token=token, **_options(ctx, json, config))


@log_app.command("verify")
def log_verify(ctx: typer.Context, json: Json = False, config: Config = None) -> None:
    """Check every tenant's chain; exit code 1 when one is broken. Example: pointsman log verify"""
    from router.doors.cli.log import run_verify

    run_verify(**_options(ctx, json, config))


@log_app.command("summary")
def log_summary(ctx: typer.Context, since: Since = "24h", json: Json = False, config: Config = None) -> None:
    """Latency per stage, routes, refusals, degradations. Example: pointsman log summary --since 1h"""
    from router.doors.cli.log import run_summary

    run_summary(since, **_options(ctx, json, config))


@egress_app.command("prove")
def egress_prove(
    ctx: typer.Context,
    text_class: Annotated[str, typer.Option("--class", metavar="C", help="public, internal, confidential or restricted.")],
    provider: Annotated[str | None, typer.Option(help="Only what went to this provider.")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """What text of a class left, to whom and why, or that nothing did; exit code 1 when something did. Example: pointsman egress prove --class confidential"""
    from router.doors.cli.log import run_prove

    run_prove(text_class, provider=provider, **_options(ctx, json, config))


@eval_app.command("retrieval")
def eval_retrieval(
    ctx: typer.Context,
    collection: Annotated[Path, typer.Argument(metavar="DIR", help="BEIR layout: corpus.jsonl, queries.jsonl, qrels.tsv.")],
    contexts: Annotated[
        str,
        typer.Option(
            help="What stands in front of each chunk: structure (words of its document), none, or claude (with --config: the collection is sent there)."
        ),
    ] = "structure",
    fusion: Annotated[str, typer.Option(help="zsum, rrf or weighted.")] = "zsum",
    legs: Annotated[str, typer.Option(help="both, dense or lexical.")] = "both",
    rerank: Annotated[str, typer.Option(help="local, none, or cohere (with --config: the collection is sent there).")] = "local",
    strategy: Annotated[str, typer.Option(help="How the collection is searched, see `eval strategies`.")] = "simple",
    transform: Annotated[
        str | None, typer.Option(help="A strategy that changes the question's words: acronyms, hyde, ...")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="Only the first N queries.")] = None,
    store: Annotated[str, typer.Option(help="sqlite, or opensearch (the cluster of --config, indices of its own).")] = "sqlite",
    json: Json = False,
    config: Config = None,
) -> None:
    """nDCG, recall and milliseconds on a collection, by the unchanged line. Example: pointsman eval retrieval my-collection"""
    from router.doors.cli.evaluate import run_retrieval

    run_retrieval(
        collection,
        contexts=contexts,
        fusion=fusion,
        legs=legs,
        rerank=rerank,
        strategy=strategy,
        transform=transform,
        queries=queries,
        store=store,
        **_options(ctx, json, config),
    )


@eval_app.command("strategies")
def eval_strategies(
    ctx: typer.Context,
    collection: Annotated[Path, typer.Argument(metavar="DIR", help="BEIR layout: corpus.jsonl, queries.jsonl, qrels.tsv.")],
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="S", help="Only this one beside `simple`; may be repeated.")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="Only the first N queries.")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Strategies over a collection: quality beside time, searches and model calls. Example: pointsman eval strategies my-collection"""
    from router.doors.cli.evaluate import run_strategies

    run_strategies(collection, names=strategy or [], queries=queries, **_options(ctx, json, config))


@eval_app.command("routing")
def eval_routing(
    ctx: typer.Context,
    questions: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines: question, route, source.")],
    point: Annotated[
        str, typer.Option(help="default, thrifty, careful, or MISS/NONE: what a missed leg and no search cost, in idle legs.")
    ] = "default",
    leave_source_out: Annotated[
        bool, typer.Option("--leave-source-out", help="Train again without the source of each question, and judge that.")
    ] = False,
    without_source: Annotated[list[str] | None, typer.Option(metavar="S", help="Leave a source out altogether.")] = None,
    train: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More questions to train on; default: routing_train.jsonl beside FILE."),
    ] = None,
    catalog: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A catalog.yaml or a folder of schemas: opens the rows gate.")
    ] = None,
    collection: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A collection in BEIR layout: opens the text gate.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Which questions need rows, text, both or nothing, and how surely. Example: pointsman eval routing questions.jsonl"""
    from router.doors.cli.evaluate import run_routing

    run_routing(
        questions,
        point=point,
        leave_source_out=leave_source_out,
        without=without_source or [],
        train=train or [],
        catalogs=catalog or [],
        collections=collection or [],
        as_json=_options(ctx, json, config)["as_json"],
    )


@eval_app.command("sql")
def eval_sql(
    ctx: typer.Context,
    database: Annotated[Path, typer.Option(metavar="FILE", help="A .duckdb file, or a .sql script that makes one.")],
    policies: Annotated[Path, typer.Option(metavar="DIR", help="The policy folder, with the people to judge for.")],
    cases: Annotated[Path, typer.Option(metavar="FILE", help="JSON lines: id, sql, must (accept or reject).")],
    json: Json = False,
    config: Config = None,
) -> None:
    """Hostile and honest SQL for every person, against copies of their rows. Example: pointsman eval sql --database w.sql --policies p --cases c.jsonl"""
    from router.doors.cli.evaluate import run_sql

    run_sql(database, policies, cases, as_json=_options(ctx, json, config)["as_json"])


@eval_app.command("text-to-sql")
def eval_text_to_sql(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Questions with gold queries, and schemas: tables.json or db/*.sql.")
    ],
    gold: Annotated[str, typer.Option(help="The dialect of the gold queries: sqlite or postgres.")] = "sqlite",
    synonyms: Annotated[
        Path | None, typer.Option(metavar="DIR", help="One <db_id>.yaml a database: what a person would add.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=50, help="Sets of made-up rows to agree on.")] = 5,
    confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least confidence of an answer; default: as shipped.")
    ] = None,
    now: Annotated[str | None, typer.Option(help="As of this date (YYYY-MM-DD).")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Questions in words against gold SQL, judged by what they return. Example: pointsman eval text-to-sql my-questions --gold sqlite"""
    from router.doors.cli.evaluate import run_text_to_sql

    run_text_to_sql(
        folder,
        gold=gold,
        synonyms=synonyms,
        seeds=seeds,
        confidence=confidence,
        now=now,
        as_json=_options(ctx, json, config)["as_json"],
    )


@sql_app.command("check")
def sql_check(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    person: Person = None,
    token: Token = None,
    people: People = None,
    now: Annotated[str | None, typer.Option(help="As of this date (YYYY-MM-DD).")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """The gate's verdict; the generated text only with `audit`. Example: pointsman sql check "SELECT count(*) FROM claims" --as ada"""
    from router.doors.cli.sql import run_sql

    run_sql(text, run=False, person=person, token=token, people=people, now=now, **_options(ctx, json, config))


@sql_app.command("run")
def sql_run(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    person: Person = None,
    token: Token = None,
    people: People = None,
    now: Annotated[str | None, typer.Option(help="As of this date (YYYY-MM-DD).")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Governed rows. Example: pointsman sql run "SELECT count(*) FROM claims" --as ada"""
    from router.doors.cli.sql import run_sql

    run_sql(text, run=True, person=person, token=token, people=people, now=now, **_options(ctx, json, config))


@catalog_app.command("derive")
def catalog_derive(
    ctx: typer.Context,
    database: Annotated[
        str | None, typer.Argument(metavar="DATABASE", help="A DuckDB file, or a SQLAlchemy URL; default: what `index` copied.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """A first catalog.yaml on standard output: names, types and keys, never values. Example: pointsman catalog derive world.duckdb"""
    from router.doors.cli.catalog import run_derive

    run_derive(database, **_options(ctx, json, config))


@catalog_app.command("check")
def catalog_check(
    ctx: typer.Context,
    database: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A DuckDB file to compare with; default: what `index` copied.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """What of catalogue and governance cannot be served, or should be looked at. Example: pointsman catalog check"""
    from router.doors.cli.catalog import run_check

    run_check(database, **_options(ctx, json, config))


@eval_app.command("access")
def eval_access(
    ctx: typer.Context,
    cases: Annotated[int, typer.Option(min=1, help="Principal-document pairs.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Repeats a run.")] = 0,
    json: Json = False,
    config: Config = None,
) -> None:
    """Random principals on your live documents and rows: filters, engines and Cedar must agree. Example: pointsman eval access --cases 1000"""
    from router.doors.cli.evaluate import run_access

    run_access(cases, seed, **_options(ctx, json, config))


@app.command()
def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    json: Json = False,
    config: Config = None,
) -> None:
    """HTTP for programs: POST /v1/ask with a bearer token; OpenAPI at /docs. Example: pointsman serve --port 8080"""
    from router.doors.cli.serving import run_serve

    run_serve(host, port, **_options(ctx, json, config))


@app.command("mcp")
def mcp_door(
    ctx: typer.Context,
    token: Annotated[Path, typer.Option("--token", metavar="FILE", help="A file with a bearer token; read anew for every call.")],
    json: Json = False,
    config: Config = None,
) -> None:
    """MCP for assistants, over standard input and output. Example: pointsman mcp --token ada.jwt"""
    from router.doors.cli.serving import run_mcp

    run_mcp(token, config=_options(ctx, json, config)["config"])


@app.command()
def doctor(ctx: typer.Context, json: Json = False, config: Config = None) -> None:
    """Configuration, keys, engines, hashes, index and disk: each line ok, warning or fault. Example: pointsman doctor"""
    from router.doors.cli.setup import run_doctor

    run_doctor(**_options(ctx, json, config))


@app.command()
def demo(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where to build it; default: in place in a checkout, else ./pointsman-demo."),
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Build the demonstration world and ask it questions as several people. Example: pointsman demo"""
    from router.doors.cli.demo import run_demo

    run_demo(folder, as_json=_options(ctx, json, config)["as_json"])


def main() -> None:
    """Entry point: exit codes and error shape of interface.md, section 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # documents may hold what the terminal's encoding has no letter for
    sys.exit(_run(sys.argv[1:]))


def _run(args: list[str]) -> int:
    _FLAGS["json"] = "--json" in (args[: args.index("--")] if "--" in args else args)
    try:
        code = app(args, standalone_mode=False, prog_name="pointsman")
        sys.stdout.flush()
    except PointsmanError as error:
        return _fail(error)
    except TyperException as error:
        return _misused(error)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(_interrupted(), INTERRUPTED)
    except BrokenPipeError:
        return _unread()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how Typer and Rich end when nobody reads
            return _unread()
        raise
    except Exception as error:  # noqa: BLE001 (the shape of a failure is promised for every failure)
        return _fail(_interrupted(), INTERRUPTED) if _is_interrupted(error) else _fault(error)
    if code == INTERRUPTED:  # Typer turns Ctrl-C into this
        return _fail(_interrupted(), INTERRUPTED)
    return code if isinstance(code, int) else 0


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: a native module that it stops while it loads raises an error of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _misused(error: TyperException) -> int:
    """A wrong flag or command: as Typer shows it (help, where nothing was named), or in our shape as JSON."""
    show = getattr(error, "show", None)
    if show is None or _FLAGS["json"]:
        said = (error.format_message().strip().splitlines() or ["wrong usage"])[0]
        message = "the command is not complete" if said.startswith("Usage:") else _lower(said)  # it would print its help
        return _fail(UsageError("usage", message, "see --help"))
    show()
    return UsageError.exit_code


def _fail(error: PointsmanError, code: int | None = None) -> int:
    from router.doors.cli.output import print_error

    print_error(error, as_json=_FLAGS["json"])
    return error.exit_code if code is None else code


def _unread() -> int:
    """Whoever read standard output has gone: end as other programs do then, which is neither done nor a finding."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)  # else the last flush fails aloud
    return 128 + signal.SIGPIPE


def _fault(error: Exception) -> int:
    """What nobody foresaw: its trace on standard error, where the operator is, and the promised shape."""
    import traceback

    from router.errors import SourceError

    traceback.print_exception(error)
    name = type(error).__name__
    return _fail(SourceError("fault", f"a fault in Pointsman (`{name}`)", "report it with what stands on standard error"))


def _interrupted() -> PointsmanError:
    return PointsmanError("interrupted", "interrupted; nothing is half-written", "run the command again to go on")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
