"""Readers for text that people type: Markdown, plain text, CSV, notebooks. Structure is kept with its line numbers.

Own scanner for Markdown: it needs line spans and tables whole, and must lose no character; a renderer gives neither.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from router.domain import Span
from router.ingest.blocks import Block, Parsed, Unreadable, clean_text, clean_title
from router.ingest.front_matter import split_front_matter

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_SUBJECT = re.compile(r"(?i)\s*(?:subject|re|title|betreff|concerns?)\s*:\s*(\S.*)")
_LONG_TITLE = 120
_MOST_OUTPUT_LINES = 30


# --- Markdown ---------------------------------------------------------------------------------------------------------


def read_markdown(text: str) -> Parsed:
    text = clean_text(text)
    front, lines, first = split_front_matter(text)
    blocks = tuple(scan_markdown(lines, first))
    title = clean_title(str(front.get("title") or "")) or _leading_heading(blocks)
    language = front.get("language")
    return Parsed(title, blocks, front, {}, language if isinstance(language, str) else None)


def _leading_heading(blocks: Sequence[Block]) -> str:
    """The first heading, when it is of the top level and nothing but a few words stands before it."""
    for at, block in enumerate(blocks[:3]):
        if block.kind == "heading":
            return clean_title(block.text) if block.level == 1 or at == 0 else ""
    return ""


def scan_markdown(lines: Sequence[str], first: int) -> Iterable[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        kind, end, level, header = _extent(lines, at)
        if kind == "heading":
            atx = _ATX.match(line)
            text = (atx.group(2) or "").strip() if atx else line.strip()
        else:
            text = "\n".join(piece.rstrip() for piece in lines[at:end])
        if text.strip():
            yield Block(kind, text, Span(lines=(first + at, first + end - 1)), level=level, header_lines=header)
        at = end


def _extent(lines: Sequence[str], at: int) -> tuple[Any, int, int, int]:
    """(kind, index after the block, heading level, header lines) of the block that starts at line `at`."""
    line = lines[at]
    if atx := _ATX.match(line):
        return "heading", at + 1, len(atx.group(1)), 0
    if fence := _FENCE.match(line):
        return "code", _fence_end(lines, at, fence.group(1)), 0, 0
    following = lines[at + 1] if at + 1 < len(lines) else ""
    if "|" in line and "-" in following and "|" in following and _RULE.match(following):
        end = next((n for n in range(at + 2, len(lines)) if "|" not in lines[n]), len(lines))
        return "table", end, 0, 2
    setext = _SETEXT.match(following)
    if setext and not line.lstrip().startswith(("-", "*", "+", ">", "|", "+-")) and len(line.strip()) <= 2 * _LONG_TITLE:
        return "heading", at + 2, 1 if setext.group(1)[0] == "=" else 2, 0
    end = at + 1
    while end < len(lines) and lines[end].strip() and not _starts_block(lines, end):
        end += 1
    return "paragraph", end, 0, 0


def _starts_block(lines: Sequence[str], at: int) -> bool:
    if _ATX.match(lines[at]) or _FENCE.match(lines[at]):
        return True
    following = lines[at + 1] if at + 1 < len(lines) else ""
    return "|" in lines[at] and "|" in following and _RULE.match(following) is not None


def _fence_end(lines: Sequence[str], at: int, mark: str) -> int:
    for end in range(at + 1, len(lines)):
        closing = lines[end].strip()
        if closing.startswith(mark[0] * len(mark)) and not closing.strip(mark[0]):
            return end + 1
    return len(lines)


# --- plain text -------------------------------------------------------------------------------------------------------


def read_text(text: str) -> Parsed:
    """Paragraphs at blank lines. The first line is the title when it is short and has more text below it, with the subject
    that may stand under it; a first line in capitals heads its paragraph."""
    found = tuple(paragraphs(clean_text(text).removeprefix("\ufeff")))
    if not found:
        return Parsed("", ())
    lines = found[0].text.split("\n")
    more = len(found) > 1 or len(lines) > 1
    title = clean_title(lines[0]) if more and 2 < len(lines[0].strip()) <= _LONG_TITLE else ""
    subject = _SUBJECT.match(lines[1]) if title and len(lines) > 1 else None
    if subject:
        title = clean_title(f"{title}: {subject.group(1)}")
    return Parsed(title, (found[0], *(block for paragraph in found[1:] for block in _headed(paragraph))))


def _headed(paragraph: Block) -> Iterable[Block]:
    first, _, rest = paragraph.text.partition("\n")
    letters = [char for char in first if char.isalpha()]
    if rest and len(letters) >= 3 and len(first) <= _LONG_TITLE // 2 and all(char.isupper() for char in letters):
        assert paragraph.span.lines is not None
        begin, end = paragraph.span.lines
        yield Block("heading", first.strip(), Span(lines=(begin, begin)), level=2)
        yield Block("paragraph", rest, Span(lines=(begin + 1, end)))
    else:
        yield paragraph


def paragraphs(text: str, first: int = 1) -> Iterable[Block]:
    lines = text.split("\n")
    for blank, group in itertools.groupby(enumerate(lines, first), key=lambda item: not item[1].strip()):
        if not blank:
            numbered = list(group)
            body = "\n".join(line.rstrip() for _, line in numbered)
            yield Block("paragraph", body, Span(lines=(numbered[0][0], numbered[-1][0])))


# --- tables and notebooks ---------------------------------------------------------------------------------------------


def read_csv(text: str) -> Parsed:
    text = clean_text(text).removeprefix("\ufeff")
    try:
        dialect: Any = csv.Sniffer().sniff(text[:8192], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    csv.field_size_limit(10_000_000)
    try:
        rows = [row for row in csv.reader(io.StringIO(text), dialect) if any(cell.strip() for cell in row)]
    except csv.Error:
        raise Unreadable("corrupt", "not a table of separated values") from None
    block = table_block(rows, Span(lines=(1, text.count("\n") + (not text.endswith("\n")))))
    return Parsed("", (block,) if block else ())


def table_block(rows: Sequence[Sequence[object]], span: Span) -> Block | None:
    """One line a row, cells parted by bars. The first row is the header when none of its cells is empty or a number."""
    lines = [" | ".join(cell_text(cell) for cell in _trim(row)) for row in rows]
    if not any(line.strip(" |") for line in lines):
        return None
    first = [cell_text(cell) for cell in _trim(rows[0])]
    header = len(rows) > 1 and len(first) > 1 and all(cell and not _is_number(cell) for cell in first)
    return Block("table", "\n".join(lines), span, header_lines=int(header))


def _trim(row: Sequence[object]) -> Sequence[object]:
    end = len(row)
    while end and (row[end - 1] is None or not str(row[end - 1]).strip()):
        end -= 1
    return row[:end]


def cell_text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return " ".join(clean_text(str(cell)).split())


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace(",", "").replace("-", "").replace("%", "").strip().isdigit()


def read_notebook(text: str) -> Parsed:
    """Cells in order: Markdown as Markdown, code as code, textual outputs after their cell."""
    try:
        book = json.loads(text)
        cells = book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
        blocks = [block for cell in cells for block in _cell_blocks(cell)]
        language = book.get("metadata", {}).get("kernelspec", {}).get("language") or "python"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("corrupt", "not a notebook") from None
    return Parsed(_leading_heading(blocks), tuple(blocks), {}, {}, str(language))


def _cell_blocks(cell: Mapping[str, Any]) -> Iterable[Block]:
    source = clean_text(_joined(cell.get("source", cell.get("input", ""))))
    if cell["cell_type"] == "code":
        if source.strip():
            yield Block("code", source.strip("\n"), Span())
        for output in cell.get("outputs", []):
            shown = clean_text(_joined(output.get("text") or output.get("data", {}).get("text/plain", ""))).strip("\n")
            if shown.strip():
                yield Block("paragraph", "\n".join(shown.split("\n")[:_MOST_OUTPUT_LINES]), Span())
    elif cell["cell_type"] == "markdown":
        yield from (replace(block, span=Span()) for block in scan_markdown(source.split("\n"), 1))
    elif source.strip():
        yield Block("paragraph", source, Span())


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(str(line) for line in source)
