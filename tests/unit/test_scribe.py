"""Having contexts written: classes, batches, caps and bad days, with the real client against a server on this machine."""

from __future__ import annotations

import json
import time

import pytest

from router.domain import Purpose
from router.errors import LedgerError, Refused
from router.ingest import scribe as scribes
from router.ingest.backfill import index_and_wait
from router.ingest.scribe import Purse, Writing
from router.ingest.written_context import REPLY_TOKENS
from router.ports import Tokens
from tests import anthropic_server as fake
from tests.context_world import PRICES, ContextWorld, manual
from tests.ingest_world import RULES, TENANT

SECRET = "  - { match: 'secret/**', groups: [corp:all], sensitivity: confidential }\n"
TOP = "  - { match: 'top/**', groups: [corp:all], sensitivity: restricted }\n"

DEAR = {"input_tokens": 2_400, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 200}
"""Near to what an ask may cost at most."""


@pytest.fixture(scope="module")
def running():
    yield from fake.serve()


@pytest.fixture
def server(running):
    running.says(fake.contexts())
    running.batches = fake.Batches()
    return running


@pytest.fixture
def made(tmp_path, server):
    def build(**options) -> ContextWorld:
        world = ContextWorld(tmp_path, server, **options)
        world.write("labels.yaml", RULES)
        world.write("press.md", manual("Press"))
        return world

    return build


# --- one by one, and in batches ---------------------------------------------------------------------------------------


def test_one_by_one_and_from_before(made, server):
    world = made()
    first = world.whole()
    assert first.contexts is not None
    number = first.sources[0].chunks
    assert (first.contexts.written, first.contexts.reused, first.contexts.direct) == (number, 0, number)
    assert world.contexts("press.md") == ["Says where it stands."] * number
    assert first.contexts.tokens.cache_read > 3 * first.contexts.tokens.cache_write > 0
    assert world.paid == [1] * number
    again = world.whole(full=True)
    assert again.contexts is not None
    assert (again.contexts.written, again.contexts.reused, again.contexts.tokens) == (0, number, Tokens())
    assert world.paid == [1] * number


def test_auto_asks_a_few_and_sends_the_rest(made, server):
    world = made(send="auto", batch_from=9)
    for name in "abc":
        world.write(f"{name}.md", manual(f"Pump {name}"))
    report = world.whole()
    assert report.contexts is not None
    assert 0 < report.contexts.direct <= 9
    assert report.contexts.batched == report.contexts.written - report.contexts.direct > 0
    assert (len(server.batches.made), report.contexts.waiting, set(world.paid)) == (1, 0, {1})
    assert all(text == "Says where it stands." for name in "abc" for text in world.contexts(f"{name}.md"))
    assert (world.run().unchanged, world.paid.count(1)) == (4, report.contexts.written)


def test_batches_are_of_one_class(made, server):
    """Mixed documents are split; what may not go is not in any of them."""
    world = made(send="batch", classes=(0, 1, 2))
    world.write("labels.yaml", RULES + SECRET + TOP)
    world.write("secret/plan.md", manual("CANARYCONFIDENTIAL"))
    world.write("top/plan.md", manual("CANARYRESTRICTED"))
    report = world.whole()
    assert report.contexts is not None
    assert [(sent.classes, sent.items) for sent in world.sent] == [
        ((1,), len(world.contexts("press.md"))),
        ((2,), len(world.contexts("secret/plan.md"))),
    ]
    bodies = [one.text for one in server.received if one.size]
    assert ["CANARYCONFIDENTIAL" in body for body in bodies] == [False, True]
    assert "CANARYRESTRICTED" not in server.heard
    assert report.contexts.structural == {"not_permitted": len(world.contexts("top/plan.md"))}
    assert all("Says" not in text for text in world.contexts("top/plan.md"))


