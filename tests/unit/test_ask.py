"""The line end to end on real components: policies, ledger, store and models; only what must break is broken on purpose."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import threading
import time
from datetime import UTC, datetime

import pytest

from connectors.ledger import SqlLedger
from router import decision, rank
from router.ask import ask
from router.domain import Question, Stored
from router.errors import LedgerError, SourceError, UsageError
from router.filters import ALWAYS
from tests import world
from tests.world import NOW, ask_as, ids

STAGES = [
    "identity", "asked", "grants", "route", "plan", "embed", "search", "fuse", "load", "rerank", "relevance", "fold", "recheck",
    "answered",
]  # fmt: skip
QUESTION = "what does ERR-4012 on the press mean"
STAFF = {"notes/monday.md", "handbook/staff/press.md"}


class Broken:
    """A component with some calls replaced; the rest is the real one's."""

    def __init__(self, real, **calls):
        self._real, self._calls = real, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._real, name)


class Alarms(list):
    def __call__(self, event, **facts):
        self.append((event, facts))


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with world.open_world(tmp_path_factory.mktemp("ask") / "world") as made:
        yield made


@pytest.fixture
def put(router):
    """Ask on the router's own line with parts exchanged."""

    def run(person="ada", text=QUESTION, *, k=5, deadline_s=10.0, search=None, **parts):
        line = dataclasses.replace(router.line, **parts)
        if search is not None:
            line = dataclasses.replace(line, search=line.search.model_copy(update=search))
        return ask(line, router.mint(person), Question(text, NOW, k, deadline_s, route="documents"))

    return run


def records_of(router, decision_id, tenant="north"):
    return [(record.kind, json.loads(record.body)) for _, record in router.ledger.read(tenant, decision_id=decision_id)]


def last_record(router, tenant="north"):
    *_, (_, record) = router.ledger.read(tenant)
    return record


def whole(router):
    return all(decision.verify_chain(router.ledger.read(tenant)).whole for tenant in router.ledger.tenants())


# --- order and record -------------------------------------------------------------------------------------------------


def test_nothing_is_begun_for_a_wish_that_is_refused(router):
    """A process that ends beside a native thread is aborted, so that the message would be followed by a crash."""
    begun = []
    line = dataclasses.replace(
        router.line, embedder=Broken(router.line.embedder, embed_question=lambda text, purpose: begun.append(text))
    )
    for wish in ({"strategy": "foo"}, {"filters": ("foo=bar",)}, {"sources": ("nope",)}):
        with pytest.raises(UsageError):
            ask(line, router.mint("ada"), Question(QUESTION, NOW, 5, 10.0, route="documents", **wish))
    assert begun == []


def test_stages_stand_in_the_order_of_the_line(router):
    answer = ask_as(router, "ada", QUESTION)
    assert [stage.name for stage in answer.stages] == STAGES
    assert answer.outcome == "answered"
    assert set(ids(answer)) >= STAFF


def test_asked_is_durable_before_anything_is_searched(router, put):
    """Another connection, as another process would, finds the question on record while store and model are being called."""
    file = router.settings.state_folder / "ledger.sqlite"
    seen = []

    def look(call, run):
        def looked(*arguments, **options):
            with contextlib.closing(sqlite3.connect(file)) as other:
                newest = "SELECT kind, decision_id FROM ledger_records WHERE tenant = 'north' ORDER BY seq DESC LIMIT 1"
                seen.append((call, *other.execute(newest).fetchone()))
            return run(*arguments, **options)

        return looked

    line = router.line
    answer = put(
        embedder=Broken(line.embedder, embed_question=look("embed", line.embedder.embed_question)),
        store=Broken(line.store, search=look("search", line.store.search), load=look("load", line.store.load)),
    )
    assert seen == [(call, "asked", answer.decision_id) for call in ("embed", "search", "load")]
    assert [kind for kind, _ in records_of(router, answer.decision_id)] == ["asked", "answered"]


