"""What the automaton stands on: the pieces, what is pending, and how a name is read where it stands.

Heads are found without a parser of English: "DS F" and "DS's F" tie a field to its dataset, "F of DS" in a condition too; two
names with no word between are two names only where the second belongs to the first.

INVARIANT: two names that stand together and do not belong together stop the plan
(tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

from router.sql.form import Aggregate, Compared, Explained
from router.sql.planner.draft import Draft, Mode, Slot, Sort, Stop
from router.sql.planner.index import Index, Meaning
from router.sql.planner.segment import Piece
from router.sql.planner.stock import is_mass, stock_field
from router.sql.planner.words import VERBS

FLIP: dict[Compared, Compared] = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "=": "<>", "<>": "="}


class Reader(ABC):
    """`at` is the next piece; what is pending has been said and waits for its noun. Built upon by what reads conditions,
    comparisons, measures and ranks, in this order; the last three methods are theirs."""

    def __init__(self, pieces: list[Piece], index: Index) -> None:
        self.pieces, self.index, self.draft = pieces, index, Draft()
        self.at = self.began = 0
        self.mode: Mode = "select"
        self.aggs: list[Aggregate] = []
        self.untied: list[Slot] = []
        self.negated = self.none = self.number = self.sorting = self.never = self.joined = self.both = self.of = self.which = (
            False
        )
        self.which_at = self.headed_at = -9
        self.last_ds: str | None = None
        self.pending: Slot | None = None
        self.top: int | None = None
        self.agg_done = self.when_asked = self.excepting = False
        self.when: Slot | None = None

    def peek(self, ahead: int = 0) -> Piece | None:
        at = self.at + ahead
        return self.pieces[at] if 0 <= at < len(self.pieces) else None

    def kind(self, ahead: int = 0) -> str:
        piece = self.peek(ahead)
        return piece.kind if piece else ""

    def take(self) -> Piece:
        self.at += 1
        return self.pieces[self.at - 1]

    def skip(self, *kinds: str) -> None:
        while self.kind() in kinds:
            self.take()

    def stop(self, code: str, words: str, message: str) -> Stop:
        return Stop(code, (words,), message)

    def grain_follows(self) -> bool:
        return self.kind() == "grain" or (self.kind() in ("each", "by") and self.kind(1) == "grain")

    def selected(self) -> bool:
        draft = self.draft
        return bool(draft.shows or draft.asks or draft.head or draft.everything)

    def settle(self, keep: bool = False) -> None:
        """At a joint: a field that waits for its condition has none."""
        if self.pending is not None and not keep:
            slot = self.pending
            raise self.stop("planner_no_condition", slot.words, f"`{slot.words}` is named without a condition")

    def as_dataset(self, piece: Piece) -> str | None:
        """The dataset that a name is; None where it is none, or two."""
        meaning = piece.meaning
        if meaning is None or not meaning.datasets:
            return None
        if len(meaning.datasets) > 1:
            return None
        return next(iter(meaning.datasets))

    def mention(self, dataset: str, piece: Piece) -> None:
        weight = piece.meaning.datasets.get(dataset, 1.0) if piece.meaning else 1.0
        self.draft.mentioned[dataset] = max(weight, self.draft.mentioned.get(dataset, 0.0))
        self.draft.explained.append(Explained(piece.words, dataset))
        self.last_ds = dataset

    def slot(self, piece: Piece, tie: str | None = None) -> Slot:
        meaning = piece.meaning
        if meaning is None or not (meaning.fields or meaning.partial):
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is no field here")
        return Slot(piece.words, meaning, piece.at, tie=tie, near=self.last_ds)

    def has_field(self, meaning: Meaning | None, dataset: str) -> bool:
        return meaning is not None and (dataset in meaning.fields or dataset in meaning.partial)

    def noun(self, piece: Piece) -> tuple[str, Slot | None]:
        """A name read where it stands: (dataset, None) or (its dataset or "", slot). "DS F" and "DS's F" tie F to DS."""
        dataset = self.as_dataset(piece)
        if dataset is not None and self.numbered(piece, dataset):
            tied = self.at > 1 and self.pieces[self.at - 2].kind == "of" and self.tie_recent(dataset)
            return "", self.named(piece, tie=dataset if tied else None)
        if dataset is not None:
            step = 1 if self.kind() == "fill" else 0
            ahead = self.peek(step)
            own = ahead is not None and ahead.kind == "name" and self.has_field(ahead.meaning, dataset)
            if own and (step or self.as_dataset(cast(Piece, ahead)) is None) and not self.participle(step):
                self.at += step
                self.mention(dataset, piece)
                return dataset, self.named(self.take(), tie=dataset)
            self.at += step
            is_field = piece.meaning is not None and bool(piece.meaning.fields)
            if not (is_field and (self.field_like(piece) or (piece.meaning and piece.meaning.datasets[dataset] < 1))):
                self.mention(dataset, piece)
                if self.beside(piece) is not None and not step and not self.participle(0):
                    raise self.two_names(piece)
                return dataset, None
        elif piece.meaning is not None and len(piece.meaning.datasets) > 1 and not piece.meaning.fields:
            raise self.stop("planner_ambiguous", piece.words, f"`{piece.words}` may be {one_of(sorted(piece.meaning.datasets))}")
        slot = self.named(piece)
        owner = self.owner_after(slot)
        return owner or "", slot

    def refuse_mass(self, piece: Piece, dataset: str) -> None:
        """ "More than 5 stock": whether rows or pieces, where rows are called so."""
        if is_mass(piece.words) and stock_field(self.index, dataset) is not None:
            raise self.stop("planner_ambiguous", piece.words, f"whether `{piece.words}` is of rows or of pieces is not certain")

    def beside(self, piece: Piece) -> Piece | None:
        """The name that stands right after this piece, with no word between."""
        ahead = self.peek()
        return ahead if ahead is not None and ahead.kind == "name" and ahead.at == piece.at + piece.length else None

    def named(self, piece: Piece, tie: str | None = None) -> Slot:
        """A field; "name" after the name of a text says nothing more, any other name right after it makes two of one."""
        slot = self.slot(piece, tie)
        ahead = self.beside(piece)
        if ahead is not None:
            if ahead.words.lower() in ("name", "names") and self.as_dataset(piece) is None:
                self.take()
                slot.text = True
            elif not (self.participle(0) or self.leads(piece)):
                raise self.two_names(piece)
        return slot

    def leads(self, piece: Piece) -> bool:
        """ "Who leads depot 5": the name is what somebody does."""
        before = self.pieces[self.at - 2] if self.at > 1 else None
        return before is not None and before.words.lower() == "who" and piece.words.lower() in VERBS

    def two_names(self, piece: Piece) -> Stop:
        ahead = self.peek()
        words = f"{piece.words} {ahead.words if ahead else ''}".strip()
        return self.stop("planner_two_names", words, f"what `{words}` names together is not certain")

    def participle(self, ahead: int) -> bool:
        """A field whose name is what was done ("directed by"): what follows it belongs to it, what precedes it does not."""
        piece = self.peek(ahead)
        if piece is None or piece.kind != "name":
            return False
        words = piece.words.lower().split()
        if self.happens(piece, ahead + 1):
            return True
        done = words[-1] == "by" or (words[0] in VERBS and words[0].endswith(("ed", "en", "ing")))
        return done and self.kind(ahead + 1) not in ("", "and", "comma", "of", "fill")

    def happens(self, piece: Piece, ahead: int) -> bool:
        """ "Claims opened in 2025": what was done, and when."""
        return self.kind(ahead) not in ("of", "fill") and piece.words.lower().endswith("ed") and self.timed(piece)

    def timed(self, piece: Piece) -> bool:
        """Whether a time field may be meant."""
        meaning = piece.meaning
        tables = (meaning.fields, meaning.partial) if meaning is not None else ()
        return any(self.index.info[owner, name].time for table in tables for owner in table for name in table[owner])

    def numbered(self, piece: Piece, dataset: str) -> bool:
        """ "Depot 4": a dataset that is told by the number which follows, and which its key is called like."""
        names = piece.meaning.fields.get(dataset, {}) if piece.meaning is not None else {}
        keyed = len(names) == 1 and all(
            self.index.info[dataset, name].numeric and self.index.info[dataset, name].key for name in names
        )
        return keyed and self.kind() == "number" and self.selected() and not piece.words.lower().endswith("s")

    def field_like(self, piece: Piece) -> bool:
        """A name that is a dataset and a field: the field, where a value of it or a comparison follows."""
        ahead = self.peek(1 if self.kind() == "is" else 0)
        if ahead is None or piece.meaning is None:
            return False
        if ahead.kind in ("value", "quoted") and ahead.stored:
            return any(name in piece.meaning.fields.get(dataset, {}) for dataset, name in ahead.stored)
        return ahead.kind.startswith("cmp")

    def owner_after(self, slot: Slot) -> str | None:
        """In a condition, "F of DS": the dataset, which is taken."""
        if self.mode == "select" or self.kind() != "of" or self.kind(1) != "name":
            return None
        name = self.peek(1)
        assert name is not None
        dataset = self.as_dataset(name)
        if dataset is None or not self.has_field(slot.meaning, dataset):
            return None
        self.at += 2
        self.mention(dataset, name)
        slot.tie = dataset
        return dataset

    def tie_recent(self, dataset: str) -> bool:
        tied = False
        for slot in self.untied:
            if slot.tie is None and self.has_field(slot.meaning, dataset):
                slot.tie = dataset
                tied = True
            elif slot.tie is None:
                slot.near = slot.owner = dataset
        self.untied = []
        return tied

    def condition_follows(self, ahead: int) -> bool:
        """Whether what follows says something of the field before it."""
        kind = self.kind(ahead)
        if kind == "is":
            ahead += 1
            kind = self.kind(ahead)
            if kind in ("value", "quoted", "number", "not", "except", "null", "notnull", "period"):
                return True
        if kind == "of" and (self.kind(ahead + 1).startswith("cmp:") or self.kind(ahead + 1) == "between"):
            return True
        if (
            kind == "of"
            and self.kind(ahead + 1) == "number"
            and self.kind(ahead + 2) in ("", "and", "comma", "or", "ormore", "orless")
        ):
            return True
        if kind in ("value",):
            piece = self.peek(ahead)
            name = self.peek(ahead - 1)
            return piece is not None and name is not None and shares(name.meaning, piece)
        return kind.startswith("cmp:") or kind in (
            "between",
            "contains",
            "starts",
            "ends",
            "quoted",
            "comparative",
            "null",
            "notnull",
            "number",
        )

    def show(self, slot: Slot) -> None:
        ahead = self.peek(1)
        if self.kind() == "fill" and (ahead is None or self.as_dataset(ahead) is None):  # "the people's average age": not theirs
            raise self.stop("planner_two_names", slot.words, f"whose `{slot.words}` has what follows is not certain")
        self.refuse_nobody(slot)
        if self.agg_done and self.pieces[self.at - 2].kind == "and" and self.draft.asks and not self.draft.shows:
            raise self.stop("planner_after_aggregate", slot.words, f"whether `{slot.words}` is aggregated, too, is not certain")
        before = self.pieces[self.began - 1].kind if self.began else ""
        if self.draft.asks and before not in ("", "ask", "and", "comma", "also", "both", "sortverb"):
            raise self.stop("planner_two_names", slot.words, f"what `{slot.words}` is for is not certain")
        if before in ("and", "comma") and self.headed_at == self.began - 1 and not self.draft.shows and not self.draft.asks:
            self.draft.labelled = True  # "the depots and their cities"
        self.draft.shows.append(slot)
        self.untied.append(slot)

    def refuse_nobody(self, slot: Slot) -> None:
        """ "Who reported the claim": somebody, and neither a day nor a number."""
        asked = self.pieces[0].words.lower() if self.pieces[0].kind == "ask" else ""
        meaning = slot.meaning if asked.startswith("who") and not (self.draft.shows or self.draft.head) else None
        infos = [self.index.info[owner, name] for owner, names in (meaning.fields if meaning else {}).items() for name in names]
        if infos and all(one.time or one.numeric or one.datatype == "Boolean" for one in infos):
            raise self.stop("planner_who", slot.words, f"who `{slot.words}` is not known here")

    def flag(self, slot: Slot) -> bool:
        """A name of yes-or-no fields only, called by another name than their own: what is said to be so."""
        meaning = slot.meaning
        if meaning is None or (self.kind() in ("is", "comma", "and") and self.mode == "select"):
            return False
        keys = [
            (dataset, name) for table in (meaning.fields, meaning.partial) for dataset, names in table.items() for name in names
        ]
        return bool(keys) and all(self.index.info[key].datatype == "Boolean" for key in keys)

    def same_aggregate(self, metrics: tuple[str, ...]) -> bool:
        """ "Average approval hours", where that metric is an average."""
        metric = self.index.catalog.metric(metrics[0])
        expression = metric.expression.strip().lower() if metric is not None else ""
        return len(self.aggs) == len(metrics) == 1 and expression.startswith(f"{self.aggs[0]}(")

    def headline(self) -> bool:
        """ "Claims opened in 2026 by machine": rows and what they are parted by, and no verb that asks for either."""
        draft = self.draft
        return draft.head is not None and not draft.shows and not draft.sorts and self.pieces[0].kind in ("name", "value")

    @abstractmethod
    def step(self, piece: Piece) -> None:
        """Take one piece, whatever it is."""

    @abstractmethod
    def compared(self, piece: Piece, op: Compared) -> None:
        """A comparison, of which the noun before it is one side."""

    @abstractmethod
    def how_many(self, number: Piece, op: Compared) -> None:
        """A count of related rows."""

    @abstractmethod
    def rank(self, sort: Sort) -> None:
        """Sort by what is named."""


def shares(meaning: Meaning | None, piece: Piece) -> bool:
    """Whether a value is stored in a field that the name may mean."""
    if meaning is None or not piece.stored:
        return False
    return any(
        name in meaning.fields.get(dataset, {}) or name in meaning.partial.get(dataset, {}) for dataset, name in piece.stored
    )


def alike(one: Piece, other: Piece) -> bool:
    """Whether two values may be of one field."""
    if (one.kind == "number") != (other.kind == "number"):
        return False
    if one.stored and other.stored:
        return bool(one.stored.keys() & other.stored.keys())
    return True


def one_of(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)