def test_each_attempt_is_noted_before_it_goes(made, server):
    """What cannot be put on record does not go; the run ends, as where any record cannot be written."""
    world = made(send="batch")

    def full(_: object) -> None:
        raise LedgerError("ledger_full", "the disk is full")

    world.sent = type("Full", (list,), {"append": lambda self, sent: full(sent)})()
    with pytest.raises(LedgerError):
        world.whole()
    assert server.received == []
    assert world.cache.open_batches(TENANT) == [], "nothing is looked for that was never sent"


def test_large_batches_are_sent_in_parts(made, server, monkeypatch):
    monkeypatch.setattr(scribes, "BATCH_ITEMS", 3)
    world = made(send="batch")
    assert world.run().chunks > 6
    sizes = [len(one["requests"]) for one in server.batches.made.values()]
    assert max(sizes) == 3
    assert len(sizes) >= 2
    assert set(world.paid) == {1}


def test_a_permit_that_is_withdrawn_in_the_middle(made, server):
    """Each sending is judged anew."""
    world = made()
    world.judge = lambda principal, *, provider, purpose, sensitivity: world.posts < 2
    report = world.whole()
    assert report.contexts is not None
    assert world.posts == 2
    assert report.contexts.structural["disclosure_not_permitted"] == len(world.contexts("press.md")) - 2


def test_the_purpose_names_service_class_and_run(made):
    world = made()
    seen: list[Purpose] = []
    inner = world.scribe._purpose
    world.scribe._purpose = lambda sensitivity, run_id: seen.append(inner(sensitivity, run_id)) or seen[-1]
    report = index_and_wait(world.jobs(), world.workshop(models=world.models), wait_s=1.0)
    assert set(seen) == {Purpose("service#indexer", "context", frozenset({1}), report.run_id)}


# --- caps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("send", "cap"), [("direct", 0.04), ("batch", 0.02)])
def test_nothing_is_asked_beyond_the_cap(made, server, send, cap):
    """What is done is indexed, the rest stands under structural contexts, and the next run goes on without paying twice."""
    server.batches.message = lambda params: {**fake.Batches.message(server.batches, params), "usage": DEAR}
    world = made(send=send, prices=PRICES, spend_cap=cap)
    first = world.whole()
    assert first.contexts is not None
    number = len(world.contexts("press.md"))
    assert first.contexts.stopped == "spend_cap"
    assert 0 < first.contexts.written < number
    assert first.contexts.money is not None
    assert 0 < first.contexts.money <= cap
    assert sum("Says" in text for text in world.contexts("press.md")) == first.contexts.written
    for _ in range(number):
        if world.whole().contexts.written == 0:
            break
    assert world.contexts("press.md") == ["Says where it stands."] * number
    assert world.paid == [1] * number


def test_a_cap_filled_by_what_was_set_aside_has_room_again(made, server):
    """A batch sets aside far more than it costs: one run goes on as the answers come, and stays below its cap."""
    world = made(send="batch", prices=PRICES, spend_cap=0.05)
    report = world.whole()
    assert report.contexts is not None
    assert len(server.batches.made) > 1
    assert (report.contexts.written, set(world.paid)) == (len(world.contexts("press.md")), {1})
    assert report.contexts.money < 0.05


@pytest.mark.parametrize("send", ["direct", "batch"])
def test_thoughts_are_within_the_cap(made, server, send):
    """Each answer thinks as much as it may."""
    thoughts = {"input_tokens": 500, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 4_096}
    server.batches.message = lambda params: {**fake.Batches.message(server.batches, params), "usage": thoughts}
    world = made(send=send, prices=PRICES, spend_cap=0.2, reply_tokens=REPLY_TOKENS["model"])
    report = world.whole()
    assert report.contexts is not None
    assert 0 < report.contexts.money <= 0.2


