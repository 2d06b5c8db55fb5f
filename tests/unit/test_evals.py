"""`eval retrieval` and `eval access`: the figures are right by hand, the line is unchanged, and leaks are counted as leaks."""

from __future__ import annotations

import codecs
import json
import math

import pytest

from router.app import Router
from router.config import OpenSearchSettings, parse_settings
from router.domain import Steps
from router.errors import UsageError
from router.evals.access import as_json, run_access
from router.evals.retrieval import load_collection, ndcg, parse_options, recall, reciprocal_rank, run_retrieval
from router.filters import ALWAYS
from tests import anthropic_server, cohere_server, hosted_server, world

CORPUS = [
    {"_id": "b1", "title": "Boilers", "text": "A boiler is bled before the heating season begins."},
    {"_id": "b2", "title": "Bees", "text": "Bees swarm in May when the hive has grown too small."},
    {"_id": "b3", "title": "Bread", "text": "Sourdough rises slowly in a cold kitchen."},
    {"_id": "b4", "title": "", "text": "A violin is tuned in fifths."},
    {"_id": "b5", "title": "Maps", "text": "A map without a scale is a picture."},
    {"_id": "b6", "title": "Kilns", "text": "Stoneware is fired at 1240 degrees."},
]
QUERIES = [
    {"_id": "q1", "text": "when are boilers bled"},
    {"_id": "q2", "text": "why do bees swarm"},
    {"_id": "q3", "text": "not judged at all"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tb1\t2\nq2\tb2\t1\nq2\tb1\t0\n"


def write(folder, corpus=CORPUS, queries=QUERIES, qrels=QRELS):
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps(row) for row in corpus))
    (folder / "queries.jsonl").write_text("\n".join(json.dumps(row) for row in queries))
    (folder / "qrels.tsv").write_text(qrels)
    return folder


# --- figures ----------------------------------------------------------------------------------------------------------


def test_ndcg_by_hand():
    judged = {"a": 3.0, "b": 1.0}
    assert ndcg(["a", "b"], judged, 10) == 1.0
    ideal = 3 + 1 / math.log2(3)
    assert ndcg(["b", "a"], judged, 10) == pytest.approx((1 + 3 / math.log2(3)) / ideal)
    assert ndcg(["x", "y", "a"], judged, 10) == pytest.approx((3 / 2) / ideal)
    assert ndcg(["x", "y", "a"], judged, 2) == 0
    assert ndcg([], judged, 10) == 0


def test_ideal_is_cut_at_the_depth_too():
    assert ndcg(["a"], {"a": 1.0, "b": 1.0}, 1) == 1.0


def test_recall_and_reciprocal_rank_by_hand():
    judged = {"a": 1.0, "b": 1.0}
    assert recall(["x", "a", "y", "b"], judged, 2) == 0.5
    assert recall(["x", "a", "y", "b"], judged, 4) == 1.0
    assert reciprocal_rank(["x", "a", "b"], judged, 10) == 0.5
    assert reciprocal_rank(["x", "a"], judged, 1) == 0.0


# --- collections ------------------------------------------------------------------------------------------------------


def test_queries_without_judgment_are_left_out(tmp_path):
    collection = load_collection(write(tmp_path / "c"))
    assert [number for number, _ in collection.queries] == ["q1", "q2"]
    assert collection.judged == {"q1": {"b1": 2.0}, "q2": {"b2": 1.0}}


def test_a_byte_order_mark_is_no_part_of_a_collection(tmp_path):
    folder = write(tmp_path / "c")
    plain = load_collection(folder)
    for path in folder.iterdir():
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert load_collection(folder) == plain


