"""`eval retrieval --store opensearch`: the collection in indices of its own, which are gone afterwards; the figures of the embedded store."""

import json
import urllib.request

from router.config import OpenSearchSettings
from router.evals.retrieval import parse_options, run_retrieval
from tests.opensearch.opensearch_lab import NODES

PAGES = {
    "d1": "The wrapper stops with ERR-4012 when the film is torn.",
    "d2": "Grease the bearing of the wrapper every week.",
    "d3": "The canteen opens at noon.",
}
QUERIES = {"q1": ("what does ERR-4012 mean", "d1"), "q2": ("how often is the bearing greased", "d2"), "q3": ("canteen", "d3")}


def indices() -> list[str]:
    with urllib.request.urlopen(f"{NODES[0]}/_cat/indices?format=json&h=index", timeout=60) as answer:
        return [row["index"] for row in json.load(answer)]


def test_figures_of_both_stores(tmp_path):
    rows = [{"_id": name, "title": "", "text": text} for name, text in PAGES.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rows = [{"_id": name, "text": text} for name, (text, _) in QUERIES.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judged = [f"{name}\t{document}\t1" for name, (_, document) in QUERIES.items()]
    (tmp_path / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    cluster = OpenSearchSettings(hosts=NODES, prefix="evaluated", replicas=0)
    figures = {}
    for store in ("sqlite", "opensearch"):
        options = parse_options("structure", "zsum", "both", "local", None, store=store, cluster=cluster)
        report = run_retrieval(tmp_path, options)
        assert report["settings"]["store"] == store
        figures[store] = {name: report[name] for name in ("chunks", "ndcg_at_10", "recall_at_20", "mrr_at_10")}
    assert figures["sqlite"] == figures["opensearch"]
    assert figures["sqlite"]["ndcg_at_10"] == 100.0
    assert not [name for name in indices() if name.startswith("evaluated-")]
