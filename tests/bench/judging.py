"""`python -m tests.bench.judging DIR [--gold sqlite|postgres] [--seeds N]`: the judge of `eval text-to-sql` judged.

Gold itself, written for DuckDB, is the plan: it must be right. Then gold with one thing changed is the plan: it must be wrong. What
is told of each mutation is the share found out; a mutant that means the same (a filter that every row passes) counts against it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlglot import exp

from router.evals.text_to_sql.court import courts
from router.evals.text_to_sql.golds import gold_texts, parse
from router.evals.text_to_sql.judge import asks_order
from router.evals.text_to_sql.schemas import load_questions, load_schemas


def mutants(tree: exp.Expr, schema) -> Iterator[tuple[str, exp.Expr]]:
    """Each with one thing changed that changes the meaning."""
    yield from _dropped_filters(tree)
    yield from _aggregates(tree)
    yield from _comparisons(tree)
    yield from _orders(tree)
    yield from _columns(tree, schema)
    if tree.find(exp.Having):
        other = tree.copy()
        other.find(exp.Having).pop()
        yield "having dropped", other


def _dropped_filters(tree):
    for at in range(len(list(tree.find_all(exp.Where)))):
        other = tree.copy()
        found = list(other.find_all(exp.Where))[at]
        if isinstance(found.this, exp.And):
            found.set("this", found.this.this)
        else:
            found.pop()
        yield "filter dropped", other


def _aggregates(tree):
    swap = {exp.Avg: exp.Sum, exp.Sum: exp.Avg, exp.Min: exp.Max, exp.Max: exp.Min}
    for at, node in enumerate(tree.find_all(*swap)):
        other = tree.copy()
        found = list(other.find_all(*swap))[at]
        found.replace(swap[type(node)](this=found.this.copy()))
        yield "aggregate", other
    for at, node in enumerate(tree.find_all(exp.Count)):
        if isinstance(node.this, exp.Distinct):
            other = tree.copy()
            found = list(other.find_all(exp.Count))[at]
            found.set("this", found.this.expressions[0].copy())
            yield "distinct dropped", other


def _comparisons(tree):
    swap = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ}
    for at, node in enumerate(tree.find_all(*swap)):
        if not isinstance(node.expression, exp.Literal) or node.find_ancestor(exp.Join):
            continue
        other = tree.copy()
        found = list(other.find_all(*swap))[at]
        found.replace(swap[type(node)](this=found.this.copy(), expression=found.expression.copy()))
        yield "comparison", other


def _orders(tree):
    order = tree.args.get("order")
    if order is None:
        return
    other = tree.copy()
    first = other.args["order"].expressions[0]
    first.set("desc", not first.args.get("desc"))
    yield "order turned", other
    if tree.args.get("limit") is not None:
        other = tree.copy()
        other.args["limit"].set("expression", exp.Literal.number(int(other.args["limit"].expression.this) + 1))
        yield "limit", other


def _columns(tree, schema):
    """Another column of the same table is shown or joined on."""
    for at, node in enumerate(tree.find_all(exp.Column)):
        tables = [table for table in schema.tables if table.column(node.name)]
        if len(tables) != 1 or node.find_ancestor(exp.Having, exp.Order):
            continue
        kind = tables[0].column(node.name).kind
        others = [one.name for one in tables[0].columns if one.kind == kind and one.name.lower() != node.name.lower()]
        if not others or not isinstance(node.parent, exp.Select | exp.EQ | exp.Avg | exp.Sum | exp.Max | exp.Min):
            continue
        other = tree.copy()
        list(other.find_all(exp.Column))[at].set("this", exp.to_identifier(others[at % len(others)], quoted=True))
        yield (
            "join column" if isinstance(node.parent, exp.EQ) and isinstance(node.parent.expression, exp.Column) else "column",
            other,
        )


def judge_the_judge(folder: Path, dialect: str, seeds: int, today, most: int | None = None):
    """(judged, right, unrun, what was not right) of gold as plan, and by mutation (found out, all, what was not)."""
    gold = Counter()
    missed: list[str] = []
    by: dict[str, list[int]] = {}
    undetected: list[str] = []
    questions = load_questions(folder)[:most]
    for _, opened in courts(load_schemas(folder), questions, dialect, seeds, today):
        court = opened()
        for question in court.questions:
            if court.fitness(question):
                gold["left out"] += 1
                continue
            tree = parse(gold_texts(question.gold)[0], dialect, court.schema, today)
            if tree is None:
                continue
            text = tree.sql("duckdb")
            verdict = court.judge(question, text)
            if verdict.why.startswith("it does not run"):
                gold["unrun"] += 1
                continue
            gold["judged"] += 1
            gold["right"] += verdict.right
            if not verdict.right:
                missed.append(f"{question.database}: {text}: {verdict.why}")
                continue
            for name, mutant in mutants(tree, court.schema):
                if name == "order turned" and tree.args.get("limit") is None and not asks_order(question.text):
                    continue  # gold orders, and nobody asked for it
                changed = mutant.sql("duckdb")
                found = court.judge(question, changed)
                if found.why.startswith("it does not run"):
                    continue
                by.setdefault(name, [0, 0])
                by[name][0] += not found.right
                by[name][1] += 1
                if found.right:
                    undetected.append(f"{name}: {question.database}: {changed}")
        court.close()
    return gold, missed, by, undetected


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.judging", description="The judge of eval text-to-sql, judged.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gold", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="what was not right, and the mutants not found out")
    options = parser.parse_args()
    gold, missed, by, undetected = judge_the_judge(options.folder, options.gold, options.seeds, datetime.now(UTC).date())
    found, tried = (sum(part[at] for part in by.values()) for at in (0, 1))
    print(
        json.dumps(
            {
                "gold": dict(gold),
                "gold_right_percent": round(100 * gold["right"] / max(1, gold["judged"]), 2),
                "mutants": tried,
                "found_out_percent": round(100 * found / max(1, tried), 2),
                "by_mutation": {name: f"{part[0]} of {part[1]}" for name, part in sorted(by.items())},
            },
            indent=1,
        )
    )
    if options.show:
        print("\n".join([*missed, *undetected]))


if __name__ == "__main__":
    main()