@pytest.mark.parametrize("send", ["direct", "batch"])
def test_what_is_not_counted_is_charged(made, server, send):
    """A reply without `usage`: as it was set aside, so that the cap holds."""
    whole = server.batches.message
    server.batches.message = lambda params: {name: value for name, value in whole(params).items() if name != "usage"}
    world = made(send=send, prices=PRICES, spend_cap=0.06)
    report = world.whole()
    assert report.contexts is not None
    number = len(world.contexts("press.md"))
    assert (report.contexts.stopped, report.contexts.uncounted) == ("spend_cap", report.contexts.written)
    assert 0 < report.contexts.written < number
    assert 0.03 < report.contexts.money <= 0.06


@pytest.mark.parametrize("day", [fake.cut_stream(), fake.reset()], ids=["cut", "reset"])
def test_what_was_lost_is_charged_once_and_not_tried_again(made, server, day):
    server.says(day)
    world = made(prices=PRICES, spend_cap=10.0)
    report = world.whole()
    assert report.contexts is not None
    assert (world.posts, report.contexts.uncounted, report.contexts.stopped) == (3, 3, "model_unreachable")
    assert report.contexts.money > 0


def test_an_error_that_comes_as_200_is_no_answer(made, server):
    """A gateway's bad day is over the day after, and cost nothing."""
    server.says(fake.raw(b'{"type":"error","error":{"type":"overloaded_error","message":"PROVIDER-WORDS"}}'))
    world = made(prices=PRICES)
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.written, report.contexts.money, report.contexts.uncounted) == (0, 0.0, 0)
    server.says(fake.contexts())
    assert world.whole().contexts.written == len(world.contexts("press.md"))


def test_an_answer_of_nothing_that_cost_nothing_is_asked_for_again(made, server):
    server.says(fake.raw(b'{"content": [], "stop_reason": "end_turn"}'))
    world = made()
    assert world.whole().contexts.written == 0
    server.says(fake.contexts())
    assert world.whole().contexts.written == len(world.contexts("press.md"))


def test_a_cap_of_nothing_and_one_of_tokens(made, server):
    for writing in ({"prices": PRICES, "spend_cap": 0.0}, {"token_cap": 0}):
        report = made(**writing).whole()
        assert report.contexts is not None
        assert (report.contexts.stopped, report.contexts.written, server.received) == ("spend_cap", 0, [])


def test_what_is_on_its_way_counts(made, server):
    """A run that was killed with a batch on its way, and the next one, stay within one cap together."""
    server.batches.polls = 10_000
    world = made(send="batch", prices=PRICES, spend_cap=0.10)
    first = world.whole(wait_s=0.0)
    assert first.contexts is not None
    assert first.contexts.waiting > 0
    for name in "abcdef":
        world.write(f"{name}.md", manual(f"Pump {name}"))
    world.whole(wait_s=0.0)
    promised = sum((batch.worst for batch in world.cache.open_batches(TENANT)), Tokens())
    assert PRICES.of(promised, batch=True) <= 0.10


def test_a_purse_counts_what_was_promised():
    purse = Purse(Writing(prices=PRICES, spend_cap=1.0))
    million = Tokens(100_000, 0, 0, 0)
    assert [purse.reserve(million, batch=True) for _ in range(8)] == [True] * 6 + [False] * 2
    purse.release(million)
    assert purse.reserve(million, batch=True)
    assert not Purse(Writing(spend_cap=1.0)).reserve(Tokens(1), batch=False), "no prices, so no money is known to be left"


# --- bad days ---------------------------------------------------------------------------------------------------------

