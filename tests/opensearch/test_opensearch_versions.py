"""Earlier versions that are kept, with documents in OpenSearch: the same line, the same answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from router.app import Router
from router.ingest.build import index_sources
from router.ingest.reconcile import forget_document, verify_index
from router.ingest.versions import is_version
from tests import world
from tests.opensearch.opensearch_lab import NODES
from tests.opensearch.opensearch_world import router_on, write_on

PRESS = "handbook/staff/press.md"


def _index(router: Router, day: datetime, *, full: bool = False) -> None:
    clock = int(day.timestamp() * 1_000_000)
    workshop = replace(router.workshop, now_us=lambda: clock)
    report = index_sources(router.jobs(), workshop, full=full, declared=frozenset(router.settings.sources))
    assert not any(source.error or source.failures for source in report.sources), report


def _found(router: Router, question: str, person: str = "ada") -> list[tuple[bool, str]]:
    answer = world.ask_as(router, person, question, k=50)
    return [
        (is_version(one.document_id), one.text.partition(" at ")[2][:6])
        for one in answer.passages
        if one.document_id.startswith(PRESS)
    ]


def test_versions_are_kept_found_for_their_day_and_revoked(tmp_path: Path) -> None:
    config = write_on(tmp_path / "world", NODES[:1])
    config.write_text(config.read_text().replace('path = "handbook"\n', 'path = "handbook"\nkeep_versions = 5\n'))
    schema = tmp_path / "world" / "policies" / "schema.cedarschema"
    schema.write_text(schema.read_text().replace("effective_from?: Long,", "effective_to?: Long,\n    effective_from?: Long,"))
    now, then = "At which pressure does the press run?", "At which pressure did the press run, as of January 2026?"
    with router_on(config) as router:
        _index(router, datetime(2026, 1, 7, tzinfo=UTC))
        world.write_page(
            tmp_path / "world", PRESS, "# Pressing plates\n\nThe press runs at 70 bar. ERR-4012 means low oil pressure."
        )
        _index(router, datetime(2026, 3, 10, tzinfo=UTC))
        for full in (False, True):
            assert _found(router, now) == [(False, "70 bar")]
            assert _found(router, then) == [(True, "40 bar")]
            assert _found(router, then, "low") == []
            assert verify_index(router.jobs(), router.workshop) == []
            if not full:
                _index(router, datetime(2026, 4, 1, tzinfo=UTC), full=True)
        labels = tmp_path / "world" / "handbook" / "labels.yaml"
        text = labels.read_text()
        labels.write_text(text + f'  - {{ match: "{PRESS.partition("/")[2]}", sensitivity: restricted }}\n')
        _index(router, datetime(2026, 4, 2, tzinfo=UTC))
        assert _found(router, now) == _found(router, then) == []
        labels.write_text(text)
        _index(router, datetime(2026, 4, 3, tzinfo=UTC))
        assert _found(router, then) == [(True, "40 bar")]
        source = next(job.source for job in router.jobs() if job.source.name == "handbook")
        done = forget_document(source, PRESS, router.workshop)
        assert len(done.documents) == 2
        assert _found(router, now) == _found(router, then) == []
        assert not [one for one in router.store.documents("north") if one.document_id.startswith(PRESS)]
