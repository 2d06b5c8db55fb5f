"""Bad documents and bad places: a clear reason each, nothing lost, nothing widened. One test for each line of the list."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import folder
from connectors.folder import Folder, lower_pattern
from router.domain import Entry, Rejected, Source
from router.errors import SourceError
from router.ingest.blocks import LIMITS, ParseLimits, Unreadable
from router.ingest.build import index_sources
from router.ingest.detect import read_document
from router.ingest.label import narrowing_of
from router.ingest.parse import Parser
from router.ingest.reconcile import verify_index
from router.ingest.workshop import SourceJob, SourceReport
from router.plain import NotPlain, parse_yaml
from tests.ingest_world import RULES, World
from tests.ole import ole_file


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    with Parser() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("labels.yaml", RULES)
    made.write("good.md", "# Good\n\nStays where it is.\n")
    return made


def reason(parser: Parser, data: bytes, name: str) -> str:
    with pytest.raises(Unreadable) as caught:
        parser.parse(data, name)
    return caught.value.reason


def outcome(parser: Parser, data: bytes) -> str:
    try:
        parser.parse(data, "a.docx")
    except Unreadable as failure:
        return failure.reason
    return "read"


def zip_bytes(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


def docx_with(part: str, data: bytes) -> bytes:
    """A sound DOCX with one part replaced or added."""
    import docx

    out = io.BytesIO()
    document = docx.Document()
    document.add_paragraph("Some text.")
    document.save(out)
    with zipfile.ZipFile(out) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return zip_bytes({**parts, part: data})


# --- the bytes --------------------------------------------------------------------------------------------------------


def test_scan(parser: Parser) -> None:
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out)
    for _ in range(3):
        canvas.rect(50, 50, 400, 700, fill=1)
        canvas.showPage()
    canvas.save()
    assert reason(parser, out.getvalue(), "scan.pdf") == "no_text_layer"


def test_zero_bytes(parser: Parser) -> None:
    for data in (b"", b" \n\t ", b"\0" * 100):
        for name in ("a.md", "a.pdf", "a.docx", "a.csv", "a.py", "noext"):
            assert reason(parser, data, name) == "empty"


def test_not_utf8(parser: Parser) -> None:
    assert (
        parser.parse("Der Lüfter überhitzt, wenn er dauernd läuft.".encode("latin-1"), "a.txt")
        .blocks[0]
        .text.startswith("Der Lüfter")
    )
    assert reason(parser, bytes(range(256)) * 20, "a.txt") == "not_text"
    assert reason(parser, b"\xff\xfe\x00\xd8\x00", "a.txt") == "not_text"  # half of a UTF-16 pair


def test_fifty_megabytes_of_text(parser: Parser) -> None:
    line = b"The drive belt is tightened to 12 Nm and marked with paint.\n"
    began = time.monotonic()
    assert reason(parser, line * (50_000_000 // len(line)), "big.txt") == "too_large"
    assert reason(parser, b"x" * (LIMITS.file_bytes + 1), "bigger.txt") == "too_large"
    assert time.monotonic() - began < 10
    assert len(parser.parse(line * 60_000, "large.txt").blocks) == 1  # 3.6 MB are read


def test_zip_bomb(parser: Parser) -> None:
    assert reason(parser, docx_with("word/media/bomb.xml", b"\0" * 120_000_000), "bomb.docx") == "bomb"
    assert reason(parser, docx_with("word/document.xml", b"<a>" + b" " * 90_000_000), "bomb.docx") == "bomb"
    wide = (
        b"<worksheet><sheetData>"
        + b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (n, n) for n in range(1, 3000))
        + b"</sheetData></worksheet>"
    )
    assert reason(parser, xlsx_with_sheet(wide), "wide.xlsx") == "too_large"


def xlsx_with_sheet(sheet: bytes) -> bytes:
    import openpyxl

    out = io.BytesIO()
    openpyxl.Workbook().save(out)
    with zipfile.ZipFile(out) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    space = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    return zip_bytes({**parts, "xl/worksheets/sheet1.xml": sheet.replace(b"<worksheet>", space)})


def test_a_header_that_lies_about_sizes(parser: Parser) -> None:
    """The directory says small; what unpacks beyond it is never read."""
    data = bytearray(docx_with("word/document.xml", b"<a>" + b"x" * 50_000 + b"</a>"))
    at = data.rfind(b"word/document.xml") - 46
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    assert reason(parser, bytes(data), "lies.docx") == "corrupt"


EXTERNAL = (
    b'<?xml version="1.0"?><!DOCTYPE w:document [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>'
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_external_entity(parser: Parser, encoding: str) -> None:
    text = EXTERNAL.decode().replace('version="1.0"', f'version="1.0" encoding="{encoding}"')
    assert reason(parser, docx_with("word/document.xml", text.encode(encoding)), "x.docx") == "hostile_xml"
    assert reason(parser, docx_with("docProps/core.xml", EXTERNAL), "x.docx") == "hostile_xml"


def test_entities_in_html_are_not_fetched(parser: Parser) -> None:
    data = b'<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><body><p>before &x; after</p></body></html>'
    assert "root:" not in str(parser.parse(data, "x.html"))


def test_yaml_aliases(parser: Parser, world: World) -> None:
    laughs = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    for text in (
        laughs,
        "a: &a 1\n",
        "a: 1\na: 2\n",
        "? [1]\n: 2\n",
        "[" * 3000,
        "a: !!python/object/apply:os.getcwd []\n",
        "a: \t- b\n",
        "1: a\n",
    ):
        with pytest.raises(NotPlain):
            parse_yaml(text)
    assert reason(parser, f"---\n{laughs}---\n# T\n\nText.\n".encode(), "a.md") == "bad_front_matter"
    world.write("labels.yaml", f"{laughs}rules: []\n")
    report = world.index()
    assert report.error is not None
    assert report.error.code == "labels_invalid"


def test_front_matter_that_cannot_be_read(parser: Parser) -> None:
    """It may narrow who may see the text, so it is not skipped over."""
    for front in ("groups: [corp:hr", "groups: a\ngroups: b", "groups: &x a"):
        assert reason(parser, f"---\n{front}\n---\n# T\n\nText.\n".encode(), "a.md") == "bad_front_matter"


UNDERSTOOD = {
    "plain.md": "---\nsensitivity: restricted\n---\n# T\n\nText.\n",
    "text.txt": "---\nsensitivity: restricted\n---\nT\n\nText.\n",
    "page.html": "---\nsensitivity: restricted\n---\n<html><body><p>Text.</p></body></html>",
    "head.html": '<html><head><meta name="Sensitivity" content="restricted"></head><body><p>Text.</p></body></html>',
    "code.py": "---\nsensitivity: restricted\n---\nprint(1)\n",
    "table.csv": "---\nsensitivity: restricted\n---\na,b\n1,2\n",
    "blank line.md": "\n \n---\nsensitivity: restricted\n---\n# T\n\nText.\n",
    "comment.md": "<!-- by\nAnn -->\n---\nsensitivity: restricted\n---\n# T\n\nText.\n",
    "marks.md": "\ufeff\ufeff\u00a0---\n\u00a0sensitivity: restricted\n---\u00a0\n# T\n\nText.\n",
    "capitals.md": "---\nSensitivity: Restricted\n---\n# T\n\nText.\n",
    "toml.md": '+++\nsensitivity = "restricted"\n+++\n# T\n\nText.\n',
    "carriage return.md": "---\rsensitivity: restricted\r---\r# T\r\rText.\r",
    "next line.md": "---\u0085sensitivity: restricted\u0085---\u0085# T\n\nText.\n",
    "line separator.md": "---\u2028sensitivity: restricted\u2028---\u2028# T\n\nText.\n",
    "long mark.md": "-----\nsensitivity: restricted\n-----\n# T\n\nText.\n",
}


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_narrowing_however_it_is_written(parser: Parser, name: str) -> None:
    source = Source("docs", "fabrikam", "folder", frozenset(), 0, "", "")
    parsed = parser.parse(UNDERSTOOD[name].encode(), name)
    assert narrowing_of(parsed.front_matter, source) == {"sensitivity": 3}
    assert "sensitivity" not in str(parsed.blocks)


NOT_UNDERSTOOD = {
    "no blank.md": "---\nsensitivity:restricted\n---\n# T\n\nText.\n",
    "no blank.txt": "---\nsensitivity:restricted\n---\nText.\n",
    "unterminated.md": "---\nsensitivity: restricted\n# T\n\nText.\n",
    "unterminated after a gap.md": "---\ntitle: x\n\nsensitivity: restricted\n\n# T\n\nText.\n",
    "list.md": "---\n- sensitivity: restricted\n---\n# T\n\nText.\n",
    "prose first.md": "---\nFor few\ngroups: [corp:hr]\n---\n# T\n\nText.\n",
    "no colon.md": "---\nsensitivity restricted\n---\n# T\n\nText.\n",
    "wide colon.md": "---\nsensitivity\uff1arestricted\n---\n# T\n\nText.\n",
    "one line.md": "--- sensitivity: restricted\n# T\n\nText.\n",
    "flow.md": "--- {sensitivity: restricted}\n---\n# T\n\nText.\n",
    "form feed.md": "---\x0csensitivity: restricted\x0c---\x0c# T\n\nText.\n",
    "no first mark.md": "sensitivity: restricted\n---\n# T\n\nText.\n",
    "no mark.md": "Title: x\nSensitivity: restricted\n\n# T\n\nText.\n",
    "json.md": '{\n  "sensitivity": "restricted"\n}\n# T\n\nText.\n',
    "bad toml.md": "+++\nsensitivity = restricted\n+++\n# T\n\nText.\n",
    "unterminated toml.md": '+++\nsensitivity = "restricted"\n# T\n\nText.\n',
    "date.md": "---\neffective_from:2099-01-01\n---\n# T\n\nText.\n",
    "message.eml": "---\nsensitivity: restricted\n---\nFrom: a@example.org\nSubject: x\n\nText.\n",
    "both.html": '---\nsensitivity: internal\n---\n<html><head><meta name="sensitivity" content="restricted"></head><body><p>x</p></body></html>',
    "page.html": "---\nsensitivity:restricted\n---\n<html><body><p>Text.</p></body></html>",
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_narrowing_that_is_not_understood(parser: Parser, name: str) -> None:
    assert reason(parser, NOT_UNDERSTOOD[name].encode(), name) == "bad_front_matter"


def test_narrowing_that_is_not_understood_shows_nothing(world: World) -> None:
    """The whole line: what was shown is withdrawn, and the manifest keeps no value that was refused."""
    world.write("bad.md", "# Bad\n\nText.\n")
    world.index()
    for front in ("effective_from: 20990101", "effective_from: 2099", "labels: {sensitivity: restricted}", "Sensitivity: zlevel77",
                  "sensitivity:\n", "groups:\n", "groups: ''", "groups: corp:all, zlevel77", "tenant: zlevel77"):  # fmt: skip
        world.write("bad.md", f"---\n{front}\n---\n# Bad\n\nText.\n", old=False)
        first = world.index()
        assert set(world.failed(first)) == {"bad.md"}, front
        assert world.ids() == ["good.md"]
        again = world.index()
        assert (again.failures, again.unchanged) == (first.failures, 1)
        assert b"zlevel77" not in (world.root / "manifest.sqlite").read_bytes()
        world.write("bad.md", "# Bad\n\nText.\n", old=False)
        assert world.index().indexed == 1


@pytest.mark.parametrize(
    "text",
    [
        "---\nOrdinary prose under a drawn rule.\n\nMore: of it.\n\n---\nEnd.\n",
        "---\n\n# Title\n\nThe sensitivity: of it all.\n",
        "---\n\nProse.\n\n---\n\nProse.\n\nOwner: bob\n",
        "---\nNote that this is so.\n",
        "***\n\nProse.\n",
        "# Sensitivity: how we decide\n\nProse.\n",
        "Groups are nice: people\n\nProse.\n",
        "+++ b/file\n+added\n",
    ],
)
def test_a_drawn_rule_is_text(parser: Parser, text: str) -> None:
    parsed = parser.parse(text.encode(), "a.md")
    assert parsed.front_matter == {}
    kept = "".join("".join(block.text.split()) for block in parsed.blocks)
    assert all("".join(line.strip("#").split()) in kept for line in text.split("\n") if line.strip("-* "))


def test_data_and_code_may_begin_with_such_names(parser: Parser) -> None:
    for name, text in (
        ("rules.yaml", "groups:\n  - name: belts\n"),
        ("a.py", "groups = {1: 2}\nsensitivity: int = 3\n"),
        ("a.ini", "groups = 3\n"),
        ("a.csv", "groups: sensitivity,b\n1,2\n"),
    ):
        assert parser.parse(text.encode(), name).front_matter == {}


def test_encrypted(parser: Parser) -> None:
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, encrypt=StandardEncryption("secret"))
    canvas.drawString(50, 700, "Nobody reads this line without the word")
    canvas.save()
    assert reason(parser, out.getvalue(), "a.pdf") == "encrypted"
    assert reason(parser, ole_file({"EncryptedPackage": b"x", "EncryptionInfo": b"y"}), "a.docx") == "encrypted"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.pptx", "a.xlsx", "a.msg", "a.xls", "a.eml", "a.ipynb"])
def test_truncated(parser: Parser, name: str) -> None:
    starts = {
        "a.pdf": b"%PDF-1.7\n",
        "a.msg": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "a.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "a.eml": b"\0",
        "a.ipynb": b"{",
    }
    data = starts.get(name, b"PK\x03\x04") + b"\x01garbage" * 50
    assert reason(parser, data, name) in {"corrupt", "not_text"}


def test_cut_documents_never_kill_the_parser(parser: Parser) -> None:
    """A sound document cut and scratched anywhere: read, or refused with a reason that is not the parser's own end."""
    import docx

    out = io.BytesIO()
    document = docx.Document()
    for number in range(20):
        document.add_paragraph(f"Paragraph {number}")
    document.save(out)
    sound, dice = out.getvalue(), random.Random(7)
    for _ in range(60):
        data = bytearray(sound[: dice.randrange(len(sound))])
        for _ in range(5):
            data[dice.randrange(len(data))] = dice.randrange(256)
        assert outcome(parser, bytes(data)) in {"read", "corrupt", "empty", "not_text", "unsupported", "bomb", "encrypted"}


