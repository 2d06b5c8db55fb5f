"""The strategies by name, and what each needs. `simple` is the arm that every other has to beat (adr/0023).

INVARIANT: one that asks a model is refused where none is configured (tests/unit/test_search_models.py::test_refused_without_a_model).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router.errors import UsageError
from router.search.acronyms import acronyms, has_acronym
from router.search.by_model import decomposed_by_model, hyde, multi_query, step_back
from router.search.decomposed import decomposed, split
from router.search.feedback import feedback
from router.search.port import Strategy
from router.search.rounds import rounds
from router.search.simple import simple
from router.search.whole import whole
from router.search.widened import widened


@dataclass(frozen=True, slots=True)
class Known:
    """`transform` says that it changes the question's words and searches as `simple` does."""

    run: Strategy
    model: bool = False
    transform: bool = False


STRATEGIES: Mapping[str, Known] = {
    "simple": Known(simple),
    "widened": Known(widened),
    "decomposed": Known(decomposed),
    "feedback": Known(feedback),
    "whole": Known(whole),
    "acronyms": Known(acronyms, transform=True),
    "decomposed_by_model": Known(decomposed_by_model, model=True),
    "rounds": Known(rounds, model=True),
    "multi_query": Known(multi_query, model=True, transform=True),
    "hyde": Known(hyde, model=True, transform=True),
    "step_back": Known(step_back, model=True, transform=True),
}


def choose_strategy(question: str, configured: str) -> str:
    """`auto` goes by the question's form alone: several questions in one, an acronym, else the plain search."""
    if configured != "auto":
        return configured
    if len(split(question)) > 1:
        return "decomposed"
    return "acronyms" if has_acronym(question) else "simple"


def parse_strategy(name: str, *, model: bool) -> Known:
    """Raises `UsageError` for an unknown one, and for one that asks a model where there is none."""
    known = STRATEGIES.get(name)
    if known is None:
        raise UsageError("strategy_unknown", f"`{name[:40]}` is no strategy", f"one of {', '.join(STRATEGIES)}")
    if known.model and not model:
        raise UsageError(
            "strategy_without_model",
            f"the strategy `{name}` asks a model, and none can be asked",
            "name one in `[providers]`, and set the variable that its `key_env` names",
        )
    return known
