"""Parsing of the line protocol: one record a line, fields parted by `|`, checksum last."""

from __future__ import annotations

from dataclasses import dataclass

MAX_RECORD_BYTES = 512


class ReadError(ValueError):
    """A record that is refused; `reason` is the number that goes back to the tunnel."""

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Read:
    tunnel: str
    sequence: int
    at_ms: int
    camera: str
    symbology: str
    data: str


def crc16(data: bytes) -> int:
    """CRC-16/CCITT with start value 0xFFFF, as the tunnel computes it."""
    value = 0xFFFF
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = ((value << 1) ^ 0x1021) & 0xFFFF if value & 0x8000 else (value << 1) & 0xFFFF
    return value


def unescape(data: str) -> str:
    """Only the bar and the percent sign are escaped, in that order of undoing."""
    return data.replace("%7C", "|").replace("%25", "%")


def parse_read(line: bytes, known_tunnels: frozenset[str]) -> Read:
    """One `R` record. Checks length, checksum and tunnel, in the order of the reasons 4, 1, 2."""
    if len(line) > MAX_RECORD_BYTES:
        raise ReadError(4, f"record of {len(line)} bytes")
    body, _, checksum = line.rstrip(b"\r\n").rpartition(b"|")
    try:
        expected = int(checksum, 16)
    except ValueError as error:
        raise ReadError(1, "checksum is no hexadecimal number") from error
    if crc16(body) != expected:
        raise ReadError(1, "checksum differs")
    kind, tunnel, sequence, at_ms, camera, symbology, data = body.decode("ascii").split("|", 6)
    if kind != "R" or tunnel not in known_tunnels:
        raise ReadError(2, f"unknown tunnel {tunnel!r}")
    return Read(tunnel, int(sequence), int(at_ms), camera, symbology, unescape(data))


def format_read(read: Read) -> bytes:
    """The reverse of `parse_read`; the simulator and the tests speak like a tunnel with it."""
    data = read.data.replace("%", "%25").replace("|", "%7C")
    body = f"R|{read.tunnel}|{read.sequence}|{read.at_ms}|{read.camera}|{read.symbology}|{data}".encode("ascii")
    return body + b"|%04X\r\n" % crc16(body)
