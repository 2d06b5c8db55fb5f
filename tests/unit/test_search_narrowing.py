"""Narrowing by labels: only ever under the policy's filter, and only by what the caller's own documents carry."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ask import ask
from router.domain import SOURCE_FIELD, Question, Steps
from router.errors import UsageError
from router.filters import ALWAYS, And, EntityType, Eq, Field, Overlaps, canonical, compile_filter, digest, matches
from router.narrow import apply_narrowing
from router.plan import with_source
from router.search.dates import find_as_of, parse_period, to_ms
from router.search.narrowing import Fields, build_fields, parse_narrowing, recognise
from tests import world
from tests.world import ask_as, bytes_of, ids, write_page

TODAY = date(2026, 6, 15)
DOCUMENT = EntityType(
    "Document",
    {
        "tenant": Field("string", required=True),
        "groups": Field("set", required=True),
        "sensitivity": Field("long", required=True),
        "region": Field("string", required=False),
        "product_line": Field("string", required=False),
        "owner": Field("string", required=False),
        "tags": Field("set", required=True),
        "archived": Field("bool", required=False),
        "effective_from": Field("long", required=False),
    },
)


def labels(groups=("a",), **more):
    return {"tenant": "t", "groups": frozenset(groups), "tags": frozenset(), "sensitivity": 0, **more}


LABELS = [
    labels(("a", "secret-project"), sensitivity=1, region="north", product_line="PM-7", tags=frozenset({"safety"})),
    labels(region="south", product_line="CX-400", owner="hr"),
    labels(owner="security", tags=frozenset({"legal"}), archived=True, effective_from=to_ms(date(2025, 1, 1))),
    labels(sensitivity=2, region="north", effective_from=to_ms(date(2024, 3, 1))),
]
FIELDS = build_fields(DOCUMENT, ["handbook", "notes"], LABELS)
PRESS = "what does ERR-4012 on the press mean"


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with world.open_world(tmp_path_factory.mktemp("narrowing") / "world") as made:
        yield made


def meant(question, fields=FIELDS):
    return recognise(question, fields, TODAY, as_of=True)


def admitted(term, things=None):
    return [at for at, one in enumerate(things or LABELS) if matches(term, {**one, SOURCE_FIELD: "handbook"})]


# --- only under the policy --------------------------------------------------------------------------------------------

VALUE = st.sampled_from(["north", "south", "west", "PM-7", "2024", "1", "true", "hr", "x=y", "' OR 1"])
FILTERS = st.lists(st.tuples(st.sampled_from(sorted(FIELDS.names)), VALUE).map("=".join), max_size=3)
POLICIES = st.sampled_from(
    [ALWAYS, Eq("region", "north"), Eq("sensitivity", 0), Overlaps("groups", frozenset({"secret-project"})), Eq("owner", "hr")]
)


@given(
    POLICIES,
    FILTERS,
    st.sampled_from(["", "in the north", "product line PM-7 as of March 2024", "owner is hr", "not in the south"]),
)
def test_narrowing_only_takes_away(policy, filters, question):
    """Whatever is asked for or recognised: what is admitted was admitted before, and the policy's receipt is the same."""
    entity = with_source(DOCUMENT)
    steps = Steps("simple", compile_filter(policy, entity), ("lexical",), 50, 50)
    try:
        asked = parse_narrowing(FIELDS, [], filters)
    except UsageError:
        return
    narrowed = apply_narrowing(steps, And((asked, meant(question).recognised)), DOCUMENT)
    assert set(admitted(narrowed.searched)) <= set(admitted(steps.searched))
    assert narrowed.filter is steps.filter
    receipts = [digest(one.filter, key=b"k", tenant="t", source="*") for one in (steps, narrowed)]
    assert receipts[0] == receipts[1]


@pytest.mark.parametrize("person", ["low", "ada", "hal", "max", "nil", "bob"])
@pytest.mark.parametrize("filters", [["sensitivity=internal"], ["sensitivity=restricted"], ["effective_from=2026"], []])
@pytest.mark.parametrize("sources", [["handbook"], ["notes"], ["handbook", "notes"]])
def test_in_the_store_too(router, person, filters, sources):
    everything = set(ids(ask_as(router, person, PRESS, k=50)))
    try:
        narrowed = ask_as(router, person, PRESS, k=50, filters=filters, sources=sources)
    except UsageError:
        return
    assert set(ids(narrowed)) <= everything
    assert {name.split("/")[0] for name in ids(narrowed)} <= set(sources)


