"""`eval retrieval`: a BEIR collection through ordinary ingestion and the unchanged line, in a throw-away folder with its own
key, the starter's policies, one person and one ordinary permit. Never opens the configured stores, ledger or policies: of a cluster
it uses indices of its own, which it removes.

A document scores as its best chunk. nDCG after Järvelin and Kekäläinen 2002 with the qrels' scores as gain.
"""

from __future__ import annotations

import json
import math
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from router.app import Router, make_development_issuer
from router.ask import ask
from router.comparison import ndcg, recall
from router.config import FILE_NAME, ContextSettings, OpenSearchSettings, ProviderSettings, Settings, load_settings
from router.domain import Answer, Content, Entry, Question, RawLabels, Rejected
from router.errors import SourceError, UsageError
from router.ingest.workshop import IndexReport, Progress, SourceJob
from router.search.strategies import parse_strategy
from router.starter import write_starter

CANDIDATES = 100
RERANK = 50
DEPTH = 200
SOURCE = "documents"
TENANT = "eval"
PERMIT = """
@id("evaluated-questions") @reason("a collection's questions may go to the provider that is evaluated") @owner("evaluation")
permit (principal, action == Pointsman::Action::"disclose", resource)
when { ["search", "rerank", "context"].contains(context.purpose) && context.class <= 1 };
"""


@dataclass(frozen=True, slots=True)
class Collection:
    """`wholes` is, by document, the text that it was cut from, where `documents.jsonl` says so."""

    documents: tuple[Mapping[str, str], ...]
    queries: tuple[tuple[str, str], ...]
    judged: Mapping[str, Mapping[str, float]]
    wholes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    contexts: Literal["none", "structure", "claude"] = "structure"
    fusion: Literal["zsum", "rrf", "weighted"] = "zsum"
    legs: Literal["both", "dense", "lexical"] = "both"
    rerank: Literal["local", "none", "cohere"] = "local"
    queries: int | None = None
    strategy: str = "simple"
    written: ContextSettings = field(default_factory=ContextSettings)
    cluster: OpenSearchSettings | None = None
    """Where documents stand instead of files; its files of certificates are named absolutely."""


def parse_options(
    contexts: str,
    fusion: str,
    legs: str,
    rerank: str,
    queries: int | None,
    strategy: str = "simple",
    *,
    providers: ProviderSettings | None = None,
    written: ContextSettings | None = None,
    store: str = "sqlite",
    cluster: OpenSearchSettings | None = None,
) -> Options:
    parse_strategy(strategy, model=providers is not None and providers.claude is not None)
    for name, value, known in (
        ("contexts", contexts, ("none", "structure", "claude")),
        ("fusion", fusion, ("zsum", "rrf", "weighted")),
        ("legs", legs, ("both", "dense", "lexical")),
        ("rerank", rerank, ("local", "none", "cohere")),
        ("store", store, ("sqlite", "opensearch")),
    ):
        if value not in known:
            raise UsageError("option_unknown", f"`{value}` is not a value of --{name}", f"one of {', '.join(known)}")
    if rerank == "cohere" and (providers is None or providers.cohere is None or not providers.cohere.rerank_model):
        raise UsageError(
            "provider_missing", "`--rerank cohere` needs a configuration that names Cohere's reranker",
            "name one with --config that has `rerank_model` in `[providers.cohere]`",
        )  # fmt: skip
    if contexts == "claude" and (providers is None or providers.claude is None):
        raise UsageError(
            "provider_missing", "`--contexts claude` needs a configuration that names Claude",
            "name one with --config that has `[providers.claude]`",
        )  # fmt: skip
    if store == "opensearch" and cluster is None:
        raise UsageError(
            "store_missing", "`--store opensearch` needs a configuration that names a cluster",
            "name one with --config that has `[stores.opensearch]`",
        )  # fmt: skip
    own = None
    if store == "opensearch" and cluster is not None:
        own = cluster.model_copy(update={"prefix": f"{cluster.prefix}-eval{secrets.token_hex(4)}"})
    return Options(contexts, fusion, legs, rerank, queries, strategy, written or ContextSettings(), own)  # type: ignore[arg-type]


