"""`eval text-to-sql`: questions in words against gold queries, judged by what they return.

A question takes the way it takes for a caller with one ordinary permit: the catalogue narrowed to the grants, the planner, the
compiler and the gate in a worker. What the gate lets through is then run on the same rows as gold. A plan is made once and judged on
all seeds: the texts that its index knows are those of every seed.

INVARIANT: a plan that the gate refuses is no answer (tests/unit/test_text_to_sql.py::test_refused_plans_are_no_answers).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router import app
from router.domain import SqlLimits, TableGrant
from router.errors import Refused, UsageError
from router.evals.text_to_sql.catalogs import build_catalog, grants_over, with_synonyms
from router.evals.text_to_sql.court import Court, GoldDialect, courts
from router.evals.text_to_sql.schemas import Question, load_questions, load_schemas
from router.sql.check import narrow
from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.planner import CURATED, DERIVED, Abstention, StoredValues, build_index, plan_question
from router.sql.reading import read_form

if TYPE_CHECKING:
    from router.catalog import Catalog
    from router.ports import SqlEngine

CURVE = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
DEADLINE_S = 60.0

Plan = Callable[[str], "Form | str"]
"""A question's form, or the code of the abstention."""


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path
    gold: GoldDialect
    synonyms: Path | None
    seeds: int
    confidence: float | None
    today: date

    @property
    def threshold(self) -> float:
        if self.confidence is not None:
            return self.confidence
        return DERIVED if self.synonyms is None else CURATED


def parse_options(folder: Path, gold: str, synonyms: Path | None, seeds: int, confidence: float | None, today: date) -> Options:
    if gold not in ("sqlite", "postgres"):
        raise UsageError("usage", f"there is no gold dialect `{gold}`", "sqlite or postgres")
    for path in (folder, synonyms):
        if path is not None and not path.is_dir():
            raise UsageError("folder_missing", f"there is no folder `{path}`", "name a folder")
    return Options(folder, "sqlite" if gold == "sqlite" else "postgres", synonyms, seeds, confidence, today)


@dataclass(slots=True)
class Asked:
    """One judged question. `confidence` is None where there was no answer, and `code` says why."""

    question: Question
    classes: list[str]
    code: str = ""
    confidence: float | None = None
    right: bool = False
    ties: int = 0
    reading: str = ""
    sql: str = ""
    why: str = ""

    def answered(self, threshold: float) -> bool:
        return self.confidence is not None and self.confidence >= threshold - 1e-9


@dataclass(slots=True)
class TextToSqlReport:
    questions: int
    threshold: float
    asked: list[Asked] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    generated: int = 0

    def as_json(self) -> dict[str, Any]:
        answered = [one for one in self.asked if one.answered(self.threshold)]
        right = sum(one.right for one in answered)
        below = sum(one.confidence is not None for one in self.asked) - len(answered)
        codes = Counter(one.code for one in self.asked if one.confidence is None)
        if below:
            codes["below_confidence"] = below
        return {
            "questions": self.questions,
            "judged": len(self.asked),
            "answered": len(answered),
            "right": right,
            "abstained": len(self.asked) - len(answered),
            "precision": _share(right, len(answered)),
            "coverage": _share(len(answered), len(self.asked)),
            "confidence": self.threshold,
            "curve": [self._at(threshold) for threshold in CURVE],
            "by_database": self._by(lambda one: [one.question.database]),
            "by_type": self._by(lambda one: one.classes),
            "abstentions": dict(codes.most_common()),
            "ties_skipped": sum(one.ties for one in answered),
            "left_out": {"empty": self.left_out["empty"], "tied": self.left_out["tied"]},
            "gold_failed": self.left_out["gold_failed"],
            "statements_skipped": self.skipped,
            "synonyms_unused": self.unused,
            "rows_generated_for": self.generated,
            "faults": [one.why for one in self.asked if one.code == "fault"],
            "wrong": [_wrong(one) for one in answered if not one.right],
        }

    def _at(self, threshold: float) -> dict[str, float | int]:
        return {"confidence": threshold} | _figures(self.asked, threshold)

    def _by(self, names: Callable[[Asked], Iterable[str]]) -> dict[str, dict[str, float | int]]:
        parts: dict[str, list[Asked]] = {}
        for one in self.asked:
            for name in names(one):
                parts.setdefault(name, []).append(one)
        return {name: _figures(part, self.threshold) for name, part in sorted(parts.items())}


