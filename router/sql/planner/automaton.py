"""Left to right over the pieces: what is selected, counted, asked of rows, grouped and ordered.

There is no parser of English: heads are found by what stands beside what ("F of DS", "DS F", "V DS", "F is V"). Each piece is
either given a part in the draft or stops the plan; nothing is passed over.

INVARIANT: a piece that has no part in the draft stops the plan (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from typing import cast

from router.sql.form import Explained
from router.sql.planner.draft import Cond, Draft, Relation
from router.sql.planner.index import Index
from router.sql.planner.ranks import Ranks
from router.sql.planner.refusals import (
    refuse_after_exception,
    refuse_other_times,
    refuse_precedence,
    refuse_shared_negation,
    refuse_words,
)
from router.sql.planner.segment import Piece
from router.sql.planner.units import units_said
from router.sql.planner.words import AGES, AVERSE_VERBS, IDLE_VERBS, PARTICIPLES

_SKIPPED = frozenset({"unit", "whole"})
_RELATIVE = frozenset("who which where whose that what when".split())
_NO_NOUN = frozenset(
    {"", "ask", "each", "of", "count", "distinct", "comma", "and", "sup:desc", "sup:asc", "top", "no", "sortverb", "by"}
)
"""After these a participle describes the noun that follows it ("imported samples") and is a condition, not a relation."""
_CLAUSE_ENDS = frozenset({"", "and", "comma", "or", "order", "order:desc", "ask", "asc", "desc", "alpha"})
_PLAIN_NOT = frozenset({"but not", "outside", "different from", "different than", "is different from"})
"""Of what is excepted these deny one thing of each row; the others take rows away, and what else is said may be of those."""


def read_pieces(pieces: list[Piece], index: Index) -> Draft:
    """The draft, or `Stop`."""
    refuse_words(pieces)
    kept = [piece for piece in pieces if not (piece.kind == "fill" and piece.words != "'s") and piece.kind not in _SKIPPED]
    reader = _Reader(kept, index)
    reader.draft.units = units_said(pieces)
    reader.run()
    refuse_other_times(pieces, reader.draft)
    return reader.draft


class _Reader(Ranks):
    """Structure: who asks, joints, negation, verbs, and what a name does where it stands."""

    def run(self) -> None:
        while self.at < len(self.pieces):
            piece = self.take()
            self.step(piece)
        if self.pending is not None:
            raise self.stop("planner_no_condition", self.pending.words, f"`{self.pending.words}` is named without a condition")
        if self.negated:
            raise self.stop("planner_unused", "not", "a negation belongs to nothing")
        self.refuse_order()
        refuse_after_exception(self.pieces, self.draft)
        refuse_shared_negation(self.pieces, self.draft)
        nouns = [one.at for one in self.pieces if one.kind == "name" and self.as_dataset(one) is not None]
        refuse_precedence(self.pieces, self.draft, nouns[0] if nouns else -1)
        if self.aggs:
            raise self.stop("planner_unused", self.aggs[-1], "an aggregate belongs to nothing")
        if self.when_asked:
            raise self.stop("planner_no_time", self.pieces[0].words, "which time is asked for is not said")
        self.refuse_deed()
        if self.both or self.joined:
            raise self.stop("planner_unused", "both" if self.both else "or", "a joint belongs to nothing")

    def refuse_deed(self) -> None:
        """ "What do the orders come to": what they do is asked for, and not which they are."""
        draft, said = self.draft, self.pieces[0].words.lower() if self.pieces else ""
        if said in ("what do", "what does", "what did") and not (draft.shows or draft.asks or draft.groups or draft.everything):
            raise self.stop("planner_nothing_asked", said, "what is asked for is not understood")

    def refuse_order(self) -> None:
        if self.sorting and not self.draft.sorts:
            raise self.stop("planner_order", "order", "what the order is by is not said")

    def step(self, piece: Piece) -> None:
        self.began = self.at - 1
        kind, _, arg = piece.kind.partition(":")
        handler = getattr(self, f"on_{kind}", None)
        if handler is None:
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        handler(piece, arg)

    def on_ask(self, piece: Piece, _: str) -> None:
        words = piece.words.lower()
        if self.selected() and words.split()[-1] in ("which", "what") and self.kind() == "name" and piece.length < 3:
            before = self.pieces[self.at - 2].kind if self.at > 1 else ""
            if before not in ("and", "comma", "period") and (self.untied or self.draft.head):
                raise self.stop("planner_two_names", words, "two questions in one are not understood")
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

    def on_also(self, piece: Piece, _: str) -> None:
        self.settle()
        adds = piece.words.lower() in ("including", "plus") and self.kind() in ("his", "in", "of", "with")
        more = self.kind() == "name" and self.kind(1) in ("value", "quoted") and bool(self.draft.conds)
        if adds or more or self.kind() in ("value", "quoted", "period", "number"):
            raise self.stop("planner_unused", piece.words, f"whether `{piece.words}` narrows or widens is not certain")
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
        before = self.pieces[self.at - 2].kind if self.at > 1 else ""
        if (
            before == "period"
            and piece.words.lower() == "on"
            and self.kind() not in ("name", "value", "quoted", "number", "period")
        ):
            raise self.stop("planner_no_time", piece.words, f"`{piece.words}` after a time is not understood")
        if self.selected() or self.mode in ("group", "order"):
            self.mode = "where"
        if piece.words.lower() == "from":
            self.of = True

    def on_by(self, piece: Piece, _: str) -> None:
        if self.sorting and self.selected():
            self.sorting = False
            self.mode = "order"
            self.order_list("")
        elif self.kind() == "period":
            raise self.stop(
                "planner_no_time", piece.words, f"whether `{piece.words}` means before that time or in it is not certain"
            )
        elif self.draft.limit is not None and not self.draft.sorts and self.mode == "select" and self.selected():
            self.mode = "order"
            self.order_list("desc")
            self.draft.sorts[-1].ranked = True
        elif self.kind() == "grain" or (
            (self.draft.asks or self.headline()) and not self.done_by() and self.kind() == "name" and self.adjoins(piece)
        ):
            self.on_each(piece, "")
        else:
            self.mode = "where"

    def adjoins(self, piece: Piece) -> bool:
        """ "By the depot lead" says who did it, "by depot lead" parts what is counted."""
        ahead = self.peek()
        return ahead is not None and ahead.at == piece.at + piece.length

    def done_by(self) -> bool:
        """Whether "by" follows what was done, and so names who did it."""
        before = self.pieces[self.at - 2]
        if before.kind != "name":
            return before.kind == "verb"
        last = before.words.lower().split()[-1]
        return last.endswith("ed") or (last in PARTICIPLES and self.as_dataset(before) is None)

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
        if self.thing(piece):
            raise self.stop("planner_unknown", piece.words, f"what `{piece.words}` is is not known here")
        if piece.words.lower() in AVERSE_VERBS and self.kind() in ("value", "quoted", "is", "of", "name", "also"):
            raise self.stop("planner_negation", piece.words, f"what `{piece.words}` says of it is not certain")
        self.draft.verbs += 1
        self.draft.explained.append(Explained(piece.words, "relation"))
        if self.selected():
            self.settle()
            self.mode = "where"

    def thing(self, piece: Piece) -> bool:
        """ "The reserve", "review of claims", "status and order": a word that could be a verb, and is asked for or has something."""
        if piece.words.lower() in PARTICIPLES:
            return False
        before = self.pieces[self.at - 2] if self.at > 1 else None
        if self.kind() == "of" and cast(Piece, self.peek()).words.lower() != "for":
            return True
        if before is None or before.kind in ("and", "comma"):
            return self.kind() in ("", "of", "and", "comma")
        said = before.words.lower().split()
        return (
            before.kind == "ask"
            and said[0] not in ("who", "what", "which", "how", "for", "in", "could", "can", "i")
            and self.mode == "select"
        )

    def object_before(self) -> bool:
        """ "The courses that students take": the other noun stands before the verb."""
        draft = self.draft
        if draft.groups or draft.conds or draft.sorts or (draft.asks and draft.shows):
            return True
        names = [one for one in self.pieces[: self.at - 1] if one.kind == "name" and self.as_dataset(one) is not None]
        return len(names) > 1

    def on_and(self, piece: Piece, _: str) -> None:
        self.settle()
        words = piece.words.lower()
        if words.startswith("but"):
            self.refuse_exception(piece)
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

    def refuse_exception(self, piece: Piece) -> None:
        """ "Open but with an amount" asks for one thing more; "all claims but open ones" takes something away."""
        said, draft = self.kind(1), self.draft
        kind = self.kind()
        bounded = kind == "period" and not cast(Piece, self.peek()).words.lower().startswith(("in ", "of "))
        more = kind in ("with", "is", "no", "except", "verb", "between", "contains", "starts", "ends") or kind.startswith("cmp:")
        named = kind == "name" and (said in ("is", "between", "period") or said.startswith("cmp:"))
        plain = kind in ("of", "in") or named or (bounded and cast(Piece, self.peek()).number is None)
        if not ((more or plain) and (draft.conds or draft.relations or kind in ("no", "except"))):
            raise self.stop(
                "planner_negation", piece.words, f"whether `{piece.words}` adds something or takes it away is not certain"
            )

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
        self.never = self.kind() == "verb" or piece.words.lower() == "never"
        if self.selected():
            self.mode = "where"

    def on_except(self, piece: Piece, _: str) -> None:
        self.settle(keep=True)
        self.negated = True
        self.excepting = self.pending is None and piece.words.lower() not in _PLAIN_NOT
        if self.selected():
            self.mode = "where"

    def on_no(self, piece: Piece, _: str) -> None:
        self.settle()
        self.mode = "where"
        self.skip("verb")
        name = self.peek()
        if "zero" in piece.words.lower() and name is not None and name.kind == "name" and self.as_dataset(name) is None:
            _, slot = self.noun(self.take())
            assert slot is not None
            slot.numeric = True
            return self.add(Cond("=", slot, [(0, "zero")], [None], words=f"zero {slot.words}", at=piece.at))
        if name is None or name.kind not in ("name", "value"):
            raise self.stop("planner_negation", piece.words, f"`{piece.words}` belongs to nothing")
        self.described()
        self.negated = self.none = self.never = True
        return None

    def on_unknown(self, piece: Piece, _: str) -> None:
        raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is not known")

    def on_everything(self, _piece: Piece, _: str) -> None:
        self.draft.everything = True

    def on_distinct(self, piece: Piece, _: str) -> None:
        if self.mode != "select" or self.kind() != "name":
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        self.draft.distinct = True

    def on_role(self, piece: Piece, _: str) -> None:
        raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is a role and is not understood here")

    def on_name(self, piece: Piece, _: str) -> None:
        """A name of the catalogue: a metric, a field or a dataset, by what stands around it."""
        meaning = piece.meaning
        if meaning is not None and meaning.metrics and (not self.aggs or self.same_aggregate(meaning.metrics)):
            self.aggs = []
            return self.on_metric(piece, meaning.metrics)
        if self.selected() and self.happened(piece):
            return None
        if self.when_asked and self.timed(piece) and self.as_dataset(piece) is None:
            return self.show_when(piece)
        if meaning is not None and not (meaning.datasets or meaning.fields or meaning.partial):
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` is understood only beside its dataset")
        if self.aggs:
            return self.measure(piece)
        of, self.of = self.of, False
        if self.own_field(piece):
            self.draft.shows.append(self.slot(piece, tie=self.draft.head))
            return None
        before = self.pieces[self.at - 2] if self.at > 1 else None
        stated = before is not None and (before.kind == "is" or (before.kind == "name" and self.as_dataset(before) is not None))
        done = piece.words.lower().endswith("ed") and stated and self.timed(piece)
        if done and self.draft.head is not None and not self.draft.shows:
            raise self.stop("planner_no_condition", piece.words, f"when something was `{piece.words}` is not said")
        dataset, slot = self.noun(piece)
        if slot is None:
            self.on_dataset(dataset, piece, of)
        elif self.selected() and self.flag(slot):
            self.mode = "where"
            self.add(Cond("=", slot, [(True, slot.words)], [None], words=slot.words, at=piece.at))
        elif self.mode == "select" and not self.is_condition(slot):
            self.show(slot)
        else:
            self.condition(slot, piece)
        return None

    def refuse_doer(self, piece: Piece) -> None:
        """ "Who runs the depot": somebody is asked for, and the depot is what is run."""
        before = self.pieces[: self.at - 1]
        asked = next((at for at, one in enumerate(before) if one.kind == "ask" and one.words.lower().startswith("who")), None)
        if asked is None:
            return
        said = [one for one in before[asked + 1 :] if one.kind == "verb"]
        said += before[asked + 1 : asked + 2] if before[asked].words.lower() == "who" else []  # "who lost the order"
        done = next((one for one in said if one.kind in ("verb", "value")), None)
        if done is not None:
            raise self.stop("planner_who", done.words, f"who `{done.words}` the `{piece.words}` is not known here")

    def own_field(self, piece: Piece) -> bool:
        """ "Technicians and their depot": shown by the field of the rows themselves that is called so."""
        head = self.draft.head
        kinds = [one.kind for one in self.pieces[max(0, self.at - 3) : self.at - 1]]
        theirs = self.mode == "select" and self.draft.labelled and (kinds[-1:] == ["also"] or kinds == ["also", "his"])
        if not theirs or head is None or self.as_dataset(piece) in (None, head) or self.beside(piece) is not None:
            return False
        if piece.meaning is None or head not in piece.meaning.fields:
            raise self.stop("planner_two_heads", piece.words, f"what of `{piece.words}` is asked for is not certain")
        return True

    def show_beside(self, piece: Piece) -> None:
        """ "Name and depot of technicians": the field of theirs that is called so, and no row of another dataset."""
        owner = self.as_dataset(cast(Piece, self.peek(1))) if self.kind() == "of" and self.kind(1) == "name" else None
        if owner is None or piece.meaning is None or owner not in piece.meaning.fields:
            raise self.stop("planner_two_heads", piece.words, f"what of `{piece.words}` is asked for is not certain")
        self.draft.mentioned.pop(self.as_dataset(piece) or "", None)
        self.show(self.slot(piece, tie=owner))

    def on_when(self, piece: Piece, _: str) -> None:
        """ "When was ... opened": the time that is named later is what is shown."""
        if self.at > 1:
            raise self.stop("planner_unknown", piece.words, f"`{piece.words}` has no meaning here")
        self.when_asked = True

    def show_when(self, piece: Piece) -> None:
        self.when_asked = False
        slot = self.named(piece)
        slot.time = True
        mode, self.mode = self.mode, "select"
        self.draft.shows.append(slot)
        for sort in self.draft.sorts:
            if sort.slot is not None and sort.slot.wanted and sort.words in AGES:
                sort.slot, sort.descending = slot, AGES[sort.words]
        if self.draft.head:
            slot.near = self.draft.head
        self.mode = mode

    def on_dataset(self, dataset: str, piece: Piece, of: bool) -> None:
        """A dataset: what is asked for, what the fields beside it are of, or what something is related to."""
        draft = self.draft
        before = self.pieces[self.began - 1] if self.began else None
        joined = before is not None and before.kind in ("and", "comma", "or")
        grouped = bool(draft.groups) and self.began > 1 and self.pieces[self.began - 2].words == draft.groups[-1].words
        kinds = [one.kind for one in self.pieces[max(0, self.began - 2) : self.began]]
        beside = kinds[-1:] == ["also"] or kinds == ["also", "his"]
        other = self.mode == "select" and bool(draft.shows) and beside and not draft.labelled
        if other or (joined and (dataset in draft.heads or grouped)):
            raise self.stop("planner_two_heads", piece.words, f"whether `{piece.words}` are the same ones is not certain")
        if self.mode == "select":
            if joined and draft.shows and draft.head is None and not draft.labelled and not of:
                self.show_beside(piece)
                return
            tied = self.tie_recent(dataset) if of or draft.shows else False
            if draft.head is None:
                self.refuse_doer(piece)
                draft.head = dataset
                draft.heads.append(dataset)
                self.headed_at = self.at
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
        self.refuse_mass(piece, dataset)
        draft.relations.append(Relation(dataset, piece.at, negated=negated, words=piece.words, plain=not negated))
