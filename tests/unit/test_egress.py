"""Egress: nothing without a permit, everything on record, nothing after the record; and there is no other way out."""

from __future__ import annotations

import ast
import dataclasses
import hmac
import math
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.attempts import Attempts
from router.domain import Embedded, ModelCard, Purpose
from router.egress import (
    DISCLOSED_AS,
    Egress,
    IndexEmbedder,
    RemoteEmbedder,
    RemoteModel,
    RemoteReranker,
    check_scores,
    check_vectors,
    index_card,
)
from router.errors import LedgerError, Refused, SourceError
from router.ports import HostedRows, HostedScores, ModelReply
from tests import policy_world as world
from tests.unit.test_policy_grants import ADA
from tests.world import ROOT

PERMIT = """
@id("drafts") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"claude")
when { context.purpose == "draft" && context.class <= 1 };
"""
SALT = b"salt"
POLICIES = world.load_files(world.folder_files(PERMIT))


def noted_nowhere(sent, decision_id) -> None:
    """Where a ledger would stand."""


class Hosted:
    """A hosted model without a network: every attempt says how much it sends."""

    def __init__(self, provider: str = "claude", sizes: tuple[int, ...] = (100,), fail: bool = False) -> None:
        self.provider, self.model, self._sizes, self._fail = provider, "model-test", sizes, fail
        self.sent = 0

    def draft_hosted(self, system, prompt, schema, *, deadline_s, sending):
        for size in self._sizes:
            sending(bytes(size))
            self.sent += size
        if self._fail:
            raise SourceError("model_failed", "no")
        return ModelReply({}, "m")


def purpose(name: str = "draft_sql", classes=frozenset({1}), principal: str = ADA.name) -> Purpose:
    return Purpose(principal, name, classes, "d-1")


def draft(egress: Egress, hosted: Hosted, wanted: Purpose) -> ModelReply:
    return egress.model(RemoteModel(hosted, Attempts(hosted.provider))).draft("s", "p", {}, purpose=wanted, deadline_s=1.0)


@pytest.mark.parametrize(
    ("hosted", "wanted"),
    [
        (Hosted(), purpose(classes=frozenset({2}))),
        (Hosted(), purpose(classes=frozenset({0, 1, 2}))),
        (Hosted(), purpose(classes=frozenset())),
        (Hosted(), purpose(classes=frozenset({-1}))),
        (Hosted(), purpose(classes=frozenset({4}))),
        (Hosted(), purpose(classes=frozenset({True}))),
        (Hosted(), purpose("route")),
        (Hosted(), purpose("nothing")),
        (Hosted(), purpose(principal="corp#bob")),
        (Hosted("cohere"), purpose()),
        (Hosted("Claude"), purpose()),
        (Hosted(""), purpose()),
    ],
)
def test_nothing_is_sent_without_a_permit(hosted, wanted):
    egress = Egress(ADA, POLICIES.may_disclose, SALT, noted_nowhere)
    with pytest.raises(Refused) as raised:
        draft(egress, hosted, wanted)
    assert raised.value.code == "disclosure_not_permitted"
    assert hosted.sent == 0
    assert egress.sent() == ()


def test_a_forbid_wins():
    forbid = '@id("no") @reason("r") @owner("o") forbid (principal, action == Pointsman::Action::"disclose", resource);'
    with pytest.raises(Refused):
        draft(
            Egress(ADA, world.load_files(world.folder_files(PERMIT + forbid)).may_disclose, SALT, noted_nowhere),
            Hosted(),
            purpose(),
        )


def test_what_cannot_be_judged_is_not_sent():
    stranger = dataclasses.replace(ADA, attributes=())
    hosted = Hosted()
    with pytest.raises(Refused):
        draft(Egress(stranger, POLICIES.may_disclose, SALT, noted_nowhere), hosted, purpose())
    assert hosted.sent == 0


def test_every_attempt_is_counted():
    egress = Egress(ADA, POLICIES.may_disclose, SALT, noted_nowhere)
    with pytest.raises(SourceError):
        draft(egress, Hosted(sizes=(100, 100), fail=True), purpose(classes=frozenset({1, 0})))
    draft(egress, Hosted(sizes=(7,)), purpose())
    assert egress.seal() == [noted([0, 1], 100), noted([0, 1], 100), noted([1], 7)]


