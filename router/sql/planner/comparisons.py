"""Comparisons with numbers, with averages and with numbers of related rows.

INVARIANT: a number is never without what it is compared with (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from router.sql.form import Aggregate, Compared, Explained, Op
from router.sql.planner.conditions import Conditions
from router.sql.planner.draft import Ask, Cond, Having, Relation, Slot
from router.sql.planner.index import Meaning
from router.sql.planner.nouns import FLIP, one_of
from router.sql.planner.segment import Piece
from router.sql.planner.units import in_percent, money_fields
from router.sql.planner.words import COMPARATIVES, MEASURING


class Comparisons(Conditions):
    """See the module."""

    def on_cmp(self, piece: Piece, arg: str) -> None:
        self.compared(piece, cast(Compared, arg))

    def compared(self, piece: Piece, op: Compared) -> None:
        """A comparison: of the field before it, of a count of related rows, or of the measure that is asked for."""
        slot, self.pending = self.pending, None
        self.mode = "where"
        if self.negated:
            op, self.negated = FLIP[op], False
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
            if op != "=" and op != (">=" if self.kind() == "ormore" else "<="):
                raise self.stop("planner_number", piece.words, f"`{piece.words}` and `{self.take().words}` say two things")
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
        value = Decimal(str(number.number)) / (1 if in_percent(self.index, metrics[0]) else 100)
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
        verb = self.pieces[self.began - 1] if self.began else None
        measuring = MEASURING.get(verb.words.lower()) if verb is not None and verb.kind == "verb" else None
        if measuring is not None and (name is None or name.kind != "name"):
            said = verb.words if verb is not None else ""
            weighed = Slot(said, None, number.at, near=self.last_ds, wanted=measuring)
            literal = (number.number or 0, number.words)
            return self.add(Cond(op, weighed, [literal], [None], words=f"{said} {op} {number.words}", at=number.at))
        if name is None or name.kind != "name" or self.says_so(name):
            return self.paid(number, op)
        self.take()
        dataset, slot = self.noun(name)
        words = f"{op} {number.words} {name.words}"
        if slot is not None:
            if distinct:
                raise self.stop("planner_distinct", name.words, "a number of different values of a field is not understood")
            slot.numeric = True
            return self.add(Cond(op, slot, [(number.number or 0, number.words)], [None], words=words, at=number.at))
        self.refuse_mass(name, dataset)
        if not isinstance(number.number, int):
            raise self.stop("planner_number", number.words, f"`{number.words}` is no number of rows")
        negated, self.negated = self.negated, False
        self.draft.relations.append(Relation(dataset, number.at, (op, number.number), negated=negated, words=words))
        return None

    def paid(self, number: Piece, op: Compared) -> None:
        """ "Over 2,000 euros": the one number of the rows that is in this money."""
        owner = self.draft.head or self.last_ds
        found = money_fields(self.index, owner, self.draft.units.get(number.number or 0, set())) if owner else []
        if len(found) > 1:
            names = one_of([key[1] for key in found])
            raise self.stop("planner_ambiguous", number.words, f"`{number.words}` may be compared with {names}")
        if not found:
            raise self.stop("planner_number", number.words, f"what `{number.words}` is compared with is not said")
        slot = Slot(number.words, Meaning(fields={found[0][0]: {found[0][1]: 1.0}}), number.at, tie=found[0][0])
        self.draft.penalty += 0.05
        literal = (number.number or 0, number.words)
        self.add(Cond(op, slot, [literal], [None], words=f"{op} {number.words}", at=number.at))

    def says_so(self, name: Piece) -> bool:
        """ "Over 2,000 euros by telephone": a flag is said of the rows, and is not what the number is of."""
        return self.as_dataset(name) is None and self.flag(Slot(name.words, name.meaning, name.at))

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
            op, self.negated = FLIP[op], False
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
        if low.number > high.number:
            raise self.stop("planner_number", f"{low.words} and {high.words}", f"nothing is between {low.words} and {high.words}")
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
