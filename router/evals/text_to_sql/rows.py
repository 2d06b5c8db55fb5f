"""Rows for schemas that come without: the same for the same seed, and made so that a wrong query shows.

What a column can hold is decided once a database and is the same under every seed: the gold queries' own literals, and made-up
words that no question holds. Which row holds which is the seed's. Foreign keys are skewed, and some parents have no children; the
values of one condition stand together in rows that also join, so that few gold queries are empty. Numbers and dates range widely,
so that ties are rare.

INVARIANT: every value that a gold query compares a column with stands in that column, under every seed
(tests/unit/test_text_to_sql.py::test_literals_are_planted).
INVARIANT: rows depend on schema, gold and seed alone (tests/unit/test_text_to_sql.py::test_rows_repeat).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from typing import Any

from router.evals.text_to_sql.golds import Theme, Uses
from router.evals.text_to_sql.schemas import Column, Kind, Schema, Table

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}(:\d{2})?).*")
_UNIQUE = re.compile(r"name|title|email|phone|address|description|details?|url|line|comment|content|text|abstract", re.IGNORECASE)
_SHARED = re.compile(r"(first|last|middle|family|given)_?name|^[fl]name$|surname", re.IGNORECASE)
_FRACTION = re.compile(
    r"price|amount|cost|salary|weight|height|rate|ratio|percent|score|average|avg|gpa|lat|lon|income|balance|fee|area|share|money",
    re.IGNORECASE,
)
_SYLLABLES = "bra zor qui vel dro fin gex hul jor kam lix mun nop pra ruk syv tol urz wem yad ost elb ank irp".split()
_MOST_ROWS = 500
_LARGEST = 1e15
"""Above this, numbers are not the same in both engines."""


@dataclass(slots=True)
class Recipe:
    """How one column is filled. `pool` are all values it may hold, where they are few; `low` and `high` bound numbers and days."""

    column: Column
    pool: list[Any] = field(default_factory=list)
    planted: list[Any] = field(default_factory=list)
    unique: bool = False
    low: float = 0
    high: float = 0
    link: tuple[str, str] | None = None
    nullable: bool = False


@dataclass(slots=True)
class Workshop:
    """One database, ready to be filled: the schema with the kinds its values have, and a recipe for every column. `keys` are what no
    two rows share, in lower case: what the schema declares, or else what is plainly meant."""

    schema: Schema
    keys: dict[str, list[tuple[str, ...]]]
    recipes: dict[tuple[str, str], Recipe]
    themes: list[Theme]
    order: list[str]


Rows = dict[str, list[tuple[Any, ...]]]


# --- kinds and recipes ------------------------------------------------------------------------------------------------


def open_workshop(schema: Schema, uses: Uses) -> Workshop:
    links = _links(schema, uses)
    uses = replace(uses, literals=_at_home(uses, links))
    schema = _settled(schema, uses, links)
    rng = dice(f"recipes of {schema.name}")
    keys = {table.name.lower(): _keys(table, links) for table in schema.tables}
    recipes = {}
    for table in schema.tables:
        for column in table.columns:
            key = (table.name.lower(), column.name.lower())
            recipes[key] = _recipe(table, column, uses, links.get(key), keys[key[0]], rng)
    return Workshop(schema, keys, recipes, uses.themes, _order(schema, links))


def _links(schema: Schema, uses: Uses) -> dict[tuple[str, str], tuple[str, str]]:
    """Which column takes its values from which: declared foreign keys, and what gold joins without one."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    keys = set()
    for table in schema.tables:
        keys |= {(table.name.lower(), key[0].lower()) for key in (table.primary_key, *table.unique_keys) if len(key) == 1}
        for link in table.links:
            for here, there in zip(link.columns, link.to_columns, strict=True):
                found.setdefault((table.name.lower(), here.lower()), (link.table.lower(), there.lower()))
    for one, other in uses.links:
        if (one[0] == other[0] and one[1] == other[1]) or _root(found, one) == _root(found, other):
            continue
        pairs = [(one, other), (other, one)] if other in keys or one not in keys else [(other, one), (one, other)]
        for child, parent in pairs:
            if child not in found and _root(found, parent) != child:
                found[child] = parent
                break
    return {child: parent for child, parent in found.items() if child != parent}


