"""The laboratory in which the store in OpenSearch is examined: a real node, behind a door that can be shut.

POINTSMAN_TEST_OPENSEARCH holds the nodes' addresses; `.ci/opensearch` starts them.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from connectors.opensearch_documents import OpenSearchDocuments, Place
from router.filters import EntityType
from router.storable import partition_name
from tests.conformance.corpus import ENTITY

NODES = tuple(os.environ.get("POINTSMAN_TEST_OPENSEARCH", "").split())
PASSWORD = "a-password-that-nobody-may-see"


def call(method: str, path: str, body: Any = None, node: str = "") -> Any:
    """One request past the connector, as an operator would send it; None for what is not there."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        (node or NODES[0]) + path, data=data, method=method, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise AssertionError(error.read().decode()) from None


class Door:
    """A port of this process that leads to a node: counts connections, and can be shut or slowed."""

    def __init__(self, node: str) -> None:
        host, port = node.removeprefix("http://").split(":")
        self._far = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = 0
        self.delay_s = 0.0
        self._open = True
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while self._open:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._far)
            except OSError:
                return
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs += [near, far]
            threading.Thread(target=self._carry, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, False), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, out: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                if out:
                    self.sent_bytes += len(data)
                    time.sleep(self.delay_s)
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        self._open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._pairs:
            with suppress(OSError):
                end.close()


class OpenSearchLab:
    """The document store in OpenSearch, under a prefix of its own."""

    kind: type[OpenSearchDocuments] = OpenSearchDocuments

    def __init__(self, root: Path | None = None, *, shards: int = 1, replicas: int = 0, exact_below: int = 100_000) -> None:
        self.entity: EntityType = ENTITY
        self.prefix = f"lab{secrets.token_hex(6)}"
        self.door = Door(NODES[0])
        self.shape = {"shards": shards, "replicas": replicas, "exact_below": exact_below}
        self._opened: list[OpenSearchDocuments] = []
        self.store = self.reopened()

    def reopened(self, *, wait_s: float = 30.0) -> OpenSearchDocuments:
        place = Place((self.door.address,), username="lab", password=PASSWORD)
        store = self.kind(place, lambda: self.entity, prefix=self.prefix, wait_s=wait_s, **self.shape)
        self._opened.append(store)
        return store

    def close(self) -> None:
        self.door.shut()
        for store in self._opened:
            store.close()
        for index in self.indices():
            call("DELETE", f"/{index}")

    def indices(self, tenant: str | None = None) -> dict[str, str]:
        """Name -> UUID of the store's indices."""
        of = "*" if tenant is None else f"{partition_name(tenant)}-*"
        rows = call("GET", f"/_cat/indices/{self.prefix}-{of}?format=json&h=index,uuid")
        return {row["index"]: row["uuid"] for row in rows}

    def alias(self, tenant: str) -> str:
        return f"{self.prefix}-{partition_name(tenant)}"

    def current(self, tenant: str) -> str:
        [index] = call("GET", f"/_alias/{self.alias(tenant)}")
        return str(index)

    def sever(self) -> None:
        self.door.shut()

    def secrets(self) -> list[str]:
        return [self.door.address, self.door.address.rpartition(":")[2], PASSWORD, self.prefix, "t-"]

    def swap(self, one: str, other: str) -> None:
        """Each tenant's alias leads to the other's index."""
        first, second = self.current(one), self.current(other)
        moves = [("remove", first, one), ("remove", second, other), ("add", first, other), ("add", second, one)]
        actions = [{kind: {"index": index, "alias": self.alias(tenant)}} for kind, index, tenant in moves]
        call("POST", "/_aliases", {"actions": actions})

    def age(self, tenant: str) -> None:
        index = self.current(tenant)
        held = call("GET", f"/{index}/_doc/meta?routing=meta")["_source"]
        held["meta"]["schema"] += 1
        call("PUT", f"/{index}/_doc/meta?routing=meta&refresh=true", held)

    def everything(self, tenant: str) -> bytes:
        home = Path(os.environ["POINTSMAN_TEST_OPENSEARCH_HOME"])
        return b"".join(
            _read(path)
            for uuid in self.indices(tenant).values()
            for path in sorted(home.glob(f"node*/data/nodes/*/indices/{uuid}/**/*"))
        )

    def lose(self, tenant: str) -> None:
        for index in self.indices(tenant):
            call("DELETE", f"/{index}")

    def keep(self, tenant: str) -> Callable[[], None]:
        index, kept = self.current(tenant), f"{self.prefix}-kept"
        _clone(index, kept)

        def restore() -> None:
            self.lose(tenant)
            _clone(kept, index)
            call("DELETE", f"/{kept}")
            call("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": self.alias(tenant)}}]})

        return restore

    def torn_build(self, tenant: str) -> None:
        """An index that nothing points to and that does not say whose it is, with some of its entries."""
        source = {"index": self.current(tenant), "query": {"bool": {"must_not": [{"term": {"kind": "meta"}}]}}}
        body = {"source": source, "dest": {"index": f"{self.alias(tenant)}-g-000099"}, "max_docs": 3}
        settings = call("GET", f"/{self.current(tenant)}")[self.current(tenant)]
        kept = {name: settings["settings"]["index"][name] for name in ("knn", "similarity", "analysis")}
        call("PUT", f"/{self.alias(tenant)}-g-000099", {"settings": {"index": kept}, "mappings": settings["mappings"]})
        call("POST", "/_reindex?refresh=true", body)


def _clone(index: str, name: str) -> None:
    """As it is now; both can be written to afterwards."""
    block = {"index.blocks.write": True}
    call("PUT", f"/{index}/_settings", block)
    call("PUT", f"/{index}/_clone/{name}?wait_for_active_shards=all", {"settings": {"index.number_of_replicas": 0}})
    call("GET", f"/_cluster/health/{name}?wait_for_status=green&timeout=30s")
    for each in (index, name):
        call("PUT", f"/{each}/_settings", dict.fromkeys(block))


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


@contextmanager
def lab_of(**shape: Any) -> Iterator[OpenSearchLab]:
    lab = OpenSearchLab(**shape)
    try:
        yield lab
    finally:
        lab.close()