def noted(classes: list[int], size: int) -> dict[str, object]:
    """What the record says of one text of so many bytes to Claude."""
    return {
        "provider": "claude",
        "model": "model-test",
        "purpose": "draft",
        "classes": classes,
        "bytes": size,
        "items": 1,
        "digest": hmac.digest(SALT, bytes(size), "sha256").hex(),
        "tokens": 0,
        "cost_micros": 0,
    }


def test_a_digest_says_nothing_without_the_salt():
    one, other = (Egress(ADA, POLICIES.may_disclose, salt, noted_nowhere) for salt in (b"one", b"other"))
    for egress in (one, other):
        draft(egress, Hosted(), purpose())
    assert one.sent()[0].digest != other.sent()[0].digest


def test_nothing_leaves_after_sealing():
    """Also where the call was permitted before and is late."""
    egress, hosted, go, code = Egress(ADA, POLICIES.may_disclose, SALT, noted_nowhere), Hosted(), threading.Event(), []

    class Late(Hosted):
        def draft_hosted(self, system, prompt, schema, *, deadline_s, sending):
            go.wait(5)
            return hosted.draft_hosted(system, prompt, schema, deadline_s=deadline_s, sending=sending)

    def run() -> None:
        try:
            draft(egress, Late(), purpose())
        except Refused as error:
            code.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    assert egress.seal() == []
    go.set()
    thread.join(5)
    assert (code, hosted.sent, egress.seal()) == (["egress_sealed"], 0, [])


def test_what_is_on_its_way_to_the_ledger_is_there_before_the_decision_is_sealed():
    """Else its row would stand behind `answered`."""
    order, inside, go = [], threading.Event(), threading.Event()

    def record(sent, decision_id):
        inside.set()
        go.wait(5)
        order.append("egress")

    egress = Egress(ADA, POLICIES.may_disclose, SALT, record)
    sending = threading.Thread(target=lambda: draft(egress, Hosted(), purpose()))
    sending.start()
    assert inside.wait(5)
    sealing = threading.Thread(target=lambda: order.append(len(egress.seal())))
    sealing.start()
    sealing.join(0.1)
    go.set()
    sealing.join(5)
    sending.join(5)
    assert order == ["egress", 1]


def test_every_purpose_has_its_word():
    import typing

    names = set(typing.get_args(typing.get_type_hints(Purpose)["name"]))
    assert set(DISCLOSED_AS) == names


def imported(node: ast.AST) -> set[str]:
    """Which connectors an import statement names."""
    match node:
        case ast.ImportFrom(module="connectors"):
            return {alias.name for alias in node.names}
        case ast.ImportFrom(module=str() as module) if module.startswith("connectors."):
            return {module.split(".")[1]}
        case ast.Import():
            return {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("connectors.")}
    return set()


def test_one_way_out():
    """Hosted connectors are made in app.py alone, and what sends is called in egress.py alone."""
    hosted = {
        path.stem for path in (ROOT / "connectors").glob("*.py") if "router.ports.Hosted" in path.read_text(encoding="utf-8")
    }
    assert hosted == {"claude", "cohere_models", "openai_compatible"}
    calls: dict[str, set[str]] = {}
    for path in [*(ROOT / "router").rglob("*.py"), *(ROOT / "connectors").glob("*.py")]:
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.endswith("_hosted"):
                calls.setdefault("call", set()).add(name)
            if imported(node) & hosted:
                calls.setdefault("import", set()).add(name)
    assert calls["call"] == {"router/egress.py"}
    assert calls.get("import", set()) <= {"router/app.py"}


# --- embedders and rerankers ------------------------------------------------------------------------------------------

BOTH_MODELS = """
@id("embeds") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"cohere")
when { ["embed", "rerank"].contains(context.purpose) && context.class <= 1 };
"""
MODELS = world.load_files(world.folder_files(BOTH_MODELS))