BAD_DAYS = {
    "unauthorised": fake.failure(401),
    "rejected": fake.failure(400, "invalid_request_error"),
    "limited": fake.failure(429),
    "failed": fake.failure(500),
    "overloaded": fake.failure(529),
    "reset": fake.reset(),
    "nonsense": fake.raw(b"{"),
    "refused": fake.content([{"type": "text", "text": "no"}], stop="refusal"),
    "empty": fake.content([], stop="end_turn"),
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_bad_days_leave_structural_contexts(made, server, day):
    """Every chunk is indexed, with a note; nobody is asked for ever; the provider's words stand nowhere."""
    server.says(BAD_DAYS[day])
    world = made()
    report = world.whole()
    assert report.contexts is not None
    (source,) = report.sources
    contexts = world.contexts("press.md")
    assert (source.indexed, source.failures, source.error) == (1, [], None)
    assert any("Part" in text for text in contexts), "structural ones"
    assert [note.reason for note in source.notes] == ["context_not_written"] * len(source.notes) != []
    assert sum(report.contexts.structural.values()) == len(contexts)
    assert "PROVIDER" not in str(report)
    assert world.posts <= 4 * 3 + len(contexts)
    server.says(fake.contexts())
    again = world.whole()
    if day in ("refused", "empty"):
        assert (again.sources[0].unchanged, world.posts) == (1, 0), "paid for once, and not asked again"
    else:
        assert world.contexts("press.md") == ["Says where it stands."] * len(contexts)


def test_a_provider_that_is_down_is_left_alone(made, server):
    server.says(fake.failure(500))
    world = made()
    for name in "abcdefgh":
        world.write(f"{name}.md", manual(f"Pump {name}"))
    report = world.whole()
    assert report.contexts is not None
    assert report.sources[0].indexed == 9
    assert world.posts <= 13
    assert report.contexts.stopped in ("model_failed", "model_resting")


def test_results_that_failed_are_asked_again(made, server):
    kinds = ["succeeded", "errored", "expired", "canceled"]
    server.batches.becomes = lambda key: kinds[int(key[:2], 16) % 4] if len(server.batches.made) == 1 else "succeeded"
    world = made(send="batch")
    for name in "ab":
        world.write(f"{name}.md", manual(f"Pump {name}"))
    world.whole()
    assert all(text == "Says where it stands." for name in ("press", "a", "b") for text in world.contexts(f"{name}.md"))
    assert len(server.batches.made) >= 2
    assert sum(len(one["requests"]) for one in server.batches.made.values()) < 2 * len(world.paid), "only those that failed"


def test_a_batch_that_is_refused_is_not_looked_for(made, server):
    world = made(send="batch")
    refusing = fake.failure(400, "invalid_request_error")
    server.batches.create = refusing
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.waiting, world.cache.open_batches(TENANT), report.sources[0].indexed) == (0, [], 1)
    assert report.contexts.structural["model_rejected"] == len(world.contexts("press.md"))


def test_a_limit_is_waited_for_and_a_reset_is_not_tried_again(made, server):
    world = made(send="batch")
    create, replies = server.batches.create, [fake.failure(429, retry_after="1"), fake.failure(529)]

    def limited(handler, request) -> None:
        (replies.pop(0) if replies else create)(handler, request)

    server.batches.create = limited
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.written, len(server.batches.made)) == (len(world.contexts("press.md")), 1)


def breaks_off(handler) -> None:
    handler.close_connection = True
    raise ConnectionResetError


def lists_nothing(server, reply):
    """A gateway that passes batches on, and no list of them."""
    get = server.batches.get

    def listing(handler, path) -> None:
        rest = path.partition("?")[0].removeprefix("/v1/messages/batches").strip("/")
        get(handler, path) if rest else reply(handler, None)

    return listing


def with_results(server, body):
    """`body` of the lines of a batch's results, instead of all of them."""
    get = server.batches.get

    def cut(handler, path) -> None:
        if not path.endswith("/results"):
            get(handler, path)
            return
        made = server.batches.made[path.split("/")[-2]]["requests"]
        handler.send_response(200)
        handler.send_header("content-type", "application/x-jsonl")
        handler.end_headers()
        handler.wfile.write(body([json.dumps(server.batches.result(one)).encode() for one in made]))
        handler.close_connection = True

    return cut


