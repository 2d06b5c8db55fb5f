"""Make the binary documents of the demonstration world (docx, pdf, pptx, xlsx) from readable text, to the same bytes each time.

Why: a reviewer can read and change the text under `office/`, and a build of today and one of next year are the same file, so
that the index of the demonstration never changes by itself. `office/manuals/cx/service/x.docx.md` becomes
`documents/manuals/cx/service/x.docx`; a workbook stands in `x.xlsx.yaml`.

    python deploy/demo/make_office.py            write what differs
    python deploy/demo/make_office.py --check    exit 1 if a committed file is not what this script makes

The Markdown read here is a small part of the language: front matter, # headings, paragraphs, - and 1. lists, | tables, `code`
and **bold**. In a presentation every ## opens a slide, and `Note:` at the start of a paragraph makes it a speaker's note.

INVARIANT: the same text gives the same bytes under one zlib (checked by `--check` on every committed file).
"""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

HERE = Path(__file__).resolve().parent
MADE_ON = datetime(2026, 11, 2, 8, 0, 0, tzinfo=UTC)
CODE_OR_BOLD = re.compile(r"(\*\*[^*]+\*\*|`[^`]+`)")


@dataclass(frozen=True, slots=True)
class Block:
    kind: Literal["heading", "text", "bullet", "step", "table"]
    text: str = ""
    level: int = 0
    rows: tuple[tuple[str, ...], ...] = ()


# --- reading ----------------------------------------------------------------------------------------------------------


def parse_front(text: str) -> tuple[dict[str, str], str]:
    if not text.startswith("---\n"):
        return {}, text
    front, body = text[4:].split("\n---\n", 1)
    return {key: str(value) for key, value in yaml.safe_load(front).items()}, body


def parse_blocks(body: str) -> list[Block]:
    blocks: list[Block] = []
    for part in re.split(r"\n\s*\n", body.strip("\n")):
        lines = part.split("\n")
        while lines:
            blocks.append(_take(lines))
    return blocks


def _take(lines: list[str]) -> Block:
    first = lines.pop(0)
    if heading := re.match(r"(#+)\s+(.*)", first):
        return Block("heading", heading[2], len(heading[1]))
    if first.startswith("|"):
        table = [first]
        while lines and lines[0].startswith("|"):
            table.append(lines.pop(0))
        cells = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
        return Block("table", rows=tuple(row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)))
    item = re.match(r"(-|\d+\.)\s+(.*)", first)
    kind: Literal["text", "bullet", "step"] = "text" if item is None else "bullet" if item[1] == "-" else "step"
    text = first if item is None else item[2]
    while lines and not re.match(r"(#|\||-\s|\d+\.\s)", lines[0]):
        text += " " + lines.pop(0).strip()
    return Block(kind, text)


def runs(text: str) -> Iterator[tuple[str, Literal["plain", "bold", "code"]]]:
    for part in CODE_OR_BOLD.split(text):
        if part.startswith("**"):
            yield part[2:-2], "bold"
        elif part.startswith("`"):
            yield part[1:-1], "code"
        elif part:
            yield part, "plain"


# --- writing ----------------------------------------------------------------------------------------------------------


def build_docx(front: dict[str, str], blocks: list[Block]) -> bytes:
    import docx

    document = docx.Document()
    _stamp(document.core_properties, front)
    styles = {"bullet": "List Bullet", "step": "List Number", "text": "Normal"}
    for block in blocks:
        if block.kind == "heading":
            document.add_heading(block.text, min(block.level - 1, 4))
        elif block.kind == "table":
            table = document.add_table(rows=0, cols=len(block.rows[0]), style="Table Grid")
            for row in block.rows:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    _write_runs(cell.paragraphs[0], text)
        else:
            _write_runs(document.add_paragraph(style=styles[block.kind]), block.text)
    return _saved(document)


def _write_runs(paragraph: Any, text: str) -> None:
    for part, look in runs(text):
        run = paragraph.add_run(part)
        run.bold = look == "bold" or None
        if look == "code":
            run.font.name = "Courier New"


def _stamp(properties: Any, front: dict[str, str]) -> None:
    properties.title = front.get("title", "")
    properties.author = front.get("author", "Fabrikam Industrial")
    properties.version = front.get("version", "")
    properties.subject = front.get("subject", "")
    properties.keywords = front.get("keywords", "")
    properties.comments = ""
    properties.last_modified_by = ""
    properties.created = properties.modified = MADE_ON
    properties.revision = 1


def build_pdf(front: dict[str, str], blocks: list[Block]) -> bytes:
    from reportlab.lib import colors
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

    sheet = getSampleStyleSheet()
    story: list[Any] = []
    step = 0
    for block in blocks:
        step = step + 1 if block.kind == "step" else 0
        if block.kind == "heading":
            if block.level == 2 and story and front.get("pages") == "chapter":
                story.append(PageBreak())
            story.append(Paragraph(_markup(block.text), sheet[f"Heading{min(block.level, 4)}"]))
        elif block.kind == "table":
            cells = [[Paragraph(_markup(cell), sheet["BodyText"]) for cell in row] for row in block.rows]
            look = TableStyle([("GRID", (0, 0), (-1, -1), 0.4, colors.grey), ("VALIGN", (0, 0), (-1, -1), "TOP")])
            story += [Table(cells, repeatRows=1, style=look), Spacer(1, 8)]
        else:
            mark = {"bullet": "\u2022 ", "step": f"{step}. ", "text": ""}[block.kind]
            story += [Paragraph(mark + _markup(block.text), sheet["BodyText"]), Spacer(1, 3)]
    saved = io.BytesIO()
    margins = {"leftMargin": 56, "rightMargin": 56, "topMargin": 60, "bottomMargin": 60}
    author = front.get("author", "Fabrikam Industrial")
    template = SimpleDocTemplate(saved, pagesize=A4, title=front.get("title", ""), author=author, invariant=1, **margins)
    footer = _pdf_footer(front)
    template.build(story, onFirstPage=footer, onLaterPages=footer)
    return saved.getvalue()


