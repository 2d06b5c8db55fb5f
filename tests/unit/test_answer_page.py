"""deploy/answer.md names every flag of `ask`, every key of the doors, every field of an answer and of a record, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args, get_origin

import pytest
import typer
from pydantic import BaseModel

from router.decision import decision_model
from router.domain import Answer, Record
from router.doors import cli
from router.doors.bodies import AnswerBody, AskBody
from router.egress import DISCLOSED_AS
from tests.world import ROOT

PAGE = (ROOT / "deploy" / "answer.md").read_text(encoding="utf-8")
TABLES = [part.split("\n\n")[0].splitlines()[2:] for part in re.split(r"\n\n(?=\| )", PAGE)[1:]]


def column(table: int, at: int) -> set[str]:
    """What stands in backquotes in one column of one table."""
    cells = [re.split(r"(?<!\\)\|", row)[at + 1] for row in TABLES[table]]
    return {found for cell in cells for found in re.findall(r"`([^`]+)`", cell)}


def paths(annotation: Any, path: str = "") -> set[str]:
    """Where the leaves of a model stand in its JSON; a list of models is marked with brackets."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        named = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        return {leaf for name, inner in named.items() for leaf in paths(inner, f"{path}.{name}".lstrip("."))}
    inner = [one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    if not inner:
        return {path}
    return paths(inner[0], path + ("[]" if get_origin(annotation) is list else ""))


def test_every_flag_of_ask_is_there():
    command = typer.main.get_command(cli.app).commands["ask"]
    options = {max(one.opts, key=len) for one in command.params if one.param_type_name == "option"}
    assert column(0, 0) == (options - {"--help"}) | {"QUESTION"}


def test_every_key_of_the_doors_is_there():
    assert column(0, 1) == set(AskBody.model_fields)


def test_every_field_of_an_answer_is_there():
    refusal = {"refusal.code", "refusal.reason"}  # a problem of its own over HTTP
    assert column(1, 0) == paths(AnswerBody) | refusal
    assert {re.split(r"[.\[]", path)[0] for path in column(1, 0)} == {field.name for field in fields(Answer)}


def test_every_field_of_a_record_is_there():
    assert column(1, 1) == {field.alias or name for name, field in decision_model().model_fields.items()}
    row = PAGE[PAGE.index("In the ledger a record is a row of") :].split("\n")[0]
    assert set(re.findall(r"`(\w+)`", row)) == {field.name for field in fields(Record)}


@pytest.mark.parametrize("place", ["deploy/answer.md", "policies/README.md"])
def test_every_purpose_is_there(place):
    text = (ROOT / place).read_text(encoding="utf-8")
    assert set(DISCLOSED_AS.values()) <= set(re.findall(r"`(\w+)`", text))
    assert column(2, 0) == set(DISCLOSED_AS.values())
