"""Query tools: questions that reviewers wrote down with their query, and which of them a caller's question is.

A tool's body is a semantic form with `{parameter}` in value places, so it is compiled, read out and checked by the gate like any
other. Here is decided whether a question asks exactly what a tool answers; where that is not certain there is no match, and the
planner has the question. The words decide; similarity only ranks and can take a match away.

1. Each required parameter stands in the question once, valid; a number only behind one of its cues ("over 500").
2. The shape that is asked for (list, value, yes or no, count) is one that the tool answers.
3. Every other content word stands in the tool's own vocabulary, none denies, and all that one of its examples says is said.
4. Of several tools the one whose examples are nearest, by a margin; none below a floor.

INVARIANT: a tool that reads one column that the caller may not read unmasked does not exist
(tests/sql/tools/test_tools.py::test_a_masked_column_takes_the_tool_away).
INVARIANT: a value is a literal of its parameter's type and nothing else (…::test_values_are_literals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol

from router.catalog import Catalog
from router.errors import Refused
from router.sql.form import (
    STAR,
    AgainstAll,
    Aggregated,
    AnyOf,
    By,
    Compare,
    Exists,
    Explained,
    Form,
    Having,
    Pred,
    Ref,
    Scalar,
    Value,
)
from router.sql.tool_text import RANKING, RESERVED, Answer, Said, Token, fold_words, is_content, read_said, read_tokens
from router.sql.tool_values import NO_SLOTS, Found, Parameter, Phrases, build_phrases, find_values, sample

FLOOR = 0.5
MARGIN = 0.05

Similarity = Callable[[str, tuple[str, ...]], list[float]]
"""How near a text is to each of others, 1 for the same."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`words`, `said` and `phrases` are filled in for a caller: its vocabulary, its examples as read, and the stored values that
    its parameters may have."""

    name: str
    description: str
    examples: tuple[str, ...]
    answer: frozenset[Answer]
    params: tuple[Parameter, ...]
    form: Form
    line: int = 0
    words: frozenset[str] = frozenset()
    said: tuple[Said, ...] = ()
    phrases: tuple[tuple[str, Phrases], ...] = ()

    def param(self, name: str) -> Parameter | None:
        return next((one for one in self.params if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Matched:
    """The tool that a question is, the form with its values filled in, and how near the nearest example is."""

    tool: Tool
    form: Form
    parameters: tuple[tuple[str, Scalar], ...]
    explained: tuple[Explained, ...]
    score: float


class Stored(Protocol):
    """Distinct stored texts of a field, under the caller's row filter."""

    @property
    def dataset(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


# --- which tools exist ----------------------------------------------------------------------------------------------------


def granted_tools(
    tools: Iterable[Tool], catalog: Catalog, values: Iterable[Stored] = (), min_group: Mapping[str, int] | None = None
) -> tuple[Tool, ...]:
    """The tools that exist for a caller, ready to match. `catalog` is the caller's part of it."""
    granted = [_heard(tool, catalog) for tool in tools if _compiles(tool, catalog, min_group)]
    reserved = RESERVED.union(*(tool.words for tool in granted), _words(_all_names(catalog)))
    stored = tuple(values)
    folded: dict[str, set[tuple[str, ...]]] = {}
    for one in stored if any(param.type == "ref" for tool in granted for param in tool.params) else ():
        folded.setdefault(one.field.lower(), set()).update(map(fold_words, one.values))
    return tuple(replace(tool, phrases=_phrases(tool, stored, folded, reserved)) for tool in granted)


def check_form(tool: Tool, catalog: Catalog, min_group: Mapping[str, int] | None = None) -> None:
    """Raises `Refused` where the tool's query cannot be made over this catalogue, or a parameter's field is not in it."""
    from router.sql.compile import lower_form
    from router.sql.expressions import expand_ref

    for parameter in tool.params:
        if parameter.field is not None:
            expand_ref(catalog, parameter.field.dataset, parameter.field.field)
    lower_form(fill_form(tool, {one.name: Value(sample(one)) for one in tool.params}), catalog, min_group=min_group)


def _compiles(tool: Tool, catalog: Catalog, min_group: Mapping[str, int] | None) -> bool:
    try:
        check_form(tool, catalog, min_group)
    except Refused:
        return False
    return True


def _heard(tool: Tool, catalog: Catalog) -> Tool:
    """The tool with its examples as read and with its vocabulary."""
    said = tuple(read_example(tool, example) for example in tool.examples)
    told = [tool.description, *(param.name.replace("_", " ") for param in tool.params), *_names(tool.form, catalog)]
    words = _words(told) - RANKING
    return replace(tool, said=said, words=words.union(*(one.content for one in said), *(one.past for one in said)))


def _words(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in fold_words(text) if is_content(word))


def _phrases(
    tool: Tool, stored: Sequence[Stored], folded: Mapping[str, set[tuple[str, ...]]], reserved: frozenset[str]
) -> tuple[tuple[str, Phrases], ...]:
    """A stored value that is made of words of the catalogue, or stands in another field, too, must be quoted to be meant."""
    phrases = []
    for param in tool.params:
        if param.type == "enum":
            phrases.append((param.name, build_phrases(param.values)))
        elif param.type == "ref" and param.field is not None:
            field = param.field.field.lower()
            others = set[tuple[str, ...]]().union(*(words for name, words in folded.items() if name != field))
            own = [
                one.values for one in stored if (one.dataset.lower(), one.field.lower()) == (param.field.dataset.lower(), field)
            ]

            def quoted_only(words: tuple[str, ...], others: set[tuple[str, ...]] = others) -> bool:
                return words in others or reserved.issuperset(words)

            phrases.append((param.name, build_phrases((value for values in own for value in values), quoted_only)))
    return tuple(phrases)


def read_example(tool: Tool, example: str) -> Said:
    """An example as a question; what stands in braces is the value of a parameter."""
    tokens = read_tokens(example)
    taken: dict[int, str] = {}
    for parameter in tool.params:
        for found in find_values(parameter, tokens, {}, date.min, slots={parameter.name: parameter}):
            found.take(taken)
    return read_said(tokens, taken)


def fitting_tools(example: str, tool: Tool, tools: Sequence[Tool]) -> tuple[str, ...]:
    """The names of the tools that one example of a tool fits by its words: its own alone, where all is well."""
    slots = {param.name: param for param in tool.params}
    return tuple(one.name for one in tools if _fit(one, read_tokens(example), date(2000, 1, 1), slots) is not None)


def _all_names(catalog: Catalog) -> list[str]:
    names = [text for dataset in catalog.datasets for text in (dataset.name, *dataset.synonyms)]
    names += [text for dataset in catalog.datasets for field in dataset.fields for text in (field.name, *field.synonyms)]
    names += [text for metric in catalog.metrics for text in (metric.name, *metric.synonyms)]
    return [name.replace("_", " ") for name in names]


def _names(form: Form, catalog: Catalog) -> list[str]:
    """Names, labels and synonyms of the datasets and fields that the form speaks of."""
    refs = fields_of(form)
    names: list[str] = []
    for dataset in {ref.dataset.lower() for ref in refs} | {form.dataset.lower()}:
        if found := catalog.dataset(dataset):
            names += [found.name.replace("_", " "), *found.synonyms]
    for ref in refs:
        owner = catalog.dataset(ref.dataset)
        if field := owner.field(ref.field) if owner else None:
            names += [field.name.replace("_", " "), field.label or "", *field.synonyms]
    return names


def fields_of(form: Form) -> tuple[Ref, ...]:
    """Every field that a form names outright."""
    refs = [*form.show, *([form.time.ref] if form.time else [])]
    parts = [*form.measures, *form.by, *(order.by for order in form.order), *(one.measure for one in form.having)]
    refs += [part.ref for part in parts if isinstance(part, By)] + [part.of for part in parts if isinstance(part, Aggregated)]
    return tuple(ref for ref in (*refs, *_conditions(form.where)) if ref.field != STAR)


def _conditions(preds: Iterable[Pred]) -> list[Ref]:
    refs: list[Ref] = []
    for pred in preds:
        match pred:
            case Compare() | AgainstAll():
                refs.append(pred.ref)
            case AnyOf(inner):
                refs += _conditions(inner)
            case Exists():
                refs += _conditions(pred.where)
    return refs


# --- which tool a question is ---------------------------------------------------------------------------------------------


def match_tools(text: str, tools: Sequence[Tool], today: date, similarity: Similarity | None = None) -> Matched | None:
    """The one tool that answers exactly this question, or None. Raises nothing, whatever the text."""
    tokens = read_tokens(text)
    if not tokens:
        return None
    fitting = [one for tool in tools if (one := _fit(tool, tokens, today)) is not None]
    if similarity is None:
        return fitting[0][0] if len(fitting) == 1 else None
    ranked = sorted(
        (
            replace(matched, score=max(similarity(said.masked, tuple(one.masked for one in matched.tool.said))))
            for matched, said in fitting
        ),
        key=lambda matched: -matched.score,
    )
    if not ranked or ranked[0].score < FLOOR or (len(ranked) > 1 and ranked[0].score - ranked[1].score < MARGIN):
        return None
    return ranked[0]


def _fit(
    tool: Tool, tokens: tuple[Token, ...], today: date, slots: Mapping[str, Parameter] = NO_SLOTS
) -> tuple[Matched, Said] | None:
    """Rules 1 to 3 for one tool."""
    phrases = dict(tool.phrases)
    taken: dict[int, str] = {}
    values: dict[str, Found] = {}
    for parameter in sorted(tool.params, key=lambda one: one.type in ("int", "num")):  # a day holds numbers, too
        found = find_values(parameter, tokens, taken, today, phrases=phrases.get(parameter.name), slots=slots)
        if len(found) > 1 or (not found and parameter.required):
            return None
        for one in found:
            one.take(taken)
            values[parameter.name] = one
    said = read_said(tokens, taken)
    if said.negated or not said.shapes & tool.answer or not tool.words.issuperset((*said.content, *said.past)):
        return None
    if not _says_enough(tool, said):
        return None
    explained = (
        *(
            Explained(" ".join(tokens[at].text for at in sorted((*one.cue, *one.tokens))), _bound(tool, name))
            for name, one in values.items()
        ),
        *(Explained(word, f"tool {tool.name}") for word in dict.fromkeys(said.content)),
    )
    filled = {name: Value(one.value, one.said, "question") for name, one in values.items()}
    form = replace(fill_form(tool, filled), explained=explained)
    parameters = tuple((one.name, values[one.name].value) for one in tool.params if one.name in values)
    return Matched(tool, form, parameters, explained, 1.0), said


def _says_enough(tool: Tool, said: Said) -> bool:
    """One of the examples, of the same shape, says nothing that the question leaves out (`part` before a part number may be left
    out), and the question is about something that an example is about."""
    spare = {word for param in tool.params for word in fold_words(param.name.replace("_", " "))}
    about = {one.head for one in tool.said} | {""}
    return said.head in about and any(
        one.shapes & said.shapes and set(one.content) - spare <= set(said.content) for one in tool.said
    )


def _bound(tool: Tool, name: str) -> str:
    parameter = tool.param(name)
    return str(parameter.field) if parameter is not None and parameter.field is not None else name


# --- filling in -----------------------------------------------------------------------------------------------------------


def fill_form(tool: Tool, values: Mapping[str, Value]) -> Form:
    """The tool's form with values in place of names in braces. A condition on a parameter that was left out falls away."""
    where = tuple(pred for pred in tool.form.where if not slots_of((pred,)) - values.keys())
    having = tuple(replace(one, value=_value(one.value, values)) for one in tool.form.having)
    return replace(tool.form, where=tuple(_filled(pred, values) for pred in where), having=having)


def slots_of(preds: Iterable[Pred], having: Iterable[Having] = ()) -> frozenset[str]:
    """The names in braces among the values."""
    names: set[str] = {name for one in having if (name := _slot(one.value)) is not None}
    for pred in preds:
        match pred:
            case Compare():
                names |= {name for value in pred.values if (name := _slot(value)) is not None}
            case AnyOf(inner):
                names |= slots_of(inner)
            case Exists():
                names |= slots_of(pred.where)
    return frozenset(names)


def _slot(value: Value) -> str | None:
    plain = value.value
    return plain[1:-1] if isinstance(plain, str) and len(plain) > 2 and plain[0] == "{" and plain[-1] == "}" else None


def _filled(pred: Pred, values: Mapping[str, Value]) -> Pred:
    match pred:
        case Compare():
            return replace(pred, values=tuple(_value(value, values) for value in pred.values))
        case AnyOf(inner):
            return AnyOf(tuple(_filled(one, values) for one in inner))
        case Exists():
            return replace(pred, where=tuple(_filled(one, values) for one in pred.where))
        case AgainstAll():
            return pred


def _value(value: Value, values: Mapping[str, Value]) -> Value:
    name = _slot(value)
    return value if name is None else values[name]
