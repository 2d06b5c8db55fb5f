"""Structural contexts: a few words of the document around a chunk, for search only. Pure functions; no model.

Of code: the types that its file declares, the types and the function that the chunk stands under. Of other documents: the
facts of their front matter (product, period…) and the document's other headings. Title and heading path stand in front of
every chunk anyway, so a context never repeats them. Regular expressions over lines, not a syntax tree: they read ten
languages alike, also passages whose file name is unknown, and are what was measured (adr/0021).

INVARIANT: a context is made of its own document and nothing else (tests/unit/test_ingest_context.py::
test_a_context_knows_its_own_document_only), so whoever may see the chunk may see what its context was made from.
INVARIANT: a context takes no room from the text: `CONTEXT_TOKENS` are set aside where chunks are cut (…::
test_context_and_text_fit_the_model).
INVARIANT: each function takes time linear in its text, and contexts in the number of chunks (…::
test_hostile_text_takes_linear_time, ::test_many_chunks_and_headings_take_linear_time).
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from router.domain import Chunk

Count = Callable[[str], int]

VERSION = "structure.1"
"""Of everything below; a document whose contexts were made by another version is made again."""

CONTEXT_TOKENS = 32
FIRST_NAMES, LAST_TYPES = 3, 3
_LONGEST_LINE, _LONGEST_NAME, _MOST_SCOPES, _MOST_HEADINGS = 300, 60, 20_000, 64
_NAME = r"[A-Za-z_$][\w$]*"
_MODIFIERS = (
    r"(?:(?:export|default|declare|pub(?:\([\w: ]{0,40}\))?|public|private|protected|internal|abstract|final|sealed|static|open|data"
    r"|unsafe|inline|partial|readonly|async|typedef|const|extern|override|synchronized|virtual|constexpr)\s+)"
)
_TYPE = re.compile(
    rf"\s*{_MODIFIERS}*(?:template\s*<[^>]*>\s*)?(?P<kind>class|struct|enum(?:\s+class|\s+struct)?|interface|@interface|record"
    rf"|trait|union|object|protocol|type)\s+(?:[A-Z][A-Z0-9_]+\s+(?=[A-Za-z_]))?(?P<name>{_NAME})"
    r"(?=\s*(?P<next>[<({:\[=]|(?:extends|implements|where|final|permits|struct|interface|func|map)\b|$))"
)
_TABLE = re.compile(
    rf"\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:table|view)\s+(?:if\s+not\s+exists\s+)?({_NAME}(?:\.{_NAME})?)",
    re.I,
)
_IMPL = re.compile(r"\s*(?:unsafe\s+)?impl\b(?P<rest>[^{;]*)")
_OWNER = re.compile(r"func\s*\(\s*\w*\s*\*?\s*(\w+)|(?:[\w:<>&*~, ]{0,120}?[ &*])?([A-Za-z_]\w*)(?:<[^>]*>)?::~?\w+\s*\(")
_FUNCTION = re.compile(
    rf"\s*{_MODIFIERS}*(?:fn|def|func|function|fun)\s+(?:\([^)]*\)\s*)?({_NAME})"
    rf"|\s*{_MODIFIERS}+[\w:<>\[\], *&?.]*?({_NAME})\s*\("
    rf"|\s*(?:export\s+)?(?:const|let)\s+({_NAME})\s*=\s*(?:async\s*)?(?:\([^()]*\)|\w+)\s*=>"
    r"|\s*(?:TEST(?:_[FP]|_CASE)?|BENCHMARK)\s*\(([^)]*)\)"
)
_PLAIN_FUNCTION = re.compile(
    r"(?!(?:return|else|new|throw|case|using|typedef|delete|goto|namespace|if|for|while|switch)\b)"
    rf"[A-Za-z_][\w:<>, *&]*?[ *&](?:[\w<>]+::)*~?({_NAME})\s*\("
)
_WORDS = re.compile(r"\w+")
_COMMENT = ("//", "/*", "*", "--")
FACTS = (
    "product", "product_line", "machine", "model", "models", "series", "part", "parts", "applies_to", "subject", "topic", "tags",
    "keywords", "region", "site", "period", "year", "quarter",
)  # fmt: skip
"""Front matter that says what a document is about; who wrote it and when does not."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Of one file: where types are declared or continued, and where functions begin; (line from 1, names), by line. `first` are
    the names that the file is known by: its first types, or functions where it has none."""

    scopes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    functions: tuple[tuple[int, str], ...] = ()
    first: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.scopes or self.functions)


def read_outline(text: str) -> Outline:
    """By the look of each line; a line that is no declaration, a comment or longer than anybody writes says nothing."""
    lines = text.split("\n")
    scopes: list[tuple[int, tuple[str, ...]]] = []
    functions: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE or not line or line.lstrip().startswith(_COMMENT):
            continue
        if names := _types(line, lines[number : number + 3]):
            scopes.append((number, names))
        if name := _function(line, lines[number : number + 6]):
            functions.append((number, name))
        if len(scopes) + len(functions) > _MOST_SCOPES:
            break
    types = dict.fromkeys(name for _, names in scopes for name in names)
    first = tuple(types or dict.fromkeys(name for _, name in functions))[:FIRST_NAMES]
    return Outline(tuple(scopes), tuple(functions), first)


def _types(line: str, after: Sequence[str]) -> tuple[str, ...]:
    if match := _TYPE.match(line):
        return (_short(match["name"]),) if _declares(match["kind"], match["next"]) else ()
    if match := _TABLE.match(line):
        return (_short(match[1]),)
    if match := _IMPL.match(line):
        rest = (
            match["rest"] if "{" in line else "\n".join([line[match.start("rest") :], *(item[:_LONGEST_LINE] for item in after)])
        )
        return _implemented(rest.split("{")[0])
    if match := _OWNER.match(line):
        return (_short(match[1] or match[2]),)
    return ()


def _declares(kind: str, following: str) -> bool:
    """`type = …` and `record result = …` declare nothing of that name; `type Names = …` does."""
    if kind == "record":
        return following in {"(", "<", "{"}
    return kind == "type" or following != "="


def _implemented(rest: str) -> tuple[str, ...]:
    """Rust: of `impl<T> Trait<T> for Type<T> where …` the type, then the trait."""
    plain = _without_angles(re.split(r"\swhere\b", rest, maxsplit=1)[0])
    found = [_WORDS.findall(part.split("+")[0]) for part in re.split(r"\bfor\b", plain)]
    return tuple(_short(words[-1]) for words in reversed(found) if words)


def _without_angles(text: str) -> str:
    kept, depth = [], 0
    for char in text:
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(char)
    return "".join(kept)


def _function(line: str, after: Sequence[str]) -> str:
    if _TYPE.match(line):
        return ""
    if match := _FUNCTION.match(line):
        name = next((group for group in match.groups() if group), "")
        return _short(" ".join(_WORDS.findall(name)))
    if not line[0].isalpha() and line[0] != "_":
        return ""
    match = _PLAIN_FUNCTION.match(line)
    if match is None:
        return ""
    body = "".join([line[match.end() :], *(item[:_LONGEST_LINE] for item in after)])  # C: a body follows, no semicolon before it
    brace, end = body.find("{"), body.find(";")
    return _short(match[1]) if brace >= 0 and not 0 <= end < brace else ""


def _short(name: str) -> str:
    return name[:_LONGEST_NAME]


# --- contexts ---------------------------------------------------------------------------------------------------------


def code_context(outline: Outline, line: int, without: Iterable[str] = ()) -> str:
    """What of its file a reader at `line` would have to be told, without what stands in front of the chunk anyway."""
    under = bisect.bisect_right(outline.functions, line, key=lambda function: function[0])
    place = [outline.functions[under - 1][1]] if under else []
    told = [*outline.first, *_latest_types(outline, line), *place]
    if not outline.scopes:
        told = [*place, *outline.first]
    said = {word for text in without for word in _WORDS.findall(text)}
    return " ".join(name for name in dict.fromkeys(told) if name not in said)


def _latest_types(outline: Outline, line: int) -> list[str]:
    """The last few types declared or continued up to a line, in order."""
    names: dict[str, None] = {}
    for at in range(bisect.bisect_right(outline.scopes, line, key=lambda scope: scope[0]) - 1, -1, -1):
        names.update(dict.fromkeys(reversed(outline.scopes[at][1])))
        if len(names) >= LAST_TYPES:
            break
    return list(names)[:LAST_TYPES][::-1]


def prose_context(told: Sequence[tuple[str, int]], without: Sequence[str]) -> str:
    """Facts and other headings of the document, each with its word pieces, as many as there is room for."""
    said = " ".join(without).casefold()
    kept: list[str] = []
    left = CONTEXT_TOKENS
    for part, cost in told:
        if part.casefold() not in said and cost < left:
            kept.append(part)
            left -= cost + 1
    return "; ".join(kept)


def told_facts(meta: Mapping[str, str]) -> dict[str, str]:
    """What front matter says that its document is about."""
    folded = {re.sub(r"[^a-z]+", "_", name.casefold()).strip("_"): value for name, value in meta.items()}
    return {name: folded[name] for name in FACTS if folded.get(name)}


@dataclass(frozen=True, slots=True)
class Around:
    """What of one document its chunks' contexts are made from. `whole` is the text of code, line by line; `told` are facts and
    headings of any other document."""

    whole: str = ""
    outline: Outline = Outline()
    told: tuple[str, ...] = ()

    @property
    def reserve_tokens(self) -> int:
        """What the contexts may take of the model's limit, to be left free where chunks are cut."""
        return CONTEXT_TOKENS if self.outline or self.told else 0