@pytest.mark.parametrize("name", ["broken.pdf", "a.docx", "A.PPTX", "a.xlsx", "a.xls", "a.msg", "a.doc", "a.png", "a.zip"])
def test_binary_names_hold_binaries(parser: Parser, name: str) -> None:
    """Text under such a name is a damaged file, not a document."""
    assert reason(parser, b"%PDF is what it should begin with, and it does not.\n", name) == "corrupt"
    assert reason(parser, b"<html><body><p>Not found</p></body></html>", name) == "corrupt"


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.csv", "a.py", "a.html", "a.eml", "noext"])
def test_one_nul_byte_is_enough(parser: Parser, name: str) -> None:
    text = b"From: a@example.org\nDate: now\nSubject: x\n\n" + b"Some text that goes on. " * 400
    assert reason(parser, text + b"\0 and on.\n", name) == "not_text"
    assert reason(parser, ("Some text\0 and on. " * 9).encode("utf-16"), name) == "not_text"


def test_programs_and_pictures(parser: Parser) -> None:
    for data in (
        b"\x7fELF" + bytes(100),
        b"\x89PNG\r\n",
        b"GIF89a..",
        b"MZ" + bytes(90),
        b"{\\rtf1 x}",
        zip_bytes({"a.txt": b"x"}),
    ):
        assert reason(parser, data, "a.md") == "unsupported"


