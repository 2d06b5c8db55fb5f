"""Left to right over the pieces: what is selected, counted, asked of rows, grouped and ordered.

There is no parser of English: heads are found by what stands beside what ("F of DS", "DS F", "V DS", "F is V"). Each piece is
either given a part in the draft or stops the plan; nothing is passed over.

INVARIANT: a piece that has no part in the draft stops the plan (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from router.sql.form import Aggregate, Compared, Explained, Grain, Op
from router.sql.planner.draft import Ask, Cond, Draft, Group, Having, Mode, Relation, Slot, Sort, Stop
from router.sql.planner.index import Index, Meaning
from router.sql.planner.segment import Piece
from router.sql.planner.words import COMPARATIVES, IDLE_VERBS, SUPERLATIVES, VERBS

_SKIPPED = frozenset({"unit", "whole"})
_FLIP: dict[Compared, Compared] = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "=": "<>", "<>": "="}
_NEGATED: dict[Op, Op] = {
    "=": "<>",
    "in": "not_in",
    "contains": "not_contains",
    "is_null": "not_null",
    ">": "<=",
    "<": ">=",
    ">=": "<",
    "<=": ">",
}
_RELATIVE = frozenset("who which where whose that what when".split())
_NO_NOUN = frozenset(
    {"", "ask", "each", "of", "count", "distinct", "comma", "and", "sup:desc", "sup:asc", "top", "no", "sortverb", "by"}
)
"""After these a participle describes the noun that follows it ("imported samples") and is a condition, not a relation."""

_CLAUSE_ENDS = frozenset({"", "and", "comma", "or", "order", "order:desc", "ask", "asc", "desc", "alpha"})
_SAYS_WHICH = frozenset({"verb", "with", "not", "no", "except"})

MOST_ROWS = 10_000


def read_pieces(pieces: list[Piece], index: Index) -> Draft:
    """The draft, or `Stop`."""
    _refuse_universal(pieces)
    kept = [piece for piece in pieces if not (piece.kind == "fill" and piece.words != "'s") and piece.kind not in _SKIPPED]
    reader = _Reader(kept, index)
    reader.run()
    return reader.draft


def _refuse_universal(pieces: list[Piece]) -> None:
    """ "Who visited all museums", "not every student": a condition on each of many is not understood."""
    last = ""
    measured = any(piece.kind == "count" or piece.kind.startswith("agg:") for piece in pieces)
    for piece in pieces:
        low = piece.words.lower()
        grouping = piece.kind == "each" and measured
        if last in _SAYS_WHICH and low in ("all", "each", "every") and piece.kind in ("fill", "each") and not grouping:
            raise Stop("planner_universal", (piece.words,), f"`{piece.words}` of many as a condition is not understood")
        if piece.kind != "fill" or low == "all":
            last = piece.kind


class _Reader:
    """The automaton. `at` is the next piece; what is pending has been said and waits for its noun."""

    def __init__(self, pieces: list[Piece], index: Index) -> None:
        self.pieces, self.index, self.draft = pieces, index, Draft()
        self.at = self.began = 0
        self.mode: Mode = "select"
        self.aggs: list[Aggregate] = []
        self.untied: list[Slot] = []
        self.negated = self.none = self.number = self.sorting = self.never = self.joined = self.both = self.of = self.which = (
            False
        )
        self.which_at = -9
        self.last_ds: str | None = None
        self.pending: Slot | None = None
        self.top: int | None = None
        self.agg_done = False
        self.when: Slot | None = None

    # --- looking ---------------------------------------------------------------------------------------------------------

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

    def run(self) -> None:
        while self.at < len(self.pieces):
            piece = self.take()
            self.step(piece)
        if self.pending is not None:
            raise self.stop("planner_no_condition", self.pending.words, f"`{self.pending.words}` is named without a condition")
        if self.negated:
            raise self.stop("planner_unused", "not", "a negation belongs to nothing")
        if self.aggs:
            raise self.stop("planner_unused", self.aggs[-1], "an aggregate belongs to nothing")
        if self.both or self.joined:
            raise self.stop("planner_unused", "both" if self.both else "or", "a joint belongs to nothing")

    def step(self, piece: Piece) -> None:
        self.began = self.at - 1
        kind, _, arg = piece.kind.partition(":")
        handler = getattr(self, f"on_{kind}", None)
        if handler is None:
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        handler(piece, arg)

    # --- words of structure ----------------------------------------------------------------------------------------------

    def on_ask(self, piece: Piece, _: str) -> None:
        words = piece.words.lower()
        if self.selected() and words in _RELATIVE and self.kind() != "":
            before = self.pieces[self.at - 2].kind if self.at > 1 else ""
            if before not in ("and", "comma"):
                self.mode = "where"
                return
        self.settle()
        self.mode = "select"
        if words.split()[0] in ("which", "what", "who") or words.endswith("which"):
            self.which, self.which_at = True, self.at
        if words.startswith("who") and not self.selected():
            self.draft.penalty = max(self.draft.penalty, 0.1)

    def on_sortverb(self, _piece: Piece, _: str) -> None:
        self.settle()
        if self.kind() == "name" and self.draft.shows and not self.draft.sorts:
            self.mode = "order"
            return self.order_list("")
        self.mode = "select"
        self.sorting = True
        return None

    def on_fill(self, piece: Piece, _: str) -> None:
        """Only the possessive comes here; it is looked at from the noun before it."""

    def on_with(self, _piece: Piece, _: str) -> None:
        self.settle()
        self.mode = "where"

    def on_is(self, _piece: Piece, _: str) -> None:
        said = self.kind().startswith("cmp:") or self.kind() in ("between", "verb", "comparative", "value", "in")
        if self.selected() and (said or (self.draft.asks and not self.draft.shows)):
            self.mode = "where"

    def on_also(self, _piece: Piece, _: str) -> None:
        self.settle()
        self.mode = "select"
        self.agg_done = False
        if self.draft.head and not (self.draft.shows or self.draft.asks):
            self.draft.labelled = True

    def on_his(self, piece: Piece, _: str) -> None:
        if self.kind() != "name":
            raise self.stop("planner_unknown", piece.words, f"what `{piece.words}` stands for is not certain")

    def on_of(self, _piece: Piece, _: str) -> None:
        self.of = True
        if self.mode in ("group", "order"):
            self.mode = "where"

    def on_in(self, piece: Piece, _: str) -> None:
        if self.selected() or self.mode in ("group", "order"):
            self.mode = "where"
        if piece.words.lower() == "from":
            self.of = True

    def on_by(self, piece: Piece, _: str) -> None:
        if self.sorting and self.selected():
            self.sorting = False
            self.mode = "order"
            self.order_list("")
        elif self.draft.limit is not None and not self.draft.sorts and self.mode == "select" and self.selected():
            self.mode = "order"
            self.order_list("desc")
        elif self.kind() == "grain" or (self.draft.asks and not self.done_by() and self.kind() == "name"):
            self.on_each(piece, "")
        else:
            self.mode = "where"

    def done_by(self) -> bool:
        """Whether "by" follows what was done, and so names who did it."""
        before = self.pieces[self.at - 2]
        return before.kind == "verb" or (before.kind == "name" and before.words.lower().split()[-1] in VERBS)

    def on_total(self, piece: Piece, _: str) -> None:
        """ "In total" adds nothing to a count or a sum, and something to everything else."""
        if not self.draft.asks or any(ask.agg not in ("count", "count_distinct", "sum") for ask in self.draft.asks):
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` belongs to nothing that is known")

    def on_verb(self, piece: Piece, _: str) -> None:
        before = self.pieces[self.at - 2].kind if self.at > 1 else ""
        if self.kind() == "name" and piece.words.lower().endswith(("ed", "en", "ing")) and before in _NO_NOUN:
            raise self.stop(
                "planner_unknown", piece.words, f"`{piece.words}` says of what kind, and which kind that is is not known"
            )
        if (self.kind() == "period" or self.grain_follows()) and self.event(piece):
            return
        if self.kind() in _CLAUSE_ENDS and self.selected() and piece.words.lower() not in IDLE_VERBS and not self.object_before():
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is a condition, and which that is is not known")
        self.draft.verbs += 1
        self.draft.explained.append(Explained(piece.words, "relation"))
        if self.selected():
            self.settle()
            self.mode = "where"

    def object_before(self) -> bool:
        """ "The courses that students take": the other noun stands before the verb."""
        draft = self.draft
        if draft.groups or draft.conds or draft.sorts or (draft.asks and draft.shows):
            return True
        names = [one for one in self.pieces[: self.at - 1] if one.kind == "name" and self.as_dataset(one) is not None]
        return len(names) > 1

    def event(self, piece: Piece) -> bool:
        """ "Closed last month": the period is of the field that says when."""
        found = self.index.events.get(piece.words.lower())
        if not found or self.pending is not None:
            return False
        fields: dict[str, dict[str, float]] = {}
        for dataset, name in found:
            fields.setdefault(dataset, {})[name] = 1.0
        slot = Slot(piece.words, Meaning(fields=fields), piece.at, near=self.last_ds)
        if self.kind() == "period":
            self.pending = slot
        else:
            self.when = slot
        return True

    def happened(self, piece: Piece) -> bool:
        """A name that says what was done ("reported") picks the time that a period or a grain right after it is of."""
        meaning = piece.meaning
        if meaning is None or meaning.datasets or not piece.words.lower().endswith(("ed", "born")) or " " in piece.words:
            return False
        found = {
            key
            for table in (meaning.fields, meaning.partial)
            for dataset, names in table.items()
            for key in ((dataset, name) for name in names)
        }
        if not any(self.index.info[key].time for key in found):
            return False
        slot = self.slot(piece)
        slot.time = True
        if self.kind() == "period":
            self.pending = slot
            return True
        if self.grain_follows():
            self.when = slot
            return True
        return False

    def grain_follows(self) -> bool:
        return self.kind() == "grain" or (self.kind() in ("each", "by") and self.kind(1) == "grain")

    def on_and(self, piece: Piece, _: str) -> None:
        self.settle()
        words = piece.words.lower()
        if words not in ("and", "as well", "but", "while", "and then", "and also", "and the"):
            self.mode = "where"
        if (
            self.mode == "where"
            and not self.draft.conds
            and not self.draft.relations
            and self.draft.asks
            and words in ("and", "and the")
        ):
            self.mode = "select"
        if self.mode == "where" and self.kind() == "name" and self.draft.shows and not self.condition_follows(1):
            name = self.peek()
            if name is not None and self.as_dataset(name) is None:
                raise self.stop("planner_no_condition", name.words, f"`{name.words}` is named without a condition")

    def on_or(self, piece: Piece, _: str) -> None:
        self.settle()
        if self.mode != "where" or not self.draft.conds:
            raise self.stop("planner_or", piece.words, "`or` is understood between conditions only")
        self.joined = True

    def on_comma(self, _piece: Piece, _: str) -> None:
        self.settle()

    def on_both(self, _piece: Piece, _: str) -> None:
        self.both = True

    def on_either(self, piece: Piece, _: str) -> None:
        if self.kind() not in ("value", "quoted", "number", "name"):
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")

    def on_not(self, piece: Piece, _: str) -> None:
        self.negated = not self.negated
        if self.negated is False:
            raise self.stop("planner_negation", piece.words, "a negation of a negation is not understood")
        self.never = self.kind() == "verb"
        if self.selected():
            self.mode = "where"

    def on_except(self, _piece: Piece, _: str) -> None:
        self.settle(keep=True)
        self.negated = True
        self.mode = "where"

    def on_no(self, piece: Piece, _: str) -> None:
        self.settle()
        self.mode = "where"
        self.skip("verb")
        name = self.peek()
        if name is None or name.kind not in ("name", "value"):
            raise self.stop("planner_negation", piece.words, f"`{piece.words}` belongs to nothing")
        self.described()
        self.negated = self.none = self.never = True

    def on_unknown(self, piece: Piece, _: str) -> None:
        raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is not known")

    def on_everything(self, _piece: Piece, _: str) -> None:
        self.draft.everything = True

    def on_distinct(self, piece: Piece, _: str) -> None:
        if self.mode != "select" or self.kind() != "name":
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        self.draft.distinct = True

    def on_null(self, piece: Piece, _arg: str) -> None:
        slot = self.pending
        if slot is None and self.kind() == "name":
            name = self.take()
            slot = self.slot(name)
        if slot is None:
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` belongs to nothing")
        self.pending = None
        self.add(
            Cond("not_null" if piece.kind == "notnull" else "is_null", slot, words=f"{slot.words} {piece.words}", at=piece.at)
        )

    on_notnull = on_null

    def on_role(self, piece: Piece, _: str) -> None:
        raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is a role and is not understood here")

    # --- nouns -----------------------------------------------------------------------------------------------------------

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
            raise self.stop("planner_ambiguous", piece.words, f"`{piece.words}` may be {_or(sorted(piece.meaning.datasets))}")
        slot = self.named(piece)
        owner = self.owner_after(slot)
        return owner or "", slot

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
            elif not self.participle(0):
                raise self.two_names(piece)
        return slot

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
        done = words[-1] == "by" or (words[0] in VERBS and words[0].endswith(("ed", "en", "ing")))
        return done and self.kind(ahead + 1) not in ("", "and", "comma", "of", "fill")

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

    def on_name(self, piece: Piece, _: str) -> None:
        meaning = piece.meaning
        if meaning is not None and meaning.metrics and not self.aggs:
            return self.on_metric(piece, meaning.metrics)
        if self.selected() and self.happened(piece):
            return None
        if meaning is not None and not (meaning.datasets or meaning.fields or meaning.partial):
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is understood only beside its dataset")
        if self.aggs:
            return self.measure(piece)
        of, self.of = self.of, False
        dataset, slot = self.noun(piece)
        if slot is None:
            self.on_dataset(dataset, piece, of)
        elif self.mode == "select" and not self.is_condition(slot):
            self.show(slot)
        else:
            self.condition(slot, piece)
        return None

    def on_metric(self, piece: Piece, metrics: tuple[str, ...]) -> None:
        if len(metrics) > 1:
            raise self.stop("planner_ambiguous", piece.words, f"`{piece.words}` may be {_or(list(metrics))}")
        ask = Ask("count", metric=metrics[0], words=piece.words)
        self.draft.explained.append(Explained(piece.words, metrics[0]))
        self.last_ds = self.last_ds or self.index.metric_homes.get(metrics[0])
        if self.mode == "where" and self.compare_ask(ask):
            return
        if self.mode == "where":
            raise self.stop("planner_no_condition", piece.words, f"`{piece.words}` is named without a condition")
        self.draft.asks.append(ask)
        self.agg_done = True

    def show(self, slot: Slot) -> None:
        if self.agg_done and self.pieces[self.at - 2].kind == "and" and self.draft.asks and not self.draft.shows:
            raise self.stop("planner_after_aggregate", slot.words, f"whether `{slot.words}` is aggregated, too, is not certain")
        before = self.pieces[self.began - 1].kind if self.began else ""
        if self.draft.asks and before not in ("", "ask", "and", "comma", "also", "of", "his", "both", "sortverb"):
            raise self.stop("planner_two_names", slot.words, f"what `{slot.words}` is for is not certain")
        self.draft.shows.append(slot)
        self.untied.append(slot)

    def on_dataset(self, dataset: str, piece: Piece, of: bool) -> None:
        draft = self.draft
        if self.mode == "select":
            tied = self.tie_recent(dataset) if of or draft.shows else False
            if draft.head is None:
                draft.head = dataset
                draft.heads.append(dataset)
                return
            if dataset == draft.head or tied:
                draft.heads.append(dataset)
                return
            if not of and self.pieces[self.at - 2].kind in ("and", "comma"):
                raise self.stop("planner_two_heads", piece.words, f"whether `{piece.words}` is asked for, too, is not certain")
        if self.untied and of and self.mode != "where":
            self.tie_recent(dataset)
        if (
            of
            and self.mode == "where"
            and self.untied
            and not draft.conds
            and not draft.relations
            and self.tie_recent(dataset)
            and draft.head is None
        ):
            draft.head = dataset
            return
        negated, self.negated = self.negated, False
        last = draft.relations[-1] if draft.relations else None
        if last is not None and last.negated and last.count is None and self.pieces[self.at - 2].at == last.at and not negated:
            last.inner.append(dataset)
            return
        if draft.head is None and not draft.asks and draft.shows and not negated:
            draft.head = dataset
            self.tie_recent(dataset)
            return
        draft.relations.append(Relation(dataset, piece.at, negated=negated, words=piece.words, plain=not negated))

    # --- measures --------------------------------------------------------------------------------------------------------

    def on_count(self, piece: Piece, _: str) -> None:
        distinct = self.kind() == "distinct"
        if distinct:
            self.take()
        if self.kind() == "of":
            self.take()
        if (
            self.at > 1
            and self.pieces[self.at - 2].kind == "name"
            and self.mode == "select"
            and not piece.words.lower().startswith("how")
        ):
            raise self.stop("planner_unused", piece.words, f"what `{piece.words}` counts is not certain")
        if self.aggs:
            raise self.stop("planner_nested", piece.words, "an aggregate of a count is not understood")
        name = self.peek()
        if name is None or name.kind not in ("name", "value"):
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` counts nothing that is known")
        self.described()
        if self.kind() != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` counts nothing that is known")
        ask = self.counted(self.take(), distinct)
        if self.mode == "order":
            self.draft.sorts.append(Sort(ask=ask, words=ask.words))
        elif self.mode == "where":
            if not self.compare_ask(ask):
                raise self.stop("planner_no_condition", piece.words, "a count is named without a condition")
        else:
            self.draft.asks.append(ask)
            self.agg_done = True

    def described(self) -> None:
        """ "Open claims": a value before its dataset is a condition on it."""
        piece, ahead = self.peek(), self.peek(1)
        if piece is None or piece.kind != "value" or ahead is None or ahead.kind != "name" or self.as_dataset(ahead) is None:
            return
        mode, self.mode = self.mode, "where"
        negated, self.negated = self.negated, False
        self.on_value(self.take(), "")
        self.mode, self.negated = mode, negated

    def counted(self, piece: Piece, distinct: bool) -> Ask:
        dataset, slot = self.noun(piece)
        if slot is None:
            if distinct:
                self.draft.penalty += 0.05
            return Ask("count", dataset=dataset, words=piece.words)
        if self.kind() == "of" and self.kind(1) == "name":
            owner = self.as_dataset(cast(Piece, self.peek(1)))
            if owner is not None and self.has_field(slot.meaning, owner):
                self.at += 1
                self.mention(owner, self.take())
                slot.tie = owner
        if not distinct:
            self.draft.penalty += 0.1
        return Ask("count_distinct", slot=slot, words=slot.words, distinct=distinct)

    def on_agg(self, piece: Piece, arg: str) -> None:
        self.aggs.append(cast(Aggregate, arg))
        while True:
            if self.kind() in ("comma", "and") and (
                self.kind(1).startswith("agg:")
                or (self.kind() == "comma" and self.kind(1) == "and" and self.kind(2).startswith("agg:"))
            ):
                self.take()
                self.skip("and")
                self.aggs.append(cast(Aggregate, self.take().kind.partition(":")[2]))
            else:
                break
        self.skip("of")
        ahead = self.peek(1)
        if self.kind() == "count" and ahead is not None and ahead.kind == "name" and self.as_dataset(ahead) is None:
            self.take()
            self.number = True
        if self.kind() != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` aggregates nothing that is known")

    def measure(self, piece: Piece) -> None:
        aggs, self.aggs = self.aggs, []
        _dataset, slot = self.noun(piece)
        if slot is None:
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` cannot be aggregated: it is not a field")
        slot.numeric = self.number or any(agg in ("avg", "sum", "median") for agg in aggs)
        self.number = False
        asks = [Ask(agg, slot=slot, words=f"{agg} {slot.words}") for agg in aggs]
        if self.mode == "order":
            self.draft.sorts.append(Sort(ask=asks[0], words=asks[0].words))
        elif self.mode == "where":
            if len(asks) == 1 and self.compare_ask(asks[0]):
                return None
            if asks[0].agg in ("max", "min") and len(asks) == 1 and not self.draft.asks:
                return self.rank(Sort(slot=slot, descending=asks[0].agg == "max", superlative=True, words=asks[0].words))
            raise self.stop("planner_no_condition", asks[0].words, f"`{asks[0].words}` is named without a condition")
        else:
            self.draft.asks.extend(asks)
            self.agg_done = True
            self.untied = [*self.untied, slot]
        return None

    def compare_ask(self, ask: Ask) -> bool:
        """A measure compared with a number: HAVING, or for a count of another dataset how many there are."""
        back = self.at
        self.skip("is", "with")
        negated = self.kind() == "not"
        if negated:
            self.take()
        kind = self.kind()
        if kind.startswith("cmp:") and self.kind(1) in ("number", "period") and cast(Piece, self.peek(1)).number is not None:
            op = cast(Compared, self.take().kind[4:])
            number = self.take().number
            assert number is not None
            if self.kind() in ("ormore", "orless"):
                op = ">=" if self.take().kind == "ormore" else "<="
            self.draft.having.append(Having(ask, _FLIP[op] if negated else op, number, f"{ask.words} {op} {number}"))
            return True
        self.at = back
        return False

    # --- conditions ------------------------------------------------------------------------------------------------------

    def is_condition(self, _slot: Slot) -> bool:
        return self.condition_follows(0) and not (self.at - self.which_at <= 2 and self.which and self.kind() == "is")

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
            return piece is not None and name is not None and _shares(name.meaning, piece)
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

    def condition(self, slot: Slot, piece: Piece) -> None:
        """What is said of a field; where nothing is yet, it waits."""
        self.mode = "where"
        last = self.draft.conds[-1] if self.draft.conds else None
        self.skip("is", "with")
        kind = self.kind()
        if kind in ("of", "in", "verb") and (
            self.kind(1) in ("value", "quoted", "number")
            or self.kind(1).startswith("cmp:")
            or self.kind(1) in ("between", "period")
        ):
            self.take()
            kind = self.kind()
        if kind in ("not", "except"):
            self.take()
            self.negated = True
            self.skip("verb", "in", "is")
            kind = self.kind()
        if kind.startswith("sup:") and self.kind(1) in ("", "and", "comma", "with", "of", "in"):
            descending = self.take().kind == "sup:desc"
            return self.rank(Sort(slot=slot, descending=descending, superlative=True, words=slot.words))
        if kind == "either":
            self.take()
            kind = self.kind()
        if kind == "both":
            self.take()
            self.both = True
            kind = self.kind()
        if kind in ("value", "quoted", "number"):
            return self.values(slot)
        if kind in ("contains", "starts", "ends", "between", "period", "comparative", "null", "notnull") or kind.startswith(
            "cmp:"
        ):
            self.pending = slot
            return None
        if (
            last is not None
            and last.slot is None
            and last.stored
            and self.pieces[self.at - 2].kind == "value"
            and _shares(slot.meaning, self.pieces[self.at - 2])
        ):
            last.slot = slot
            return None
        if self.negated and self.none and self.kind() in ("", "and", "comma"):
            self.negated = False
            self.draft.penalty += 0.1
            return self.add(Cond("is_null", slot, words=f"no {slot.words}", at=piece.at))
        if piece.words.lower() in VERBS and piece.words.lower().endswith("ed") and not self.negated:
            self.draft.verbs += 1
            self.draft.penalty += 0.05
            self.draft.explained.append(Explained(piece.words, "relation"))
            return None
        raise self.stop("planner_no_condition", slot.words, f"`{slot.words}` is named without a condition")

    def add(self, cond: Cond) -> None:
        cond.near = cond.near or self.last_ds
        if self.joined:
            cond.joined, self.joined = True, False
        if self.negated:
            cond.negated, cond.never, self.negated = True, self.never, False
        self.draft.conds.append(cond)

    def values(self, slot: Slot | None) -> None:
        """One value, or several joined by commas, "or" and "and"."""
        first = self.take()
        if first.kind == "quoted" and self.kind() == "init" and slot is not None:
            self.take()
            return self.add(
                Cond("contains", slot, [(first.literal, first.words)], [None], words=f"{slot.words} contains {first.words}")
            )
        if first.kind == "quoted" and self.kind() == "in" and self.kind(1) in ("his", "name"):
            return self.quoted_in(first)
        taken = [first]
        joint = ""
        while True:
            step = 0
            word = ""
            while self.kind(step) in ("comma", "or", "and", "either") and step < 2:
                word = self.kind(step) if self.kind(step) != "comma" else word
                step += 1
            ahead = self.peek(step)
            if not step or ahead is None or ahead.kind not in ("value", "quoted", "number") or not _alike(first, ahead):
                break
            if ahead.kind == "number" and self.kind(step + 1) == "name":
                break
            joint = word or joint
            self.at += step
            taken.append(self.take())
        more = self.kind() in ("ormore", "orless")
        cond = Cond(
            "=" if len(taken) == 1 else "in",
            slot,
            at=first.at,
            words=" ".join(([slot.words] if slot else []) + [one.words for one in taken]),
        )
        for one in taken:
            cond.derived |= one.derived
            literal = one.number if one.kind == "number" and one.number is not None else (one.literal or one.words)
            cond.literals.append((literal, one.words))
            cond.stored.append(one.stored)
        if more and len(taken) == 1 and first.kind == "number":
            cond.op = ">=" if self.take().kind == "ormore" else "<="
        both, self.both = self.both, False
        if (len(taken) > 1 and joint in ("and", "")) or both:
            cond.all_of = True
            if len(taken) == 1:
                raise self.stop("planner_both", first.words, "`both` is followed by one value only")
        elif joint == "" and len(taken) > 1:
            raise self.stop("planner_both", first.words, "how the values are joined is not said")
        self.add(cond)
        return None

    def quoted_in(self, said: Piece) -> None:
        """ "'Hey' in its title": a text within the field."""
        self.take()
        self.skip("his")
        if self.kind() != "name":
            raise self.stop("planner_unused", said.words, f"where `{said.words}` is looked for is not said")
        _, slot = self.noun(self.take())
        if slot is None:
            raise self.stop("planner_unused", said.words, f"where `{said.words}` is looked for is not said")
        self.add(
            Cond("contains", slot, [(said.literal, said.words)], [None], words=f"{slot.words} contains {said.words}", at=said.at)
        )

    def on_value(self, piece: Piece, _: str) -> None:
        """A stored value on its own; the dataset right after it, or right before, is probably its own."""
        if self.kind() == "period" and self.event(piece):
            return
        self.at -= 1
        slot, self.pending = self.pending, None
        self.values(slot)
        cond = self.draft.conds[-1]
        ahead = self.peek()
        if ahead is not None and ahead.kind == "name" and slot is None and cond.op != "contains":
            dataset = self.as_dataset(ahead)
            if dataset is not None:
                cond.near = dataset
            elif _shares(ahead.meaning, piece) and self.mode == "where":
                cond.slot = self.slot(self.take())

    def on_quoted(self, piece: Piece, _: str) -> None:
        if self.pending is None and not piece.stored:
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is stored nowhere, and its field is not named")
        self.on_value(piece, "")

    def on_number(self, piece: Piece, _: str) -> None:
        kind = self.kind()
        if self.pending is not None:
            self.at -= 1
            slot, self.pending = self.pending, None
            return self.values(slot)
        if kind.startswith("sup:") or kind in ("superlative", "common:desc", "common:asc", "top"):
            self.top = int(piece.number or 0)
            return None
        if kind in ("ormore", "orless") and self.kind(1) == "name":
            self.mode = "where"
            return self.how_many(piece, ">=" if self.take().kind == "ormore" else "<=")
        if kind == "name" and self.mode == "where":
            self.at -= 1
            return self.compared(piece, "=")
        raise self.stop("planner_number", piece.words, f"what `{piece.words}` is compared with is not said")

    def on_period(self, piece: Piece, _: str) -> None:
        slot, self.pending = self.pending, None
        if self.selected():
            self.mode = "where"
        cond = Cond("=", slot, period=piece.period, words=piece.words, at=piece.at)
        before = self.pieces[self.at - 2] if self.at > 1 else None
        if before is not None and before.kind == "verb" and slot is None:
            cond.event = before.words.lower()
        elif (
            before is not None
            and before.kind == "value"
            and slot is None
            and self.draft.conds
            and self.draft.conds[-1].slot is None
        ):
            cond.after = self.draft.conds[-1]
        if piece.number is not None:
            cond.years = [int(piece.number)]
            joint = ""
            while (
                self.kind() in ("or", "and", "comma")
                and self.kind(1) == "period"
                and cast(Piece, self.peek(1)).number is not None
            ):
                joint = self.take().kind
                more = self.take()
                cond.years.append(int(cast(int, more.number)))
                cond.words = f"{cond.words} {more.words}"
            both, self.both = self.both, False
            cond.all_of = both or (len(cond.years) > 1 and joint == "and")
            if both and len(cond.years) < 2:
                raise self.stop("planner_both", piece.words, "`both` is followed by one value only")
        self.add(cond)

    def on_cmp(self, piece: Piece, arg: str) -> None:
        self.compared(piece, cast(Compared, arg))

    def compared(self, piece: Piece, op: Compared) -> None:
        slot, self.pending = self.pending, None
        self.mode = "where"
        if self.negated:
            op, self.negated = _FLIP[op], False
        self.skip("of")
        kind = self.kind()
        if kind.startswith("agg:"):
            return self.against(slot, op)
        if kind == "name" and slot is None and self.kind(1) in ("number", "period"):
            name = self.take()
            _, slot = self.noun(name)
            kind = self.kind()
        if kind == "period" and slot is not None:
            return self.compare_period(slot, op)
        if kind not in ("number", "period") or cast(Piece, self.peek()).number is None:
            if op == "=" and kind in ("value", "quoted") and slot is not None:
                return self.values(slot)
            if op == "<>" and kind in ("value", "quoted") and slot is not None:
                self.negated = True
                return self.values(slot)
            raise self.stop("planner_number", piece.words, f"`{piece.words}` is not followed by a number")
        number = self.take()
        if self.kind() in ("ormore", "orless"):
            op = ">=" if self.take().kind == "ormore" else "<="
        if self.kind() == "percent":
            self.take()
            if slot is None:
                return self.share(number, op)
        if slot is None:
            return self.how_many(number, op)
        self.add(
            Cond(op, slot, [(number.number or 0, number.words)], [None], words=f"{slot.words} {op} {number.words}", at=piece.at)
        )
        return None

    def share(self, number: Piece, op: Compared) -> None:
        """ "Less than 20 % of ...": only a metric can say of what."""
        self.skip("of")
        name = self.peek()
        metrics = name.meaning.metrics if name is not None and name.meaning is not None else ()
        if name is None or len(metrics) != 1:
            raise self.stop("planner_percent", f"{number.words} %", "a share is understood only of a metric")
        self.take()
        ask = Ask("count", metric=metrics[0], words=name.words)
        self.draft.explained.append(Explained(name.words, metrics[0]))
        value = Decimal(str(number.number)) / 100
        self.draft.having.append(Having(ask, op, value, f"{op} {number.words} % {name.words}"))

    def on_percent(self, piece: Piece, _: str) -> None:
        raise self.stop("planner_percent", piece.words, "a share is understood only of a metric")

    def compare_period(self, slot: Slot, op: Compared) -> None:
        piece = self.take()
        period = piece.period
        assert period is not None
        if not period.bare or piece.number is None:
            raise self.stop("planner_number", piece.words, f"how `{piece.words}` is compared is not certain")
        self.add(Cond(op, slot, [(piece.number, piece.words)], [None], words=f"{slot.words} {op} {piece.words}", at=piece.at))

    def how_many(self, number: Piece, op: Compared) -> None:
        """ "more than 5 DS", "over 5000 F"."""
        distinct = self.kind() == "distinct"
        if distinct:
            self.take()
        self.described()
        name = self.peek()
        if name is None or name.kind != "name":
            raise self.stop("planner_number", number.words, f"what `{number.words}` is compared with is not said")
        self.take()
        dataset, slot = self.noun(name)
        words = f"{op} {number.words} {name.words}"
        if slot is not None:
            if distinct:
                raise self.stop("planner_distinct", name.words, "a number of different values of a field is not understood")
            slot.numeric = True
            return self.add(Cond(op, slot, [(number.number or 0, number.words)], [None], words=words, at=number.at))
        if not isinstance(number.number, int):
            raise self.stop("planner_number", number.words, f"`{number.words}` is no number of rows")
        negated, self.negated = self.negated, False
        self.draft.relations.append(Relation(dataset, number.at, (op, number.number), negated=negated, words=words))
        return None

    def against(self, slot: Slot | None, op: Compared) -> None:
        agg = cast(Aggregate, self.take().kind.partition(":")[2])
        self.skip("of")
        words: str = agg
        if self.kind() == "name":
            name = self.peek()
            assert name is not None
            if slot is None or name.meaning is slot.meaning:
                self.take()
                _, found = self.noun(name)
                slot = slot or found
                if slot is not None:
                    words = f"{agg} {slot.words}"
        if slot is None or self.kind() in ("value", "quoted", "number"):
            raise self.stop("planner_unused", agg, "what is compared with an aggregate is not said")
        while self.kind() == "of" and self.kind(1) == "name":
            owner = self.as_dataset(cast(Piece, self.peek(1)))
            if owner is None or not self.has_field(slot.meaning, owner):
                raise self.stop("planner_nested", words, "an aggregate over some of the rows is not understood")
            self.at += 1
            self.mention(owner, self.take())
            slot.tie = owner
        if self.kind() in ("of", "in", "each") or self.kind() == "with":
            raise self.stop("planner_nested", words, "an aggregate over some of the rows is not understood")
        slot.numeric = True
        self.add(Cond(cast(Op, op), slot, against=agg, words=f"{op} {words}"))

    def on_comparative(self, piece: Piece, _: str) -> None:
        """ "older than 20"; with a field before it only the direction counts."""
        slot, self.pending = self.pending, None
        wanted = COMPARATIVES[piece.literal]
        more = wanted[0][1]
        if slot is None:
            slot = Slot(piece.words, None, piece.at, near=self.last_ds, wanted=wanted)
        op: Compared = ">" if more else "<"
        if self.negated:
            op, self.negated = _FLIP[op], False
        self.mode = "where"
        if self.kind().startswith("agg:"):
            return self.against(slot, op)
        if self.kind() not in ("number",):
            raise self.stop("planner_number", piece.words, f"`{piece.words}` is not followed by a number")
        number = self.take()
        if self.kind() == "name" and slot.meaning is None:
            name = cast(Piece, self.peek())
            if self.has_wanted(name, wanted):
                self.take()
        self.add(Cond(op, slot, [(number.number or 0, number.words)], [None], words=f"{piece.words} {number.words}", at=piece.at))
        return None

    def has_wanted(self, piece: Piece, wanted: tuple[tuple[str, bool], ...]) -> bool:
        return any(piece.words.lower().rstrip("s") == words for words, _ in wanted)

    def on_between(self, piece: Piece, _: str) -> None:
        slot, self.pending = self.pending, None
        if slot is None and self.kind() == "name":
            _, slot = self.noun(self.take())
        low, joint, high = self.peek(), self.kind(1), self.peek(2)
        if low is None or high is None or low.number is None or high.number is None or joint != "and":
            raise self.stop("planner_number", piece.words, f"`{piece.words}` needs two numbers")
        self.at += 3
        if slot is None and self.kind() == "name":
            name = self.take()
            dataset, slot = self.noun(name)
            if slot is None and isinstance(low.number, int) and isinstance(high.number, int):
                words = f"between {low.words} and {high.words} {name.words}"
                self.draft.relations.append(Relation(dataset, piece.at, (">=", low.number), high.number, words=words))
                return
        if slot is None:
            raise self.stop("planner_number", piece.words, "what is between the two numbers is not said")
        words = f"{slot.words} between {low.words} and {high.words}"
        self.add(
            Cond("between", slot, [(low.number, low.words), (high.number, high.words)], [None, None], words=words, at=piece.at)
        )

    def on_contains(self, piece: Piece, _arg: str) -> None:
        slot, self.pending = self.pending, None
        op = cast(Op, piece.kind)
        said = self.peek()
        if said is None or said.kind not in ("quoted", "value", "number"):
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` is not followed by a text")
        self.take()
        self.skip("init")
        if self.kind() == "in" and (slot is None or self.kind(1) in ("his", "name")):
            self.take()
            self.skip("his")
            if self.kind() == "name":
                _, slot = self.noun(self.take())
        if slot is None:
            raise self.stop("planner_unused", said.words, f"where `{said.words}` is looked for is not said")
        if self.kind() in ("or", "and") and self.kind(1) in ("quoted", "value"):
            raise self.stop("planner_or", said.words, "two texts to look for are not understood")
        self.mode = "where"
        self.add(
            Cond(
                op,
                slot,
                [(said.literal or said.words, said.words)],
                [None],
                words=f"{slot.words} {piece.words} {said.words}",
                at=piece.at,
            )
        )

    on_starts = on_contains
    on_ends = on_contains

    # --- groups, order, extremes -----------------------------------------------------------------------------------------

    def on_each(self, piece: Piece, _: str) -> None:
        self.settle()
        self.draft.each = True
        self.skip("distinct")
        if self.kind() == "of" and self.kind(1) == "name":
            self.take()
        if self.kind() == "grain":
            grain = self.take()
            slot = None
            if self.kind() == "of" and self.kind(1) == "name":
                self.take()
                _, slot = self.noun(self.take())
            slot, self.when = slot or self.when, None
            self.draft.groups.append(Group(slot=slot, grain=cast(Grain, grain.literal), words=grain.words))
            self.mode = "where"
            return
        if self.kind() != "name":
            if not self.draft.shows:
                raise self.stop("planner_unused", piece.words, f"`{piece.words}` groups by nothing that is known")
            return
        while self.kind() == "name":
            name = self.take()
            dataset, slot = self.noun(name)
            self.draft.groups.append(Group(slot=slot, dataset=dataset if slot is None else None, words=name.words))
            if slot is None and self.untied:
                self.tie_recent(dataset)
            if (
                self.kind() == "and"
                and self.kind(1) == "name"
                and not self.condition_follows(2)
                and self.as_dataset(cast(Piece, self.peek(1))) is None
                and self.draft.asks
            ):
                self.take()
            else:
                break
        if self.draft.asks or self.draft.shows:
            self.mode = "where"

    def on_grain(self, piece: Piece, _: str) -> None:
        """ "monthly" beside a measure; "month" alone says nothing."""
        if not (piece.words.lower().endswith("ly") and (self.draft.asks or self.kind().startswith(("agg", "count", "name")))):
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        self.draft.each = True
        slot, self.when = self.when, None
        self.draft.groups.append(Group(slot=slot, grain=cast(Grain, piece.literal), words=piece.words))

    def on_order(self, _piece: Piece, arg: str) -> None:
        self.settle()
        self.mode = "order"
        self.order_list("desc" if arg == "desc" else "")

    def order_list(self, direction: str) -> None:
        """What follows "ordered by": fields and measures, each with its direction."""
        while True:
            self.skip("his", "of")
            if self.kind() in ("asc", "desc"):
                direction = self.take().kind
                self.skip("of", "by", "his")
            if self.kind().startswith("sup:"):
                direction = self.take().kind[4:]
            before = len(self.draft.sorts)
            if self.kind() == "count" or self.kind().startswith("agg:"):
                self.step(self.take())
                while self.aggs:
                    self.step(self.take())
            elif self.kind() == "name":
                name = self.take()
                if name.meaning is not None and name.meaning.metrics:
                    self.draft.sorts.append(
                        Sort(ask=Ask("count", metric=name.meaning.metrics[0], words=name.words), words=name.words)
                    )
                else:
                    self.draft.sorts.append(self.sort_of(name))
            if len(self.draft.sorts) == before:
                raise self.stop("planner_order", "ordered", "what the order is by is not known")
            if self.kind() in ("asc", "desc", "agesdesc", "agesasc", "alpha"):
                self.draft.sorts[-1].descending = self.take().kind in ("desc", "agesdesc")
            else:
                self.draft.sorts[-1].descending = direction == "desc"
                if direction and self.kind() == "top" and self.kind(1) != "number":
                    self.take()
            if self.kind() in ("and", "comma") and self.kind(1) in ("name", "count") and not self.condition_follows(2):
                self.take()
                continue
            break
        self.mode = "where"

    def sort_of(self, name: Piece) -> Sort:
        _dataset, slot = self.noun(name)
        if slot is None:
            raise self.stop("planner_order", name.words, f"`{name.words}` is not a field to order by")
        if self.kind() == "of" and self.kind(1) == "name":
            owner = self.as_dataset(cast(Piece, self.peek(1)))
            if owner is not None and self.has_field(slot.meaning, owner):
                self.at += 1
                self.mention(owner, self.take())
                slot.tie = owner
        return Sort(slot=slot, words=slot.words)

    def on_asc(self, piece: Piece, _: str) -> None:
        kind = piece.kind
        if kind in ("asc", "desc") and self.kind() in ("of", "by"):
            self.take()
            self.mode = "order"
            return self.order_list(kind)
        if kind in ("agesdesc", "agesasc"):
            wanted = SUPERLATIVES["oldest" if kind == "agesdesc" else "youngest"]
            slot = Slot(piece.words, None, piece.at, near=self.last_ds, wanted=wanted)
            self.draft.sorts.append(Sort(slot=slot, words=piece.words, descending=False))
            return None
        if not self.draft.shows or (kind == "desc" and not self.draft.shows):
            raise self.stop("planner_order", piece.words, f"what is ordered `{piece.words}` is not said")
        if kind != "alpha" and len(self.draft.shows) > 1:
            raise self.stop("planner_order", piece.words, f"what is ordered `{piece.words}` is not said")
        self.draft.sorts.append(Sort(first_shown=True, descending=kind == "desc", words=piece.words))
        return None

    on_desc = on_asc
    on_alpha = on_asc
    on_agesdesc = on_asc
    on_agesasc = on_asc

    def rank(self, sort: Sort) -> None:
        """One extreme: order and cut."""
        self.pending = None
        if self.draft.sorts:
            raise self.stop("planner_two_orders", sort.words, "there are two orders")
        self.draft.sorts.append(sort)
        self.draft.limit = self.top or self.draft.limit or 1
        self.top = None
        if self.mode != "select":
            self.mode = "where"

    def on_top(self, piece: Piece, _: str) -> None:
        if piece.kind == "bottom" or self.kind() != "number":
            raise self.stop("planner_top", piece.words, f"what `{piece.words}` means here is not certain")
        number = self.take().number
        if not isinstance(number, int) or not 0 < number <= MOST_ROWS:
            raise self.stop("planner_top", piece.words, "the number of rows is out of range")
        self.top = number
        if self.kind().startswith("sup:") or self.kind() in ("superlative", "common:desc", "common:asc"):
            return
        if self.kind() == "name" and (
            self.as_dataset(cast(Piece, self.peek())) or (self.mode == "select" and not self.draft.shows)
        ):
            self.draft.limit, self.top = number, None
            return
        if self.kind() == "name":
            _, slot = self.noun(self.take())
            self.rank(Sort(slot=slot, descending=True, superlative=True, words=piece.words))
            return
        raise self.stop("planner_top", piece.words, f"what `{piece.words}` means here is not certain")

    on_bottom = on_top

    def on_sup(self, piece: Piece, arg: str) -> None:
        descending = arg == "desc"
        if self.kind() == "number" and piece.words.lower() in ("top", "most", "least"):
            if piece.words.lower() == "top":
                return self.on_top(piece, "")
            raise self.stop("planner_top", piece.words, f"what `{piece.words}` means here is not certain")
        if self.kind() == "number":
            self.top = int(self.take().number or 1)
        distinct = self.kind() == "distinct"
        if distinct:
            self.take()
        if piece.words.lower().endswith("most"):
            self.skip("of")
        if self.kind() == "count":
            self.take()
            self.skip("of")
            self.described()
            name = self.peek()
            if name is None or name.kind != "name":
                raise self.stop("planner_unused", piece.words, f"`{piece.words}` counts nothing that is known")
            return self.most(self.take(), descending, piece)
        if self.kind().startswith("agg:") and self.kind(1) == "name":
            agg = cast(Aggregate, self.take().kind.partition(":")[2])
            name = self.take()
            _, slot = self.noun(name)
            if slot is None:
                return self.most(name, descending, piece)
            slot.numeric = agg in ("avg", "sum", "median")
            return self.rank(
                Sort(
                    ask=Ask(agg, slot=slot, words=f"{agg} {slot.words}"),
                    descending=descending,
                    superlative=True,
                    words=f"{piece.words} {slot.words}",
                )
            )
        self.described()
        name = self.peek()
        if name is None or name.kind != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` belongs to nothing that is known")
        self.take()
        if name.meaning is not None and name.meaning.metrics:
            ask = Ask("count", metric=name.meaning.metrics[0], words=name.words)
            return self.rank(Sort(ask=ask, descending=descending, superlative=True, words=f"{piece.words} {name.words}"))
        dataset, slot = self.noun(name)
        if slot is None:
            plain = piece.words.lower().removeprefix("the ") in ("most", "fewest", "least")
            if (self.mode == "where" or (self.draft.shows and plain)) and piece.words.lower() in (
                "most",
                "the most",
                "fewest",
                "least",
                "the fewest",
                "the least",
                "highest",
                "largest",
                "greatest",
            ):
                return self.most_of(dataset, descending, f"{piece.words} {name.words}", name.at)
            raise self.stop("planner_no_field", f"{piece.words} {name.words}", f"`{piece.words}` of what is not said")
        words = f"{piece.words} {slot.words}"
        slot.numeric = piece.words.lower() in ("most", "the most", "fewest", "least", "the least")
        if self.mode == "select" and not self.draft.shows and not self.draft.head and self.top is None:
            self.draft.asks.append(Ask("max" if descending else "min", slot=slot, words=words))
            self.draft.penalty = max(self.draft.penalty, 0.05)
            self.agg_done = True
            self.untied = [slot]
            return None
        if self.mode == "select" and self.draft.asks and not self.draft.shows and self.top is None:
            self.draft.asks.append(Ask("max" if descending else "min", slot=slot, words=words))
            self.untied = [*self.untied, slot]
            return None
        self.rank(Sort(slot=slot, descending=descending, superlative=True, words=words))
        if self.mode == "select":
            self.untied = [*self.untied, slot]
        return None

    def most(self, name: Piece, descending: bool, piece: Piece) -> None:
        dataset, slot = self.noun(name)
        words = f"{piece.words} {name.words}"
        if slot is not None:
            ask = Ask("count_distinct", slot=slot, words=words)
            self.draft.penalty += 0.15
            return self.rank(Sort(ask=ask, descending=descending, superlative=True, words=words))
        self.most_of(dataset, descending, words, name.at)
        return None

    def most_of(self, dataset: str, descending: bool, words: str, _at: int) -> None:
        self.mode = "where"
        self.rank(Sort(ask=Ask("count", dataset=dataset, words=words), descending=descending, superlative=True, words=words))

    def on_common(self, piece: Piece, arg: str) -> None:
        if piece.words.lower() in ("most popular", "least popular"):
            raise self.stop("planner_no_field", piece.words, f"`{piece.words}` by which field is not said")
        if self.kind() == "number":
            self.top = int(self.take().number or 1)
        if self.kind() != "name" and len(self.draft.shows) == 1 and not self.draft.asks:
            return self.rank(Sort(common=True, descending=arg == "desc", superlative=True, words=piece.words))
        if self.kind() != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` belongs to nothing that is known")
        _dataset, slot = self.noun(self.take())
        if slot is None:
            raise self.stop("planner_no_field", piece.words, f"`{piece.words}` by which field is not said")
        self.show(slot)
        self.rank(Sort(common=True, descending=arg == "desc", superlative=True, words=piece.words))
        return None

    def on_superlative(self, piece: Piece, _: str) -> None:
        wanted = SUPERLATIVES[piece.literal]
        if self.kind() == "number":
            self.top = int(self.take().number or 1)
        slot = Slot(piece.words, None, piece.at, near=self.last_ds, wanted=wanted)
        name = self.peek()
        if name is not None and name.kind == "name":
            dataset = self.as_dataset(name)
            if dataset is not None:
                slot.near = slot.tie = dataset
            elif self.has_wanted(name, wanted) or (name.meaning is not None and name.meaning.fields and self.mode != "select"):
                self.take()
                _, real = self.noun(name)
                assert real is not None
                return self.rank(Sort(slot=real, descending=wanted[0][1], superlative=True, words=f"{piece.words} {name.words}"))
        self.rank(Sort(slot=slot, superlative=True, words=piece.words))
        return None


def _shares(meaning: Meaning | None, piece: Piece) -> bool:
    """Whether a value is stored in a field that the name may mean."""
    if meaning is None or not piece.stored:
        return False
    return any(
        name in meaning.fields.get(dataset, {}) or name in meaning.partial.get(dataset, {}) for dataset, name in piece.stored
    )


def _alike(one: Piece, other: Piece) -> bool:
    """Whether two values may be of one field."""
    if (one.kind == "number") != (other.kind == "number"):
        return False
    if one.stored and other.stored:
        return bool(one.stored.keys() & other.stored.keys())
    return True


def _or(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)
