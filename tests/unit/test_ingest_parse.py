"""Every format through a real parser process, and what that process may do."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.domain import Span
from router.ingest import parse
from router.ingest.blocks import Block, Parsed, Unreadable, decode, from_plain, to_plain
from router.ingest.detect import read_document
from router.ingest.parse import Parser
from tests.ole import msg_file, xls_file


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    with Parser() as made:
        yield made


def texts(parsed: Parsed) -> list[str]:
    return [block.text for block in parsed.blocks]


def kinds(parsed: Parsed) -> list[str]:
    return [block.kind for block in parsed.blocks]


# --- text -------------------------------------------------------------------------------------------------------------


def test_markdown(parser: Parser) -> None:
    text = """---
title: Belt drive
version: 2.1
effective_from: 2026-02-01
product: CX-400
---
# Belt drive

First line
of a paragraph.

Setext heading
--------------

| a | b |
|---|---|
| 1 | 2 |

```python
# not a heading
```
- one
- two
"""
    parsed = parser.parse(text.encode(), "x.md")
    assert parsed.title == "Belt drive"
    assert parsed.front_matter == {"title": "Belt drive", "version": 2.1, "effective_from": "2026-02-01", "product": "CX-400"}
    assert [(block.kind, block.text, block.span.lines, block.level, block.header_lines) for block in parsed.blocks] == [
        ("heading", "Belt drive", (7, 7), 1, 0),
        ("paragraph", "First line\nof a paragraph.", (9, 10), 0, 0),
        ("heading", "Setext heading", (12, 13), 2, 0),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |", (15, 17), 0, 2),
        ("code", "```python\n# not a heading\n```", (19, 21), 0, 0),
        ("paragraph", "- one\n- two", (22, 23), 0, 0),
    ]


def test_plain_text(parser: Parser) -> None:
    parsed = parser.parse(b"SERVICE BULLETIN SB-2024-11\n\nThe affected units\r\nget a kit.\n", "sb.txt")
    assert parsed.title == "SERVICE BULLETIN SB-2024-11"
    assert [(block.text, block.span.lines) for block in parsed.blocks] == [
        ("SERVICE BULLETIN SB-2024-11", (1, 1)),
        ("The affected units\nget a kit.", (3, 4)),
    ]


def test_plain_text_with_subject_and_headings(parser: Parser) -> None:
    parsed = parser.parse(
        b"SERVICE BULLETIN SB-1\nSubject: PM-7, layer drops\n\nREASON\nA valve.\n\nNOTE\n\nIt is OK\nnow\n", "sb.txt"
    )
    assert parsed.title == "SERVICE BULLETIN SB-1: PM-7, layer drops"
    assert [(block.kind, block.text, block.span.lines) for block in parsed.blocks[1:]] == [
        ("heading", "REASON", (4, 4)),
        ("paragraph", "A valve.", (5, 5)),
        ("paragraph", "NOTE", (7, 7)),
        ("paragraph", "It is OK\nnow", (9, 10)),
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Größe".encode("utf-16"), "Größe"),
        (b"\xef\xbb\xbfGr\xc3\xb6\xc3\x9fe", "Größe"),
        ("Größe der Förderbänder für Lüfter, überprüft".encode("cp1252"), "Größe der Förderbänder für Lüfter, überprüft"),
        ("名前,年齢\n佐藤太郎,30\n三木英子,25\n髙橋淳,35\n".encode("cp932"), "名前,年齢\n佐藤太郎,30\n三木英子,25\n髙橋淳,35\n"),
    ],
)
def test_encodings(data: bytes, expected: str) -> None:
    assert decode(data) == expected


def test_csv(parser: Parser) -> None:
    parsed = parser.parse(b'bin;part;"note"\nA-1;PN-88213;"two\nlines"\nA-2;PN-2;\n', "bins.csv")
    (table,) = parsed.blocks
    assert (table.kind, table.text, table.header_lines) == (
        "table",
        "bin | part | note\nA-1 | PN-88213 | two lines\nA-2 | PN-2",
        1,
    )


def test_notebook(parser: Parser) -> None:
    book = {
        "nbformat": 4,
        "metadata": {"kernelspec": {"language": "python"}},
        "cells": [
            {"cell_type": "markdown", "source": ["# Drift\n", "\n", "Why clocks differ."]},
            {"cell_type": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": ["1\n"]}]},
        ],
    }
    parsed = parser.parse(json.dumps(book).encode(), "x.ipynb")
    assert (parsed.title, texts(parsed), kinds(parsed)) == (
        "Drift",
        ["Drift", "Why clocks differ.", "print(1)", "1"],
        ["heading", "paragraph", "code", "paragraph"],
    )


HTML = b"""<!doctype html><html lang="en"><head><title>Site - Bins</title><style>p{}</style></head><body>
<nav><ul><li><a href=/>Home</a></ul></nav><main><h1>Bins</h1><p>Scan the <b>bin</b> first.<br>Then the bag.</p>
<h2>Zones</h2><table><tr><th>Zone<th>What</tr><tr><td>A<td><a href=x>fast movers</a></table>
<ul><li>one<ul><li>inner</ul><li>two</ul><pre>code  here</pre></main><script>alert(1)</script><footer><a href=/>Imprint</a></footer></body></html>"""


def test_html(parser: Parser) -> None:
    parsed = parser.parse(HTML, "x.html")
    assert (parsed.title, parsed.language) == ("Bins", "en")
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        ("heading", "Bins"),
        ("paragraph", "Scan the bin first.\nThen the bag."),
        ("heading", "Zones"),
        ("table", "Zone | What\nA | fast movers"),
        ("paragraph", "- one\n  - inner\n- two"),
        ("code", "code  here"),
    ]
    assert parsed.blocks[3].span.lines == (3, 3)


# --- mail -------------------------------------------------------------------------------------------------------------

MAIL = """From: Ada <ada@fabrikam.example>
To: Depot 4 <d4@fabrikam.example>
Bcc: hidden@fabrikam.example
Subject: =?utf-8?q?Belt_slips_=E2=80=93_again?=
Date: Tue, 05 May 2026 10:00:00 +0200
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Der L=FCfter steht.
--x
Content-Type: application/pdf; name="drawing.pdf"
Content-Disposition: attachment; filename="drawing.pdf"
Content-Transfer-Encoding: base64

