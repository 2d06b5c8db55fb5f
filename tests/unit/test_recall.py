"""Evidence kept for the same question: whose it is, what empties it, what is never kept, and that nobody can tell it from a fresh one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import time
from datetime import UTC, datetime, timedelta

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.app import Router
from router.ask import ask
from router.config import load_settings, parse_settings
from router.decision import decision_model, summary
from router.domain import Question
from router.errors import SourceError
from router.execute import THREADS
from router.filters import canonical
from router.memo import Memo
from tests import cohere_server as fake
from tests import hosted_world as hosted
from tests.claims_world import NOW, build_claims_world
from tests.conformance.corpus import examples
from tests.world import bytes_of, run_command

ROWS = "How many open claims are there?"
NAMES = "List the claimant name of claims in region west"
PROSE = "How do I reopen a closed claim?"
BOTH = "How many claims in region west are open, and what is the procedure to reopen a closed claim?"
QUESTIONS = (ROWS, NAMES, PROSE, BOTH)
PEOPLE = """
  twin-1: { issuer: dev, sub: twin-1, tenant: "1", groups: [analysts] }
  more-1: { issuer: dev, sub: more-1, tenant: "1", groups: [analysts, guests] }
  clerk-1: { issuer: dev, sub: clerk-1, tenant: "1", groups: [analysts, clerks] }
  raw-1: { issuer: dev, sub: raw-1, tenant: "1", groups: [analysts, raw] }
  bare-1: { issuer: dev, sub: bare-1, tenant: "1", groups: [bare] }
"""
TABLES = """
@id("clerks-west") @reason("clerks see the west alone") @owner("claims")
forbid (principal in Pointsman::Group::"dev:clerks", action == Pointsman::Action::"query", resource is Pointsman::claims_v)
unless { resource.region == "west" };

@id("raw-personal") @reason("some read names as they are") @owner("data")
permit (principal in Pointsman::Group::"dev:raw", action == Pointsman::Action::"read_column", resource)
when { resource.tags.contains("personal") };

@id("bare-query") @reason("claims without names") @owner("data")
permit (principal in Pointsman::Group::"dev:bare", action in [Pointsman::Action::"query", Pointsman::Action::"read_column"], resource)
unless { resource has tags && (resource.tags.contains("personal") || resource.tags.contains("contact")) };
"""
LATER = """---
supersedes: limits.md
effective_from: 2024-08-15T13:00:00Z
---
# Approval limits

