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
    """One figure. `low` and `high` are the quartiles of the pairs' ratios; without a `bar` the figure is for information."""

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

    def figure(
        self, name: str, what: str, bar: float | None, *, rate: bool = False, note: str = "", units: Sequence[int] = ()
    ) -> Figure:
        """`rate`: the ratio is of speeds (bare time over product time) and should be at least the bar.

        `units`: how many questions each pair stands for, where one is too short to be measured alone.
        """
        ratios = [b / a if rate else a / b for a, b in zip(self.product, self.bare, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        per = list(units) or [1] * len(ratios)
        return Figure(
            name,
            what,
            round(middle, 3),
            round(low, 3),
            round(high, 3),
            bar,
            rate,
            _median_ms(self.product, per),
            _median_ms(self.bare, per),
            len(ratios),
            note,
        )


def _median_ms(times_ns: Sequence[int], units: Sequence[int]) -> float:
    return round(statistics.median(time_ns / unit for time_ns, unit in zip(times_ns, units, strict=True)) / 1e6, 4)


def run_pairs(product: Callable[[int], object], bare: Callable[[int], object], pairs: int, *, warm: int = 3) -> Pairs:
    """`product(at)` and `bare(at)` in turns; both get the number of the pair, so that they do the same work."""
    for at in range(warm):
        product(at)
        bare(at)
    gc.collect()
    gc.freeze()  # what the set-up made is not the product's garbage
    a: list[int] = []
    b: list[int] = []
    for at in range(pairs):
        a.append(timed(product, at))
        b.append(timed(bare, at))
    gc.unfreeze()
    return Pairs(a, b)


def timed(run: Callable[[int], object], at: int) -> int:
    start = time.perf_counter_ns()
    run(at)
    return time.perf_counter_ns() - start


def say_ms(times_ns: Sequence[int]) -> str:
    return f"{statistics.median(times_ns) / 1e6:.3f} ms"
