"""PDF with a text layer, page by page through pdfium: lines by their places, paragraphs by the space between them.

A heading is a short line set larger than the page's usual text; cells of a table are parted where the gap inside a line is
wide. What has no text layer is said to have none.

INVARIANT: a PDF without a text layer is a failure and never an empty document (tests/faults/test_documents.py::test_scan).
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from router.domain import Span
from router.ingest.blocks import Block, Parsed, ParseLimits, Unreadable, clean_text, clean_title

_LEAST_CHARS, _LEAST_CHARS_A_PAGE = 12, 4
_LARGER = 1.15  # a heading's size over the usual one
_WIDE_GAP = 1.8  # a gap between cells, in font sizes
_PARAGRAPH_GAP = 1.75  # from line to line, in font sizes
_LONG_HEADING = 150
_DIGITS = re.compile(r"\d+")
_LINE_END_HYPHEN = re.compile("(?<=[^\\W\\d_])[\ufffe\x02](?=[a-z])")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    cells: tuple[str, ...]
    size: float
    top: float
    bottom: float


def read_pdf(data: bytes, limits: ParseLimits) -> Parsed:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("encrypted", "a PDF with a password") from None
        raise Unreadable("corrupt", "a PDF that cannot be opened") from None
    try:
        count = len(document)
        if count > limits.pages:
            raise Unreadable("too_large", f"{count} pages; the limit is {limits.pages}")
        pages = [_page_lines(document, at) for at in range(count)]
        facts = document.get_metadata_dict(skip_empty=True)
    finally:
        document.close()
    chars = sum(len("".join(line.text.split())) for lines in pages for line in lines)
    if chars < max(_LEAST_CHARS, _LEAST_CHARS_A_PAGE * count):
        raise Unreadable("no_text_layer", f"{count} pages and {chars} characters; run it through text recognition first")
    pages = _without_running_lines(pages)
    usual = statistics.median([line.size for lines in pages for line in lines for _ in range(1 + len(line.text) // 20)] or [10.0])
    blocks = [block for at, lines in enumerate(pages, 1) for block in _page_blocks(lines, at, usual)]
    bare = [str(at) for at, lines in enumerate(pages, 1) if not lines]
    meta = {"author": clean_title(facts.get("Author", "")), "pages_without_text": ", ".join(bare)}
    return Parsed(_title(facts, blocks), tuple(blocks), {}, {name: value for name, value in meta.items() if value})


def _title(facts: dict[str, str], blocks: Sequence[Block]) -> str:
    """The title the file gives itself, unless it is a file name or a program's word; else a heading at the very top."""
    named = clean_title(facts.get("Title", ""))
    if named and not re.search(r"(?i)^(untitled|anonymous|microsoft word|document\d*|\(.*\))|\.\w{2,4}$", named):
        return named
    top = next((clean_title(block.text) for block in blocks[:2] if block.kind == "heading"), "")
    return "" if re.match(r"\d+(\.\d+)*\.?\s", top) else top


def _without_running_lines(pages: list[list[_Line]]) -> list[list[_Line]]:
    """Pages without the header and footer that most of them share, page numbers aside."""
    shared: list[set[str]] = []
    for end in (0, -1):
        ends = Counter(_DIGITS.sub("#", lines[end].text) for lines in pages if len(lines) > 2)
        shared.append({text for text, times in ends.items() if times >= 2 and 2 * times > len(pages)})
    kept: list[list[_Line]] = []
    for lines in pages:
        inner = len(lines) > 2
        first = int(inner and _DIGITS.sub("#", lines[0].text) in shared[0])
        last = len(lines) - int(inner and _DIGITS.sub("#", lines[-1].text) in shared[1])
        kept.append(lines[first:last])
    return kept


def _page_lines(document: Any, at: int) -> list[_Line]:
    page = document[at]
    try:
        textpage = page.get_textpage()
        try:
            return list(_lines(textpage))
        finally:
            textpage.close()
    finally:
        page.close()


