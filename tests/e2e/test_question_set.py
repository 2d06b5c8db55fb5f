"""Nobody sees what they must not, over every question of questions.jsonl. How good the answers are is measured by `python -m tests.e2e`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from router import plan
from router.filters import ALWAYS
from router.policy import PolicySet
from tests.e2e.asking import ask_all, ask_line, chooses, open_world
from tests.e2e.expected_values import compute
from tests.e2e.judging import Got, Line, is_document, judge, load_lines, seen
from tests.e2e.visible import SEES, may_see

LINES = load_lines()
ROUTES = {"documents", "sql", "both", "none", "clarify"}
MANY = 50


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with open_world(tmp_path_factory.mktemp("e2e")) as made:
        yield made


def test_nobody_sees_what_must_not_be_seen(router):
    """Everybody at the same time, with far more passages than anybody reads."""
    chosen = chooses(router)
    leaked = {line.id: found for line, found in ask_all(LINES, lambda line: (line, _seen(router, line, chosen=chosen)))}
    assert {name: found for name, found in leaked.items() if found} == {}


def _seen(router, line: Line, *, chosen: bool) -> tuple[str, ...]:
    return seen(line, ask_line(router, line, chosen=chosen, k=MANY))


def test_a_line_without_its_filter_would_be_found_out(router, monkeypatch):
    """The suite above can fail: without the filter and without the recheck, what is hidden from people is seen at once."""
    build = plan.build
    monkeypatch.setattr(plan, "build", lambda *a, **k: replace(build(*a, **k), filter=ALWAYS, text="broken"))
    monkeypatch.setattr(PolicySet, "recheck", lambda _, principal, now, things: [True] * len(things))
    hidden = [line for line in LINES if line.kind == "hidden" and line.route == "documents"]
    assert len(hidden) >= 15
    assert sum(bool(_seen(router, line, chosen=False)) for line in hidden) >= len(hidden) * 0.9


def test_values_are_those_computed_by_hand(router):
    values = compute(router.settings.state_folder / "made")
    assert {line.id: line.value for line in LINES if line.value is not None} == values


def test_what_is_named_exists_and_is_hidden_or_shown_by_hand(router):
    """A `must_not_see` that names nothing would promise nothing, and evidence that is hidden could never be found."""
    held = {document for tenant in ("fabrikam", "contoso") for _, document, _ in router.store.labelled(tenant)}
    for line in LINES:
        wanted = {document for part in line.evidence for document in ([part] if isinstance(part, str) else part)}
        never = {item for item in line.must_not_see if is_document(item)}
        assert wanted | never <= held, line.id
        assert all(may_see(line.person, document) for document in wanted), line.id
        assert not any(may_see(line.person, document) for document in never), line.id


def test_lines_are_sound():
    assert len(LINES) >= 160
    assert [name for name, count in Counter(line.id for line in LINES).items() if count > 1] == []
    assert min(Counter(line.half for line in LINES).values()) >= 80
    assert sum(not line.answerable for line in LINES) >= 25
    for line in LINES:
        assert line.person in SEES, line.id
        assert {line.route, *line.wider_ok} <= ROUTES, line.id
        assert line.half in {"before", "after"}, line.id
        texts = [item for item in line.must_not_see if isinstance(item, str) and not is_document(item)]
        assert not any(re.search(re.escape(text), line.question, re.IGNORECASE) for text in texts), line.id
        if line.answerable:
            assert bool(line.evidence) == (line.route in {"documents", "both"}), line.id
            assert bool(line.value) == (line.route in {"sql", "both"}), line.id


def test_one_question_is_asked_by_who_may_and_by_who_may_not():
    asked: dict[str, set[bool]] = {}
    for line in LINES:
        asked.setdefault(line.question, set()).add(line.answerable)
    assert sum(len(answerable) == 2 for answerable in asked.values()) >= 15


# --- what is wrong is found out ---------------------------------------------------------------------------------------

LINE = Line(
    "x", "before", "rows", "ada", "?", [], "both", ["sql"], [["people/staff/acronyms.md", "people/staff/annual-leave.md"]],
    {"rows": [["West", 2.5], ["East", 3]]}, ["people/hr/pay-bands.docx", "name:hourly_cost", "secret word", 949], True,
)  # fmt: skip
GOT = Got("both", ("answered",), ("people/staff/annual-leave.md",), ([["East", "x", "3"], ["West", "y", "2.50"]],), {})


def test_milliseconds_tell_nothing():
    line = replace(LINE, must_not_see=["7.9"])
    assert judge(line, replace(GOT, body={"stages": [{"name": "rank", "ms": 7.9, "note": ""}]})).seen == ()
    assert judge(line, replace(GOT, body={"stages": [{"name": "rank", "ms": 1.0, "note": "7.9"}]})).seen == ("7.9",)
    assert judge(line, replace(GOT, body={"passages": [{"text": "it was 7.9"}]})).seen == ("7.9",)


def test_what_is_right_is_taken():
    verdict = judge(LINE, GOT)
    assert (verdict.exact, verdict.route, verdict.evidence, verdict.value, verdict.seen) == (True, True, True, True, ())


@pytest.mark.parametrize(
    ("got", "field"),
    [
        (replace(GOT, route="documents"), "route"),
        (replace(GOT, documents=("a",) * 5 + GOT.documents), "evidence"),
        (replace(GOT, tables=()), "value"),
        (replace(GOT, tables=([["East", 3]],)), "value"),
        (replace(GOT, tables=([["East", 2.5], ["West", 3]],)), "value"),
        (replace(GOT, tables=([["East", 3], ["West", 2.5], ["North", 1]],)), "value"),
    ],
)
def test_what_is_wrong_is_found_out(got, field):
    assert getattr(judge(LINE, got), field) is False


@pytest.mark.parametrize(
    "got",
    [
        replace(GOT, documents=("people/hr/pay-bands.docx",)),
        replace(GOT, documents=("contoso_people/staff/annual-leave.md",)),  # on no list of the line, hidden all the same
        replace(GOT, tables=([["949"]],)),
        replace(GOT, body={"passages": [{"text": "the Secret Word is"}]}),
        replace(GOT, body={"clarify": {"options": ["by hourly_cost"]}}),
    ],
)
def test_what_must_not_be_seen_is_found(got):
    assert judge(LINE, got).seen != ()


def test_a_name_may_stand_in_a_passage():
    assert judge(LINE, replace(GOT, body={"passages": [{"text": "the parameter hourly_cost"}]})).seen == ()


def test_where_there_is_no_answer_nothing_may_be_told():
    nothing = replace(LINE, answerable=False)
    assert judge(nothing, replace(GOT, documents=(), tables=())).recognised is True
    assert judge(nothing, replace(GOT, documents=(), tables=([[0]], [], [[None]]))).recognised is True
    assert judge(nothing, replace(GOT, tables=())).recognised is False
    assert judge(nothing, replace(GOT, documents=())).recognised is False


def test_order_counts_where_it_was_asked_for():
    ordered = replace(LINE, value={"rows": [["West", 2.5], ["East", 3]], "ordered": True})
    assert judge(ordered, GOT).value is False
    assert judge(ordered, replace(GOT, tables=([["West", 2.5], ["East", 3]],))).value is True


def test_no_route_is_judged_where_none_was_chosen():
    verdict = judge(LINE, replace(GOT, route=None))
    assert (verdict.exact, verdict.route) == (None, None)
