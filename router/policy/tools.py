"""Query tools as governance.yaml declares them: a question with places for values, and the semantic form that answers it.

    tools:
      open_claims:
        description: The open claims of a region             # its words may stand in questions, and those of the examples
        examples: ["Which claims are open in {region}?", …]  # three or more; a question must say all that one of them says
        answer: list                                         # list, value, yesno, count, or several of them
        params:
          region: { type: enum, field: claims.region, values: [North, South] }
          amount: { type: num, field: claims.amount, min: 0, cue: [over, more than], required: false }
        form: { from: claims, show: [claims.claim_id], where: [{ field: claims.region, op: "=", value: "{region}" }] }

INVARIANT: a tool that could not be asked, or whose query cannot be made, is a fault with file, line and key
(tests/sql/tools/test_declared.py::test_faults_name_the_place).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, get_args

from router.catalog import Catalog
from router.errors import Refused
from router.policy.governance import DatasetFacts
from router.policy.schema import DATASET
from router.policy.strict import Entry, nearest
from router.sql.form import AnyOf, Compare, Exists, Form, Pred, Ref
from router.sql.parse_form import parse_form, parse_ref
from router.sql.tool_text import Answer, fold_words
from router.sql.tool_values import Parameter
from router.sql.tools import Tool, check_form, read_example, slots_of

MIN_EXAMPLES = 3
_BRACES = re.compile(r"\{(\w*)\}")
_ALLOWED: Mapping[str, frozenset[str]] = {
    "text": frozenset({"pattern"}),
    "int": frozenset({"min", "max"}),
    "num": frozenset({"min", "max"}),
    "date": frozenset({"min", "max"}),
    "enum": frozenset({"values"}),
    "ref": frozenset(),
}


def parse_tools(section: Entry | None, catalog: Catalog | None, datasets: Mapping[str, DatasetFacts]) -> tuple[Tool, ...]:
    """Every tool of the section. Their queries are looked at once nothing else is wrong."""
    if section is None:
        return ()
    tools: dict[str, Tool] = section.children(_tool)
    if not section.faults.items:
        for tool in tools.values():
            _check_query(tool, section, catalog, datasets)
    return tuple(tools.values())


def _tool(name: str, entry: Entry) -> Tool | None:
    before = len(entry.faults.items)
    entry.only(("description", "examples", "answer", "params", "form"))
    if not DATASET.fullmatch(name):
        entry.fault("", "is no name for a tool", "use lower case letters, digits and underscores")
    params = _params(entry)
    tool = Tool(
        name=name,
        description=entry.text("description"),
        examples=entry.words("examples"),
        answer=_answer(entry),
        params=params,
        form=_form(entry) or Form(""),
        line=entry.body.line(""),
    )
    if len(entry.faults.items) == before:
        _check_examples(tool, entry)
        _check_places(tool, entry)
    return tool if len(entry.faults.items) == before else None


def _answer(entry: Entry) -> frozenset[Answer]:
    value = entry.body.get("answer")
    listed = value if isinstance(value, list) else [value]
    known = get_args(Answer)
    for one in listed or [None]:
        if one not in known:
            entry.fault("answer", f"needs `answer`, one or several of {', '.join(known)}", nearest(str(one), known))
            return frozenset()
    return frozenset(listed)


def _form(entry: Entry) -> Form | None:
    body = entry.child("form")
    if body is None:
        return None
    try:
        return parse_form(body.body)
    except Refused as refused:
        entry.fault("form", f"has a form that is none ({refused.code}): {refused.message}", refused.hint)
        return None


# --- parameters -----------------------------------------------------------------------------------------------------------


def _params(entry: Entry) -> tuple[Parameter, ...]:
    section = entry.child("params", required=False)
    return () if section is None else tuple(section.children(_param).values())


def _param(name: str, entry: Entry) -> Parameter | None:
    before = len(entry.faults.items)
    entry.only(("type", "field", "pattern", "values", "min", "max", "required", "cue"))
    if not DATASET.fullmatch(name):
        entry.fault("", "is no name for a parameter", "use lower case letters, digits and underscores")
    kind = entry.text("type")
    if kind not in _ALLOWED:
        entry.fault("type", f"has the type `{kind}`", nearest(kind, _ALLOWED))
        return None
    for key in ("pattern", "values", "min", "max"):
        if key in entry.body and key not in _ALLOWED[kind]:
            entry.fault(key, f"has `{key}`, which means nothing for {kind}", "take it out")
    parameter = Parameter(
        name=name,
        type=kind,  # type: ignore[arg-type]
        field=_field(entry, kind),
        pattern=_pattern(entry),
        values=entry.words("values") if kind == "enum" else (),
        least=_bound(entry, "min", kind),
        most=_bound(entry, "max", kind),
        required=entry.flag("required") if "required" in entry.body else True,
        cues=_cues(entry, kind),
    )
    return parameter if len(entry.faults.items) == before else None


def _field(entry: Entry, kind: str) -> Ref | None:
    if "field" not in entry.body:
        if kind == "ref":
            entry.fault("", "needs `field`, whose stored values it takes", "add `field: dataset.field`")
        return None
    text = entry.text("field")
    try:
        ref = parse_ref(text, "field")
    except Refused:
        ref = Ref("", "")
    if not ref.dataset or not ref.field:
        entry.fault("field", f"has the field `{text}`", "write `dataset.field`")
        return None
    return ref


def _pattern(entry: Entry) -> str:
    if "pattern" not in entry.body:
        return ""
    pattern = entry.text("pattern")
    try:
        re.compile(pattern)
    except re.error as error:
        entry.fault("pattern", f"has a pattern that is no regular expression ({error.msg})", "correct it")
    else:
        if re.search(r"[*+?}]\)?[*+{]|\)[*+{]", pattern):
            entry.fault("pattern", "has a pattern that repeats what repeats", "such a pattern can take for ever: write it flat")
    return pattern


def _bound(entry: Entry, key: str, kind: str) -> Decimal | date | None:
    value = entry.body.get(key)
    if value is None or key not in _ALLOWED[kind]:
        return None
    if kind == "date":
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            entry.fault(key, f"needs `{key}`, a day", "write `2026-01-31`")
            return None
    if type(value) is int or (kind == "num" and type(value) is float):
        return Decimal(str(value))
    entry.fault(key, f"needs `{key}`, a {'whole ' if kind == 'int' else ''}number", f"write `{key}: 1`")
    return None


def _cues(entry: Entry, kind: str) -> tuple[tuple[str, ...], ...]:
    if "cue" not in entry.body:
        if kind in ("int", "num"):
            entry.fault("", "is a number without `cue`", 'say which words stand before it: `cue: [over, "more than"]`')
        return ()
    cues = tuple(fold_words(text) for text in entry.words("cue"))
    if not all(cues):
        entry.fault("cue", "has a cue without a word", "write the words that stand before the value")
    return cues


# --- checks ---------------------------------------------------------------------------------------------------------------


def _check_examples(tool: Tool, entry: Entry) -> None:
    if len(tool.examples) < MIN_EXAMPLES:
        entry.fault("examples", f"has fewer than {MIN_EXAMPLES} examples", "write down how people ask")
    names = {param.name for param in tool.params}
    required = {param.name for param in tool.params if param.required}
    for example in tool.examples:
        said = _BRACES.findall(example)
        if unknown := [name for name in said if name not in names]:
            entry.fault("examples", f"has `{{{unknown[0]}}}` in an example, which is no parameter", nearest(unknown[0], names))
        elif missing := sorted(required - set(said)):
            entry.fault("examples", f"has the example `{example}` without `{{{missing[0]}}}`", "write the place of its value")
        elif len(set(said)) != len(said):
            entry.fault("examples", f"has the example `{example}` with a value twice", "a question gives each value once")
        else:
            _check_example(tool, example, entry)


def _check_example(tool: Tool, example: str, entry: Entry) -> None:
    read = read_example(tool, example)
    if any(f"{{{name}}}" in read.content for name in _BRACES.findall(example)):
        entry.fault("examples", f"has the example `{example}` with a value that no cue stands before", "see `cue`")
    elif read.negated:
        entry.fault("examples", f"has the example `{example}`, which denies", "a question with `not` never matches a tool")
    elif not read.shapes & tool.answer:
        asked = ", ".join(sorted(read.shapes)) or "nothing that a tool answers"
        entry.fault("examples", f"has the example `{example}`, which asks for {asked}", "correct `answer` or the example")


def _check_places(tool: Tool, entry: Entry) -> None:
    """Every parameter is used, every name in braces is one, and what may be missing can fall away."""
    used = slots_of(tool.form.where, tool.form.having)
    names = {param.name for param in tool.params}
    if stray := sorted(used - names):
        entry.fault("form", f"has `{{{stray[0]}}}` in its form, which is no parameter", nearest(stray[0], names))
    for param in tool.params:
        if param.name not in used:
            entry.fault(
                "params", f"does not use the parameter `{param.name}`", f'write "{{{param.name}}}" in a `value` of the form'
            )
        elif not param.required and not any(_alone(pred, param.name) for pred in tool.form.where):
            entry.fault("params", f"has `{param.name}`, which may be missing, deep in its form", "make it a condition of its own")
    if braces := sorted(_braces_elsewhere(entry.body["form"])):
        entry.fault("form", f"has `{braces[0]}` where no value stands", "parameters stand alone in `value`")


def _alone(pred: Pred, name: str) -> bool:
    return isinstance(pred, Compare | AnyOf | Exists) and slots_of((pred,)) == {name}


def _braces_elsewhere(body: Any, key: str = "") -> set[str]:
    if isinstance(body, Mapping):
        return {found for name, inner in body.items() for found in _braces_elsewhere(inner, str(name))}
    if isinstance(body, Sequence) and not isinstance(body, str):
        return {found for inner in body for found in _braces_elsewhere(inner, key)}
    if not isinstance(body, str) or not _BRACES.search(body):
        return set()
    return set() if key == "value" and _BRACES.fullmatch(body) else {body}


def _check_query(tool: Tool, section: Entry, catalog: Catalog | None, datasets: Mapping[str, DatasetFacts]) -> None:
    """The tool's query can be made over the whole catalogue, and the values that it takes may be known."""
    entry = Entry(section.file, f"{section.name}.{tool.name}", section.body[tool.name], section.faults)
    if catalog is None:
        entry.fault("", "asks of a catalogue, and there is none", "add catalog.yaml")
        return
    try:
        check_form(tool, catalog, {name: facts.min_group for name, facts in datasets.items() if facts.min_group is not None})
    except Refused as refused:
        entry.fault("form", f"has a form that cannot be compiled ({refused.code}): {refused.message}", refused.hint)
        return
    for param in tool.params:
        facts = datasets.get(param.field.dataset.lower()) if param.type == "ref" and param.field else None
        column = facts.column(param.field.field) if facts and param.field else None
        if column is not None and column.values == "no":
            entry.fault(
                "params", f"takes stored values of `{param.field}`, which are not open", "write `values: true` at the column"
            )
