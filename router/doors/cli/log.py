"""`log tail|show|verify|summary`: the ledger, read only. Ids, digests and counts; text needs `audit` or one's own decision."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

from router import decision
from router.app import Router, log_file, open_ledger
from router.config import find_settings, load_settings
from router.decision import Summary, Verified
from router.domain import CLASSES, Link, Record
from router.doors.cli.asking import read_token
from router.doors.cli.output import one_line, print_json, print_table, say
from router.errors import CHECK_FAILED, UsageError
from router.ports import Ledger

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run_tail(*, tenant: str | None, lines: int, follow: bool, as_json: bool, config: Path | None) -> None:
    with open_ledger(config) as ledger:
        seen: dict[str, int] = {}
        rows: list[tuple[Link, Record]] = []
        for name in _tenants(ledger, tenant):
            for link, record in ledger.read(name):
                seen[name] = link.seq
                if record.kind != "asked":
                    rows.append((link, record))
        for link, record in sorted(rows, key=lambda row: row[1].at_us)[-lines:]:
            _print_row(link, record, as_json=as_json)
        if not rows and not as_json:
            say("no rows")
        while follow:
            time.sleep(1)
            for name in _tenants(ledger, tenant):
                for link, record in ledger.read(name, after_seq=seen.get(name, 0)):
                    seen[name] = link.seq
                    if record.kind != "asked":
                        _print_row(link, record, as_json=as_json)


def _tenants(ledger: Ledger, tenant: str | None) -> list[str]:
    known = ledger.tenants()
    return known if tenant is None else [name for name in known if name == tenant]


def _print_row(link: Link, record: Record, *, as_json: bool) -> None:
    line = decision.decision_line(record, link)
    if as_json:
        print_json({"kind": record.kind, **line})
        return
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.at_us / 1e6))
    if record.kind != "answered":
        facts = (
            f"{key} {one_line(str(value), 60)}"
            for key, value in line.items()
            if key not in _PLACE and value not in (None, {}, "")
        )
        say(f"{at}  {record.tenant}#{link.seq}  {record.kind}  {'  '.join(facts)}")
        return
    degraded = f"  degraded {len(line['degraded'])}" if line["degraded"] else ""
    say(
        f"{at}  {record.tenant}#{link.seq}  {record.decision_id}  {line['outcome']}  {len(line['evidence'])} passages  "
        f"{line['total_us'] / 1000:.1f} ms  principal {line['principal'][:12]}{degraded}"
    )


_PLACE = frozenset({"schema", "seq", "previous", "digest", "at", "tenant", "kind", "record_id", "by", "old", "new"})


def run_show(decision_id: str, *, person: str | None, token: Path | None, as_json: bool, config: Path | None) -> None:
    """Without an identity: the record without its personal inputs. With one: those too, where policy allows it."""
    if person is None and token is None:
        with open_ledger(config) as ledger:
            body = _body(_find(ledger, decision_id))
    else:
        with Router.open(config) as router:
            found = _find(router.ledger, decision_id)
            body = {**_body(found), "inputs": router.read_inputs(found[0][1], read_token(router, person, token))}
    if as_json:
        print_json(body)
        return
    for key, value in body.items():
        say(one_line(f"{key:<16} {_words(key, value)}", 2000))


def _body(found: list[tuple[Link, Record]]) -> dict[str, Any]:
    link, record = found[-1]
    return {"kind": record.kind, **decision.decision_line(record, link)}


def _words(key: str, value: Any) -> str:
    if key == "at":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(value / 1e6)) + " UTC"
    if key == "total_us":
        return f"{value / 1000:.1f} ms"
    if key == "stages":
        return ", ".join(f"{name} {stage['us'] / 1000:.1f} ms" for name, stage in value.items())
    if key == "evidence":
        return ", ".join(f"{item['rank']}. {item['id']}" for item in value) or "none"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False) if value else "none"
    return "none" if value is None else str(value)


def _find(ledger: Ledger, decision_id: str) -> list[tuple[Link, Record]]:
    for tenant in ledger.tenants():
        rows = list(ledger.read(tenant, decision_id=decision_id))
        if rows:
            return rows
    raise UsageError("decision_unknown", f"there is no decision `{decision_id}`", "see `pointsman log tail`")


def run_verify(*, as_json: bool, config: Path | None) -> None:
    """Exit code 1 when a chain is broken, or shorter than the log file says it was."""
    anchors = _anchors(config)
    with open_ledger(config) as ledger:
        verdicts = {
            tenant: decision.verify_chain(ledger.read(tenant), anchor=anchors.get(tenant))
            for tenant in sorted({*ledger.tenants(), *anchors})
        }
    whole = all(verdict.whole for verdict in verdicts.values())
    if as_json:
        print_json({"whole": whole, "anchored": sorted(anchors), "tenants": {t: _verdict(v) for t, v in verdicts.items()}})
    else:
        for tenant, verdict in verdicts.items():
            say(
                f"{'no tenant (refused tokens, policies)' if tenant == decision.NO_TENANT else tenant}: {verdict.rows} rows, "
                f"{'whole' if verdict.whole else 'BROKEN'}, {len(verdict.open)} asked without an answer"
                + (f", held against the log file at row {anchors[tenant][0]}" if tenant in anchors else ""),
                None if verdict.whole else "red",
            )
            for fault in verdict.faults:
                say(f"  {fault.seq}: {fault.code}: {fault.message}", "red")
        if not verdicts:
            say("the ledger is empty")
    if not whole:
        raise SystemExit(CHECK_FAILED)


def run_prove(text_class: str, *, provider: str | None, as_json: bool, config: Path | None) -> None:
    """Exit code 1 when text of the class left, or when a chain is broken, since nothing is proven from it."""
    from router.review.disclosed import parse_class, prove

    sensitivity, anchors = parse_class(text_class), _anchors(config)
    with open_ledger(config) as ledger:
        tenants = sorted({*ledger.tenants(), *anchors})
        proof = prove({tenant: ledger.read(tenant) for tenant in tenants}, sensitivity, provider=provider, anchors=anchors)
    if as_json:
        print_json({**dataclasses.asdict(proof), "nothing_left": proof.nothing_left, "anchored": sorted(anchors)})
    else:
        to, name = f" to `{provider}`" if provider else "", CLASSES[sensitivity]
        for one in proof.left:
            say(
                f"{one.tenant}: {one.attempts} attempts of {one.purpose} with {name} text to {one.provider} ({one.model}), {one.texts} texts, {one.bytes} bytes"
            )
        for tenant in proof.broken:
            say(f"{tenant}: the chain is BROKEN, so nothing is proven: see `pointsman log verify`", "red")
        if proof.nothing_left:
            say(f"no {name} text left{to}, by {proof.records} records")
        if proof.open:
            say(f"{proof.open} questions were asked and never sealed; what they sent is among this", "dim")
    if not proof.nothing_left:
        raise SystemExit(CHECK_FAILED)


def _anchors(config: Path | None) -> dict[str, tuple[int, str]]:
    """The latest decision of each tenant in the log file: what was once there must still be, so a cut tail is found."""
    path = log_file(load_settings(find_settings(config)))
    found: dict[str, tuple[int, str]] = {}
    if path is None or not path.is_file():
        return found
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
                if entry["event"] == "decision":
                    found[entry["tenant"]] = (entry["seq"], entry["digest"])
            except (ValueError, KeyError, TypeError):
                continue  # a line cut off by a full disk, or somebody else's
    return found


def _verdict(verdict: Verified) -> dict[str, Any]:
    return {**dataclasses.asdict(verdict), "whole": verdict.whole}


def run_summary(since: str, *, as_json: bool, config: Path | None) -> None:
    match = re.fullmatch(r"(\d{1,6})([smhd])", since)
    if match is None:
        raise UsageError("since_malformed", f"`{since}` is not a length of time", "write 30m, 12h or 7d")
    since_us = time.time_ns() // 1000 - int(match[1]) * _UNITS[match[2]] * 1_000_000
    with open_ledger(config) as ledger:
        rows = (row for tenant in ledger.tenants() for row in ledger.read(tenant, since_us=since_us))
        figures = decision.summary(rows, since_us)
    if as_json:
        print_json(dataclasses.asdict(figures))
    else:
        _print_summary(figures)


def _print_summary(figures: Summary) -> None:
    for name in ("kinds", "routes", "outcomes", "refusals", "refused_tokens", "degraded", "dropped"):
        counts = getattr(figures, name)
        if counts:
            say(f"{name:<16} " + ", ".join(f"{key} {count}" for key, count in counts.items()))
    if asked := figures.cache.get("hit", 0) + figures.cache.get("miss", 0):
        hits = figures.cache.get("hit", 0)
        say(f"{'cache':<16} {hits} of {asked} recalled ({100 * hits / asked:.0f} %), {figures.cache.get('bypass', 0)} past it")
    for store, revoked in figures.revocations.items():
        say(
            f"{'revocation':<16} {store}: {revoked.documents} documents, p50 {revoked.p50_us / 1e6:.2f} s, "
            f"at most {revoked.max_us / 1e6:.2f} s after labels changed or the document went"
        )
    rows = [
        (name, spread.count, f"{spread.p50_us / 1000:.1f}", f"{spread.p95_us / 1000:.1f}")
        for name, spread in figures.stages.items()
    ]
    rows.append(("total", figures.total.count, f"{figures.total.p50_us / 1000:.1f}", f"{figures.total.p95_us / 1000:.1f}"))
    print_table(("stage", "count", "p50 ms", "p95 ms"), rows)