class HostedRows_:
    """A hosted embedder and reranker without a network."""

    provider, model, dimensions, most_texts, variant = "cohere", "rows-test", 2, 3, ""

    def __init__(self, rows=None, pairs=None, errors=()):
        self.rows, self.pairs, self.errors, self.seen = rows, pairs, list(errors), []

    def embed_hosted(self, texts, *, question, deadline_s, sending):
        sending("".join(texts).encode())
        self.seen.append(tuple(texts))
        if self.errors:
            raise self.errors.pop(0)
        return HostedRows(self.rows or [[3.0, 4.0]] * len(texts), tokens=10)

    def rerank_hosted(self, question, texts, *, deadline_s, sending):
        sending("".join([question, *texts]).encode())
        self.seen.append(tuple(texts))
        if self.errors:
            raise self.errors.pop(0)
        return HostedScores(self.pairs if self.pairs is not None else [(at, at / 10) for at in range(len(texts))], searches=1)


def quiet() -> Attempts:
    return Attempts("cohere", sleep=lambda _: None)


def embed(egress, hosted, texts, wanted=None, **options):
    remote = RemoteEmbedder(hosted, quiet(), micros_per_token=0.12)
    return egress.embed(remote, texts, wanted or purpose("embed_question"), question=True, deadline_s=10.0, **options)


def rerank(egress, hosted, texts, wanted=None):
    remote = RemoteReranker(hosted, quiet(), micros_per_search=2000)
    return egress.reranker(remote).rerank("q", texts, wanted or purpose("rerank"), deadline_s=10.0)


def test_texts_go_in_batches_and_each_is_noted_with_its_cost():
    egress, hosted = Egress(ADA, MODELS.may_disclose, SALT, noted_nowhere), HostedRows_()
    vectors = embed(egress, hosted, ["a", "b", "c", "d"])
    assert [struct.unpack("<2f", vector) for vector in vectors] == [pytest.approx((0.6, 0.8))] * 4
    assert hosted.seen == [("a", "b", "c"), ("d",)]
    assert [(one.purpose, one.items, one.bytes, one.tokens, one.cost_micros) for one in egress.sent()] == [
        ("embed", 3, 3, 10, 1),
        ("embed", 1, 1, 10, 1),
    ]


def test_each_try_is_noted():
    egress = Egress(ADA, MODELS.may_disclose, SALT, noted_nowhere)
    hosted = HostedRows_(errors=[SourceError("model_failed", "no", retryable=True)] * 2)
    assert rerank(egress, hosted, ["a", "b"]) == [0.0, 0.1]
    assert [(one.purpose, one.cost_micros) for one in egress.sent()] == [("rerank", 0), ("rerank", 0), ("rerank", 2000)]


@pytest.mark.parametrize("classes", [frozenset({2}), frozenset({0, 3}), frozenset()])
def test_vectors_and_scores_need_a_permit_for_every_class(classes):
    egress, hosted = Egress(ADA, MODELS.may_disclose, SALT, noted_nowhere), HostedRows_()
    with pytest.raises(Refused):
        embed(egress, hosted, ["a"], purpose("embed_question", classes))
    with pytest.raises(Refused):
        rerank(egress, hosted, ["a"], purpose("rerank", classes))
    assert (hosted.seen, egress.sent()) == ([], ())
    assert egress.permitted("cohere", "rerank", {0, 1, 2, 3}) == {0, 1}
    assert egress.permitted("claude", "rerank", {0, 1, 2, 3}) == frozenset()


def test_no_try_is_begun_after_sealing():
    egress = Egress(ADA, MODELS.may_disclose, SALT, noted_nowhere)

    class Sealing(HostedRows_):
        def rerank_hosted(self, question, texts, *, deadline_s, sending):
            sending(b"x")
            egress.seal()
            self.seen.append(texts)
            raise SourceError("model_failed", "no", retryable=True)

    hosted = Sealing()
    with pytest.raises(Refused) as raised:
        rerank(egress, hosted, ["a"])
    assert (raised.value.code, len(hosted.seen), len(egress.sent())) == ("egress_sealed", 1, 1)


def test_indexing_is_on_record_before_its_first_byte():
    """And what cannot be recorded is not sent."""
    noted, hosted = [], HostedRows_()

    def record(sent, run_id):
        assert hosted.seen == []
        noted.append((sent, run_id))

    egress = Egress(ADA, MODELS.may_disclose, SALT, record, keep=False)
    embed(egress, hosted, ["a"])
    ((sent, run_id),) = noted
    assert (sent.items, sent.bytes, run_id, egress.sent()) == (1, 1, "d-1", ())

    def full(*_):
        raise LedgerError("ledger_full", "no")

    hosted = HostedRows_()
    with pytest.raises(LedgerError):
        embed(Egress(ADA, MODELS.may_disclose, SALT, full, keep=False), hosted, ["a"])
    assert hosted.seen == []


