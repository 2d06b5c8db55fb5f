"""The one place through which text reaches a hosted model: judged by `disclose`, counted for the record, closed with the decision.

A hosted connector is no `Model`; `Egress.model` makes one of it for one decision. What may not go is refused before anything
is opened, and the line goes on without it and says so. No text is kept or logged here: an entry holds who, why, classes and bytes.

INVARIANT: without a permit for provider, purpose and every class nothing is sent (tests/unit/test_egress.py::test_nothing_is_sent_without_a_permit,
tests/sql/draft/test_draft_by_claude.py::test_not_permitted_sends_nothing).
INVARIANT: every attempt stands in the record, a failed one too (tests/unit/test_egress.py::test_every_attempt_is_counted).
INVARIANT: after the decision is sealed nothing leaves for it (tests/unit/test_egress.py::test_nothing_leaves_after_sealing).
INVARIANT: hosted connectors are made in app.py alone and called here alone (tests/unit/test_egress.py::test_one_way_out).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from router.domain import CLASSES, Principal, Purpose
from router.errors import Refused
from router.ports import HostedModel, Model, ModelReply

DISCLOSED_AS: Mapping[str, str] = {
    "embed_question": "embed",
    "embed_chunks": "embed",
    "rerank": "rerank",
    "context": "context",
    "draft_sql": "draft",
    "route": "route",
    "grade": "grade",
    "plan_search": "search",
}
"""What a purpose is called in policies: `context.purpose` of `disclose`, and the word in the record."""


class Judge(Protocol):
    """`PolicySet.may_disclose`: truthy where a permit covers it."""

    def __call__(self, principal: Principal, *, provider: str, purpose: str, sensitivity: int) -> object: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """One attempt to send: how many texts, of which classes, how many bytes in all."""

    provider: str
    purpose: str
    classes: tuple[int, ...]
    bytes: int
    items: int

    def as_json(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "purpose": self.purpose,
            "classes": list(self.classes),
            "bytes": self.bytes,
            "items": self.items,
        }


@dataclass(slots=True)
class Egress:
    """What may leave for one decision, and what did. Thread-safe: a call that outlives its deadline still asks here."""

    principal: Principal
    may_disclose: Judge
    _sent: list[Sent] = field(default_factory=list)
    _sealed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def model(self, hosted: HostedModel) -> Model:
        return _JudgedModel(hosted, self)

    def permit(self, provider: str, purpose: Purpose, items: int) -> Callable[[int], None]:
        """Judge; returns what counts each attempt. Raises `Refused`."""
        word = DISCLOSED_AS.get(purpose.name)
        known = purpose.classes and all(type(one) is int and 0 <= one < len(CLASSES) for one in purpose.classes)
        if word is None or not known or purpose.principal != self.principal.name:
            raise _refused(provider)
        for sensitivity in sorted(purpose.classes):
            if not self.may_disclose(self.principal, provider=provider, purpose=word, sensitivity=sensitivity):
                raise _refused(provider)

        def sending(count: int) -> None:
            with self._lock:
                if self._sealed:
                    raise Refused("egress_sealed", "the decision is on record: nothing more is sent for it", "ask again")
                self._sent.append(Sent(provider, word, tuple(sorted(purpose.classes)), count, items))

        return sending

    def sent(self) -> tuple[Sent, ...]:
        with self._lock:
            return tuple(self._sent)

    def seal(self) -> list[dict[str, Any]]:
        """The record's `egress`; from now on every attempt is stopped before its first byte."""
        with self._lock:
            self._sealed = True
            return [sent.as_json() for sent in self._sent]


@dataclass(frozen=True, slots=True)
class _JudgedModel:
    """Implements `router.ports.Model`."""

    hosted: HostedModel
    egress: Egress

    def draft(self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: Purpose, deadline_s: float) -> ModelReply:
        sending = self.egress.permit(self.hosted.provider, purpose, items=1)
        return self.hosted.draft_hosted(system, prompt, schema, deadline_s=deadline_s, sending=sending)


def _refused(provider: str) -> Refused:
    return Refused(
        "disclosure_not_permitted",
        f"the policies do not permit sending this text to `{provider}`",
        "it is handled here without it; a `disclose` permit would have to cover provider, purpose and class",
    )