@contextlib.contextmanager
def locked(router):
    with contextlib.closing(sqlite3.connect(router.settings.state_folder / "ledger.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def hasty(router):
    """The same ledger, which waits for a lock only a moment."""
    ledger = SqlLedger(router.settings.state_folder / "ledger.sqlite", busy_s=0.05)
    yield ledger
    ledger.close()


def test_no_record_no_answer(router, put, hasty):
    """`asked` cannot be written: nothing is searched. `answered` cannot: nothing is returned, and the decision stays open."""
    searched = []
    store = Broken(router.line.store, search=searched.append)
    with locked(router), pytest.raises(LedgerError) as raised:
        put(ledger=hasty, store=store)
    assert raised.value.code == "ledger_locked"
    assert not searched

    stack = contextlib.ExitStack()

    def search(search):
        found = router.line.store.search(search)
        stack.enter_context(locked(router))
        return found

    with stack, pytest.raises(LedgerError) as raised:
        put(ledger=hasty, store=Broken(router.line.store, search=search))
    assert (raised.value.code, raised.value.exit_code) == ("ledger_locked", 5)
    left = last_record(router)
    assert left.kind == "asked"
    assert left.decision_id in decision.verify_chain(router.ledger.read("north")).open
    assert whole(router)


def test_ledger_that_was_removed_while_asking(tmp_path):
    with world.open_world(tmp_path / "world") as router:
        line, file = router.line, router.settings.state_folder / "ledger.sqlite"

        def search(search):
            file.unlink()
            return line.store.search(search)

        broken = dataclasses.replace(line, store=Broken(line.store, search=search))
        with pytest.raises(LedgerError) as raised:
            ask(broken, router.mint("ada"), Question(QUESTION, NOW, 5, 10.0, route="documents"))
        assert raised.value.code == "ledger_unwritable"


def test_record_says_what_the_answer_says_and_more(router):
    answer = ask_as(router, "ada", QUESTION)
    (_, asked), (_, body) = records_of(router, answer.decision_id)
    assert body["outcome"] == "answered"
    assert body["evidence"] == [{"rank": item.rank, "id": item.chunk_id} for item in answer.passages]
    assert body["filter_digests"] == [{"leg": item.leg, "digest": item.digest} for item in answer.filters]
    assert body["policies"] == ["not-yet-in-force", "staff-read-their-groups", "tenant-wall"]
    assert list(body["stages"]) == sorted(set(STAGES) - {"answered"})
    assert body["data_versions"]["documents"] == router.store.version("north")
    assert body["versions"]["embedder"] == router.embedder.card.id
    assert body["dropped"] == {}
    assert asked["principal"] == decision.principal_digest(router.key, "north", "dev#ada")
    assert whole(router)


def test_every_decision_is_a_line_in_the_log(router):
    answer = ask_as(router, "ada", QUESTION)
    lines = [json.loads(line) for line in (router.settings.state_folder / "pointsman.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line.get("decision_id") == answer.decision_id]
    assert [line["event"] for line in mine] == ["decision"]
    assert "ERR-4012" not in json.dumps(mine)


# --- refusals and failures --------------------------------------------------------------------------------------------


def test_refusal_by_policy_is_an_answer(tmp_path):
    """Five thousand groups do not fit the filter of this policy: refused after identity, on record, without evidence."""
    folder = tmp_path / "world"
    config = world.build_world(folder)
    policies = folder / "policies"
    with (policies / "documents.cedar").open("a") as file:
        file.write(
            '\n@id("all-mine") @reason("r") @owner("o") permit (principal, action == Pointsman::Action::"search", resource)\n'
            "when { resource.groups.containsAll(principal.groups) };\n"
        )
    groups = ", ".join(f"g{number}" for number in range(5_000))
    with (policies / "people.yaml").open("a") as file:
        file.write(f"  big: {{ issuer: dev, sub: big, tenant: north, groups: [{groups}], clearance: 1 }}\n")
    with world.Router.open(config) as router:
        answer = ask_as(router, "big", QUESTION)
        assert (answer.outcome, answer.refusal.code, answer.passages, answer.filters) == ("refused", "policy_too_large", (), ())
        body = answer.as_json()
        assert body["refusal"] == {"code": "policy_too_large", "reason": answer.refusal.reason}
        assert [stage["name"] for stage in body["stages"]] == ["identity", "asked", "grants", "answered"]
        (_, _), (_, sealed) = records_of(router, answer.decision_id)
        assert sealed["outcome"] == "refused"
        assert sealed["refusal"]["code"] == "policy_too_large"
        assert ask_as(router, "ada", QUESTION).outcome == "answered"


def test_source_error_carries_the_decision_and_leaves_a_sealed_record(tmp_path):
    with world.open_world(tmp_path / "world") as router:
        assert ask_as(router, "ada", QUESTION).outcome == "answered"
    for file in (tmp_path / "world" / "state" / "stores").rglob("*.sqlite"):
        file.write_bytes(b"no database, and longer than the header of one" * 100)
    with world.Router.open(tmp_path / "world" / "pointsman.toml") as router:
        with pytest.raises(SourceError) as raised:
            ask_as(router, "ada", QUESTION)
        assert (raised.value.code, raised.value.exit_code) == ("store_corrupt", 4)
        (_, _), (_, sealed) = records_of(router, raised.value.decision_id)
        assert (sealed["outcome"], sealed["refusal"]["code"]) == ("refused", "store_corrupt")
        assert raised.value.as_json()["error"]["decision_id"] == raised.value.decision_id
        assert whole(router)


def test_fault_of_our_own_is_sealed(router, put):
    def search(_):
        raise ZeroDivisionError

    with pytest.raises(SourceError) as raised:
        put(store=Broken(router.line.store, search=search))
    assert raised.value.code == "fault"
    assert last_record(router).kind == "answered"
    assert whole(router)


# --- degradation ------------------------------------------------------------------------------------------------------


def test_embedder_fails(router, put):
    def embed_question(text, purpose):
        raise MemoryError

    answer = put(embedder=Broken(router.line.embedder, embed_question=embed_question))
    assert [(entry.stage, entry.reason) for entry in answer.degraded] == [
        ("embed", "MemoryError: only the lexical leg was searched")
    ]
    assert set(ids(answer)) >= STAFF
    assert {leg for passage in answer.passages for leg in passage.why} == {"lexical"}
    assert [stage.note for stage in answer.stages if stage.name == "embed"] == ["left out"]
    (_, _), (_, sealed) = records_of(router, answer.decision_id)
    assert sealed["degraded"] == [{"stage": "embed", "reason": "MemoryError: only the lexical leg was searched"}]


def test_a_leg_that_the_store_could_not_finish(router, put):
    """What is left is searched under the same filter, and answer and record say which leg is missing and why."""

    def search(search):
        found = router.line.store.search(dataclasses.replace(search, vector=None))
        return dataclasses.replace(found, failed=(("dense", "store_unavailable"),))

    answer = put(store=Broken(router.line.store, search=search))
    said = {"stage": "search", "reason": "store_unavailable: the dense leg was left out"}
    assert [dataclasses.asdict(entry) for entry in answer.degraded] == [said]
    assert set(ids(answer)) >= STAFF
    assert [receipt.leg for receipt in answer.filters] == ["lexical"]
    (_, _), (_, sealed) = records_of(router, answer.decision_id)
    assert sealed["degraded"] == [said]


def test_embedder_hangs(router, put):
    released = threading.Event()
    began = time.monotonic()
    embedder = Broken(router.line.embedder, embed_question=lambda text, purpose: released.wait(20))
    answer = put(embedder=embedder, deadline_s=2.0, embed_share=0.1)
    took_s = time.monotonic() - began
    released.set()
    assert [(entry.stage, entry.reason) for entry in answer.degraded] == [
        ("embed", "deadline: only the lexical leg was searched")
    ]
    assert set(ids(answer)) >= STAFF
    assert took_s < 2.0


def test_degradation_never_touches_the_filter(router, put):
    def embed_question(text, purpose):
        raise MemoryError

    healthy = put()
    degraded = put(embedder=Broken(router.line.embedder, embed_question=embed_question))
    assert degraded.filters == tuple(receipt for receipt in healthy.filters if receipt.leg == "lexical")
    assert not any(document.startswith(("handbook/hr", "handbook/board", "notes/hidden")) for document in ids(degraded))


def test_dense_leg_alone_has_nothing_to_fall_back_on(router, put):
    def embed_question(text, purpose):
        raise MemoryError

    with pytest.raises(SourceError) as raised:
        put(embedder=Broken(router.line.embedder, embed_question=embed_question), search={"legs": "dense"})
    assert raised.value.code == "no_leg"
    assert raised.value.retryable


def test_reranker_fails(router, put):
    """Token vectors that do not fit: the fused order stands, and that is said."""

    def load(*arguments, **options):
        return [
            dataclasses.replace(item, token_vectors=item.token_vectors[:-3])
            for item in router.line.store.load(*arguments, **options)
        ]

    answer = put(store=Broken(router.line.store, load=load))
    assert ids(answer) == ids(put(search={"rerank_by": "none"}))
    assert [entry.stage for entry in answer.degraded] == ["rerank"]
    assert answer.degraded[0].reason.endswith("the fused order stands")
    assert [stage.note for stage in answer.stages if stage.name == "rerank"] == ["failed"]


def test_rerank_without_time(router, put):
    def search(search):
        time.sleep(0.3)
        return router.line.store.search(search)

    answer = put(store=Broken(router.line.store, search=search), deadline_s=5.0, rerank_share=0.95)
    assert ids(answer) == ids(put(search={"rerank_by": "none"}))
    assert [(entry.stage, entry.reason) for entry in answer.degraded] == [("rerank", "no time left: the fused order stands")]
    assert "rerank" not in [stage.name for stage in answer.stages]


def test_rerank_that_is_off_is_no_degradation(router, put):
    answer = put(search={"rerank_by": "none"})
    assert answer.degraded == ()
    assert "rerank" not in [stage.name for stage in answer.stages]


# --- recheck ----------------------------------------------------------------------------------------------------------


def wide_open(store):
    """A store whose filter is broken: it gives everything of the tenant."""
    return Broken(
        store,
        search=lambda search: store.search(dataclasses.replace(search, filter=ALWAYS)),
        load=lambda tenant, chunk_ids, f, *, deadline_s: store.load(tenant, chunk_ids, ALWAYS, deadline_s=deadline_s),
    )


def test_recheck_drops_and_next_moves_up(router, put):
    """Cedar in full stands behind the store's filter: what it denies is dropped and alarmed, and the next candidate moves up."""
    alarms = Alarms()
    answer = put(store=wide_open(router.line.store), alarm=alarms, k=9)
    allowed = set(ids(put(k=20)))
    assert len(answer.passages) == 9
    assert set(ids(answer)) <= allowed
    assert [passage.rank for passage in answer.passages] == list(range(1, 10))
    [(event, facts)] = alarms
    assert event == "recheck_denied"
    assert facts["dropped"] > 0
    (_, _), (_, sealed) = records_of(router, answer.decision_id)
    assert sealed["dropped"] == {"recheck": facts["dropped"]}


def test_dropping_leaves_no_trace_in_the_answer(router, put):
    body = put(store=wide_open(router.line.store), alarm=Alarms(), k=9).as_json()
    recheck = next(stage for stage in body["stages"] if stage["name"] == "recheck")
    assert recheck["in"] == recheck["out"] == 9
    assert "dropped" not in json.dumps(body)
    assert body["degraded"] == []


def test_recheck_judges_the_labels_of_the_stored_passage(router, put):
    """A label that was narrowed between filter and answer counts."""

    def load(*arguments, **options):
        items = router.line.store.load(*arguments, **options)
        return [
            Stored(item.chunk, {**item.labels, "sensitivity": 3}, item.token_ids, item.token_vectors, item.token_scale)
            if item.chunk.document_id == "notes/monday.md"
            else item
            for item in items
        ]

    answer = put(store=Broken(router.line.store, load=load), alarm=Alarms())
    assert "notes/monday.md" not in ids(answer)
    assert len(answer.passages) == 5


def test_everything_denied_is_empty(router, put):
    answer = put("nil", store=wide_open(router.line.store), alarm=Alarms())
    assert (answer.outcome, answer.passages) == ("empty", ())


# --- what an answer shows ---------------------------------------------------------------------------------------------


def test_nothing_granted_is_nothing_found(router, put):
    """`nil` is in no group, so not even a filter is left; `bob` has one that admits nothing. Only ids and times differ."""
    nothing, empty = put("nil").as_json(), put("bob").as_json()
    assert nothing["outcome"] == "empty"
    assert [stage["name"] for stage in nothing["stages"]] == [stage["name"] for stage in empty["stages"]]
    for body in (nothing, empty):
        for stage in body["stages"]:
            stage["ms"] = 0
        del body["decision_id"]
        for receipt in body["filters"]:
            receipt["digest"] = ""  # each person's own filter
    assert nothing == empty


def test_dropped_cannot_be_counted_from_the_stages(router, put):
    """What the recheck drops is taken from the counts before it, so that no subtraction tells of it."""
    real = router.line.store

    def leaky(search):
        return real.search(dataclasses.replace(search, filter=ALWAYS))

    def load(tenant, ids, f, *, deadline_s):
        return real.load(tenant, ids, ALWAYS, deadline_s=deadline_s)

    answer = put("low", store=Broken(real, search=leaky, load=load), k=50)
    counts = {stage.name: (stage.count_in, stage.count_out) for stage in answer.stages}
    assert counts["recheck"] == (2, 2)
    assert counts["rerank"] == (2, 2)


def test_counts_start_at_what_the_filter_admits(router):
    for person, admitted in (("low", 2), ("ada", 9), ("hal", 11), ("max", 13), ("bob", 0)):
        answer = ask_as(router, person, QUESTION, k=50)
        search = next(stage for stage in answer.stages if stage.name == "search")
        assert (person, search.count_in) == (person, admitted)
        assert len(answer.passages) == (0 if person == "low" else admitted)  # what `low` may see does not answer


def test_answer_shows_ranks_and_no_score_no_data_version(router):
    answer = ask_as(router, "max", QUESTION)
    body = answer.as_json()
    assert [passage["rank"] for passage in body["passages"]] == [1, 2, 3, 4, 5]
    assert router.store.version("north") not in json.dumps(body)
    floats = [place for place, value in leaves(body) if isinstance(value, float)]
    assert {place.rpartition(".")[2] for place in floats} <= {"ms", "margin", "documents"}
    keys = {part for place, _ in leaves(body) for part in place.split(".")}
    assert not keys & {"score", "bm25", "cosine", "data_versions", "dropped", "labels", "groups", "sensitivity"}


def leaves(value, place=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, place)
    else:
        yield place, value


def test_passage_shows_its_date_its_place_and_its_legs(router):
    answer = ask_as(router, "ada", "torque of the bolts of the press", k=1)
    passage = answer.passages[0]
    assert (passage.document_id, passage.effective_from, passage.title) == ("handbook/since/torque.md", "2026-02-03", "Torque")
    assert passage.chunk_id == "handbook/since/torque.md#0"
    assert passage.uri.startswith("file://")
    assert set(passage.why) <= {"dense", "lexical"}
    assert ask_as(router, "ada", QUESTION, k=1).passages[0].effective_from is None


def test_now_is_an_input(router):
    """A page of next year is found next year, and not a day before."""
    question = "which torque from next year"
    assert "handbook/later/torque.md" not in ids(ask_as(router, "ada", question, now=datetime(2026, 12, 31, 23, 59, tzinfo=UTC)))
    assert "handbook/later/torque.md" in ids(ask_as(router, "ada", question, now=datetime(2027, 1, 1, tzinfo=UTC)))


def test_receipts_are_equal_for_equal_filters_only(router):
    def receipt(person):
        return {item.digest for item in ask_as(router, person, QUESTION).filters}

    assert receipt("ada") == receipt("ada")
    different = [receipt(person) for person in ("ada", "hal", "max", "low", "bob", "sue")]
    assert all(len(digests) == 1 for digests in different)
    assert len({next(iter(digests)) for digests in different}) == len(different)


def test_equal_rights_in_two_tenants_have_different_receipts(router, tmp_path):
    """The tenant is part of the digest, so that nobody can compare filters across the wall."""
    from router.filters import digest

    f = router.policies.current().grants(router.whoami(router.mint("ada")), NOW).search[0].filter
    assert digest(f, key=router.key, tenant="north", source="*") != digest(f, key=router.key, tenant="south", source="*")


def test_each_tenant_finds_its_own_of_the_same_words(router):
    assert set(ids(ask_as(router, "sue", QUESTION))) == {"elsewhere/press.md", "elsewhere/oil.md"}
    assert not any(document.startswith("elsewhere") for document in ids(ask_as(router, "max", QUESTION, k=50)))


@pytest.mark.parametrize("k", [1, 3, 9])
def test_k_is_kept(router, k):
    answer = ask_as(router, "ada", QUESTION, k=k)
    assert len(answer.passages) == k
    assert ids(answer) == ids(ask_as(router, "ada", QUESTION, k=9))[:k]


def test_askers_at_once_get_the_answers_they_get_alone(router):
    people = ["ada", "hal", "max", "low", "bob", "sue"]
    alone = {person: world.bytes_of(ask_as(router, person, QUESTION)) for person in people}
    together, failures = [], []

    def work(person):
        try:
            together.extend((person, world.bytes_of(ask_as(router, person, QUESTION))) for _ in range(3))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(together) == 18
    assert all(body == alone[person] for person, body in together)
    assert whole(router)


def test_fused_order_is_what_rank_fuse_says(router, put):
    """The line adds nothing of its own to the order."""
    held = []

    def search(search):
        held.append(router.line.store.search(search))
        return held[-1]

    answer = put(store=Broken(router.line.store, search=search), search={"rerank_by": "none"}, k=9)
    assert [item.chunk_id for item in answer.passages] == [item.chunk_id for item in rank.fuse(held[0].candidates)]