An adjuster approves claims up to 9,000; above that the head of claims signs.
"""
PERSONS = ("analyst-1", "twin-1", "more-1", "clerk-1", "raw-1", "bare-1", "guest", "analyst-2")


def write(folder, settings_text="[cache]\nenabled = true\n"):
    """The claims desk with rows, columns and masks that differ by person."""
    config = build_claims_world(folder, documents=True, settings=settings_text)
    policies = folder / "policies"
    with (policies / "people.yaml").open("a") as file:
        file.write(PEOPLE.lstrip("\n"))
    schema = (policies / "schema.cedarschema").read_text()
    schema = schema.replace("entity claims_v = { tenant: String };", "entity claims_v = { tenant: String, region: String };")
    schema = schema.replace("sensitivity: Long };", "sensitivity: Long, effective_from?: Long };")
    (policies / "schema.cedarschema").write_text(schema)
    (folder / "guide" / "later.md").write_text(LATER)
    governance = (policies / "governance.yaml").read_text()
    here = "attributes: { tenant: CAST(tenant_id AS VARCHAR) }"
    governance = governance.replace(here, here.replace(" }", ", region: region }"), 1)
    (policies / "governance.yaml").write_text(governance)
    with (policies / "tables.cedar").open("a") as file:
        file.write(TABLES)
    with Router.open(config) as router:
        router.index()
        router.copy_tables()
    return config


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write(tmp_path_factory.mktemp("recall"))


@pytest.fixture(scope="module")
def shared(config, tmp_path_factory):
    """A copy that nobody changes; asked often, so that its ledger is long."""
    folder = tmp_path_factory.mktemp("shared") / "world"
    shutil.copytree(config.parent, folder)
    with Router.open(folder / "pointsman.toml") as made:
        yield made


@pytest.fixture
def router(shared):
    shared.keeping.kept.clear()
    return shared


@pytest.fixture
def own(config, tmp_path):
    """A world that a test may change, and a router over it."""
    shutil.copytree(config.parent, tmp_path / "own")
    with Router.open(tmp_path / "own" / "pointsman.toml") as made:
        yield made


def put(router, text=PROSE, person="analyst-1", *, k=5, now=NOW, as_of=False, deadline_s=20.0, parts=None, **wishes):
    question = Question(text, now, k, deadline_s, as_of=as_of, **wishes)
    return ask(dataclasses.replace(router.line, **(parts or {})), router.mint(person), question)


def body_of(router, answer):
    for tenant in router.ledger.tenants():
        for link, record in router.ledger.read(tenant, decision_id=answer.decision_id):
            if record.kind == "answered":
                body = json.loads(record.body)
                decision_model().model_validate(body | {"seq": link.seq, "previous": link.previous, "digest": link.digest})
                return body
    raise AssertionError("no record")


def cache_of(router, answer):
    return body_of(router, answer)["cache"]


def held(router):
    return len(router.keeping.kept)


# --- a hit ------------------------------------------------------------------------------------------------------------


def test_it_is_off_unless_it_is_turned_on(config, tmp_path):
    assert not parse_settings({}, tmp_path).cache.enabled
    settings = load_settings(config)
    with Router(settings.model_copy(update={"cache": settings.cache.model_copy(update={"enabled": False})})) as router:
        assert router.keeping is None
        assert [cache_of(router, put(router)) for _ in range(2)] == [None, None]


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_hit_is_recorded_and_looks_like_the_first_answer(router, text):
    first, second = put(router, text), put(router, text)
    one, two = body_of(router, first), body_of(router, second)
    assert (one["cache"], two["cache"]) == ("miss", "hit")
    assert bytes_of(first) == bytes_of(second)
    assert first.decision_id != second.decision_id
    assert first.passages or first.tables
    for same in ("evidence", "filter_digests", "policies", "route", "outcome", "data_versions", "degraded"):
        assert one[same] == two[same], same
    assert (one["sql"] is None) == (two["sql"] is None)
    assert {"identity", "asked", "grants", "recall", "recall_recheck", "answered"} >= set(two["stages"]), "nothing else was run"
    assert not {"recall", "recall_recheck"} & {stage.name for stage in (*first.stages, *second.stages)}


def test_a_hit_has_both_records_before_it_leaves(router):
    put(router)
    answer = put(router)
    kinds = [record.kind for _, record in router.ledger.read("1", decision_id=answer.decision_id)]
    assert kinds == ["asked", "answered"]


def test_a_hit_searches_nothing(router):
    class Deaf:
        """A store that can only say of which version it is."""

        def __init__(self, store):
            self.version = store.version

    put(router)
    answer = put(router, parts={"store": Deaf(router.store)})
    assert cache_of(router, answer) == "hit"
    assert answer.passages


def test_the_caller_cannot_tell_whether_somebody_asked_before(router):
    """Only elapsed time may: stages, counts and notes are those of the gathering."""
    for text in QUESTIONS:
        fresh = put(router, text, "twin-1")
        router.keeping.kept.clear()
        put(router, text, "analyst-1")
        after = put(router, text, "twin-1")
        assert cache_of(router, after) == "hit"
        assert bytes_of(after) == bytes_of(fresh)


# --- whose it is ------------------------------------------------------------------------------------------------------


def effective(router, person):
    """What a person is granted, told without the code under test."""
    grants = router.policies.current().grants(router.whoami(router.mint(person)), NOW)
    search = [(one.source, canonical(one.filter)) for one in grants.search]
    query = [(one.name, canonical(one.filter), [(c.name, c.mask, c.filter_raw) for c in one.columns]) for one in grants.query]
    return router.whoami(router.mint(person)).tenant, search, query


def test_two_people_share_only_under_equal_grants(router):
    shared = 0
    for text, (first, second) in [
        *((NAMES, pair) for pair in itertools.permutations(PERSONS[:6], 2)),
        *((BOTH, pair) for pair in itertools.combinations(PERSONS[:5], 2)),
    ]:
        router.keeping.kept.clear()
        put(router, text, first)
        equal = effective(router, first) == effective(router, second)
        found = cache_of(router, put(router, text, second))
        assert (found == "hit") <= equal, (first, second)
        if {first, second} == {"analyst-1", "twin-1"}:
            assert found == "hit"
            shared += 1
    assert shared == 3
    assert effective(router, "clerk-1") != effective(router, "analyst-1") != effective(router, "raw-1")


def test_each_person_gets_what_is_theirs_in_any_order(router):
    alone = {}
    for person in PERSONS:
        router.keeping.kept.clear()
        alone[person] = [bytes_of(put(router, text, person)) for text in QUESTIONS]
    router.keeping.kept.clear()
    for person in (*PERSONS, *reversed(PERSONS)):
        assert [bytes_of(put(router, text, person)) for text in QUESTIONS] == alone[person], person
    names = [json.dumps(alone[person][1]) for person in ("analyst-1", "raw-1", "bare-1")]
    assert len(set(names)) == 3, "a mask and a missing column are seen in the answers"


@pytest.mark.parametrize(
    "change",
    [
        {"text": f"{PROSE} "},
        {"k": 4},
        {"route": "documents"},
        {"strategy": "widened"},
        {"sources": ("guide",)},
        {"filters": ("sensitivity=1",)},
        {"context": ("What is a claim?",)},
        {"now": NOW + timedelta(days=1)},
        {"now": NOW + timedelta(seconds=1), "as_of": True},
        {"person": "analyst-2"},
    ],
    ids=",".join,
)
def test_every_input_counts(router, change):
    put(router)
    assert cache_of(router, put(router, **change)) == "miss"
    assert cache_of(router, put(router)) == "hit"


def test_the_clock_counts_by_its_day_and_the_deadline_not_at_all(router):
    put(router)
    assert cache_of(router, put(router, now=NOW + timedelta(minutes=30))) == "hit"
    assert cache_of(router, put(router, deadline_s=9.0)) == "hit"
    put(router, as_of=True)
    assert cache_of(router, put(router, as_of=True)) == "hit"
    assert cache_of(router, put(router, as_of=True, now=NOW + timedelta(microseconds=1))) == "miss"


def test_permits_to_disclose_keep_people_apart(tmp_path, monkeypatch):
    """Equal filters, and one of the two may send text to the reranker: the order is not the other's."""
    monkeypatch.setenv(hosted.KEY, hosted.SECRET)
    permit = """
@id("ada-alone") @reason("one group may") @owner("security")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"cohere")
when { context.purpose == "rerank" && context.class <= 1 && principal.groups.contains("dev:senders") };
"""
    with fake_server() as server:
        config = hosted.write_hosted(tmp_path / "world", server.url, rerank_by="cohere", permits=permit)
        people = config.parent / "policies" / "people.yaml"
        people.write_text(
            people.read_text()
            + "  eve: { issuer: dev, sub: eve, tenant: north, groups: [staff, senders], clearance: 1 }\n"
            + "  kim: { issuer: dev, sub: kim, tenant: north, groups: [staff, senders], clearance: 1 }\n"
        )
        config.write_text(f"{config.read_text()}[cache]\nenabled = true\n")
        with Router(load_settings(config)) as router:
            router.index()
            press = "what does ERR-4012 on the press mean"
            sent = put(router, press, "eve", route="documents")
            calls = len(server.received)
            assert calls == 1
            kept_here = put(router, press, "ada", route="documents")
            assert cache_of(router, kept_here) == "miss"
            assert hosted.reasons(kept_here, "rerank")
            again = put(router, press, "kim", route="documents")
            assert cache_of(router, again) == "hit"
            assert body_of(router, again)["egress"] == []
            assert len(server.received) == calls, "a hit sends nothing"
            assert bytes_of(again) == bytes_of(sent)


