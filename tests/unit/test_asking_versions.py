"""Asking where earlier versions are kept: today's text by default, another day's where the question names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.app import Router
from router.config import load_settings
from router.domain import SINCE_FIELD, UNTIL_FIELD
from router.filters import EntityType, Eq, Field, matches
from router.ingest.build import index_sources
from router.ingest.versions import is_version
from router.search.narrowing import IN_FORCE, UNTIL, Narrowing, holding_at
from tests import world

PRESS = "handbook/staff/press.md"
NOW = "At which pressure does the press run?"
THEN = "At which pressure did the press run, as of {}?"


def index(router: Router, day: datetime) -> None:
    clock = int(day.timestamp() * 1_000_000)
    report = index_sources(
        router.jobs(), replace(router.workshop, now_us=lambda: clock), declared=frozenset(router.settings.sources)
    )
    assert not any(source.error or source.failures for source in report.sources), report


def versioned_world(folder: Path) -> Path:
    """Its configuration; the handbook keeps versions."""
    config = world.write_world(folder)
    config.write_text(config.read_text().replace('path = "handbook"\n', 'path = "handbook"\nkeep_versions = 5\n'))
    schema = folder / "policies" / "schema.cedarschema"
    text = schema.read_text()
    assert "effective_from?: Long," in text
    schema.write_text(text.replace("effective_from?: Long,", "effective_to?: Long,\n    effective_from?: Long,"))
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The press ran at 40 bar until 10 March 2026, at 55 until 5 May, and runs at 70."""
    folder = tmp_path_factory.mktemp("versions") / "world"
    config = versioned_world(folder)
    with Router(load_settings(config)) as router:
        index(router, datetime(2026, 1, 7, tzinfo=UTC))
        for bar, day in ((55, datetime(2026, 3, 10, tzinfo=UTC)), (70, datetime(2026, 5, 5, tzinfo=UTC))):
            world.write_page(
                folder, PRESS, f"# Pressing plates\n\nThe press runs at {bar} bar. ERR-4012 on the press means low oil."
            )
            index(router, day)
    return folder


@pytest.fixture
def router(folder: Path) -> Iterator[Router]:
    with Router(load_settings(folder / "pointsman.toml")) as opened:
        yield opened


def texts(router: Router, question: str, person: str = "ada", **options: object) -> dict[str, str]:
    """What the pages about pressing plates say, by id."""
    answer = world.ask_as(router, person, question, **{"k": 50, **options})
    return {one.document_id: one.text for one in answer.passages if one.document_id.startswith(PRESS)}


def test_today_only_the_text_of_today(router: Router) -> None:
    for question in (NOW, "press 40 bar", "55 bar"):
        assert {name: "70 bar" in text for name, text in texts(router, question).items()} == {PRESS: True}


@pytest.mark.parametrize(("day", "bar"), [("January 2026", 40), ("2026-03-09", 40), ("March 2026", 55), ("April 2026", 55)])
def test_a_day_finds_the_text_of_that_day(router: Router, day: str, bar: int) -> None:
    ((name, text),) = texts(router, THEN.format(day)).items()
    assert is_version(name)
    assert f"{bar} bar" in text


def test_a_day_after_the_last_change_is_like_today(router: Router) -> None:
    assert list(texts(router, THEN.format("2026-05-20"))) == [PRESS]
    ((name, text),) = texts(router, NOW, now=datetime(2026, 4, 1, tzinfo=UTC)).items()
    assert is_version(name), "the clock of tests, too, names a day"
    assert "55 bar" in text


def test_a_question_for_older_text_finds_all(router: Router) -> None:
    found = texts(router, "At which pressure did the previous version say that the press runs?")
    assert sorted(text.split(" at ")[1][:6] for text in found.values()) == ["40 bar", "55 bar", "70 bar"]


def test_a_filter_on_a_day_speaks_of_what_authors_wrote(router: Router) -> None:
    assert texts(router, NOW, filters=["effective_from=2026-03"]) == {}


def test_a_version_says_since_when_its_text_stood_there(router: Router) -> None:
    answer = world.ask_as(router, "ada", THEN.format("April 2026"), k=50)
    assert [one.effective_from for one in answer.passages if one.document_id.startswith(PRESS)] == ["2026-03-10"]


def test_configuration_can_show_all(folder: Path) -> None:
    settings = load_settings(folder / "pointsman.toml")
    everything = settings.model_copy(update={"search": settings.search.model_copy(update={"versions": "all"})})
    with Router(everything) as router:
        assert len(texts(router, NOW)) == 3


@pytest.mark.parametrize("person", ["low", "bob", "nil", "sue"])
def test_nobody_sees_more_of_another_day(router: Router, person: str) -> None:
    for question in (NOW, THEN.format("January 2026"), "the previous version of the press page"):
        assert texts(router, question, person) == {}