def load_collection(folder: Path) -> Collection:
    """`corpus.jsonl`, `queries.jsonl` and `qrels.tsv` of a folder in BEIR layout; queries without judgments are left out."""
    try:
        documents = tuple(_document(row) for row in _lines(folder / "corpus.jsonl"))
        _check_ids([document["_id"] for document in documents])
        queries = [(str(row["_id"]), str(row["text"])) for row in _lines(folder / "queries.jsonl")]
        rows = [line.split("\t") for line in (folder / "qrels.tsv").read_text(encoding="utf-8-sig").splitlines()[1:] if line]
        judged: dict[str, dict[str, float]] = {}
        for query, document, score in rows:
            gain = float(score)
            if not math.isfinite(gain):
                raise ValueError(score)
            if gain > 0:
                judged.setdefault(query, {})[document] = gain
        wholes = _wholes(folder / "documents.jsonl")
    except OSError as error:
        raise UsageError(
            "collection_missing", f"`{folder}` is no collection in BEIR layout", "it holds corpus.jsonl, queries.jsonl, qrels.tsv"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "collection_malformed",
            f"`{folder}` is not in BEIR layout ({type(error).__name__})",
            "it has corpus.jsonl, queries.jsonl and qrels.tsv",
        ) from error
    return Collection(documents, tuple((number, text) for number, text in queries if number in judged), judged, wholes)


def _wholes(path: Path) -> dict[str, str]:
    """Whole documents by the ids of the passages that were cut from them (`chunk_ids`); none where the file is not there."""
    if not path.exists():
        return {}
    return {str(passage): str(row["text"]) for row in _lines(path) for passage in row["chunk_ids"]}


def _document(row: Mapping[str, Any]) -> dict[str, str]:
    return {"_id": str(row["_id"]), "title": str(row.get("title") or ""), "text": str(row["text"])}


def _check_ids(ids: Sequence[str]) -> None:
    """A document that stands twice would be found twice, and a list could score above the ideal one."""
    if len(set(ids)) < len(ids):
        raise ValueError("an id stands twice")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


class _Passages:
    """The collection as a `DocumentSource`: every document is a passage already."""

    def __init__(self, collection: Collection, group: str) -> None:
        self._documents = {f"{at:07d}": document for at, document in enumerate(collection.documents)}
        self._wholes = collection.wholes
        self._labels = RawLabels(({"groups": [group], "sensitivity": "internal"},))

    def entries(self) -> Iterator[Entry | Rejected]:
        for key, document in self._documents.items():
            yield Entry(key, len(document["text"]), "1", f"file:///{key}")

    def labels(self, entry: Entry) -> RawLabels:
        return self._labels if entry.key in self._documents else RawLabels(())

    def read(self, entry: Entry) -> Content:
        document = self._documents[entry.key]
        title, text = document.get("title", ""), document["text"]
        data, whole = (text if text.strip() else title).encode(), self._wholes.get(document["_id"], "")
        return Content(data, entry.key, "1", title=title, ready=True, passage=True, within=whole)


def run_retrieval(
    folder: Path,
    options: Options,
    progress: Callable[[Progress], None] | None = None,
    providers: ProviderSettings | None = None,
) -> dict[str, Any]:
    """Index the collection in a throw-away folder and ask its judged queries; the figures as they are printed."""
    collection = load_collection(folder)
    queries = collection.queries[: options.queries]
    if not queries or not collection.documents:
        raise UsageError("collection_empty", f"`{folder}` has no judged query or no document", "check qrels.tsv")
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-eval-") as place,
        open_throw_away(Path(place) / "eval", options, providers) as router,
    ):
        try:
            made, seconds = _index(router, collection, options, progress)
            report = made.sources[0].chunks
            answers, total_us = ask_all(router, queries, options.strategy)
            model_id = router.index_card.id
        finally:
            router.clear_cluster(TENANT)
    ranked = {number: documents_of(collection, answer) for (number, _), answer in zip(queries, answers, strict=True)}
    return {
        "documents": len(collection.documents),
        "chunks": report,
        "queries": len(queries),
        **score_rankings(ranked, collection.judged),
        "ms": {"p50": percentile(total_us, 50), "p95": percentile(total_us, 95)},
        "stages_ms": _stages(answers),
        "index_chunks_per_s": round(report / seconds, 1),
        **({} if made.contexts is None else {"written": asdict(made.contexts)}),
        "not_reranked": sum(any(entry.stage == "rerank" for entry in answer.degraded) for answer in answers),
        "settings": {
            "store": "sqlite" if options.cluster is None else "opensearch",
            "contexts": options.contexts,
            "fusion": options.fusion,
            "legs": options.legs,
            "rerank": options.rerank,
            "strategy": options.strategy,
            "candidates": CANDIDATES,
            "rerank_depth": RERANK,
            "embedder": model_id,
        },
    }