@pytest.mark.parametrize(
    "changes",
    [
        {"corpus": [{"_id": "b1", "title": "no text"}]},
        {"corpus": [{"text": "no id"}]},
        {"corpus": [["no", "object"]]},
        {"corpus": ["no object"]},
        {"corpus": [CORPUS[0], CORPUS[0]]},
        {"queries": [{"_id": "q1"}]},
        {"queries": [7]},
        {"qrels": "h\nq1\tb1\n"},
        {"qrels": "h\nq1\tb1\tmuch\n"},
        {"qrels": "h\nq1\tb1\tinf\n"},
        {"qrels": "h\nq1\tb1\tnan\n"},
    ],
    ids=str,
)
def test_malformed_collections_are_usage_errors(tmp_path, changes):
    with pytest.raises(UsageError) as raised:
        load_collection(write(tmp_path / "c", **changes))
    assert raised.value.code == "collection_malformed"


def test_missing_and_empty_collections(tmp_path):
    with pytest.raises(UsageError) as raised:
        load_collection(tmp_path / "gone")
    assert raised.value.code == "collection_missing"
    with pytest.raises(UsageError) as raised:
        run_retrieval(write(tmp_path / "c", qrels="h\n"), parse_options("none", "zsum", "both", "local", None))
    assert raised.value.code == "collection_empty"


def test_a_cluster_is_named_by_the_configuration():
    with pytest.raises(UsageError) as raised:
        parse_options("none", "zsum", "both", "local", None, store="opensearch")
    assert raised.value.code == "store_missing"
    cluster = OpenSearchSettings(hosts=("http://localhost:9",))
    options = parse_options("none", "zsum", "both", "local", None, store="opensearch", cluster=cluster)
    assert options.cluster is not None
    assert options.cluster.prefix.startswith("pointsman-eval")
    assert parse_options("none", "zsum", "both", "local", None, cluster=cluster).cluster is None


@pytest.mark.parametrize("at", range(4))
def test_unknown_options_name_the_known_ones(at):
    values = ["none", "zsum", "both", "local"]
    values[at] = "other"
    with pytest.raises(UsageError) as raised:
        parse_options(*values, None)
    assert raised.value.code == "option_unknown"
    assert raised.value.hint.startswith("one of ")


