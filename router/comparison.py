"""Two generations of the same documents held against each other with saved questions, before the newer one is shown.

Each question is asked as a person of people.yaml through the ordinary legs: that person's grants, the filter in every search, Cedar in
full on what comes out. Nobody sees more for it than they would by asking, so no identity has to be made up that sees everything; and
what a change does to those who see little shows up in their own questions. Nothing of a document leaves: hosted models are not
asked, but for the question's vector where a hosted model's vectors are in the index, judged and on record like any other.

INVARIANT: a question finds in neither generation what its person may not see (tests/unit/test_comparison.py::test_asked_as_the_person).
INVARIANT: a generation that is worse by more than was said is not shown (tests/unit/test_comparison.py::test_a_worse_one_is_kept_aside).
INVARIANT: what was not asked in the same way of both is no comparison (tests/unit/test_comparison.py::test_half_a_search_is_no_comparison).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from router.domain import Compared, ModelCard, Question
from router.egress import Egress, Sent
from router.errors import Refused, SourceError, UsageError
from router.execute import Watch
from router.identity import LATEST_S, map_claims
from router.legs import gather
from router.line import Asking, Evidence, Line
from router.memo import Memo
from router.policy import PolicySet
from router.ports import DocStore

DEPTH, NDCG_AT, RECALL_AT = 20, 10, 20
ASK_S = 60.0
MOST_WORSE = 20
_STAGES = frozenset({"embed", "search"})


@dataclass(frozen=True, slots=True)
class SavedQuestion:
    """`expected` are gains by document id; empty where nobody said."""

    text: str
    person: str
    expected: Mapping[str, float]


def load_saved_questions(path: Path, policies: PolicySet) -> tuple[SavedQuestion, ...]:
    """One JSON object a line: `question`, `person` (of people.yaml) and, where known, `expected`: document ids, or gains by id."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            "questions_missing", f"the questions `{path.name}` cannot be read", "check `compare` in `[index]`, or --compare"
        ) from None
    found = tuple(_saved(line, number, policies) for number, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise UsageError(
            "questions_missing", f"`{path.name}` holds no question", 'write lines like {"question": "…", "person": "ada"}'
        )
    return found


def _saved(line: str, number: int, policies: PolicySet) -> SavedQuestion:
    try:
        row = json.loads(line)
        text, person, expected = row["question"], row["person"], row.get("expected", [])
        gains = {
            name: float(gain)
            for name, gain in (expected.items() if isinstance(expected, dict) else ((one, 1.0) for one in expected))
        }
        if not (isinstance(text, str) and text.strip() and isinstance(person, str)) or row.keys() - {
            "question",
            "person",
            "expected",
        }:
            raise ValueError(line)
        if isinstance(expected, str) or not all(
            isinstance(name, str) and math.isfinite(gain) and gain > 0 for name, gain in gains.items()
        ):
            raise ValueError(line)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            "questions_malformed",
            f"line {number} of the questions is not understood",
            'write {"question": "…", "person": "ada", "expected": ["source/key"]}; everybody asks as somebody',
        ) from None
    if person not in policies.people:
        raise UsageError("person_unknown", f"line {number} names a person `{person}`", "see people.yaml in the policy folder")
    return SavedQuestion(text, person, gains)


def tenants_of(questions: Sequence[SavedQuestion], policies: PolicySet) -> dict[str, list[SavedQuestion]]:
    """The questions by the tenant of who asks. Raises `Refused` where a person's claims would not be believed."""
    found: dict[str, list[SavedQuestion]] = {}
    for one in questions:
        claims = policies.people[one.person]
        principal = map_claims(str(claims["issuer"]), {**claims, "exp": LATEST_S}, policies.issuers, policies.types)
        found.setdefault(principal.tenant, []).append(one)
    return found


def line_for(line: Line, model_id: str | None, *, local: ModelCard) -> Line:
    """The line with the embedder whose vectors a generation holds. Raises `UsageError` where that is not at hand."""
    plain = replace(line, keeping=None, model=_nothing, remote_reranker=_nothing, vocabularies=Memo(limit=64))
    if model_id in (None, line.card.id):
        return plain
    if model_id == local.id:
        return replace(plain, remote_embedder=_nothing, own_embedder=None)
    raise UsageError(
        "compare_impossible",
        f"the generation that is shown holds vectors of `{model_id}`, which the configuration no longer names",
        "leave `compare` out of `[index]` for this build: its words alone would lose against any vectors",
    )


def _nothing() -> None:
    return None


