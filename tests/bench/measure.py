"""Paired measurement: product and bare calls in turns, the median of the ratios, and its spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `low` and `high` are the quartiles of the pairs' ratios; without a `bar` the figure is for information.

    `cpu_ratio` is the same median over this process's CPU time: where it is far from `ratio`, the machine was busy.
    """

    name: str
    what: str
    ratio: float
    low: float
    high: float
    bar: float | None
    at_least: bool
    product_ms: float
    bare_ms: float
    pairs: int
    cpu_ratio: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Times in ns of the same work done by the product and by bare calls, one after the other."""

    product: Sequence[int]
    bare: Sequence[int]
    product_cpu: Sequence[int] = ()
    bare_cpu: Sequence[int] = ()

    def figure(self, name: str, what: str, bar: float | None, *, rate: bool = False, note: str = "") -> Figure:
        """`rate`: the ratio is of speeds (bare time over product time) and should be at least the bar."""
        ratios = _ratios(self.product, self.bare, rate=rate)
        low, middle, high = statistics.quantiles(ratios, n=4)
        cpu = _ratios(self.product_cpu, self.bare_cpu, rate=rate)
        return Figure(
            name=name,
            what=what,
            ratio=round(middle, 3),
            low=round(low, 3),
            high=round(high, 3),
            bar=bar,
            at_least=rate,
            product_ms=round(statistics.median(self.product) / 1e6, 4),
            bare_ms=round(statistics.median(self.bare) / 1e6, 4),
            pairs=len(ratios),
            cpu_ratio=round(statistics.median(cpu), 3) if cpu else None,
            note=note,
        )


def _ratios(product: Sequence[int], bare: Sequence[int], *, rate: bool) -> list[float]:
    return [b / max(a, 1) if rate else a / max(b, 1) for a, b in zip(product, bare, strict=True)]


def run_pairs(product: Callable[[int], object], bare: Callable[[int], object], pairs: int, *, warm: int = 3) -> Pairs:
    """`product(at)` and `bare(at)` in turns; both get the number of the pair, so that they do the same work."""
    for at in range(warm):
        product(at)
        bare(at)
    gc.collect()
    gc.freeze()  # what the set-up made is not the product's garbage
    a: list[tuple[int, int]] = []
    b: list[tuple[int, int]] = []
    for at in range(pairs):
        a.append(timed(product, at))
        b.append(timed(bare, at))
    gc.unfreeze()
    product_ns, product_cpu = zip(*a, strict=True)
    bare_ns, bare_cpu = zip(*b, strict=True)
    return Pairs(product_ns, bare_ns, product_cpu, bare_cpu)


def timed(run: Callable[[int], object], at: int) -> tuple[int, int]:
    """Wall time and this process's CPU time, in ns."""
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    run(at)
    return time.perf_counter_ns() - start, time.process_time_ns() - cpu
