"""`python -m tests.bench [--only NAME]… [--json] [--dir DIR]`: one table of every figure, its bar and its spread.

Exit code 1 when a figure misses its bar.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.measure import Figure

BENCHES = (
    "help",
    "governance",
    "rerank",
    "routing",
    "search",
    "ask",
    "both",
    "indexing",
    "incremental",
    "relabel",
    "sql",
    "planner",
)
ASKED_FOR = ("opensearch", "revocation")
"""Run by name only: they need a node of OpenSearch, and minutes to fill it."""


def main() -> int:
    options = _parse()
    began = time.monotonic()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-", dir=options.dir) as place:
        for name in options.only or BENCHES:
            bench = importlib.import_module(f"tests.bench.{name}")
            folder = Path(place) / name
            folder.mkdir()
            for figure in bench.run(folder):
                figures.append(figure)
                if not options.json:
                    print(_row(figure), flush=True)
    took_s = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps({"figures": [figure.as_json() for figure in figures], "seconds": took_s}))
    else:
        missed = [figure.name for figure in figures if figure.met is False]
        print(f"\n{len(figures)} figures in {took_s} s, missed: {', '.join(missed) or 'none'}")
    return int(any(figure.met is False for figure in figures))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Figures as ratios inside one run.")
    parser.add_argument("--only", action="append", choices=(*BENCHES, *ASKED_FOR), help="run this bench only; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--dir", type=Path, help="where to build the throw-away stores; default: the system's temporary folder")
    return parser.parse_args()


def _row(figure: Figure) -> str:
    bar = "" if figure.bar is None else f"{'>=' if figure.at_least else '<='} {figure.bar:g}"
    verdict = {True: "ok", False: "MISSED", None: ""}[figure.met]
    spread = f"({figure.low:.2f}-{figure.high:.2f})"
    cpu = "" if figure.cpu_ratio is None else f", cpu {figure.cpu_ratio:.2f}"
    times = f"{figure.product_ms:.3f} : {figure.bare_ms:.3f} ms, {figure.pairs} pairs{cpu}"
    note = f"\n{'':24}{figure.note}" if figure.note else ""
    return f"{figure.name:24}{figure.ratio:7.3f} {spread:14}{bar:9}{verdict:8}{times:48} {figure.what}{note}"


if __name__ == "__main__":
    sys.exit(main())
