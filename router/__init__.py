"""Pointsman: a governed-retrieval router. The public names, and nothing else.

Names are resolved on first use, so that `import router` costs nothing and opens nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from router.app import Router as Router
    from router.config import Settings as Settings
    from router.domain import Answer as Answer
    from router.domain import Passage as Passage
    from router.errors import LedgerError as LedgerError
    from router.errors import PointsmanError as PointsmanError
    from router.errors import PolicyError as PolicyError
    from router.errors import Refused as Refused
    from router.errors import SourceError as SourceError
    from router.errors import UsageError as UsageError

_HOME = {
    "Answer": "router.domain",
    "LedgerError": "router.errors",
    "Passage": "router.domain",
    "PointsmanError": "router.errors",
    "PolicyError": "router.errors",
    "Refused": "router.errors",
    "Router": "router.app",
    "Settings": "router.config",
    "SourceError": "router.errors",
    "UsageError": "router.errors",
}
__all__ = [
    "Answer",
    "LedgerError",
    "Passage",
    "PointsmanError",
    "PolicyError",
    "Refused",
    "Router",
    "Settings",
    "SourceError",
    "UsageError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `router` has no attribute `{name}`")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
