"""A hosted embedder, of another dimension than the local one, over documents in OpenSearch: indexing, asking, changing the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from router.app import Router
from router.config import load_settings
from router.errors import UsageError
from router.storable import partition_name
from tests import embeddings_server
from tests import hosted_server as days
from tests.hosted_server import HostedServer
from tests.hosted_world import EMBED, write_permits
from tests.opensearch.opensearch_lab import NODES, call
from tests.opensearch.opensearch_world import answered, ask, degraded_in, index_all, remove_indices, write_on
from tests.world import ids

HOSTED = '[models]\nembedder = "openai_compatible"\n'
PROVIDER = '[providers.openai_compatible]\nbase_url = "{url}/v1"\nmodel = "e5-test"\ndimensions = {dimensions}\n'
INTERNAL = {"handbook/hr/pay.md", "handbook/hr/accident.md", "handbook/board/sale.md", "notes/hidden/wednesday.md"}
"""Documents of a class that may not go to the provider: without vectors."""


@pytest.fixture(scope="module")
def server() -> Iterator[HostedServer]:
    yield from embeddings_server.serve()


@pytest.fixture
def config(tmp_path: Path, server: HostedServer) -> Iterator[Path]:
    """Indexed with the local model; the provider is declared, and permitted up to class 1."""
    prefix = f"hosted{tmp_path.name.replace('-', '')[-12:].lower()}"
    said = PROVIDER.format(url=server.url, dimensions=days.DIMENSIONS)
    made = write_on(tmp_path / "world", NODES[:1], prefix=prefix, said=said)
    write_permits(made, EMBED.replace("PROVIDER", "openai_compatible"))
    with Router(load_settings(made)) as router:
        index_all(router)
    server.says()
    yield made
    remove_indices(prefix)


def test_another_model_is_refused_then_built_beside_the_old_one(config: Path, server: HostedServer) -> None:
    """Vectors of two models never meet: a run says so, a question does without them, a full run builds anew in their dimension."""
    assert dimension(config) == 384
    local, text = config.read_text(), config.read_text()
    config.write_text(HOSTED + text)
    with Router(load_settings(config)) as router:
        with pytest.raises(UsageError) as caught:
            router.index()
        assert caught.value.code == "model_changed"
        assert server.received == [], "no text left for an index that it could not be used in"
        report = router.index(full=True)
        assert not [source.error for source in report.sources if source.error is not None]
        assert dimension(config) == days.DIMENSIONS
        answer = ask(router)
        body = answered(router, answer.decision_id)
        assert [receipt["leg"] for receipt in body["filter_digests"]] == ["dense", "lexical"]
        assert "dense" in {leg for passage in answer.passages for leg in passage.why}
        assert router.store.verify("north") == []
        assert [entry["provider"] for entry in body["egress"]] == ["openai_compatible"]
        heard = server.heard
        assert b"Pressing plates" in heard
        assert not [word for word in (b"supplement of nine", b"to be sold", b"order of") if word in heard], "restricted text left"
        everything = ids(ask(router, "max"))
        assert set(everything) >= INTERNAL, "what has no vector is found by its words"
    config.write_text(local)
    with Router(load_settings(config)) as router:
        with pytest.raises(UsageError, match="model_changed"):
            router.index()
        router.index(full=True)
        assert dimension(config) == 384
        assert ids(ask(router))


def test_a_provider_that_fails_leaves_the_words(config: Path, server: HostedServer) -> None:
    """The question's vector does not come: the lexical leg answers, which answer and record say."""
    config.write_text(HOSTED + config.read_text())
    with Router(load_settings(config)) as router:
        router.index(full=True)
        whole = ids(ask(router))
        server.says(days.failure(500))
        answer = ask(router)
        said = [reason for stage, reason in degraded_in(answered(router, answer.decision_id)) if stage == "embed"]
        assert len(said) == 1
        assert "only the lexical leg" in said[0]
        assert set(ids(answer)) <= set(whole)
        assert {leg for passage in answer.passages for leg in passage.why} == {"lexical"}
        server.says()


def dimension(config: Path) -> int:
    """Of the vectors in the index behind the tenant's alias."""
    stores = load_settings(config).stores.opensearch
    assert stores is not None
    [held] = call("GET", f"/{stores.prefix}-{partition_name('north')}/_mapping").values()
    return int(held["mappings"]["properties"]["v"]["dimension"])
