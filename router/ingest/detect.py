"""What a document is: its bytes decide, its name only breaks ties between kinds of text. Then the reader for it.

Everything here runs inside a parser process (`parse.py`). Guards stand before the libraries that open containers.

INVARIANT: a file whose name promises a binary format is read as that or refused, never taken for text
(tests/faults/test_documents.py::test_binary_names_hold_binaries).
INVARIANT: an archive is measured by its directory before it is opened (tests/faults/test_documents.py::test_zip_bomb).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from router.ingest.blocks import LIMITS, Parsed, ParseLimits, Unreadable, clean_text, clean_title, decode
from router.ingest.front_matter import split_front_matter

CODE_SUFFIXES = {
    ".py": "python", ".pyi": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".tsx": "tsx", ".java": "java", ".go": "go", ".rs": "rust", ".c": "c", ".h": "c", ".cc": "cpp",
    ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp", ".hh": "cpp", ".sql": "sql",
}  # fmt: skip
_MARKDOWN = {".md", ".markdown", ".mdown", ".mkd"}
_TEXT_SUFFIXES = (
    {".csv", ".tsv", ".eml", ".html", ".htm", ".xhtml", ".ipynb", ".txt", ".log", ".rst", ""} | _MARKDOWN | set(CODE_SUFFIXES)
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PICTURES = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"\x00\x00\x01\x00",
    b"II*\x00",
    b"MM\x00*",
    b"\x7fELF",
    b"MZ",
    b"\x1f\x8b",
    b"BZh",
    b"7z\xbc\xaf",
    b"\xfd7zXZ",
    b"{\\rtf",
)
_BINARY = {
    ".pdf", ".docx", ".docm", ".pptx", ".pptm", ".xlsx", ".xlsm", ".doc", ".ppt", ".xls", ".msg", ".odt", ".ods", ".odp", ".rtf",
    ".zip", ".gz", ".7z", ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ico", ".exe", ".dll", ".so",
}  # fmt: skip
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_FRONT = re.compile(r"\s*(-{3,}|\+{3,})\s*\n")
_DATA = {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".env", ".properties", ".log", ".diff", ".patch"}
_HEAD_BYTES = 64 * 1024
_MAIL_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*:")
_HTML_START = re.compile(r"(?is)\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>])")


def read_document(data: bytes, name: str, limits: ParseLimits = LIMITS) -> Parsed:
    """Raises `Unreadable`. What it returns holds text, within the limits."""
    if len(data) > limits.file_bytes:
        raise Unreadable("too_large", f"{len(data)} bytes; the limit is {limits.file_bytes}")
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("empty", "no bytes but blanks" if data else "zero bytes")
    parsed = _read(data, name, limits)
    if parsed.chars > limits.text_chars:
        raise Unreadable("too_large", f"{parsed.chars} characters of text; the limit is {limits.text_chars}")
    if not any(block.text.strip() for block in parsed.blocks):
        raise Unreadable("empty", "no text inside")
    return parsed


def _read(data: bytes, name: str, limits: ParseLimits) -> Parsed:
    if b"%PDF-" in data[:1024]:
        from router.ingest.pdf import read_pdf

        return read_pdf(data, limits)
    if data.startswith(b"PK\x03\x04"):
        return _read_archive(data, limits)
    if data.startswith(_OLE):
        from router.ingest.office import read_ole

        return read_ole(data, limits)
    if data.startswith(_PICTURES):
        raise Unreadable("unsupported", "a picture, a program, an archive or another format that is not read")
    suffix = PurePosixPath(name.lower()).suffix
    if suffix in _BINARY:
        raise Unreadable("corrupt", f"its name ends in {suffix}, its bytes are none of that kind")
    if b"\0" in data and not data.startswith(_MARKS):
        raise Unreadable("not_text", "bytes that are no text")
    if len(data) > limits.text_chars * 4:
        raise Unreadable("too_large", f"{len(data)} bytes of text; the limit is {limits.text_chars} characters")
    if not data.startswith(_MARKS) and (suffix == ".eml" or _looks_like_mail(data[:4096].decode("latin-1"))):
        from router.ingest.mail import read_mail

        if suffix == ".eml" and split_front_matter(clean_text(data[:_HEAD_BYTES].decode("utf-8", "replace")), prose=False)[0]:
            raise Unreadable("bad_front_matter", "a message has none; label it by a sidecar")
        return read_mail(data)  # each part names its own encoding
    return _read_text(decode(data), suffix)


def _read_archive(data: bytes, limits: ParseLimits) -> Parsed:
    from router.ingest import office

    names = check_archive(data, limits)
    if "word/document.xml" in names:
        return office.read_docx(data)
    if "ppt/presentation.xml" in names:
        return office.read_pptx(data)
    if "xl/workbook.xml" in names:
        return office.read_xlsx(data, limits)
    if "[Content_Types].xml" in names:
        raise Unreadable("corrupt", "an office document without its main part")
    raise Unreadable("unsupported", "an archive")


def check_archive(data: bytes, limits: ParseLimits) -> frozenset[str]:
    """Names inside, after the sum of unpacked sizes and the ratio have been checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError):
        raise Unreadable("corrupt", "a damaged archive") from None
    unpacked = sum(info.file_size for info in infos)
    if unpacked > limits.unpacked_bytes or unpacked > limits.unpacked_ratio * max(len(data), 1):
        raise Unreadable("bomb", f"unpacks from {len(data)} to {unpacked} bytes")
    if len(infos) > 20_000 or len({info.filename for info in infos}) != len(infos):
        raise Unreadable("corrupt", "an archive with too many or repeated names")
    if any(info.flag_bits & 0x1 for info in infos):
        raise Unreadable("encrypted", "an archive with a password")
    return frozenset(info.filename for info in infos)


