"""The file of written contexts: what is kept, for whom, how long, and that nothing stays behind."""

from __future__ import annotations

import shutil
import sqlite3
import stat

import pytest

from connectors.context_cache import SqlContexts
from router.errors import SourceError
from router.ports import OpenBatch, Tokens, WrittenContext


def context(key: str, text: str = "Says where.", code: str = "") -> WrittenContext:
    return WrittenContext(key, text, code, "m", "written.1", "h" * 64, "m-1", 7)


def batch(intent: str, tenant: str = "t", at_us: int = 5) -> OpenBatch:
    return OpenBatch(intent, tenant, "", 1, 2, at_us, Tokens(1, 2, 3, 4))


@pytest.fixture
def cache(tmp_path):
    made = SqlContexts(tmp_path / "contexts.sqlite")
    yield made
    made.close()


def test_kept_only_while_it_is_used(cache):
    cache.write("t", [context("early")])
    assert cache.find("t", ["early"]) == {}, "nobody uses it"
    cache.use("t", "s", "s/a", ["k1", "k2"])
    cache.write("t", [context("k1"), context("k2"), context("k3")])
    assert cache.find("t", ["k1", "k2", "k3"]) == {"k1": context("k1"), "k2": context("k2")}
    cache.use("t", "s", "s/a", ["k2"])
    assert cache.prune("t", "s", ["s/a"]) == 1
    assert set(cache.find("t", ["k1", "k2"])) == {"k2"}
    assert cache.prune("t", "s", []) == 1
    assert cache.find("t", ["k2"]) == {}


def test_two_documents_of_one_text_share_it(cache):
    for name in ("s/a", "s/b"):
        cache.use("t", "s", name, ["k"])
    cache.write("t", [context("k")])
    cache.prune("t", "s", ["s/b"])
    assert set(cache.find("t", ["k"])) == {"k"}
    cache.forget("t", ["s/b"])
    assert cache.find("t", ["k"]) == {}


def test_tenants_share_nothing(cache):
    for tenant in ("t", "u"):
        cache.use(tenant, "s", "s/a", ["k"])
    cache.write("t", [context("k")])
    assert cache.find("u", ["k"]) == {}
    cache.begin(batch("i"), {"x": "h"})
    assert cache.open_batches("u") == []
    assert cache.on_their_way("u", ["x"]) == frozenset()
    cache.prune("u", "s", [])
    cache.forget("u", ["s/a"])
    assert set(cache.find("t", ["k"])) == {"k"}


def test_what_no_source_speaks_for_goes(cache):
    for tenant, source in (("t", "s"), ("t", "gone"), ("u", "s")):
        cache.use(tenant, source, f"{source}/a", [f"{tenant}{source}"])
        cache.write(tenant, [context(f"{tenant}{source}")])
    cache.keep_sources([("t", "s")])
    assert set(cache.find("t", ["ts", "tgone"])) == {"ts"}
    assert cache.find("u", ["us"]) == {}


def test_a_batch_is_there_before_it_is_sent(cache, tmp_path):
    cache.begin(batch("i1"), {"k1": "h1", "k2": "h2"})
    again = SqlContexts(tmp_path / "contexts.sqlite")
    assert again.open_batches("t") == [batch("i1")]
    assert again.keys_of("i1") == {"k1": "h1", "k2": "h2"}
    assert again.on_their_way("t", ["k1", "k3"]) == frozenset({"k1"})
    again.named("i1", "msgbatch_1")
    assert [one.batch_id for one in cache.open_batches("t")] == ["msgbatch_1"]
    cache.dated("i1", 3)
    assert [one.at_us for one in again.open_batches("t")] == [3]
    cache.end("i1")
    assert (cache.open_batches("t"), cache.keys_of("i1"), cache.on_their_way("t", ["k1"])) == ([], {}, frozenset())
    again.close()


def test_forgetting_leaves_no_byte(cache, tmp_path):
    cache.use("t", "s", "s/a", ["k"])
    cache.write("t", [context("k", "Zygomorphic merger " * 30)])
    file = tmp_path / "contexts.sqlite"
    assert b"Zygomorphic" in file.read_bytes()
    assert cache.forget("t", ["s/a"]) == 1
    assert b"ygomorph" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    cache.write("t", [context("k", "Zygomorphic again")])
    assert cache.find("t", ["k"]) == {}, "an answer that comes later is not kept"


def test_many_keys(cache):
    keys = [f"k{at}" for at in range(3_000)]
    cache.use("t", "s", "s/a", [*keys, "k1", "k1"])
    cache.write("t", [context(key) for key in keys])
    assert len(cache.find("t", keys)) == 3_000


def test_the_file_is_for_its_owner(cache, tmp_path):
    assert stat.S_IMODE((tmp_path / "contexts.sqlite").stat().st_mode) == 0o600


def test_newer_schema_is_refused(cache, tmp_path):
    with sqlite3.connect(tmp_path / "contexts.sqlite") as connection:
        connection.execute("UPDATE about SET value = '99' WHERE key = 'schema'")
    with pytest.raises(SourceError) as raised:
        SqlContexts(tmp_path / "contexts.sqlite")
    assert raised.value.code == "contexts_newer"


def test_a_broken_file_is_a_code(tmp_path):
    (tmp_path / "contexts.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(SourceError) as raised:
        SqlContexts(tmp_path / "contexts.sqlite")
    assert raised.value.code == "contexts_unavailable"
    with pytest.raises(SourceError):
        SqlContexts(tmp_path / "nowhere" / "contexts.sqlite")


@pytest.mark.parametrize("there", [True, False], ids=["replaced", "removed"])
def test_nothing_is_written_to_a_file_that_nobody_finds_again(cache, tmp_path, there):
    """What was paid for is not lost in silence: the run hears that it cannot be kept."""
    path, beside = tmp_path / "contexts.sqlite", tmp_path / "copy"
    cache.use("t", "s", "s/a", ["k1", "k2"])
    cache.write("t", [context("k1")])
    shutil.copyfile(path, beside)
    beside.replace(path) if there else path.unlink()
    for _ in range(2):
        with pytest.raises(SourceError, match="contexts_unavailable"):
            cache.write("t", [context("k2")])
    assert set(SqlContexts(path).find("t", ["k1", "k2"])) == ({"k1"} if there else set())
