"""Readers for PDF and the office formats, each through its own well-kept library, all inside a parser process.

INVARIANT: an office file with a document type or entity declaration is refused before a library sees it
(tests/faults/test_documents.py::test_external_entity).
INVARIANT: a PDF without a text layer is a failure and never an empty document (tests/faults/test_documents.py::test_scan).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

from router.domain import Span
from router.ingest.blocks import Block, Parsed, ParseLimits, Unreadable, clean_text, clean_title
from router.ingest.markup import cell_text, table_block

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_SKIPPED = {
    f"{_W}moveFrom", f"{_W}del", f"{_W}pPr", f"{_W}rPr", "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}  # fmt: skip


_BETWEEN = {f"{_M}f": "/", f"{_M}sSup": "^", f"{_M}sSub": "_"}


def check_xml(data: bytes) -> None:
    """No part of the archive may declare a document type or entities, in any encoding of XML."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.lower().endswith((".xml", ".rels", ".vml")):
                text = archive.read(name).replace(b"\0", b"")
                if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
                    raise Unreadable("hostile_xml", "it declares a document type or entities")


# --- DOCX -------------------------------------------------------------------------------------------------------------


def read_docx(data: bytes) -> Parsed:
    import docx
    import docx.table
    import docx.text.paragraph

    check_xml(data)
    document: Any = docx.Document(io.BytesIO(data))
    blocks: list[Block] = []
    title = clean_title(document.core_properties.title or "")
    for item in document.iter_inner_content():
        if isinstance(item, docx.table.Table):
            block = table_block([[_docx_text(cell) for cell in row.tr.tc_lst] for row in _docx_rows(item)], Span())
            blocks.extend([block] if block else [])
            continue
        text = _docx_text(item._p).strip()  # noqa: SLF001 (text of runs alone drops links, equations and text boxes)
        if text:
            blocks.append(_docx_block(text, str(item.style.name if item.style is not None else "")))
    blocks.extend(_docx_notes(document))
    first = next((block.text for block in blocks[:5] if block.kind == "heading" and block.level <= 1), "")
    return Parsed(clean_title(first) or title, tuple(_merged_lists(blocks)), {}, _properties(document.core_properties))


class _Row:
    def __init__(self, tr: Any) -> None:
        self.tr = tr


def _docx_rows(table: Any) -> Iterator[_Row]:
    yield from (_Row(tr) for tr in table._tbl.tr_lst)  # noqa: SLF001 (row.cells repeats merged cells)


def _docx_block(text: str, style: str) -> Block:
    if style == "Title":
        return Block("heading", " ".join(text.split()), level=1)
    if style.startswith("Heading"):
        number = style.removeprefix("Heading").strip()
        return Block("heading", " ".join(text.split()), level=min(int(number), 6) if number.isdecimal() else 1)
    if style.startswith("List"):
        return Block("paragraph", f"- {text}", name="list")
    return Block("paragraph", text)


def _docx_text(element: Any) -> str:
    """All text that is shown: runs, links, equations, text boxes, insertions; not what was deleted or moved away."""
    out: list[str] = []
    _collect(element, out)
    return clean_text("".join(out))


def _collect(element: Any, out: list[str]) -> None:
    for child in element:
        tag = child.tag
        if tag in _SKIPPED or not isinstance(tag, str):
            continue
        if tag in {f"{_W}t", f"{_M}t"}:
            out.append(child.text or "")
        elif tag == f"{_W}tab":
            out.append("\t")
        elif tag in {f"{_W}br", f"{_W}cr"}:
            out.append("\n")
        elif tag in _BETWEEN:
            _collect_formula(child, _BETWEEN[tag], out)
        else:
            _collect(child, out)
            if tag == f"{_W}p":
                out.append("\n")


def _collect_formula(element: Any, sign: str, out: list[str]) -> None:
    """The parts of a fraction, power or index with their sign between them, in brackets where they are long."""
    parts: list[str] = []
    for child in element:
        inner: list[str] = []
        _collect(child, inner)
        text = "".join(inner).strip()
        if text:
            parts.append(text if len(text) <= 3 or text.isalnum() else f"({text})")
    out.append(sign.join(parts))


