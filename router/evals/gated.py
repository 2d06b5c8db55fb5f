"""Catalogues and collections for `eval routing`: each question is held against the one that its source came with.

A question that came with none (small talk, a question on other documents) is held against every one in turn, as it would be where
that catalogue or collection is all there is. With one catalogue in all, it is everybody's own; collections likewise.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.catalog import Catalog, Dataset, DatasetField, Metric
from router.errors import UsageError
from router.evals.retrieval import load_collection
from router.routing.gates import Gate, NamedThings, Probe, build_named, content_tokens, content_words, gate_rows, gate_text, idf

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

Embed = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Catalogs:
    """`own` tells which catalogue a question came with, by its plain words."""

    named: Mapping[str, NamedThings]
    own: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Collections:
    """As `Catalogs`, for documents."""

    held: Mapping[str, Documents]
    own: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Documents:
    """One collection in memory: who holds which word how often, and one vector a document."""

    count: int
    postings: Mapping[str, Sequence[tuple[int, int]]]
    lengths: Sequence[int]
    vectors: Floats

    def probe(self, question: str, vector: bytes) -> Probe:
        """Best BM25 (k1 1.2, b 0.75) and best cosine over the collection."""
        import numpy as np

        words = content_words(question)
        mean = sum(self.lengths) / self.count
        scores: dict[int, float] = defaultdict(float)
        for word in words:
            held = self.postings.get(word, ())
            weight = 2.2 * idf(self.count, len(held))
            for at, times in held:
                scores[at] += weight * times / (times + 1.2 * (0.25 + 0.75 * self.lengths[at] / mean))
        possible = sum(2.2 * idf(self.count, len(self.postings.get(word, ()))) for word in words)
        cosine = float((self.vectors @ np.frombuffer(vector, "<f4")).max())
        return Probe(max(scores.values(), default=0.0), possible, self.count, cosine)


def plain_words(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))


def gate_of_rows(catalogs: Catalogs, question: str, vector: bytes) -> tuple[Gate, bool]:
    """The gate, and whether the catalogue is the question's own."""
    name, own = _pick(catalogs.named, catalogs.own, question)
    return gate_rows(question, vector, catalogs.named[name]), own


def gate_of_text(collections: Collections, question: str, vector: bytes) -> tuple[Gate, bool]:
    name, own = _pick(collections.held, collections.own, question)
    return gate_text(collections.held[name].probe(question, vector)), own


def _pick(known: Mapping[str, object], own: Mapping[str, str], question: str) -> tuple[str, bool]:
    plain = plain_words(question)
    if plain in own:
        return own[plain], True
    names = sorted(known)
    return names[zlib.crc32(plain.encode()) % len(names)], len(names) == 1


# --- catalogues -------------------------------------------------------------------------------------------------------


def load_catalogs(paths: Sequence[Path], embed: Embed) -> Catalogs:
    """A catalog.yaml, or a folder as `eval text-to-sql` reads it: schemas, and the questions that belong to them."""
    found: dict[str, Catalog] = {}
    own: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            catalogs, questions = _read_folder(path)
            found.update(catalogs)
            own.update(questions)
        else:
            found[str(path)] = _read_ossie(path)
    return Catalogs({name: build_named(catalog, embed) for name, catalog in found.items()}, own)


def _read_folder(folder: Path) -> tuple[dict[str, Catalog], dict[str, str]]:
    from router.evals.text_to_sql.catalogs import build_catalog
    from router.evals.text_to_sql.schemas import load_questions, load_schemas

    schemas = load_schemas(folder)
    own = {plain_words(one.text): f"{folder.name}/{one.database}" for one in load_questions(folder) if one.database in schemas}
    return {f"{folder.name}/{name}": build_catalog(schema) for name, schema in schemas.items()}, own


def _read_ossie(path: Path) -> Catalog:
    """Names and synonyms only: what a gate needs of a model, without the governance that serving it would."""
    import yaml

    try:
        (model,) = yaml.safe_load(path.read_text(encoding="utf-8"))["semantic_model"]
        datasets = tuple(
            Dataset(
                item["name"],
                "",
                tuple(DatasetField(one["name"], "", synonyms=_synonyms(one)) for one in item.get("fields", ())),
                synonyms=_synonyms(item),
            )
            for item in model["datasets"]
        )
        metrics = tuple(Metric(one["name"], "", synonyms=_synonyms(one)) for one in model.get("metrics", ()))
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError("catalog_missing", f"`{path}` is no catalogue", "a catalog.yaml, or a folder with schemas") from None
    return Catalog(str(model.get("name", "")), datasets, (), metrics)


def _synonyms(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple((item.get("ai_context") or {}).get("synonyms", ()))


# --- collections ------------------------------------------------------------------------------------------------------


def load_collections(paths: Sequence[Path], embed: Embed) -> Collections:
    """Folders in BEIR layout; their queries are the questions that belong to them."""
    held: dict[str, Documents] = {}
    own: dict[str, str] = {}
    for path in paths:
        collection = load_collection(path)
        held[str(path)] = build_documents([f"{one['title']}\n{one['text']}" for one in collection.documents], embed)
        own.update({plain_words(text): str(path) for _, text in collection.queries})
    return Collections(held, own)


def build_documents(texts: Sequence[str], embed: Embed) -> Documents:
    import numpy as np

    if not texts:
        raise UsageError("collection_empty", "a collection holds no document", "check corpus.jsonl")
    postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lengths = []
    for at, text in enumerate(texts):
        tokens = content_tokens(text)
        lengths.append(max(1, len(tokens)))
        for word, times in Counter(tokens).items():
            postings[word].append((at, times))
    vectors = np.stack([np.frombuffer(embed(text), "<f4") for text in texts])
    return Documents(len(texts), postings, lengths, vectors)
