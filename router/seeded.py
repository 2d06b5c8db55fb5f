"""A `both` answer in two steps: what one leg finds is what the other one is asked with. `router/routing/steps.py` has the wording.

Documents first: a table question that compares with a description ("above the amount that a technician may give away") searches
documents for the description, reads one number from the passages that leave anyway, and asks the tables with the number. Tables
first: a second half that points back ("and how do I replace it?") is searched for with the name that the rows show; where the
first half says the name itself, nobody waits. Each step is the ordinary leg under the caller's filters and what is left of the one
deadline, and both stand among stages and notes. What a step cannot do leaves the ordinary answer of both legs, and says so.

INVARIANT: what the caller may not know and what does not exist end in the same answer
(tests/unit/test_seeded.py::test_a_hidden_limit_reads_like_one_that_does_not_exist).
INVARIANT: a seed is of passages or cells of this caller's own answer: what a mask hides seeds nothing (…::test_a_masked_name_seeds_nothing).
INVARIANT: a model is given a seeded text by its class: that of its passage, or of its cell
(…::test_an_embedder_hears_of_the_class_of_the_seed, …::test_a_number_has_the_class_of_its_passage).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from router.document_leg import find_candidates, prepare_question, rank_candidates
from router.domain import CLASSES, Clarify, Degraded, Passage, Stage, Steps, Table
from router.errors import Refused, SourceError
from router.line import Asking, Evidence, failure_of
from router.routing.antecedents import (
    asks_what_it_is_called,
    called_in,
    is_identifier,
    named_in,
    one_name,
    pick_seeds,
    points,
    speaks_of_others,
    spell_out,
)
from router.routing.quantities import MOST_PASSAGES, Supported, read_quantities
from router.routing.steps import Described, ends_in_place, fill, parse_described, searched_words
from router.search.decomposed import clauses

FIRST, SECOND = "step_1_of_2", "step_2_of_2"
DESCRIBED = "a number is only described: documents are asked for it first"
HIGHEST = len(CLASSES) - 1
"""Of a cell that no reviewer opened, and of a passage whose labels are gone: nothing says that it is less."""
_LONGEST_TITLE = 80


def is_described(text: str) -> bool:
    """Whether documents have to say a number before tables can be asked."""
    return len(clauses(text)) == 1 and parse_described(text) is not None


def _tell(asking: Asking, step: str, words: str) -> None:
    """A step among the stages, before those that it is made of; its own time is theirs."""
    asking.watch.stages.append(Stage(step, 0, note=words))


def _spoken(step: str, words: str) -> str:
    return f"{step.replace('_', ' ')}: {words}"


def _instead(asking: Asking, why: str, told: str) -> bool:
    """The ordinary answer of both legs follows. What is `told` holds words of the caller's, which no record keeps under `degraded`."""
    asking.found.degraded.append(Degraded("steps", f"{why}: the question was asked as it stands"))
    asking.found.notes += (told,)
    return False


# --- documents first --------------------------------------------------------------------------------------------------


def number_first(asking: Asking) -> bool:
    """Fills the findings in two steps, or leaves them and says why; False also where the question has no such form, or where the
    tables read it as it stands."""
    described = parse_described(asking.question.text) if len(clauses(asking.question.text)) == 1 else None
    if described is None or asking.policies.catalog is None or not asking.grants.query or asking.narrowed:
        return False
    from router.table_leg import reads_rows  # with it comes the parser of SQL, which a world without tables needs not

    try:
        if reads_rows(asking):
            return False
        if _could_be_of_rows(asking, described):
            place = ends_in_place(described)
            return _instead(asking, "not certain", f"`{place}` could be said of the rows as well as of `{described.description}`")
        return _documents_first(asking, described)
    except (Refused, SourceError) as error:
        return _instead(asking, error.code, f"`{described.description}` could not be looked for: {error.message}")