LOSSES = {
    "no list": lambda server: ("lost", lists_nothing(server, fake.failure(404, "not_found_error"))),
    "a list that is none": lambda server: ("lost", lists_nothing(server, fake.raw(b'{"data": null}'))),
    "a list that breaks off": lambda server: ("lost", lists_nothing(server, fake.raw(b'{"data": ['))),
    "another key": lambda server: ("known", lambda handler, path: fake.failure(404, "not_found_error")(handler, None)),
    "no results": lambda server: ("known", with_results(server, lambda lines: b"")),
    "results that break off": lambda server: ("known", with_results(server, lambda lines: b"\n".join(lines[:3]) + lines[3][:40])),
    "errors for messages": lambda server: (
        "known",
        with_results(server, lambda lines: b"\n".join(line.replace(b'"content"', b'"nothing"') for line in lines)),
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_may_have_been_paid_is_not_sent_again(made, server, loss, monkeypatch):
    """Run after run, until answers come, or until the provider has thrown them away."""
    world = made(send="batch")
    how, get = LOSSES[loss](server)
    if how == "lost":
        server.batches.creating = breaks_off
    good = server.batches.get
    server.batches.get = get
    for _ in range(3):
        report = world.whole()
        assert report.contexts is not None
        number = len(world.contexts("press.md"))
        assert report.contexts.waiting == report.contexts.unclear == number - report.contexts.written - report.contexts.reused > 0
        assert (len(server.batches.made), set(world.paid)) == (1, {1})
    asked = sum(one.size == 0 for one in server.received)
    assert asked < 40, "a batch that tells nothing is not asked for ever"
    server.batches.get, server.batches.creating = good, lambda handler: None
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.waiting, report.contexts.unclear, len(server.batches.made)) == (0, 0, 1)
    assert world.contexts("press.md") == ["Says where it stands."] * number
    assert set(world.paid) == {1}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_never_came_is_asked_anew_when_nobody_has_it_any_more(made, server, loss, monkeypatch):
    world = made(send="batch")
    how, get = LOSSES[loss](server)
    if how == "lost":
        server.batches.creating = breaks_off
    server.batches.get, good = get, server.batches.get
    world.whole()
    server.batches.creating = lambda handler: None
    ((name, _),) = server.batches.made.items()

    def thrown_away(handler, path) -> None:
        (get if name in path or path.partition("?")[0].endswith("batches") else good)(handler, path)

    server.batches.get = thrown_away
    monkeypatch.setattr(scribes, "KEPT_US", -1)
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.waiting, len(server.batches.made)) == (0, 2)
    assert world.contexts("press.md") == ["Says where it stands."] * len(world.contexts("press.md"))


def test_of_two_answers_the_first_counts(made, server):
    """Lines that come twice, and such of somebody else's."""
    world = made(send="batch", prices=PRICES)

    def doubled(lines):
        others = [line.replace(line[15:79], b"f" * 64) for line in lines]
        return b"\n".join([*others, *lines, *(line.replace(b"Says where", b"SECOND") for line in lines)])

    server.batches.get = with_results(server, doubled)
    report = world.whole()
    assert report.contexts is not None
    number = len(world.contexts("press.md"))
    assert world.contexts("press.md") == ["Says where it stands."] * number
    assert report.contexts.written == number
    assert report.contexts.tokens.output == 20 * number


def test_rounds_of_a_watch_count_a_batch_once(made, server):
    """Each round has a scribe of its own, and all have one purse: what is on its way, and what came by halves, is in it once."""
    world = made(send="batch", prices=PRICES, spend_cap=10.0)
    good = server.batches.get
    server.batches.get = with_results(server, lambda lines: b"\n".join(lines[:3]))
    purse, seen = Purse(world.writing), []
    for _ in range(3):
        world.new_scribe(purse)
        index_and_wait(world.jobs(), world.workshop(models=world.models), wait_s=0.0)
        seen.append((purse.promised, purse.batched))
    assert seen[0] == seen[1] == seen[2]
    assert min(seen[0][0].total, seen[0][1].total) > 0
    server.batches.get = good
    world.new_scribe(purse)
    index_and_wait(world.jobs(), world.workshop(models=world.models), wait_s=0.0)
    assert (purse.promised, purse.batched.output) == (Tokens(), 20 * len(world.contexts("press.md")))