def open_throw_away(folder: Path, options: Options, providers: ProviderSettings | None = None) -> Router:
    """`providers` are the operator's: with them goes a permit to send them questions about searches, and passages to be reranked, for
    the collection's own folder."""
    write_starter(folder, tenant=TENANT, group="readers", sensitivity="internal")
    settings = load_settings(folder / FILE_NAME)
    make_development_issuer(settings)
    search = settings.search.model_copy(
        update={
            "candidates": CANDIDATES,
            "rerank": RERANK,
            "fusion": options.fusion,
            "legs": options.legs,
            "rerank_by": options.rerank,
            "strategy": "simple",
            "relevance": "off",
            "narrowing": "off",
            "versions": "all",
        }
    )
    stores = settings.stores.model_copy(update={"opensearch": options.cluster})
    changed: Settings = settings.model_copy(update={"search": search, "stores": stores})
    if providers is not None:
        (settings.policy_folder / "disclosure.cedar").write_text(PERMIT, encoding="utf-8")
        changed = changed.model_copy(update={"providers": providers, "contexts": options.written})
    return Router(changed)


def index_collection(
    router: Router, collection: Collection, options: Options, progress: Callable[[Progress], None] | None
) -> tuple[int, float]:
    report, seconds = _index(router, collection, options, progress)
    return report.sources[0].chunks, seconds


def _index(
    router: Router, collection: Collection, options: Options, progress: Callable[[Progress], None] | None
) -> tuple[IndexReport, float]:
    source = router.policies.current().sources[SOURCE]
    scribe = router.scribe(source.tenant) if options.contexts == "claude" else None
    job = SourceJob(source, _Passages(collection, sorted(source.groups)[0]), options.contexts, scribe)
    began = time.perf_counter()
    whole = router.index_jobs([job], progress=progress)
    report = whole.sources[0]
    if report.error is not None:
        raise report.error
    lost = [item for item in report.failures if item.reason != "empty"]
    if lost:
        raise SourceError(
            "collection_not_indexed",
            f"{len(lost)} documents were not indexed, the first for `{lost[0].reason}`",
            "check corpus.jsonl",
        )
    return whole, time.perf_counter() - began


def ask_all(router: Router, queries: Sequence[tuple[str, str]], strategy: str) -> tuple[list[Answer], list[int]]:
    """k is bounded at the doors only; the list after rerank is scored whole."""
    token = router.mint("ada", minutes=600)
    now = datetime.now(UTC)
    router.ask("warm up", token=token)
    answers, total_us = [], []
    for _, text in queries:
        began = time.perf_counter_ns()
        answers.append(ask(router.line, token, Question(text, now, DEPTH, 60.0, route="documents", strategy=strategy)))
        total_us.append((time.perf_counter_ns() - began) // 1000)
    return answers, total_us


def documents_of(collection: Collection, answer: Answer) -> list[str]:
    """Document ids by their best chunk."""
    keys = dict.fromkeys(passage.document_id.split("/", 1)[1] for passage in answer.passages)
    return [str(collection.documents[int(key)]["_id"]) for key in keys]


def score_rankings(ranked: Mapping[str, Sequence[str]], judged: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    figures = {
        "ndcg_at_10": [ndcg(documents, judged[number], 10) for number, documents in ranked.items()],
        "recall_at_20": [recall(documents, judged[number], 20) for number, documents in ranked.items()],
        "recall_at_100": [recall(documents, judged[number], 100) for number, documents in ranked.items()],
        "mrr_at_10": [reciprocal_rank(documents, judged[number], 10) for number, documents in ranked.items()],
    }
    return {name: round(100 * sum(values) / len(values), 2) for name, values in figures.items()}


def reciprocal_rank(ranked: Sequence[str], judged: Mapping[str, float], depth: int) -> float:
    return next((1 / at for at, document in enumerate(ranked[:depth], 1) if document in judged), 0.0)


def percentile(values_us: Sequence[int], share: int) -> float:
    ordered = sorted(values_us)
    return round(ordered[min(len(ordered) - 1, len(ordered) * share // 100)] / 1000, 2)


def _stages(answers: Sequence[Answer]) -> dict[str, float]:
    """Median milliseconds by stage."""
    by_name: dict[str, list[int]] = {}
    for answer in answers:
        for stage in answer.stages:
            by_name.setdefault(stage.name, []).append(stage.us)
    return {name: percentile(values, 50) for name, values in by_name.items()}