def _docx_notes(document: Any) -> Iterator[Block]:
    """Comments with their author, then foot and end notes."""
    for comment in document.comments:
        if comment.text.strip():
            yield Block(
                "paragraph", f"Comment by {clean_title(comment.author or 'unknown', 80)}: {clean_text(comment.text).strip()}"
            )
    for relation in document.part.rels.values():
        if relation.reltype.endswith(("/footnotes", "/endnotes")) and not relation.is_external:
            from lxml import etree

            root = etree.fromstring(relation.target_part.blob, etree.XMLParser(resolve_entities=False, no_network=True))
            for note in root:
                if text := _docx_text(note).strip():
                    yield Block("paragraph", f"Note: {text}")


def _merged_lists(blocks: Iterable[Block]) -> Iterator[Block]:
    """Items of one list in one block."""
    items: list[str] = []
    for block in blocks:
        if block.name == "list":
            items.append(block.text)
            continue
        if items:
            yield Block("paragraph", "\n".join(items))
            items = []
        yield block
    if items:
        yield Block("paragraph", "\n".join(items))


def _properties(properties: Any) -> dict[str, str]:
    found = {"author": properties.author, "subject": properties.subject, "keywords": properties.keywords}
    meta = {name: clean_title(value) for name, value in found.items() if value}
    if isinstance(properties.modified, datetime):
        meta["modified"] = properties.modified.date().isoformat()
    return meta


# --- PPTX -------------------------------------------------------------------------------------------------------------


def read_pptx(data: bytes) -> Parsed:
    import pptx

    check_xml(data)
    deck: Any = pptx.Presentation(io.BytesIO(data))
    blocks: list[Block] = []
    for number, slide in enumerate(deck.slides, 1):
        blocks.extend(_slide_blocks(slide, Span(page=number)))
    first = next((block.text for block in blocks if block.kind == "heading"), "")
    title = clean_title(deck.core_properties.title or "")
    generic = title.lower() in {"", "powerpoint presentation"}
    return Parsed(clean_title(first) if generic else title, tuple(blocks), {}, _properties(deck.core_properties))


def _slide_blocks(slide: Any, span: Span) -> Iterator[Block]:
    heading = slide.shapes.title
    if heading is not None and heading.text_frame.text.strip():
        yield Block("heading", " ".join(clean_text(heading.text_frame.text).split()), span, level=1)
    for shape in sorted(_shapes(slide.shapes), key=lambda shape: (shape.top or 0, shape.left or 0)):
        if heading is None or shape.shape_id != heading.shape_id:
            yield from _shape_blocks(shape, span)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = clean_text(slide.notes_slide.notes_text_frame.text).strip()
        if notes:
            yield Block("paragraph", f"Notes: {notes}", span)


def _shapes(shapes: Any, depth: int = 0) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < 20:
            yield from _shapes(shape.shapes, depth + 1)
        else:
            yield shape


def _shape_blocks(shape: Any, span: Span) -> Iterator[Block]:
    if getattr(shape, "has_table", False):
        block = table_block([[cell.text for cell in row.cells] for row in shape.table.rows], span)
        if block:
            yield block
    elif getattr(shape, "has_chart", False):
        yield from _chart_blocks(shape.chart, span)
    elif getattr(shape, "has_text_frame", False):
        lines = [("  " * paragraph.level) + clean_text(paragraph.text).strip() for paragraph in shape.text_frame.paragraphs]
        text = "\n".join(line for line in lines if line.strip())
        if text:
            yield Block("paragraph", text.replace("\v", "\n"), span)


def _chart_blocks(chart: Any, span: Span) -> Iterator[Block]:
    """Title and figures of a chart as a table."""
    if chart.has_title and chart.chart_title.has_text_frame and chart.chart_title.text_frame.text.strip():
        yield Block("paragraph", clean_text(chart.chart_title.text_frame.text).strip(), span)
    for plot in chart.plots:
        series = list(plot.series)
        rows = [["", *(item.name for item in series)]]
        rows += [
            [str(category), *(item.values[at] if at < len(item.values) else None for item in series)]
            for at, category in enumerate(plot.categories)
        ]
        block = table_block(rows, span) if len(rows) > 1 else None
        if block:
            yield Block("table", block.text, span, header_lines=1)


# --- XLSX and XLS -----------------------------------------------------------------------------------------------------