def test_a_clock_that_was_ahead_keeps_nobody_waiting(made, server, monkeypatch):
    """A batch that was begun in a time that is not yet, and was lost: looked for, and asked for again when it is sure."""
    world = made(send="batch")
    create, server.batches.create = server.batches.create, fake.reset()
    scribe = world.new_scribe()
    scribe._now_us = lambda: time.time_ns() // 1000 + 2 * 86_400_000_000
    assert index_and_wait(world.jobs(), world.workshop(models=world.models), wait_s=0.0).contexts.waiting > 0
    server.batches.create = create
    assert world.whole(wait_s=0.0).contexts.waiting > 0, "it may be listed in a moment"
    (batch,) = world.cache.open_batches(TENANT)
    assert batch.at_us < time.time_ns() // 1000 + 1
    monkeypatch.setattr(scribes, "LOST_AFTER_US", -1)
    assert world.whole().contexts.written == len(world.contexts("press.md"))
    assert set(world.paid) == {1}


def test_a_batch_of_somebody_else_is_not_taken_for_ours(made, server, monkeypatch):
    """The same key may serve others: their batch of as many requests is looked at and left, ours is found."""
    world = made(send="batch")

    get = server.batches.get
    server.batches.creating, server.batches.get = breaks_off, lambda handler, _: breaks_off(handler)
    world.whole(wait_s=0.0)
    assert [batch.batch_id for batch in world.cache.open_batches(TENANT)] == [""]
    server.batches.get = get
    ((name, ours),) = server.batches.made.items()
    theirs = {**ours, "requests": [{**one, "custom_id": f"theirs-{at}"} for at, one in enumerate(ours["requests"])]}
    server.batches.made = {"msgbatch_0000": theirs, name: ours}
    server.batches.creating = lambda handler: None
    report = world.whole()
    assert report.contexts is not None
    assert report.contexts.written == len(world.contexts("press.md")) == len(ours["requests"])
    assert (world.cache.open_batches(TENANT), len(server.batches.made)) == ([], 2)


def test_a_batch_that_never_arrived_is_asked_anew(made, server, monkeypatch):
    world = made(send="batch")
    create = server.batches.create
    server.batches.create = fake.reset()
    assert world.whole(wait_s=0.0).contexts.waiting > 0
    server.batches.create = create
    assert world.whole(wait_s=0.0).contexts.waiting > 0, "it may be listed in a moment"
    monkeypatch.setattr(scribes, "LOST_AFTER_US", -1)
    report = world.whole()
    assert report.contexts is not None
    assert (report.contexts.written, set(world.paid)) == (len(world.contexts("press.md")), {1})


def test_without_a_model_documents_are_indexed_all_the_same(made, server):
    world = made()
    scribe = world.new_scribe()
    scribe._writer = None
    report = index_and_wait(world.jobs(), world.workshop(models=world.models), wait_s=1.0)
    assert report.contexts is not None
    assert (report.sources[0].indexed, report.contexts.structural) == (1, {"no_model": len(world.contexts("press.md"))})
    assert server.received == []
    assert world.whole().contexts.written == len(world.contexts("press.md")), "when the key is there"


def test_a_class_that_is_none_is_not_sent(made):
    world = made(classes=(0, 1, 2, 3))
    assert [world.scribe.permits(one) for one in (-1, 0, 3, 4)] == [False, True, True, False]
    with pytest.raises(Refused):
        world.scribe._writer.submit([], purpose=Purpose("service#indexer", "context", frozenset(), "r"), deadline_s=1.0)
