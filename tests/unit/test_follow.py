"""One hop from what was found, over the whole line: under the same filter, judged in full, behind everything else."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from router.app import Router
from router.errors import SourceError, UsageError
from tests import world
from tests.world import ask_as, ids

PAGES = {
    **world.PAGES,
    "notes/inc-2041.md": "# INC-2041\n\nThe belt slipped because a splint was lost. A fitter saw it at noon.",
    "handbook/staff/squeak.md": "# Squeaking feeder\n\nWhy does the feeder squeak? Because of what was found in INC-2041 and INC-2042.",
    "handbook/hr/inc-2042.md": "# INC-2042\n\nThe fitter had been warned twice before.",
}
QUESTION = "why does the feeder squeak"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return world.build_world(tmp_path_factory.mktemp("follow") / "world", PAGES)


@pytest.fixture
def router(place):
    with Router.open(place) as made:
        yield made


@pytest.fixture
def ask(router):
    def run(person="ada", question=QUESTION, *, search=None, k=1, **options):
        kept, parts = router.line, {name: options.pop(name) for name in ("store", "policies", "alarm") if name in options}
        changed = kept.search.model_copy(update={"linked": 2, **(search or {})})
        router.__dict__["line"] = dataclasses.replace(kept, search=changed, **parts)
        try:
            return ask_as(router, person, question, k=k, **options)
        finally:
            router.__dict__["line"] = kept

    return run


def whys(answer):
    return [passage.why for passage in answer.passages]


def test_a_link_stands_behind_and_says_why(ask):
    answer = ask()
    assert ids(answer) == ["handbook/staff/squeak.md", "notes/inc-2041.md"]
    assert answer.passages[1].why == ("linked by INC-2041",)
    assert [passage.rank for passage in answer.passages] == [1, 2]
    assert "splint" in answer.passages[1].text
    assert ids(ask("hal")) == [*ids(answer), "handbook/hr/inc-2042.md"], "who may see it is led to it"
    assert ids(ask("hal", search={"linked": 1})) == ids(answer)
    assert [stage.name for stage in answer.stages].count("link") == 1


def test_off_by_default(router, ask):
    plain = ask_as(router, "ada", QUESTION, k=1)
    assert ids(plain) == ids(ask(search={"linked": 0})) == ["handbook/staff/squeak.md"]
    assert "link" not in [stage.name for stage in plain.stages]


def test_nothing_that_was_found_is_displaced(ask):
    for k in (1, 3, 8, 50):
        found = ask(k=k, search={"linked": 0}).passages
        more = ask(k=k, search={"linked": 5}).passages
        assert more[: len(found)] == found
        assert len({passage.document_id for passage in more[len(found) :]}) == len(more) - len(found) <= 5


def test_inside_the_callers_narrowing(ask):
    assert ids(ask(sources=("handbook",))) == ["handbook/staff/squeak.md"]
    assert ids(ask("hal", sources=("handbook",))) == ["handbook/staff/squeak.md", "handbook/hr/inc-2042.md"]


@pytest.mark.parametrize("wanted", [("INC-2041",), ("INC-2042",), ("INC-2041", "INC-2042")])
def test_links_name_what_is_asked_for(ask, wanted):
    """`--filter entity=` holds for every passage that comes back."""
    answer = ask("hal", k=9, filters=tuple(f"entity={name}" for name in wanted), search={"linked": 5})
    assert answer.passages
    for passage in answer.passages:
        whole = f"{passage.title}\n{' '.join(passage.heading_path)}\n{passage.text}"
        assert all(name in whole for name in wanted), (passage.document_id, passage.why)


def test_a_link_that_names_it_too_stays(ask):
    assert ids(ask(k=1, filters=("entity=INC-2041",))) == ["handbook/staff/squeak.md", "notes/inc-2041.md"]


def test_links_take_what_is_left(router, ask):
    count = router.line.embedder.count_tokens
    first, second = (count(passage.text) for passage in ask().passages)
    shown = {budget: ids(ask(search={"budget_tokens": budget})) for budget in (first + second, first + 3, first)}
    assert shown == {
        first + second: ["handbook/staff/squeak.md", "notes/inc-2041.md"],
        first + 3: ["handbook/staff/squeak.md"],
        first: ["handbook/staff/squeak.md"],
    }
    assert ask(search={"budget_tokens": first // 2}).passages == ask(search={"budget_tokens": first // 2, "linked": 0}).passages


def test_recheck_drops_a_link(router, ask):
    """A store that hands out what the filter does not admit is caught by Cedar, and operators are told."""
    store, alarms = router.line.store, []
    everything = router.policies.current().grants(router.whoami(router.mint("max")), world.NOW).joined.filter

    class Leaky:
        def __getattr__(self, name):
            return getattr(store, name)

        def subjects(self, tenant, names, f, **more):
            return store.subjects(tenant, names, everything, **more)

    answer = ask(store=Leaky(), alarm=lambda name, **facts: alarms.append((name, facts["dropped"])))
    assert ids(answer) == ["handbook/staff/squeak.md", "notes/inc-2041.md"]
    assert alarms == [("recheck_denied", 1)]
    plain, shown = ask(), answer
    assert [(stage.name, stage.count_in, stage.count_out) for stage in shown.stages] == [
        (stage.name, stage.count_in, stage.count_out) for stage in plain.stages
    ]


def test_a_store_that_fails_leaves_what_was_found(router, ask):
    store = router.line.store

    def subjects(*_, **__):
        raise SourceError("store_busy", "busy", "", retryable=True)

    class Busy:
        def __getattr__(self, name):
            return subjects if name == "subjects" else getattr(store, name)

    answer = ask(store=Busy())
    assert ids(answer) == ["handbook/staff/squeak.md"]
    assert ("link", "store_busy: passages stand without what they name") in [(one.stage, one.reason) for one in answer.degraded]


def test_what_was_replaced_and_mirrors_are_no_links(tmp_path):
    pages = {
        **PAGES,
        "notes/inc-2041-b.md": "---\nsupersedes: inc-2041.md\n---\n# INC-2041\n\nIt was the splint of the second belt after all.",
        "notes/inc-2041-c.md": "# INC-2041\n\nIt was the splint of the second belt after all.",
    }
    with Router.open(world.build_world(tmp_path / "world", pages)) as router:
        settings = router.line.search.model_copy(update={"linked": 5})
        router.__dict__["line"] = dataclasses.replace(router.line, search=settings)
        assert [*ids(ask_as(router, "ada", QUESTION, k=1))] == ["handbook/staff/squeak.md", "notes/inc-2041-b.md"]
        settings = settings.model_copy(update={"versions": "all"})
        router.__dict__["line"] = dataclasses.replace(router.line, search=settings)
        found = ids(ask_as(router, "ada", QUESTION, k=1))
        assert set(found[1:]) == {"notes/inc-2041.md", "notes/inc-2041-b.md", "notes/inc-2041-c.md"}


# --- narrowed by what passages name -----------------------------------------------------------------------------------


def test_only_passages_that_name_it(router):
    for spelling in ("PN-88213", "pn 88213", "PN88213"):
        answer = ask_as(router, "ada", "what about the oil of the press", filters=(f"entity={spelling}",))
        assert ids(answer) == ["handbook/staff/oil.md"]
    both = ask_as(router, "ada", QUESTION, filters=("entity=INC-2041", "entity=INC-2042"))
    assert ids(both) == ["handbook/staff/squeak.md"]
    assert ids(ask_as(router, "ada", QUESTION, filters=("entity=INC-2041", "sensitivity=internal"), k=9))


def test_hidden_and_missing_read_alike(router):
    """INC-2042 has a page that ada may not see, INC-9999 none: neither is said, and the field is there for everybody."""
    hidden = {**world.bytes_of(ask_as(router, "low", QUESTION, filters=("entity=INC-2042",)))}
    missing = {**world.bytes_of(ask_as(router, "low", QUESTION, filters=("entity=INC-9999",)))}
    for body in (hidden, missing):
        body.pop("filters")
    assert hidden == missing
    assert ids(ask_as(router, "nil", QUESTION, filters=("entity=INC-2041",))) == []
    with pytest.raises(UsageError, match="names nothing"):
        ask_as(router, "low", QUESTION, filters=("entity=--",))


def test_the_record_tells_narrowings_apart(router):
    one, same, other = (
        {receipt.leg: receipt.digest for receipt in ask_as(router, "ada", QUESTION, filters=(f"entity={name}",)).filters}
        for name in ("INC-2041", "inc 2041", "INC-2042")
    )
    plain = {receipt.leg: receipt.digest for receipt in ask_as(router, "ada", QUESTION).filters}
    assert one == same
    assert one["narrowing"] != other["narrowing"]
    assert {leg: one[leg] for leg in plain if leg != "narrowing"} == {leg: plain[leg] for leg in plain if leg != "narrowing"}


def test_the_command_says_how_a_passage_came(capsys, router):
    from router.doors.cli.asking import print_passage

    answer = SimpleNamespace(passage=ask_as(router, "ada", QUESTION, k=1).passages[0])
    print_passage(dataclasses.replace(answer.passage, why=("linked by INC-2041",)), lines=1)
    print_passage(answer.passage, lines=1)
    out = capsys.readouterr().out
    assert "linked by INC-2041" in out
    assert "found by" in out