def _at_home(uses: Uses, links: dict[tuple[str, str], tuple[str, str]]) -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Literals of a foreign key are planted where it points to."""
    found: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for key, literals in uses.literals.items():
        found.setdefault(_root(links, key), []).extend(literals)
    return found


def _keys(table: Table, links: dict[tuple[str, str], tuple[str, str]]) -> list[tuple[str, ...]]:
    """Where nothing is declared: a first column that is an id, and what other tables are joined to."""
    name = table.name.lower()
    declared = [tuple(map(str.lower, key)) for key in (table.primary_key, *table.unique_keys) if key]
    if declared or not table.columns:
        return declared
    first = table.columns[0].name.lower()
    plain = [first] if re.search(r"(^|_)id$|^\w{1,2}id$", first) else []
    meant = [column for owner, column in links.values() if owner == name]
    return [(column,) for column in dict.fromkeys([*plain, *meant]) if (name, column) not in links]


def _root(links: dict[tuple[str, str], tuple[str, str]], at: tuple[str, str]) -> tuple[str, str]:
    seen = {at}
    while at in links and links[at] not in seen:
        at = links[at]
        seen.add(at)
    return at


def _settled(schema: Schema, uses: Uses, links: dict[tuple[str, str], tuple[str, str]]) -> Schema:
    """Kinds as the values have them: a year is a number, a price has a fraction, both ends of a join are of one kind."""
    kinds = {
        (table.name.lower(), column.name.lower()): _kind(column, uses.literals.get((table.name.lower(), column.name.lower()), []))
        for table in schema.tables
        for column in table.columns
    }
    for key in links:
        kinds[key] = kinds.get(_root(links, key), kinds.get(key, "text"))
    return replace(
        schema,
        tables=tuple(
            replace(
                table,
                columns=tuple(replace(column, kind=kinds[(table.name.lower(), column.name.lower())]) for column in table.columns),
            )
            for table in schema.tables
        ),
    )


def _kind(column: Column, literals: Sequence[tuple[str, Any]]) -> Kind:
    values = [value for op, value in literals if op != "like"]
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if column.kind == "datetime":
        if numbers or (texts and all(re.fullmatch(r"\d{4}", text) for text in texts)) or re.search("year", column.name, re.I):
            return "integer"
        if texts and not all(_DAY.fullmatch(text) or _MOMENT.fullmatch(text) for text in texts):
            return "text"
        if any(_MOMENT.fullmatch(text) for text in texts):
            return "datetime"
        clock = re.search(r"time|stamp|_at$", column.name, re.IGNORECASE) and "date" not in column.name.lower()
        return "datetime" if clock and not texts else "date"
    if column.kind == "boolean":
        return "text" if any(text.lower() not in ("true", "false", "0", "1") for text in texts) else "boolean"
    if column.kind == "integer":
        if any(not re.fullmatch(r"-?\d+(\.\d+)?", text) for text in texts):
            return "text"
        fraction = any(isinstance(value, float) for value in numbers) or bool(_FRACTION.search(column.name))
        return "float" if fraction and not re.search(r"(_|\b)id$|number|year", column.name, re.IGNORECASE) else "integer"
    return column.kind


def _recipe(
    table: Table, column: Column, uses: Uses, link: tuple[str, str] | None, keys: list[tuple[str, ...]], rng: random.Random
) -> Recipe:
    key = (table.name.lower(), column.name.lower())
    unique = (key[1],) in keys
    in_key = any(key[1] in one for one in keys)
    recipe = Recipe(column, unique=unique, link=link, nullable=key in uses.nullable and link is None and not in_key)
    literals = uses.literals.get(key, [])
    if column.kind == "text":
        if key in uses.averaged and not literals:
            literals = [("=", str(number)) for number in rng.sample(range(11, 98), 9)]  # numbers, though kept as text
        _text_recipe(recipe, table, literals, groups=(6 + uses.widest) * (key in uses.grouped), rng=rng)
    elif column.kind == "boolean":
        recipe.pool = [True, False]
    elif column.kind == "time":
        recipe.pool = [time(hour, minute) for hour in range(6, 22, 3) for minute in (0, 25)]
    elif column.kind in ("date", "datetime"):
        _day_recipe(recipe, literals, grouped=key in uses.grouped, rng=rng)
    else:
        _number_recipe(recipe, literals, grouped=key in uses.grouped, rng=rng)
    return recipe


def _text_recipe(recipe: Recipe, table: Table, literals: Sequence[tuple[str, Any]], *, groups: int, rng: random.Random) -> None:
    exact = {str(value).lower() for op, value in literals if op != "like"}
    recipe.planted = list(
        dict.fromkeys(
            _like(str(value), rng) if op == "like" else str(value)
            for op, value in literals
            if op != "like" or str(value).strip("%").lower() not in exact
        )
    )
    name = recipe.column.name
    made = [value for value in recipe.planted if value]
    digits = bool(made) and all(re.fullmatch(r"\d+", value) for value in made)
    if digits or re.search(r"^year$|_year$", name, re.IGNORECASE):
        recipe.pool = [*recipe.planted, *_digits(made or ["2010"], rng)]
    elif recipe.unique or _is_own_text(table, name, grouped=groups > 0):
        recipe.unique = True
    else:
        many = 24 if _SHARED.search(name) else groups or (6 if recipe.planted else 9)
        recipe.pool = [*recipe.planted, *(_word(rng) for _ in range(max(3, many - len(recipe.planted))))]
    if recipe.unique:
        recipe.pool = []


def _is_own_text(table: Table, name: str, *, grouped: bool) -> bool:
    """A text that each row has for itself: its name, its address. A name of somebody else in a row about something else is not."""
    if _SHARED.search(name) or not _UNIQUE.search(name):
        return False
    if not re.search(r"name|title", name, re.IGNORECASE):
        return not grouped
    plain, own = name.lower(), table.name.lower()
    return not table.links or plain in ("name", "title") or plain[:4] in (own[:4], own.rpartition("_")[2][:4])


def _digits(like: Sequence[str], rng: random.Random) -> list[str]:
    """Other numbers in text, of the same length, so that they order as text as they do as numbers."""
    model = like[0]
    if len(model) == 4 and model[0] in "12":
        first = int(model)
        return [str(first + step) for step in (-7, -4, -2, -1, 1, 2, 5) if str(first + step) not in like]
    return [f"{rng.randrange(10 ** (len(model) - 1), 10 ** len(model))}" for _ in range(8)]


def _like(pattern: str, rng: random.Random) -> str:
    """A value that a pattern fits."""
    middle = pattern.strip("%").replace("%", " ").replace("_", "a")
    before = f"{_word(rng)} " if pattern.startswith("%") else ""
    after = f" {_word(rng).lower()}" if pattern.endswith("%") else ""
    return f"{before}{middle}{after}"


def _number_recipe(recipe: Recipe, literals: Sequence[tuple[str, Any]], *, grouped: bool, rng: random.Random) -> None:
    values = [number for _, value in literals if (number := _number(value)) is not None]
    whole = recipe.column.kind == "integer"
    recipe.planted = list(dict.fromkeys(int(value) if whole else float(value) for value in values))
    recipe.low, recipe.high = _bounds(recipe.column.name, values)
    few = grouped or any(op == "=" for op, _ in literals)
    if recipe.unique or recipe.link:
        return
    if few and whole:
        span = max(1, int(recipe.high - recipe.low))
        others = {int(recipe.low) + round(span * step / 8) for step in range(9)}
        near = {value + step for value in recipe.planted for step in (-1, 1) if value + step >= 0}
        some = rng.sample(sorted(others), min(6, len(others))) if grouped else others
        recipe.pool = sorted({*recipe.planted, *some, *near})


def _bounds(name: str, values: Sequence[float]) -> tuple[float, float]:
    lower = name.lower()
    if values:
        least, most = min(values), max(values)
        if least >= 1500 and most <= 2100 and all(value == int(value) for value in values):
            return least - 25, most + 25
        spread = max(10.0, abs(most) * 0.6)
        return (max(0.0, least - spread) if least >= 0 else least - spread), most + spread
    if "year" in lower or lower in ("founded", "opened"):
        return 1880, 2023
    if re.search(r"\bage\b|_age|age$", lower):
        return 10, 95
    if re.search(r"percent|rate|ratio|score|gpa", lower):
        return 0, 100
    return (1, 900) if re.search(r"num|count|total|capacity|rank|points", lower) else (1, 9_000)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if isinstance(value, bool) or not abs(number) < _LARGEST else number


def _day_recipe(recipe: Recipe, literals: Sequence[tuple[str, Any]], *, grouped: bool, rng: random.Random) -> None:
    days = [day for _, value in literals if (day := _moment(value)) is not None]
    recipe.planted = list(dict.fromkeys(day if recipe.column.kind == "datetime" else day.date() for day in days))
    first = min(days, default=datetime.fromisoformat("2012-01-01"))
    last = max(days, default=datetime.fromisoformat("2023-01-01"))
    recipe.low = max(1, first.toordinal() - 500)
    recipe.high = min(date.max.toordinal(), last.toordinal() + 500)
    if grouped and not recipe.unique:
        some = [_day(recipe, rng.uniform(recipe.low, recipe.high)) for _ in range(7)]
        recipe.pool = [*recipe.planted, *some]


def _moment(value: Any) -> datetime | None:
    found = re.match(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?", str(value))
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00:00'}") if found else None
    except ValueError:
        return None


def _day(recipe: Recipe, at: float) -> date | datetime:
    day = date.fromordinal(int(at))
    if recipe.column.kind == "date":
        return day
    seconds = int((at - int(at)) * 86_400)
    return datetime.combine(day, time()) + timedelta(seconds=seconds)


def dice(seed: str) -> random.Random:
    """The same fall for the same seed, on every machine."""
    return random.Random(seed)  # noqa: S311


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((2, 3, 3)))).capitalize()


def _order(schema: Schema, links: dict[tuple[str, str], tuple[str, str]]) -> list[str]:
    """Parents before children; in a circle, by name."""
    parents: dict[str, set[str]] = {table.name.lower(): set() for table in schema.tables}
    for (child, _), (parent, _) in links.items():
        if child != parent and child in parents and parent in parents:
            parents[child].add(parent)
    found: list[str] = []
    while len(found) < len(parents):
        ready = [name for name in parents if name not in found and parents[name] <= set(found)]
        found.extend(ready or sorted(set(parents) - set(found))[:1])
    return found


# --- rows -------------------------------------------------------------------------------------------------------------


def make_rows(workshop: Workshop, seed: int) -> Rows:
    """Every table's rows in the order of its columns."""
    filler = _Filler(workshop, dice(f"{workshop.schema.name} {seed}"))
    for name in workshop.order:
        filler.fill(name)
    return filler.finish()


