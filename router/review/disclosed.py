"""What of a class of text left, to whom and why, by the ledger alone; or that nothing did.

The claim is as good as the chains that it is read from, so they are verified in the same pass. Each attempt is on record before its
first byte, so what a killed process sent is told, too.

INVARIANT: an attempt that stands on record is in the verdict, of a question and of indexing alike, a failed one too
(tests/unit/test_review_disclosed.py::test_whatever_left_is_told).
INVARIANT: nothing is proven from a chain that is not whole (…::test_a_broken_chain_proves_nothing).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from router.decision import Verified, verify_chain
from router.domain import CLASSES, Link, Record
from router.errors import UsageError

PROVIDERS = frozenset({"claude", "cohere", "openai_compatible"})
"""By their names in policies; a record may know others."""


@dataclass(frozen=True, slots=True)
class Disclosed:
    """Attempts to send text of the class to one model for one purpose. `texts` and `bytes` are of whole attempts: beside text of the
    class there may be other text in them."""

    tenant: str
    provider: str
    model: str
    purpose: str
    attempts: int
    texts: int
    bytes: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Proof:
    """`open` questions were asked and never sealed; `broken` are tenants whose chain is not whole."""

    sensitivity: int
    provider: str | None
    records: int
    open: int
    broken: tuple[str, ...]
    left: tuple[Disclosed, ...]

    @property
    def nothing_left(self) -> bool:
        return not self.left and not self.broken


@dataclass(slots=True)
class _Tally:
    sensitivity: int
    provider: str | None
    seen: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    found: dict[tuple[str, str, str, str], Disclosed] = field(default_factory=dict)

    def watch(self, rows: Iterable[tuple[Link, Record]]) -> Iterator[tuple[Link, Record]]:
        for link, record in rows:
            if record.kind == "egress":
                self.before.add(record.decision_id)
                self._add(record, json.loads(record.body))
            elif record.kind == "answered" and record.decision_id not in self.before:  # else it repeats what was told before
                for sent in json.loads(record.body)["egress"]:
                    self._add(record, sent)
            yield link, record

    def _add(self, record: Record, sent: Mapping[str, Any]) -> None:
        self.seen.add(sent["provider"])
        if self.sensitivity not in sent["classes"] or self.provider not in (None, sent["provider"]):
            return
        key = (record.tenant, sent["provider"], sent.get("model", ""), sent["purpose"])
        was = self.found.get(key) or Disclosed(*key, attempts=0, texts=0, bytes=0, first_us=record.at_us, last_us=record.at_us)
        self.found[key] = replace(
            was,
            attempts=was.attempts + 1,
            texts=was.texts + sent["items"],
            bytes=was.bytes + sent["bytes"],
            first_us=min(was.first_us, record.at_us),
            last_us=max(was.last_us, record.at_us),
        )


def parse_class(text: str) -> int:
    """A class by its name, or as 0 to 3."""
    if text in CLASSES:
        return CLASSES.index(text)
    if text.isascii() and text.isdigit() and int(text) < len(CLASSES):
        return int(text)
    raise UsageError("class_unknown", f"`{text}` is no class of text", f"one of {', '.join(CLASSES)}")


def prove(
    chains: Mapping[str, Iterable[tuple[Link, Record]]],
    sensitivity: int,
    *,
    provider: str | None = None,
    anchors: Mapping[str, tuple[int, str]] | None = None,
) -> Proof:
    """Over the chains of all tenants, each as a stream; `anchors` as for `verify_chain`."""
    tally, noted = _Tally(sensitivity, provider), anchors or {}
    verdicts: dict[str, Verified] = {
        tenant: verify_chain(tally.watch(rows), anchor=noted.get(tenant)) for tenant, rows in chains.items()
    }
    if provider is not None and provider not in PROVIDERS | tally.seen:
        raise UsageError(
            "provider_unknown", f"`{provider}` is no provider", f"one of {', '.join(sorted(PROVIDERS | tally.seen))}"
        )
    return Proof(
        sensitivity=sensitivity,
        provider=provider,
        records=sum(verdict.rows for verdict in verdicts.values()),
        open=sum(len(verdict.open) for verdict in verdicts.values()),
        broken=tuple(sorted(tenant for tenant, verdict in verdicts.items() if not verdict.whole)),
        left=tuple(tally.found[key] for key in sorted(tally.found)),
    )