class Pieces:
    """The local embedder, as far as indexing beside a hosted one needs it."""

    card = ModelCard("local", "1" * 64, 4, 64, 256)

    def embed_chunks(self, texts, purpose):
        return [Embedded(bytes(16), b"ab", bytes(64), 1.0) for _ in texts]

    def count_tokens(self, text):
        return len(text)


def test_what_may_not_be_embedded_outside_keeps_its_words_and_gets_no_vector():
    hosted = HostedRows_()
    remote = RemoteEmbedder(hosted, quiet())
    made = IndexEmbedder(Pieces(), remote, lambda _: Egress(ADA, MODELS.may_disclose, SALT, noted_nowhere), lambda _, run: run())
    (open_,) = made.embed_chunks(["a"], purpose("embed_chunks"))
    (closed,) = made.embed_chunks(["b"], purpose("embed_chunks", frozenset({2})))
    assert (open_.token_ids, closed.token_ids) == (b"ab", b"ab")
    assert (any(open_.vector), closed.vector) == (True, bytes(8))
    assert hosted.seen == [("a",)]


def test_an_index_knows_what_changes_its_vectors():
    cards = {index_card(Pieces.card, RemoteEmbedder(hosted, quiet())).id for hosted in _variants()}
    assert len(cards) == 4
    assert index_card(Pieces.card, None) == Pieces.card


def _variants():
    for name, value in (("model", "rows-test"), ("model", "other"), ("variant", "query: "), ("dimensions", 3)):
        hosted = HostedRows_()
        setattr(hosted, name, value)
        yield hosted


# --- what comes back --------------------------------------------------------------------------------------------------

HUGE = 10**400


@pytest.mark.parametrize(
    "rows",
    [None, 5, {}, [], [[1.0, 0.0]], [[1.0, 0.0]] * 3, [[1.0, 0.0], [1.0]], [[1.0, 0.0], [1.0, 0.0, 0.0]], [[1.0, 0.0], None],
     [[1.0, 0.0], ["1", "0"]], [[1.0, 0.0], [True, False]], [[1.0, 0.0], [math.nan, 1.0]], [[1.0, 0.0], [math.inf, 1.0]],
     [[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [HUGE, 1]], [[1.0, 0.0], [[1.0], [0.0]]]],
)  # fmt: skip
def test_vectors_are_checked(rows):
    with pytest.raises(SourceError) as raised:
        check_vectors(rows, 2, 2)
    assert (raised.value.code, raised.value.retryable) == ("model_reply_invalid", False)


@given(
    st.lists(st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)), min_size=3, max_size=3)
)
def test_any_vector_is_of_unit_length_or_refused(row):
    try:
        (vector,) = check_vectors([row], 1, 3)
    except SourceError:
        assert not any(row)
        return
    values = struct.unpack("<3f", vector)
    assert math.isclose(sum(value * value for value in values), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize(
    "pairs",
    [[], [(0, 0.5)], [(0, 0.5), (0, 0.6)], [(0, 0.5), (2, 0.6)], [(0, 0.5), (-1, 0.6)], [(0, 0.5), (True, 0.6)],
     [(0, 0.5), ("1", 0.6)], [(0, 0.5), (None, 0.6)], [(0, 0.5), (1, None)], [(0, 0.5), (1, "0.6")], [(0, 0.5), (1, math.nan)],
     [(0, 0.5), (1, math.inf)], [(0, 0.5), (1, HUGE)], [(0, 0.5), (1, True)], [(0, 0.5), (1, 0.6), (2, 0.7)],
     [(0, 0.5), (1.0, 0.6)]],
)  # fmt: skip
def test_scores_are_checked(pairs):
    with pytest.raises(SourceError) as raised:
        check_scores(pairs, 2)
    assert (raised.value.code, raised.value.retryable) == ("model_reply_invalid", False)


@given(st.permutations(range(6)))
def test_scores_are_put_in_the_order_of_the_texts(order):
    assert check_scores([(at, at / 10) for at in order], 6) == [at / 10 for at in range(6)]
