"""Models of one's own on the way of one question: nothing leaves the machine, so there is no border to judge at.

As with a hosted embedder, the shipped model still reads the question for routes and tables, whose weights were fitted to it; the
own model gives the vector and the token vectors that its index is searched and reranked with (adr/0032).

INVARIANT: a model that fails or is late leaves the words and the order that there were, and is said (tests/unit/test_own_asking.py::
test_bad_days_of_the_embedder, ::test_bad_days_of_the_judge).
INVARIANT: token vectors of two models never meet (…::test_bad_days_of_the_embedder).
INVARIANT: a judge reorders the head it was given and nothing else (…::test_the_judge_reorders_the_head_alone).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from router.domain import Degraded, Embedded, Purpose, Stored
from router.errors import PointsmanError, SourceError
from router.line import Asking, OwnReranker
from router.ports import Embedder


def seek_by_own(asking: Asking, embedded: Embedded, text: str, own: Embedder) -> Embedded:
    """`embedded` with the vectors of `text` under the deployment's own model, on which the index is; without any where it failed."""
    if not asking.grants.search:
        return _without(embedded)
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)
    share_s = asking.watch.left_s() * asking.line.embed_share
    try:
        made = asking.watch.stage(
            "embed_own", lambda: asking.line.threads.within(share_s, lambda: own.embed_question(text, purpose))
        )
    except Exception as error:  # noqa: BLE001 (a model may fail in any way; the leg over words stands without it)
        asking.watch.note(note="left out")
        say(asking, "embed", f"{code_of(error)}: only the lexical leg was searched")
        return _without(embedded)
    return replace(made, vector=embedded.vector, sought=made.vector)


def reorder_by_own(asking: Asking, text: str, head: Sequence[Stored], own: OwnReranker) -> list[str]:
    """Ids of `head`, the first of them in the order of the deployment's own judge; as they were where it failed or was late."""
    order = [item.chunk.chunk_id for item in head]
    judged = head[: own.passages]
    deadline_s = min(asking.watch.left_s(), asking.question.deadline_s * asking.line.rerank_share)
    purpose = Purpose(asking.principal.name, "rerank", frozenset(), asking.decision_id)

    def judge() -> list[float]:
        scores = own.model.rerank(text, [shown_text(item) for item in judged], purpose, deadline_s=0.9 * deadline_s)
        if len(scores) != len(judged) or not all(map(math.isfinite, scores)):
            raise SourceError("model_output", "the model gave scores that are none", "check its files")
        return scores

    try:
        scores = asking.watch.stage("rerank_own", lambda: asking.line.threads.within(deadline_s, judge))
    except Exception as error:  # noqa: BLE001 (whatever it is, the order that there was stands)
        asking.watch.note(note="failed")
        say(asking, "rerank", f"{code_of(error)}: ranked without the model of your own")
        return order
    asking.watch.note(count_in=len(judged), count_out=len(judged))
    best = sorted(range(len(judged)), key=lambda at: -scores[at])  # stable: ties keep their order
    return [order[at] for at in best] + order[len(judged) :]


def _without(embedded: Embedded) -> Embedded:
    """The question as only its words know it: its pieces are another model's than those of the index."""
    return replace(embedded, sought=b"", token_ids=b"", token_vectors=b"", token_scale=1.0)


def shown_text(item: Stored) -> str:
    """What a passage is to a judge: its title and its own text, never its context."""
    return f"{item.chunk.title}\n{item.chunk.text}" if item.chunk.title else item.chunk.text


def code_of(error: Exception) -> str:
    return error.code if isinstance(error, PointsmanError) else type(error).__name__


def say(asking: Asking, stage: str, reason: str) -> None:
    entry = Degraded(stage, reason)
    if entry not in asking.found.degraded:
        asking.found.degraded.append(entry)
