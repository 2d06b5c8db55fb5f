"""What the automaton has read off a question before names are settled: slots for fields, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from router.sql.form import Aggregate, Compared, Explained, Grain, Op, Scalar
from router.sql.planner.dates import Period
from router.sql.planner.index import FieldKey, Meaning
from router.sql.planner.tokens import Number


class Stop(Exception):  # noqa: N818
    """Why no form is made: `code`, the words that are to blame, and a sentence."""

    def __init__(self, code: str, words: tuple[str, ...], message: str) -> None:
        super().__init__(code)
        self.code, self.words, self.message = code, words, message


@dataclass(slots=True, eq=False)
class Slot:
    """A field named in words. `tie` holds the only datasets it may be of, `near` those it probably is of.

    `adjective`: named by an adjective; the fields it may mean are in `wanted` with the direction."""

    words: str
    meaning: Meaning | None
    at: int
    tie: str | None = None
    near: str | None = None
    owner: str | None = None
    wanted: tuple[tuple[str, bool], ...] = ()
    numeric: bool = False
    time: bool = False
    text: bool = False


@dataclass(slots=True, eq=False)
class Ask:
    """A measure: an aggregate of a slot, a count of a dataset's rows, or a metric."""

    agg: Aggregate
    slot: Slot | None = None
    dataset: str | None = None
    metric: str | None = None
    words: str = ""
    distinct: bool = False
    pointer: FieldKey | None = None


@dataclass(slots=True, eq=False)
class Group:
    slot: Slot | None = None
    dataset: str | None = None
    grain: Grain | None = None
    words: str = ""


Literal_ = tuple[Scalar, str]


@dataclass(slots=True, eq=False)
class Cond:
    """A condition. Without `slot` the field follows from the stored values, or from the period's dataset.

    `joined` conditions are alternatives of the one before; `all_of`: every value must be met by some related row."""

    op: Op
    slot: Slot | None
    literals: list[Literal_] = field(default_factory=list)
    stored: list[dict[FieldKey, str] | None] = field(default_factory=list)
    period: Period | None = None
    years: list[int] = field(default_factory=list)
    derived: bool = False
    event: str = ""
    after: Cond | None = None
    against: Aggregate | None = None
    negated: bool = False
    never: bool = False
    joined: bool = False
    excepted: bool = False
    all_of: bool = False
    near: str | None = None
    words: str = ""
    at: int = 0


@dataclass(slots=True, eq=False)
class Relation:
    """Another dataset that rows have, have not, or have so many of. `most`: order by how many, descending if True."""

    dataset: str
    at: int
    count: tuple[Compared, int] | None = None
    upper: int | None = None
    negated: bool = False
    most: bool | None = None
    words: str = ""
    plain: bool = False
    inner: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sort:
    slot: Slot | None = None
    ask: Ask | None = None
    descending: bool = False
    first_shown: bool = False
    superlative: bool = False
    common: bool = False
    words: str = ""
    ranked: bool = False


@dataclass(slots=True, eq=False)
class Having:
    ask: Ask
    op: Compared
    value: Scalar
    words: str = ""


@dataclass(slots=True)
class Draft:
    shows: list[Slot] = field(default_factory=list)
    everything: bool = False
    labelled: bool = False
    asks: list[Ask] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    conds: list[Cond] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    having: list[Having] = field(default_factory=list)
    sorts: list[Sort] = field(default_factory=list)
    limit: int | None = None
    distinct: bool = False
    head: str | None = None
    heads: list[str] = field(default_factory=list)
    mentioned: dict[str, float] = field(default_factory=dict)
    roles: list[str] = field(default_factory=list)
    each: bool = False
    verbs: int = 0
    penalty: float = 0.0
    explained: list[Explained] = field(default_factory=list)
    units: dict[Number, set[str]] = field(default_factory=dict)
    stock: bool = False


Mode = Literal["select", "where", "group", "order"]