def _could_be_of_rows(asking: Asking, described: Described) -> bool:
    """Whether the description ends in a stored value: `… may approve in region West` counts the West's rows, or asks for its limit."""
    from router.table_leg import kinds_of_words

    place = ends_in_place(described)
    if place is None:
        return False
    kind_of = kinds_of_words(asking)
    words = place.lower().split()
    runs = [" ".join(words[at:end]) for at in range(len(words)) for end in range(at + 1, len(words) + 1)]
    return any((kind_of(run) or "").count(".") == 1 for run in runs)


def _documents_first(asking: Asking, described: Described) -> bool:
    watch, words = asking.watch, searched_words(described)
    _tell(asking, FIRST, f"documents: `{words}`")
    # the same passages are read however few are to be shown: fewer would turn two numbers into one
    asked = replace(asking.question, text=words, k=max(asking.question.k, MOST_PASSAGES))
    step = replace(asking, question=asked, found=Evidence(egress=asking.found.egress))
    candidates = find_candidates(step, prepare_question(step))
    whole = rank_candidates(step, candidates)
    asking.found.dropped += step.found.dropped
    step.found.dropped = 0
    passages = step.found.passages if whole else step.found.passages[:MOST_PASSAGES]
    today = asking.question.now.date()
    read = watch.stage("read", lambda: read_quantities(described.description, described.rows, described.wanted, passages, today))
    watch.note(count_in=len(passages), count_out=len(read))
    if not read:
        return _instead(asking, "no number", f"no single number for `{described.description}` stands in what was found")
    said = [passages[one.passage] for one in read]
    if not whole:
        step.found.passages = _shown(step.found.passages, said, asking.question.k)
    if len(read) > 1:
        _ask_back(asking, step, described, [(one, passage) for one, passage in zip(read, said, strict=True)])
        return True
    return _rows_second(asking, step, described, read[0], said[0], candidates.steps)


def _shown(passages: Sequence[Passage], said: Sequence[Passage], k: int) -> tuple[Passage, ...]:
    """As many as were asked for, those that say the number among them."""
    first = {one.chunk_id for one in said[:k]}
    others = [one.chunk_id for one in passages if one.chunk_id not in first]
    kept = first | set(others[: k - len(first)])
    return tuple(replace(one, rank=at) for at, one in enumerate((one for one in passages if one.chunk_id in kept), 1))


def _ask_back(asking: Asking, step: Asking, described: Described, read: Sequence[tuple[Supported, Passage]]) -> None:
    """The passages, and the numbers that they give: which is meant only the caller knows."""
    options = tuple(f"{one.quantity.words} ({passage.document_id})" for one, passage in read)
    step.found.notes += (
        _spoken(FIRST, f"documents: `{described.description}` → {' or '.join(one.quantity.words for one, _ in read)}"),
    )
    _replace_findings(asking, step.found)
    asking.found.clarify = Clarify(f"which number is meant by `{described.description}`?", options)


def _rows_second(asking: Asking, step: Asking, described: Described, one: Supported, passage: Passage, steps: Steps) -> bool:
    """Where the tables fail, what documents said stays: the number is known, and only not compared."""
    told = f"`{described.description}` → {one.quantity.words} ({passage.document_id})"
    filled: list[Asking] = []
    failed = failure_of(asking, lambda: filled.extend(_fill(asking, described, one, _class_of(asking, passage, steps))))
    if failed is None and not filled:
        said = f"`{described.description}` is {one.quantity.words} ({passage.document_id})"
        return _instead(asking, "not certain", f"{said}, and what of the rows it is compared with is not certain")
    step.found.notes += (_spoken(FIRST, f"documents: {told}"),)
    if failed is None:
        from router.table_leg import query_tables

        (rows,) = filled
        second = f"tables: `{rows.question.text}`"
        _tell(asking, SECOND, second)
        failed = failure_of(asking, lambda: query_tables(rows, None))
    if failed is not None:
        step.found.notes += (f"the tables could not be asked with {one.quantity.words}: {failed.message}",)
        step.found.degraded.append(Degraded("steps", f"{failed.code}: the tables could not be asked with the number"))
        _replace_findings(asking, step.found)
        return True
    rows.found.tables = tuple(_with_origin(table, one, passage) for table in rows.found.tables)
    step.found.notes += (_spoken(SECOND, second),)
    _replace_findings(asking, step.found, rows.found)
    return True


