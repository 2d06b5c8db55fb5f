"""What stands in a folder of questions: the questions with their gold queries, and the schemas they are asked of.

Schemas come from `tables.json|jsonl` in Spider's layout, or from `db/*.sql`: one script a database, DDL and, if it has any, rows.
Spider's layout names one column of a key of several, and calls many things "time"; what can be known better is put right here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from router.errors import UsageError

Kind = Literal["text", "integer", "float", "decimal", "date", "datetime", "time", "boolean"]


@dataclass(frozen=True, slots=True)
class Column:
    """`readable` is the data set's own plain name of it, where it gives one."""

    name: str
    kind: Kind
    readable: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    to_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    links: tuple[Link, ...] = ()
    readable: str = ""

    def column(self, name: str) -> Column | None:
        wanted = name.lower()
        return next((column for column in self.columns if column.name.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Schema:
    """`script` are the statements that make its rows, empty where rows have to be made up."""

    name: str
    tables: tuple[Table, ...]
    script: tuple[str, ...] = ()

    def table(self, name: str) -> Table | None:
        wanted = name.lower()
        return next((table for table in self.tables if table.name.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Question:
    """`number` counts the questions of the folder from 1, in the order of files and lines."""

    number: int
    database: str
    text: str
    gold: str


def load_questions(folder: Path) -> list[Question]:
    found: list[Question] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line, row in _rows(path):
            if "question" not in row or "query" not in row:
                break  # another kind of file, such as tables.jsonl
            database = row.get("db_id") or row.get("db_name")
            if not isinstance(database, str) or not isinstance(row["question"], str) or not isinstance(row["query"], str):
                message = f"line {line} of `{path.name}` is no question"
                raise UsageError("questions_malformed", message, "it needs `question`, `query`, and `db_id` or `db_name`")
            found.append(Question(len(found) + 1, database, row["question"], row["query"]))
    if not found:
        raise UsageError("questions_missing", f"`{folder}` holds no question", "*.jsonl with `question`, `query` and `db_id`")
    return found


def load_schemas(folder: Path) -> dict[str, Schema]:
    for name in ("tables.json", "tables.jsonl"):
        path = folder / name
        if path.is_file():
            entries = [row for _, row in _rows(path)] if name.endswith("l") else _json(path)
            try:
                return {entry["db_id"]: _spider(entry) for entry in entries}
            except (KeyError, IndexError, TypeError, ValueError) as error:
                message = f"`{name}` is not in Spider's layout ({type(error).__name__})"
                raise UsageError("schemas_malformed", message, "see deploy/text-to-sql.md") from None
    found = {path.stem: _scripted(path) for path in sorted((folder / "db").glob("*.sql"))}
    if not found:
        raise UsageError("schemas_missing", f"`{folder}` holds no schema", "add tables.json, tables.jsonl or db/*.sql")
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(number)
                yield number, row
    except (OSError, ValueError):
        raise UsageError("questions_malformed", f"`{path.name}` is not JSON lines in UTF-8", "one object a line") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        raise UsageError("schemas_malformed", f"`{path.name}` is not JSON in UTF-8", "see deploy/text-to-sql.md") from None


# --- Spider's layout --------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, Kind] = {"number": "integer", "time": "datetime", "boolean": "boolean"}


def _spider(entry: Mapping[str, Any]) -> Schema:
    names, columns = entry["table_names_original"], entry["column_names_original"]
    readable = entry.get("column_names", columns)
    readable_tables = entry.get("table_names", names)
    tables = []
    for at, name in enumerate(names):
        if name.lower() == "sqlite_sequence":  # SQLite's own
            continue
        own = [number for number, (table, _) in enumerate(columns) if table == at]
        tables.append(
            Table(
                name,
                tuple(Column(columns[i][1], _KINDS.get(entry["column_types"][i], "text"), str(readable[i][1])) for i in own),
                _primary_key(entry["primary_keys"], own, columns),
                links=tuple(
                    dict.fromkeys(
                        Link((columns[a][1],), names[columns[b][0]], (columns[b][1],))
                        for a, b in entry["foreign_keys"]
                        if a in own
                    )
                ),
                readable=str(readable_tables[at]),
            )
        )
    whole = any(isinstance(key, list) for key in entry["primary_keys"])
    return with_unique_targets(Schema(entry["db_id"], tuple(tables if whole else [_whole_key(one, names) for one in tables])))


def _primary_key(keys: Sequence[Any], own: Sequence[int], columns: Sequence[Any]) -> tuple[str, ...]:
    for key in keys:
        parts = key if isinstance(key, list) else [key]
        if parts and set(parts) <= set(own):
            return tuple(columns[part][1] for part in parts)
    return ()


def _whole_key(table: Table, names: Sequence[str]) -> Table:
    """A key of several columns is given as its first one: such a column is that of another table. What follows it is the rest."""
    if len(table.primary_key) != 1:
        return table
    (key,) = table.primary_key
    linked = [link.columns[0].lower() for link in table.links]
    plain = re.sub(r"_?(id|code)$", "", key.lower())
    foreign = key.lower() in linked or any(plain == _singular(name) for name in names if name.lower() != table.name.lower())
    own = plain in ("", _singular(table.name))
    if not foreign or own:
        return table
    columns = [column.name for column in table.columns]
    others = [name for name in columns if name.lower() in linked and name.lower() != key.lower()]
    after = columns[columns.index(key) + 1 :][:1]
    return replace(table, primary_key=(key, *(others or after)))


def _singular(name: str) -> str:
    plain = name.lower()
    return plain[:-1] if plain.endswith("s") else plain


def with_unique_targets(schema: Schema) -> Schema:
    """What a foreign key points to is unique."""
    tables = list(schema.tables)
    for link in [link for table in schema.tables for link in table.links]:
        for at, table in enumerate(tables):
            keys = [tuple(map(str.lower, key)) for key in (table.primary_key, *table.unique_keys)]
            wanted = tuple(map(str.lower, link.to_columns))
            if table.name.lower() == link.table.lower() and wanted not in keys and not set(wanted) < set(keys[0]):
                tables[at] = replace(table, unique_keys=(*table.unique_keys, link.to_columns))
    return replace(schema, tables=tuple(tables))


# --- scripts ----------------------------------------------------------------------------------------------------------


def _scripted(path: Path) -> Schema:
    """Tables of a script in PostgreSQL's SQL. Names of schemas are left out, as two tables of one name are not told apart."""
    import sqlglot
    from sqlglot import exp

    text = path.read_text(encoding="utf-8-sig")
    tables: dict[str, Table] = {}
    rows: list[str] = []
    for part in split_statements(text):
        try:
            (tree,) = sqlglot.parse(part, dialect="postgres")
        except (sqlglot.errors.SqlglotError, ValueError):
            if re.match(r"(?is)\s*(?:--[^\n]*\n\s*)*insert\b", part):
                rows.append(part)  # a row that nobody can read is counted where rows are made
            continue
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            table = _created(tree)
            tables[table.name.lower()] = table
        elif isinstance(tree, exp.Insert):
            rows.append(part)
        elif isinstance(tree, exp.Alter):
            _altered(tree, tables)
    if not tables:
        raise UsageError("schemas_malformed", f"`{path.name}` creates no table", "CREATE TABLE in PostgreSQL's SQL")
    return with_unique_targets(Schema(path.stem, tuple(tables.values()), tuple(rows)))


def split_statements(text: str) -> list[str]:
    """At semicolons outside quotes and comments."""
    parts, start = [], 0
    for found in re.finditer(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|;", text, re.DOTALL):
        if found.group() == ";":
            parts.append(text[start : found.start()])
            start = found.end()
    parts.append(text[start:])
    return [part for part in parts if re.sub(r"--[^\n]*", "", part).strip()]


def _created(tree: Any) -> Table:
    from sqlglot import exp

    columns: list[Column] = []
    primary: tuple[str, ...] = ()
    unique: list[tuple[str, ...]] = []
    links: list[Link] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            columns.append(Column(part.name, kind_of(part.args["kind"])))
            for one in part.constraints:
                kind = one.args.get("kind")
                if isinstance(kind, exp.PrimaryKeyColumnConstraint):
                    primary = (part.name,)
                elif isinstance(kind, exp.UniqueColumnConstraint):
                    unique.append((part.name,))
                elif isinstance(kind, exp.Reference):
                    links.append(_link((part.name,), kind))
            continue
        for inner in part.expressions if isinstance(part, exp.Constraint) else [part]:
            if isinstance(inner, exp.PrimaryKey):
                primary = tuple(column.name for column in inner.expressions)
            elif isinstance(inner, exp.ForeignKey) and inner.args.get("reference"):
                links.append(_link(tuple(column.name for column in inner.expressions), inner.args["reference"]))
            elif isinstance(inner, exp.UniqueColumnConstraint) and inner.this is not None:
                unique.append(tuple(column.name for column in inner.this.expressions))
    return Table(tree.this.this.name, tuple(columns), primary, tuple(unique), tuple(links))


def _link(columns: tuple[str, ...], reference: Any) -> Link:
    target = reference.this
    named = tuple(column.name for column in target.expressions) if target.expressions else columns
    return Link(columns, (target.this if target.expressions else target).name, named)


def _altered(tree: Any, tables: dict[str, Table]) -> None:
    from sqlglot import exp

    table = tables.get(tree.this.name.lower())
    for found in tree.find_all(exp.ForeignKey):
        if table is not None and found.args.get("reference"):
            link = _link(tuple(column.name for column in found.expressions), found.args["reference"])
            tables[table.name.lower()] = table = replace(table, links=(*table.links, link))


def kind_of(kind: Any) -> Kind:
    """Of a type as sqlglot names it."""
    name = kind.this.name.upper() if hasattr(kind.this, "name") else str(kind.this).upper()
    if name in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATETIME", "TIMESTAMPLTZ"):
        return "datetime"
    if name in ("DATE", "TIME", "BOOLEAN"):
        return name.lower()  # type: ignore[return-value]
    if name in ("DECIMAL", "NUMERIC", "MONEY"):
        return "decimal"
    if name in ("DOUBLE", "FLOAT", "REAL"):
        return "float"
    return "integer" if "INT" in name or "SERIAL" in name else "text"
