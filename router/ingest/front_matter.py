"""What an author wrote above the text: YAML between `---`, TOML between `+++`. It may narrow who may see the document.

Markdown also draws a rule with `---`, and prose may follow it: without a line like `key: value` that is text. Where a word of
labels stands in what looks like front matter and the whole cannot be read, the document is refused, however it was meant.

INVARIANT: front matter that cannot be read refuses the whole document, since it may narrow who may see it
(tests/faults/test_documents.py::test_front_matter_that_cannot_be_read, ::test_narrowing_that_is_not_understood).
INVARIANT: a rule drawn above ordinary prose is no front matter (tests/faults/test_documents.py::test_a_drawn_rule_is_text).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from router.ingest.blocks import Unreadable
from router.plain import NotPlain, parse_yaml

NARROWING_WORDS = ("groups", "sensitivity", "effective_from")
_OTHER_WORDS = ("tenant", "owner", "supersedes")
_MOST_LINES = 100  # an author's block is shorter; beyond it a line is text
_MOST_CHARS = 1_000
_MARK = re.compile(r"(-{3,}|\+{3,})(.*)", re.DOTALL)
_LINE_ENDS = re.compile("[\v\f\x1c-\x1e]")
_KEY = re.compile(r"\W*\w[\w .-]{0,40}?[\"']?\s*[:=](?!/)")
_STRUCTURE = re.compile(r"[\s\[\]{},+-]*|\s*#.*|\s*- .*|\s+.*", re.DOTALL)


def fold_name(name: str) -> str:
    """`Effective From`, `effective-from` and `effective_from` with a blank nobody sees are one name."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if unicodedata.category(char) not in {"Cf", "Cc", "Zs"} and char not in "_-")


def split_front_matter(text: str, *, prose: bool = True) -> tuple[dict[str, Any], list[str], int]:
    """(front matter, remaining lines, number of the first of them). In prose, a block whose first mark is missing counts, too;
    code and data often begin with names and values. Raises `Unreadable`."""
    lines = text.lstrip("\ufeff").split("\n")
    at = _first_line(lines)
    if at is None:
        return {}, lines, 1
    mark = _MARK.fullmatch(_visible(lines[at]))
    if mark is None:
        _refuse_labels(_leading_keys(lines[at:]) if prose else (), NARROWING_WORDS)
        return {}, lines, 1
    closing = ("...", mark[1]) if mark[1][0] == "-" else (mark[1],)
    end = next((n for n in range(at + 1, len(lines)) if _visible(lines[n]) in closing), None)
    if end is None or mark[2]:
        _refuse_labels([mark[2], *_leading_paragraphs(lines[at + 1 :])], NARROWING_WORDS + _OTHER_WORDS)
        return {}, lines, 1
    body = lines[at + 1 : end]
    front = _read_block(body, toml=mark[1][0] == "+")
    return ({}, lines, 1) if front is None else (front, lines[end + 1 :], end + 2)


def _read_block(body: Sequence[str], *, toml: bool) -> dict[str, Any] | None:
    """None for what is text between two drawn rules."""
    try:
        front = _parse_toml("\n".join(body)) if toml else parse_yaml("\n".join(body))
    except NotPlain as error:
        first = next((line for line in body if _visible(line)), "")
        if _KEY.match(_visible(first)) and not _STRUCTURE.fullmatch(first):
            raise Unreadable("bad_front_matter", str(error)) from None
        front = ""
    if front is None or isinstance(front, dict):
        return front or {}
    _refuse_labels(body[:_MOST_LINES], NARROWING_WORDS + _OTHER_WORDS, bare=True)
    return None


def _parse_toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        raise NotPlain("not valid TOML") from None


def _first_line(lines: Sequence[str]) -> int | None:
    """Index of the first line that is neither blank nor a comment."""
    inside = False
    for at, line in enumerate(lines[:_MOST_LINES]):
        seen = _visible(line)
        if not inside and not seen.startswith("<!--"):
            if seen:
                return at
            continue
        inside = "-->" not in seen
        if not inside and seen.rpartition("-->")[2].strip():
            return at
    return None


def _visible(line: str) -> str:
    """Without blanks and marks at its ends that nobody sees, full-width letters as plain ones."""
    line = line[:_MOST_CHARS]
    if line.isascii():
        return line.strip()
    line = unicodedata.normalize("NFKC", line)
    return "".join(char for char in line if unicodedata.category(char) != "Cf").strip()


def _leading_paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """The first paragraph, and each next one while all before it is like keys and values: what may be meant as a block."""
    ordinary = begun = False
    for line in lines[:_MOST_LINES]:
        seen = _visible(line)
        if not seen and begun and ordinary:
            return
        begun = begun or bool(seen)
        ordinary = ordinary or not (_KEY.match(seen) or _STRUCTURE.fullmatch(line))
        yield line


def _leading_keys(lines: Sequence[str]) -> list[str]:
    """The first paragraph when it is nothing but keys and values: front matter whose first mark is missing."""
    found: list[str] = []
    for line in lines[:_MOST_LINES]:
        seen = _visible(line)
        if not seen or _MARK.fullmatch(seen) or (found and seen.startswith("#")):
            break
        if seen.startswith("#") or not (_KEY.match(seen) or _STRUCTURE.fullmatch(line)):
            return []
        found.append(line)
    return found


def _refuse_labels(lines: Sequence[str], words: Sequence[str], *, bare: bool = False) -> None:
    """`bare` also takes `sensitivity restricted`, two words of which the first is one that narrows."""
    wanted = {fold_name(word) for word in words}
    narrowing = {fold_name(word) for word in NARROWING_WORDS}
    for part in (part for line in lines for part in _LINE_ENDS.split(line)):
        seen = _visible(part)
        if seen.startswith("#"):
            continue
        names = {fold_name(name) for name in re.findall(r"([^\W\d][\w \t-]{0,40}?)[\"']?\s*[:=]", seen)}
        first, *rest = seen.split() or [""]
        if names & wanted or (bare and len(rest) == 1 and fold_name(first.strip("-*'\"")) in narrowing):
            raise Unreadable(
                "bad_front_matter", "it begins like front matter with a label in it, and cannot be read as YAML or TOML"
            )
