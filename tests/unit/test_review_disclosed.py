"""`egress prove`: what stands on record is told, and nothing is proven from a broken chain."""

from __future__ import annotations

import dataclasses
import json

import pytest

from router import decision
from router.domain import CHAIN_START, Link
from router.egress import Sent
from router.errors import UsageError
from router.review.disclosed import parse_class, prove
from tests import world


def sent(provider="cohere", purpose="embed", classes=(1,), size=100):
    return Sent(provider, "m", purpose, classes, size, 2, "0" * 64).as_json()


def chain(*records):
    """The rows as a ledger has them."""
    rows, previous = [], CHAIN_START
    for seq, record in enumerate(records, 1):
        digest = decision.link_digest(seq, previous, record)
        rows.append((Link(seq, previous, digest), record))
        previous = digest
    return rows


def indexed(at_us=1, **of):
    return decision.index_egress(
        tenant="north", at_us=at_us, by="service:indexer", run_id="r", policy_version="v", sent=sent(**of)
    )


def answered(*egress):
    from datetime import UTC, datetime

    from router.domain import Principal, Question

    who = Principal("dev", "ada", "User", "north", frozenset(), (), 2**31)
    opened = decision.asked(
        principal=who,
        question=Question("q", datetime(2026, 1, 1, tzinfo=UTC), 5, 1.0),
        policy_version="v",
        at_us=5,
        key=bytes(32),
    )
    closed = decision.answered(asked=opened, at_us=7, outcome="answered", policy_version="v", total_us=1, egress=egress)
    return opened, closed


def test_whatever_left_is_told():
    """Of questions and of indexing, by provider, model and purpose."""
    rows = chain(
        indexed(1),
        indexed(3),
        indexed(2, classes=(2,)),
        *answered(sent(purpose="rerank", classes=(0, 1, 2)), sent("claude", "draft")),
    )
    told = {(one.provider, one.purpose): one for one in prove({"north": rows}, 1).left}
    assert set(told) == {("cohere", "embed"), ("cohere", "rerank"), ("claude", "draft")}
    embed = told["cohere", "embed"]
    assert (embed.attempts, embed.texts, embed.bytes, embed.first_us, embed.last_us) == (2, 4, 200, 1, 3)
    assert {(one.provider, one.purpose) for one in prove({"north": rows}, 2).left} == {("cohere", "embed"), ("cohere", "rerank")}
    assert prove({"north": rows}, 1, provider="claude").left == (told["claude", "draft"],)


def test_nothing_of_the_class():
    proof = prove({"north": chain(indexed(1), *answered()), "south": []}, 3)
    assert (proof.nothing_left, proof.records, proof.open, proof.broken) == (True, 3, 0, ())


def test_a_broken_chain_proves_nothing():
    """Also where the record that is missing was the one that told."""
    rows = chain(indexed(1), indexed(2, classes=(3,)), *answered())
    cut = [rows[0], *rows[2:]]
    proof = prove({"north": cut}, 3)
    assert (proof.left, proof.broken, proof.nothing_left) == ((), ("north",), False)
    edited = [rows[0], (rows[1][0], indexed(2)), *rows[2:]]
    assert not prove({"north": edited}, 3).nothing_left
    short = rows[:-3]
    assert not prove({"north": short}, 3, anchors={"north": (rows[-1][0].seq, rows[-1][0].digest)}).nothing_left


def test_questions_without_an_end_are_counted():
    opened, _ = answered()
    proof = prove({"north": chain(opened)}, 1)
    assert (proof.open, proof.nothing_left) == (1, True)
    began = decision.question_egress(asked=opened, at_us=6, policy_version="v", sent=sent(purpose="rerank"))
    proof = prove({"north": chain(opened, began)}, 1)
    assert (proof.open, [one.purpose for one in proof.left]) == (1, ["rerank"])


def test_an_attempt_is_told_once():
    """It stands on record before its first byte and once more in the decision."""
    opened, closed = answered(sent(purpose="rerank"))
    began = decision.question_egress(asked=opened, at_us=6, policy_version="v", sent=sent(purpose="rerank"))
    (left,) = prove({"north": chain(opened, began, closed)}, 1).left
    assert left.attempts == 1
    assert sum(decision.summary(chain(opened, began, closed)).egress_bytes.values()) == sent()["bytes"]


def test_a_provider_that_nobody_knows_is_no_proof():
    with pytest.raises(UsageError) as raised:
        prove({"north": chain(indexed())}, 2, provider="anthropic")
    assert raised.value.code == "provider_unknown"


@pytest.mark.parametrize(("text", "number"), [("public", 0), ("restricted", 3), ("0", 0), ("3", 3)])
def test_classes_by_name_or_number(text, number):
    assert parse_class(text) == number


@pytest.mark.parametrize("text", ["", "secret", "4", "-1", "Public", "٣", "1.0"])
def test_other_words_are_no_class(text):
    with pytest.raises(UsageError):
        parse_class(text)


def test_the_command(tmp_path):
    """Over a ledger with one entry of indexing: exit 1 for its class, 0 for another."""
    from router.app import Router
    from router.config import load_settings

    config = world.write_world(tmp_path / "world", {})
    with Router(load_settings(config)) as router:
        router.ledger.append([indexed(1)])
    found = {
        name: world.run_command("egress", "prove", "--class", name, "--json", "--config", config, cwd=tmp_path)
        for name in ("internal", "restricted")
    }
    assert [done.returncode for done in found.values()] == [1, 0]
    body = json.loads(found["internal"].stdout)
    assert body["left"][0] | {"provider": "cohere", "attempts": 1, "texts": 2} == body["left"][0]
    assert json.loads(found["restricted"].stdout)["nothing_left"] is True
    told = world.run_command("egress", "prove", "--class", "restricted", "--provider", "cohere", "--config", config, cwd=tmp_path)
    assert b"no restricted text left to `cohere`, by 1 records" in told.stdout
    assert dataclasses.is_dataclass(prove({}, 0))
