"""A passage cut into what could say a number: its sentences, and the cells of its tables, each with what stands around it.

INVARIANT: cutting takes time in proportion to the text, whatever stands in it
(tests/unit/test_routing_steps.py::test_hostile_text_takes_little_time).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from router.domain import Passage

MOST_PIECES = 600
LONGEST_TEXT, LONGEST_PIECE, LONGEST_NEAR = 20_000, 600, 1_000
"""A sentence of a rule is short: what is longer is no sentence, and could be made to take its reader's time."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*\"(])|(?<=[^\d\s][.!?])\s+(?=\d)|;\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """One sentence, or one cell with what stands beside it: `own` is said with the number, `near` around it."""

    value: str
    own: str
    near: str
    header: str = ""
    label: str = ""
    lead: str = ""
    is_cell: bool = False


def cut_pieces(passage: Passage) -> Iterator[Piece]:
    """Cells and sentences, in order, each with what stands around it."""
    around = " \n ".join((passage.title, *passage.heading_path))[:LONGEST_NEAR]
    lead, rows, many = "", [], 0
    for block in [*_blocks(passage.text[:LONGEST_TEXT]), ("end", "")]:
        kind, text = block
        if kind == "row":
            rows.append(text)
            continue
        for piece in _cells(rows, around, lead):
            yield piece
            many += 1
        rows = []
        if kind == "end" or many > MOST_PIECES:
            return
        for sentence in _SENTENCE.split(text):
            if len(sentence) <= LONGEST_PIECE:
                yield Piece(sentence, sentence, around)
                many += 1
        lead = text[-400:]


def _blocks(text: str) -> Iterator[tuple[Literal["row", "prose", "end"], str]]:
    """Rows of tables line by line; paragraphs and points of lists joined."""
    held: list[str] = []
    for line in [*text.splitlines(), ""]:
        row = " | " in line or line.lstrip().startswith("|")
        if held and (row or not line.strip() or re.match(r"\s*(?:[-*#]|\d+[.)])\s", line)):
            yield "prose", " ".join(held)
            held = []
        if row:
            yield "row", line
        elif line.strip():
            held.append(line.strip())


def _cells(lines: Sequence[str], around: str, lead: str) -> Iterator[Piece]:
    """Each cell but those of the first row and of the first column, which say what it is of."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(re.fullmatch(r":?-*:?", cell) for cell in row)]
    if not rows:
        return
    header = rows[0]
    for row in rows[1:]:
        if len(row) != len(header):
            continue
        for at in range(1, len(row)):
            own = f"{row[0]} \n {header[at]} \n {row[at]}"
            if any(map(str.isnumeric, row[at])) and len(own) <= LONGEST_PIECE:
                yield Piece(row[at], own, f"{around} \n {lead}", header[at], row[0], lead, is_cell=True)
