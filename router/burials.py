"""What was forgotten stays forgotten: the ledger says it for good, the manifest is brought in step with it.

Runs keep a forgotten content out by what is buried in the manifest. That is a file which may be lost, or put back from a copy of
before; and `index forget` may be killed between its record and the burial. So whatever opens the manifest for a command of
maintenance reads on in the ledger from where it was read last. A manifest that is new or was put back begins where it knows,
and so knows all again. The mark names the record's digest: a ledger that was lost, or is another one, is read from its
beginning and told what the manifest knows and it does not, as are the burials of a version that recorded none.

INVARIANT: what was forgotten does not come back when the manifest is lost or put back (tests/unit/test_burials.py::
test_a_lost_manifest, ::test_a_manifest_put_back) nor when it was recorded and not buried (::test_killed_before_the_burial).
INVARIANT: a ledger that was lost learns it again, so that the manifest may be lost after it (::test_a_lost_ledger,
::test_a_ledger_put_back, ::test_burials_of_an_earlier_version).
INVARIANT: a run that follows another looks at new rows only (::test_only_new_rows_are_looked_at).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from router.decision import CONTENT_FORGOTTEN, content_forgotten, load_forgotten
from router.domain import Record
from router.ports import Ledger, Manifest

HASHES_A_RECORD = 500


def bury_forgotten(
    ledger: Ledger, manifest: Manifest, *, tenants: Iterable[str] | None = None, by: str, now_us: Callable[[], int]
) -> None:
    """For these tenants, or all that either of both knows. Raises `LedgerError`: without the ledger nobody knows what to keep out."""
    for tenant in sorted({*ledger.tenants(), *manifest.buried_tenants()} if tenants is None else set(tenants)):
        _bury_of(tenant, ledger, manifest, by, now_us)


def _bury_of(tenant: str, ledger: Ledger, manifest: Manifest, by: str, now_us: Callable[[], int]) -> None:
    head, mark = ledger.head(tenant), manifest.ledger_mark(tenant)
    if head is not None and mark == (head.seq, head.digest):
        return
    known_to = mark[0] if mark is not None and _is_in(ledger, tenant, mark) else 0
    told = set[tuple[str, str]]()
    for _, record in ledger.read_kind(tenant, CONTENT_FORGOTTEN, after_seq=known_to, to_seq=head.seq if head is not None else 0):
        source, hashes = load_forgotten(record)
        told |= {(source, content_hash) for content_hash in hashes}
    if not known_to and (lacking := manifest.burials(tenant) - told):
        ledger.append(_records(tenant, lacking, by, now_us()))
    if head is not None:
        manifest.note_ledger(tenant, told, mark=(head.seq, head.digest), at_us=now_us())


def _is_in(ledger: Ledger, tenant: str, mark: tuple[int, str]) -> bool:
    """Whether it is the ledger that was read up to there."""
    return any((link.seq, link.digest) == mark for link, _ in ledger.read(tenant, after_seq=mark[0] - 1, limit=1))


def _records(tenant: str, burials: Iterable[tuple[str, str]], by: str, at_us: int) -> list[Record]:
    by_source: dict[str, list[str]] = {}
    for source, content_hash in sorted(burials):
        by_source.setdefault(source, []).append(content_hash)
    return [
        content_forgotten(
            tenant=tenant, at_us=at_us, by=by, source=source, content_hashes=hashes[start : start + HASHES_A_RECORD]
        )
        for source, hashes in by_source.items()
        for start in range(0, len(hashes), HASHES_A_RECORD)
    ]
