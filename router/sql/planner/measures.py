"""Measures: counts, aggregates and metrics, asked for or compared.

INVARIANT: a field after an aggregate is not guessed to be aggregated, too (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

from router.sql.form import Aggregate, Compared, Explained
from router.sql.planner.comparisons import Comparisons
from router.sql.planner.draft import Ask, Having, Slot, Sort
from router.sql.planner.index import FieldKey, Meaning
from router.sql.planner.nouns import FLIP, one_of
from router.sql.planner.segment import Piece
from router.sql.planner.stock import PIECES, SAYING_SOME, stock_of
from router.sql.planner.tokens import lemma
from router.sql.planner.units import in_percent


class Measures(Comparisons):
    """See the module."""

    def on_metric(self, piece: Piece, metrics: tuple[str, ...]) -> None:
        if len(metrics) > 1:
            raise self.stop("planner_ambiguous", piece.words, f"`{piece.words}` may be {one_of(list(metrics))}")
        ask = Ask("count", metric=metrics[0], words=piece.words)
        self.draft.explained.append(Explained(piece.words, metrics[0]))
        self.last_ds = self.last_ds or self.index.metric_homes.get(metrics[0])
        if self.mode == "where" and self.compare_ask(ask):
            return
        if self.mode == "where":
            raise self.stop("planner_no_condition", piece.words, f"`{piece.words}` is named without a condition")
        self.draft.asks.append(ask)
        self.agg_done = True

    def on_count(self, piece: Piece, _: str) -> None:
        """`How many`, `number of`: rows of what follows, or different values of a field."""
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
        if self.pieces_of(name):
            return self.summed(piece)
        stock = stock_of(self.index, name.stored or ()) if name.kind == "value" and self.peek() is name else None
        if stock is not None and not self.compares(1):
            return self.pieces_in_stock(piece, stock)
        if PIECES & {lemma(word) for word in piece.words.lower().split()}:
            raise self.stop("planner_unused", piece.words, f"of what `{piece.words}` counts is not certain")
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
        return None

    def pieces_of(self, piece: Piece) -> bool:
        """ "How many PN-70417 are on hand": what a label tells, and a number of it."""
        stored = piece.stored or {}
        told = any(key[1] in self.index.labels[key[0]] for key in stored)
        return told and piece.kind == "value" and self.peek() is piece and self.kind(1) == "is" and self.kind(2) == "name"

    def summed(self, piece: Piece) -> None:
        self.on_value(self.take(), "")
        self.skip("is")
        name = self.take()
        _, slot = self.noun(name)
        fields = slot.meaning.fields if slot is not None and slot.meaning is not None else {}
        whole = [self.index.info[owner, field].datatype == "Integer" for owner, names in fields.items() for field in names]
        if slot is None or self.mode != "select" or self.draft.asks or not (whole and all(whole)):
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` counts nothing that is known")
        slot.numeric = True
        self.draft.penalty += 0.05
        self.draft.asks.append(Ask("sum", slot=slot, words=f"{piece.words} {slot.words}"))
        self.agg_done = True

    def compares(self, ahead: int) -> bool:
        """Whether something is said of the value that follows, other than that there is some of it."""
        while self.kind(ahead) in ("is", "with") or (self.kind(ahead) == "verb" and self.said(ahead) == "left"):
            ahead += 1
        name = self.peek(ahead)
        if name is not None and name.kind in ("name", "instock") and name.words.lower() in SAYING_SOME:
            ahead += 1
        return self.kind(ahead) not in ("", "in", "total", "each", "by")

    def said(self, ahead: int) -> str:
        piece = self.peek(ahead)
        return piece.words.lower() if piece is not None else ""

    def pieces_in_stock(self, piece: Piece, stock: FieldKey) -> None:
        """ "How many heated hoses do we have left at depot 6": the stock of what the value names, added up."""
        if self.mode != "select" or self.draft.asks:
            raise self.stop("planner_unused", piece.words, f"what `{piece.words}` counts is not certain")
        self.on_value(self.take(), "")
        self.skip("is", "with", "verb")
        if self.kind() in ("name", "instock"):
            self.take()
        self.mode = "select"
        slot = Slot(piece.words, Meaning(fields={stock[0]: {stock[1]: 1.0}}), piece.at, tie=stock[0], numeric=True)
        self.draft.penalty += 0.05
        self.draft.stock = True
        self.draft.asks.append(Ask("sum", slot=slot, words=f"{piece.words} {stock[1]}"))
        self.agg_done = True

    def counted(self, piece: Piece, distinct: bool) -> Ask:
        dataset, slot = self.noun(piece)
        if slot is None:
            self.refuse_mass(piece, dataset)
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
            if any(word.endswith("ed") for word in slot.words.lower().split()):
                raise self.stop("planner_count_of_number", slot.words, f"what of `{slot.words}` is counted is not certain")
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
        if (
            self.kind() == "count"
            and len(self.aggs) == 1
            and arg in ("max", "min")
            and self.mode == "where"
            and ahead is not None
        ):
            self.aggs = []
            return self.step(replace(piece, kind="sup:desc" if arg == "max" else "sup:asc"))
        if self.kind() == "count" and ahead is not None and ahead.kind == "name" and self.as_dataset(ahead) is None:
            self.take()
            self.number = True
        if self.kind() != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` aggregates nothing that is known")
        return None

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
            if self.kind() == "percent" and ask.metric is not None:
                self.take()  # of any other measure a share is of something that is not said
                if not in_percent(self.index, ask.metric):
                    number = Decimal(str(number)) / 100
            self.draft.having.append(Having(ask, FLIP[op] if negated else op, number, f"{ask.words} {op} {number}"))
            return True
        self.at = back
        return False
