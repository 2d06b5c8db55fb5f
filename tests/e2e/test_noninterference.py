"""The first promise, end to end: files that a person may not see are added, changed, relabelled and deleted, indexed by the
ordinary pipeline, and no byte of that person's answers changes but times and ids."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import tempfile
from pathlib import Path

import pytest

from router.app import Router
from router.errors import PointsmanError
from tests import world
from tests.world import ask_as, bytes_of, write_page

QUESTIONS = (
    "what does ERR-4012 on the press mean",
    "which torque do the bolts of the press take",
    "PN-88213",
    "may the guard be bridged, and who ordered it",
    "zebra quagga okapi",
    "the of and",
)
HIDDEN = {
    "low": ("handbook/staff", "handbook/hr", "handbook/board", "notes", "notes/hidden", "elsewhere"),
    "ada": ("handbook/hr", "handbook/board", "notes/hidden", "elsewhere", "handbook/later"),
    "hal": ("handbook/board", "notes/hidden", "elsewhere", "handbook/later"),
    "sue": ("handbook/all", "handbook/staff", "handbook/hr", "handbook/board", "notes", "notes/hidden", "handbook/later"),
    "bob": ("handbook/all", "handbook/staff", "handbook/hr", "handbook/board", "notes", "notes/hidden", "elsewhere"),
}
"""Folders whose labels keep each person out: another group, another clearance, another day, another tenant."""

WORDS = (
    "press ERR-4012 oil pressure low PN-88213 guard bridged torque bolts 52 Nm feeder belt visitors helmet yellow sign "
    "plates bar stroke switch zebra quagga okapi supplement autumn sold hours filter"
).split()
OUTRANKS = " ".join(QUESTIONS) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """In memory where there is such a place: here the ledger's syncs would take nine tenths of the time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("noninterference") / "world"
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "world"


@pytest.fixture(scope="module")
def router(place):
    with world.open_world(place) as made:
        yield made


def answers(router: Router, person: str) -> bytes:
    found = [bytes_of(ask_as(router, person, question, k=50)) for question in QUESTIONS]
    found.append(bytes_of(ask_as(router, person, QUESTIONS[0], k=2)))
    for wrong in ("", "x" * 20_000):
        with pytest.raises(PointsmanError) as raised:
            ask_as(router, person, wrong)
        found.append(raised.value.as_json())
    return json.dumps(found, sort_keys=True).encode()


class Changer:
    """One random change at a time among files in `folders`; every change really changes something."""

    def __init__(self, root: Path, folders: tuple[str, ...], seed: str) -> None:
        self.root, self.folders, self.draw, self.made = root, folders, random.Random(seed), 0

    def change(self) -> str:
        kind = self.draw.choice(("add", "outrank", "edit", "delete", "move", "copy"))
        pages = [page for folder in self.folders for page in sorted((self.root / folder).glob("*.md"))]
        folder = self.draw.choice(self.folders)
        self.made += 1
        place = f"{folder}/made-{self.made}.md"
        page = self.draw.choice(pages) if pages else None
        if kind == "add" or page is None:
            text = " ".join(self.draw.choice(WORDS) for _ in range(self.draw.randrange(1, 400)))
            write_page(self.root, place, f"# {self.draw.choice(WORDS)}\n\n{text}\n")
        elif kind == "outrank":
            write_page(self.root, place, f"# {self.draw.choice(QUESTIONS)}\n\n{OUTRANKS * self.draw.randrange(1, 5)}")
        elif kind == "edit":
            page.write_text(page.read_text(encoding="utf-8") + f"\n{self.draw.choice(WORDS)} {self.made}\n", encoding="utf-8")
        elif kind == "delete":
            page.unlink()
        elif kind == "move":  # the same text under other labels, and where the source differs under another id
            page.rename(self.root / place)
        else:
            write_page(self.root, place, self._visible_page())
        return kind

    def _visible_page(self) -> str:
        """A twin of a page of the world: what is hidden may repeat what is shown, word by word."""
        return world.PAGES[self.draw.choice(sorted(world.PAGES))]