def fake_server():
    import contextlib

    return contextlib.contextmanager(fake.serve)()


# --- what empties it --------------------------------------------------------------------------------------------------


def relabel(router, rule):
    (router.settings.folder / "guide" / "labels.yaml").write_text(f"rules:\n  - {{ match: '**', {rule} }}\n")


def settle(router, before):
    """Until the policies' folder was looked at again and is another."""
    until = time.monotonic() + 20
    while router.policies.current() is before and time.monotonic() < until:
        time.sleep(0.05)
    assert router.policies.current() is not before


def warm(router):
    for text, person in itertools.product((PROSE, ROWS), ("analyst-1", "analyst-2")):
        put(router, text, person)
        assert cache_of(router, put(router, text, person)) == "hit"


def in_another_process(router, *arguments):
    """As an operator would, beside the router that serves."""
    done = run_command(*arguments, cwd=router.settings.folder)
    assert done.returncode == 0, done.stderr


def test_a_label_change_empties_it(own):
    warm(own)
    before = own.policies.current()
    relabel(own, "groups: [dev:nobody], sensitivity: internal")
    sources = own.settings.folder / "policies" / "sources.yaml"
    sources.write_text(sources.read_text().replace("groups: [dev:analysts]", "groups: [dev:analysts, dev:nobody]"))
    in_another_process(own, "index")
    settle(own, before)
    answer = put(own)
    assert (cache_of(own, answer), answer.passages) == ("miss", ())


