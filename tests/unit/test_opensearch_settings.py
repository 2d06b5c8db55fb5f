"""`[stores.opensearch]` of the configuration as the store it names: nothing is asked before it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.opensearch_documents import OpenSearchDocuments
from connectors.sqlite_documents import SqliteDocuments
from router.app import Router
from router.config import parse_settings
from router.errors import SourceError, UsageError

HOSTS = ["https://search-1:9200", "http://127.0.0.1:9"]


POLICIES = str(Path(__file__).parents[2] / "policies")


def opened(folder: Path, **more: object) -> Router:
    stores = {"opensearch": {"hosts": HOSTS, **more}}
    return Router(parse_settings({"policies": POLICIES, "stores": stores}, folder))


def test_the_store_is_the_one_that_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as router:
        assert isinstance(router.store, OpenSearchDocuments)
    with Router(parse_settings({"policies": POLICIES}, tmp_path)) as router:
        assert isinstance(router.store, SqliteDocuments)


def test_a_password_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, username="ada", password_env="NOT_THERE") as router:
        with pytest.raises(UsageError, match="password_missing"):
            router.store  # noqa: B018 (built where it is first asked for)
        monkeypatch.setenv("NOT_THERE", "word")
        assert isinstance(router.store, OpenSearchDocuments)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": []},
        {"hosts": ["http://search-1:9200"]},
        {"hosts": ["https://ada:word@search-1:9200"]},
        {"hosts": ["search-1:9200"]},
        {"prefix": "a-t"},
        {"prefix": "*"},
        {"password": "word"},
    ],
)
def test_settings_that_would_leak_or_collide_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    """No plain HTTP to another machine, no password in the file, no prefix that another deployment's could begin with."""
    with pytest.raises(UsageError, match=r"config_"):
        opened(tmp_path, **wrong)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    """Its code and nothing of its place, within the wait."""
    with opened(tmp_path, hosts=["http://127.0.0.1:9"], wait_s=2.0) as router, pytest.raises(SourceError) as caught:
        router.store.generation("fabrikam")
    assert (caught.value.code, caught.value.retryable) == ("store_unreachable", True)
    assert "127.0.0.1" not in f"{caught.value} {caught.value.hint}"
