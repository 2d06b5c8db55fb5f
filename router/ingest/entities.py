"""What a chunk names, written down when it is indexed: codes by their shape, products by front matter, names as people have, and
stored values that a reviewer marked as everybody's (`values: public` in governance.yaml), with the names that these go by.

Deterministic and of the document alone, so that what one document names never hangs on what another one holds. What is written here
is read back only under the filter that admits the chunk.

INVARIANT: entities are of the chunk, its headings and its document alone (tests/unit/test_ingest_entities.py::test_of_the_document_alone).
INVARIANT: nothing becomes an alias that a reviewer did not mark public, nor a name that several things go by (…::test_only_public_values_are_aliases).
INVARIANT: each function takes time linear in its text (…::test_hostile_text_takes_linear_time).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from router.domain import Chunk, Entity, EntityKind
from router.ingest.context import told_facts
from router.lexicon import STOP_WORDS, code_name, read_codes

MOST_ENTITIES = 64
"""Of one chunk, subjects first: a price list names thousands, and is about none of them."""
MOST_SUBJECTS = 12
MOST_PUBLIC_ROWS = 5_000
"""Of one dataset; with more of them a value is no name but data."""
MOST_NAME_CHARS = 80
LONGEST_ALIAS_WORDS = 5
_LEAST_ALIAS_CHARS = 4
_IDS = re.compile(r"(?:.*_)?(?:id|ids|no|nr|number|code|codes|incident|ticket|claim|case|reference|sku|serial)")
_ELSEWHERE = re.compile(r"supersedes|replaces|replaced_by|see(?:_also)?|related(?:_.*)?|references|links?")
"""Front matter that speaks of other documents."""
_SPLIT = re.compile(r"[,;|\n]+")
_PERSON = re.compile(r"(?<=[^\W_] )[A-ZÀ-ÖØ-Þ][^\W\d_]{1,24}(?: [A-ZÀ-ÖØ-Þ][^\W\d_]{1,24}){1,2}(?!\w)")
"""Two or three capitalised words behind another word: the first word of a sentence says nothing."""
_TOKEN = re.compile(r"[^\W_]+(?:[-_][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Aliases:
    """Names of public stored values: what is said to what is meant, both as `lexicon.code_name` gives them."""

    meant: Mapping[str, str] = field(default_factory=dict)

    @property
    def longest_words(self) -> int:
        return max((name.count("-") + 1 for name in self.meant), default=0)


@dataclass(frozen=True, slots=True)
class PublicRows:
    """What of one dataset everybody's questions may be read with: columns marked `values: public`, in the order of each row, with the
    column by which people know a row, if that is public too."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class PublicColumns:
    """Where what governance.yaml marks `values: public` in one dataset stands; `tenant` is the expression that says whose a row is."""

    relation: str
    tenant: str
    columns: tuple[str, ...]
    label: str | None

    def rows_of(self, tenant: str, rows: Iterable[tuple[object, ...]]) -> PublicRows:
        """`rows` begin with their tenant; another tenant's are nobody's business here."""
        return PublicRows(self.columns, tuple(row[1:] for row in rows if row[0] == tenant), self.label)


def build_aliases(datasets: Iterable[PublicRows]) -> Aliases:
    """Each value means itself; beside the public label of its row it means that, where all rows with it have one label. A value that
    means several things is nobody's alias and means itself."""
    found: dict[str, set[str]] = {}
    for dataset in datasets:
        at = dataset.columns.index(dataset.label) if dataset.label in dataset.columns else None
        for row in dataset.rows:
            label = None if at is None else row[at]
            for value in row:
                if isinstance(value, str) and (said := _alias(value)):
                    meant = _alias(label) if isinstance(label, str) else ""
                    found.setdefault(said, set()).add(meant or said)
    return Aliases({said: next(iter(meant)) if len(meant) == 1 else said for said, meant in found.items()})


def _alias(value: str) -> str:
    """A number or a small word would be found everywhere."""
    name = code_name(value) if len(value) <= MOST_NAME_CHARS else ""
    words = name.split("-")
    spoken = any(char.isalpha() for char in name) and len(name) >= _LEAST_ALIAS_CHARS and not set(words) <= STOP_WORDS
    return name if spoken and len(words) <= LONGEST_ALIAS_WORDS else ""


def with_entities(chunks: Sequence[Chunk], key: str, meta: Mapping[str, str], aliases: Aliases) -> tuple[Chunk, ...]:
    """The chunks of one document, each with what it names. `key` is the document's place in its source, `meta` its front matter."""
    subjects = _subjects(chunks[0].title if chunks else "", key, meta)
    return tuple(replace(chunk, entities=_entities(chunk, subjects, aliases)) for chunk in chunks)


def _subjects(title: str, key: str, meta: Mapping[str, str]) -> list[tuple[EntityKind, str]]:
    """By title, name of the file and front matter."""
    stem = key.rpartition("/")[2].partition(".")[0]
    found: list[tuple[EntityKind, str]] = [("code", name) for text in (title, stem, stem.upper()) for name in read_codes(text)]
    for name, value in meta.items():
        folded = code_name(name).replace("-", "_")
        if _IDS.fullmatch(folded) and not _ELSEWHERE.fullmatch(folded):
            found += [("code", code) for code in read_codes(value)]
    for value in told_facts(meta).values():
        for part in _SPLIT.split(value):
            codes: list[tuple[EntityKind, str]] = [("code", code) for code in read_codes(part)]
            found += codes or [("product", name) for name in (code_name(part),) if name and len(part.strip()) <= MOST_NAME_CHARS]
    return found


def _entities(chunk: Chunk, subjects: Sequence[tuple[EntityKind, str]], aliases: Aliases) -> tuple[Entity, ...]:
    headed: list[tuple[EntityKind, str]] = [("code", name) for name in read_codes("\n".join(chunk.heading_path))]
    about = [*headed, *subjects][:MOST_SUBJECTS]
    found: dict[str, Entity] = {}
    for kind, name in about:
        found.setdefault(name, Entity(kind, name, subject=True))
    codes: list[tuple[EntityKind, str]] = [("code", name) for name in read_codes(chunk.text)]
    values: list[tuple[EntityKind, str]] = [("value", name) for name in read_aliases(f"{chunk.title}\n{chunk.text}", aliases)]
    names: list[tuple[EntityKind, str]] = [
        ("name", name) for name in map(code_name, _PERSON.findall(chunk.text)) if _is_name(name)
    ]
    named = [*codes, *values, *names]
    for kind, name in named:
        if len(found) >= MOST_ENTITIES:
            break
        found.setdefault(name, Entity(kind, name))
    return tuple(found.values())


def _is_name(name: str) -> bool:
    """`Of The Drive` is a heading."""
    return not STOP_WORDS & set(name.split("-"))


def read_aliases(text: str, aliases: Aliases) -> list[str]:
    """What a text means by names that are everybody's, the longest name at each place."""
    if not aliases.meant:
        return []
    words = [part for token in _TOKEN.findall(text) for part in code_name(token).split("-") if part]
    longest, found, at = aliases.longest_words, [], 0
    while at < len(words):
        for size in range(min(longest, len(words) - at), 0, -1):
            meant = aliases.meant.get("-".join(words[at : at + size]))
            if meant is not None:
                found.append(meant)
                at += size - 1
                break
        at += 1
    return list(dict.fromkeys(found))