def test_forgetting_and_deleting_leave_no_text_in_memory(own):
    warm(own)
    assert any(b"ask the desk lead" in entry.value for entry in own.keeping.kept._held.values())
    own.index_forget("guide/handling.md")
    assert held(own) == 0
    assert "ask the desk lead" not in json.dumps(bytes_of(put(own)))
    warm(own)
    (own.settings.folder / "guide" / "water.md").unlink()
    in_another_process(own, "index")
    put(own, "anything else", "analyst-1")
    assert not any(b"plumber" in entry.value for entry in own.keeping.kept._held.values())


def test_a_group_that_is_taken_away_takes_the_answer_away(own):
    warm(own)
    before = own.policies.current()
    people = own.settings.folder / "policies" / "people.yaml"
    people.write_text(
        people.read_text().replace(
            'sub: analyst-1, tenant: "1", groups: [analysts]', 'sub: analyst-1, tenant: "1", groups: [guests]'
        )
    )
    settle(own, before)
    answer = put(own)
    assert (cache_of(own, answer), answer.outcome, answer.passages, answer.tables) != ("hit", "answered", (), ())
    assert not answer.passages
    assert cache_of(own, put(own, person="twin-1")) == "hit", "whoever still has it keeps it"


def test_a_policy_change_empties_it(own):
    warm(own)
    before = own.policies.current()
    with (own.settings.folder / "policies" / "documents.cedar").open("a") as file:
        file.write(
            '\n@id("closed") @reason("closed for now") @owner("security")\nforbid (principal, action == Pointsman::Action::"search", resource);\n'
        )
    settle(own, before)
    answer = put(own, route="documents")
    assert (cache_of(own, answer), answer.passages) == ("miss", ())
    put(own, PROSE, "analyst-2")
    assert held(own) <= 2, "nothing of before is left"


def test_new_tables_empty_it(own):
    warm(own)
    before = put(own, ROWS).tables[0].rows
    with duckdb.connect(str(own.settings.folder / "world.duckdb")) as connection:
        connection.execute("UPDATE claims SET status = 'closed' WHERE claim_id % 2 = 0")
    in_another_process(own, "index", "--full")
    answer = put(own, ROWS)
    assert cache_of(own, answer) == "miss"
    assert [table.rows for table in answer.tables] != [before]


def test_a_recheck_that_refuses_empties_the_entry(own):
    """Were a filter and Cedar ever to disagree about what is kept, it is dropped, alarmed and gathered anew."""
    warm(own)
    alarms = []
    policies = own.policies.current()

    class Doubting:
        """Policies that refuse whatever is recalled, once."""

        doubts = 1

        def current(self):
            return self

        def __getattr__(self, name):
            return getattr(policies, name)

        def recheck(self, principal, now, things):
            verdicts = policies.recheck(principal, now, things)
            if self.doubts and things:
                self.doubts -= 1
                return [False, *verdicts[1:]]
            return verdicts

    parts = {"policies": Doubting(), "alarm": lambda name, **more: alarms.append(name)}
    answer = put(own, parts=parts)
    assert alarms == ["recall_denied"]
    assert cache_of(own, answer) == "miss"
    assert answer.passages
    assert not {"recall", "recall_recheck"} & {stage.name for stage in answer.stages}


# --- what is never kept -----------------------------------------------------------------------------------------------


class Broken:
    def __init__(self, real, **calls):
        self._real, self._calls = real, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._real, name)


