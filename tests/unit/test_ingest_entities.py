"""What chunks name: codes by shape, products, names, and values that a reviewer marked as everybody's."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.domain import Chunk, Entity, Span
from router.ingest import entities
from router.ingest.entities import Aliases, PublicColumns, PublicRows, build_aliases, read_aliases, with_entities
from tests import world


def chunk(text, *, title="Page", heading=(), ordinal=0):
    return Chunk(f"s/d#{ordinal}", "s/d", "s", ordinal, title, tuple(heading), text, "prose", "file:///d", Span())


def named(text, *, key="d.md", meta=None, aliases=None, **more):
    [got] = with_entities([chunk(text, **more)], key, meta or {}, aliases or Aliases())
    return {(entity.kind, entity.name, entity.subject) for entity in got.entities}


def test_kinds_and_subjects():
    text = "The report by Mara Lindqvist says that INC-2041 came of PN-88213."
    found = named(
        text, title="CX-400 belts", heading=("Faults", "ERR-4012"), key="a/sb-2025-07.md", meta={"product": "Presto 400, KX-12"}
    )
    assert found == {
        ("code", "cx-400", True),
        ("code", "err-4012", True),
        ("code", "sb-2025-07", True),
        ("code", "kx-12", True),
        ("product", "presto-400", True),
        ("code", "inc-2041", False),
        ("code", "pn-88213", False),
        ("name", "mara-lindqvist", False),
    }


@pytest.mark.parametrize(
    ("meta", "subjects"),
    [
        ({"id": "INC-2041"}, {"inc-2041"}),
        ({"Part number": "PN-88213"}, {"pn-88213"}),
        ({"incident": "INC-1; INC-22"}, {"inc-22"}),
        ({"related": "INC-2041", "see also": "INC-2042", "supersedes": "SB-2024-11", "references": "INC-2043"}, set()),
        ({"author": "ANNA-12", "note": "INC-2041"}, set()),
    ],
)
def test_front_matter_that_says_what_a_document_is_about(meta, subjects):
    assert {name for _, name, subject in named("x", meta=meta) if subject} == subjects


def test_of_the_document_alone():
    """Each chunk is told its own names and those of its document; a neighbour's names are not."""
    chunks = [chunk("on INC-2041", ordinal=0), chunk("on PN-88213", ordinal=1, heading=("INC-7777",))]
    first, second = with_entities(chunks, "x.md", {}, Aliases())
    assert [entity.name for entity in first.entities] == ["inc-2041"]
    assert [entity.name for entity in second.entities] == ["inc-7777", "pn-88213"]
    assert with_entities(chunks[:1], "x.md", {}, Aliases()) == (first,)
    assert with_entities([], "x.md", {}, Aliases()) == ()


def test_bounded():
    [got] = with_entities([chunk(" ".join(f"PN-{at:05}" for at in range(10_000)))], "INC-2041.md", {}, Aliases())
    assert len(got.entities) == entities.MOST_ENTITIES
    assert got.entities[0] == Entity("code", "inc-2041", subject=True)
    assert len({entity.name for entity in got.entities}) == entities.MOST_ENTITIES


# --- aliases ----------------------------------------------------------------------------------------------------------

PARTS = PublicRows(
    ("part", "name"),
    (("PN-88213", "oil filter"), ("PN-88240", "tension bolt"), ("PN-70417", "tension bolt"), (None, "9")),
    "part",
)


def test_only_public_values_are_aliases():
    """A name that one thing goes by means that thing; of two things it is a name alone; what is a number is none."""
    aliases = build_aliases([PARTS])
    assert aliases.meant == {
        "pn-88213": "pn-88213",
        "oil-filter": "pn-88213",
        "pn-88240": "pn-88240",
        "pn-70417": "pn-70417",
        "tension-bolt": "tension-bolt",
    }
    text = "Change the oil Filter, then each tension bolt; the oil, a filter and 9 rags stay."
    assert {("value", "pn-88213", False), ("value", "tension-bolt", False)} == named(text, aliases=aliases)
    assert read_aliases("PN 88213 and pn88213", aliases) == ["pn-88213"]
    assert (
        build_aliases([PublicRows(("part",), (("the of",), ("12",), ("it",), (7,), ("x" * 500,), ("a b c d e f g",)))]).meant
        == {}
    )
    assert read_aliases(text, Aliases()) == []


def test_a_tenants_own_rows_alone():
    public = PublicColumns("main.parts", "tenant_id", ("part", "name"), "part")
    rows = [("north", "PN-1", "oil filter"), ("south", "PN-2", "oil filter"), (None, "PN-3", "oil filter")]
    assert public.rows_of("north", rows) == PublicRows(("part", "name"), (("PN-1", "oil filter"),), "part")


@given(st.lists(st.text(alphabet="ab -1", min_size=1, max_size=12), max_size=6), st.text(alphabet="ab -1.", max_size=60))
def test_every_alias_that_stands_alone_is_read(values, around):
    aliases = build_aliases([PublicRows(("name",), tuple((value,) for value in values))])
    for said in aliases.meant:
        assert said in read_aliases(f"{said}", aliases)
    assert set(read_aliases(around, aliases)) <= set(aliases.meant.values())


@pytest.mark.parametrize(
    "text",
    ["A" * 200_000, "A-" * 100_000, "A1-" * 70_000, "claim " * 40_000, "Ab " * 70_000, "x Ab Cd " * 30_000, "1" * 200_000, "PN-88213" * 30_000],
    ids=range(8),
)  # fmt: skip
def test_hostile_text_takes_linear_time(text):
    aliases = build_aliases([PublicRows(("name",), (("ab cd ef gh ij",), ("aaaa",)))])
    start = time.process_time()
    with_entities([chunk(text, title=text[:1000])], text[:500], {"product": text[:1000]}, aliases)
    assert time.process_time() - start < 2.0


def test_indexed_by_the_ordinary_line(tmp_path):
    """What the pipeline writes is there when the store is asked, and a page of an older pipeline is made again."""
    with world.open_world(tmp_path / "world") as router:
        [stored] = router.store.load("north", ["handbook/staff/oil.md#0"], _everything(router), deadline_s=9)
        assert stored.chunk.entities == (Entity("code", "pn-88213"),)


def _everything(router):
    grants = router.policies.current().grants(router.whoami(router.mint("max")), world.NOW)
    return grants.joined.filter
