"""Documents, labels, filters and questions that have broken stores before. Expected answers come from `filters.matches`."""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from router.domain import SOURCE_FIELD, Chunk, Embedded, IndexedDocument, Labels, ModelCard, Span, twin_id
from router.filters import (
    ALWAYS,
    LONG_MAX,
    LONG_MIN,
    NEVER,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Not,
    Or,
    Overlaps,
    Scalar,
    Within,
    fits,
    matches,
)
from tests import policy_world as world

MODEL = ModelCard("toy", "0" * 64, 4, 2, 256)
OTHER_MODEL = ModelCard("other", "1" * 64, 4, 2, 256)
TENANT, NEIGHBOUR = "fabrikam", "Fabrikam"
ENTITY = EntityType(
    "Document",
    {
        "tenant": Field("string", True),
        "groups": Field("set", True),
        "tags": Field("set", True),
        "sensitivity": Field("long", True),
        "title": Field("string", True),
        "active": Field("bool", True),
        "rank": Field("long", False),
        "Rank": Field("long", False),  # SQL folds case, labels do not
        "region": Field("string", False),
        "archived": Field("bool", False),
        'we"ird col; --': Field("string", False),
    },
)
WEIRD = 'we"ird col; --'

HOSTILE = (
    *world.STRINGS,
    "'; DROP TABLE label; --",
    '" OR "1"="1',
    "%",
    "_",
    "*",
    "?",
    "[a-z]",
    "NEAR(a b)",
    "body:x",
    "-a +b ^c",
    "a AND NOT b",
    '"unclosed',
    "\\u0000",
    "$.a",
    "\u2067rtl\u2069",
    "مرحبا",
    "日本語",
    "👩‍👩‍👧",
    "ﬀ",
    "İstanbul",
    "STRASSE",
    "a" * 100_000,
    "true ",
    " ",
    "\x7f\x1b[31m",
    "\ufeff",
    "\uffff",
    "NULL",
    "1e400",
    "-0",
)


def examples(count: int) -> int:
    """How many examples hypothesis tries: `count`, times POINTSMAN_LONG."""
    return count * max(1, int(os.environ.get("POINTSMAN_LONG") or 1))


# --- documents --------------------------------------------------------------------------------------------------------


