"""Egress: nothing without a permit, everything on record, nothing after the record; and there is no other way out."""

from __future__ import annotations

import ast
import dataclasses
import threading

import pytest

from router.domain import Purpose
from router.egress import DISCLOSED_AS, Egress
from router.errors import Refused, SourceError
from router.ports import ModelReply
from tests import policy_world as world
from tests.unit.test_policy_grants import ADA
from tests.world import ROOT

PERMIT = """
@id("drafts") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"claude")
when { context.purpose == "draft" && context.class <= 1 };
"""
POLICIES = world.load_files(world.folder_files(PERMIT))


class Hosted:
    """A hosted model without a network: every attempt says how much it sends."""

    def __init__(self, provider: str = "claude", sizes: tuple[int, ...] = (100,), fail: bool = False) -> None:
        self.provider, self._sizes, self._fail = provider, sizes, fail
        self.sent = 0

    def draft_hosted(self, system, prompt, schema, *, deadline_s, sending):
        for size in self._sizes:
            sending(size)
            self.sent += size
        if self._fail:
            raise SourceError("model_failed", "no")
        return ModelReply({}, "m")


def purpose(name: str = "draft_sql", classes=frozenset({1}), principal: str = ADA.name) -> Purpose:
    return Purpose(principal, name, classes, "d-1")


def draft(egress: Egress, hosted: Hosted, wanted: Purpose) -> ModelReply:
    return egress.model(hosted).draft("s", "p", {}, purpose=wanted, deadline_s=1.0)


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
    egress = Egress(ADA, POLICIES.may_disclose)
    with pytest.raises(Refused) as raised:
        draft(egress, hosted, wanted)
    assert raised.value.code == "disclosure_not_permitted"
    assert hosted.sent == 0
    assert egress.sent() == ()


def test_a_forbid_wins():
    forbid = '@id("no") @reason("r") @owner("o") forbid (principal, action == Pointsman::Action::"disclose", resource);'
    with pytest.raises(Refused):
        draft(Egress(ADA, world.load_files(world.folder_files(PERMIT + forbid)).may_disclose), Hosted(), purpose())


def test_what_cannot_be_judged_is_not_sent():
    stranger = dataclasses.replace(ADA, attributes=())
    hosted = Hosted()
    with pytest.raises(Refused):
        draft(Egress(stranger, POLICIES.may_disclose), hosted, purpose())
    assert hosted.sent == 0


def test_every_attempt_is_counted():
    egress = Egress(ADA, POLICIES.may_disclose)
    with pytest.raises(SourceError):
        draft(egress, Hosted(sizes=(100, 100), fail=True), purpose(classes=frozenset({1, 0})))
    draft(egress, Hosted(sizes=(7,)), purpose())
    assert egress.seal() == [
        {"provider": "claude", "purpose": "draft", "classes": [0, 1], "bytes": 100, "items": 1},
        {"provider": "claude", "purpose": "draft", "classes": [0, 1], "bytes": 100, "items": 1},
        {"provider": "claude", "purpose": "draft", "classes": [1], "bytes": 7, "items": 1},
    ]


def test_nothing_leaves_after_sealing():
    """Also where the call was permitted before and is late."""
    egress, hosted, go, code = Egress(ADA, POLICIES.may_disclose), Hosted(), threading.Event(), []

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
    hosted = {path.stem for path in (ROOT / "connectors").glob("*.py") if "HostedModel" in path.read_text(encoding="utf-8")}
    assert "claude" in hosted
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
