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

from router.sql.planner.index import FieldKey, Index, Meaning
from router.sql.planner.tokens import Token

if TYPE_CHECKING:
    from router.sql.planner.segment import Piece

_CODE = re.compile(r"([A-Za-z]{1,8}[-_/])[A-Za-z\d][A-Za-z\d_/-]*")

_CODED = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[A-Za-z\d]+(?:[-_/][A-Za-z\d]+)+")


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
        if pieces[at].kind == "unknown" and out and _CODED.fullmatch(pieces[at].words) and _open_text(out[-1], index):
            out.append(replace(pieces[at], kind="quoted", literal=pieces[at].words))
            at += 1
            continue
        end = at
        while end < len(pieces) and pieces[end].kind == "unknown" and pieces[end].words[:1].isupper():
            end += 1
        doer = _doer(out, index)
        if doer is not None and (end > at or (pieces[at].kind == "value" and doer in (pieces[at].stored or {}))):
            _say_who(out, doer)
        key = (doer or _labelled(out, pieces[end : end + 2], index)) if end > at else None
        if key is None:
            out.extend(pieces[at : max(end, at + 1)])
        else:
            words = " ".join(piece.words for piece in pieces[at:end])
            length = sum(piece.length for piece in pieces[at:end])
            out.append(replace(pieces[at], kind="value", length=length, words=words, stored={key: words}))
        at = max(end, at + 1)
    return out


def _doer(before: list[Piece], index: Index) -> FieldKey | None:
    """ "Reported by": the one text field that says who, which is called reporter."""
    said = [piece for piece in before if piece.kind != "fill"][-2:]
    if len(said) < 2 or said[1].words.lower() != "by" or said[0].kind not in ("name", "verb"):
        return None
    return doer(said[0].words.lower(), index)


def doers(done: str) -> tuple[str, ...]:
    """What somebody is called who did it: "reported" -> "reporter", "created" -> "creator"."""
    spelled = (done[:-1] + "r", done[:-2] + "er", done[:-2] + "or")
    return tuple(dict.fromkeys(spelled)) if done.isalpha() and done.endswith("ed") and len(done) > 4 else ()


def doer(done: str, index: Index) -> FieldKey | None:
    """The one field that is called so, if it is a text and no key."""
    meanings = [index.phrases[who,] for who in doers(done) if (who,) in index.phrases]
    found = [(owner, name) for meaning in meanings for owner, names in meaning.fields.items() for name in names]
    plain = len(found) == 1 and index.info[found[0]].datatype == "String" and not index.info[found[0]].key
    return found[0] if plain else None


def _say_who(before: list[Piece], doer: FieldKey) -> None:
    """ "Reported by" as one name, of the field that says who."""
    at = next(at for at in range(len(before) - 1, -1, -1) if before[at].words.lower() == "by") - 1
    while before[at].kind == "fill":
        at -= 1
    said = before[at:]
    meaning = Meaning(fields={doer[0]: {doer[1]: 1.0}})
    words, length = " ".join(piece.words for piece in said), sum(piece.length for piece in said)
    before[at:] = [replace(said[0], kind="name", words=words, length=length, meaning=meaning)]


def _open_text(piece: Piece, index: Index) -> bool:
    """ "Bin B-17-1": a field of texts that no index holds, named right before a code."""
    fields = piece.meaning.fields if piece.kind == "name" and piece.meaning is not None else {}
    found = [(owner, name) for owner, names in fields.items() for name in names]
    return bool(found) and all(index.info[key].datatype == "String" and key not in index.valued for key in found)


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
    elif last is not None and last.kind == "when" and after and after[0].kind == "name":
        beside = after[0]  # "when was Ada Lindqvist hired"
    if beside is None or beside.meaning is None:
        return None
    owners = list(beside.meaning.datasets or beside.meaning.fields)
    labels = index.labels.get(owners[0], ()) if len(owners) == 1 else ()
    if len(labels) != 1:
        return None
    key = (owners[0], labels[0])
    info = index.info[key]
    return key if info.datatype == "String" and not info.key and key not in index.valued else None
