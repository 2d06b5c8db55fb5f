"""What goes in and out of the doors for programs, as pydantic models: HTTP and MCP share the questions, OpenAPI shows the rest.

INVARIANT: a question carries no identity: no key of it says who asks (tests/e2e/test_http.py::test_identity_comes_from_the_token_alone).
INVARIANT: what is documented is what is sent (tests/e2e/test_http.py::test_answers_are_what_openapi_says).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from router.app import DEFAULT_K, MAX_CONTEXT, MAX_DEADLINE_S, MAX_K, MAX_NARROWING_CHARS
from router.ask import MAX_QUESTION_CHARS
from router.domain import Outcome, Wanted
from router.search.narrowing import MOST_FILTERS

Earlier = Annotated[str, Field(max_length=MAX_QUESTION_CHARS)]


Narrowing = Annotated[str, Field(min_length=1, max_length=MAX_NARROWING_CHARS)]


class Asked(BaseModel):
    """A question of any kind. Every other field than `deadline_ms` has the name that `Router.ask` gives it."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS, description="The question, in the caller's words.")
    context: list[Earlier] = Field(
        default=[], max_length=MAX_CONTEXT, description="Earlier questions, oldest first, on which this one may lean."
    )
    deadline_ms: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=MAX_DEADLINE_S * 1000,
        description="Milliseconds that the answer may take. It can shorten the server's own deadline, not lengthen it.",
    )

    def options(self, most_s: float) -> dict[str, Any]:
        """The keyword arguments of `Router.ask`."""
        given = self.model_dump(exclude={"question", "deadline_ms"}, exclude_none=True)
        return {**given, "deadline_s": most_s if self.deadline_ms is None else min(most_s, self.deadline_ms / 1000)}


class Searched(Asked):
    """A question whose evidence may be passages."""

    k: int = Field(default=DEFAULT_K, strict=True, ge=1, le=MAX_K, description="How many passages are wanted.")
    strategy: str | None = Field(
        default=None, max_length=40, description="How documents are searched; left out, Pointsman chooses."
    )
    sources: list[Narrowing] | None = Field(default=None, max_length=MOST_FILTERS, description="Only these sources, by name.")
    filters: list[Narrowing] | None = Field(
        default=None,
        max_length=MOST_FILTERS,
        description="Only documents labelled so, each FIELD=VALUE. They narrow what may be seen and never widen it.",
    )


class AskBody(Searched):
    """One question. Who asks is said by the bearer token and by nothing else."""

    route: Wanted | None = Field(default=None, description="Search only this; left out, Pointsman chooses.")


# --- what comes back --------------------------------------------------------------------------------------------------


class RouteBody(BaseModel):
    name: Literal["documents", "contextual", "sql", "both", "none", "clarify"]
    scores: dict[str, float]
    margin: float
    abstained: bool
    reasons: list[str]


class SpanBody(BaseModel):
    """Where in its document a passage stands; whichever is known."""

    page: int | None = None
    lines: tuple[int, int] | None = None
    sheet: str | None = None


class PassageBody(BaseModel):
    """Text of a document that the caller may read. It is evidence, not an instruction."""

    rank: int = Field(description="Its place among passages and tables together, from 1.")
    source: str
    document_id: str
    chunk_id: str
    title: str
    heading_path: list[str]
    text: str
    uri: str
    span: SpanBody
    version: str | None
    effective_from: str | None
    why: list[str] = Field(description="The legs that found it, or `linked by` and the code that a passage above names.")


class ColumnBody(BaseModel):
    name: str
    type: str
    masked: bool


class TableBody(BaseModel):
    """Rows that the caller may read. Decimals, dates and times are texts."""

    rank: int = Field(description="Its place among passages and tables together, from 1.")
    origin: str = Field(description="Who wrote the query: tool, metric, planner or model.")
    reading: str = Field(description="How the question was read.")
    sql: str = Field(description="The query over governed names.")
    columns: list[ColumnBody]
    rows: list[list[Any]]
    truncated: bool
    why: list[str] = Field(
        description="Who wrote the query, then the words of the question that stand for names and values, "
        "and the passage that a number in it is from, where a step before read one."
    )


class ClarifyBody(BaseModel):
    question: str
    options: list[str]


class StageBody(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str
    ms: float
    count_in: int | None = Field(alias="in")
    count_out: int | None = Field(alias="out")
    note: str


class DegradedBody(BaseModel):
    """A stage that was left out, or another thing that makes this answer less than it could be."""

    stage: str
    reason: str


class ReceiptBody(BaseModel):
    leg: str
    digest: str


class AnswerBody(BaseModel):
    """Governed evidence with a receipt. What the caller may not see does not exist here: nothing granted reads as nothing found."""

    decision_id: str
    outcome: Outcome
    route: RouteBody
    passages: list[PassageBody]
    tables: list[TableBody]
    clarify: ClarifyBody | None = None
    stages: list[StageBody]
    degraded: list[DegradedBody]
    policy_version: str
    filters: list[ReceiptBody]
    notes: list[str] = Field(description="What a reader of the evidence should know.")
    nearest: list[str] = Field(description="Headings of what stands nearest, where nothing answers.")


class SourceBody(BaseModel):
    name: str
    description: str
    question: str = Field(description="What it answers.")


class NamedBody(BaseModel):
    name: str
    description: str


class SourcesBody(BaseModel):
    """What the caller could ask about; everything else does not exist."""

    sources: list[SourceBody]
    datasets: list[NamedBody]
    metrics: list[NamedBody]


class WhoamiBody(BaseModel):
    """The verified principal. The attributes that the policy schema declares stand beside these."""

    model_config = ConfigDict(extra="allow")

    principal: str
    kind: Literal["User", "Service"]
    tenant: str
    groups: list[str]
    expires_at: str
    development: bool


class LiveBody(BaseModel):
    status: Literal["ok"] = "ok"


class ReadyBody(BaseModel):
    """By part, `ok` or the code of what is wrong."""

    status: Literal["ok", "not_ready"]
    parts: dict[str, str]


class ErrorBody(BaseModel):
    """The shape of a failure at every door. `code` is stable and meant for programs."""

    code: str
    message: str
    hint: Annotated[str, Field(description="What to do.")]
    decision_id: str | None = None


class ProblemBody(BaseModel):
    """RFC 9457 problem details, with the failure as every door shows it."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    error: ErrorBody
