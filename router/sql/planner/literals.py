"""Words that are stored though no index holds them: codes whose shape the catalogue describes, and names of people and things.

They become literals of one field and of no other, so that a row that is found is one that was asked for; where two fields could
hold them nothing is bound. Whether such a row exists is known to the caller's own query alone.

INVARIANT: a text that is not indexed is bound only where one field can hold it
(tests/sql/planner/test_plan_literals.py::test_what_two_fields_could_hold_is_not_bound).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from router.sql.planner.index import FieldKey, Index
from router.sql.planner.tokens import Token

if TYPE_CHECKING:
    from router.sql.planner.segment import Piece

_CODE = re.compile(r"([A-Za-z]{1,8}[-_/])[A-Za-z\d][A-Za-z\d_/-]*")


def coded(token: Token, index: Index) -> dict[FieldKey, str]:
    """The keys whose description says that their codes begin like this one, each with the code as it is spelled there."""
    match = _CODE.fullmatch(token.text)
    if match is None or token.kind != "word" or not any(letter.isdigit() for letter in token.text):
        return {}
    rest = token.text[len(match[1]) :]
    return {key: prefix + rest for key, prefix in index.shapes.get(match[1].casefold(), {}).items()}


def named(pieces: list[Piece], index: Index) -> list[Piece]:
    """ "Telephone of Ada Lindqvist", "technician Ada Lindqvist": capitalised words that nothing explains, where a label belongs."""
    out: list[Piece] = []
    at = 0
    while at < len(pieces):
        end = at
        while end < len(pieces) and pieces[end].kind == "unknown" and pieces[end].words[:1].isupper():
            end += 1
        key = _labelled(out, pieces[end : end + 2], index) if end > at else None
        if key is None:
            out.extend(pieces[at : max(end, at + 1)])
        else:
            words = " ".join(piece.words for piece in pieces[at:end])
            length = sum(piece.length for piece in pieces[at:end])
            out.append(replace(pieces[at], kind="value", length=length, words=words, stored={key: words}))
        at = max(end, at + 1)
    return out


def _labelled(before: list[Piece], after: list[Piece], index: Index) -> FieldKey | None:
    """The label of what stands beside the words: of the one dataset named, or of the only one that has the field named."""
    last = before[-1] if before else None
    beside = None
    if last is not None and last.kind == "name" and last.meaning is not None and last.meaning.datasets:
        beside = last
    elif last is not None and last.kind == "of" and len(before) > 1 and before[-2].kind == "name":
        beside = before[-2]
    elif len(after) == 2 and after[0].words == "'s" and after[1].kind == "name":
        beside = after[1]
    if beside is None or beside.meaning is None:
        return None
    owners = list(beside.meaning.datasets or beside.meaning.fields)
    labels = index.labels.get(owners[0], ()) if len(owners) == 1 else ()
    if len(labels) != 1:
        return None
    key = (owners[0], labels[0])
    info = index.info[key]
    return key if info.datatype == "String" and not info.key and key not in index.valued else None