def labels(**changes: Scalar | frozenset[str] | None) -> dict[str, Scalar | frozenset[str]]:
    """Complete labels; None takes one away."""
    found: dict[str, Scalar | frozenset[str] | None] = {
        "tenant": TENANT,
        "groups": frozenset({"corp:a"}),
        "tags": frozenset(),
        "sensitivity": 1,
        "title": "plain",
        "active": True,
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def embedded(*vector: float, tokens: int = 2) -> Embedded:
    """A toy vector of unit length, and token vectors that say which it was."""
    length = math.sqrt(sum(part * part for part in vector)) or 1.0
    unit = struct.pack("<4f", *(part / length for part in vector))
    ids = struct.pack(f"<{tokens}H", *range(1, tokens + 1))
    return Embedded(unit, ids, bytes(2 * tokens), 127.0)


def question(*vector: float) -> bytes:
    return embedded(*vector).vector


def document(
    key: str, given: Labels, *texts: str, source: str = "s", vectors: Iterable[tuple[float, ...]] = (), title: str = ""
) -> IndexedDocument:
    """One chunk a text. Every text holds the word `shared`, so that the lexical leg can find all of it."""
    document_id = f"{source}/{key}"
    directions = itertools.chain(vectors, itertools.repeat((1.0, 0.5, 0.25, 0.0)))
    chunks = []
    for at, (text, direction) in enumerate(zip(texts or ("",), directions, strict=False)):
        chunk = Chunk(
            chunk_id=f"{document_id}#{at}",
            document_id=document_id,
            source=source,
            ordinal=at,
            title=title,
            heading_path=(),
            text=f"shared {text}",
            kind="prose",
            uri=f"file:///{at}",
            span=Span(lines=(at + 1, at + 2)),
        )
        chunks.append((chunk, embedded(*direction)))
    return IndexedDocument(source, document_id, given, tuple(chunks))


def twinned(plain: IndexedDocument, *contexts: str) -> IndexedDocument:
    """The same document with contextual chunks beside the plain ones, one context a chunk."""
    told = zip(plain.chunks, contexts, strict=True)
    twins = tuple((replace(chunk, chunk_id=twin_id(chunk.chunk_id), context=context), e) for (chunk, e), context in told)
    return replace(plain, contextual=twins)


def grid() -> list[IndexedDocument]:
    """Labels at their borders: absent, empty, extreme, and strings that are syntax somewhere."""
    given = [
        labels(),
        labels(rank=0),
        labels(rank=1, Rank=2),
        labels(Rank=1),
        labels(rank=-1, archived=True),
        labels(archived=False, region=""),
        labels(rank=LONG_MIN, region="1"),
        labels(rank=LONG_MAX, region="0"),
        labels(sensitivity=LONG_MAX, active=False),
        labels(sensitivity=LONG_MIN),
        labels(sensitivity=2**53, rank=2**53 + 1),
        labels(groups=frozenset()),
        labels(groups=frozenset({"corp:a", "corp:b"}), tags=frozenset({""})),
        labels(groups=frozenset({"corp:b"}), tags=frozenset({"a", "A", "é", "e\u0301"})),
        labels(tags=frozenset({"groups", "corp:a"}), groups=frozenset({"corp:a,corp:b"})),
        labels(sensitivity=None),
        labels(title=None),
        labels(active=None, rank=1),
        labels(**{WEIRD: "x"}),
        *(labels(region=text) for text in HOSTILE),
        *(labels(title=text, tags=frozenset({text})) for text in HOSTILE),
    ]
    return [document(f"{at:03}", of, source="ab"[at % 2]) for at, of in enumerate(given)]


def reference(documents: Iterable[IndexedDocument], f: Filter, entity: EntityType = ENTITY) -> list[str]:
    """Ids of the documents that the oracle admits."""
    return sorted(item.document_id for item in documents if admits(f, item.source, item.labels, entity))


def admits(f: Filter, source: str, given: Labels, entity: EntityType = ENTITY) -> bool:
    return fits(given, entity) and matches(f, {**given, SOURCE_FIELD: source})


# --- filters ----------------------------------------------------------------------------------------------------------


def atoms() -> Iterator[Filter]:
    """Every comparison with every field it can be said of, at values the grid holds, nearly holds and does not hold."""
    yield from (ALWAYS, NEVER)
    for name in ENTITY.fields:
        yield Has(name)
    for name, bound in itertools.product(("rank", "Rank", "sensitivity"), (LONG_MIN, -1, 0, 1, 2, 2**53, 2**53 + 1, LONG_MAX)):
        yield from (Eq(name, bound), Lt(name, bound), Le(name, bound), Gt(name, bound), Ge(name, bound))
        yield In(name, frozenset({bound, 7}))
    for name, flag in itertools.product(("active", "archived"), (True, False)):
        yield from (Eq(name, flag), In(name, frozenset({flag})))
    for name, text in itertools.product(("region", "title", SOURCE_FIELD, WEIRD), (*HOSTILE, "x", "b")):
        yield from (Eq(name, text), Like(name, (text,)), Like(name, (text, "")), Like(name, ("", text)))
    for text in HOSTILE:
        yield from (Overlaps("tags", frozenset({text, "zz"})), Within("tags", frozenset({text})), In("region", frozenset({text})))
        yield Like("region", (text[:1], text[1:2], text[2:]))
    for name in ("groups", "tags"):
        for values in (frozenset[str](), frozenset({"corp:a"}), frozenset({"corp:a", "corp:b"}), frozenset({""})):
            yield from (Overlaps(name, values), Within(name, values))
    yield from (In("region", frozenset()), In("rank", frozenset()), Like("region", ("", "", "")))


def compounds() -> Iterator[Filter]:
    """Three-valued traps: each is two-valued in the oracle."""
    absent, equal, among = Eq("rank", 1), Eq("region", "0"), In("rank", frozenset({0, 1}))
    yield from (Not(absent), Not(Not(absent)), Not(And((absent, equal))), Not(Or((absent, equal))), Not(among))
    yield from (And((Not(absent), Not(equal))), Or((Not(absent), equal)), Or((absent, Not(absent))), And((absent, Not(absent))))
    yield from (And(()), Or(()), Not(And(())), Not(Or(())), And((Or(()), absent)), Or((And(()), absent)))
    yield from (Not(Lt("rank", 0)), Not(Ge("rank", 0)), Not(Like("region", ("", ""))), Not(Eq("archived", True)))
    yield from (Not(Overlaps("tags", frozenset({"a"}))), Not(Within("tags", frozenset())), Not(Has("rank")), Not(Has("tags")))
    yield And((Has("rank"), Not(Eq("rank", 1)), Not(Overlaps("groups", frozenset({"corp:b"})))))
    yield Or((And((Has("archived"), Eq("archived", False))), And((Not(Has("archived")), Eq("active", True)))))
    yield And((In(SOURCE_FIELD, frozenset({"a"})), Or((Eq("sensitivity", 1), Not(In("title", frozenset({"plain", "a"})))))))


def nested(depth: int) -> Filter:
    """And, Or and Not in turns, `depth` levels, admitting what has rank 1."""
    f: Filter = Eq("rank", 1)
    for level in range(depth - 1):
        f = (lambda g: And((g,)), lambda g: Or((g,)), Not)[level % 3](f)
    return f


# --- random -----------------------------------------------------------------------------------------------------------

_texts = st.sampled_from(HOSTILE[:40]) | world.strings
_longs = world.longs | st.integers(-3, 3)


@st.composite
def _parts(draw: st.DrawFn) -> tuple[str, ...]:
    """Patterns cut out of a text hit more often than any drawn alone."""
    text = draw(_texts)[:60]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    return tuple(draw(st.permutations(pieces))) if draw(st.booleans()) else tuple(pieces)


def _leaves() -> st.SearchStrategy[Filter]:
    texts, longs = st.sampled_from(["region", "title", WEIRD]), st.sampled_from(["rank", "Rank", "sensitivity"])
    flags, sets = st.sampled_from(["active", "archived"]), st.sampled_from(["groups", "tags"])
    some = st.frozensets(_texts, max_size=4)
    return st.one_of(
        st.builds(Has, st.sampled_from(list(ENTITY.fields))),
        st.builds(Eq, texts, _texts),
        st.builds(Eq, longs, _longs),
        st.builds(Eq, flags, st.booleans()),
        st.builds(In, texts, some),
        st.builds(In, longs, st.frozensets(_longs, max_size=4)),
        st.builds(In, flags, st.frozensets(st.booleans(), max_size=2)),
        st.builds(In, st.just(SOURCE_FIELD), st.frozensets(st.sampled_from(["a", "b", "c"]))),
        *(st.builds(kind, longs, _longs) for kind in (Lt, Le, Gt, Ge)),
        st.builds(Overlaps, sets, some),
        st.builds(Within, sets, some),
        st.builds(Like, texts, _parts()),
        st.sampled_from([ALWAYS, NEVER]),
    )


filters: st.SearchStrategy[Filter] = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(lambda items: And(tuple(items)), st.lists(inner, max_size=4)),
        st.builds(lambda items: Or(tuple(items)), st.lists(inner, max_size=4)),
        st.builds(Not, inner),
    ),
    max_leaves=12,
)


@st.composite
def random_labels(draw: st.DrawFn) -> dict[str, Scalar | frozenset[str]]:
    kinds: Mapping[str, st.SearchStrategy[Scalar | frozenset[str]]] = {
        "string": _texts,
        "long": _longs,
        "bool": st.booleans(),
        "set": st.frozensets(_texts, max_size=3),
    }
    found: dict[str, Scalar | frozenset[str]] = {}
    for name, spec in ENTITY.fields.items():
        if spec.kind == "set" or draw(st.integers(0, 9)) < (9 if spec.required else 6):
            found[name] = draw(kinds[spec.kind])
    return found