def read_code_around(whole: str) -> Around:
    return Around(whole, read_outline(whole))


def read_prose_around(headings: Iterable[str], meta: Mapping[str, str]) -> Around:
    """A heading that is the only one says nothing of what is around it. Of very many the first are enough to fill a context."""
    names = dict.fromkeys(" ".join(heading.split()) for heading in itertools.islice(headings, _MOST_HEADINGS))
    facts = (" ".join(value.split()) for value in told_facts(meta).values())
    return Around(told=tuple(part for part in dict.fromkeys((*facts, *(names if len(names) > 1 else ()))) if part))


def with_contexts(chunks: Sequence[Chunk], around: Around, count: Count) -> tuple[Chunk, ...]:
    """The chunks of one document, in order, with their contexts, cut to what was set aside for them."""
    if not around.reserve_tokens:
        return tuple(chunks)
    if around.told:
        told = [(part, count(part)) for part in around.told]
        return tuple(replace(chunk, context=prose_context(told, (chunk.title, *chunk.heading_path))) for chunk in chunks)
    lines = zip(chunks, _lines(chunks, around.whole), strict=True)
    contexts = (code_context(around.outline, line, (chunk.title, *chunk.heading_path)) for chunk, line in lines)
    return tuple(replace(chunk, context=_fitting(context, count)) for chunk, context in zip(chunks, contexts, strict=True))


def _lines(chunks: Sequence[Chunk], whole: str) -> list[int]:
    """The line of the whole on which each chunk begins: as its span says, else where its text is found."""
    lines: list[int] = []
    line, at = 1, 0
    for chunk in chunks:
        if chunk.span.lines is not None:
            line = chunk.span.lines[0]
        elif whole and (found := whole.find(chunk.text, at)) >= 0:
            line, at = line + whole.count("\n", at, found), found
        lines.append(line)
    return lines


def _fitting(context: str, count: Count) -> str:
    words = context.split(" ")
    while words and count(" ".join(words)) > CONTEXT_TOKENS:
        words.pop()
    return " ".join(words)
