"""What is kept of earlier questions: never beyond its bounds, never past its time, never of a version that is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.kept import _OVERHEAD_BYTES, Kept

V = {"policies": "p1", "documents": "d1"}


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def kept(**changes):
    clock = Clock()
    return clock, Kept(**{"most_entries": 3, "most_bytes": 1 << 20, "lifetime_s": 60.0, "clock_s": clock, **changes})


def test_what_is_kept_is_given_back_until_its_time_is_over():
    clock, held = kept()
    assert held.get(b"k", tenant="t", versions=V) is None
    assert held.put(b"k", b"value", tenant="t", versions=V)
    clock.now_s += 59.9
    assert held.get(b"k", tenant="t", versions=V) == b"value"
    clock.now_s += 0.2
    assert held.get(b"k", tenant="t", versions=V) is None
    assert (len(held), held.weight_bytes) == (0, 0)


def test_an_entry_may_end_sooner_and_never_later():
    clock, held = kept()
    assert not held.put(b"over", b"v", tenant="t", versions=V, ends_in_s=-1)
    assert held.put(b"soon", b"v", tenant="t", versions=V, ends_in_s=5)
    assert held.put(b"late", b"v", tenant="t", versions=V, ends_in_s=5_000)
    clock.now_s += 5
    assert held.get(b"soon", tenant="t", versions=V) is None
    assert held.get(b"late", tenant="t", versions=V) == b"v"
    clock.now_s += 55
    assert held.get(b"late", tenant="t", versions=V) is None


def test_a_new_version_empties_what_was_found_under_the_old_one():
    """Of that tenant and what depends on it, whatever is looked for; nothing of others."""
    _, held = kept(most_entries=9)
    only = {"policies": "p1", "tables": "s1"}
    for key, tenant, versions in ((b"a", "t", V), (b"b", "t", V), (b"rows", "t", only), (b"c", "other", V)):
        held.get(key, tenant=tenant, versions=versions)
        assert held.put(key, b"v", tenant=tenant, versions=versions)
    assert held.get(b"nothing", tenant="t", versions={**V, "documents": "d2"}) is None
    assert len(held) == 2
    assert held.get(b"rows", tenant="t", versions=only) == b"v"
    assert held.get(b"c", tenant="other", versions=V) == b"v"
    assert not held.put(b"a", b"late", tenant="t", versions=V), "found before the change, kept after it"
    held.get(b"", tenant="t", versions={"policies": "p2"})
    held.get(b"", tenant="other", versions={"policies": "p2"})
    assert len(held) == 0


def test_drop_and_clear():
    _, held = kept()
    for key in (b"a", b"b"):
        held.put(key, b"v", tenant="t", versions=V)
    held.drop(b"a")
    held.drop(b"a")
    assert (len(held), held.weight_bytes) == (1, 1 + _OVERHEAD_BYTES)
    held.clear()
    assert (len(held), held.weight_bytes) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.integers(0, 40)), max_size=60))
def test_never_more_than_its_bounds(puts):
    clock, held = kept(most_entries=4, most_bytes=3_000)
    told = {}
    for key, size, passed in puts:
        clock.now_s += passed
        name, value = b"%d" % key, bytes([key]) * size
        if held.put(name, value, tenant="t", versions=V):
            told[name] = (value, clock.now_s + 60)
        assert len(held) <= 4
        assert held.weight_bytes <= 3_000
    for name, (value, ends_s) in told.items():
        found = held.get(name, tenant="t", versions=V)
        assert found is None or (found == value and clock.now_s < ends_s)
    assert held.weight_bytes == sum(entry.weight for entry in held._held.values())


def test_what_has_no_room_is_not_kept():
    _, held = kept(most_bytes=1_000)
    assert held.put(b"a", b"v", tenant="t", versions=V)
    assert not held.put(b"b", b"v" * 1_000, tenant="t", versions=V)
    assert held.get(b"a", tenant="t", versions=V) == b"v"