def _fill(asking: Asking, described: Described, one: Supported, seed_class: int) -> list[Asking]:
    """The first filled question that the tables read; none where there is none."""
    from router.table_leg import granted_catalog, reads_rows

    for text in fill(described, one.quantity, granted_catalog(asking)):
        question = replace(asking.question, text=text)
        tried = replace(asking, seed_class=seed_class, question=question, found=Evidence(egress=asking.found.egress))
        if reads_rows(tried):
            return [tried]
    return []


def _replace_findings(asking: Asking, *found: Evidence) -> None:
    """What the steps found instead of what the probe did, whose receipts are no part of the answer."""
    asking.found.filters, asking.found.policies = (), frozenset()
    for one in found:
        asking.found.add(one)


def _with_origin(table: Table, one: Supported, passage: Passage) -> Table:
    """Where the number is from stands in the reading, and its passage among what the table stands on."""
    title = " ".join(passage.title.replace("`", "'").split())[:_LONGEST_TITLE]
    said = f"{table.reading}; {one.quantity.words} is from `{title}` ({passage.document_id})"
    return replace(table, reading=said, why=(*table.why, passage.chunk_id))


def _class_of(asking: Asking, passage: Passage, steps: Steps) -> int:
    """Of the passage that the number stands in."""
    stored = asking.line.store.load(asking.principal.tenant, [passage.chunk_id], steps.searched, deadline_s=asking.watch.left_s())
    found = [item.labels.get("sensitivity") for item in stored]
    return found[0] if found and type(found[0]) is int else HIGHEST


# --- tables first -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pointing:
    """A second half that points back. `name` is what the first half itself says; None where its rows have to."""

    first: str
    second: str
    name: str | None


def find_pointing(asking: Asking) -> Pointing | None:
    """None where the question is no such two, or its documents were narrowed to something else than it says."""
    parts = clauses(asking.question.text)
    if len(parts) != 2 or not points(parts[1]):
        return None
    first, second = parts
    name = named_in(first, second)
    if name is None and (any(map(str.isdigit, second)) or speaks_of_others(first, second)):
        return None  # it names something itself, or speaks of what is only counted
    return Pointing(first, second, name)


@dataclass(frozen=True, slots=True)
class Spelled:
    """What documents are asked instead of the question as it stands, each only where the one before found nothing. `looked_up` is what
    tables were asked to know it: part of the answer, behind what was asked."""

    tries: tuple[Asking, ...]
    looked_up: Evidence | None = None


def spell_out_for(asking: Asking, pointing: Pointing, rows: Evidence) -> Spelled:
    """Nothing to try where the question has to do as it stands."""
    return _by_words(asking, pointing, pointing.name) if pointing.name else _by_rows(asking, pointing, rows)


def _by_words(asking: Asking, pointing: Pointing, name: str) -> Spelled:
    """The name that the question says itself: nobody waits for the rows that it asks for."""
    clause, at = spell_out(pointing.second, [name]), len(asking.watch.stages)
    called = _called(asking, name)
    if called is not None:
        asking.watch.stages.insert(at, Stage(FIRST, 0, note=f"tables: `{called.asked}`"))
        asking.found.notes += (_spoken(FIRST, f"tables: `{called.asked}` → {called.name}"),)
        return _documents_second(asking, pointing, clause, called, 0)
    asking.found.notes += (f"documents: `{pointing.second}` read as `{clause}`",)
    text = asking.question.text.replace(pointing.second, clause)
    return Spelled((replace(asking, question=replace(asking.question, text=text)),))