AAAA
--x--
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", ["x.eml", "x.txt"])
def test_mail(parser: Parser, encoding: str, name: str) -> None:
    parsed = parser.parse(MAIL.encode(encoding), name)
    assert parsed.title == "Belt slips – again"
    assert parsed.meta == {
        "from": "Ada <ada@fabrikam.example>",
        "to": "Depot 4 <d4@fabrikam.example>",
        "date": "Tue, 05 May 2026 10:00:00 +0200",
        "attachments": "drawing.pdf",
    }
    assert texts(parsed)[1:] == ["Der Lüfter steht."]
    assert "hidden" not in str(to_plain(parsed))


def test_mail_of_html_only(parser: Parser) -> None:
    data = b"From: a@b.example\nTo: c@d.example\nSubject: s\nMIME-Version: 1.0\nContent-Type: text/html\n\n<p>One</p><p>Two</p>"
    assert texts(parser.parse(data, "x.eml"))[1:] == ["One", "Two"]


def test_outlook_message(parser: Parser) -> None:
    parsed = parser.parse(msg_file("Reader dead", "It beeps twice.", "Bob Meyer"), "x.msg")
    assert (parsed.title, parsed.meta["from"], parsed.meta["to"]) == ("Reader dead", "Bob Meyer", "Depot 4")
    assert parsed.meta["date"].startswith("2024-01-")
    assert texts(parsed)[1:] == ["It beeps twice."]


# --- office -----------------------------------------------------------------------------------------------------------


def docx_bytes() -> bytes:
    import docx

    document = docx.Document()
    document.add_heading("Approval limits", 0)
    document.add_paragraph("Amounts are per case.")
    document.add_heading("Who", 1)
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("role", "limit", "technician", "400"), strict=True
    ):
        cell.text = text
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Bullet")
    document.add_comment(document.paragraphs[1].runs, text="Check this.", author="Ann")
    return saved(document)


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_docx(parser: Parser) -> None:
    parsed = parser.parse(docx_bytes(), "x.docx")
    assert parsed.title == "Approval limits"
    assert [(block.kind, block.level, block.text) for block in parsed.blocks] == [
        ("heading", 1, "Approval limits"),
        ("paragraph", 0, "Amounts are per case."),
        ("heading", 1, "Who"),
        ("table", 0, "role | limit\ntechnician | 400"),
        ("paragraph", 0, "- first\n- second"),
        ("paragraph", 0, "Comment by Ann: Check this."),
    ]