@pytest.mark.parametrize("person", HIDDEN)
def test_hidden_documents_change_no_byte(router, place, person):
    """Fourteen rounds a person, each of one to three changes indexed together: seventy rounds in all."""
    changer = Changer(place, HIDDEN[person], person)
    before = answers(router, person)
    for _ in range(14):
        done = [changer.change() for _ in range(changer.draw.randrange(1, 4))]
        report = router.index()
        assert not any(source.failures or source.error for source in report.sources), report
        assert sum(source.indexed + source.relabelled + source.removed for source in report.sources) > 0 or done == ["move"]
        assert answers(router, person) == before, (person, done)


def relabel(place: Path, source: str, old: str, new: str) -> None:
    path = place / source / "labels.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("person", "source", "old", "new"),
    [
        ("ada", "handbook", 'groups: ["dev:hr"], sensitivity: confidential', 'groups: ["dev:hr"], sensitivity: public'),
        ("ada", "handbook", 'groups: ["dev:board"], sensitivity: restricted', 'groups: ["dev:staff"], sensitivity: restricted'),
        ("ada", "handbook", "effective_from: 2027-01-01", "effective_from: 2031-01-01"),
        ("low", "notes", 'match: "**", groups: ["dev:staff"], sensitivity: internal', 'match: "**", groups: ["dev:hr"], sensitivity: internal'),
        ("hal", "notes", "sensitivity: restricted", "sensitivity: restricted, effective_from: 2030-01-01"),
        ("sue", "handbook", 'match: "all/**", groups: ["dev:staff"], sensitivity: public', 'match: "all/**", groups: ["dev:hr"], sensitivity: internal'),
        ("bob", "elsewhere", "sensitivity: internal", "sensitivity: confidential"),
    ],
)  # fmt: skip
def test_relabelling_what_stays_hidden_changes_no_byte(tmp_path, person, source, old, new):
    with world.open_world(tmp_path / "world") as router:
        before = answers(router, person)
        relabel(tmp_path / "world", source, old, new)
        report = router.index()
        assert sum(entry.relabelled for entry in report.sources) > 0
        assert answers(router, person) == before


def test_rebuilding_everything_changes_no_byte(tmp_path):
    config = world.build_world(tmp_path / "world", dict(world.PAGES))
    with Router.open(config) as router:
        before = {person: answers(router, person) for person in HIDDEN}
        router.index(full=True)
        assert {person: answers(router, person) for person in HIDDEN} == before


def test_a_tenant_that_holds_nothing_for_a_person_is_as_one_that_holds_nothing(tmp_path):
    """`bob` in a world full of hidden pages and in one whose pages are all gone: empty, byte for byte."""
    with world.open_world(tmp_path / "full") as router:
        full = answers(router, "bob")
        for source in world.LABELS:
            for page in (tmp_path / "full" / source).rglob("*.md"):
                page.unlink()
        router.index()
        assert answers(router, "bob") == full


def test_what_becomes_visible_does_change_the_answer(tmp_path):
    """The suite above can fail: the same change where the person may see it is seen."""
    with world.open_world(tmp_path / "world") as router:
        before = answers(router, "ada")
        write_page(tmp_path / "world", "handbook/staff/made.md", f"# ERR-4012\n\n{OUTRANKS}")
        router.index()
        assert answers(router, "ada") != before


def test_a_broken_filter_would_be_found(tmp_path, monkeypatch):
    """Filtering after the search, the usual mistake: hidden pages take the places of visible ones, and this suite sees it."""
    from router import plan
    from router.filters import ALWAYS

    with world.open_world(tmp_path / "world") as router:
        build = plan.build
        monkeypatch.setattr(plan, "build", lambda *a, **k: dataclasses.replace(build(*a, **k), filter=ALWAYS, text="broken"))
        before = answers(router, "ada")
        for number in range(router.settings.search.candidates + 20):
            write_page(tmp_path / "world", f"handbook/board/made-{number}.md", f"# ERR-4012\n\n{QUESTIONS[0]} {number}\n")
        router.index()
        assert answers(router, "ada") != before
