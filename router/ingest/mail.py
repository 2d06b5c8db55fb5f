"""Messages: RFC 5322 files by the standard library, Outlook's by olefile. Subject is the title; who, whom and when are kept.

Attachments are named, not read: each would need labels of its own. Blind copies are not shown to those who read the text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from router.ingest.blocks import Block, Parsed, Unreadable, clean_text, clean_title, decode
from router.ingest.markup import paragraphs

_HEADERS = ("from", "to", "cc", "date")


def read_mail(data: bytes) -> Parsed:
    from email import message_from_bytes, policy

    try:
        message: Any = message_from_bytes(data, policy=policy.default)
        values = {name: clean_title(str(message[name]), 1_000) for name in _HEADERS if message[name] is not None}
        subject = clean_title(str(message["subject"] or ""))
        body = message.get_body(preferencelist=("plain", "html"))
        blocks = _body_blocks(body)
        names = [clean_title(part.get_filename() or "unnamed", 200) for part in message.iter_attachments()]
    except (ValueError, LookupError, AttributeError, TypeError, KeyError) as error:
        raise Unreadable("corrupt", f"not a message ({type(error).__name__})") from None
    if not values and not blocks:
        raise Unreadable("corrupt", "a message without header and body")
    return _message(subject, values, blocks, names)


def _body_blocks(body: Any) -> tuple[Block, ...]:
    if body is None:
        return ()
    text = _content(body)
    if body.get_content_type() == "text/html":
        from router.ingest.html import read_fragment

        return read_fragment(text)
    return tuple(Block("paragraph", block.text) for block in paragraphs(clean_text(text)))


def _content(body: Any) -> str:
    """The text under the charset it names, or under what fits when that name is wrong."""
    try:
        return str(body.get_content())
    except (LookupError, UnicodeError):
        payload: bytes = body.get_payload(decode=True) or b""
        return payload.decode("utf-8", "replace")


def _message(subject: str, values: Mapping[str, str], blocks: tuple[Block, ...], attachments: list[str]) -> Parsed:
    """A head paragraph makes sender and date findable; `meta` carries them for display."""
    head = [f"{name.capitalize()}: {value}" for name, value in values.items() if value]
    if attachments:
        head.append(f"Attachments: {', '.join(attachments)}")
    meta = {**values, **({"attachments": ", ".join(attachments)} if attachments else {})}
    first = (Block("paragraph", "\n".join(head)),) if head else ()
    return Parsed(subject, (*first, *blocks), {}, meta)


# --- Outlook ----------------------------------------------------------------------------------------------------------

_PROPERTIES = {"from": "0C1A", "from_address": "5D01", "to": "0E04", "cc": "0E03", "subject": "0037", "body": "1000"}
_SENT, _RECEIVED = 0x0039_0040, 0x0E06_0040


def read_msg(ole: Any) -> Parsed:
    """`ole` is an open OleFileIO that has `__properties_version1.0`."""
    values = {name: _string(ole, "", number) for name, number in _PROPERTIES.items()}
    body = values.pop("body")
    blocks = tuple(Block("paragraph", block.text) for block in paragraphs(clean_text(body)))
    if not body.strip() and ole.exists("__substg1.0_10130102"):
        from router.ingest.html import read_fragment

        blocks = read_fragment(decode(ole.openstream("__substg1.0_10130102").read().rstrip(b"\0")))
    address = values.pop("from_address") or _string(ole, "", "0C1F")
    if address and "@" in address and address not in values["from"]:
        values["from"] = f"{values['from']} <{address}>".strip()
    subject = clean_title(values.pop("subject"))
    values["date"] = _time(ole)
    folders = sorted({path[0] for path in ole.listdir() if path[0].startswith("__attach_version1.0_")})
    names = [_string(ole, f"{folder}/", "3707") or _string(ole, f"{folder}/", "3704") or "unnamed" for folder in folders]
    head = {name: clean_title(values[name], 1_000) for name in _HEADERS if values[name]}
    return _message(subject, head, blocks, [clean_title(name, 200) for name in names])


def _string(ole: Any, folder: str, number: str) -> str:
    """A property as UTF-16, else in the message's old code page."""
    for suffix, encoding in (("001F", "utf-16-le"), ("001E", "cp1252")):
        path = f"{folder}__substg1.0_{number}{suffix}"
        if ole.exists(path):
            return str(ole.openstream(path).read().decode(encoding, "replace")).rstrip("\0")
    return ""


def _time(ole: Any) -> str:
    """Sent, else received: 100 ns since 1601, in the fixed properties (32 bytes of header, 16 a property)."""
    data: bytes = ole.openstream("__properties_version1.0").read()
    found: dict[int, int] = {}
    for at in range(32, len(data) - 15, 16):
        tag, _, value = struct.unpack_from("<IIQ", data, at)
        found[tag] = value
    ticks = found.get(_SENT) or found.get(_RECEIVED)
    if not ticks:
        return ""
    try:
        return (datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10)).isoformat(timespec="seconds")
    except OverflowError:
        return ""
