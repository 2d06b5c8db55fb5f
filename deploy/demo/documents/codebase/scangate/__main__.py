"""Run the gateway against a simulated tunnel: `python -m scangate --simulate 200`."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from scangate.parcels import join_reads
from scangate.reads import Read, format_read, parse_read
from scangate.retry import ParkingLot, send_with_retry
from scangate.settings import parse_settings
from scangate.uplink import SimulatedUplink

CAMERAS = (("top", 0.65), ("left", 0.10), ("right", 0.10), ("front", 0.08), ("back", 0.07))


def simulate_lines(parcels: int, seed: int) -> Iterator[bytes]:
    """Lines as a tunnel sends them; about one parcel in seventy has no read at all."""
    chance = random.Random(seed)
    at_ms = 1_790_000_000_000
    for sequence in range(1, parcels + 1):
        at_ms += chance.randint(900, 1400)
        label = f"PX{sequence:08d}"
        seen = [name for name, share in CAMERAS if chance.random() < share * 1.5]
        for offset, camera in enumerate(seen or ["trigger"]):
            yield format_read(Read("T1", sequence, at_ms + offset * 40, camera, "C128", label if seen else ""))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scangate")
    parser.add_argument("--simulate", type=int, default=200, metavar="PARCELS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = parse_settings(dict(pair.split("=", 1) for pair in options.set))
    lot, uplink = ParkingLot(settings), SimulatedUplink()
    reads = (parse_read(line, frozenset({"T1"})) for line in simulate_lines(options.simulate, options.seed))
    total = no_reads = 0
    for parcel in join_reads(reads, settings.parcel_window_ms):
        total += 1
        no_reads += parcel.is_no_read
        send_with_retry(parcel, uplink, lot, parcel.first_ms, sleep=lambda _: None)
    print(f"{total} parcels, {no_reads} without a read, {len(lot.parked)} parked, longest wait {settings.longest_wait_ms()} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
