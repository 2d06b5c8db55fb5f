"""Reading residuals: each form of Cedar's, both ways round; and what is not understood raises."""

import pytest

from router.errors import PolicyError
from router.filters import ALWAYS, NEVER, And, Eq, Ge, Gt, Has, In, Le, Like, Lt, Not, Or, Overlaps, Within
from router.policy.residual import fold, negate, read_residual

R = {"unknown": [{"Value": "resource"}]}


def attr(name):
    return {".": {"left": R, "attr": name}}


def value(literal):
    return {"Value": literal}


def values(*literals):
    return {"Set": [value(literal) for literal in literals]}


def source(name, kind="Source"):
    return value({"__entity": {"type": f"Pointsman::{kind}", "id": name}})


def op(name, left, right):
    return {name: {"left": left, "right": right}}


def read(body, kind="when", at="alpha"):
    return fold(read_residual({"conditions": [{"kind": kind, "body": body}]}, "Document"), at)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (value(True), ALWAYS),
        (value(False), NEVER),
        (op("==", attr("a"), value("x")), Eq("a", "x")),
        (op("==", value(3), attr("a")), Eq("a", 3)),
        (op("!=", attr("a"), value("x")), Not(Eq("a", "x"))),
        (op("<", attr("a"), value(3)), Lt("a", 3)),
        (op("<=", attr("a"), value(3)), Le("a", 3)),
        (op(">", attr("a"), value(3)), Gt("a", 3)),
        (op(">=", attr("a"), value(3)), Ge("a", 3)),
        (op("<", value(3), attr("a")), Gt("a", 3)),
        (op("<=", value(3), attr("a")), Ge("a", 3)),
        (op(">", value(3), attr("a")), Lt("a", 3)),
        (op(">=", value(3), attr("a")), Le("a", 3)),
        (attr("flag"), Eq("flag", True)),
        ({"!": {"arg": attr("flag")}}, Not(Eq("flag", True))),
        ({"!": {"arg": {"!": {"arg": attr("flag")}}}}, Eq("flag", True)),
        ({"has": {"left": R, "attr": "a"}}, Has("a")),
        ({"like": {"left": attr("a"), "pattern": [{"Literal": "x"}, "Wildcard", {"Literal": "*"}]}}, Like("a", ("x", "*"))),
        ({"like": {"left": attr("a"), "pattern": []}}, Like("a", ("",))),
        (op("contains", values("x", "y"), attr("a")), In("a", frozenset({"x", "y"}))),
        (op("contains", attr("g"), value("x")), Overlaps("g", frozenset({"x"}))),
        (op("containsAny", attr("g"), values("x", "y")), Overlaps("g", frozenset({"x", "y"}))),
        (op("containsAny", values("x", "y"), attr("g")), Overlaps("g", frozenset({"x", "y"}))),
        (op("containsAll", values("x", "y"), attr("g")), Within("g", frozenset({"x", "y"}))),
        (op("containsAll", values(), attr("g")), Within("g", frozenset())),
        (op("containsAll", attr("g"), values("y", "x")), And((Overlaps("g", frozenset({"x"})), Overlaps("g", frozenset({"y"}))))),
        (op("containsAll", attr("g"), values()), ALWAYS),
        (op("in", R, source("alpha")), ALWAYS),
        (op("in", R, source("beta")), NEVER),
        (op("==", R, source("cohere", "Provider")), NEVER),
        (op("in", R, {"Set": [source("beta"), source("alpha")]}), ALWAYS),
        (op("in", R, source("alpha", "Group")), NEVER),
        ({"is": {"left": R, "entity_type": "Pointsman::Document"}}, ALWAYS),
        ({"is": {"left": R, "entity_type": "Pointsman::Column"}}, NEVER),
        ({"is": {"left": R, "entity_type": "Pointsman::Document", "in": source("beta")}}, NEVER),
        (op("&&", value(True), attr("flag")), Eq("flag", True)),
        (op("||", attr("flag"), value(True)), ALWAYS),
        (op("&&", op("in", R, source("beta")), attr("flag")), NEVER),
        ({"!": {"arg": op("&&", op("in", R, source("alpha")), attr("flag"))}}, Not(Eq("flag", True))),
    ],
)
def test_each_form(body, expected):
    assert read(body) == expected
    assert read(body, kind="unless") == negate(expected)


def test_negation_is_pushed_inward():
    inner = op("||", attr("a"), op("&&", attr("b"), {"!": {"arg": attr("c")}}))
    expected = And((Not(Eq("a", True)), Or((Not(Eq("b", True)), Eq("c", True)))))
    assert read(inner, kind="unless") == expected


def test_what_stands_behind_a_false_has_is_not_read():
    """Cedar leaves the access to the missing attribute in place: it can never be reached."""
    missing = {".": {"left": {"unknown": [{"Value": 'Pointsman::User::"u"'}]}, "attr": "region"}}
    guard = op("&&", {"has": {"left": R, "attr": "region"}}, value(False))
    assert read(op("&&", guard, op("==", missing, attr("region")))) == NEVER
    assert read(op("||", value(True), missing)) == ALWAYS


@pytest.mark.parametrize(
    "body",
    [
        op("==", attr("a"), attr("b")),
        op("==", R, source("d", "Document")),
        op("<", attr("a"), value("x")),
        op("<", attr("a"), value(True)),
        op("==", attr("a"), values("x")),
        op("containsAny", attr("g"), values("x", 1)),
        op("in", attr("a"), source("alpha")),
        op("in", R, value("alpha")),
        {"is": {"left": attr("a"), "entity_type": "Pointsman::Document"}},
        {"has": {"left": attr("a"), "attr": "b"}},
        {"if-then-else": {"if": value(True), "then": value(True), "else": value(False)}},
        {"isEmpty": {"arg": attr("g")}},
        op("+", attr("a"), value(1)),
        {".": {"left": {"unknown": [{"Value": 'Pointsman::User::"u"'}]}, "attr": "flag"}},
        {"unknown": [{"Value": "resource"}]},
        value(1),
        {"decimal": [value("1.0")]},
    ],
)
def test_not_understood(body):
    with pytest.raises(PolicyError) as caught:
        read(body)
    assert caught.value.code == "residual_unknown"
