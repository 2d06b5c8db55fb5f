"""Whether OpenSearch ranks as the embedded store does: one collection through ordinary ingestion into both, the same questions.

    POINTSMAN_TEST_OPENSEARCH="$(deploy/dev/opensearch.sh start)" python -m tests.bench.agreement FOLDER... [--queries N]

Each line is one collection; `shared` is the mean part of the first ten that both stores give. It may take minutes: everything
is embedded twice.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from router.app import Router
from router.config import OpenSearchSettings, StoreSettings
from router.evals import retrieval
from router.evals.retrieval import Collection, Options
from tests.opensearch.opensearch_lab import NODES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--contexts", choices=("none", "structure"), default="structure")
    given = parser.parse_args()
    for folder in given.folders:
        print(json.dumps(compare(folder, Options(contexts=given.contexts, queries=given.queries))), flush=True)


def compare(folder: Path, options: Options) -> dict[str, Any]:
    collection = retrieval.load_collection(folder)
    queries = collection.queries[: options.queries]
    prefix = f"agreement{secrets.token_hex(4)}"
    place = OpenSearchSettings(hosts=NODES, prefix=prefix, replicas=0)
    ranked: dict[str, Mapping[str, Sequence[str]]] = {}
    for store, settings in (("sqlite", StoreSettings()), ("opensearch", StoreSettings(opensearch=place))):
        try:
            ranked[store] = _rank(collection, queries, options, settings)
        finally:
            if settings.opensearch is not None:
                urllib.request.urlopen(urllib.request.Request(f"{NODES[0]}/{prefix}-*", method="DELETE"), timeout=60)
    scored = {store: retrieval.score_rankings(found, collection.judged) for store, found in ranked.items()}
    one, other = ranked.values()
    shared = sum(len(set(one[name][:10]) & set(other[name][:10])) / max(1, len(one[name][:10])) for name in one) / len(one)
    apart = round(scored["opensearch"]["ndcg_at_10"] - scored["sqlite"]["ndcg_at_10"], 2)
    return {"collection": folder.name, "queries": len(queries), **scored, "ndcg_apart": apart, "shared_at_10": round(shared, 4)}


def _rank(
    collection: Collection, queries: Sequence[tuple[str, str]], options: Options, stores: StoreSettings
) -> dict[str, Sequence[str]]:
    with tempfile.TemporaryDirectory(prefix="pointsman-agreement-") as place:
        with retrieval.open_throw_away(Path(place) / "eval", options) as made:
            settings = made.settings.model_copy(update={"stores": stores})
        with Router(settings) as router:
            retrieval.index_collection(router, collection, options, None)
            answers, _ = retrieval.ask_all(router, queries, options.strategy)
    return {number: retrieval.documents_of(collection, answer) for (number, _), answer in zip(queries, answers, strict=True)}


if __name__ == "__main__":
    main()
