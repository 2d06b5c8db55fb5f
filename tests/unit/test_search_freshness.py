"""Newer documents first, where a source says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from router.domain import Chunk, Ranked, Span, Stored
from router.search.freshness import MOST_PLACES, prefer_recent

NOW = datetime(2026, 6, 15, tzinfo=UTC)


def passage(number, days=None, source="news"):
    labels = {} if days is None else {"effective_from": int((NOW - timedelta(days=days)).timestamp() * 1000)}
    chunk = Chunk(f"{source}/{number}#0", f"{source}/{number}", source, 0, "", (), "", "prose", "", Span())
    return Ranked(Stored(chunk, labels, b"", b"", 1.0), ())


PASSAGES = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-400, 9_000)), st.sampled_from(["news", "rules"])), max_size=12
).map(lambda some: [passage(at, *one) for at, one in enumerate(some)])


@given(PASSAGES)
def test_a_permutation(ranked):
    preferred = prefer_recent(ranked, {"news": 90.0}, NOW)
    assert sorted(id(one) for one in preferred) == sorted(id(one) for one in ranked)
    assert all(abs(preferred.index(one) - at) <= MOST_PLACES + len(ranked) for at, one in enumerate(ranked))


@given(PASSAGES)
def test_others_keep_their_order(ranked):
    rules = [one for one in ranked if one.stored.chunk.source == "rules"]
    assert [one for one in prefer_recent(ranked, {"news": 90.0}, NOW) if one.stored.chunk.source == "rules"] == rules


def test_newer_rises_and_only_where_asked_for():
    ranked = [passage(0, 900), passage(1, 800), passage(2, 1)]
    assert next(one.stored.chunk.document_id for one in prefer_recent(ranked, {"news": 90.0}, NOW)) == "news/2"
    assert prefer_recent(ranked, {}, NOW) == tuple(ranked)
    assert prefer_recent(ranked, {"rules": 90.0}, NOW) == tuple(ranked)


def test_a_lead_in_rank_outweighs_age():
    ranked = [passage(at, 3_000) for at in range(20)]
    ranked.append(passage(99, 0))
    assert prefer_recent(ranked, {"news": 90.0}, NOW).index(ranked[-1]) >= 20 - MOST_PLACES
