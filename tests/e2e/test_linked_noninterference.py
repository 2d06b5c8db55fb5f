"""Links, narrowing by what documents name and subjects first, over a hostile world: what may not be seen is added, changed and taken
away at random, named like what is shown, and no byte of an answer changes but times and ids."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.app import Router
from tests import world
from tests.conformance.corpus import examples
from tests.conformance.labs import quick_folder
from tests.world import ask_as, bytes_of, write_page

SHOWN = {
    "handbook/staff/squeak.md": "# Squeaking feeder\n\nIt squeaks because of INC-2041, of PN-88213 and of ERR-4012; see INC-2042.",
    "notes/inc-2041.md": "# INC-2041\n\nThe belt slipped: a splint was lost near PN-88240.",
    "notes/pn-88240.md": "# PN-88240\n\nThe tension bolt takes 45 Nm, says Mara Lindqvist.",
    "handbook/staff/err.md": "# ERR-4012\n\nLow oil pressure, or INC-2041.",
}
QUESTIONS = ("why does the feeder squeak", "ERR-4012", "what of INC-2042", "PN-88240 and INC-2041")
FILTERS = ((), ("entity=INC-2041",), ("entity=pn 88240",), ("entity=INC-2042",), ("entity=Mara Lindqvist",))
HIDDEN = ("handbook/hr", "handbook/board", "notes/hidden", "handbook/later", "elsewhere")
"""Folders that ada may not see: other groups, another clearance, a later day, another tenant."""
CODES = ("INC-2041", "INC-2042", "PN-88213", "PN-88240", "ERR-4012")
PAGE = st.tuples(
    st.sampled_from(HIDDEN),
    st.sampled_from([*CODES, "made", "a-first", "z-last"]),
    st.sampled_from([*CODES, "Squeaking feeder", "Mara Lindqvist"]),
    st.lists(st.sampled_from([*CODES, "feeder squeaks", "says Mara Lindqvist", "supersedes"]), max_size=6).map(" ".join),
    st.sampled_from(["", "---\nid: INC-2041\n---\n", "---\nproduct: PN-88240\n---\n", "---\nsupersedes: inc-2041.md\n---\n"]),
)


@pytest.fixture(scope="module")
def place():
    with quick_folder() as folder:
        config = world.build_world(folder / "world", {**world.PAGES, **SHOWN})
        yield config


@pytest.fixture(scope="module")
def router(place):
    with Router.open(place) as made:
        search = made.line.search.model_copy(update={"linked": 5, "subject_first": True})
        made.__dict__["line"] = dataclasses.replace(made.line, search=search)
        yield made


def answers(router: Router) -> bytes:
    found = [
        bytes_of(ask_as(router, "ada", text, k=k, filters=filters)) for text in QUESTIONS for filters in FILTERS for k in (1, 4)
    ]
    return json.dumps(found, sort_keys=True).encode()


@pytest.fixture(scope="module")
def before(router):
    found = answers(router)
    assert b"linked by INC-2041" in found, "a world without links would prove nothing"
    assert b"linked by INC-2042" not in found
    return found


@given(st.lists(PAGE, min_size=1, max_size=5), st.booleans())
@settings(max_examples=examples(8), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hidden_documents_change_no_link(place: Path, router: Router, before: bytes, pages, kept) -> None:
    """Eight rounds of up to five pages; half of the rounds build upon what the one before left."""
    made = []
    for folder, stem, title, text, front in pages:
        name = f"{folder}/{stem}.md".lower()
        write_page(place.parent, name, f"{front}# {title}\n\n{text or title}\n")
        made.append(place.parent / name)
    report = router.index()
    assert not any(source.error for source in report.sources), report
    assert answers(router) == before
    if not kept:
        for path in made:
            path.unlink(missing_ok=True)
        router.index()
        assert answers(router) == before


def test_what_is_shown_does_change_them(place, router, before):
    """The same page where ada may see it, so that the questions above do ask for it."""
    write_page(place.parent, "notes/inc-2042.md", "# INC-2042\n\nA second splint.")
    router.index()
    found = answers(router)
    os.unlink(place.parent / "notes/inc-2042.md")
    router.index()
    assert b"linked by INC-2042" in found
    assert answers(router) == before