def test_the_span_is_never_given_up(router: Router, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Neither where what was recognised finds nothing, nor where nothing is recognised."""
    nothing = Narrowing(recognised=Eq("sensitivity", 9), notes=("nothing",))
    monkeypatch.setattr("router.narrow.recognise", lambda *_, **__: nothing)
    assert list(texts(router, NOW)) == [PRESS]
    settings = load_settings(folder / "pointsman.toml")
    plain = settings.model_copy(update={"search": settings.search.model_copy(update={"narrowing": "off"})})
    with Router(plain) as off:
        assert list(texts(off, NOW)) == [PRESS]
        assert list(texts(off, THEN.format("January 2026"))) != [PRESS]


def test_the_receipt_says_that_it_was_narrowed(router: Router) -> None:
    answer = world.ask_as(router, "ada", NOW)
    assert "narrowing" in [receipt.leg for receipt in answer.filters]


def test_a_span_begins_and_ends_on_its_moment() -> None:
    typed = EntityType("Document", {IN_FORCE: Field("long", required=False), UNTIL: Field("long", required=False)})
    kept = [{UNTIL: 10}, {IN_FORCE: 10, UNTIL: 20}, {IN_FORCE: 30}, {}]
    admitted = {at: [matches(holding_at(typed, at), one) for one in kept] for at in (9, 10, 19, 20, 30)}
    assert admitted[9] == [True, False, True, True]
    assert admitted[10] == admitted[19] == [False, True, True, True]
    assert admitted[20] == admitted[30] == [False, False, True, True]


def test_what_a_version_held_counts_beside_what_its_author_wrote() -> None:
    typed = EntityType("Document", {UNTIL: Field("long", required=False)})
    kept = [{UNTIL_FIELD: 10}, {SINCE_FIELD: 10, UNTIL_FIELD: 20}, {UNTIL: 15, UNTIL_FIELD: 20}, {}]
    admitted = {at: [matches(holding_at(typed, at), one) for one in kept] for at in (9, 10, 15, 20)}
    assert admitted[9] == [True, False, True, True]
    assert admitted[10] == [False, True, True, True]
    assert admitted[15] == [False, True, False, True]
    assert admitted[20] == [False, False, False, True]


def test_documents_without_an_end_are_not_narrowed() -> None:
    plain = EntityType("Document", {IN_FORCE: Field("long", required=False)})
    assert holding_at(plain, 5) == holding_at(EntityType("Document", {UNTIL: Field("string", required=False)}), 5)


# --- rules that forbid by what is there, and by what is not -----------------------------------------------------------

DATED = """@id("dated-only") @reason("drafts have no date and are nobody's") @owner("legal")
forbid (principal, action == Pointsman::Action::"search", resource)
unless { resource has effective_from && resource.effective_from <= context.now };
"""
ENDED = """@id("ended-only") @reason("only what has an end is shown") @owner("legal")
forbid (principal, action == Pointsman::Action::"search", resource) unless { resource has effective_to };
"""
BOARD = """@id("board-papers") @reason("papers marked for the board are the board's alone") @owner("legal")
forbid (principal, action == Pointsman::Action::"search", resource)
when { resource.groups.contains("dev:board") } unless { principal.groups.contains("dev:board") };
"""
STAFF = 'rules:\n  - { match: "**", groups: ["dev:staff"], sensitivity: internal }\n'
MEMO = "handbook/memo.md"
ASKED = (
    "price of the merger",
    "price of the merger as of 2026-01-20",
    "what did the previous version of the memo say of the price",
)


def _under(folder: Path, rule: str) -> Path:
    config = versioned_world(folder)
    (folder / "handbook" / "labels.yaml").write_text(STAFF)
    policies = folder / "policies" / "documents.cedar"
    text = policies.read_text()
    first, last = text.index('@id("not-yet-in-force")'), text.index("// Public pages")
    policies.write_text(text[:first] + rule + "\n" + text[last:])
    return config


def _memos(config: Path) -> set[str]:
    with Router(load_settings(config)) as router:
        found = [one for asked in ASKED for one in world.ask_as(router, "ada", asked, k=50).passages]
        return {one.document_id for one in found if one.document_id.startswith(MEMO)}


def _edit(config: Path, text: str, month: int) -> None:
    world.write_page(config.parent, MEMO, f"# Memo of the merger\n\n{text}")
    with Router(load_settings(config)) as router:
        index(router, datetime(2026, month, 7, tzinfo=UTC))


@pytest.mark.parametrize("rule", [DATED, ENDED])
def test_no_rule_is_satisfied_by_what_nobody_wrote(tmp_path: Path, rule: str) -> None:
    config = _under(tmp_path / "world", rule)
    for month in (1, 2, 3):
        _edit(config, f"Edition {month}: the price of the merger is {month} million.", month)
    assert _memos(config) == set()


@pytest.mark.parametrize("together", [False, True])
def test_a_group_that_forbids_is_not_taken_off_an_earlier_text(tmp_path: Path, together: bool) -> None:
    config = _under(tmp_path / "world", BOARD)
    labels = tmp_path / "world" / "handbook" / "labels.yaml"
    labels.write_text(STAFF.replace('"dev:staff"', '"dev:staff", "dev:board"'))
    _edit(config, "The secret price of the merger is 5 million.", 1)
    assert _memos(config) == set()
    if not together:
        _edit(config, "The price of the merger was removed from this memo.", 2)
    labels.write_text(STAFF)
    _edit(config, "The price of the merger was removed from this memo." + " Again." * together, 3)
    assert _memos(config) == {MEMO}
