"""Every error that leaves Pointsman, in one tree.

    PointsmanError            code, message, hint; exit code at the command line
    ├── UsageError       2    a flag, a configuration or an input is wrong
    ├── PolicyError      2    the policy folder is wrong: nothing is answered from it
    ├── Refused          3    identity or policy says no; always safe to show to the caller
    ├── SourceError      4    a source, a store or an engine failed; `retryable` says whether another try can help
    └── LedgerError      5    the decision cannot be recorded, so there is no answer

Messages are lower case, without a full stop, user input in backticks. They say what happened, what was refused and
(in `hint`) what to do. INVARIANT: a message holds no text of a document, no credential and no name that the caller
may not know (tests/unit/test_errors.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

CHECK_FAILED = 1
INTERRUPTED = 130


class PointsmanError(Exception):
    """Root of the tree. `code` is stable and meant for programs, `message` and `hint` for people."""

    exit_code: ClassVar[int] = 2

    def __init__(self, code: str, message: str, hint: str = "", *, decision_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.decision_id = decision_id

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy())

    def as_json(self) -> dict[str, Any]:
        """The one shape of a failure at every door (interface.md, section 1)."""
        body: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.decision_id is not None:
            body["decision_id"] = self.decision_id
        return {"error": body}


def _rebuild(kind: type[PointsmanError], state: dict[str, Any]) -> PointsmanError:
    """Pickling across the parser's process border keeps every attribute."""
    error = kind.__new__(kind)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class UsageError(PointsmanError):
    """A flag, a configuration key or an input is wrong."""


class PolicyError(PointsmanError):
    """The policy folder is wrong. At start nothing starts; later the last good version serves for `policy_grace_s`."""


class Refused(PointsmanError):  # noqa: N818 (the word for what happened, not for a fault)
    """Identity or policy says no. Safe to show to the caller."""

    exit_code: ClassVar[int] = 3


class SourceError(PointsmanError):
    """A source, store or engine failed. Unknown failures are not retryable. `retry_after_s` is what its other side asked for."""

    exit_code: ClassVar[int] = 4

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        *,
        retryable: bool = False,
        retry_after_s: float = 0.0,
        decision_id: str | None = None,
    ) -> None:
        super().__init__(code, message, hint, decision_id=decision_id)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


def parse_retry_after(text: str | None) -> float:
    """`retry-after` of HTTP in seconds from now, given as a number or a date (RFC 9110, 10.2.3); 0 where it says nothing that could be kept."""
    import time
    from email.utils import parsedate_to_datetime

    try:
        wanted = float(text or 0)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(text or "").timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return wanted if 0 <= wanted < 1e9 else 0.0


class LedgerError(PointsmanError):
    """The ledger cannot record. No record, no answer."""

    exit_code: ClassVar[int] = 5
