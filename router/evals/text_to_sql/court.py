"""One database with its questions: gold read, rows made under every seed, and any SELECT judged against gold.

A database opens when its first question comes and closes before the next: only one is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal, Protocol

import sqlglot
from sqlglot import exp

from router import app
from router.catalog import Catalog
from router.evals.text_to_sql.catalogs import plain_name
from router.evals.text_to_sql.golds import Gold, Uses, classes_of, dated, gold_texts, parse, read_gold, read_uses
from router.evals.text_to_sql.judge import Wanted, asks_order, judge, run_gold
from router.evals.text_to_sql.rows import Rows, dice, make_rows, open_workshop
from router.evals.text_to_sql.schemas import Question, Schema

GoldDialect = Literal["sqlite", "postgres"]
MOST_VALUES = 2_000
"""Distinct texts of a column beyond which they are not indexed, as in the index of a caller."""
KEPT = 0.7
"""Share of the folder's own rows that stay in a sample of them."""


class Trial(Protocol):
    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None: ...
    def run(self, text: str) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


class Scripted(Trial, Protocol):
    def execute(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of one SELECT. `ties` seeds said nothing."""

    right: bool
    ties: int = 0
    why: str = ""


@dataclass(slots=True)
class Court:
    """`schema` has the kinds that the rows have. `skipped` are statements of its script that could not be run."""

    schema: Schema
    dialect: GoldDialect
    questions: list[Question]
    rows: list[Rows]
    golds: dict[int, list[Gold]]
    classes: dict[int, list[str]]
    skipped: list[str] = field(default_factory=list)
    generated: bool = False
    plans: list[Trial] = field(default_factory=list)
    references: list[Trial] = field(default_factory=list)
    known: dict[tuple[Gold, int], Wanted | str] = field(default_factory=dict)

    def wanted(self, gold: Gold, seed: int) -> Wanted | str:
        """What gold gives, or why it does not run; a text that is there twice is run once."""
        key = (gold, seed)
        if key not in self.known:
            try:
                self.known[key] = run_gold(gold, self.references[seed].run)
            except ValueError as error:
                self.known[key] = str(error).split("\n")[0][:200]
        return self.known[key]

    def fitness(self, question: Question) -> str:
        """Empty where the question can be judged; else `gold_failed`, `empty` (on every seed) or `tied` (likewise)."""
        found = [[self.wanted(gold, seed) for seed in range(len(self.rows))] for gold in self.golds[question.number]]
        run = [wanted for wanted in found if all(isinstance(one, Wanted) for one in wanted)]
        if not run:
            return "gold_failed"
        if all(one.empty for wanted in run for one in wanted if isinstance(one, Wanted)):
            return "empty"
        return "tied" if all(one.tied for wanted in run for one in wanted if isinstance(one, Wanted)) else ""

    def judge(self, question: Question, sql: str) -> Answered:
        """The SELECT is right where one of the golds agrees with it under every seed."""
        rows = []
        for seed, trial in enumerate(self.plans):
            try:
                rows.append(trial.run(sql))
            except ValueError as error:
                return Answered(False, why=f"it does not run on seed {seed}: {str(error).splitlines()[0][:200]}")
        why, ties = "", 0
        for gold in self.golds[question.number]:
            verdicts = []
            ordered = gold.ordered and (gold.limit is not None or asks_order(question.text))
            for seed in range(len(self.rows)):
                wanted = self.wanted(gold, seed)
                verdicts.append("unrun" if isinstance(wanted, str) else judge(wanted, rows[seed], ordered=ordered))
            ties = max(ties, verdicts.count("tied"))
            if "wrong" not in verdicts and "unrun" not in verdicts:
                return Answered(True, verdicts.count("tied"))
            if "wrong" in verdicts:
                seed = verdicts.index("wrong")
                why = why or f"seed {seed}: {_shown(rows[seed])}, gold {_shown_of(self.wanted(gold, seed))}"
        return Answered(False, ties, why or "no gold runs")

    def stored(self, catalog: Catalog) -> list[tuple[str, str, tuple[str, ...]]]:
        """(dataset, field, texts) of every text column with few enough of them, over all seeds: a plan is made once for all."""
        found = []
        for table in self.schema.tables:
            dataset = catalog.dataset(plain_name(table.name))
            for at, column in enumerate(table.columns):
                if column.kind != "text" or dataset is None:
                    continue
                texts = sorted({str(row[at]) for rows in self.rows for row in rows[table.name] if row[at] not in (None, "")})
                if texts and len(texts) <= MOST_VALUES:
                    found.append((dataset.name, plain_name(column.name), tuple(texts)))
        return found

    def close(self) -> None:
        for trial in {id(one): one for one in (*self.plans, *self.references)}.values():
            trial.close()


def _shown(rows: Sequence[Any]) -> str:
    return f"{len(rows)} rows {str(list(rows[:3]))[:160]}"


def _shown_of(wanted: Wanted | str) -> str:
    return wanted if isinstance(wanted, str) else _shown(wanted.rows)


# --- opening ----------------------------------------------------------------------------------------------------------


def open_court(schema: Schema, questions: list[Question], dialect: GoldDialect, seeds: int, today: date) -> Court:
    golds: dict[int, list[Gold]] = {}
    classes: dict[int, list[str]] = {}
    trees: list[exp.Expr] = []
    run_in = "sqlite" if dialect == "sqlite" else "duckdb"
    for question in questions:
        read = [(text, parse(text, dialect, schema, today)) for text in gold_texts(question.gold)]
        trees += [tree for _, tree in read if tree is not None]
        golds[question.number] = list(dict.fromkeys(read_gold(text, tree, dialect, run_in) for text, tree in read))
        classes[question.number] = classes_of(schema, read[0][1]) if read else ["unread"]
    skipped: list[str] = []
    rows: list[Rows] = []
    if schema.script:
        rows = _samples(schema, read_uses(schema, trees), _scripted(schema, today, skipped), seeds)
    generated = not any(table for one in rows for table in one.values())
    if generated:
        workshop = open_workshop(schema, read_uses(schema, trees))
        schema = workshop.schema
        rows = [make_rows(workshop, seed) for seed in range(seeds)]
    court = Court(schema, dialect, questions, rows, golds, classes, skipped, generated)
    for one in rows:
        plan = _loaded("duckdb", schema, one)
        court.plans.append(plan)
        court.references.append(plan if dialect == "postgres" else _loaded("sqlite", schema, one))
    return court


def _loaded(engine: Literal["sqlite", "duckdb"], schema: Schema, rows: Mapping[str, Sequence[Sequence[Any]]]) -> Trial:
    trial: Trial = app.open_duckdb_trial() if engine == "duckdb" else app.open_sqlite_trial()
    for table in schema.tables:
        columns = [(column.name, column.kind) for column in table.columns]
        trial.load(table.name, columns, rows[table.name])
        if engine == "duckdb" and plain_name(table.name) != table.name.lower():
            trial.load(plain_name(table.name), columns, rows[table.name])
    return trial


def _scripted(schema: Schema, today: date, skipped: list[str]) -> Rows:
    """The rows that stand beside the questions. A statement that cannot be run is told, not guessed at."""
    trial = app.open_duckdb_trial()
    try:
        for table in schema.tables:
            trial.load(table.name, [(column.name, column.kind) for column in table.columns], ())
        for part in schema.script:
            _execute(trial, part, today, skipped)
        found: Rows = {}
        for table in schema.tables:
            listed = ", ".join(f'"{column.name}"' for column in table.columns)
            found[table.name] = trial.run(f'SELECT {listed} FROM "{table.name}"')
            if len(table.primary_key) == 1:
                found[table.name] = _numbered(table.columns, table.primary_key[0], found[table.name])
        return found
    finally:
        trial.close()


def _samples(schema: Schema, uses: Uses, whole: Rows, seeds: int) -> list[Rows]:
    """The rows as they stand, then without some of them: few queries agree by chance, and what is right stays so. What belongs to a
    row that goes, by a declared key or by what gold joins, goes with it."""
    at = {(table.name.lower(), column.name.lower()): n for table in schema.tables for n, column in enumerate(table.columns)}
    names = {table.name.lower(): table.name for table in schema.tables}
    pairs = {((table.name.lower(), here.lower()), (link.table.lower(), there.lower())) for table in schema.tables
             for link in table.links for here, there in zip(link.columns, link.to_columns, strict=True)}  # fmt: skip
    edges = set()
    for pair in sorted(pairs | set(uses.links)):
        if all(end in at for end in pair) and pair[0][0] != pair[1][0]:
            values = [[row[at[end]] for row in whole[names[end[0]]]] for end in pair]
            unique = [len(set(part)) == len(part) for part in values]
            edges |= {(pair[1], pair[0])} if unique[1] else set()
            edges |= {(pair[0], pair[1])} if unique[0] else set()
    below = {child[0] for parent, child in edges if (child, parent) not in edges}
    found = [whole]
    for seed in range(1, seeds):
        rng = dice(f"sample of {schema.name} {seed}")
        kept = {name: [row for row in rows if name.lower() in below or rng.random() < KEPT] for name, rows in whole.items()}
        for _ in range(len(names)):
            for parent, child in edges:
                gone = {row[at[parent]] for row in whole[names[parent[0]]]} - {row[at[parent]] for row in kept[names[parent[0]]]}
                kept[names[child[0]]] = [row for row in kept[names[child[0]]] if row[at[child]] not in gone]
        found.append(kept)
    return found


def _execute(trial: Scripted, text: str, today: date, skipped: list[str]) -> None:
    """One statement; where it fails and is of several rows, row by row."""
    try:
        tree = sqlglot.parse_one(text, dialect="postgres")
    except sqlglot.errors.SqlglotError as error:
        skipped.append(_told(text, error))
        return
    dated(tree, today)
    try:
        trial.execute(tree.sql("duckdb"))
    except ValueError as error:
        rows = tree.expression.expressions if isinstance(tree.expression, exp.Values) else []
        if len(rows) < 2:
            skipped.append(_told(text, error))
            return
        for row in rows:
            one = tree.copy()
            one.expression.set("expressions", [row.copy()])
            try:
                trial.execute(one.sql("duckdb"))
            except ValueError as failed:
                skipped.append(_told(one.sql("postgres"), failed))


def _told(text: str, error: Exception) -> str:
    return f"{' '.join(text.split())[:80]}: {str(error).splitlines()[0][:120]}"


def _numbered(columns: Sequence[Any], key: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A key that its database would have counted up."""
    at = next(number for number, column in enumerate(columns) if column.name.lower() == key.lower())
    if any(row[at] is not None for row in rows):
        return rows
    return [(*row[:at], number, *row[at + 1 :]) for number, row in enumerate(rows, 1)]


def courts(
    schemas: Mapping[str, Schema], questions: Sequence[Question], dialect: GoldDialect, seeds: int, today: date
) -> list[tuple[str, Callable[[], Court]]]:
    """Every database of the questions, each ready to be opened, in the order in which they are first asked of."""
    by_database: dict[str, list[Question]] = {}
    for question in questions:
        by_database.setdefault(question.database, []).append(question)

    def opener(name: str, asked: list[Question]) -> Callable[[], Court]:
        return lambda: open_court(replace(schemas[name]), asked, dialect, seeds, today)

    return [(name, opener(name, asked)) for name, asked in by_database.items()]
