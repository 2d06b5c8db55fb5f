"""`init` and `doctor`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from router.app import MODEL_FOLDER, Router, digest_model, make_development_issuer, make_state, open_ledger
from router.config import FILE_NAME, Settings, find_settings, load_settings
from router.domain import SqlLimits
from router.doors.cli.output import called_as, print_json, say
from router.errors import CHECK_FAILED, PointsmanError, UsageError

if TYPE_CHECKING:
    from router.review.tables import TableFault

LEAST_FREE_BYTES = 1 << 30
WORKER_S = 30.0


def run_init(folder: Path, *, documents: Path | None, tenant: str, group: str, sensitivity: str, as_json: bool) -> None:
    from router.starter import write_starter

    try:
        written = write_starter(folder, documents=documents, tenant=tenant, group=group, sensitivity=sensitivity)
    except OSError:
        raise UsageError("target_unwritable", f"`{folder}` cannot be written", "name another folder") from None
    make_development_issuer(load_settings(folder / FILE_NAME))
    if as_json:
        print_json({"folder": str(folder), "files": [str(path) for path in written], "people": ["ada", "bob"]})
        return
    say(f"{folder} is ready: {len(written)} files, a development issuer, ada (in the group) and bob (not in it)", "green")
    command = called_as()
    say(f"\n  cd {shlex.quote(str(folder))}\n  {command} index\n  {command} ask 'your question' --as ada\n")
    say("What may be seen is decided in policies/; policies/README.md explains it in ten minutes.", "dim")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`: `hint` says what to do."""

    name: str
    level: Literal["ok", "warning", "fault"]
    message: str
    hint: str = ""


def run_doctor(*, as_json: bool, config: Path | None) -> None:
    """Exit code 1 with a fault."""
    checks = list(_checks(config))
    if as_json:
        print_json({"ok": all(check.level != "fault" for check in checks), "checks": [_as_json(check) for check in checks]})
    else:
        styles = {"ok": "green", "warning": "yellow", "fault": "bold red"}
        for check in checks:
            say(
                f"{check.level:<8} {check.name:<14} {check.message}" + (f"\n{'':<24}{check.hint}" if check.hint else ""),
                styles[check.level],
            )
    if any(check.level == "fault" for check in checks):
        raise SystemExit(CHECK_FAILED)


def _as_json(check: Check) -> dict[str, str]:
    return {"name": check.name, "level": check.level, "message": check.message, "hint": check.hint}


def _checks(config: Path | None) -> Iterator[Check]:
    yield from _checked("python", _python)
    path: list[Path] = []
    yield from _checked("configuration", lambda: _configuration(config, path))
    if not path:
        return
    settings = load_settings(path[0])
    yield from _checked("state", lambda: _state(settings))
    yield from _checked("disk", lambda: _disk(settings))
    try:
        router = Router(settings)
    except PointsmanError as error:
        yield Check("policies", "fault", error.message, error.hint)
        yield from _checked("ledger", lambda: _ledger_alone(path[0]))
        return
    with router:
        for name, run in (
            ("policies", _policies),
            ("issuers", _issuers),
            ("record key", _record_key),
            ("ledger", _ledger),
            ("model", _model),
            ("own models", _own_models),
            ("providers", _providers),
            ("store", _store),
            ("sources", _sources),
            ("index", _index),
            ("freshness", _freshness),
            ("tables", _tables),
            ("catalogue", _catalogue),
            ("table workers", _workers),
        ):
            yield from _checked(name, lambda run=run: run(router))  # type: ignore[misc]


def _checked(name: str, run: Callable[[], tuple[Literal["ok", "warning", "fault"], str, str]]) -> Iterator[Check]:
    try:
        yield Check(name, *run())
    except PointsmanError as error:
        yield Check(name, "fault", error.message, error.hint)


Line = tuple[Literal["ok", "warning", "fault"], str, str]


def _python() -> Line:
    version = ".".join(map(str, sys.version_info[:3]))
    return ("ok", version, "") if sys.version_info >= (3, 11) else ("fault", version, "install Python 3.11 or later")


def _configuration(config: Path | None, found: list[Path]) -> Line:
    path = find_settings(config)
    load_settings(path)
    found.append(path)
    return "ok", str(path), ""


def _policies(router: Router) -> Line:
    policies = router.policies.current()
    if not router.policies.ready:
        return "fault", "the folder is broken; the last good version serves for a short grace", "see `pointsman policies check`"
    return "ok", f"{len(policies.statements)} policies, version {policies.version[:12]}", ""