def raising(error):
    def call(*_, **__):
        raise error

    return call


def test_degraded_answers_are_not_kept(router):
    broken = Broken(router.embedder, embed_question=raising(RuntimeError("gone")))
    answer = put(router, parts={"embedder": broken})
    assert answer.degraded
    assert held(router) == 0
    again = put(router)
    assert (cache_of(router, again), again.degraded) == ("miss", ())


def test_failed_and_refused_answers_are_not_kept(router):
    broken = Broken(router.store, search=raising(SourceError("store_failed", "it failed")))
    with pytest.raises(SourceError):
        put(router, route="documents", parts={"store": broken})
    assert held(router) == 0
    assert cache_of(router, put(router, route="documents")) == "miss"


def test_without_a_version_nothing_is_kept_and_the_answer_is_the_legs_affair(router):
    broken = Broken(router.store, version=raising(SourceError("store_busy", "it is busy")))
    with pytest.raises(SourceError, match="store_busy"):
        put(router, route="documents", parts={"store": broken})
    answer = put(router, ROWS, "bare-1", parts={"tables_version": raising(SourceError("tables_missing", "none"))})
    assert cache_of(router, answer) == "bypass"
    assert held(router) == 0


def test_what_changed_while_it_was_gathered_is_not_kept(router):
    """The version moves on between the search and the end of it."""
    versions = (f"v{at}" for at in itertools.count())
    moving = Broken(router.store, version=lambda *_, **__: next(versions))
    answer = put(router, parts={"store": moving})
    assert answer.passages
    assert held(router) == 0


def test_what_ages_by_the_minute_is_not_kept(router):
    answer = put(router, parts={"recency_days": {"guide": 30.0}})
    assert (cache_of(router, answer), held(router)) == ("bypass", 0)


def test_it_ends_where_a_newer_version_comes_into_force(router):
    """Within the day: until then the old one holds, from then on the new one, also for who asks what was asked before."""
    text, hours = (
        "Up to what amount does an adjuster approve claims?",
        (NOW, NOW + timedelta(minutes=59), NOW + timedelta(hours=2)),
    )
    fresh = []
    for now in hours:
        router.keeping.kept.clear()
        fresh.append(bytes_of(put(router, text, now=now, route="documents")))
    assert fresh[0] == fresh[1] != fresh[2]
    router.keeping.kept.clear()
    for order, told in ((0, "miss"), (1, "hit"), (2, "miss"), (0, "miss"), (2, "miss"), (2, "hit")):
        answer = put(router, text, now=hours[order], route="documents")
        assert (cache_of(router, answer), bytes_of(answer)) == (told, fresh[order])
    router.keeping.kept.clear()
    put(router, text, now=hours[0], route="documents")
    clock = router.keeping.kept
    assert all(entry.ends_s - clock._clock_s() <= 3_600 for entry in clock._held.values())


SOON = """# Reopening closed claims this afternoon

A closed claim is reopened by the deputy this afternoon: how to reopen a closed claim.
"""


def test_it_ends_where_any_period_begins_or_ends(own):
    """Also of a document that a search of now does not see, since it holds later: with an end, it is outside of the span."""
    before = own.policies.current()
    schema = own.settings.folder / "policies" / "schema.cedarschema"
    schema.write_text(schema.read_text().replace("effective_from?: Long", "effective_from?: Long, effective_to?: Long"))
    (own.settings.folder / "guide" / "later.md").unlink()
    (own.settings.folder / "guide" / "soon.md").write_text(SOON)
    two, three = (datetime(2024, 8, 15, hour, tzinfo=UTC) for hour in (14, 15))
    assert two > NOW
    with (own.settings.folder / "guide" / "labels.yaml").open("a") as file:
        begin_ms, end_ms = (int(day.timestamp() * 1000) for day in (two, three))
        file.write(f"  - {{ match: soon.md, effective_from: {begin_ms}, effective_to: {end_ms} }}\n")
    in_another_process(own, "index")
    settle(own, before)
    fresh = {}
    for now in (NOW, two, three):
        own.keeping.kept.clear()
        fresh[now] = bytes_of(put(own, now=now, route="documents"))
    assert ["deputy" in json.dumps(one) for one in fresh.values()] == [False, True, False]
    own.keeping.kept.clear()
    moment = timedelta(milliseconds=1)
    for now, like, told in (
        (NOW, NOW, "miss"),
        (two - moment, NOW, "hit"),
        (two, two, "miss"),
        (three - moment, two, "hit"),
        (three, three, "miss"),
        (three + moment, three, "hit"),
    ):
        answer = put(own, now=now, route="documents")
        assert (cache_of(own, answer), bytes_of(answer)) == (told, fresh[like]), now