# --- the process ------------------------------------------------------------------------------------------------------


def test_parser_that_hangs(world: World) -> None:
    world.write("slow.md", "word another word\n\n" * 200_000)
    world.write("zz.md", "# Last\n\nStill read.\n")
    report = world.index(limits=ParseLimits(seconds=0.15))
    assert world.failed(report) == {"slow.md": "timeout"}
    assert world.ids() == ["good.md", "zz.md"]


def test_parser_out_of_memory(world: World) -> None:
    world.write("fat.md", "word another word\n\n" * 250_000)
    world.write("zz.md", "# Last\n\nStill read.\n")
    report = world.index(limits=ParseLimits(memory_bytes=virtual_bytes() + 60_000_000))
    assert world.failed(report) == {"fat.md": "memory"}
    assert world.ids() == ["good.md", "zz.md"]


def virtual_bytes() -> int:
    """Address space of an idle parser process."""
    with Parser() as parser:
        parser.parse(b"Some text.\n", "a.txt")
        text = Path(f"/proc/{parser._process.pid}/statm").read_text(encoding="ascii")
    return int(text.split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_parser_that_crashes() -> None:
    with Parser() as parser:
        parser.parse(b"Some text.\n", "a.txt")
        for number, expected in ((signal.SIGSEGV, "crashed"), (signal.SIGKILL, "memory"), (signal.SIGALRM, "timeout")):
            parser.start(b"word word\n\n" * 300_000, "a.md")
            os.kill(parser._process.pid, number)
            with pytest.raises(Unreadable) as caught:
                parser.result()
            assert caught.value.reason == expected
            assert parser.parse(b"Some text.\n", "a.txt").blocks[0].text == "Some text."


def test_parser_that_is_told_to_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a supervisor that ends every process of a group: the run ends, and the document that was being read is shown as before."""
    world.index()
    world.write("good.md", "word another word\n\n" * 200_000)
    start = Parser.start

    def ended(self: Parser, data: bytes, name: str) -> None:
        start(self, data, name)
        os.kill(self._process.pid, signal.SIGTERM)

    monkeypatch.setattr(Parser, "start", ended)
    with pytest.raises(SourceError, match="parser_ended"):
        world.index()
    monkeypatch.undo()
    assert world.text("good.md") == "Stays where it is."


def test_failures_that_may_pass_are_tried_again(world: World) -> None:
    world.write("slow.md", "word another word\n\n" * 100_000)
    assert world.failed(world.index(limits=ParseLimits(seconds=0.05)))["slow.md"] == "timeout"
    world.write("slow.md", "# Quick now\n\nText.\n")
    assert world.index().failures == []


# --- the place --------------------------------------------------------------------------------------------------------


def listed(path: Path) -> tuple[list[str], dict[str, str]]:
    items = list(Folder(path).entries())
    return [item.key for item in items if isinstance(item, Entry)], {
        item.key: item.reason for item in items if isinstance(item, Rejected)
    }


def test_links_are_never_followed(world: World) -> None:
    """Not out of the folder, not inside it: there a link would lift a document out of the labels of its place."""
    world.write("labels.yaml", RULES + "  - { match: 'hr/**', groups: [corp:hr], sensitivity: restricted }\n")
    world.write("hr/secret.md", "# Secret\n\nOf few.\n")
    secret = world.root / "secret.md"
    secret.write_text("# Secret\n\nOf somebody else.\n")
    (world.root / "elsewhere").mkdir()
    (world.root / "elsewhere/x.md").write_text("# X\n\nOf somebody else.\n")
    links = {
        "out.md": secret,
        "outside": world.root / "elsewhere",
        "pub/link.md": Path("../hr/secret.md"),
        "pub/dir": Path("../hr"),
        "pub/circle": world.docs,
        "pub/dangling.md": world.docs / "nothing",
    }
    (world.docs / "pub").mkdir()
    for key, target in links.items():
        (world.docs / key).symlink_to(target)
    report = world.index()
    assert world.failed(report) == dict.fromkeys(links, "link")
    assert world.ids() == ["good.md", "hr/secret.md"]
    assert world.labels()["hr/secret.md"]["sensitivity"] == 3


def test_a_folder_becomes_a_link(world: World) -> None:
    """Between the list and the read: what stands behind it then is another document."""
    world.write("pub/a.md", "# A\n\nFor all.\n")
    world.write("hr/a.md", "# A\n\nFor few.\n")
    source = Folder(world.docs)
    entries = {item.key: item for item in source.entries() if isinstance(item, Entry)}
    (world.docs / "pub").rename(world.docs / "was")
    (world.docs / "pub").symlink_to(world.docs / "hr")
    with pytest.raises(SourceError, match="gone"):
        source.read(entries["pub/a.md"])


def test_a_file_becomes_a_link_out_of_the_folder(world: World) -> None:
    """Between the list and the read, and after it was indexed."""
    world.index()
    source = Folder(world.docs)
    (entry,) = [item for item in source.entries() if isinstance(item, Entry)]
    secret = world.root / "secret.md"
    secret.write_text("# Secret\n\nOf somebody else.\n")
    (world.docs / "good.md").unlink()
    (world.docs / "good.md").symlink_to(secret)
    with pytest.raises(SourceError, match="gone"):
        source.read(entry)
    world.index()
    assert world.ids() == []


def test_a_pipe_in_a_files_place_does_not_hang(world: World) -> None:
    source = Folder(world.docs)
    (entry,) = [item for item in source.entries() if isinstance(item, Entry)]
    (world.docs / "good.md").unlink()
    os.mkfifo(world.docs / "good.md")
    with pytest.raises(SourceError, match="gone"):
        source.read(entry)
    assert listed(world.docs) == ([], {"good.md": "not_a_file", "labels.yaml": "rule_matches_nothing"})


def test_hidden_files_labels_and_sidecars_are_no_documents(world: World) -> None:
    world.write(".secret.md", "x")
    world.write(".git/config.md", "x")
    world.write("good.md.labels.yaml", "groups: [corp:hr]")
    world.write("orphan.labels.yaml", "groups: [corp:hr]")
    world.write("sub/labels.yaml", "not: the labels")
    world.write("LABELS.yml", "rules: []")
    world.write("sub/Labels.YML", "rules: []")
    assert listed(world.docs) == (
        ["good.md"],
        {
            "LABELS.yml": "labels_not_used",
            "orphan.labels.yaml": "sidecar_without_document",
            "sub/Labels.YML": "labels_below_the_top",
            "sub/labels.yaml": "labels_below_the_top",
        },
    )
    report = world.index()
    assert {note.reason for note in report.notes} == {"labels_not_used", "sidecar_without_document"}
    assert set(world.failed(report).values()) == {"labels_below_the_top"}


def test_a_folder_of_two_thousand_levels(world: World) -> None:
    """Deeper than Python recurses and than a path may be long: said, and nothing taken for deleted."""
    world.index()
    place = os.open(world.docs, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("dd", dir_fd=place)
        below = os.open("dd", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    report = world.index()
    assert report.error is None or report.error.code == "source_unreadable"
    assert world.ids() == ["good.md"]
    subprocess.run(["rm", "-rf", str(world.docs / "dd")], check=True)


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "quoted".md',
        "new\nline.md",
        "\x1b[31mred.md",
        "back\\slash.md",
        "größe 契約.md",
        "a;rm -rf.md",
        "%s%d.md",
        "*?.md",
        "\u202egpj.md",
    ],
)
def test_names(world: World, name: str) -> None:
    world.write(f"sub/{name}", "Some text without a title\n")
    assert world.index().failures == []
    assert f"sub/{name}" in world.ids()
    (stored,) = world.load(f"docs/sub/{name}#0")
    assert stored.chunk.title.isprintable()
    assert stored.chunk.uri.startswith("file:///")
    assert stored.chunk.uri.isascii()
    assert stored.chunk.uri.isprintable()
    assert world.index().unchanged == 2


def test_name_that_is_no_text(world: World) -> None:
    with open(os.fsencode(world.docs) + b"/bad\xff.md", "wb") as file:
        file.write(b"# T\n\nText.\n")
    report = world.index()
    (failure,) = report.failures
    assert failure.reason == "name_not_text"
    assert failure.key.isprintable()
    assert world.ids() == ["good.md"]


def test_file_that_changes_while_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays as it was indexed, is reported, and the next run takes it."""
    world.index()
    path = world.docs / "good.md"
    real, changes = os.fstat, [0]

    def changing(handle: int) -> os.stat_result:
        changes[0] += 1
        with path.open("a") as file:
            file.write("More.\n")
        return real(handle)

    world.write("good.md", "# Good\n\nNow other.\n", old=False)
    monkeypatch.setattr(folder.os, "fstat", changing)
    report = world.index()
    monkeypatch.undo()
    assert world.failed(report) == {"good.md": "changed_while_read"}
    assert changes[0] == 6  # the labels, and the file twice
    assert world.text("good.md") == "Stays where it is."
    assert world.index().indexed == 1
    assert world.text("good.md").count("More.") == 6


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_a_fault_of_the_medium_drops_nothing(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It says nothing of the document: that stays as it was, unless its labels change with its text, which they may be of. Who takes
    a file away takes it away."""
    world.write("labels.yaml", RULES)
    world.write("a.md", "# A\n\nFirst.\n")
    world.index()
    real, refused = folder._open_below, [number]

    def broken(root: Path, key: str) -> int:
        if key == "a.md":
            raise OSError(refused[0], os.strerror(refused[0]))
        return real(root, key)

    monkeypatch.setattr(folder, "_open_below", broken)
    world.write("a.md", "# A\n\nSecond.\n", old=False)
    before = world.labels()["a.md"]
    assert world.failed(world.index()) == {"a.md": "read_failed"}
    assert (world.text("a.md"), world.labels()["a.md"]) == ("First.", before)
    world.write("labels.yaml", RULES + "  - { match: 'a.md', groups: [corp:hr] }\n", old=False)
    assert world.failed(world.index()) == {"a.md": "read_failed"}
    assert world.ids() == ["good.md"]
    refused[0] = errno.EACCES
    assert world.failed(world.index()) == {"a.md": "unreadable"}
    assert world.ids() == ["good.md"]
    monkeypatch.undo()
    world.index()
    assert world.text("a.md") == "Second."


def test_a_fault_of_the_medium_while_listing_fails_the_source(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("labels.yaml", RULES)
    world.write("a.md", "# A\n\nFirst.\n")
    world.index()

    class Item:
        def __init__(self, item: Any) -> None:
            self._item = item

        def __getattr__(self, name: str) -> Any:
            return getattr(self._item, name)

        def stat(self, **_: Any) -> Any:
            raise OSError(errno.EIO, "Input/output error")

    real = Folder._scan
    monkeypatch.setattr(Folder, "_scan", lambda *args: [Item(item) for item in real(*args)])
    report = world.index()
    assert report.error is not None
    assert (report.error.code, world.ids()) == ("source_unreadable", ["a.md", "good.md"])


def test_file_that_is_written_all_the_time(world: World) -> None:
    """No torn text: each indexed version is one that was written as a whole."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            beside = world.root / "beside"
            beside.write_text(f"# N{number}\n\n" + f"number {number}\n" * 200)
            beside.replace(world.docs / "busy.md")
            time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(8):
            world.index()
            if "busy.md" in world.ids():
                assert len(set(world.text("busy.md").split("number ")[1].split("\n")[:1])) == 1
                numbers = {line for line in world.text("busy.md").split("\n") if line.startswith("number ")}
                assert len(numbers) == 1
    finally:
        stop.set()
        writer.join()


def test_unreadable_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a list would read as deletions."""
    world.write("sub/x.md", "# X\n\nText.\n")
    world.index()
    real = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(folder.os, "scandir", refuse)
    report = world.index()
    assert report.error is not None
    assert report.error.code == "source_unreadable"
    assert world.ids() == ["good.md", "sub/x.md"]


# --- labels -----------------------------------------------------------------------------------------------------------


def test_front_matter_that_claims_another_tenant(world: World) -> None:
    world.write("t.md", "---\ntenant: contoso\n---\n# T\n\nText.\n")
    assert world.failed(world.index()) == {"t.md": "other_tenant"}
    assert world.ids() == ["good.md"]


def test_wider_groups(world: World) -> None:
    world.write("labels.yaml", "rules:\n  - { match: '**', groups: [corp:hr], sensitivity: confidential }\n")
    world.write("w.md", "---\ngroups: [corp:all, corp:hr, other:everybody]\nsensitivity: public\n---\n# W\n\nText.\n")
    report = world.index()
    assert world.labels()["w.md"]["groups"] == frozenset({"corp:hr"})
    assert world.labels()["w.md"]["sensitivity"] == 2
    assert [note.key for note in report.notes] == ["w.md"]


def test_supersedes_somebody_elses_page(world: World) -> None:
    rules = "  - { match: 'hr/**', owner: hr }\n  - { match: 'it/**', owner: it }\n"
    world.write("labels.yaml", RULES + rules)
    world.write("hr/v1.md", "# Leave\n\nOld.\n")
    world.write("hr/v2.md", "---\nsupersedes: hr/v1.md\n---\n# Leave\n\nNew.\n")
    world.write("hr/v3.md", "---\nsupersedes: docs/hr/v2.md\n---\n# Leave\n\nNewer.\n")
    world.write("it/evil.md", "---\nsupersedes: hr/v2.md\n---\n# Leave\n\nEvil.\n")
    world.write("it/other.md", "---\nsupersedes: payroll/secret.md\n---\n# Leave\n\nEvil.\n")
    world.write("it/self.md", "---\nsupersedes: it/self.md\n---\n# Leave\n\nEvil.\n")
    report = world.index()
    found = {key: world.load(f"docs/{key}#0")[0].chunk.meta.get("supersedes") for key in world.ids()}
    assert {key: value for key, value in found.items() if value} == {"hr/v2.md": "docs/hr/v1.md", "hr/v3.md": "docs/hr/v2.md"}
    assert [note.key for note in report.notes if note.reason == "supersedes_dropped"] == [
        "it/evil.md",
        "it/other.md",
        "it/self.md",
    ]


def test_duplicates(world: World) -> None:
    """The same bytes under other labels are another document with its own labels."""
    world.write("labels.yaml", RULES + "  - { match: 'hr/**', groups: [corp:hr] }\n")
    world.write("hr/good.md", (world.docs / "good.md").read_bytes())
    world.index()
    assert world.labels()["hr/good.md"]["groups"] == frozenset({"corp:hr"})
    assert world.labels()["good.md"]["groups"] == frozenset({"corp:all", "corp:hr"})


@pytest.mark.parametrize("pattern", ["[ab]*.md", "{a,b}.md", "/abs/**", "!secret/**", "a**b", "**b", "hr//x", "a\\"])
def test_pattern_not_understood(world: World, pattern: str) -> None:
    assert lower_pattern(pattern) is None
    world.index()
    world.write("labels.yaml", RULES + f"  - {{ match: '{pattern}', groups: [corp:hr] }}\n")
    report = world.index()
    assert report.error is not None
    assert report.error.code == "labels_invalid"
    assert world.ids() == ["good.md"]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("**", ["a", "a/b", "a\nb"], []),
        ("hr/**", ["hr/a", "hr/a/b"], ["hr", "hrx/a", "x/hr/a"]),
        ("**/x.md", ["x.md", "a/x.md", "a/b/x.md"], ["yx.md", "a/yx.md"]),
        ("*/service/**", ["cx/service/a"], ["service/a", "a/b/service/c"]),
        ("20*/*.md", ["2024/a.md"], ["2024/a/b.md", "1999/a.md"]),
        ("a?c", ["abc"], ["ac", "a/c", "abbc"]),
        ("a\\[1\\].md", ["a[1].md"], ["a1.md"]),
        ("a.md", ["a.md"], ["axmd", "a.md.md"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = lower_pattern(pattern)
    assert compiled is not None
    assert all(compiled.fullmatch(key) for key in matching)
    assert not any(compiled.fullmatch(key) for key in other)


def like(pattern: list[str], names: list[str]) -> bool:
    """The slow and plain reading of a pattern, name by name."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        if pattern[1:] == []:
            return bool(names)
        return like(pattern[1:], names) or (bool(names) and like(pattern, names[1:]))
    return bool(names) and name_like(pattern[0], names[0]) and like(pattern[1:], names[1:])


def name_like(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return name_like(pattern[1:], name) or (bool(name) and name_like(pattern, name[1:]))
    return bool(name) and pattern[0] in ("?", name[0]) and name_like(pattern[1:], name[1:])


NAME = st.text(alphabet="ab\n", min_size=1, max_size=4)
GLOB = st.one_of(st.just("**"), st.text(alphabet="ab*?", min_size=1, max_size=4).filter(lambda name: "**" not in name))


@given(st.lists(GLOB, min_size=1, max_size=5), st.lists(NAME, min_size=1, max_size=5))
def test_patterns_mean_what_they_say(pattern: list[str], names: list[str]) -> None:
    compiled = lower_pattern("/".join(pattern))
    assert compiled is not None
    assert bool(compiled.fullmatch("/".join(names))) == like(pattern, names)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("*a" * 6 + "b", "a" * 200),
        ("*a" * 60 + "*b", "a" * 4_000),
        ("**/" * 30 + "*b", "a/" * 500 + "a"),
        ("**/a/" * 30 + "b", "a/" * 500 + "a"),
        ("**/*a*a/" * 12 + "**", "aaaa/" * 400 + "b"),
        ("**/*?*?*?/x", "aaaaaaaaaaaa/" * 300),
    ],
)
def test_patterns_take_linear_time(pattern: str, key: str) -> None:
    """Whoever writes a rule and whoever names a file must not be able to stop the indexer together."""
    compiled = lower_pattern(pattern)
    assert compiled is not None
    began = time.process_time()
    compiled.fullmatch(key)
    assert time.process_time() - began < 0.5


def test_a_rule_means_a_name_however_it_is_composed(world: World) -> None:
    """Some systems keep `ö` as two characters; a restriction holds all the same, by pattern, by name and by sidecar."""
    composed, parts = (unicodedata.normalize(form, "Persönlich") for form in ("NFC", "NFD"))
    for folder_name, written in ((parts, composed), (composed, parts)):
        world.write("labels.yaml", RULES + f"  - {{ match: '{written}/**', groups: [corp:hr], sensitivity: restricted }}\n"
                    f"  - {{ match: '{written}.md', groups: [corp:hr] }}\n")  # fmt: skip
        world.write(f"{folder_name}/pay.md", "# P\n\nText.\n")
        world.write(f"{folder_name}.md", "# P\n\nText.\n")
        world.write(f"side-{folder_name}.md", "# P\n\nText.\n")
        world.write(f"side-{written}.md.labels.yaml", "groups: [corp:hr]\n")
        report = world.index()
        assert (report.failures, report.notes) == ([], [])
        labels = world.labels()
        assert labels[f"{folder_name}/pay.md"]["sensitivity"] == 3
        for key in (f"{folder_name}/pay.md", f"{folder_name}.md", f"side-{folder_name}.md"):
            assert labels[key]["groups"] == frozenset({"corp:hr"}), key
        for path in sorted(world.docs.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        world.write("good.md", "# Good\n\nText.\n")


def test_rule_that_matches_nothing_is_said(world: World) -> None:
    world.write("labels.yaml", RULES + "  - { match: 'HR/**', groups: [corp:hr] }\n  - { match: 'gone.md', groups: [corp:hr] }\n")
    assert [note.detail for note in world.index().notes] == ["rule 2 matches no document", "rule 3 matches no document"]


@pytest.mark.parametrize(
    "text", ["- a\n", "rules: 5\n", "rules: [5]\n", "rules: [{groups: [x]}]\n", "rules: []\nmore: 1\n", "\xff"]
)
def test_labels_of_another_shape(world: World, text: str) -> None:
    world.write("labels.yaml", text.encode("latin-1"))
    report = world.index()
    assert report.error is not None
    assert report.error.code in {"labels_invalid", "labels_unreadable"}


@pytest.mark.parametrize(
    "sidecar", [b"groups: [corp:hr", b"- a", b"\xff", b"groups: &x [corp:hr]", b"tenant: contoso", b"groups: 7"]
)
def test_sidecar_that_cannot_be_read(world: World, sidecar: bytes) -> None:
    world.index()
    world.write("good.md.labels.yaml", sidecar)
    assert set(world.failed(world.index())) == {"good.md"}
    assert world.ids() == []


@pytest.mark.parametrize("name", ["good.md.labels.yml", "good.md.LABELS.YAML", "good.md.Labels.Yml"])
def test_sidecars_in_any_spelling(world: World, name: str) -> None:
    world.write(name, "groups: [corp:hr]\n")
    assert world.index().failures == []
    assert world.ids() == ["good.md"]
    assert world.labels()["good.md"]["groups"] == frozenset({"corp:hr"})
    world.write("good.md.labels.yaml", "sensitivity: restricted\n")  # two for one document: both count
    world.index()
    assert world.labels()["good.md"] == {"tenant": "fabrikam", "groups": frozenset({"corp:hr"}), "sensitivity": 3}


@pytest.mark.parametrize(
    "name", ["good.labels.yaml", "GOOD.md.labels.yaml", "good.MD.LABELS.YAML", "sub.labels.yaml", "sub.labels.yml"]
)
def test_sidecars_of_no_document(world: World, name: str) -> None:
    """Meant for somebody, most likely for what stands beside it: kept out until that is clear."""
    world.write("sub/inner.md", "# I\n\nText.\n")
    world.index()
    world.write(name, "sensitivity: restricted\n")
    meant, other = ("sub/inner.md", "good.md") if name.startswith("sub") else ("good.md", "sub/inner.md")
    report = world.index()
    assert world.failed(report) == {meant: "bad_label"}
    assert name in report.failures[0].detail
    assert world.ids() == [other]
    (world.docs / name).unlink()
    world.index()
    assert world.ids() == ["good.md", "sub/inner.md"]


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_link_to_file(path: Path) -> None:
    beside = path.parent.parent / "elsewhere.yaml"
    beside.write_text(RULES if path.name == "labels.yaml" else "groups: [corp:hr]\n")
    path.symlink_to(beside)


def put_too_much(path: Path) -> None:
    path.write_bytes(b"#" * 5_000_000)


@pytest.mark.parametrize("put", [put_pipe, put_link_to_zeros, put_link_to_file, put_too_much, os.mkdir])
def test_labels_and_sidecars_are_plain_files(world: World, put: Callable[[Path], None]) -> None:
    """A pipe, a device, another's file, gigabytes: the indexer neither waits nor reads, and nobody sees more."""
    world.index()
    put(world.docs / "good.md.labels.yaml")
    assert world.failed(world.index()) == {"good.md": "bad_label"}
    assert world.ids() == []
    remove = os.rmdir if put is os.mkdir else os.unlink
    remove(world.docs / "good.md.labels.yaml")
    world.index()
    (world.docs / "labels.yaml").unlink()
    put(world.docs / "labels.yaml")
    report = world.index()
    assert report.error is not None
    assert report.error.code == "labels_unreadable"
    assert world.ids() == ["good.md"]


@pytest.mark.parametrize("content", [None, b"", b"rules: [", b"\xff", b"rules: [{ match: '**/[x]', groups: [] }]"])
def test_labels_that_are_not_whole_change_nothing(world: World, content: bytes | None) -> None:
    """Half of the rules could be wider than all of them, and none would withdraw everything: the old ones hold, aloud."""
    labels = world.root / "labels" / "docs.yaml"
    labels.parent.mkdir()
    job = SourceJob(world.source, Folder(world.docs, labels=labels))

    def put() -> None:
        labels.unlink(missing_ok=True)
        if content is not None:
            labels.write_bytes(content)

    def index() -> SourceReport:
        return index_sources([job], world.workshop()).sources[0]

    put()
    first = index()
    assert first.error is not None
    assert first.error.exit_code == 4
    assert "old labels hold" in first.error.message
    assert world.ids() == []
    labels.write_text(RULES)
    assert index().indexed == 1
    put()
    (world.docs / "good.md").unlink()
    assert index().error is not None
    assert world.ids() == ["good.md"]


# --- kill -9 ----------------------------------------------------------------------------------------------------------

INDEXER = """
import os, sys
from pathlib import Path
from tests.ingest_world import World
from router.ingest import build
build.BATCH_DOCUMENTS = 3
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        World(Path(sys.argv[1])).index(full=line.strip() == "full")
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
"""


def test_kill_nine_while_indexing(world: World) -> None:
    """Twenty rounds: no torn document in the store, and the run after the last finishes."""
    dice = random.Random(11)
    for number in range(40):
        world.write(f"d{number:02}.md", f"# Title {number}\n\n" + f"Version 0 of {number}. " * 60)
    command = [sys.executable, "-c", INDEXER, str(world.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True
    ) as indexer:
        assert indexer.stdin is not None
        assert indexer.stdout is not None
        for round_number in range(20):
            print("full" if round_number % 5 == 4 else "", file=indexer.stdin, flush=True)
            child = int(indexer.stdout.readline())
            time.sleep(dice.uniform(0.2, 0.9))
            with contextlib.suppress(ProcessLookupError):  # a round that was done before is an undisturbed one
                os.kill(child, signal.SIGKILL)
            if world.store.generation("fabrikam"):
                assert world.store.verify("fabrikam") == []
                check_whole(world)
            number = dice.randrange(40)
            world.write(f"d{number:02}.md", f"# Title {number}\n\n" + f"Version {round_number + 1} of {number}. " * 60, old=False)
        indexer.stdin.close()
    world.index()
    assert len(world.ids()) == 41
    assert verify_index(world.jobs(), world.workshop()) == []
    assert world.index().unchanged == 41
    for number in range(40):
        written = (world.docs / f"d{number:02}.md").read_text().split("\n")[2].split(". ")[0]
        assert world.text(f"d{number:02}.md").split(". ")[0] == written


def check_whole(world: World) -> None:
    """Every document in the store has all of its chunks, of one version."""
    for key in world.ids():
        text = world.text(key)
        versions = {part.split(" of")[0] for part in text.split("Version ")[1:]}
        assert len(versions) <= 1, (key, versions)


def test_nothing_is_read_outside_the_limits_by_default() -> None:
    """The limits stand in one place and are what the design says."""
    assert (LIMITS.unpacked_bytes, LIMITS.unpacked_ratio, LIMITS.seconds) == (100 * 1024 * 1024, 100, 30.0)
    with pytest.raises(Unreadable, match="too_large"):
        read_document(b"a " * 100, "a.txt", ParseLimits(text_chars=100))


# --- a source that lives long ---------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_latest_listing(tmp_path: Path) -> None:
    """A run that waits, or watches, lists again: a rule that says something else under the same number is another rule."""
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    labels = tmp_path / "labels.yaml"
    documents = Folder(tmp_path)
    for group in ("corp:all", "corp:board", "corp:hr"):
        labels.write_text(f'rules:\n  - {{ match: "**", groups: ["{group}"], sensitivity: internal }}\n')
        (entry,) = documents.entries()
        assert isinstance(entry, Entry)
        assert documents.labels(entry).rules[0]["groups"] == [group]


def test_what_narrows_while_a_source_object_lives_is_narrowed(world: World) -> None:
    documents = Folder(world.docs)
    index_sources([SourceJob(world.source, documents)], world.workshop())
    (before,) = [info.label_digest for info in world.store.documents(world.source.tenant)]
    world.write("labels.yaml", RULES.replace("corp:all, ", ""))
    index_sources([SourceJob(world.source, documents)], world.workshop())
    (after,) = [info.label_digest for info in world.store.documents(world.source.tenant)]
    index_sources([SourceJob(world.source, Folder(world.docs))], world.workshop())
    (fresh,) = [info.label_digest for info in world.store.documents(world.source.tenant)]
    assert before != after == fresh