def _issuers(router: Router) -> Line:
    issuers = router.policies.current().issuers.values()
    router.verifier(router.policies.current())
    development = [issuer.alias for issuer in issuers if issuer.development]
    if not development:
        return "ok", f"{len(issuers)} issuers", ""
    hint = "take it out of identity.yaml before strangers can reach this host"
    if not router.development_key.exists():
        return (
            "warning",
            f"`{', '.join(development)}` is a development issuer without a key",
            "run `pointsman init` in a new folder",
        )
    return "warning", f"`{', '.join(development)}` is a development issuer: whoever reads its key can be anybody", hint


def _record_key(router: Router) -> Line:
    return "ok", f"{len(router.key)} bytes, readable by its owner only", ""


def _ledger(router: Router) -> Line:
    router.ledger.check()
    return "ok", f"writable, chains of {len(router.ledger.tenants())} tenants", ""


def _ledger_alone(config: Path) -> Line:
    with open_ledger(config) as ledger:
        ledger.check()
        return "ok", f"writable, chains of {len(ledger.tenants())} tenants", ""


def _sources(router: Router) -> Line:
    """Every declared source is configured, every configured one declared, and each can be listed."""
    declared, configured = set(router.policies.current().sources), set(router.settings.sources)
    if configured - declared:
        names = ", ".join(sorted(configured - declared))
        return "fault", f"configured but not declared: {names}", "declare it in sources.yaml, or take it out of pointsman.toml"
    if declared - configured:
        names = ", ".join(sorted(declared - configured))
        return "fault", f"declared but not configured: {names}", "say in pointsman.toml where its documents are"
    for job in router.jobs():
        next(iter(job.documents.entries()), None)
    return "ok", f"{len(declared)} sources can be listed", ""


def _model(router: Router) -> Line:
    beside = "" if router.remote_embedder is None else f"; the index holds vectors of {router.index_card.id}"
    return "ok", f"{router.embedder.card.id}, files in `{MODEL_FOLDER.name}` as shipped{beside}", ""


def _own_models(router: Router) -> Line:
    """Models of one's own: the digest of their files, which is what has to be declared, and that they can be opened."""
    models, told = router.settings.models, []
    for name, own in (("bi_encoder", models.bi_encoder), ("cross_encoder", models.cross_encoder)):
        if own is None:
            continue
        found = digest_model(router.settings.at(own.path), own.file)
        if own.sha256 is None or own.sha256.lower() != found:
            said = "declares no `sha256`" if own.sha256 is None else "declares another `sha256`"
            return "fault", f"`[models.{name}]` {said}; that of its files is {found}", f'where they are meant: sha256 = "{found}"'
        told.append(f"{name}: files as declared, {found[:12]}")
    used = [] if router.own_embedder is None else [f"the index holds vectors of {router.own_embedder.card.id}"]
    used += [] if router.own_reranker is None else [f"{router.own_reranker.id} judges {router.own_reranker.passages} passages"]
    return "ok", "; ".join([*told, *used]) or "none configured", ""


def _providers(router: Router) -> Line:
    """What text could be sent to, if the policies permit it."""
    named = router.settings.providers
    keys = {
        name: one.key_env
        for name, one in (("claude", named.claude), ("cohere", named.cohere), ("openai_compatible", named.openai_compatible))
        if one is not None
    }
    if not keys:
        return "ok", "none configured: no text leaves this machine", ""
    for name, variable in keys.items():
        if variable is not None and not os.environ.get(variable, "").strip():
            hint = f"set the environment variable `{variable}`; until then nothing is sent to it"
            return "warning", f"the key of `[providers.{name}]` is not there", hint
    used = []
    if named.claude is not None and router.claude is not None:
        used.append(f"claude: {named.claude.model} at {named.claude.base_url}")
    if (embedder := router.remote_embedder) is not None:
        used.append(f"{embedder.hosted.provider}: {embedder.hosted.model} embeds")
    if (reranker := router.remote_reranker) is not None:
        used.append(f"{reranker.hosted.provider}: {reranker.hosted.model} reranks")
    if not used:
        return "ok", "configured and not used: `[models]` and `[search]` name none", ""
    return "ok", f"{', '.join(used)}, where a `disclose` permit covers it", ""


def _store(router: Router) -> Line:
    faults = [fault for tenant in _tenants(router) for fault in router.store.verify(tenant)]
    return (
        ("fault", faults[0], "run `pointsman index --full`") if faults else ("ok", f"{len(_tenants(router))} tenants, whole", "")
    )