def _pdf_footer(front: dict[str, str]) -> Callable[[Any, Any], None]:
    def draw(canvas: Any, template: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(56, 36, f"{front.get('title', '')} | page {template.page}")

    return draw


def _markup(text: str) -> str:
    looks = {"plain": "{}", "bold": "<b>{}</b>", "code": '<font face="Courier">{}</font>'}
    escaped = ((part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), look) for part, look in runs(text))
    return "".join(looks[look].format(part) for part, look in escaped)


def build_pptx(front: dict[str, str], blocks: list[Block]) -> bytes:
    import pptx
    from pptx.util import Inches, Pt

    show = pptx.Presentation()
    _stamp(show.core_properties, front)
    slide: Any = None
    for block in blocks:
        if block.kind == "heading" and block.level <= 2:
            slide = show.slides.add_slide(show.slide_layouts[0 if block.level == 1 else 1])
            slide.shapes.title.text = block.text
        elif block.kind == "table":
            place = (Inches(0.6), Inches(3.4), Inches(8.8), Inches(0.35 * len(block.rows)))
            table = slide.shapes.add_table(len(block.rows), len(block.rows[0]), *place).table
            for i, row in enumerate(block.rows):
                for j, text in enumerate(row):
                    table.cell(i, j).text = "".join(part for part, _ in runs(text))
                    table.cell(i, j).text_frame.paragraphs[0].runs[0].font.size = Pt(12)
        elif block.text.startswith("Note:"):
            slide.notes_slide.notes_text_frame.text = block.text[5:].strip()
        else:
            _write_slide_line(slide.placeholders[1].text_frame, block)
    return _saved(show)


def _write_slide_line(frame: Any, block: Block) -> None:
    paragraph = frame.paragraphs[0] if not frame.text else frame.add_paragraph()
    paragraph.text = "".join(part for part, _ in runs(block.text))
    paragraph.level = 1 if block.kind == "bullet" else 0


def build_xlsx(book: dict[str, Any]) -> bytes:
    import openpyxl
    from openpyxl.styles import Font

    workbook = openpyxl.Workbook()
    workbook.remove(workbook.active)
    workbook.properties.title = book["title"]
    workbook.properties.creator = book.get("author", "Fabrikam Industrial")
    for name, sheet in book["sheets"].items():
        page = workbook.create_sheet(name)
        for note in sheet.get("notes", []):
            page.append([note])
        for number, row in enumerate(csv.reader(io.StringIO(sheet["rows"]), skipinitialspace=True)):
            page.append([_typed(cell) for cell in row])
            if number == 0:
                for cell in page[page.max_row]:
                    cell.font = Font(bold=True)
    return _saved(workbook)


def _typed(cell: str) -> str | int | float:
    if re.fullmatch(r"-?(0|[1-9]\d*)", cell):
        return int(cell)
    return float(cell) if re.fullmatch(r"-?\d+\.\d+", cell) else cell


def _saved(thing: Any) -> bytes:
    saved = io.BytesIO()
    thing.save(saved)
    return _without_clock(saved.getvalue())


def _without_clock(data: bytes) -> bytes:
    """An Office file is a zip that carries the minute of its making in each entry, and openpyxl writes `modified` itself."""
    stamp = MADE_ON.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    saved = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in sorted(old.namelist(), key=lambda name: (name != "[Content_Types].xml", name)):
            content = old.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb"(W3CDTF\">)[^<]*", rb"\g<1>" + stamp, content)
            new.writestr(zipfile.ZipInfo(name, MADE_ON.timetuple()[:6]), content, zipfile.ZIP_DEFLATED)
    return saved.getvalue()


# --- all of them ------------------------------------------------------------------------------------------------------

BUILDERS = {".docx": build_docx, ".pdf": build_pdf, ".pptx": build_pptx}


def build(path: Path) -> bytes:
    text = path.read_text(encoding="utf-8")
    if path.name.endswith(".xlsx.yaml"):
        return build_xlsx(yaml.safe_load(text))
    front, body = parse_front(text)
    return BUILDERS[path.suffixes[-2]](front, parse_blocks(body))


def main(check: bool) -> int:
    differing = []
    for path in sorted((HERE / "office").rglob("*.*.*")):
        target = HERE / "documents" / path.relative_to(HERE / "office").with_suffix("")
        made = build(path)
        if not target.exists() or target.read_bytes() != made:
            differing.append(target)
            if not check:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(made)
    for target in differing:
        print(("differs: " if check else "wrote ") + str(target.relative_to(HERE)))
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
