"""Written contexts of real parts: the client, the judge in front of it, the cache and the index, against a server on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from connectors.claude import Claude
from connectors.context_cache import SqlContexts
from connectors.folder import Folder
from router.attempts import Attempts
from router.domain import Embedded, Principal, Purpose
from router.egress import Egress, Sent
from router.ingest.backfill import index_and_wait
from router.ingest.scribe import Purse, Scribe, Writing
from router.ingest.workshop import IndexReport, SourceJob, SourceReport
from router.ingest.written_context import Prices
from tests.anthropic_server import AnthropicServer
from tests.ingest_world import TENANT, World, embedder

SERVICE = Principal("service", "indexer", "Service", TENANT, frozenset(), (), 0)
PRICES = Prices(fresh=3.0, cache_write=3.75, cache_read=0.3, output=15.0, currency="USD")


def manual(name: str, parts: int = 3) -> str:
    """A document of some eight chunks, every one of which says its name."""
    texts = ("".join(f"The {name} has valve {part} with bolt {bolt}. " for bolt in range(34)) for part in range(parts))
    return f"# {name} manual\n\n" + "".join(f"## Part {at}\n\n{part}\n\n" for at, part in enumerate(texts))


class Remembering:
    """The real embedder; a text that it has read in this process it does not read again."""

    _known: ClassVar[dict[str, Embedded]] = {}

    def __init__(self) -> None:
        self.card, self.count_tokens, self.read = embedder().card, embedder().count_tokens, 0

    def embed_question(self, text: str, purpose: Purpose) -> Embedded:
        return embedder().embed_question(text, purpose)

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:
        self.read += len(texts)
        new = [text for text in texts if text not in self._known]
        self._known.update(zip(new, embedder().embed_chunks(new, purpose) if new else [], strict=True))
        return [self._known[text] for text in texts]


class ContextWorld(World):
    """`classes` are those that may be sent; `sent` is what the ledger would hold."""

    def __init__(self, root: Path, server: AnthropicServer, *, classes: Sequence[int] = (0, 1), **writing: Any) -> None:
        super().__init__(root)
        self.server, self.classes = server, set(classes)
        self.writing = Writing(**{"send": "direct", **writing})
        self.sent: list[Sent] = []
        self.claude = Claude(key="sk-CANARY-KEY", model="claude-test", base_url=server.url)
        self.cache = SqlContexts(root / "contexts.sqlite")
        self.model = "claude-test"
        self.scribe = self.new_scribe()
        self.models = Remembering()

    def new_scribe(self, purse: Purse | None = None) -> Scribe:
        """As one run has one."""
        egress = Egress(SERVICE, self.judge, b"k" * 32, lambda sent, run_id: self.sent.append(sent), keep=False)
        writer = egress.contexts(self.claude, Attempts("claude", sleep=lambda _: None))
        self.scribe = Scribe(
            TENANT,
            writer,
            self.cache,
            purse or Purse(self.writing),
            model=self.model,
            principal=SERVICE.name,
            now_us=lambda: time.time_ns() // 1000,
            sleep=lambda _: None,
        )
        return self.scribe

    def judge(self, principal: Principal, *, provider: str, purpose: str, sensitivity: int) -> bool:
        assert (principal, provider, purpose) == (SERVICE, "claude", "context")
        return sensitivity in self.classes

    def jobs(self) -> list[SourceJob]:
        return [SourceJob(self.source, Folder(self.docs), "claude", self.scribe)]

    def whole(self, *, wait_s: float = 60.0, **options: Any) -> IndexReport:
        """One run, with a scribe of its own."""
        self.new_scribe()
        return index_and_wait(self.jobs(), self.workshop(models=self.models), wait_s=wait_s, **options)

    def run(self, **options: Any) -> SourceReport:
        return self.whole(**options).sources[0]

    def contexts(self, key: str) -> list[str]:
        (info,) = [info for info in self.store.documents(TENANT) if info.document_id == f"docs/{key}"]
        return [stored.chunk.context for stored in self.load(*(f"docs/{key}#{at}" for at in range(info.chunks)))]

    @property
    def paid(self) -> list[int]:
        """How often each ask was paid for."""
        return sorted(self.server.batches.paid.values())

    @property
    def posts(self) -> int:
        return sum(one.size > 0 for one in self.server.received)
