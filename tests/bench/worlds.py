"""Throw-away worlds for the benches: a policy folder of 60 policies over five sources, and stores of synthetic chunks.

The chunks are those of the engine's study: about 118 words by Zipf's law over 50,000 words, clustered 384-d unit vectors,
some 400 distinct labels. They go into the store through its port, as documents of five chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from router.app import Router, make_development_issuer
from router.config import FILE_NAME, Settings, load_settings
from router.domain import Chunk, Embedded, IndexedDocument, Labels, ModelCard, Span
from router.ports import DocStore
from router.starter import write_starter

TENANT = "bench"
SOURCES = ("manuals", "claims", "handbook", "mails", "bulletins")
GROUPS = 200
POLICIES = 60
WORDS, ZIPF, TOPICS, CHUNK_WORDS = 50_000, 1.07, 400, 118
STOP_WORDS = 150
CHUNKS_A_DOCUMENT = 5
DIMENSIONS, TOKEN_DIMENSIONS = 384, 64

_SCHEMA_EXTRA = "    owner?: String,\n    kind?: String,\n    region?: String,\n"


# --- policies ---------------------------------------------------------------------------------------------------------


def write_world(folder: Path) -> Settings:
    """A folder with 60 policies, five sources, and the people `narrow` (about 2 % of the documents) and `usual` (twenty groups)."""
    write_starter(folder, tenant=TENANT, group="g000", sensitivity="public")
    policies = folder / "policies"
    schema = policies / "schema.cedarschema"
    text = schema.read_text(encoding="utf-8").replace("    owner?: String,\n", _SCHEMA_EXTRA)
    schema.write_text(text.replace("    clearance: Long,", "    clearance: Long, region?: String,"), encoding="utf-8")
    kept = sum(path.read_text(encoding="utf-8").count("\n@id(") for path in policies.glob("*.cedar"))
    written = "\n".join(_policies(POLICIES - kept))
    (policies / "generated.cedar").write_text(written, encoding="utf-8")
    identity = policies / "identity.yaml"
    claims = "clearance: { path: clearance }"
    text = identity.read_text(encoding="utf-8").replace(claims, f"{claims}\n        region: {{ path: region, required: true }}")
    identity.write_text(text, encoding="utf-8")
    _write_json(policies / "sources.yaml", {"sources": {name: _source() for name in SOURCES}})
    _write_json(policies / "people.yaml", {"people": {"narrow": _person("narrow", 4), "usual": _person("usual", 20)}})
    (policies / "cases" / "documents.csv").unlink()
    (folder / "pages").mkdir()
    sources = "".join(f'[sources.{name}]\npath = "pages"\n' for name in SOURCES)
    (folder / FILE_NAME).write_text(f'policies = "policies"\nstate = "state"\n{sources}', encoding="utf-8")
    settings = load_settings(folder / FILE_NAME)
    make_development_issuer(settings)
    return settings


def open_world(folder: Path) -> Router:
    return Router(write_world(folder))


def _policies(count: int) -> Iterator[str]:
    """Half speak of one group and source, a quarter of attributes, a quarter forbid: what a grown folder looks like."""
    for at in range(count):
        head = f'@id("p{at:02d}") @reason("drawn for the bench") @owner("bench")\n'
        source = f'Pointsman::Source::"{SOURCES[at % 5]}"'
        search = 'action == Pointsman::Action::"search"'
        match at % 4:
            case 0 | 1:
                who = f'principal in Pointsman::Group::"dev:g{at:03d}"'
                yield f"{head}permit ({who}, {search}, resource in {source}) when {{ {_own('containsAny')} && resource.sensitivity <= 2 }};"
            case 2:
                kind = f'resource has kind && resource.kind == "kind-{at % 7}"'
                rest = f"{_own('containsAny')} && resource.sensitivity <= principal.clearance"
                yield f"{head}permit (principal, {search}, resource) when {{ {kind} && {rest} }};"
            case _:
                abroad = "resource has region && principal has region && resource.region != principal.region"
                kind = f'resource has kind && resource.kind == "secret-{at % 5}"'
                yield f"{head}forbid (principal, {search}, resource in {source}) when {{ {abroad} && {kind} }};"


def _own(operator: str) -> str:
    return f"resource.groups.{operator}(principal.groups)"


def _source() -> dict[str, Any]:
    groups = [f"dev:g{at:03d}" for at in range(GROUPS)]
    return {"tenant": TENANT, "connector": "folder", "groups": groups, "least": "public", "description": "synthetic"}


def _person(name: str, groups: int) -> dict[str, Any]:
    return {
        "issuer": "dev",
        "sub": name,
        "tenant": TENANT,
        "groups": [f"g{at:03d}" for at in range(60, 60 + groups)],
        "clearance": 2,
        "region": "north",
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


# --- chunks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """Words and cluster centres; the same seed gives the same chunks and questions."""

    words: tuple[str, ...]
    share: Any
    centres: Any
    labels: tuple[tuple[str, Labels], ...]


def build_corpus(seed: int = 7) -> Corpus:
    rng = np.random.default_rng(seed)
    words = tuple(_word(rank) for rank in range(WORDS))
    share = 1.0 / np.arange(1, WORDS + 1) ** ZIPF
    centres = rng.standard_normal((TOPICS, DIMENSIONS)).astype(np.float32)
    return Corpus(words, np.cumsum(share / share.sum()), centres, tuple(_labels(rng) for _ in range(400)))


def _word(rank: int) -> str:
    """Pronounceable, distinct, and left alone by the stemmer."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aou"]
    parts = [syllables[rank % 42], syllables[rank // 42 % 42], syllables[rank // 1764 % 42]]
    return "".join(parts) + ("x" if rank % 2 else "k")


def _labels(rng: Any) -> tuple[str, Labels]:
    """Groups are skewed: some are on a tenth of the documents, most on few."""
    drawn = np.minimum(rng.zipf(1.3, int(rng.integers(1, 5))) - 1 + int(rng.integers(0, 40)), GROUPS - 1)
    labels: dict[str, Any] = {
        "tenant": TENANT,
        "groups": frozenset(f"dev:g{int(at):03d}" for at in drawn),
        "sensitivity": int(rng.choice(4, p=[0.2, 0.5, 0.2, 0.1])),
    }
    if rng.random() < 0.7:
        labels["kind"] = f"kind-{int(rng.integers(0, 7))}"
    if rng.random() < 0.3:
        labels["region"] = str(rng.choice(["north", "south", "east"]))
    if rng.random() < 0.3:
        labels["effective_from"] = int(rng.integers(1_500_000_000_000, 1_900_000_000_000))
    return str(rng.choice(SOURCES)), labels


def fill_store(store: DocStore, corpus: Corpus, chunks: int, *, model: ModelCard, tokens: int, seed: int = 11) -> None:
    """`tokens`: stored token vectors a chunk."""
    rng = np.random.default_rng(seed)
    batch: list[IndexedDocument] = []
    for number in range(chunks // CHUNKS_A_DOCUMENT):
        batch.append(_document(corpus, rng, number, tokens))
        if len(batch) == 1000:
            store.put(TENANT, batch, model=model)
            batch = []
    store.put(TENANT, batch, model=model)


def _document(corpus: Corpus, rng: Any, number: int, tokens: int) -> IndexedDocument:
    source, labels = corpus.labels[int(rng.integers(len(corpus.labels)))]
    document_id = f"{source}/{number:06d}"
    topic = corpus.centres[int(rng.integers(TOPICS))]
    texts = np.searchsorted(corpus.share, rng.random((CHUNKS_A_DOCUMENT, CHUNK_WORDS)))
    vectors = topic + 0.7 * rng.standard_normal((CHUNKS_A_DOCUMENT, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = rng.integers(-60, 60, (CHUNKS_A_DOCUMENT, tokens, TOKEN_DIMENSIONS), dtype=np.int8)
    ids = rng.integers(1000, 30_000, (CHUNKS_A_DOCUMENT, tokens)).astype("<u2")
    pairs = tuple(
        (
            _chunk(document_id, source, at, " ".join(corpus.words[word] for word in texts[at])),
            Embedded(vectors[at].astype("<f4").tobytes(), ids[at].tobytes(), pieces[at].tobytes(), 127.0),
        )
        for at in range(CHUNKS_A_DOCUMENT)
    )
    return IndexedDocument(source, document_id, labels, pairs)


def _chunk(document_id: str, source: str, at: int, text: str) -> Chunk:
    uri = f"file:///{document_id}"
    return Chunk(f"{document_id}#{at}", document_id, source, at, f"Page {document_id}", (), text, "prose", uri, Span())


def build_questions(corpus: Corpus, count: int, seed: int = 23) -> list[str]:
    """3 to 6 words as they come in text; the most frequent stand for stop words, which leave a question."""
    rng = np.random.default_rng(seed)
    least = float(corpus.share[STOP_WORDS])
    drawn = [np.searchsorted(corpus.share, least + (1 - least) * rng.random(int(rng.integers(3, 7)))) for _ in range(count)]
    return [" ".join(corpus.words[word] for word in words) for words in drawn]


def build_vectors(corpus: Corpus, count: int, seed: int = 29) -> list[bytes]:
    rng = np.random.default_rng(seed)
    rows = corpus.centres[rng.integers(0, TOPICS, count)] + rng.standard_normal((count, DIMENSIONS)).astype(np.float32)
    return [(row / np.linalg.norm(row)).astype("<f4").tobytes() for row in rows]