def read_xlsx(data: bytes, limits: ParseLimits) -> Parsed:
    import openpyxl

    check_xml(data)
    book: Any = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    left = limits.cells
    blocks: list[Block] = []
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # what the file says of its size is not believed
        rows: list[tuple[int, Sequence[object]]] = []
        for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
            left -= max(1, len(row))
            if left < 0:
                raise Unreadable("too_large", f"more than {limits.cells} cells")
            if any(cell is not None for cell in row):
                rows.append((number, row))
        blocks.extend(sheet_blocks(sheet.title, rows))
    return Parsed(clean_title(book.properties.title or ""), tuple(blocks), {}, {})


def _read_xls(data: bytes, limits: ParseLimits) -> Parsed:
    import xlrd
    import xlrd.biffh

    try:
        book = xlrd.open_workbook(file_contents=data, on_demand=True, logfile=io.StringIO())
    except xlrd.biffh.XLRDError as error:
        reason: Any = "encrypted" if "encrypt" in str(error).lower() else "corrupt"
        raise Unreadable(reason, "a workbook that cannot be opened") from None
    blocks: list[Block] = []
    left = limits.cells
    for sheet in book.sheets():
        left -= sheet.nrows * max(1, sheet.ncols)
        if left < 0:
            raise Unreadable("too_large", f"more than {limits.cells} cells")
        rows = [(at + 1, [_xls_cell(cell, book.datemode) for cell in sheet.row(at)]) for at in range(sheet.nrows)]
        blocks.extend(sheet_blocks(sheet.name, [(number, row) for number, row in rows if any(str(cell).strip() for cell in row)]))
    return Parsed("", tuple(blocks))


def _xls_cell(cell: Any, datemode: Any) -> object:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            return xlrd.xldate_as_datetime(cell.value, datemode)
        except (ValueError, OverflowError):
            return cell.value
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return xlrd.error_text_from_code.get(cell.value, "")
    return bool(cell.value) if cell.ctype == xlrd.XL_CELL_BOOLEAN else cell.value


def sheet_blocks(name: str, rows: Sequence[tuple[int, Sequence[object]]]) -> Iterator[Block]:
    """A heading for the sheet, then a table for each run of rows without an empty one between them."""
    title = clean_title(name)
    if rows:
        yield Block("heading", title, Span(lines=(rows[0][0], rows[0][0]), sheet=title), level=1)
    group: list[tuple[int, Sequence[object]]] = []
    for number, row in rows:
        if group and number > group[-1][0] + 1:
            yield from _sheet_table(title, group)
            group = []
        group.append((number, row))
    if group:
        yield from _sheet_table(title, group)


def _sheet_table(title: str, group: Sequence[tuple[int, Sequence[object]]]) -> Iterator[Block]:
    """Rows with one cell above the table are its caption, not its header."""
    while len(group) > 1 and sum(bool(cell_text(cell)) for cell in group[0][1]) == 1:
        number, row = group[0]
        caption = next(text for cell in row if (text := cell_text(_day(cell))))
        yield Block("paragraph", caption, Span(lines=(number, number), sheet=title))
        group = group[1:]
    span = Span(lines=(group[0][0], group[-1][0]), sheet=title)
    first = min((at for _, row in group for at, cell in enumerate(row) if cell_text(cell)), default=0)
    block = table_block([[_day(cell) for cell in row[first:]] for _, row in group], span)
    if block:
        yield block


def _day(cell: object) -> object:
    if isinstance(cell, datetime) and (cell.hour, cell.minute, cell.second) == (0, 0, 0):
        return cell.date().isoformat()
    return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat() if isinstance(cell, date) else cell


def read_ole(data: bytes, limits: ParseLimits) -> Parsed:
    """The old container of Microsoft: a message, a workbook, or an encrypted document."""
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as ole:
            if ole.exists("EncryptedPackage"):
                raise Unreadable("encrypted", "an office document with a password")
            if ole.exists("__properties_version1.0"):
                from router.ingest.mail import read_msg

                return read_msg(ole)
            workbook = ole.exists("Workbook") or ole.exists("Book")
    except OSError:
        raise Unreadable("corrupt", "a damaged container") from None
    if workbook:
        return _read_xls(data, limits)
    raise Unreadable("unsupported", "an old office format; save it as DOCX, PPTX or XLSX")