def _figures(asked: Sequence[Asked], threshold: float) -> dict[str, float | int]:
    answered = [one for one in asked if one.answered(threshold)]
    right = sum(one.right for one in answered)
    return {
        "judged": len(asked),
        "answered": len(answered),
        "right": right,
        "coverage": _share(len(answered), len(asked)),
        "precision": _share(right, len(answered)),
    }


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _wrong(one: Asked) -> dict[str, Any]:
    return {
        "number": one.question.number,
        "db": one.question.database,
        "question": one.question.text,
        "confidence": one.confidence,
        "reading": one.reading,
        "sql": one.sql,
        "gold": one.question.gold,
        "why": one.why,
    }


# --- the run ----------------------------------------------------------------------------------------------------------


def run_text_to_sql(options: Options, progress: Callable[[int, int], None] | None = None) -> TextToSqlReport:
    """Raises `UsageError` where folder, schemas or synonyms are not what they must be, before any question is asked."""
    questions, schemas = load_questions(options.folder), load_schemas(options.folder)
    for question in questions:
        if question.database not in schemas:
            message = f"question {question.number} is asked of `{question.database}`, and there is no such schema"
            raise UsageError("schemas_missing", message, "add it to tables.json, or as db/<id>.sql")
    if options.synonyms is not None:
        names = sorted({question.database for question in questions})
        if not any((options.synonyms / f"{name}.yaml").is_file() for name in names):
            message = f"`{options.synonyms}` has no file for any database of the questions"
            raise UsageError("synonyms_missing", message, f"name it after the database, as in {names[0]}.yaml")
        for name in names:
            with_synonyms(build_catalog(schemas[name]), options.synonyms, name)
    report = TextToSqlReport(len(questions), options.threshold)
    with tempfile.TemporaryDirectory(prefix="pointsman-eval-") as place:
        empty = Path(place) / "none.duckdb"
        app.make_tables("", empty)
        with app.open_tables(empty) as engine:
            done = 0
            for name, opened in courts(schemas, questions, options.gold, options.seeds, options.today):
                court = opened()
                try:
                    for _ in _ask_all(court, name, options, engine, report):
                        done += 1
                        if progress is not None:
                            progress(done, len(questions))
                finally:
                    court.close()
    return report


def _ask_all(court: Court, name: str, options: Options, engine: SqlEngine, report: TextToSqlReport) -> Iterable[None]:
    catalog = build_catalog(court.schema)
    if options.synonyms is not None:
        catalog, unused = with_synonyms(catalog, options.synonyms, name)
        report.unused += unused
    grants = grants_over(catalog, court.schema)
    catalog = narrow(catalog, grants)
    plan = planner(court, catalog, options.today)
    report.generated += court.generated
    if court.skipped:
        report.skipped[name] = court.skipped
    for question in court.questions:
        unfit = court.fitness(question)
        if unfit:
            report.left_out[unfit] += 1
        else:
            report.asked.append(ask(court, question, plan, catalog, grants, engine, options.today))
        yield


def planner(court: Court, catalog: Catalog, today: date) -> Plan:
    """The planner over this catalogue and the texts that its rows hold."""
    index = build_index(catalog, [StoredValues(*stored) for stored in court.stored(catalog)])

    def plan(text: str) -> Form | str:
        found = plan_question(text, index, today)
        return found.code if isinstance(found, Abstention) else found

    return plan


def ask(
    court: Court,
    question: Question,
    plan: Plan,
    catalog: Catalog,
    grants: tuple[TableGrant, ...],
    engine: SqlEngine,
    today: date,
) -> Asked:
    asked = Asked(question, court.classes[question.number])
    try:
        form = plan(question.text)
    except Exception as fault:  # noqa: BLE001 (it must never raise: what does is told and ends no run)
        asked.code, asked.why = "fault", f"{question.text}: {type(fault).__name__}: {fault}"
        return asked
    if isinstance(form, str):
        asked.code = form
        return asked
    try:
        compiled = lower_form(form, catalog)
        verdict = engine.check(
            compiled.sql, grants, tenant="eval", today=today, limits=SqlLimits(), deadline_s=DEADLINE_S, compiled=True
        )
    except Refused as refused:
        asked.code = refused.code
        return asked
    if verdict.code:
        asked.code = verdict.code
        return asked
    answered = court.judge(question, compiled.sql)
    asked.confidence, asked.right, asked.ties, asked.why = form.confidence, answered.right, answered.ties, answered.why
    asked.reading, asked.sql = read_form(form), compiled.sql
    return asked
