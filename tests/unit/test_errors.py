"""One tree of errors, one shape, and messages that keep the house rules wherever they are written."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from router.errors import LedgerError, PointsmanError, PolicyError, Refused, SourceError, UsageError
from tests.world import ROOT

KINDS = (UsageError, PolicyError, Refused, SourceError, LedgerError)
NAMES = {"PointsmanError", *(kind.__name__ for kind in KINDS)}
FILES = [path for folder in ("router", "connectors") for path in sorted((ROOT / folder).rglob("*.py"))]


def calls(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in NAMES:
            yield node


def text_of(node) -> str | None:
    """A literal message; what is filled in stands as §."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "§" for part in node.values)
    return None


WRITTEN = [
    (f"{path.relative_to(ROOT)}:{call.lineno}", [text_of(argument) for argument in call.args[:3]])
    for path in FILES
    for call in calls(path)
]


def test_errors_are_written_in_many_places():
    assert len(WRITTEN) > 60


@pytest.mark.parametrize(("place", "texts"), WRITTEN, ids=[place for place, _ in WRITTEN])
def test_message_keeps_the_house_rules(place, texts):
    """Codes are stable names; messages and hints are lower case, without a full stop."""
    code, *said = [*texts, None, None, None][:3]
    if code is not None and "§" not in code:
        # The semantic half answers with the codes of the Ossie Foundation draft, spelled as there.
        known = r"[a-z][a-z0-9_]+|E[0-9]*(?:_[A-Z0-9]+)+" if place.startswith("router/sql/") else r"[a-z][a-z0-9_]+"
        assert re.fullmatch(known, code), (place, code)
    for text in said:
        if not text:
            continue
        first = text.lstrip("`§ ")[:1] if text.startswith(("`", "§")) else text[:1]
        assert not first.isupper() or re.match(r"[`§]|[A-Z]{2,}|PostgreSQL|SQLite|OpenSearch|UTF|YAML|TOML|Ctrl", text), (
            place,
            text,
        )
        assert not text.endswith((".", "!")) or text.endswith("..."), (place, text)
        assert "\n" not in text, (place, text)


@pytest.mark.parametrize("kind", KINDS)
def test_one_shape(kind):
    error = kind("some_code", "what happened", "what to do", decision_id="d-1")
    assert error.as_json() == {
        "error": {"code": "some_code", "message": "what happened", "hint": "what to do", "decision_id": "d-1"}
    }
    assert "decision_id" not in kind("c", "m").as_json()["error"]
    assert str(error) == "some_code: what happened"
    assert isinstance(error, PointsmanError)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_cross_process_borders_whole(kind):
    error = kind("some_code", "what `§\ud800` happened", "what to do", decision_id="d-1")
    if kind is SourceError:
        error.retryable = True
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.__dict__ == error.__dict__
    assert copy.args == error.args


def test_only_what_says_so_is_retryable():
    assert SourceError("c", "m").retryable is False
    assert SourceError("c", "m", retryable=True).retryable is True