def test_where_the_next_period_cannot_be_read_nothing_is_kept(router):
    broken = Broken(router.store, admitted_labels=raising(SourceError("store_busy", "it is busy")))
    answer = put(router, parts={"store": broken, "vocabularies": Memo()})
    assert (cache_of(router, answer), bool(answer.passages), held(router)) == ("miss", True, 0)


# --- the figures ------------------------------------------------------------------------------------------------------


def test_the_summary_tells_the_hit_rate(own):
    for _ in range(4):
        put(own)
    rows = [row for tenant in own.ledger.tenants() for row in own.ledger.read(tenant)]
    assert summary(rows).cache == {"hit": 3, "miss": 1}
    done = run_command("log", "summary", cwd=own.settings.folder)
    assert b"cache" in done.stdout
    assert b"3 of 4 recalled (75 %), 0 past it" in done.stdout
    assert json.loads(run_command("log", "summary", "--json", cwd=own.settings.folder).stdout)["cache"] == {"hit": 3, "miss": 1}


def test_many_at_once_get_their_own(router):
    from concurrent.futures import ThreadPoolExecutor

    alone = {person: bytes_of(put(router, NAMES, person)) for person in PERSONS}
    router.keeping.kept.clear()
    with ThreadPoolExecutor(min(8, THREADS)) as pool:
        found = list(pool.map(lambda person: (person, bytes_of(put(router, NAMES, person))), PERSONS * 2))
    assert all(answer == alone[person] for person, answer in found)


# --- the differential -------------------------------------------------------------------------------------------------

ASKS = st.tuples(
    st.just("ask"), st.sampled_from(QUESTIONS), st.sampled_from(PERSONS), st.sampled_from([{}, {"k": 2}, {"route": "documents"}])
)
CHANGES = st.tuples(
    st.just("change"), st.sampled_from(["open", "close", "write", "unlink", "index", "forget"]), st.just(""), st.just({})
)


@pytest.fixture(scope="module")
def both(config, tmp_path_factory):
    """One world under two routers, one of which keeps."""
    folder = tmp_path_factory.mktemp("both") / "world"
    shutil.copytree(config.parent, folder)
    settings = load_settings(folder / "pointsman.toml")
    plain = settings.model_copy(update={"cache": settings.cache.model_copy(update={"enabled": False})})
    with Router(settings) as keeping, Router(plain) as fresh:
        yield keeping, fresh


def change(keeping, fresh, what):
    """By the router that keeps nothing, so that the other has to notice."""
    guide = keeping.settings.folder / "guide"
    if what in ("open", "close"):
        relabel(keeping, f"groups: [dev:analysts], sensitivity: {'internal' if what == 'open' else 'restricted'}")
    elif what == "write":
        (guide / "reopen.md").write_text(f"# Reopening\n\nA closed claim is reopened by the desk lead. {time.time_ns()}\n")
    elif what == "unlink":
        (guide / "reopen.md").unlink(missing_ok=True)
    elif what == "forget":
        if (guide / "reopen.md").exists():
            fresh.index()
            fresh.index_forget("guide/reopen.md")
        return
    fresh.index()


HITS = []


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(ASKS, ASKS, ASKS, ASKS, CHANGES), min_size=6, max_size=14))
def test_answers_are_those_that_would_be_gathered(both, steps):
    keeping, fresh = both
    for kind, what, person, wishes in steps:
        if kind == "change":
            change(keeping, fresh, what)
            continue
        told, expected = put(keeping, what, person, **wishes), put(fresh, what, person, **wishes)
        assert bytes_of(told) == bytes_of(expected), (what, person, wishes)
        HITS.append(cache_of(keeping, told))


def test_the_differential_recalled_something():
    """Or it would have compared nothing."""
    assert not HITS or {"hit", "miss"} <= set(HITS)
