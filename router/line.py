"""What a question meets on its way, and what is found on it: the nouns that the line and its legs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from router import decision
from router.config import SearchSettings
from router.domain import (
    Clarify,
    Degraded,
    Grants,
    Labels,
    Link,
    ModelCard,
    Outcome,
    Passage,
    Principal,
    Question,
    Receipt,
    Record,
    Refusal,
    Route,
    SqlLimits,
    Stage,
    Table,
)
from router.egress import Egress, RemoteEmbedder, RemoteModel, RemoteReranker, index_card
from router.errors import PointsmanError, Refused, SourceError
from router.execute import Threads, Watch
from router.kept import Kept
from router.memo import Memo
from router.policy import LivePolicies, PolicySet
from router.ports import DocStore, Embedder, Ledger, Reranker, SqlEngine, Verifier
from router.routing.decide import Point
from router.routing.heads import Heads

NO_ROUTE = Route("documents", {}, 0.0, abstained=True, reasons=())


@dataclass(frozen=True, slots=True)
class OwnReranker:
    """A reranker on this machine, its name for the record, and how many passages it judges."""

    id: str
    model: Reranker
    passages: int


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where evidence is kept for the same question under the same grants: `permits` are those to disclose, by principal, and
    `settings_digest` stands for all that the configuration says."""

    kept: Kept
    permits: Memo
    settings_digest: str


@dataclass(frozen=True, slots=True)
class Line:
    """Built once by `app.py`. `tables` opens the engine when the first question about rows comes; `tables_version` names the
    snapshot that it serves. `vocabularies` are kept per grant and
    snapshot, `examples` are the vectors of the tools' examples, `model` is None where none is named.
    `keeping` is None unless `[cache]` is on.
    `own_embedder` is the deployment's own model where its vectors are in the index, `own_reranker` its own judge of pairs.
    `remote_embedder` is whose vectors the index holds where that is not the local `embedder`, `remote_reranker` who reorders.
    `threads` carry single calls and `leg_threads` whole legs, which wait for calls: in one pool, legs of many askers would hold every
    thread that their calls need. `two_indexes` are the sources that have a plain and a contextual index, `prefer_plain` those served
    better by the plain one."""

    policies: LivePolicies
    verifier: Callable[[PolicySet], Verifier]
    ledger: Ledger
    store: DocStore
    embedder: Embedder
    threads: Threads
    leg_threads: Threads
    search: SearchSettings
    recency_days: Mapping[str, float]
    two_indexes: frozenset[str]
    prefer_plain: frozenset[str]
    tables: Callable[[], SqlEngine]
    tables_version: Callable[[], str]
    vocabularies: Memo
    examples: Memo
    heads: Callable[[], Heads]
    point: Point
    model: Callable[[], RemoteModel | None]
    remote_embedder: Callable[[], RemoteEmbedder | None]
    remote_reranker: Callable[[], RemoteReranker | None]
    limits: SqlLimits
    embed_share: float
    rerank_share: float
    key: bytes
    question_form: decision.QuestionForm
    clock_us: Callable[[], int]
    sealed: Callable[[Record, Link], None]
    alarm: Callable[..., None]
    keeping: Keeping | None = None
    own_embedder: Embedder | None = None
    own_reranker: OwnReranker | None = None

    @property
    def card(self) -> ModelCard:
        """Of the model whose vectors the index holds."""
        if self.own_embedder is not None:
            return self.own_embedder.card
        return index_card(self.embedder.card, self.remote_embedder())

    def models(self) -> dict[str, str]:
        """For the record's versions."""
        reranker = self.remote_reranker()
        named = {} if reranker is None else {"reranker": f"{reranker.hosted.provider}/{reranker.hosted.model}"}
        if self.own_reranker is not None:
            named = {"reranker": self.own_reranker.id}
        return {"embedder": self.card.id, **named}