@dataclass(frozen=True, slots=True)
class _Called:
    """What a thing is called, what the tables were asked to know it, and what they answered."""

    name: str
    asked: str
    found: Evidence


def _called(asking: Asking, name: str) -> _Called | None:
    """What the caller's tables call the thing of an identifier: a value that reviewers opened to questions."""
    from router.table_leg import granted_catalog, query_tables, reads_rows

    if not is_identifier(name) or asking.policies.catalog is None or not asking.grants.query:
        return None
    open_values = {
        (facts.name.lower(), column.name.lower())
        for facts in asking.policies.datasets.values()
        for column in facts.columns
        if column.values != "no"
    }
    try:
        for text in asks_what_it_is_called(name, granted_catalog(asking), open_values):
            step = replace(asking, question=replace(asking.question, text=text), found=Evidence(egress=asking.found.egress))
            if not reads_rows(step):
                continue
            query_tables(step, None)
            if len(set(step.found.reads)) != 1:
                continue  # what another thing beside it is called: the depot of a claim
            masked = any(column.masked for table in step.found.tables for column in table.columns)
            called = one_name([row for table in step.found.tables for row in table.rows], masked=masked)
            if called is not None:
                return _Called(called, text, step.found)
    except (Refused, SourceError):
        return None  # an extra; where tables fail, their own leg says so
    return None


def _by_rows(asking: Asking, pointing: Pointing, rows: Evidence) -> Spelled:
    """The names that the caller's rows show; nothing where they show none, or too many to mean one thing."""
    if not rows.tables:
        return Spelled(())
    table = rows.tables[0]
    columns = [(column.name, column.type, column.masked) for column in table.columns]
    picked = pick_seeds(pointing.first, columns, table.rows, _names_of_columns(asking, rows.reads))
    if picked is None:
        return Spelled(())
    column, names = picked
    if not names:
        _instead(asking, "no name", f"the rows of `{pointing.first}` give no name, or too many, to search documents with")
        return Spelled(())
    clause = spell_out(pointing.second, names)
    called = _called(asking, names[0]) if len(names) == 1 else None
    said = (*names, called.name) if called is not None else names
    asking.found.notes += (_spoken(FIRST, f"tables: `{pointing.first}` → {', '.join(said)}"),)
    return _documents_second(asking, pointing, clause, called, _class_of_cells(asking, column, rows.reads))


def _names_of_columns(asking: Asking, reads: Sequence[str]) -> dict[str, set[str]]:
    if not reads:
        return {}
    from router.table_leg import granted_catalog

    try:
        return called_in(granted_catalog(asking), reads)
    except (Refused, SourceError):
        return {}


def _documents_second(asking: Asking, pointing: Pointing, clause: str, called: _Called | None, seed_class: int) -> Spelled:
    """By its identifier and by what it is called, two searches that take turns: prose has the one or the other. Where no document
    names the identifier, by what it is called alone."""
    word = "" if called is None else spell_out(pointing.second, [called.name])
    text = f"{clause}, and {word}?" if word else clause
    said = f"documents: `{text}`"
    asking.found.notes += (_spoken(SECOND, said),)
    _tell(asking, SECOND, said)
    texts = (text, word) if word else (text,)
    tries = tuple(replace(asking, question=replace(asking.question, text=one), seed_class=seed_class) for one in texts)
    return Spelled(tries, None if called is None else called.found)


def tell_first(asking: Asking, pointing: Pointing) -> None:
    """The step of the tables, on their own clock."""
    _tell(asking, FIRST, f"tables: `{pointing.first}`")


def _class_of_cells(asking: Asking, column: str, reads: Sequence[str]) -> int:
    """No column carries a class of its own. One whose stored values reviewers opened to questions (`values:`) is of the question's
    class; any other is of the highest."""
    facts = [asking.policies.datasets[name] for name in reads if name in asking.policies.datasets]
    named = [found for one in facts if (found := one.column(column)) is not None]
    return 0 if named and all(one.values != "no" for one in named) else HIGHEST
