"""Conditions: values, periods, texts within texts, and fields that wait for what is said of them.

INVARIANT: a field that is named without a condition stops the plan (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from typing import cast

from router.sql.form import Explained, Op
from router.sql.planner.draft import Cond, Slot, Sort
from router.sql.planner.index import FieldKey, Meaning
from router.sql.planner.nouns import Reader, alike, shares
from router.sql.planner.segment import Piece
from router.sql.planner.stock import SAYING_SOME, stock_field
from router.sql.planner.words import VERBS


def _ends_in_be(piece: Piece) -> bool:
    """ "That were": what follows is what rows became, as after "were" alone."""
    return piece.words.lower().split()[-1] in ("is", "are", "was", "were")


class Conditions(Reader):
    """See the module."""

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
        if meaning is None or meaning.datasets or not piece.words.lower().endswith(("ed", "born")):
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

    def described(self) -> None:
        """ "Open claims": a value before its dataset is a condition on it."""
        piece, ahead = self.peek(), self.peek(1)
        if piece is None or ahead is None or ahead.kind != "name" or self.as_dataset(ahead) is None:
            return None
        if piece.kind == "name" and self.as_dataset(piece) is None and self.flag(slot := self.slot_of(piece)):
            return self.add(Cond("=", slot, [(True, self.take().words)], [None], words=piece.words, at=piece.at))
        if piece.kind != "value":
            return None
        mode, self.mode = self.mode, "where"
        negated, self.negated = self.negated, False
        self.on_value(self.take(), "")
        self.mode, self.negated = mode, negated
        return None

    def is_condition(self, _slot: Slot) -> bool:
        return self.condition_follows(0) and not (self.at - self.which_at <= 2 and self.which and self.kind() == "is")

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
            and shares(slot.meaning, self.pieces[self.at - 2])
        ):
            last.slot = slot
            return None
        if self.negated and self.none and self.kind() in ("", "and", "comma"):
            self.negated = False
            self.draft.penalty += 0.1
            return self.add(Cond("is_null", slot, words=f"no {slot.words}", at=piece.at))
        if piece.words.lower() in SAYING_SOME and self.stocked() is not None:
            return self.on_instock(piece, "")
        if piece.words.lower() in VERBS and piece.words.lower().endswith("ed") and not self.negated:
            self.draft.verbs += 1
            self.draft.penalty += 0.05
            self.draft.explained.append(Explained(piece.words, "relation"))
            return None
        raise self.stop("planner_no_condition", slot.words, f"`{slot.words}` is named without a condition")

    def stocked(self) -> FieldKey | None:
        """The stock of the rows that are asked for, or of what a value just named."""
        last = self.draft.conds[-1] if self.draft.conds and self.pieces[self.at - 2].kind == "value" else None
        named = {key[0] for stored in (last.stored if last is not None else ()) for key in stored or ()}
        owners = named if len(named) == 1 else {owner for owner in (self.draft.head or self.last_ds,) if owner}
        found = [stock for owner in owners if (stock := stock_field(self.index, owner)) is not None]
        return found[0] if found and self.selected() else None

    def on_instock(self, piece: Piece, _: str) -> None:
        """ "In stock": some is there, "out of stock": none."""
        found = self.stocked()
        if found is None:
            raise self.stop("planner_unknown", piece.words, f"what `{piece.words}` is counted by is not known")
        self.settle()
        if self.negated:
            raise self.stop("planner_negation", piece.words, f"what `not {piece.words}` leaves is not certain")
        self.mode = "where"
        self.draft.stock = True
        slot = Slot(piece.words, Meaning(fields={found[0]: {found[1]: 1.0}}), piece.at, tie=found[0])
        op: Op = "<=" if piece.kind == "soldout" else ">"
        self.add(Cond(op, slot, [(0, piece.words)], [None], words=piece.words, at=piece.at))

    on_soldout = on_instock

    def slot_of(self, piece: Piece) -> Slot:
        return Slot(piece.words, piece.meaning, piece.at, near=self.last_ds)

    def add(self, cond: Cond) -> None:
        cond.near = cond.near or self.last_ds
        if self.joined:
            cond.joined, self.joined = True, False
        if self.negated:
            cond.negated, cond.never, self.negated = True, self.never, False
            cond.excepted, self.excepting = self.excepting, False
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
            if not step or ahead is None or ahead.kind not in ("value", "quoted", "number") or not alike(first, ahead):
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
            elif shares(ahead.meaning, piece) and self.mode == "where":
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
        if self.mode == "select" and not self.selected() and isinstance(piece.number, int) and piece.number > 0:
            step = 1 if kind == "value" else 0
            name = self.peek(step)
            if name is not None and name.kind == "name":
                self.draft.limit = piece.number  # without an order this is refused later
                return self.described()
        raise self.stop("planner_number", piece.words, f"what `{piece.words}` is compared with is not said")

    def state_before(self, value: Piece) -> bool:
        """ "Paid in 2025", "open today", but not "in the West in 2025": a value that says what became of a row, or what it was then."""
        before = self.pieces[self.at - 3] if self.at > 2 else None
        attribute = before is not None and before.kind in ("in", "of", "with", "by") and not _ends_in_be(before)
        return value.words.islower() and value.words.isalpha() and not attribute

    def on_period(self, piece: Piece, _: str) -> None:
        """A period: of the time field that is named before it, else of the one that the dataset means."""
        slot, self.pending = self.pending, None
        if self.selected():
            self.mode = "where"
        grained = [group.slot for group in self.draft.groups if group.grain is not None and group.slot is not None]
        if slot is None and len(grained) == 1:
            slot = grained[0]
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
            if self.state_before(before):
                since = piece.words.lower().startswith("since")
                word = before.words.lower()  # what is open since May was opened then
                cond.event = word + "ed" if since and word + "ed" in self.index.events else word
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
