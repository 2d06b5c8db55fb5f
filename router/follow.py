"""From the passages that leave to what other documents are about that these name: loaded under the same filter, judged like them.

INVARIANT: every linked passage was allowed by Cedar in full (tests/unit/test_follow.py::test_recheck_drops_a_link).
INVARIANT: a link names what the caller's filter demands, as every passage does (…::test_links_name_what_is_asked_for).
INVARIANT: links take only what the passages leave of the budget (…::test_links_take_what_is_left).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from router.domain import Degraded, Ranked, Steps, Stored
from router.errors import SourceError
from router.expand import Joined, alone, cut, fold, without_superseded
from router.line import Asking
from router.search.linked import MOST_DOCUMENTS, Linked, choose_linked, names_to_follow, without_topics


def follow(
    asking: Asking,
    steps: Steps,
    kept: Sequence[Ranked],
    joined: Sequence[Joined],
    *,
    holding_at: datetime | None,
) -> tuple[Joined, ...]:
    """One hop from `kept`. Without what another admitted document replaces at `holding_at`, and without mirrors of what is there."""
    try:
        linked = _find(asking, steps, kept, holding_at)
    except SourceError as error:
        asking.found.degraded.append(Degraded("link", f"{error.code}: passages stand without what they name"))
        return ()
    whys = {one.stored.chunk.chunk_id: (one.why,) for one in linked}
    allowed = _recheck(asking, [Ranked(one.stored, ()) for one in linked])
    found = tuple(replace(one, why=whys[one.ranked.stored.chunk.chunk_id]) for one in alone(allowed))
    budget_tokens, count = asking.line.search.budget_tokens, asking.line.embedder.count_tokens
    if budget_tokens is None or not found:
        return found
    left = budget_tokens - sum(count(item.text) for item in joined)
    return cut(found, budget_tokens=left, count=count) if left > 0 else ()


def _find(
    asking: Asking,
    steps: Steps,
    kept: Sequence[Ranked],
    holding_at: datetime | None,
) -> tuple[Linked, ...]:
    """What was replaced, and mirrors, make room for others before anything is chosen."""
    store, tenant, watch = asking.line.store, asking.principal.tenant, asking.watch
    names = names_to_follow(asking.question.text, kept)
    if not names:
        return ()
    found = store.subjects(tenant, names, steps.searched, most=MOST_DOCUMENTS + 1, deadline_s=watch.left_s())
    about = [(name, stored) for name, stored in without_topics(found) if steps.entities <= _names(stored)]
    if holding_at is not None and about:
        items = tuple(Ranked(stored, ()) for _, stored in about)
        documents = list(dict.fromkeys(item.stored.chunk.document_id for item in items))
        newer = store.superseding(tenant, documents, steps.searched, deadline_s=watch.left_s())
        holding = fold([*kept, *without_superseded(items, newer, holding_at)]).kept
        left = {item.stored.chunk.chunk_id for item in holding}
        about = [(name, stored) for name, stored in about if stored.chunk.chunk_id in left]
    return choose_linked(names, about, kept, asking.line.search.linked)


def _names(stored: Stored) -> set[str]:
    return {entity.name for entity in stored.chunk.entities}


def _recheck(asking: Asking, items: Sequence[Ranked]) -> list[Ranked]:
    """A disagreement is dropped and alarmed; no count that is shown held it, so none is lowered. What was doubted is not kept for
    another question: it holds until now."""
    things = [(item.stored.chunk.source, item.stored.chunk.document_id, item.stored.labels) for item in items]
    verdicts = asking.policies.recheck(asking.principal, asking.question.now, things)
    if denied := sum(not verdict for verdict in verdicts):
        asking.line.alarm("recheck_denied", dropped=denied, policy_version=asking.policies.version)
        asking.found.until_ms = int(asking.question.now.timestamp() * 1000)
    asking.found.judged += [thing for thing, verdict in zip(things, verdicts, strict=True) if verdict]
    return [item for item, verdict in zip(items, verdicts, strict=True) if verdict]