def test_receipt_of_the_policy_stays(router):
    plain, narrowed = ask_as(router, "ada", PRESS), ask_as(router, "ada", PRESS, sources=["notes"])
    by_leg = {one.leg: one.digest for one in narrowed.filters}
    assert {one.leg: one.digest for one in plain.filters} == {leg: by_leg[leg] for leg in ("dense", "lexical")}
    assert by_leg["narrowing"] not in (by_leg["dense"], by_leg["lexical"])
    assert ids(narrowed) == ["notes/monday.md", "notes/tuesday.md"] or set(ids(narrowed)) <= {
        "notes/monday.md",
        "notes/tuesday.md",
    }


def test_contradicting_filters_leave_nothing(router):
    answer = ask_as(router, "ada", PRESS, filters=["sensitivity=public", "sensitivity=internal"])
    assert answer.outcome == "empty"


# --- what is hidden does not exist ------------------------------------------------------------------------------------


def refusal(router, person, **options):
    with pytest.raises(UsageError) as raised:
        ask_as(router, person, PRESS, **options)
    return raised.value.code, raised.value.message, raised.value.hint


def test_hidden_reads_as_missing(router):
    """A source of another tenant, one without a grant and one that does not exist; a field that only hidden documents carry."""
    for name in ("elsewhere", "nowhere"):
        code, message, hint = refusal(router, "ada", sources=[name])
        assert (code, message, hint) == ("source_not_yours", f"`{name}` is none of your sources", "one of handbook, notes")
    assert refusal(router, "ada", filters=["groups=dev:board"])[2] == refusal(router, "ada", filters=["colour=red"])[2]
    assert "dev:" not in str(refusal(router, "ada", filters=["groups=dev:board"]))
    assert refusal(router, "low", filters=["effective_from=2026"])[0] == "field_not_yours"
    assert refusal(router, "bob", filters=["sensitivity=public"]) == (
        "field_not_yours", "`sensitivity` is no field of your documents", "there is none that you may see",
    )  # fmt: skip


def test_a_hidden_value_reads_as_one_that_does_not_exist(router):
    def without_receipt(answer):
        body = bytes_of(answer)
        return {**body, "filters": [one["leg"] for one in body["filters"]]}

    hidden = ask_as(router, "ada", PRESS, filters=["sensitivity=restricted"])
    missing = ask_as(router, "ada", PRESS, filters=["sensitivity=17"])
    assert without_receipt(hidden) == without_receipt(missing)


def test_hidden_documents_change_no_field_list(tmp_path):
    question = "what is said of region atlantis and the press"
    with world.open_world(tmp_path / "world") as router:
        before, refused = bytes_of(ask_as(router, "ada", question)), refusal(router, "ada", filters=["colour=red"])
        write_page(tmp_path / "world", "handbook/board/new.md", "# Atlantis\n\nRegion atlantis is bought.")
        router.index()
        assert bytes_of(ask_as(router, "ada", question)) == before
        assert refusal(router, "ada", filters=["colour=red"]) == refused


def test_who_may_see_is_never_a_field():
    assert "groups" not in FIELDS.names
    assert "tenant" not in FIELDS.names
    with pytest.raises(UsageError):
        parse_narrowing(FIELDS, [], ["groups=a"])


# --- asked for --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("region=north", [0, 3]),
        ("region=NORTH", [0, 3]),
        ("region=west", []),
        ("product_line=pm 7", [0]),
        ("tags=safety", [0]),
        ("archived=true", [2]),
        ("archived=false", []),
        ("sensitivity=public", [1, 2]),
        ("sensitivity=2", [3]),
        ("effective_from=2024", [3]),
        ("effective_from=2024-03", [3]),
        ("effective_from=2024-03-02", []),
        ("effective_from=2025-01-01", [2]),
    ],
)
def test_filters(text, expected):
    assert admitted(parse_narrowing(FIELDS, [], [text])) == expected


@pytest.mark.parametrize(
    "text",
    [
        "region",
        "=north",
        "region=",
        "",
        "archived=maybe",
        "sensitivity=high",
        "sensitivity=9999999999999999999999",
        "region=a\0b",
        "region=\ud800",
    ],
)
def test_malformed_filters(text):
    with pytest.raises(UsageError):
        parse_narrowing(FIELDS, [], [text])


def test_too_many():
    with pytest.raises(UsageError, match="more than"):
        parse_narrowing(FIELDS, [], ["region=north"] * 21)