def _lines(textpage: Any) -> Iterator[_Line]:
    count = textpage.count_chars()
    text = textpage.get_text_range(0, count) if count > 0 else ""
    if len(text) != count:  # characters outside the basic plane shift the indexes: places cannot be trusted
        for line in text.splitlines():
            if line.strip():
                yield _Line(_clean(line), (_clean(line),), 0.0, 0.0, 0.0)
        return
    at = 0
    for raw in re.split(r"(\r\n|\r|\n)", text):
        if raw.strip():
            yield _line(textpage, raw, at)
        at += len(raw)


def _line(textpage: Any, raw: str, at: int) -> _Line:
    import pypdfium2.raw as pdfium

    first = at + len(raw) - len(raw.lstrip())
    size = float(pdfium.FPDFText_GetFontSize(textpage, first)) or 10.0
    left, bottom, right, top = textpage.get_charbox(first, loose=True)
    height = top - bottom
    size = height / 1.2 if size <= 1.5 and height > 1.5 else size  # scaled by the page's matrix and not by the font
    cells: list[str] = []
    start = 0
    for match in re.finditer(r"\s+", raw.rstrip()):
        if match.start() <= first - at:
            continue
        before = textpage.get_charbox(at + match.start() - 1)
        after = textpage.get_charbox(at + match.end())
        if after[0] - before[2] > _WIDE_GAP * size:
            cells.append(_clean(raw[start : match.start()]))
            start = match.end()
    cells.append(_clean(raw[start:]))
    del left, right
    return _Line(" ".join(cells), tuple(cells), round(size, 1), top, bottom)


def _clean(text: str) -> str:
    """One line. A hyphen at a line's end goes between small letters only: a part number keeps it."""
    text = _LINE_END_HYPHEN.sub("", text)
    return " ".join(clean_text(text.replace("\ufffe", "-").replace("\x02", "-")).split())


def _page_blocks(lines: Sequence[_Line], page: int, usual: float) -> Iterator[Block]:
    span = Span(page=page)
    for group in _groups(_rows(lines), usual):
        if group[0].size >= _LARGER * usual and len(group) <= 2 and len(" ".join(line.text for line in group)) <= _LONG_HEADING:
            level = 1 if group[0].size >= 1.5 * usual else 2
            yield Block("heading", " ".join(line.text for line in group), span, level=level)
        elif len(group) > 1 and sum(len(line.cells) > 1 for line in group) * 2 > len(group):
            yield Block(
                "table",
                "\n".join(" | ".join(line.cells) for line in group),
                span,
                header_lines=1 if len(group[0].cells) > 1 else 0,
            )
        else:
            yield Block("paragraph", "\n".join(" | ".join(line.cells) for line in group), span)


def _rows(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Pieces on one height, as a table's cells come, in one line."""
    held: _Line | None = None
    for line in lines:
        level = held is not None and held.top > 0 and abs(held.bottom - line.bottom) < 0.3 * max(held.size, 1.0)
        if held is not None and level:
            cells = (*held.cells, *line.cells)
            held = _Line(
                " ".join(cells), cells, max(held.size, line.size), max(held.top, line.top), min(held.bottom, line.bottom)
            )
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held


def _groups(lines: Iterable[_Line], usual: float) -> Iterator[list[_Line]]:
    """Lines that belong together: no wide space between them, no change of size, no jump back up (a new column)."""
    group: list[_Line] = []
    for line in lines:
        if group and _parted(group[-1], line, usual):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _parted(above: _Line, line: _Line, usual: float) -> bool:
    if above.top == 0 and line.top == 0:
        return False
    step = above.bottom - line.bottom
    larger = (above.size >= _LARGER * usual) != (line.size >= _LARGER * usual) or abs(above.size - line.size) > 0.25 * usual
    tabular = len(above.cells) > 1 and len(line.cells) > 1
    return larger or step < -0.5 * usual or step > (2.6 if tabular else _PARAGRAPH_GAP) * max(line.size, above.size, 1.0)