@dataclass(slots=True)
class Evidence:
    """What the decision will say, filled while the question moves along. `reads` are the datasets that the tables come of.

    `judged` are source, document and labels of all text in it, as Cedar allowed them; `until_ms` is from when on, within this day, it
    would be another; `cache` says whether it was recalled, and `recalled` are then the stages of its gathering."""

    route: Route = NO_ROUTE
    passages: tuple[Passage, ...] = ()
    tables: tuple[Table, ...] = ()
    clarify: Clarify | None = None
    degraded: list[Degraded] = field(default_factory=list)
    filters: tuple[Receipt, ...] = ()
    policies: frozenset[str] = frozenset()
    dropped: int = 0
    refusal: Refusal | None = None
    reads: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    egress: Egress | None = None
    data_versions: dict[str, str] = field(default_factory=dict)
    judged: list[tuple[str, str, Labels]] = field(default_factory=list)
    until_ms: int | None = None
    cache: Literal["hit", "miss", "bypass"] | None = None
    recalled: tuple[Stage, ...] = ()

    def add(self, other: Evidence) -> None:
        """What a leg found beside the others."""
        self.passages += other.passages
        self.tables += other.tables
        self.clarify = self.clarify or other.clarify
        self.degraded += [entry for entry in other.degraded if entry not in self.degraded]
        self.filters = tuple(dict.fromkeys((*self.filters, *other.filters)))
        self.policies |= other.policies
        self.dropped += other.dropped
        self.reads = tuple(dict.fromkeys((*self.reads, *other.reads)))
        self.notes += other.notes
        self.nearest += other.nearest
        self.data_versions |= other.data_versions
        self.judged += other.judged
        self.until_ms = min((one for one in (self.until_ms, other.until_ms) if one is not None), default=None)

    @property
    def outcome(self) -> Outcome:
        if self.refusal:
            return "refused"
        if self.route.name == "none":
            return "none"
        if self.passages or any(table.rows for table in self.tables):
            return "answered"
        return "clarify" if self.clarify else "empty"


@dataclass(frozen=True, slots=True)
class Asking:
    """One question on its way, as a leg meets it: who asks what under which grants, and where time and findings are kept.

    `seed_class` is the class of what an earlier step of the plan put into the question's text; 0 where nothing was."""

    line: Line
    policies: PolicySet
    principal: Principal
    grants: Grants
    question: Question
    decision_id: str
    watch: Watch
    found: Evidence
    seed_class: int = 0

    @property
    def narrowed(self) -> bool:
        """Whether the caller named sources or filters, which are of documents."""
        return bool(self.question.sources or self.question.filters)

    @property
    def text_class(self) -> int:
        """The class of the question as it reads: the tenant's, raised to that of a seed in it."""
        return max(self.policies.question_class(self.principal.tenant), self.seed_class)

    @property
    def text_classes(self) -> frozenset[int]:
        """Of the question, and of what stands in it: all that is on record of it when it is sent."""
        return frozenset({self.policies.question_class(self.principal.tenant), self.text_class})

    def beside(self) -> Asking:
        """For a leg that runs at the same time: its own stages and findings, the same deadline."""
        return replace(self, watch=self.watch.beside(), found=Evidence(egress=self.found.egress))

    def join(self, other: Asking) -> None:
        self.watch.stages += other.watch.stages
        self.found.add(other.found)


def failure_of(asking: Asking, run: Callable[[], None]) -> PointsmanError | None:
    """Why a leg found nothing. A fault of our own takes nothing from the other leg; operators are told of it, as where it stands alone."""
    try:
        run()
    except (Refused, SourceError) as error:
        return error
    except Exception as error:  # noqa: BLE001 (whatever it is, the other leg is whole)
        return fault_of(asking, error)
    return None


def fault_of(asking: Asking, error: Exception) -> SourceError:
    """A fault of our own, told to operators; the caller learns that there was one."""
    asking.line.alarm("fault", error=type(error).__name__, decision_id=asking.decision_id)
    return SourceError("fault", "something failed inside", "the log names the kind of error")