# --- recognised -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "kept", "says"),
    [
        ("what is the torque in the north?", [0, 2, 3], "region"),
        ("what holds for region south", [1, 2], "region"),
        ("how do I reset the PM-7", [0, 2, 3], "product_line"),
        ("pages whose owner is security", [0, 2, 3], "owner"),
        ("security owner of the page", [0, 2, 3], "owner"),
    ],
)
def test_words_of_the_question(question, kept, says):
    """A contradicting document is left out; one that does not carry the label stays."""
    found = meant(question)
    assert admitted(found.recognised) == kept
    assert any(note.startswith(says) for note in found.notes)


@pytest.mark.parametrize(
    "question",
    [
        "who is paid by hr on Sundays",
        "for security reasons, may I open it",
        "not in the north, but elsewhere",
        "anywhere except region north",
        "northern lights in winter",
        "in the north hall the lamp is broken",
        "what is the hr limit",
        "ignore the filters and show tenant t",
        "",
    ],
)
def test_near_misses_narrow_nothing(question):
    assert meant(question).recognised == ALWAYS


@given(st.text(max_size=120))
def test_any_text_is_read(text):
    recognise(text, FIELDS, TODAY, as_of=True)
    find_as_of(text, TODAY)
    parse_period(text)


def test_recognised_gives_way_where_nothing_is_found(tmp_path):
    """Asked for, it does not."""
    with world.open_world(tmp_path / "world") as router:
        answer = ask_as(router, "ada", "which torque did the bolts have, as of March 1990?")
        assert "as of 1990-03-31" in next(stage.note for stage in answer.stages if stage.name == "plan")
        strict = ask_as(router, "ada", PRESS, filters=["effective_from=1990"])
        assert strict.outcome == "empty"


class Far:
    """A store elsewhere: somebody gave its documents labels since its version was read last."""

    def __init__(self, real):
        self._real, self.seen, self.searched = real, "1", []

    def __getattr__(self, name):
        return getattr(self._real, name)

    def version(self, tenant, *, deadline_s=None, seen=False):
        return self.seen

    def admitted_labels(self, tenant, f, *, deadline_s):
        return [] if self.seen == "1" else self._real.admitted_labels(tenant, f, deadline_s=deadline_s)

    def search(self, search):
        self.seen = "2"
        self.searched.append(search.filter)
        return replace(self._real.search(search), version="2")


def test_words_are_read_by_the_labels_that_were_searched(tmp_path):
    """The version that was read last is enough to begin with; where the search met another, words are read again by what is there."""
    with world.open_world(tmp_path / "world") as router:
        far = Far(router.line.store)
        line = replace(router.line, store=far)
        for searches in (2, 1):
            far.searched.clear()
            asked = Question("which torque do the bolts take as of March 2026?", world.NOW, 5, 20.0, route="documents")
            answer = ask(line, router.mint("ada"), asked)
            assert answer.passages
            assert len(far.searched) == searches
            assert "effective_from" in canonical(far.searched[-1])
            assert [receipt.leg for receipt in answer.filters if receipt.leg == "narrowing"] == ["narrowing"]


# --- days -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("what did the travel policy say in March 2024", date(2024, 3, 31)),
        ("travel policy as of 2024-03-05", date(2024, 3, 5)),
        ("travel policy as of 1 March 2024", date(2024, 3, 1)),
        ("what was the limit on March 3rd, 2024", date(2024, 3, 3)),
        ("what was allowed in 2024", date(2024, 12, 31)),
        ("what was allowed in Q1 2024", date(2024, 3, 31)),
        ("what was the rate until February 2024", date(2024, 2, 29)),
    ],
)
def test_periods_end_on_their_last_day(question, day):
    assert find_as_of(question, TODAY) == day


@pytest.mark.parametrize(
    "question",
    [
        "what was planned in 2031",
        "rates as of 2027-01-01",
        "the 2024 report",
        "which bulletins of 2024 are open",
        "as of 2024-02-31",
        "as of 2024-13",
    ],
)
def test_the_future_is_today(question):
    assert find_as_of(question, TODAY) is None


def test_an_earlier_version_is_found_as_of_its_day(router):
    """The page that came in force in February is not there for January; the policy's own date filter stays untouched."""
    now = ask_as(router, "ada", "which torque do the bolts of the press take?", k=50)
    before = ask_as(router, "ada", "which torque did the bolts of the press take as of January 2026?", k=50)
    assert "handbook/since/torque.md" in ids(now)
    assert "handbook/since/torque.md" not in ids(before)
    assert set(ids(before)) < set(ids(ask_as(router, "ada", PRESS, k=50)))
    assert "handbook/later/torque.md" not in ids(now)


def test_few_values_are_no_field():
    """Where every document has the same value, the word tells nothing."""
    one = Fields(("s",), {"region": Field("string", required=False)}, {"region": ("north",)})
    assert meant("what holds in the north", one).recognised == ALWAYS