# --- the whole run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fusion", "legs", "rerank"),
    [("zsum", "both", "local"), ("rrf", "both", "none"), ("weighted", "dense", "none"), ("zsum", "lexical", "none")],
)
def test_retrieval_on_a_small_collection(tmp_path, monkeypatch, fusion, legs, rerank):
    """Found where it must be, through ordinary ingestion, in a folder that is gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    report = run_retrieval(write(tmp_path / "c"), parse_options("none", fusion, legs, rerank, None))
    assert (report["documents"], report["chunks"], report["queries"]) == (6, 6, 2)
    assert (report["ndcg_at_10"], report["recall_at_20"], report["mrr_at_10"]) == (100.0, 100.0, 100.0)
    assert report["ms"]["p50"] > 0
    assert {"search", "asked", "answered"} <= report["stages_ms"].keys()
    assert report["settings"] | {"fusion": fusion, "legs": legs, "rerank": rerank} == report["settings"]
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize(("day", "not_reranked"), [(None, 0), (hosted_server.failure(401), 2)])
def test_a_hosted_reranker_is_measured_and_its_failures_counted(tmp_path, monkeypatch, day, not_reranked):
    monkeypatch.setenv("SOME_KEY", "co-key")
    for server in cohere_server.serve():
        server.says(*([] if day is None else [day]))
        raw = {"providers": {"cohere": {"key_env": "SOME_KEY", "rerank_model": "r-test", "base_url": server.url}}}
        providers = parse_settings(raw, tmp_path).providers
        report = run_retrieval(
            write(tmp_path / "c"), parse_options("none", "zsum", "both", "cohere", None, providers=providers), None, providers
        )
        assert {one.path for one in server.received} == {"/v2/rerank"}
    assert (report["not_reranked"], report["settings"]["rerank"]) == (not_reranked, "cohere")


def test_a_hosted_reranker_must_be_named_in_a_configuration(tmp_path):
    providers = parse_settings({"providers": {"cohere": {"key_env": "SOME_KEY"}}}, tmp_path).providers
    for given in (None, providers):
        with pytest.raises(UsageError) as raised:
            parse_options("none", "zsum", "both", "cohere", None, providers=given)
        assert raised.value.code == "provider_missing"


def test_contexts_by_claude_are_measured_and_priced(tmp_path, monkeypatch):
    """Of a collection that says what its passages were cut from; the money is in the report."""
    monkeypatch.setenv("SOME_KEY", "sk-key")
    folder = write(tmp_path / "c")
    ids = [json.loads(line)["_id"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    whole = {"text": "\n\n".join(texts), "chunk_ids": ids}
    (folder / "documents.jsonl").write_text(json.dumps(whole) + "\n")
    for server in anthropic_server.serve():
        server.says(anthropic_server.contexts())
        claude = {"key_env": "SOME_KEY", "model": "claude-test", "base_url": server.url}
        raw = {"providers": {"claude": claude}, "contexts": {"price_input": 3.0, "price_output": 15.0}}
        settings = parse_settings(raw, tmp_path)
        options = parse_options("claude", "zsum", "both", "none", None, providers=settings.providers, written=settings.contexts)
        report = run_retrieval(folder, options, None, settings.providers)
        assert report["written"]["written"] == len(server.batches.paid) == len(ids)
        assert report["written"]["money"] > 0
        assert report["written"]["tokens"]["cache_read"] > 0, "the whole is kept for the passages beside it"
    with pytest.raises(UsageError) as raised:
        parse_options("claude", "zsum", "both", "none", None)
    assert raised.value.code == "provider_missing"


def test_only_the_first_queries(tmp_path):
    report = run_retrieval(write(tmp_path / "c"), parse_options("none", "zsum", "both", "local", 1))
    assert report["queries"] == 1


def test_configured_world_is_never_opened(tmp_path, monkeypatch):
    """`eval retrieval` needs no configuration, and a broken one does not disturb it."""
    monkeypatch.setenv("POINTSMAN_CONFIG", str(tmp_path / "gone.toml"))
    assert run_retrieval(write(tmp_path / "c"), parse_options("none", "zsum", "both", "local", 1))["queries"] == 1


# --- access -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with world.open_world(tmp_path_factory.mktemp("access") / "world") as made:
        yield made


def test_access_agrees_on_the_world(router):
    report = run_access(router, 3_000, seed=1)
    assert report.cases >= 3_000
    assert report.documents == len(world.PAGES)
    assert 0 < report.allowed < report.cases
    assert (report.leaks, report.over_blocks, report.disagreements) == (0, 0, 0), report.examples


def test_access_repeats_itself(router):
    assert as_json(run_access(router, 400, seed=7)) == as_json(run_access(router, 400, seed=7))
    assert as_json(run_access(router, 400, seed=7)) != as_json(run_access(router, 400, seed=8))


def test_access_counts_a_wider_filter_as_a_leak(router, monkeypatch):
    wide = Steps("simple", ALWAYS, (), 1, 1)
    monkeypatch.setattr("router.evals.access.build", lambda *_, **__: wide)
    report = run_access(router, 400, seed=1)
    assert report.leaks > 0
    assert report.disagreements > 0
    assert report.examples


def test_access_counts_a_narrower_store_as_an_over_block(router, monkeypatch):
    class Narrow:
        def __getattr__(self, name):
            return getattr(store, name)

        def admitted(self, tenant, f):
            return store.admitted(tenant, f)[1:]

    store = router.store
    monkeypatch.setitem(router.__dict__, "store", Narrow())
    report = run_access(router, 400, seed=1)
    assert report.over_blocks > 0


def test_access_counts_a_leaking_leg(router, monkeypatch):
    import dataclasses

    class Wide:
        def __getattr__(self, name):
            return getattr(store, name)

        def search(self, search):
            return store.search(dataclasses.replace(search, filter=ALWAYS))

    store = router.store
    monkeypatch.setitem(router.__dict__, "store", Wide())
    assert run_access(router, 400, seed=1).leaks > 0


def test_access_without_documents_judges_nothing(tmp_path):
    with Router.open(world.write_world(tmp_path / "w")) as router:
        assert as_json(run_access(router, 10, seed=0))["cases"] == 0