def _read_text(text: str, suffix: str) -> Parsed:
    """Front matter may stand above any text; it is read first and its lines left empty, so that numbers stay right."""
    from router.ingest import markup

    kind = _text_kind(text, suffix)
    if kind == "markdown":
        return markup.read_markdown(text)
    prose = kind in {"html", "text"} and suffix not in _DATA
    front, lines, first = split_front_matter(clean_text(text), prose=prose)
    if front:
        text = "\n" * (first - 1) + "\n".join(lines)
    parsed = _reader(kind)(text)
    if front.keys() & parsed.front_matter.keys():
        raise Unreadable("bad_front_matter", "front matter and head both say the same name")
    return replace(
        parsed, front_matter={**parsed.front_matter, **front}, title=clean_title(str(front.get("title") or "")) or parsed.title
    )


def _reader(kind: str) -> Callable[[str], Parsed]:
    from router.ingest import markup

    if kind in CODE_SUFFIXES.values():
        from router.ingest.code import read_code

        return lambda text: read_code(text, kind)
    if kind == "html":
        from router.ingest.html import read_html

        return read_html
    if kind == "mail":
        from router.ingest.mail import read_mail

        return lambda text: read_mail(text.encode())
    return {"csv": markup.read_csv, "notebook": markup.read_notebook}.get(kind, markup.read_text)


def _text_kind(text: str, suffix: str) -> str:
    """The content where it is plain, else the suffix."""
    head = text[:4096].lstrip("\ufeff")
    if _HTML_START.match(head) or (suffix in {".html", ".htm", ".xhtml"} and "<" in head):
        return "html"
    if suffix == ".ipynb" or (head.lstrip().startswith("{") and '"nbformat"' in text):
        return "notebook"
    if suffix in CODE_SUFFIXES:
        return CODE_SUFFIXES[suffix]
    if suffix in _MARKDOWN:
        return "markdown"
    if suffix in {".csv", ".tsv"}:
        return "csv"
    if suffix == ".eml" or _looks_like_mail(head):
        return "mail"
    return "markdown" if _FRONT.match(head) else "text"


def _looks_like_mail(head: str) -> bool:
    """Header lines from the first on: a sender, and a date, a route or a version."""
    names: set[str] = set()
    for line in head.splitlines()[:40]:
        if not line.strip():
            break
        if line[0] in " \t" and names:
            continue
        match = _MAIL_HEADER.match(line)
        if not match:
            return False
        names.add(match.group(1).lower())
    return len(names) >= 3 and "from" in names and bool(names & {"message-id", "mime-version", "received", "date"})
