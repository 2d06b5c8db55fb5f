"""`python -m tests.e2e [--json] [--only KIND]… [--misses] [--given]`: the demonstration world, asked everything in questions.jsonl.

Exit code 1 when anybody sees what they must not, when a figure misses its bar, or when the route could not be judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from router.app import Router
from tests.e2e.asking import ask_all, ask_line, chooses, open_world
from tests.e2e.judging import Got, Line, Verdict, judge, load_lines, seen

MANY = 50
BARS: dict[str, tuple[str, float]] = {
    "route": ("route right or safely wider", 0.95),
    "evidence": ("evidence in the top 5", 0.90),
    "value": ("table values right", 0.95),
    "recognised": ("no answer, and recognised", 0.80),
}


def main() -> int:
    options = _parse()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pointsman-e2e-") as place, open_world(Path(place)) as router:
        chosen = chooses(router) and not options.given
        lines = [line for line in load_lines() if not options.only or line.kind in options.only]
        verdicts = ask_all(lines, lambda line: _judged(router, line, chosen=chosen))
    report = summarise(verdicts, chosen=chosen) | {"seconds": round(time.monotonic() - began, 1)}
    if options.json:
        print(json.dumps(report | {"misses": [_miss(verdict) for verdict in verdicts if not kept(verdict)]}))
    else:
        _print(report, verdicts if options.misses else [v for v in verdicts if v.seen])
    return int(not report["met"])


def _judged(router: Router, line: Line, *, chosen: bool) -> Verdict:
    """As a caller would ask, and once more for far more passages than anybody reads: nothing hidden may stand there either."""
    verdict = judge(line, ask_line(router, line, chosen=chosen))
    many = seen(line, ask_line(router, line, chosen=chosen, k=MANY))
    return replace(verdict, seen=tuple(dict.fromkeys((*verdict.seen, *many))))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object, with what was missed")
    parser.add_argument("--only", action="append", metavar="KIND", help="lines of this kind only")
    parser.add_argument(
        "--given", action="store_true", help="ask with the route that each question needs; no route is judged then"
    )
    parser.add_argument("--misses", action="store_true", help="each line that was not kept, with what came instead")
    return parser.parse_args()


def summarise(verdicts: Sequence[Verdict], *, chosen: bool) -> dict[str, Any]:
    figures = {name: _figure(verdicts, name, bar) for name, (_, bar) in BARS.items()}
    shown = sum(len(verdict.seen) for verdict in verdicts)
    return {
        "questions": len(verdicts),
        "chosen": chosen,
        "figures": figures,
        "exact_route": _shares(verdicts, "exact"),
        "idle": _idle([verdict for verdict in verdicts if verdict.line.route in _ONE_LEG and verdict.got.route]),
        "wrong_values": sum(verdict.value is False and any(map(len, verdict.got.tables)) for verdict in verdicts),
        "kinds": {
            kind: _kept_of([v for v in verdicts if v.line.kind == kind]) for kind in sorted({v.line.kind for v in verdicts})
        },
        "must_not_see": shown,
        "met": chosen and shown == 0 and all(figure["met"] for figure in figures.values() if figure["of"]),
    }


def _figure(verdicts: Sequence[Verdict], name: str, bar: float) -> dict[str, Any]:
    shares = _shares(verdicts, name)
    return shares | {"bar": bar, "met": shares["share"] is not None and shares["share"] >= bar}


def _shares(verdicts: Sequence[Verdict], name: str) -> dict[str, Any]:
    def share(which: Callable[[Verdict], bool]) -> tuple[float | None, int]:
        judged = [getattr(verdict, name) for verdict in verdicts if which(verdict) and getattr(verdict, name) is not None]
        return (round(sum(judged) / len(judged), 4) if judged else None), len(judged)

    whole, count = share(lambda verdict: True)
    halves = {half: share(lambda verdict, half=half: verdict.line.half == half)[0] for half in ("before", "after")}  # type: ignore[misc]
    return {"share": whole, "of": count, **halves}


_ONE_LEG = ("documents", "sql")


def _idle(verdicts: Sequence[Verdict]) -> float | None:
    """How often both legs are searched where one would have done: wider is safe, and has its cost."""
    return round(sum(verdict.got.route == "both" for verdict in verdicts) / len(verdicts), 4) if verdicts else None


def _kept_of(verdicts: Sequence[Verdict]) -> list[int]:
    return [sum(map(kept, verdicts)), len(verdicts)]


def kept(verdict: Verdict) -> bool:
    return not verdict.seen and False not in (verdict.route, verdict.evidence, verdict.value, verdict.recognised)


def _miss(verdict: Verdict) -> dict[str, Any]:
    line, got = verdict.line, verdict.got
    wrong = [name for name in BARS if getattr(verdict, name) is False] + (["must_not_see"] if verdict.seen else [])
    told: dict[str, Any] = {
        "id": line.id,
        "half": line.half,
        "person": line.person,
        "question": line.question[:200],
        "missed": wrong,
    }
    return told | {
        "wanted": line.route,
        "route": got.route,
        "outcomes": list(got.outcomes),
        **_came(got),
        "seen": list(verdict.seen),
    }


def _came(got: Got) -> dict[str, Any]:
    return {"documents": list(got.documents[:5]), "rows": [[list(row) for row in rows[:5]] for rows in got.tables]}


def _print(report: dict[str, Any], shown: Sequence[Verdict]) -> None:
    for verdict in shown:
        if not kept(verdict):
            print(json.dumps(_miss(verdict), ensure_ascii=False, default=str))
    print(f"{'':34}{'all':>7}{'before':>8}{'after':>8}{'of':>6}{'bar':>7}")
    rows = {BARS[name][0]: figure for name, figure in report["figures"].items()} | {"route exactly": report["exact_route"]}
    for label, figure in rows.items():
        cells = [f"{figure[key]:.1%}" if figure[key] is not None else "-" for key in ("share", "before", "after")]
        bar = f"{figure['bar']:.0%}" if "bar" in figure else ""
        missed = "" if figure.get("met", True) or not figure["of"] else "  missed"
        print(f"{label:34}{cells[0]:>7}{cells[1]:>8}{cells[2]:>8}{figure['of']:>6}{bar:>7}{missed}")
    print(
        f"{'other rows than right':34}{report['wrong_values']:>7}   (the other values that are not right were asked back or missing)"
    )
    print(f"{'seen that must not be':34}{report['must_not_see']:>7}")
    print("kept in every respect, by kind: " + ", ".join(f"{kind} {had}/{of}" for kind, (had, of) in report["kinds"].items()))
    if not report["chosen"]:
        print("each question was asked with the route that it needs, and no route is judged")
    print(f"{report['questions']} questions in {report['seconds']} s")


if __name__ == "__main__":
    sys.exit(main())
