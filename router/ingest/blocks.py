"""What parsing yields, and how it says no. These values cross the border of the parser's process, as JSON.

INVARIANT: nothing that a parser process sends is executed or unpickled by the parent: replies are JSON of these shapes
(tests/unit/test_ingest_parse.py::test_reply_is_plain_json).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from router.domain import Span

BlockKind = Literal["heading", "paragraph", "table", "code"]
Reason = Literal[
    "encrypted", "no_text_layer", "empty", "not_text", "corrupt", "too_large", "bomb", "timeout", "memory", "crashed",
    "changed_while_read", "unsupported", "hostile_xml", "bad_front_matter",
]  # fmt: skip
REASONS: tuple[str, ...] = get_args(Reason)
TRANSIENT = frozenset({"timeout", "memory", "crashed", "changed_while_read"})
"""Reasons that may be gone at the next try; documents that failed so are tried again by every run."""


class Unreadable(Exception):  # noqa: N818 (says what the document is)
    """This document cannot be indexed. `reason` is for programs, `detail` for people; neither quotes the document."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """What one document may cost. A document above a limit is refused whole and reported, never cut."""

    file_bytes: int = 64 * 1024 * 1024
    text_chars: int = 5_000_000
    unpacked_bytes: int = 100 * 1024 * 1024
    unpacked_ratio: int = 100
    cells: int = 2_000_000
    pages: int = 5_000
    memory_bytes: int = 2 * 1024 * 1024 * 1024
    seconds: float = 30.0


LIMITS = ParseLimits()


NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of structure. `level` of a heading from 1; `header_lines` of a table; for code `scope` (enclosing names),
    `name` and `parts`, which join to exactly the block's text."""

    kind: BlockKind
    text: str
    span: Span = NOWHERE
    level: int = 0
    header_lines: int = 0
    scope: str = ""
    name: str = ""
    parts: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document as read. `front_matter` is what the author wrote above the text (labels among it), `meta` what the format
    says (from, to, date, author). `language` is the programming language, or what the document says of itself."""

    title: str
    blocks: tuple[Block, ...]
    front_matter: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)
    language: str | None = None

    @property
    def chars(self) -> int:
        return sum(len(block.text) for block in self.blocks)


def to_plain(parsed: Parsed) -> dict[str, Any]:
    return {
        "title": parsed.title,
        "blocks": [_block_to_plain(block) for block in parsed.blocks],
        "front_matter": _dates_to_text(parsed.front_matter),
        "meta": dict(parsed.meta),
        "language": parsed.language,
    }


def from_plain(plain: Mapping[str, Any]) -> Parsed:
    """Raises KeyError, TypeError or ValueError on anything that is not the shape of `to_plain`."""
    return Parsed(
        str(plain["title"]),
        tuple(_block_from_plain(block) for block in plain["blocks"]),
        dict(plain["front_matter"]),
        {str(key): str(value) for key, value in plain["meta"].items()},
        None if plain["language"] is None else str(plain["language"]),
    )


def _block_to_plain(block: Block) -> list[Any]:
    span = block.span
    parts = [_block_to_plain(part) for part in block.parts]
    place = [span.page, list(span.lines) if span.lines else None, span.sheet]
    return [block.kind, block.text, place, block.level, block.header_lines, block.scope, block.name, parts]


def _block_from_plain(plain: Sequence[Any]) -> Block:
    kind, text, (page, lines, sheet), level, header_lines, scope, name, parts = plain
    if kind not in get_args(BlockKind) or not isinstance(text, str):
        raise ValueError("not a block")
    span = Span(
        None if page is None else int(page),
        (int(lines[0]), int(lines[1])) if lines else None,
        None if sheet is None else str(sheet),
    )
    inner = tuple(_block_from_plain(part) for part in parts)
    return Block(kind, text, span, int(level), int(header_lines), str(scope), str(name), inner)


def _dates_to_text(value: Any) -> Any:
    """YAML's dates as ISO text; the label step reads both."""
    from datetime import date

    if isinstance(value, Mapping):
        return {key: _dates_to_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_dates_to_text(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def clean_title(text: str, most: int = 300) -> str:
    """One line without control characters; titles are shown and indexed."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:most]


_LINE_ENDS = dict.fromkeys((0x85, 0x2028, 0x2029), "\n")


def clean_text(text: str) -> str:
    """Text as stores take it: no NUL, no lone surrogate, line ends as newlines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").translate(_LINE_ENDS)
    return text.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def decode(data: bytes) -> str:
    """Text by byte order mark, UTF-8, or what charset_normalizer finds; `not_text` for anything with control bytes."""
    for mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe\0\0", "utf-32"),
        (b"\0\0\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return _checked(_strict(data, encoding))
    try:
        return _checked(data.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    if b"\0" in data:
        raise Unreadable("not_text", "bytes that are no text")
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    if best is None:
        raise Unreadable("not_text", "no known encoding fits")
    try:
        return _checked(data.decode(best.encoding))
    except UnicodeDecodeError:
        return _checked(data.decode(best.encoding, "replace"))


def _strict(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise Unreadable("not_text", f"damaged {encoding.upper()}") from None


def _checked(text: str) -> str:
    if "\0" in text:
        raise Unreadable("not_text", "a NUL character as in no text")
    sample = text[:100_000]
    odd = sum(1 for char in sample if ord(char) < 32 and char not in "\t\n\r\f\v\x1b\x1c\x1d\x1e\x1f") + sample.count("\ufffd")
    if odd > 2 + len(sample) // 100:
        raise Unreadable("not_text", "control characters as in no text")
    return text