def compare_generations(
    lines: tuple[Line, Line],
    stores: tuple[DocStore, DocStore],
    questions: Sequence[SavedQuestion],
    *,
    tenant: str,
    names: tuple[str, str],
    allowed_points: float,
    record: Callable[[Sent, str], None],
    run_id: str,
) -> Compared:
    """Ask each question of both, the shown generation first. Raises `SourceError` where a search was not whole."""
    asked = [_Side(replace(line, store=store), record, run_id) for line, store in zip(lines, stores, strict=True)]
    found = [tuple(side.ask(one) for side in asked) for one in questions]
    if any(old.degraded != new.degraded for old, new in found):
        raise SourceError(
            "compare_incomplete",
            "a question was not searched for in the same way in both generations",
            "run again",
            retryable=True,
        )
    judged = [(one, old.documents, new.documents) for one, (old, new) in zip(questions, found, strict=True) if one.expected]
    before, after = ([_points(one.expected, sides[at]) for one, *sides in judged] for at in (0, 1))
    means = [tuple(_mean([figures[at] for figures in side]) for at in (0, 1)) for side in (before, after)]
    worse = [
        (one.text, old[1], new[1])
        for (one, *_), old, new in zip(judged, before, after, strict=True)
        if new[1] < old[1] or new[0] < old[0]
    ]
    return Compared(
        tenant,
        *names,
        questions=len(questions),
        judged=len(judged),
        recall_at_20=(means[0][0], means[1][0]),
        ndcg_at_10=(means[0][1], means[1][1]),
        overlap_at_10=_mean([_overlap(old.documents, new.documents) for old, new in found]),
        allowed_points=allowed_points,
        worse=tuple(sorted(worse, key=lambda item: item[2] - item[1])[:MOST_WORSE]),
        accepted=all(means[1][at] >= means[0][at] - allowed_points for at in (0, 1)),
    )


def unjudged(tenant: str, names: tuple[str, str], *, allowed_points: float) -> Compared:
    """Of a tenant in whose name no question is asked: nothing speaks against its new generation, and that is told."""
    none = (0.0, 0.0)
    return Compared(tenant, *names, 0, 0, none, none, 0.0, allowed_points, (), accepted=True)


@dataclass(frozen=True, slots=True)
class _Found:
    documents: tuple[str, ...]
    degraded: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Side:
    line: Line
    record: Callable[[Sent, str], None]
    run_id: str

    def ask(self, one: SavedQuestion) -> _Found:
        policies, now = self.line.policies.current(), datetime.now(UTC)
        claims: Mapping[str, Any] = policies.people[one.person]
        principal = map_claims(str(claims["issuer"]), {**claims, "exp": LATEST_S}, policies.issuers, policies.types)
        question = Question(one.text, now, DEPTH, ASK_S, route="documents")
        found = Evidence(egress=Egress(principal, policies.may_disclose, self.line.key, self.record))
        try:
            grants = policies.grants(principal, now)
            gather(Asking(self.line, policies, principal, grants, question, self.run_id, Watch(ASK_S), found))
        except Refused:  # nothing is granted to them, in both
            return _Found((), frozenset())
        documents = tuple(dict.fromkeys(passage.document_id for passage in found.passages))
        return _Found(documents, frozenset((entry.stage, entry.reason) for entry in found.degraded if entry.stage in _STAGES))


def _points(expected: Mapping[str, float], documents: Sequence[str]) -> tuple[float, float]:
    return 100 * recall(documents, expected, RECALL_AT), 100 * ndcg(documents, expected, NDCG_AT)


def ndcg(ranked: Sequence[str], judged: Mapping[str, float], depth: int) -> float:
    """After Järvelin and Kekäläinen 2002 with the judgments as gain."""
    gain = sum(judged.get(document, 0.0) / math.log2(at + 1) for at, document in enumerate(ranked[:depth], 1))
    best = sum(score / math.log2(at + 1) for at, score in enumerate(sorted(judged.values(), reverse=True)[:depth], 1))
    return gain / best


def recall(ranked: Sequence[str], judged: Mapping[str, float], depth: int) -> float:
    """Which part of what was judged to answer is among the first."""
    return len(judged.keys() & set(ranked[:depth])) / len(judged)


def _overlap(old: Sequence[str], new: Sequence[str]) -> float:
    first, second = set(old[:NDCG_AT]), set(new[:NDCG_AT])
    return 100 * (len(first & second) / max(len(first), len(second)) if first or second else 1.0)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2) if values else 0.0