def _index(router: Router) -> Line:
    sources = router.index_status().sources
    missing = [entry.source for entry in sources if not entry.documents]
    if missing:
        return "warning", f"nothing indexed from {', '.join(missing)}", "run `pointsman index`"
    return "ok", f"{sum(entry.documents for entry in sources)} documents, {sum(entry.chunks for entry in sources)} chunks", ""


def _freshness(router: Router) -> Line:
    """No source failed in its latest run, and no change waits longer than it may."""
    found, now_us = router.freshness(), time.time_ns() // 1000
    failed = [item for item in found if item.failures]
    if failed:
        names = ", ".join(f"{item.source} ({item.failures} times, {item.code})" for item in failed)
        return "warning", f"the latest runs failed over {names}", "run `pointsman index`; it says what is wrong"
    late = [item for item in found if item.lag_us(now_us) > router.settings.index.stale_s * 1e6]
    if late:
        names = ", ".join(f"{item.source} ({item.lag_us(now_us) / 3.6e9:.1f} hours)" for item in late)
        return "warning", f"changes wait to be indexed, or nobody looked: {names}", "run `pointsman index`, or `index --watch`"
    waiting = sum(item.changes or 0 for item in found)
    untold = sum(item.changes is None for item in found)
    return "ok", f"{waiting} changes are not indexed yet" + (f", of {untold} sources that cannot be told" if untold else ""), ""


def _tables(router: Router) -> Line:
    """Every table is copied, whole and fresh."""
    from router.review.tables import check_copies

    if (found := _worst(check_copies(router))) is not None:
        return found
    snapshot = router.snapshots.current()
    if snapshot is None or not snapshot.tables:
        return "ok", "no table is configured", ""
    age_s = max(0.0, time.time() - min(table.copied_at_us for table in snapshot.tables) / 1e6)
    rows = sum(table.rows for table in snapshot.tables)
    return "ok", f"{len(snapshot.tables)} tables, {rows} rows, the oldest copied {age_s / 3600:.1f} hours ago", ""


def _catalogue(router: Router) -> Line:
    """What governance.yaml and catalog.yaml say is there, and can be computed."""
    from router.review.tables import check_governed

    if (found := _worst(check_governed(router), "`pointsman catalog check` shows all")) is not None:
        return found
    policies = router.policies.current()
    return "ok", f"{len(policies.datasets)} datasets" + ("" if policies.catalog else ", no catalogue"), ""


def _workers(router: Router) -> Line:
    """One worker starts, is locked down, and knows the versions of its parsers."""
    from router.review.tables import current

    if not router.policies.current().datasets or current(router) is None:
        return "ok", "not needed: no table is served", ""
    if not sys.platform.startswith("linux"):
        return "warning", "tables are served on Linux only", "run this part on Linux"
    verdict = router.tables.check(
        "SELECT 1", (), tenant="doctor", today=datetime.now(UTC).date(), limits=SqlLimits(), deadline_s=WORKER_S
    )
    if verdict.code:
        return (
            "fault",
            f"a worker refuses a plain statement ({verdict.code})",
            "install the pinned versions of duckdb and sqlglot",
        )
    return "ok", "a worker starts and judges", ""


def _worst(found: Sequence[TableFault], more: str = "") -> Line | None:
    """The first fault, else the first warning, and how many others there are."""
    ordered = sorted(found, key=lambda each: each.level != "fault")
    if not ordered:
        return None
    first, rest = ordered[0], len(ordered) - 1
    hint = "; ".join(part for part in (first.hint, more if rest else "") if part)
    return first.level, first.message + (f" (and {rest} more)" if rest else ""), hint


def _state(settings: Settings) -> Line:
    mode = make_state(settings).stat().st_mode & 0o777
    if mode & 0o077:
        return (
            "warning",
            f"others can enter the state folder (mode {mode:o})",
            "run chmod 700 on it: it holds text, questions and keys",
        )
    return "ok", "for its owner only", ""


def _disk(settings: Settings) -> Line:
    free = shutil.disk_usage(make_state(settings)).free
    return (
        ("ok" if free > LEAST_FREE_BYTES else "warning"),
        f"{free / 1e9:.1f} GB free",
        "" if free > LEAST_FREE_BYTES else "free space",
    )


def _tenants(router: Router) -> list[str]:
    return sorted({source.tenant for source in router.policies.current().sources.values()})