@dataclass(slots=True)
class _Filler:
    """`marked` are the rows that a gold query's conditions were planted in: its children join them."""

    workshop: Workshop
    rng: random.Random
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    marked: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    weights: dict[tuple[str, str], tuple[list[Any], list[float]]] = field(default_factory=dict)
    parents: dict[tuple[str, str], tuple[list[Any], list[float]]] = field(default_factory=dict)
    serial: int = 0

    def fill(self, name: str) -> None:
        table = self.workshop.schema.table(name)
        assert table is not None
        rows: list[dict[str, Any]] = []
        self.rows[name] = rows
        taken: list[set[Any]] = [set() for _ in self.workshop.keys[name]]
        for theme in self.workshop.themes:
            if name not in theme.tables:
                continue
            child = any(recipe.link for (owner, _), recipe in self.workshop.recipes.items() if owner == name)
            for copy in range(theme.copies if child else 1):
                self._add(table, theme if copy < theme.copies else None, rows, taken)
                if len(rows) >= _MOST_ROWS:
                    break
        for column in table.columns:  # what no theme planted
            recipe = self.workshop.recipes[name, column.name.lower()]
            held = {row[column.name.lower()] for row in rows}
            for value in recipe.planted:
                if value not in held and not recipe.link:
                    self._add(table, None, rows, taken, {column.name.lower(): value})
        linked = sum(1 for (owner, _), recipe in self.workshop.recipes.items() if owner == name and recipe.link)
        wanted = len(rows) + (60 if linked else 18) + self.rng.randrange(9)
        for _ in range(3 * wanted):
            if len(rows) >= wanted:
                break
            self._add(table, None, rows, taken)

    def finish(self) -> Rows:
        self._close_circles()
        found: Rows = {}
        for table in self.workshop.schema.tables:
            rows = self.rows[table.name.lower()]
            self.rng.shuffle(rows)
            found[table.name] = [tuple(row[column.name.lower()] for column in table.columns) for row in rows]
        return found

    def _close_circles(self) -> None:
        for (name, column), recipe in self.workshop.recipes.items():
            if recipe.link and any(row[column] is _LATER for row in self.rows[name]):
                values = [row[recipe.link[1]] for row in self.rows.get(recipe.link[0], []) if row[recipe.link[1]] is not _LATER]
                for row in self.rows[name]:
                    if row[column] is _LATER:
                        row[column] = self.rng.choice(values) if values else None

    def _add(
        self,
        table: Table,
        theme: Theme | None,
        rows: list[dict[str, Any]],
        taken: list[set[Any]],
        fixed: dict[str, Any] | None = None,
    ) -> None:
        name = table.name.lower()
        wanted = dict(fixed or {})
        if theme is not None:
            for (owner, column), (op, value) in theme.wanted.items():
                if owner == name:
                    recipe = self.workshop.recipes[owner, column]
                    made = self._fitting(recipe, op, value)
                    if made is not None and (recipe.link is None or self._is_there(recipe.link, made)):
                        wanted[column] = made
        same = self._namesake(name, wanted, rows)
        if same is not None:
            if theme is not None:
                self.marked.setdefault((theme.query, name), []).append(same)
            return
        row = {column.name.lower(): self._value(name, column.name.lower(), wanted, theme) for column in table.columns}
        keys = [tuple(row[part] for part in key) for key in self.workshop.keys[name]]
        for at, key in enumerate(keys):
            if key in taken[at]:
                if theme is not None:  # the row with this key serves this query, too
                    parts = self.workshop.keys[name][at]
                    same = next(old for old in rows if tuple(old[part] for part in parts) == key)
                    self.marked.setdefault((theme.query, name), []).append(same)
                return
        for at, key in enumerate(keys):
            taken[at].add(key)
        rows.append(row)
        if theme is not None:
            self.marked.setdefault((theme.query, name), []).append(row)

    def _is_there(self, link: tuple[str, str], value: Any) -> bool:
        return any(row[link[1]] == value for row in self.rows.get(link[0], []))

    def _namesake(self, name: str, wanted: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """A row of the name that is wanted, where nothing but the name is: names of their own are seldom shared."""
        if len(wanted) != 1:
            return None
        ((column, value),) = wanted.items()
        if not self.workshop.recipes[name, column].unique:
            return None
        return next((row for row in rows if row[column] == value), None)

    def _value(self, name: str, column: str, wanted: dict[str, Any], theme: Theme | None) -> Any:
        if column in wanted:
            return wanted[column]
        recipe = self.workshop.recipes[name, column]
        if recipe.link is not None:
            return self._parent(name, column, recipe.link, theme)
        if recipe.nullable and self.rng.random() < 0.2:
            return None
        if recipe.unique and recipe.column.kind != "time":
            return self._fresh(recipe)
        if recipe.pool:
            values, weights = self._weighted((name, column), recipe.pool)
            return self.rng.choices(values, weights)[0]
        at = self.rng.uniform(recipe.low, recipe.high)
        if recipe.column.kind in ("date", "datetime"):
            return _day(recipe, at)
        return round(at) if recipe.column.kind == "integer" else round(at, 2)

    def _parent(self, name: str, column: str, link: tuple[str, str], theme: Theme | None) -> Any:
        parent, target = link
        if theme is not None and (marked := self.marked.get((theme.query, parent))):
            return marked[0 if self.rng.random() < 0.7 else self.rng.randrange(len(marked))][target]
        if parent == name or parent not in self.rows:
            return _LATER
        if (name, column) not in self.parents:
            values = list(dict.fromkeys(row[target] for row in self.rows.get(parent, []) if row[target] is not _LATER))
            self.rng.shuffle(values)
            kept = values[: max(1, round(len(values) * 0.8))]
            self.parents[name, column] = (kept, _skew(len(kept)))
        values, weights = self.parents[name, column]
        return self.rng.choices(values, weights)[0] if values else None

    def _weighted(self, key: tuple[str, str], pool: list[Any]) -> tuple[list[Any], list[float]]:
        if key not in self.weights:
            values = list(pool)
            self.rng.shuffle(values)
            self.weights[key] = (values, _skew(len(values)))
        return self.weights[key]

    def _fresh(self, recipe: Recipe) -> Any:
        """A value that no other row has. What it is depends on its number alone, so that seeds share what can be said."""
        self.serial += 1
        kind = recipe.column.kind
        if kind == "text":
            words = dice(f"{recipe.column.name} {self.serial % 400}")
            named = _UNIQUE.search(recipe.column.name)
            return f"{_word(words)} {_word(words)}" if named else f"{_word(words)[:3].upper()}{self.serial}"
        if kind in ("date", "datetime"):
            return _day(recipe, recipe.low + self.serial)
        number = 100 + self.serial
        while number in recipe.planted:
            self.serial += 1
            number = 100 + self.serial
        return number if kind == "integer" else float(number)

    def _fitting(self, recipe: Recipe, op: str, value: Any) -> Any:
        """A value for which the condition holds; None where nothing need be planted."""
        kind = recipe.column.kind
        if kind == "text":
            if op == "like":
                found = [one for one in recipe.planted if str(value).strip("%").lower() in one.lower()]
                return found[0] if found else None
            return str(value) if op == "=" else None
        if kind == "boolean":
            return str(value).lower() in ("true", "1") if op == "=" else None
        if kind in ("date", "datetime"):
            return self._fitting_day(recipe, op, value)
        if kind == "time":
            return None
        low, high = (map(_number, value)) if op == "between" else (_number(value), _number(value))
        if low is None or high is None or op in ("<>", "like"):
            return None
        at = self.rng.uniform(low, high) if op == "between" else low
        step = max(1.0, abs(low) * self.rng.uniform(0.05, 0.5))
        at += step if op in (">", ">=") else -step if op in ("<", "<=") else 0
        if recipe.unique or recipe.link:
            return int(at) if op == "=" and kind == "integer" else None
        return round(at) if kind == "integer" else round(at, 2)

    def _fitting_day(self, recipe: Recipe, op: str, value: Any) -> Any:
        first, last = value if op == "between" else (value, value)
        low, high = _moment(first), _moment(last)
        if low is None or high is None or op in ("<>", "like"):
            return None
        if op == "between":
            at = low + (high - low) * self.rng.random()
        else:
            shift = timedelta(days=self.rng.randrange(1, 200))
            try:
                at = low + shift if op in (">", ">=") else low - shift if op in ("<", "<=") else low
            except OverflowError:
                return None  # beyond the last day there is
        return at if recipe.column.kind == "datetime" else at.date()


class _Later:
    """A value that only a table filled later can give."""


_LATER = _Later()


def _skew(count: int) -> list[float]:
    return [1 / (rank + 2) for rank in range(count)]
