"""An answer from documents and tables over the slower of its two legs, asked in turns in the same run, on the demonstration world.

Each turn asks one question four ways: both legs, documents alone, tables alone, and with the route left to the router, which pays for
the gates besides. Each leg alone is a whole answer: identity and record are in all of them. The questions need both legs and neither
waits for the other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

from router.app import Router
from router.domain import Wanted
from tests.bench.measure import Figure, Pairs
from tests.e2e.asking import NOW, open_world

BAR = 1.15
TURNS = 100
QUESTIONS = (
    ("esther", "How many claims of type R7 do we have, and what proof does R7 ask for?"),
    ("farid", "How many R6 claims were opened in 2026, and until when does R6 pay?"),
    ("carla", "How many technicians joined in 2025, and what happens in somebody's first week?"),
    ("jonas", "How many technicians work at depot 1, and what does the workshop earn an hour?"),
    ("nadia", "How many disputed claims does Tamarind Foods have, and what does the withheld bulletin about dropped layers say?"),
)
WAYS: tuple[Wanted | None, ...] = ("both", "documents", "sql", None)


def run(folder: Path) -> Iterator[Figure]:
    with open_world(folder) as router:
        tokens = {person: router.mint(person, minutes=600) for person, _ in QUESTIONS}
        for person, question in QUESTIONS:
            answer = router.ask(question, token=tokens[person], route="both", now=NOW)
            assert answer.passages, f"{question}: no passages"
            assert answer.tables, f"{question}: no rows"
        times = _ask_in_turns(router, tokens)
    slower = [max(turn["documents"], turn["sql"]) for turn in times]
    both, chosen = [turn["both"] for turn in times], [turn[None] for turn in times]
    middle = {way: sorted(turn[way] for turn in times)[len(times) // 2] / 1e6 for way in WAYS}
    note = ", ".join(f"{way or 'left to the router'} {ms:.1f}" for way, ms in middle.items())
    yield Pairs(both, slower).figure("both", "both legs : the slower of the two alone", BAR, note=f"medians in ms: {note}")
    yield Pairs(chosen, slower).figure("both, by the router", "the same with gates and route : the slower leg alone", None)


def _ask_in_turns(router: Router, tokens: dict[str, str]) -> list[dict[Wanted | None, int]]:
    """The order of the ways moves on from turn to turn, so that none always comes first."""
    times: list[dict[Wanted | None, int]] = []
    gc.collect()
    gc.freeze()
    for turn in range(-len(QUESTIONS), TURNS):
        person, question = QUESTIONS[turn % len(QUESTIONS)]
        took: dict[Wanted | None, int] = {}
        for at in range(len(WAYS)):
            way = WAYS[(turn + at) % len(WAYS)]
            start = time.perf_counter_ns()
            router.ask(question, token=tokens[person], route=way, now=NOW)
            took[way] = time.perf_counter_ns() - start
        times.append(took)
    gc.unfreeze()
    return times[len(QUESTIONS) :]