def test_pptx(parser: Parser) -> None:
    import pptx
    from pptx.util import Inches

    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Scanner"
    slide.placeholders[1].text = "Press F4"
    slide.notes_slide.notes_text_frame.text = "Say it twice"
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Bins"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(3), Inches(1)).table
    for cell, text in zip(table.iter_cells(), ("zone", "bin", "A", "A-12"), strict=True):
        cell.text = text
    parsed = parser.parse(saved(deck), "x.pptx")
    assert [(block.kind, block.text, block.span.page) for block in parsed.blocks] == [
        ("heading", "Scanner", 1),
        ("paragraph", "Press F4", 1),
        ("paragraph", "Notes: Say it twice", 1),
        ("heading", "Bins", 2),
        ("table", "zone | bin\nA | A-12", 2),
    ]


def test_xlsx(parser: Parser) -> None:
    from datetime import datetime

    import openpyxl

    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.title = "Bins"
    for row in (
        ["Prices of 2026"],
        ["bin", "part", "since"],
        ["A-1", "PN-88213", datetime(2026, 1, 2)],  # noqa: DTZ001
        [],
        ["zone", "n"],
        ["A", 7.0],
    ):
        sheet.append(row)
    book.create_sheet("Empty")
    parsed = parser.parse(saved(book), "x.xlsx")
    assert [(block.kind, block.text, block.span) for block in parsed.blocks] == [
        ("heading", "Bins", Span(lines=(1, 1), sheet="Bins")),
        ("paragraph", "Prices of 2026", Span(lines=(1, 1), sheet="Bins")),
        ("table", "bin | part | since\nA-1 | PN-88213 | 2026-01-02", Span(lines=(2, 3), sheet="Bins")),
        ("table", "zone | n\nA | 7", Span(lines=(5, 6), sheet="Bins")),
    ]


def test_xls(parser: Parser) -> None:
    parsed = parser.parse(xls_file([["bin", "n"], ["A-1", 7.0]]), "x.xls")
    assert texts(parsed) == ["Bins", "bin | n\nA-1 | 7"]


