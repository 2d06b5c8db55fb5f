"""A writer for Microsoft's old container, as small as tests need: streams in the root or one storage deep."""

from __future__ import annotations

import struct
from collections.abc import Mapping

SECTOR = 512
END, FREE, FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def ole_file(streams: Mapping[str, bytes]) -> bytes:
    """Each stream is padded with zeros to 4,096 bytes, the size from which it needs no mini stream."""
    bodies = [body.ljust(4096, b"\0") for body in streams.values()]
    entries = 1 + len(bodies)
    directory_sectors = -(-entries * 128 // SECTOR)
    body_sectors = [-(-len(body) // SECTOR) for body in bodies]
    fat: list[int] = [FAT, *range(2, 1 + directory_sectors), END]
    starts = []
    for count in body_sectors:
        starts.append(len(fat))
        fat += [*range(len(fat) + 1, len(fat) + count), END]
    assert len(fat) <= SECTOR // 4
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, END, 0, END, 0) + struct.pack("<109I", 0, *[FREE] * 108)
    table = struct.pack(f"<{SECTOR // 4}I", *fat, *[FREE] * (SECTOR // 4 - len(fat)))
    # the tree of names is a list to the right, which readers accept
    names = sorted(range(len(bodies)), key=lambda at: (len(list(streams)[at]), list(streams)[at].upper()))
    directory = _entry("Root Entry", 5, child=names[0] + 1 if names else FREE, start=END, size=0)
    rights = {names[at]: names[at + 1] + 1 for at in range(len(names) - 1)}
    for at, name in enumerate(streams):
        directory += _entry(name, 2, right=rights.get(at, FREE), start=starts[at], size=len(bodies[at]))
    directory = directory.ljust(directory_sectors * SECTOR, b"\0")
    return header + table + directory + b"".join(body.ljust(-(-len(body) // SECTOR) * SECTOR, b"\0") for body in bodies)


def _entry(name: str, kind: int, *, right: int = FREE, child: int = FREE, start: int, size: int) -> bytes:
    text = name.encode("utf-16-le") + b"\0\0"
    return (
        text.ljust(64, b"\0")
        + struct.pack("<HBBIII", len(text), kind, 1, FREE, right, child)
        + bytes(36)
        + struct.pack("<IQ", start, size)
    )


def xls_file(rows: list[list[str | float]], sheet: str = "Bins") -> bytes:
    """A workbook of BIFF8 with one sheet."""

    def record(number: int, data: bytes) -> bytes:
        return struct.pack("<HH", number, len(data)) + data

    def text(value: str) -> bytes:
        return struct.pack("<HB", len(value), 0) + value.encode("latin-1")

    cells = b""
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            place = struct.pack("<HHH", at, column, 0)
            cells += (
                record(0x0204, place + text(value))
                if isinstance(value, str)
                else record(0x0203, place + struct.pack("<d", value))
            )
    begin = struct.pack("<HHHHII", 0x0600, 0x0005, 0x0DBB, 0x07CC, 0, 6)
    name = struct.pack("<BB", len(sheet), 0) + sheet.encode("latin-1")
    globals_size = len(record(0x0809, begin)) + len(record(0x0085, bytes(6) + name)) + len(record(0x000A, b""))
    book = record(0x0809, begin) + record(0x0085, struct.pack("<IBB", globals_size, 0, 0) + name) + record(0x000A, b"")
    page = record(0x0809, struct.pack("<HHHHII", 0x0600, 0x0010, 0x0DBB, 0x07CC, 0, 6)) + cells + record(0x000A, b"")
    return ole_file({"Workbook": book + page})


def msg_file(subject: str, body: str, sender: str) -> bytes:
    return ole_file(
        {
            "__properties_version1.0": bytes(32) + struct.pack("<IIQ", 0x00390040, 6, 133_500_000_000_000_000),
            "__substg1.0_0037001F": subject.encode("utf-16-le"),
            "__substg1.0_1000001F": body.encode("utf-16-le"),
            "__substg1.0_0C1A001F": sender.encode("utf-16-le"),
            "__substg1.0_0E04001F": "Depot 4".encode("utf-16-le"),
        }
    )
