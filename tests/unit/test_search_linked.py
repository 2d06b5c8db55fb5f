"""Which names are followed, and which of what is about them is handed over: from given passages alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from router.domain import Chunk, Entity, Ranked, Span, Stored
from router.search import linked
from router.search.linked import choose_linked, names_to_follow, prefer_subject, without_topics


def stored(document, *names, ordinal=0):
    """Names with `!` are what the chunk is about."""
    entities = tuple(Entity("code", name.rstrip("!"), name.endswith("!")) for name in names)
    chunk = Chunk(f"{document}#{ordinal}", document, "s", ordinal, "t", (), "x", "prose", "", Span(), entities=entities)
    return Stored(chunk, {}, b"", b"", 1.0)


def ranked(document, *names, ordinal=0):
    return Ranked(stored(document, *names, ordinal=ordinal), ())


def documents(items):
    return [item.stored.chunk.document_id for item in items]


def test_names_in_order_those_asked_for_first():
    kept = [
        ranked("a", "inc-1", "pn-2"),
        ranked("b", "err-3!", "inc-1"),
        *(ranked(f"c{at}") for at in range(3)),
        ranked("z", "inc-9"),
    ]
    assert names_to_follow("why", kept) == ("inc-1", "pn-2", "err-3")
    assert names_to_follow("what of ERR-3333 and PN-22?", [ranked("a", "inc-1", "pn-22", "err-3333")]) == (
        "pn-22",
        "err-3333",
        "inc-1",
    )
    assert len(names_to_follow("why", [ranked("a", *(f"pn-{at}" for at in range(99)))])) == linked.MOST_NAMES
    person = Ranked(
        Stored(
            Chunk("p#0", "p", "s", 0, "", (), "", "prose", "", Span(), entities=(Entity("name", "mara-l"),)), {}, b"", b"", 1.0
        ),
        (),
    )
    assert names_to_follow("why", [person]) == ()


def test_links_come_last():
    """One a document, none of what is there, at most so many, each saying by what."""
    kept = [ranked("a", "inc-1", "pn-2")]
    about = [
        ("inc-1", stored("a", "inc-1!")),
        ("inc-1", stored("r", "inc-1!")),
        ("pn-2", stored("r", "pn-2!")),
        ("pn-2", stored("q", "pn-2!")),
    ]
    chosen = choose_linked(("inc-1", "pn-2"), about, kept, 5)
    assert [(one.stored.chunk.document_id, one.why) for one in chosen] == [("r", "linked by INC-1"), ("q", "linked by PN-2")]
    assert [one.name for one in choose_linked(("pn-2", "inc-1"), about, kept, 1)] == ["pn-2"]
    assert choose_linked(("inc-1",), [], kept, 5) == choose_linked(("inc-1", "pn-2"), about, kept, 0) == ()


def test_a_topic_links_nothing():
    few = [("inc-1", stored(f"d{at}")) for at in range(linked.MOST_DOCUMENTS)]
    many = [("pn-2", stored(f"e{at}")) for at in range(linked.MOST_DOCUMENTS + 1)]
    assert without_topics([*few, *many]) == few


def test_one_code_goes_first():
    found = [ranked("a", "err-4012"), ranked("b", "err-4012!"), ranked("c", "pn-11!"), ranked("d", "err-4012!")]
    assert documents(prefer_subject("what is err 4012?", found)) == ["b", "d", "a", "c"]
    assert documents(prefer_subject("what is ERR-4012 in 2024 at 20 bar?", found)) == ["b", "d", "a", "c"]
    for question in ("ERR-4012 with pn 11?", "ERR-9999?", "what squeaks?", ""):
        assert documents(prefer_subject(question, found)) == ["a", "b", "c", "d"], question
    two = [ranked("a", "err-4012!"), ranked("b", "pn-88213!"), ranked("c", "err-4012!")]
    assert documents(prefer_subject("does ERR-4012 need PN-88213?", two)) == ["a", "b", "c"]


NAMES = st.lists(st.sampled_from(["err-4012", "err-4012!", "pn-88213", "pn-88213!", "x"]), max_size=3)


@given(st.lists(NAMES, max_size=8), st.sampled_from(["ERR-4012", "err 4012 and PN-88213", "PN 88213", "nothing"]))
def test_a_subject_first_is_a_permutation(several, question):
    found = [ranked(f"d{at}", *dict.fromkeys(names)) for at, names in enumerate(several)]
    moved = prefer_subject(question, found)
    assert sorted(documents(moved)) == sorted(documents(found))
    at = {name: place for place, name in enumerate(documents(found))}
    drops = sum(at[one] > at[other] for one, other in itertools.pairwise(documents(moved)))
    assert drops <= 1, "two groups, each in its order"