def pdf_bytes(pages: list[list[tuple[int, str]]], **options: Any) -> bytes:
    """Pages of (font size, line); an empty line leaves space."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, invariant=True, **options)
    for lines in pages:
        height = 780
        for size, line in lines:
            canvas.setFont("Helvetica", size)
            for at, cell in enumerate(line.split(" | ")):
                canvas.drawString(60 + 140 * at, height, cell)
            height -= int(size * 1.3)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def test_pdf(parser: Parser) -> None:
    first = [(18, "Gear unit"), (10, ""), (10, ""), (10, "The oil is changed every 4,000"), (10, "hours of work.")]
    second = [(10, "Part | Torque"), (10, "PN-70452 | 48 Nm"), (10, "PN-70455 | 52 Nm")]
    parsed = parser.parse(pdf_bytes([first, second]), "x.pdf")
    assert parsed.title == "Gear unit"
    assert [(block.kind, block.text, block.span.page) for block in parsed.blocks] == [
        ("heading", "Gear unit", 1),
        ("paragraph", "The oil is changed every 4,000\nhours of work.", 1),
        ("table", "Part | Torque\nPN-70452 | 48 Nm\nPN-70455 | 52 Nm", 2),
    ]


def test_pdf_without_running_lines(parser: Parser) -> None:
    pages = [
        [
            (8, f"CX code list, page {n}"),
            (10, ""),
            (10, f"Text of page {n} stands"),
            (10, "on two lines."),
            (10, ""),
            (8, "Fabrikam"),
        ]
        for n in (1, 2, 3)
    ]
    assert texts(parser.parse(pdf_bytes(pages), "x.pdf")) == [f"Text of page {n} stands\non two lines." for n in (1, 2, 3)]


# --- content decides --------------------------------------------------------------------------------------------------


def test_content_decides_not_the_name(parser: Parser) -> None:
    assert parser.parse(docx_bytes(), "x.pdf").title == "Approval limits"
    assert parser.parse(pdf_bytes([[(10, "Some text of a page here")]]), "x.docx").blocks[0].span.page == 1
    assert parser.parse(HTML, "x.txt").title == "Bins"
    assert parser.parse(b"---\ntitle: T\n---\nText.\n", "noext").title == "T"


def test_text_that_only_looks_like_markup(parser: Parser) -> None:
    assert texts(parser.parse(b"a < b and b > c\n", "x.txt")) == ["a < b and b > c"]
    assert texts(parser.parse(b"From: here\nto there\n", "x.txt")) == ["From: here\nto there"]


# --- the process ------------------------------------------------------------------------------------------------------


def test_reply_is_plain_json() -> None:
    part = Block("code", "x", Span(lines=(1, 2)), scope="A", name="b")
    parsed = Parsed(
        "t",
        (Block("table", "a|b", Span(2, None, "s"), 1, 1), Block("code", "x", Span(), parts=(part,))),
        {"a": 1},
        {"b": "c"},
        "en",
    )
    assert from_plain(json.loads(json.dumps(to_plain(parsed)))) == parsed
    with Parser() as parser:
        for reply in (
            b"",
            b"[]",
            b'{"title": 1}',
            b'{"reason": {}}',
            b"\x80\x04.",
            b'{"title":"","blocks":[["x"]]}',
            b"[" * 100_000,
        ):
            with pytest.raises(Unreadable) as caught:
                parser._taken(reply)
            assert caught.value.reason == "crashed"


def test_no_network() -> None:
    """Inside a parser process neither sockets nor files nor programs are to be had."""
    import multiprocessing

    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_try_everything, args=(theirs,))
    process.start()
    outcome = ours.recv()
    process.join()
    assert outcome == {
        "connect": "PermissionError",
        "lookup": "PermissionError",
        "program": "PermissionError",
        "write": "OSError",
    }


def _try_everything(pipe: Any) -> None:
    import os
    import socket
    import subprocess
    import tempfile

    from router.ingest.blocks import LIMITS

    handle, path = tempfile.mkstemp()
    parse._confine(LIMITS)
    attempts = {
        "connect": lambda: socket.socket().connect(("127.0.0.1", 9)),
        "lookup": lambda: socket.getaddrinfo("localhost", 80),
        "program": lambda: subprocess.run(["/bin/true"], check=True),
        "write": lambda: os.write(handle, b"x"),
    }
    outcome = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            outcome[name] = "done"
        except (PermissionError, OSError) as error:
            outcome[name] = "PermissionError" if isinstance(error, PermissionError) else "OSError"
    os.unlink(path)
    pipe.send(outcome)


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    """The caller's script is not run again in the parser process."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('once', flush=True)\nfrom router.ingest.parse import Parser\n"
        "with Parser() as parser:\n    print(parser.parse(b'Some text.', 'a.txt').blocks[0].text, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout, done.stderr) == ("once\nSome text.\n", "")


def test_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "REPLACE_AFTER", 2)
    with Parser() as parser:
        seen = set()
        for _ in range(5):
            parser.parse(b"Some text.\n", "a.txt")
            seen.add(parser._process.pid)
        assert len(seen) == 3


def test_everything_that_is_read_has_text() -> None:
    with pytest.raises(Unreadable, match="empty"):
        read_document(b"---\ntitle: x\n---\n\n", "x.md")


def test_no_import_runs_in_a_circle() -> None:
    """Imports inside functions count: a module that needs its caller belongs with it."""
    folder = Path(parse.__file__).parent
    needs = {path.stem: _imported(path) for path in folder.glob("*.py") if path.stem != "__init__"}
    while needs:
        free = {name for name, wanted in needs.items() if not wanted & needs.keys()}
        assert free, f"in a circle: {sorted(needs)}"
        needs = {name: wanted for name, wanted in needs.items() if name not in free}


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "router.ingest":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("router.ingest."):
            found.add(node.module.split(".")[2])
    return found
