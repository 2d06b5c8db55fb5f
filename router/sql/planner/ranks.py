"""Groups, orders and extremes.

INVARIANT: the first rows are never taken without an order (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from typing import cast

from router.sql.form import Aggregate, Grain
from router.sql.planner.draft import Ask, Group, Slot, Sort
from router.sql.planner.index import FieldKey, Meaning
from router.sql.planner.measures import Measures
from router.sql.planner.segment import Piece
from router.sql.planner.stock import is_mass, stock_field, stock_meant, stock_of
from router.sql.planner.words import AGES, SUPERLATIVES

MOST_ROWS = 10_000


class Ranks(Measures):
    """See the module."""

    def on_each(self, piece: Piece, _: str) -> None:
        """`Each`, `per`: what follows is grouped by."""
        self.settle()
        self.draft.each = True
        self.skip("distinct")
        if self.kind() == "of" and self.kind(1) == "name":
            self.take()
        if self.kind() == "grain":
            grain = self.take()
            many = ("every", "each") if self.draft.shows else ("every",)
            if piece.words.lower() in many and not self.draft.asks:
                words = f"{piece.words} {grain.words}"
                raise self.stop("planner_universal", words, f"`{words}` as a condition is not understood")
            slot = None
            if self.kind() == "of" and self.kind(1) == "name":
                self.take()
                _, slot = self.noun(self.take())
            slot, self.when = slot or self.when or self.dated(), None
            self.draft.groups.append(Group(slot=slot, grain=cast(Grain, grain.literal), words=grain.words))
            self.mode = "where"
            self.grouped_too()
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
                and (self.draft.asks or self.headline())
            ):
                self.take()
            else:
                break
        if self.draft.asks or self.draft.shows:
            self.mode = "where"

    def grouped_too(self) -> None:
        """ "Per month and machine"."""
        name = self.peek(1)
        if self.kind() != "and" or name is None or name.kind != "name" or self.as_dataset(name) is not None:
            return
        if self.draft.asks and not self.condition_follows(2):
            self.at += 2
            _, slot = self.noun(name)
            self.draft.groups.append(Group(slot=slot, words=name.words))

    def dated(self) -> Slot | None:
        """ "Closed in 2025 per month": the months are those of the day that the period is of."""
        found = [cond.slot for cond in self.draft.conds if cond.period is not None and cond.slot is not None]
        return found[0] if len(found) == 1 else None

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
        kind = piece.kind.partition(":")[0]
        if piece.kind.endswith(":first"):
            return self.measured_first(piece, kind == "desc")
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

    def measured_first(self, piece: Piece, descending: bool) -> None:
        """ "Claims per machine, highest first": by the one number that is asked for."""
        draft = self.draft
        if not draft.asks and draft.groups and draft.head is not None and self.headline():
            if any(group.slot is not None and self.a_number(group.slot) for group in draft.groups):
                raise self.stop(
                    "planner_order", piece.words, f"whether rows or groups are ordered `{piece.words}` is not certain"
                )
            draft.asks.append(Ask("count", dataset=draft.head, words=draft.head))
            draft.penalty += 0.1
        if draft.sorts or len(draft.asks) != 1 or not draft.groups:
            raise self.stop("planner_order", piece.words, f"what is ordered `{piece.words}` is not said")
        draft.sorts.append(Sort(ask=draft.asks[0], descending=descending, words=piece.words))

    def a_number(self, slot: Slot) -> bool:
        fields = slot.meaning.fields if slot.meaning is not None else {}
        return any(self.index.info[owner, name].numeric for owner, names in fields.items() for name in names)

    def on_newfirst(self, piece: Piece, _: str) -> None:
        """ "The open claims, newest first": rows in the order of their time."""
        draft = self.draft
        if draft.sorts or draft.asks or draft.groups or draft.head is None:
            raise self.stop("planner_order", piece.words, f"what is ordered `{piece.words}` is not said")
        wanted = SUPERLATIVES["newest" if piece.kind == "newfirst" else "earliest"][:1]
        slot = Slot(piece.words, None, piece.at, tie=draft.head, wanted=wanted)
        draft.sorts.append(Sort(slot=slot, words=piece.words))

    on_oldfirst = on_newfirst

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
        """ "Highest F", "most DS", "largest number of DS", "highest average F"."""
        descending = arg == "desc"
        if self.kind() == "number" and _plain(piece) in ("top", "most", "least"):
            if _plain(piece) == "top":
                return self.on_top(piece, "")
            raise self.stop("planner_top", piece.words, f"what `{piece.words}` means here is not certain")
        if self.kind() == "number":
            self.top = int(self.take().number or 1)
        if _plain(piece) == "most":
            self.skip("of")
        if self.kind() == "count":
            self.take()
            self.skip("of", "distinct")
            self.described()
            return self.most(self.name_after(piece), descending, piece)
        if self.kind().startswith("agg:") and self.kind(1) == "name":
            return self.extreme_of(cast(Aggregate, self.take().kind.partition(":")[2]), descending, piece)
        self.described()
        if self.kind() == "value" and self.kind(1) == "name" and self.draft.head and _plain(piece) in ("most", "fewest", "least"):
            self.on_value(self.take(), "")
        used = self.began > 0 and self.pieces[self.began - 1].words.lower() in ("used", "use", "uses")
        if self.peek() is None and used and len(self.draft.shows) == 1 and not self.draft.asks:
            return self.rank(Sort(common=True, descending=descending, superlative=True, words=piece.words))
        return self.extreme(self.name_after(piece), descending, piece)

    def name_after(self, piece: Piece) -> Piece:
        name = self.peek()
        if name is None or name.kind != "name":
            raise self.stop("planner_unused", piece.words, f"`{piece.words}` belongs to nothing that is known")
        return self.take()

    def extreme_of(self, agg: Aggregate, descending: bool, piece: Piece) -> None:
        """ "Highest average F": groups by an aggregate."""
        name = self.take()
        _, slot = self.noun(name)
        if slot is None:
            raise self.stop("planner_no_field", f"{piece.words} {name.words}", f"`{name.words}` is not a field")
        slot.numeric = agg in ("avg", "sum", "median")
        ask = Ask(agg, slot=slot, words=f"{agg} {slot.words}")
        self.rank(Sort(ask=ask, descending=descending, superlative=True, words=f"{piece.words} {slot.words}"))

    def extreme(self, name: Piece, descending: bool, piece: Piece) -> None:
        """ "Highest F": asked for itself it is an aggregate, said of rows it is an order and a cut."""
        words = f"{piece.words} {name.words}"
        if name.meaning is not None and name.meaning.metrics:
            ask = Ask("count", metric=name.meaning.metrics[0], words=name.words)
            return self.rank(Sort(ask=ask, descending=descending, superlative=True, words=words))
        stock = self.stock_named(name)
        dataset, slot = ("", self.slot_of_stock(stock, words, name)) if stock is not None else self.noun(name)
        counting = stock is not None or _plain(piece) in ("most", "fewest", "least")
        if slot is None:
            if counting and (self.mode == "where" or self.draft.shows):
                return self.most_of(dataset, descending, words, name)
            raise self.stop("planner_no_field", words, f"`{piece.words}` of what is not said")
        slot.numeric = counting
        if self.mode == "select" and not self.draft.shows and self.top is None and (self.draft.asks or not self.draft.head):
            self.draft.penalty = max(self.draft.penalty, 0.05)
            self.untied = [*self.untied, slot] if self.draft.asks else [slot]
            self.draft.asks.append(Ask("max" if descending else "min", slot=slot, words=words))
            self.agg_done = True
            return None
        if stock is not None and self.draft.head != stock[0]:
            return self.rank(Sort(ask=Ask("sum", slot=slot, words=words), descending=descending, superlative=True, words=words))
        self.rank(Sort(slot=slot, descending=descending, superlative=True, words=words))
        if self.mode == "select":
            self.untied = [*self.untied, slot]
        return None

    def stock_named(self, name: Piece) -> FieldKey | None:
        """ "The least stock": pieces, and no rows, though a dataset may be called so."""
        found = stock_meant(self.index, name.words, name.meaning)
        if found is not None and self.beside(name) is not None:
            raise self.two_names(name)
        return found

    def slot_of_stock(self, stock: FieldKey, words: str, name: Piece) -> Slot:
        self.draft.stock = True
        self.draft.penalty += 0.05
        if self.as_dataset(name) == stock[0]:
            self.mention(stock[0], name)
        return Slot(words, Meaning(fields={stock[0]: {stock[1]: 1.0}}), name.at, tie=stock[0])

    def most(self, name: Piece, descending: bool, piece: Piece) -> None:
        dataset, slot = self.noun(name)
        words = f"{piece.words} {name.words}"
        if slot is not None:
            ask = Ask("count_distinct", slot=slot, words=words)
            self.draft.penalty += 0.15
            return self.rank(Sort(ask=ask, descending=descending, superlative=True, words=words))
        self.most_of(dataset, descending, words, name)
        return None

    def most_of(self, dataset: str, descending: bool, words: str, name: Piece) -> None:
        """ "The most claims": how many rows. Where pieces may be meant, nobody can tell."""
        fields = name.meaning.fields.get(dataset, {}) if name.meaning is not None else {}
        a_number = any(self.index.info[dataset, one].numeric and not self.index.info[dataset, one].key for one in fields)
        stock, told = stock_field(self.index, dataset), self.peek(1)
        of_one = self.kind() == "of" and told is not None and told.kind == "value"
        pieces = stock is not None and of_one and stock_of(self.index, (told.stored if told else None) or ()) == stock
        if a_number or pieces or is_mass(name.words):
            raise self.stop("planner_ambiguous", words, f"whether `{words}` is of rows or of pieces is not certain")
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
        """An adjective that ranks: `oldest`, `cheapest`."""
        wanted = SUPERLATIVES[piece.literal]
        if self.kind() == "number":
            self.top = int(self.take().number or 1)
        slot = Slot(piece.words, None, piece.at, near=self.last_ds, wanted=wanted)
        self.described()
        name = self.peek()
        if name is not None and name.kind == "name":
            dataset = self.as_dataset(name)
            if dataset is not None:
                slot.near = slot.tie = dataset
            elif piece.literal in AGES and self.timed(name) and self.mode == "select":
                return self.extreme_time(piece)
            elif self.has_wanted(name, wanted) or (name.meaning is not None and name.meaning.fields and self.mode != "select"):
                self.take()
                _, real = self.noun(name)
                assert real is not None
                return self.rank(Sort(slot=real, descending=wanted[0][1], superlative=True, words=f"{piece.words} {name.words}"))
        self.rank(Sort(slot=slot, superlative=True, words=piece.words))
        return None

    def extreme_time(self, piece: Piece) -> None:
        """ "Earliest closing date": the time that is named is what is shown and what the order is by."""
        _, slot = self.noun(self.take())
        assert slot is not None
        slot.time = True
        self.show(slot)
        self.rank(Sort(slot=slot, descending=AGES[piece.literal], superlative=True, words=f"{piece.words} {slot.words}"))


def _plain(piece: Piece) -> str:
    return piece.words.lower().removeprefix("the ")
