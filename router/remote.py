"""Hosted vectors and rankings on the way of one question: what may go goes, what may not is handled here, and both are said.

The local model stays what it was: routes, tables and the local rerank read its word pieces and vectors. A hosted embedder only gives
the vector that an index of its own is searched with; a hosted reranker only reorders what the local ranking found.

INVARIANT: text of a class goes only where a permit covers the class and the question's; passages only after Cedar allowed them in
full (tests/e2e/test_hosted_canaries.py).
INVARIANT: what a provider does wrong leaves the local order and the leg over words, and is said (tests/unit/test_hosted_asking.py::
test_bad_days_of_the_reranker, ::test_bad_days_of_the_embedder).
INVARIANT: a question in words that are not its caller's own has the class of what they may come from (…::
test_words_of_passages_raise_the_class).
INVARIANT: passages that may not go keep their places (…::test_mixed_passages_are_split_by_class).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from router.domain import CLASSES, Embedded, Labels, Purpose, Stored
from router.egress import Egress, RemoteReranker
from router.errors import LedgerError
from router.line import Asking
from router.own import code_of, say, seek_by_own, shown_text

_WORD = re.compile(r"\w+")
_HIGHEST = len(CLASSES) - 1


def seek(asking: Asking, embedded: Embedded, text: str, beside: Iterable[Labels] = ()) -> Embedded:
    """`embedded` with the vector of `text` in the index of a hosted model or one of one's own, where that is what the index holds; an
    empty one where it may not or cannot be had, which is said. `beside` are labels of passages whose words may stand in `text`."""
    if asking.line.own_embedder is not None:
        return seek_by_own(asking, embedded, text, asking.line.own_embedder)
    remote, egress = asking.line.remote_embedder(), asking.found.egress
    if remote is None or egress is None:
        return embedded
    if not asking.grants.search:
        return replace(embedded, sought=b"")  # nothing is granted, so there is nothing to ask a stranger for
    if asking.line.search.legs == "lexical":
        return replace(embedded, sought=b"")  # no leg would read it
    purpose = Purpose(asking.principal.name, "embed_question", question_classes(asking, text, beside), asking.decision_id)
    share_s = asking.watch.left_s() * asking.line.embed_share

    def call() -> list[bytes]:
        return egress.embed(remote, [text], purpose, question=True, deadline_s=0.9 * share_s)  # ends before its thread is left

    try:
        (vector,) = asking.watch.stage("embed_hosted", lambda: asking.line.threads.within(share_s, call))
    except LedgerError:
        raise
    except Exception as error:  # noqa: BLE001 (a stranger may fail in any way; the leg over words stands without it)
        asking.watch.note(note="left out")
        say(asking, "embed", f"{code_of(error)}: only the lexical leg was searched")
        return replace(embedded, sought=b"")
    return replace(embedded, sought=vector)


def reorder(asking: Asking, text: str, head: Sequence[Stored], allowed: Sequence[Stored], beside: Iterable[Labels]) -> list[str]:
    """Ids of `head` in the order of the hosted reranker. Of `head`, those that Cedar `allowed` in full and whose class may go are sent;
    the others keep their places. The order as it was where none may go or the provider failed, which is said."""
    order = [item.chunk.chunk_id for item in head]
    remote, egress = asking.line.remote_reranker(), asking.found.egress
    if remote is None or egress is None or not allowed:
        return order
    sent, classes = _split(asking, egress, remote, text, allowed, beside)
    if not sent:
        return order
    deadline_s = min(asking.watch.left_s(), asking.question.deadline_s * asking.line.rerank_share)
    texts = [shown_text(item) for item in sent]
    purpose = Purpose(asking.principal.name, "rerank", classes, asking.decision_id)
    call = partial(egress.reranker(remote).rerank, text, texts, purpose, deadline_s=0.9 * deadline_s)
    try:
        scores = asking.watch.stage("rerank_hosted", lambda: asking.line.threads.within(deadline_s, call))
    except LedgerError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a stranger does, the local order stands)
        asking.watch.note(note="failed")
        say(asking, "rerank", f"{code_of(error)}: ranked on this machine alone")
        return order
    asking.watch.note(count_in=len(sent), count_out=len(sent))
    best = sorted(range(len(sent)), key=lambda at: -scores[at])  # stable: ties keep the local order
    return merge_places(order, [sent[at].chunk.chunk_id for at in best])


def merge_places(order: Sequence[str], moved: Sequence[str]) -> list[str]:
    """`order` with those of `moved` in their new order on the places that they had; the others stay where they are."""
    among, following = frozenset(moved), iter(moved)
    return [next(following) if one in among else one for one in order]


def question_classes(asking: Asking, text: str, beside: Iterable[Labels]) -> frozenset[int]:
    """The classes of the question, and of a seed in it; where words stand in `text` that are not the question's, of what is `beside`,
    too."""
    least = asking.text_classes
    own = {word for said in (asking.question.text, *asking.question.context) for word in _WORD.findall(said.lower())}
    if all(word in own for word in _WORD.findall(text.lower())):
        return least
    return least.union(map(class_of, beside))


def class_of(labels: Labels) -> int:
    """A label that is none counts as the highest."""
    sensitivity = labels.get("sensitivity")
    return sensitivity if type(sensitivity) is int and 0 <= sensitivity <= _HIGHEST else _HIGHEST


def _split(
    asking: Asking, egress: Egress, remote: RemoteReranker, text: str, allowed: Sequence[Stored], beside: Iterable[Labels]
) -> tuple[list[Stored], frozenset[int]]:
    """What may be sent, and the classes of all that is sent. What stays is said."""
    provider, asked = remote.hosted.provider, question_classes(asking, text, beside)
    open_ = egress.permitted(provider, "rerank", asked.union(class_of(item.labels) for item in allowed))
    sent = [item for item in allowed if class_of(item.labels) in open_] if asked <= open_ else []
    if not sent:
        say(asking, "rerank", "disclosure_not_permitted: ranked on this machine alone")
    elif len(sent) < len(allowed):
        stay = sorted({class_of(item.labels) for item in allowed} - open_)
        names = ", ".join(CLASSES[one] for one in stay)
        say(asking, "rerank", f"what is {names} was not sent to `{provider}`: it keeps the place that it has on this machine")
    return sent, asked.union(class_of(item.labels) for item in sent)
