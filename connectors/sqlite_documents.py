"""Documents in SQLite: one file a tenant and generation; BM25 and exact vector distance under one filter, in one statement.

Labels stand in a table of their own, one row for each distinct combination, so that a filter is evaluated once per
label and not per chunk, and the statistics of BM25 (count, document frequency, mean length) are those of the rows the
filter admits: a chunk that the caller may not see moves no score (tests/conformance/test_doc_store.py::
test_hidden_chunks_change_nothing). BM25 after Robertson et al. 1994 with k1 1.2, b 0.75 and Lucene's idf.

INVARIANT: every read carries a filter, lowered to SQL with bound values; nothing is filtered after top-k
(tests/conformance/test_doc_store.py::test_filter_comes_before_top_k).
INVARIANT: a partition's file says whose it is, and that is compared in every snapshot (…::test_foreign_partition_is_refused).
INVARIANT: labels are read under the schema of the caller's policy, also where the file was written under another one: a label
that does not fit it admits nobody (…::test_schema_changes_between_runs).
INVARIANT: where a document has plain chunks and contextual ones, a search sees one kind, in its statistics too (…::
test_one_index_of_two). Which kind a label's chunks are stands in the label's row, so that is decided once a label as well.
INVARIANT: each write is one transaction; readers see all of it or none (tests/faults/test_store.py).
INVARIANT: who reads a partition reads the file that stands in its place now, and two states of it never share a version
(tests/conformance/suite.py::test_a_partition_made_anew_is_noticed, ::test_a_restored_partition_is_noticed).
INVARIANT: mending removes what is in doubt and shows nothing under labels that their digest does not name
(tests/unit/test_mending.py::test_mend_never_widens).

This file is above 600 lines because schema, lowering, reading and writing share one layout and change together.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import apsw

from router.domain import (
    SOURCE_FIELD,
    Candidate,
    Chunk,
    Embedded,
    Entity,
    Found,
    Generation,
    IndexedDocument,
    Labels,
    Leg,
    ModelCard,
    Search,
    Span,
    Stored,
    label_digest,
)
from router.errors import SourceError
from router.filters import (
    Always,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Never,
    Not,
    Or,
    Overlaps,
    Within,
    check,
    check_text,
    fits,
    like,
)
from router.lexicon import STOP_WORDS, expand
from router.ports import DocumentInfo
from router.storable import check_document, check_labels, indexed_text, partition_name

SCHEMA = 3
OLDEST_SQLITE = (3, 51, 3)  # before it, two connections in WAL mode could corrupt a file
BUSY_S = 20.0
_GENERATION = re.compile(r"g-\d{6,}")
_COPY = ".copy"
_SETTINGS = ("mmap_size = 0", "synchronous = FULL", "secure_delete = ON", "cache_size = -65536", "trusted_schema = OFF")
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_TRIES = 3
_MOST_TERMS = 256
_MOST_LOWERED = 512
_MOST_SHARED = 500  # SQLite bounds the columns of a SELECT at 2,000

_ONLY, _PLAIN, _CONTEXTUAL = 0, 1, 2  # which index a label's chunks are of: the only one of their document, or one of two
_DOCUMENT = """
CREATE TABLE document(did INTEGER PRIMARY KEY, id TEXT NOT NULL, source TEXT NOT NULL, lid INTEGER NOT NULL) STRICT;
CREATE INDEX document_id ON document(id);
CREATE INDEX document_source ON document(source, id);"""
_SUPERSEDES = "json_extract(p.meta, '$.supersedes')"
_SUPERSEDES_INDEX = """CREATE INDEX IF NOT EXISTS chunk_supersedes ON chunk(json_extract(meta, '$.supersedes'))
WHERE json_extract(meta, '$.supersedes') IS NOT NULL"""
_UPGRADE = f"""
ALTER TABLE label ADD COLUMN idx INTEGER NOT NULL DEFAULT 0;
ALTER TABLE document RENAME TO document_1;
DROP INDEX document_source;
{_DOCUMENT}
INSERT INTO document SELECT did, id, source, lid FROM document_1;
DROP TABLE document_1;
UPDATE meta SET value = '2' WHERE key = 'schema';"""
_ENTITIES = """
CREATE TABLE entity(name TEXT NOT NULL, rid INTEGER NOT NULL, subject INTEGER NOT NULL, PRIMARY KEY(name, rid)) STRICT, WITHOUT ROWID;
CREATE INDEX entity_chunk ON entity(rid);"""
_UPGRADE_TO_3 = f"""
ALTER TABLE chunk ADD COLUMN entities TEXT NOT NULL DEFAULT '[]';
{_ENTITIES}
UPDATE meta SET value = '{SCHEMA}' WHERE key = 'schema';"""
_TABLES = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE label(lid INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, json TEXT NOT NULL, n INTEGER NOT NULL DEFAULT 0,
                   s INTEGER NOT NULL DEFAULT 0, idx INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX label_unused ON label(lid) WHERE n = 0;
CREATE TABLE label_set(field TEXT NOT NULL, value TEXT NOT NULL, lid INTEGER NOT NULL, PRIMARY KEY(lid, field, value)) STRICT, WITHOUT ROWID;
{_DOCUMENT}
CREATE TABLE chunk(rid INTEGER PRIMARY KEY, did INTEGER NOT NULL, ordinal INTEGER NOT NULL, title TEXT NOT NULL, heading_path TEXT NOT NULL,
                   body TEXT NOT NULL, kind TEXT NOT NULL, uri TEXT NOT NULL, span TEXT NOT NULL, context TEXT NOT NULL, version TEXT,
                   language TEXT, meta TEXT NOT NULL, entities TEXT NOT NULL DEFAULT '[]') STRICT;
CREATE UNIQUE INDEX chunk_place ON chunk(did, ordinal);
{_ENTITIES}
CREATE TABLE cn(rid INTEGER PRIMARY KEY, lid INTEGER NOT NULL, len INTEGER NOT NULL, id TEXT NOT NULL UNIQUE) STRICT;
CREATE INDEX cn_label ON cn(lid, rid, id);
CREATE TABLE emb(rid INTEGER PRIMARY KEY, v BLOB NOT NULL) STRICT;
CREATE TABLE tok(rid INTEGER PRIMARY KEY, ids BLOB NOT NULL, vectors BLOB NOT NULL, scale REAL NOT NULL) STRICT;
CREATE TABLE ft(rid INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE VIRTUAL TABLE fts USING fts5(body, content='ft', content_rowid='rid', tokenize='{_TOKENIZER}');
INSERT INTO fts(fts, rank) VALUES('secure-delete', 1);
CREATE TRIGGER ft_in AFTER INSERT ON ft BEGIN INSERT INTO fts(rowid, body) VALUES(new.rid, new.body); END;
CREATE TRIGGER ft_out AFTER DELETE ON ft BEGIN INSERT INTO fts(fts, rowid, body) VALUES('delete', old.rid, old.body); END;
CREATE TRIGGER cn_in AFTER INSERT ON cn BEGIN UPDATE label SET n = n + 1, s = s + new.len WHERE lid = new.lid; END;
CREATE TRIGGER cn_out AFTER DELETE ON cn BEGIN UPDATE label SET n = n - 1, s = s - old.len WHERE lid = old.lid; END;
CREATE TRIGGER cn_move AFTER UPDATE OF lid ON cn BEGIN
  UPDATE label SET n = n - 1, s = s - old.len WHERE lid = old.lid;
  UPDATE label SET n = n + 1, s = s + new.len WHERE lid = new.lid; END;
"""

# The tested statement of the design: count per (term, chunk) first, then apply the filter; ties by chunk id, never by
# rowid, which changes on a rebuild. `{where}` is the lowered filter over one label row `c`.
_OK = "ok AS MATERIALIZED (SELECT c.lid lid, c.n n, c.s s FROM label c WHERE {where})"
_LEXICAL = """
st AS MATERIALIZED (SELECT coalesce(sum(n), 0) n, max(1.0, 1.0 * sum(s) / max(1, sum(n))) a FROM ok),
raw AS (SELECT q.value t, v.doc rid, count(*) f FROM json_each(:terms) q CROSS JOIN temp.fv v ON v.term = q.value GROUP BY 1, 2),
tf AS MATERIALIZED (SELECT raw.t t, raw.rid rid, raw.f f, k.len l FROM raw CROSS JOIN cn k ON k.rid = raw.rid
  WHERE k.lid IN (SELECT lid FROM ok)),
df AS MATERIALIZED (SELECT t, count(*) n FROM tf GROUP BY t),
scored AS MATERIALIZED (SELECT tf.rid rid, sum(ln(1 + (st.n - df.n + 0.5) / (df.n + 0.5)) * tf.f * 2.2
  / (tf.f + 1.2 * (0.25 + 0.75 * tf.l / st.a))) s FROM tf JOIN df ON df.t = tf.t CROSS JOIN st GROUP BY tf.rid),
lex AS MATERIALIZED (SELECT k.rid rid FROM scored x CROSS JOIN cn k ON k.rid = x.rid ORDER BY x.s DESC, k.id LIMIT :limit),
top AS MATERIALIZED (SELECT coalesce(sum(2.2 * ln(1 + (st.n - coalesce(df.n, 0) + 0.5) / (coalesce(df.n, 0) + 0.5))), 0.0) p
  FROM json_each(:terms) q LEFT JOIN df ON df.t = q.value CROSS JOIN st)"""
_ONE_INDEX = f"""(c.idx = {_ONLY} OR c.idx =
  CASE WHEN c."s_{SOURCE_FIELD}" IN (SELECT value FROM json_each(:plain)) THEN {_PLAIN} ELSE {_CONTEXTUAL} END)"""
_NAMING = """
ent AS MATERIALIZED (SELECT m.rid rid FROM json_each(:entities) q CROSS JOIN entity m ON m.name = q.value
  GROUP BY m.rid HAVING count(*) = json_array_length(:entities))"""
_SEEN, _SUMMED = "WHERE k.lid IN (SELECT lid FROM ok)", " FROM ok),"
_NAMED = " AND k.rid IN (SELECT rid FROM ent)"
_COUNTED = f" FROM (SELECT count(*) n, coalesce(sum(k.len), 0) s FROM cn k {_SEEN}{_NAMED})),"
"""Where chunks must name something they are told apart one by one, and so are their statistics."""
_NO_LEXICAL = """
st AS MATERIALIZED (SELECT coalesce(sum(n), 0) n FROM ok),
scored(rid, s) AS MATERIALIZED (SELECT 0, 0.0 WHERE 0),
lex(rid) AS MATERIALIZED (SELECT 0 WHERE 0),
top(p) AS MATERIALIZED (SELECT 0.0)"""
_DENSE = """
den AS MATERIALIZED (SELECT k.rid rid, coalesce(vec_distance_cosine(e.v, :vector), 1.0) d FROM cn k CROSS JOIN emb e ON e.rid = k.rid
  WHERE k.lid IN (SELECT lid FROM ok) ORDER BY d, k.id LIMIT :limit)"""
_NO_DENSE = """
den(rid, d) AS MATERIALIZED (SELECT 0, 0.0 WHERE 0)"""
_BOTH = """
SELECT k.id, d.id, d.source, coalesce(x.s, 0.0), {cosine}, k.rid IN (SELECT rid FROM lex), k.rid IN (SELECT rid FROM den), st.n, top.p
FROM (SELECT rid FROM lex UNION SELECT rid FROM den) u CROSS JOIN cn k ON k.rid = u.rid CROSS JOIN chunk h ON h.rid = u.rid
CROSS JOIN document d ON d.did = h.did CROSS JOIN emb e ON e.rid = u.rid LEFT JOIN scored x ON x.rid = u.rid CROSS JOIN st CROSS JOIN top
ORDER BY k.id"""
_SUBJECTS = """(SELECT * FROM (SELECT w.*, row_number() OVER (PARTITION BY w.at ORDER BY w.document) place FROM (
  SELECT q.key at, q.value name, n.rid rid, n.lid lid, n.id id, o.id document,
         row_number() OVER (PARTITION BY q.key, o.id ORDER BY p.ordinal, n.id) first
  FROM json_each(:names) q CROSS JOIN entity m ON m.name = q.value AND m.subject CROSS JOIN cn n ON n.rid = m.rid
  CROSS JOIN chunk p ON p.rid = m.rid CROSS JOIN document o ON o.did = p.did WHERE n.lid IN (SELECT lid FROM ok)) w
WHERE w.first = 1) WHERE place <= :most) k"""
_STORED = """
SELECT k.id, d.id, d.source, h.ordinal, h.title, h.heading_path, h.body, h.kind, h.uri, h.span, h.context, h.version, h.language, h.meta,
       {entities}, l.json, t.ids, t.vectors, t.scale
FROM {origin} CROSS JOIN chunk h ON h.rid = k.rid CROSS JOIN document d ON d.did = h.did CROSS JOIN label l ON l.lid = k.lid
CROSS JOIN tok t ON t.rid = k.rid WHERE k.lid IN (SELECT lid FROM ok) ORDER BY {order}"""


# --- lowering ---------------------------------------------------------------------------------------------------------


def lower_filter(f: Filter, fields: Mapping[str, Field], *, from_json: bool = False) -> tuple[str, dict[str, Any]]:
    """SQL over one row `c` of `label`, with bound values `:f0`, `:f1`…

    `from_json` reads attributes from the label's JSON instead of its columns: slower, and right under any schema.
    A set comparison that policies repeat (everybody's own groups, in every policy and source) is made once a statement.
    """
    values: dict[str, Any] = {}
    sets: dict[tuple[str, str, str], str] = {}
    where = _lower(f, fields, values, sets, from_json=from_json)
    if not sets:
        return where, values
    members = ", ".join(f"{_having(op, f':{at}f', f':{at}v')} {at}" for (_, op, _), at in sets.items())
    for (name, _, strings), at in sets.items():
        values |= {f"{at}f": name, f"{at}v": strings}
    return f"c.lid IN (WITH c AS MATERIALIZED (SELECT c.*, {members} FROM label c) SELECT c.lid FROM c WHERE {where})", values


def _having(op: str, field: str, strings: str) -> str:
    """Some member of the label's set `field` is (not) among `strings`."""
    return f"EXISTS (SELECT 1 FROM label_set m WHERE m.lid = c.lid AND m.field = {field} AND m.value {op} (SELECT value FROM json_each({strings})))"


def _lower(
    f: Filter, fields: Mapping[str, Field], values: dict[str, Any], sets: dict[tuple[str, str, str], str], *, from_json: bool
) -> str:
    def bind(value: Any) -> str:
        name = f"f{len(values)}"
        values[name] = value
        return f":{name}"

    def column(name: str) -> str:
        if from_json and name != SOURCE_FIELD:
            return f"pointsman_attribute(c.json, {bind(name)}, {bind(fields[name].kind)})"
        return f'c."{_column(name, fields[name])}"'

    def having(name: str, op: str, strings: frozenset[str]) -> str:
        key = (name, op, json.dumps(sorted(strings)))
        if key not in sets and len(sets) >= _MOST_SHARED:
            return _having(op, bind(name), bind(key[2]))
        return "c." + sets.setdefault(key, f"m{len(sets)}")

    def below(items: tuple[Filter, ...]) -> list[str]:
        return [_lower(item, fields, values, sets, from_json=from_json) for item in items]

    match f:
        case Always():
            return "1"
        case Never():
            return "0"
        case And(items):
            return _balanced("AND", below(items)) if items else "1"
        case Or(items):
            return _balanced("OR", below(items)) if items else "0"
        case Not(item):
            return f"(({below((item,))[0]}) IS NOT TRUE)"
        case Has(name):
            return "1" if fields[name].kind == "set" else f"{column(name)} IS NOT NULL"
        case Eq(name, value):
            return f"{column(name)} = {bind(value)}"
        case In(name, scalars):
            return f"{column(name)} IN (SELECT value FROM json_each({bind(json.dumps(sorted(scalars, key=repr)))}))"
        case Lt(name, bound):
            return f"{column(name)} < {bind(bound)}"
        case Le(name, bound):
            return f"{column(name)} <= {bind(bound)}"
        case Gt(name, bound):
            return f"{column(name)} > {bind(bound)}"
        case Ge(name, bound):
            return f"{column(name)} >= {bind(bound)}"
        case Overlaps(name, strings):
            return having(name, "IN", strings)
        case Within(name, strings):
            return f"NOT {having(name, 'NOT IN', strings)}"
        case Like(name, parts):
            return f"pointsman_like({column(name)}, {bind(json.dumps(list(parts)))})"


def _balanced(joint: str, terms: list[str]) -> str:
    """SQLite bounds the depth of an expression at 1,000, and a flat chain counts as deep: halve it."""
    if len(terms) <= 8:
        return "(" + f" {joint} ".join(terms) + ")"
    middle = len(terms) // 2
    return f"({_balanced(joint, terms[:middle])} {joint} {_balanced(joint, terms[middle:])})"


_PLAIN_NAME = re.compile(r"[a-z0-9_]+")


def _column(name: str, spec: Field) -> str:
    """The type is part of the column's name, so that no value is read as another type's; SQLite folds the case of names,
    attributes do not, so all but the plainest are written in hex."""
    if name == SOURCE_FIELD or _PLAIN_NAME.fullmatch(name):
        return f"{spec.kind[0]}_{name}"
    return f"{spec.kind[0]}x_{name.encode('utf-8', 'surrogatepass').hex()}"


@functools.lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(json.loads(pattern))


def _like(value: Any, pattern: Any) -> bool | None:
    return None if value is None else like(value, _parts(pattern))


@functools.lru_cache(maxsize=4096)
def _labels_of(text: str) -> Labels:
    """Many chunks carry the same labels: they share one value, which nobody can change."""
    return MappingProxyType(dict(_labels_from(text)))


def _attribute(text: Any, name: Any, kind: Any) -> str | int | None:
    value = _labels_of(text).get(name)
    return value if type(value) in _SCALARS[kind] else None  # type: ignore[return-value]


_SCALARS: Mapping[str, tuple[type, ...]] = {"string": (str,), "long": (int,), "bool": (bool,), "set": ()}


# --- labels and rows --------------------------------------------------------------------------------------------------


def _labels_json(labels: Labels) -> str:
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in labels.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _labels_from(text: str) -> Labels:
    held = json.loads(text)
    if not isinstance(held, dict):
        raise ValueError("no labels")
    return {name: frozenset(value) if isinstance(value, list) else value for name, value in held.items()}


@functools.lru_cache(maxsize=16)
def _entity(fields: str) -> EntityType:
    return EntityType("Document", {name: Field(kind, required) for name, (kind, required) in json.loads(fields).items()})


def _fields_json(entity: EntityType) -> str:
    return json.dumps({name: [spec.kind, spec.required] for name, spec in entity.fields.items()}, sort_keys=True)


def _fits(text: Any, fields: Any) -> bool:
    return fits(_labels_of(text), _entity(fields))


def _columns(labels: Labels, entity: EntityType) -> dict[str, Any]:
    """What stands in the label's row beside its JSON: each scalar of the schema, absent where it is not of its type."""
    row: dict[str, Any] = {"fits": fits(labels, entity)}
    for name, spec in entity.fields.items():
        if spec.kind != "set":
            value = labels.get(name)
            row[_column(name, spec)] = value if type(value) in _SCALARS[spec.kind] else None
    return row


def _span_json(span: Span) -> str:
    return json.dumps([span.page, span.lines, span.sheet], separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def _span(text: str) -> Span:
    page, lines, sheet = json.loads(text)
    return Span(page, tuple(lines) if lines else None, sheet)


def _entities_json(entities: Sequence[Entity]) -> str:
    return json.dumps([[entity.kind, entity.name, int(entity.subject)] for entity in entities], separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def _entities(text: str) -> tuple[Entity, ...]:
    return tuple(Entity(kind, name, bool(subject)) for kind, name, subject in json.loads(text))


def _stored(row: tuple[Any, ...]) -> Stored:
    (
        chunk_id,
        document_id,
        source,
        ordinal,
        title,
        heading,
        body,
        kind,
        uri,
        span,
        context,
        version,
        language,
        meta,
        entities,
        labels,
        *tokens,
    ) = row
    chunk = Chunk(
        chunk_id=chunk_id,
        document_id=document_id,
        source=source,
        ordinal=ordinal,
        title=title,
        heading_path=() if heading == "[]" else tuple(json.loads(heading)),
        text=body,
        kind=kind,
        uri=uri,
        span=_span(span),
        context=context,
        version=version,
        language=language,
        meta={} if meta == "{}" else json.loads(meta),
        entities=() if entities == "[]" else _entities(entities),
    )
    return Stored(chunk, _labels_of(labels), *tokens)


# --- connections ------------------------------------------------------------------------------------------------------


def _unreadable() -> SourceError:
    return SourceError("store_unreadable", "the document store cannot be opened or written", "check the folder under `[stores]`")


def _full() -> SourceError:
    return SourceError("store_full", "the disk of the document store is full", "free space and run `pointsman index` again")


def _corrupt() -> SourceError:
    return SourceError("store_corrupt", "the document store is damaged", "run `pointsman index --full`")


def _nothing_indexed() -> SourceError:
    """Says nothing of documents: every run of the indexer makes the partition, also over an empty source."""
    return SourceError("store_missing", "nothing has been indexed here yet", "run `pointsman index`")


def _no_generation(name: str) -> SourceError:
    return SourceError("generation_missing", f"there is no generation `{name}`", "run `pointsman index --full`")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """SQLite's errors to ours; no path, no statement and no text of a document gets out."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError):
        raise SourceError("store_busy", "the document store is locked by another process", "try again", retryable=True) from None
    except apsw.InterruptError:
        raise SourceError(
            "deadline", "the document store did not answer in time", "raise the deadline or narrow the question", retryable=True
        ) from None
    except apsw.FullError:
        raise _full() from None
    except (apsw.CorruptError, apsw.NotADBError, ValueError):  # bytes that are no text, JSON that is none
        raise _corrupt() from None
    except apsw.IOError as error:  # a limit on file sizes and some file systems report a full disk as a failed write
        raise (_full() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE else _unreadable()) from None
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, OSError):
        raise _unreadable() from None
    except apsw.Error as error:
        raise SourceError(
            "store_failed", f"the document store failed ({type(error).__name__})", "run `pointsman index verify`"
        ) from None


def _connect(path: Path, busy_s: float, *, write: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if write else 0)
    con = apsw.Connection(str(path), flags=flags)
    con.set_busy_timeout(int(busy_s * 1000))
    for setting in _SETTINGS:  # one by one: of several in one text, apsw runs none behind the first that returns a row
        con.execute(f"PRAGMA {setting}").fetchall()
    con.enable_load_extension(True)
    con.load_extension(_vector_extension())
    con.enable_load_extension(False)
    for name, function, count in (("like", _like, 2), ("attribute", _attribute, 3), ("fits", _fits, 2)):
        con.create_scalar_function(f"pointsman_{name}", function, count, deterministic=True)  # type: ignore[arg-type]
    return con


@functools.cache
def _vector_extension() -> str:
    """The extension's file without importing its package, which would drag numpy in."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise SourceError("store_failed", "the package sqlite-vec is missing", "install pointsman again")
    return str(Path(spec.origin).with_name("vec0"))


def _file_of(path: Path) -> tuple[int, int]:
    """Which file stands there, whatever its name is. While a connection holds it no other file can be given its number."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _open_reader(path: Path, busy_s: float) -> _Reader:
    """On the file that stands there before and after: else its journal could be that of another one."""
    for _ in range(_TRIES):
        file = _file_of(path)
        reader = _Reader(path, busy_s, file)
        if _file_of(path) == file:
            return reader
        reader.con.close()
    raise apsw.BusyError


class _Reader:
    """One connection of one thread to one generation of one tenant."""

    def __init__(self, path: Path, busy_s: float, file: tuple[int, int]) -> None:
        self.name, self.file = path.stem, file
        self.con = _connect(path, busy_s, write=False)
        self.meta: dict[str, str] = {}
        self._busy_s = busy_s
        self._expires = math.inf
        try:
            self.con.execute("CREATE VIRTUAL TABLE temp.fv USING fts5vocab(main, fts, instance)")
        except BaseException:
            self.con.close()
            raise
        self.con.set_progress_handler(self._late, 10_000)  # about a tenth of a millisecond
        self._plain = self.con.fts5_tokenizer("unicode61", ["remove_diacritics", "2"])
        self._stems = self.con.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])

    def _late(self) -> bool:
        return time.monotonic() > self._expires

    @contextlib.contextmanager
    def snapshot(self, tenant: str, deadline_s: float) -> Iterator[None]:
        """One read transaction. Whose file it is stands in the same snapshot as everything read."""
        self._expires = time.monotonic() + deadline_s
        self.con.set_busy_timeout(int(max(0.0, min(self._busy_s, deadline_s)) * 1000))
        self.con.execute("BEGIN")
        try:
            self.meta = dict(self.con.execute("SELECT key, value FROM meta"))
            _check_partition(self.meta, tenant)
            yield
        finally:
            self._expires = math.inf
            if self.con.in_transaction:
                self.con.execute("ROLLBACK")

    @property
    def version(self) -> str:
        """`mark` is of one write: a file that was put back or made anew comes to the same number of writes by others."""
        return ".".join([self.name, self.meta["writes"], *([self.meta["mark"]] if "mark" in self.meta else [])])

    @property
    def has_two(self) -> bool:
        """Whether the file tells a document's two indexes apart; files of the first schema have one."""
        return self.meta.get("schema") != "1"

    @property
    def has_entities(self) -> bool:
        """Whether the file knows what its chunks name; in an older one nobody wrote that down."""
        return self.meta.get("schema") not in ("1", "2")

    def terms(self, text: str) -> list[str]:
        """The question's distinct stems; stop words only when there is nothing else."""
        cleaned = expand(text.replace("\0", " ")).encode("utf-8", "replace")
        words = _tokens(self._plain, cleaned)
        spoken = [word for word in words if word not in STOP_WORDS] or words
        return list(dict.fromkeys(_tokens(self._stems, " ".join(spoken).encode())))[:_MOST_TERMS]


def _tokens(tokenizer: Any, text: bytes) -> list[str]:
    found: list[str] = tokenizer(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
    return found


def _check_partition(meta: Mapping[str, str], tenant: str) -> None:
    if int(meta.get("schema", 0)) > SCHEMA:
        raise SourceError("store_newer", "the document store was written by a newer pointsman", "update pointsman")
    if meta.get("tenant") != json.dumps(tenant):
        raise SourceError(
            "tenant_mismatch", "the document store in this place belongs to another tenant", "restore the right file"
        )


# --- the store --------------------------------------------------------------------------------------------------------


class SqliteDocuments:
    """Implements `router.ports.DocStore`. `document_type` gives the attributes that labels may have (a policy reload may add some)."""

    def __init__(
        self,
        folder: Path,
        document_type: Callable[[], EntityType],
        *,
        busy_s: float = BUSY_S,
        pins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) < OLDEST_SQLITE:
            raise SourceError(
                "store_failed", "this SQLite has a bug that can corrupt a store", "install apsw with SQLite 3.51.3 or later"
            )
        self._lowered: dict[tuple[int, bool], tuple[Filter, EntityType, tuple[str, dict[str, Any]]]] = {}
        self._folder = folder
        self._pins = pins
        self._document_type = document_type
        self._busy_s = busy_s
        self._shape: tuple[EntityType, EntityType, str] | None = None
        self._local = threading.local()
        self._open: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.pop().close()
            self._local = threading.local()

    # reading

    def foresee(self, search: Search) -> None:
        """Nothing: a search is one snapshot of one file."""

    def search(self, search: Search) -> Found:
        self._check(search.filter)
        if isinstance(search.filter, Never) or (search.text is None and search.vector is None):
            return Found((), 0)
        with self._reading(search.tenant, search.deadline_s) as reader:
            if reader is None:
                raise _nothing_indexed()
            if search.vector is not None and search.model_id != reader.meta.get("model_id", search.model_id):
                raise SourceError(
                    "model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`"
                )
            where, values = self._where(search.filter, reader)
            if reader.has_two:
                where, values = f"{where} AND {_ONE_INDEX}", {**values, "plain": json.dumps(sorted(search.plain))}
            terms = [] if search.text is None else reader.terms(search.text)
            lexical, dense = bool(terms), search.vector is not None
            named = bool(search.entities)
            if named:
                if not reader.has_entities:
                    return Found((), 0)
                values = {**values, "entities": json.dumps(sorted(search.entities))}
            bound = {**values, "limit": max(0, search.limit)}
            if lexical:
                bound["terms"] = json.dumps(terms)
            if dense:
                bound["vector"] = search.vector
            rows = reader.con.execute(_search_sql(where, lexical=lexical, dense=dense, named=named), bound).fetchall()
            admitted = _count(rows[0][7]) if rows else _admitted(reader, where, values, named=named)
            possible = float(str(rows[0][8])) if rows else 0.0
        return Found(tuple(_candidate(row) for row in rows), admitted, possible)

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        origin = "json_each(:ids) j CROSS JOIN cn k ON k.id = j.value"
        return self._read_stored(tenant, f, origin, "j.key", {"ids": json.dumps(list(chunk_ids))}, deadline_s)

    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        sql = (
            "SELECT e.v FROM json_each(:ids) j CROSS JOIN cn k ON k.id = j.value CROSS JOIN emb e ON e.rid = k.rid "
            "WHERE k.lid IN (SELECT lid FROM ok) ORDER BY j.key"
        )
        return [vector for (vector,) in self._admitted_rows(tenant, f, sql, {"ids": json.dumps(list(chunk_ids))}, deadline_s)]

    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        sql = "SELECT DISTINCT l.json FROM label l WHERE l.lid IN (SELECT lid FROM ok) AND l.n > 0 ORDER BY l.json"
        return [_labels_of(text) for (text,) in self._admitted_rows(tenant, f, sql, {}, deadline_s)]

    def _admitted_rows(
        self, tenant: str, f: Filter, sql: str, values: dict[str, Any], deadline_s: float
    ) -> list[tuple[Any, ...]]:
        """Rows of a statement over `ok`, the labels that `f` admits."""
        self._check(f)
        if isinstance(f, Never):
            return []
        with self._reading(tenant, deadline_s) as reader:
            if reader is None:
                return []
            where, bound = self._where(f, reader)
            return reader.con.execute(f"WITH {_OK.format(where=where)} {sql}", {**bound, **values}).fetchall()

    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        origin = (
            "(SELECT n.rid, n.lid, n.id FROM json_each(:document) j CROSS JOIN document o ON o.id = j.value CROSS JOIN chunk p "
            "ON p.did = o.did CROSS JOIN cn n ON n.rid = p.rid WHERE p.ordinal BETWEEN :first AND :last) k"
        )
        values = {"document": json.dumps([document_id]), "first": first, "last": last}
        return self._read_stored(tenant, f, origin, "h.ordinal", values, deadline_s, twins=False)

    def superseding(self, tenant: str, document_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        origin = (
            f"(SELECT n.rid, n.lid, n.id FROM json_each(:ids) j CROSS JOIN chunk p ON {_SUPERSEDES} = j.value "
            f"CROSS JOIN cn n ON n.rid = p.rid WHERE p.ordinal = 0 AND {_SUPERSEDES} IS NOT NULL) k"
        )
        return self._read_stored(tenant, f, origin, "k.id", {"ids": json.dumps(list(document_ids))}, deadline_s, twins=False)

    def subjects(self, tenant: str, names: Sequence[str], f: Filter, *, most: int, deadline_s: float) -> list[tuple[str, Stored]]:
        self._check(f)
        if isinstance(f, Never) or not names:
            return []
        with self._reading(tenant, deadline_s) as reader:
            if reader is None or not reader.has_entities:
                return []
            where, bound = self._where(f, reader)
            ok = _OK.format(where=f"{where} AND c.idx <> {_CONTEXTUAL}")
            rows = _STORED.format(origin=_SUBJECTS, order="k.at, k.document", entities="k.name, h.entities")
            values = {**bound, "names": json.dumps(list(dict.fromkeys(names))), "most": most}
            found = reader.con.execute(f"WITH {ok} {rows}", values).fetchall()
        return [(str(row[14]), _stored((*row[:14], *row[15:]))) for row in found]

    def _read_stored(
        self,
        tenant: str,
        f: Filter,
        origin: str,
        order: str,
        values: dict[str, Any],
        deadline_s: float,
        *,
        twins: bool = True,
    ) -> list[Stored]:
        self._check(f)
        if isinstance(f, Never):
            return []
        with self._reading(tenant, deadline_s) as reader:
            if reader is None:
                return []
            where, bound = self._where(f, reader)
            if reader.has_two and not twins:
                where = f"{where} AND c.idx <> {_CONTEXTUAL}"
            entities = "h.entities" if reader.has_entities else "'[]'"
            sql = f"WITH {_OK.format(where=where)} {_STORED.format(origin=origin, order=order, entities=entities)}"
            return [_stored(row) for row in reader.con.execute(sql, {**bound, **values})]

    def documents(self, tenant: str, *, generation: str | None = None) -> Iterator[DocumentInfo]:
        sql = (
            "SELECT min(d.source), d.id, sum((SELECT count(*) FROM chunk h WHERE h.did = d.did)), min(substr(l.digest, 1, 64)) "
            "FROM document d JOIN label l USING(lid) GROUP BY d.id ORDER BY d.id"
        )
        return (DocumentInfo(*row) for row in self._rows(tenant, generation, sql))

    def labelled(self, tenant: str) -> Iterator[tuple[str, str, Labels]]:
        sql = "SELECT DISTINCT d.source, d.id, l.json FROM document d JOIN label l USING(lid) ORDER BY d.id"
        return ((source, document_id, _labels_from(text)) for source, document_id, text in self._rows(tenant, None, sql))

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        self._check(f)
        if isinstance(f, Never):
            return []
        with self._reading(tenant, self._busy_s) as reader:
            if reader is None:
                return []
            where, bound = self._where(f, reader)
            sql = f"WITH {_OK.format(where=where)} SELECT DISTINCT id FROM document WHERE lid IN (SELECT lid FROM ok) ORDER BY id"
            return [str(row[0]) for row in reader.con.execute(sql, bound)]

    def _rows(self, tenant: str, generation: str | None, sql: str) -> Iterator[tuple[Any, ...]]:
        """Over a connection of its own, so that a slow consumer holds up no asker."""
        with _translated():
            path = self._path(tenant, generation)
            if path is None:
                return
            con = _connect(path, self._busy_s, write=False)
            try:
                con.execute("BEGIN")
                _check_partition(dict(con.execute("SELECT key, value FROM meta")), tenant)
                yield from con.execute(sql)
            finally:
                con.close()

    def label_digest(self, source: str, labels: Labels) -> str:
        return label_digest(source, labels)

    def tenants(self) -> list[str]:
        """Read inside each partition, whose name is a digest. One in which nothing can be read names nobody; `verify` of its
        tenant says so."""
        found: set[str] = set()
        for folder in self._folder.glob("t-*"):
            names = (self._owner(path) for path in sorted(folder.glob("g-*.sqlite"), reverse=True))
            found.update(name for name in names if name is not None and partition_name(name) == folder.name)
        return sorted(found)

    def _owner(self, path: Path) -> str | None:
        with contextlib.suppress(SourceError), _translated():
            con = _connect(path, self._busy_s, write=False)
            try:
                owner = json.loads(str(con.execute("SELECT value FROM meta WHERE key = 'tenant'").get))
            finally:
                con.close()
            return owner if isinstance(owner, str) else None
        return None

    def generation(self, tenant: str) -> str | None:
        if tenant in self._pins:
            return self._pins[tenant]
        with _translated():
            try:
                name = (self._folder / partition_name(tenant) / "current").read_text(encoding="ascii").strip()
            except FileNotFoundError:
                return None
            if not _GENERATION.fullmatch(name):
                raise _corrupt()
            return name

    def version(self, tenant: str, *, deadline_s: float | None = None, seen: bool = False) -> str:  # noqa: ARG002 (costs no request)
        with self._reading(tenant, self._busy_s if deadline_s is None else deadline_s) as reader:
            return "empty" if reader is None else reader.version

    def _check(self, f: Filter) -> None:
        """Refuse before any I/O what this store could misread."""
        entity = self._shaped()[1]
        held = self._lowered.get((id(f), False))
        if held is None or held[0] is not f or held[1] is not entity:
            check(f, entity)

    def _shaped(self) -> tuple[EntityType, EntityType, str]:
        """The document type that policy declares now, the same with the source's field, and its text; made anew on a reload."""
        entity, held = self._document_type(), self._shape
        if held is None or held[0] is not entity:
            held = self._shape = (entity, _with_source(entity), _fields_json(entity))
        return held

    def _where(self, f: Filter, reader: _Reader) -> tuple[str, dict[str, Any]]:
        """The filter over label rows that fit the schema. Columns hold the attributes of the schema under which the file was
        last written; where policy declares others by now, the labels' JSON is read until the next write."""
        _, entity, fields = self._shaped()
        fresh = reader.meta.get("fields") == fields
        where, values = self._lower_once(f, entity, from_json=not fresh)
        if fresh:
            return f"c.fits AND {where}", values
        return f"pointsman_fits(c.json, :fields) AND {where}", {**values, "fields": fields}

    def _lower_once(self, f: Filter, entity: EntityType, *, from_json: bool) -> tuple[str, dict[str, Any]]:
        """Grants are remembered, so the very same filter comes with every question, to search and to load; its text, too, is
        remembered. Known by identity: the entry keeps the filter, so that no other object can take its place."""
        key = (id(f), from_json)
        held = self._lowered.get(key)
        if held is None or held[0] is not f or held[1] is not entity:
            if len(self._lowered) >= _MOST_LOWERED:
                self._lowered.clear()
            held = self._lowered[key] = (f, entity, lower_filter(f, entity.fields, from_json=from_json))
        return held[2]

    @contextlib.contextmanager
    def _reading(self, tenant: str, deadline_s: float) -> Iterator[_Reader | None]:
        """This thread's reader of the current generation, inside one snapshot; None where the tenant has nothing."""
        with _translated():
            generation = self.generation(tenant)
            if generation is None:
                yield None
                return
            reader = self._reader(tenant, generation, min(self._busy_s, deadline_s))
            with reader.snapshot(tenant, deadline_s):
                yield reader

    def _reader(self, tenant: str, generation: str, busy_s: float) -> _Reader:
        """Another file may stand under the same name by now: one that was made anew, or put back from a copy."""
        readers: dict[str, _Reader] = self._local.__dict__.setdefault("readers", {})
        held = readers.get(tenant)
        path = self._folder / partition_name(tenant) / f"{generation}.sqlite"
        if held is not None and held.name == generation and held.file == _file_of(path):
            return held
        if held is not None:
            del readers[tenant]
            self._drop(held.con)
        reader = _open_reader(path, max(0.0, busy_s))
        with self._lock:
            self._open.append(reader.con)
        readers[tenant] = reader
        return reader

    def _drop(self, con: apsw.Connection) -> None:
        with self._lock:
            if con in self._open:
                self._open.remove(con)
        con.close()

    # writing

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        entity = self._document_type()
        for document in documents:
            check_document(document, entity, model)
        with self._write(tenant, generation, model) as con:
            for document in documents:
                _remove(con, [document.document_id])
                for index, chunks in _indexes(document):
                    _insert(con, document, chunks, _lid(con, document.source, document.labels, entity, index))

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        entity = self._document_type()
        # One change of a rule gives many documents the same labels: they are checked, digested and filed once.
        for new in {id(new): new for new in labels.values()}.values():
            check_labels(new, entity)
        if self._path(tenant, generation) is None:
            return 0
        with self._write(tenant, generation, None) as con:
            lids: dict[tuple[str, int, int], int] = {}
            moved: dict[int, list[int]] = {}
            changed: set[str] = set()
            held = (
                "SELECT d.id, d.did, d.source, d.lid, l.idx FROM json_each(?) j CROSS JOIN document d ON d.id = j.value "
                "CROSS JOIN label l ON l.lid = d.lid"
            )
            rows: list[Any] = con.execute(held, (json.dumps(list(labels)),)).fetchall()
            for document_id, did, source, old, index in rows:
                filed = (source, id(labels[document_id]), index)
                if filed not in lids:
                    lids[filed] = _lid(con, source, labels[document_id], entity, index)
                if lids[filed] != old:
                    moved.setdefault(lids[filed], []).append(did)
                    changed.add(document_id)
            these = "(SELECT value FROM json_each(?2))"
            for lid, dids in moved.items():
                con.execute(f"UPDATE document SET lid = ?1 WHERE did IN {these}", (lid, json.dumps(dids)))
                chunks = f"SELECT rid FROM chunk WHERE did IN {these}"
                con.execute(f"UPDATE cn SET lid = ?1 WHERE rid IN ({chunks})", (lid, json.dumps(dids)))
        return len(changed)

    def delete(self, tenant: str, document_ids: Sequence[str], *, generation: str | None = None) -> int:
        if self._path(tenant, generation) is None:
            return 0
        with self._write(tenant, generation, None) as con:
            return _remove(con, document_ids)

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        held = 0
        folder = self._folder / partition_name(tenant)
        _drop_copies(folder)
        for path in sorted(folder.glob("g-*.sqlite")):
            with self._write(tenant, path.stem, None) as con:
                held += bool(_remove(con, document_ids))
            with _translated(), self._writing:
                con = _connect(path, self._busy_s, write=True)
                try:
                    con.execute("INSERT INTO fts(fts) VALUES('optimize')")
                    con.execute("VACUUM")
                    busy = con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
                finally:
                    con.close()
                if busy:
                    raise SourceError("store_busy", "a reader still holds the old text", "try again in a moment", retryable=True)
        return held

    def begin_generation(self, tenant: str, *, keep_sources: Iterable[str] = ()) -> str:
        folder = self._folder / partition_name(tenant)
        current, keep = self.generation(tenant), sorted(keep_sources)
        numbers = [int(path.stem[2:]) for path in folder.glob("g-*.sqlite")]
        name = f"g-{max(numbers, default=0) + 1:06d}"
        _drop_copies(folder)
        if current is not None and keep:
            with _translated(), self._writing:
                copy = folder / f"{name}{_COPY}"
                _make_own(copy)
                con = _connect(folder / f"{current}.sqlite", self._busy_s, write=True)
                try:
                    con.execute("VACUUM INTO ?", (str(copy),))
                finally:
                    con.close()
                copy.replace(folder / f"{name}.sqlite")  # a copy that was cut off never has a generation's name
        with self._write(tenant, name, None) as con:
            con.execute("DELETE FROM meta WHERE key = 'whole'")
            sql = "SELECT id FROM document WHERE source NOT IN (SELECT value FROM json_each(?))"
            _remove(con, [str(row[0]) for row in con.execute(sql, (json.dumps(keep),)).fetchall()])
        return name

    def switch(self, tenant: str, generation: str) -> None:
        folder = self._folder / partition_name(tenant)
        previous = self.generation(tenant)
        if previous == generation:
            return
        if self._path(tenant, generation) is None:
            raise _no_generation(generation)
        self.seal(tenant, generation)
        if previous is not None:
            try:
                self.seal(tenant, previous)
            except SourceError as error:
                if error.code not in _NOT_WHOLE:
                    raise
                previous = None  # damaged: nobody can go back to it
        with _translated():
            self._point(folder, generation)
            for path in folder.glob("g-*"):
                if path.name.split(".")[0] not in (generation, previous):
                    path.unlink(missing_ok=True)

    def seal(self, tenant: str, generation: str) -> None:
        if self._path(tenant, generation) is None:
            raise _no_generation(generation)
        with self._write(tenant, generation, None) as con:
            con.execute("INSERT OR REPLACE INTO meta VALUES('whole', '1')")

    def generations(self, tenant: str) -> list[Generation]:
        current = self.generation(tenant)
        paths = sorted((self._folder / partition_name(tenant)).glob("g-*.sqlite"))
        return [self._described(tenant, path, path.stem == current) for path in paths if _GENERATION.fullmatch(path.stem)]

    def _described(self, tenant: str, path: Path, current: bool) -> Generation:
        try:
            with _translated():
                con = _connect(path, self._busy_s, write=False)
                try:
                    con.execute("BEGIN")
                    meta = dict(con.execute("SELECT key, value FROM meta"))
                    _check_partition(meta, tenant)
                    documents, chunks = (_count(con.execute(sql).get) for sql in _COUNTS)
                finally:
                    con.close()
        except SourceError as error:
            if error.code not in _NOT_WHOLE:
                raise
            return Generation(path.stem, current, False, None, 0, 0)
        return Generation(path.stem, current, "whole" in meta or current, meta.get("model_id"), documents, chunks)

    def discard(self, tenant: str, generation: str) -> None:
        if generation == self.generation(tenant):
            raise SourceError("generation_current", "the current generation cannot be removed", "switch to another one first")
        if self._path(tenant, generation) is None:
            raise _no_generation(generation)
        with _translated():
            names = sorted((self._folder / partition_name(tenant)).glob(f"{generation}.sqlite*"), reverse=True)
            for path in names:  # its journal first: nothing would find that again
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def pinned(self, tenant: str, generation: str) -> Iterator[SqliteDocuments]:
        if self._path(tenant, generation) is None:
            raise _no_generation(generation)
        view = type(self)(self._folder, self._document_type, busy_s=self._busy_s, pins={**self._pins, tenant: generation})
        try:
            yield view
        finally:
            view.close()

    def verify(self, tenant: str) -> list[str]:
        with _translated():
            path = self._path(tenant, None)
            if path is None:
                return []
            con = _connect(path, self._busy_s, write=True)
            try:
                return _faults(con, tenant, self._document_type())
            finally:
                con.close()

    def doubtful(self, tenant: str) -> list[str]:
        if self._path(tenant, None) is None:
            return []
        with self._write(tenant, None, None) as con:
            return _doubtful(con)

    def mend(self, tenant: str) -> list[str]:
        if self._path(tenant, None) is None:
            return []
        with self._write(tenant, None, None) as con:
            return _mend(con, self._document_type())

    @contextlib.contextmanager
    def _write(self, tenant: str, generation: str | None, model: ModelCard | None) -> Iterator[apsw.Connection]:
        """One transaction on a generation that is made when it does not exist yet."""
        check_text(tenant, "a tenant's name")
        folder = self._folder / partition_name(tenant)
        first = generation is None and self.generation(tenant) is None
        name = generation or self.generation(tenant) or "g-000001"
        if not _GENERATION.fullmatch(name):
            raise _no_generation(name)
        if generation is None and not first:
            self._path(tenant, None)  # never make an empty file in the place of one that is lost
        with _translated(), self._writing:
            _make_private(folder)
            path = folder / f"{name}.sqlite"
            _make_own(path)
            file, con = _file_of(path), _connect(path, self._busy_s, write=True)
            try:
                con.execute("PRAGMA journal_mode = WAL")
                con.execute("BEGIN IMMEDIATE")
                self._prepare(con, tenant, model)
                yield con
                con.execute("DELETE FROM label WHERE n = 0 AND lid NOT IN (SELECT lid FROM document)")
                con.execute("DELETE FROM label_set WHERE lid NOT IN (SELECT lid FROM label)")
                con.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'writes'")
                con.execute("INSERT OR REPLACE INTO meta VALUES('mark', ?)", (secrets.token_hex(8),))
                con.execute("COMMIT")
            finally:
                if con.in_transaction:
                    con.execute("ROLLBACK")
                con.close()
            if _file_of(path) != file:
                raise _unreadable()  # another one was put there meanwhile, and holds nothing of this
            if first:
                self._point(folder, name)

    def _prepare(self, con: apsw.Connection, tenant: str, model: ModelCard | None) -> None:
        if con.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").get == 0:
            con.execute(_TABLES)
            facts = {"schema": str(SCHEMA), "tenant": json.dumps(tenant), "writes": "0"}
            con.executemany("INSERT INTO meta VALUES(?, ?)", facts.items())
        meta = dict(con.execute("SELECT key, value FROM meta"))
        _check_partition(meta, tenant)
        if meta["schema"] == "1":
            con.execute(_UPGRADE)
        if meta["schema"] in ("1", "2"):
            con.execute(_UPGRADE_TO_3)
        if model is not None and meta.setdefault("model_id", model.id) != model.id:
            raise SourceError(
                "model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`"
            )
        if model is not None:
            facts = {"model_id": model.id, "dimensions": str(model.dimensions)}
            con.executemany("INSERT OR IGNORE INTO meta VALUES(?, ?)", facts.items())
        con.execute(_SUPERSEDES_INDEX)
        entity = self._document_type()
        if meta.get("fields") != _fields_json(entity):
            _refill(con, entity)

    def _path(self, tenant: str, generation: str | None) -> Path | None:
        """None where there is nothing; a current generation whose file is gone is a fault and not an empty store."""
        name = generation or self.generation(tenant)
        if name is None or not _GENERATION.fullmatch(name):
            return None
        path = self._folder / partition_name(tenant) / f"{name}.sqlite"
        if path.exists():
            return path
        if generation is None:
            raise _unreadable()
        return None

    def _point(self, folder: Path, generation: str) -> None:
        """The pointer changes by rename: a reader sees the old generation or the new one."""
        beside = folder / f"current.{os.getpid()}"
        with open(beside, "w", encoding="ascii", opener=_private) as file:
            file.write(generation)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / "current")
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        raise _unreadable() from None


def _make_own(path: Path) -> None:
    """A file for its owner only; SQLite gives its journals the mode of their file. One that is there is never opened here:
    closing it would drop the locks that SQLite holds on it in this process."""
    for name in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        try:
            if name.stat().st_mode & 0o077:
                name.chmod(0o600)
        except FileNotFoundError:
            if name == path:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _drop_copies(folder: Path) -> None:
    """What a killed `begin_generation` left."""
    with _translated():
        for path in folder.glob(f"g-*{_COPY}*"):
            path.unlink(missing_ok=True)


def _with_source(entity: EntityType) -> EntityType:
    return EntityType(entity.name, {**entity.fields, SOURCE_FIELD: Field("string", required=True)})


# --- writing rows ----------------------------------------------------------------------------------------


def _lid(con: apsw.Connection, source: str, labels: Labels, entity: EntityType, index: int = _ONLY) -> int:
    digest = label_digest(source, labels) + (f".{index}" if index else "")
    found = con.execute("SELECT lid FROM label WHERE digest = ?", (digest,)).get
    if found is not None:
        return int(found)
    row = {"digest": digest, "idx": index, "json": _labels_json(labels), f"s_{SOURCE_FIELD}": source, **_columns(labels, entity)}
    names = ", ".join(f'"{column}"' for column in row)
    con.execute(f"INSERT INTO label({names}) VALUES({', '.join('?' * len(row))})", tuple(row.values()))
    lid = con.last_insert_rowid()
    members = [(name, item, lid) for name, value in labels.items() if isinstance(value, frozenset) for item in value]
    con.executemany("INSERT INTO label_set(field, value, lid) VALUES(?, ?, ?)", members)
    return lid


def _refill(con: apsw.Connection, entity: EntityType) -> None:
    """Bring the columns of all labels under the schema that policy declares now."""
    present = {row[1] for row in con.execute("PRAGMA table_info(label)")}
    wanted = {"fits": "INTEGER NOT NULL DEFAULT 0", f"s_{SOURCE_FIELD}": "TEXT"}
    wanted |= {
        _column(name, spec): "TEXT" if spec.kind == "string" else "INTEGER"
        for name, spec in entity.fields.items()
        if spec.kind != "set"
    }
    for column, kind in wanted.items():
        if column not in present:
            con.execute(f'ALTER TABLE label ADD COLUMN "{column}" {kind}')
    for lid, text in con.execute("SELECT lid, json FROM label").fetchall():
        try:
            row = _columns(_labels_from(str(text)), entity)
        except (ValueError, TypeError):
            row = {"fits": False}  # nobody sees what cannot be read; `verify` names it
        names = ", ".join(f'"{column}" = ?' for column in row)
        con.execute(f"UPDATE label SET {names} WHERE lid = ?", (*row.values(), lid))
    con.execute("INSERT OR REPLACE INTO meta VALUES('fields', ?)", (_fields_json(entity),))


def _admitted(reader: _Reader, where: str, values: dict[str, Any], *, named: bool) -> int:
    parts = [_OK.format(where=where), *([_NAMING] if named else [])]
    counted = f"SELECT count(*) FROM cn k {_SEEN}{_NAMED}" if named else "SELECT coalesce(sum(n), 0) FROM ok"
    return _count(reader.con.execute(f"WITH {','.join(parts)} {counted}", values).get)


def _search_sql(where: str, *, lexical: bool, dense: bool, named: bool) -> str:
    legs = [_LEXICAL if lexical else _NO_LEXICAL, _DENSE if dense else _NO_DENSE]
    if named:
        legs = [_NAMING, *(leg.replace(_SEEN, _SEEN + _NAMED).replace(_SUMMED, _COUNTED) for leg in legs)]
    cosine = "coalesce(1.0 - vec_distance_cosine(e.v, :vector), 0.0)" if dense else "0.0"
    return f"WITH {','.join([_OK.format(where=where), *legs])} {_BOTH.format(cosine=cosine)}"


def _count(value: Any) -> int:
    return int(value)


_LEGS: Mapping[tuple[int, int], tuple[Leg, ...]] = {
    (0, 0): (),
    (1, 0): ("dense",),
    (0, 1): ("lexical",),
    (1, 1): ("dense", "lexical"),
}


def _candidate(row: tuple[Any, ...]) -> Candidate:
    chunk_id, document_id, source, bm25, cosine, in_lexical, in_dense, *_ = row
    return Candidate(chunk_id, document_id, source, bm25, cosine, _LEGS[in_dense, in_lexical])


def _remove(con: apsw.Connection, document_ids: Sequence[str]) -> int:
    removed = 0
    for document_id in document_ids:
        dids = con.execute("SELECT did FROM document WHERE id = ?", (document_id,)).fetchall()
        for did in dids:
            for table in ("ft", "cn", "emb", "tok", "entity"):
                con.execute(f"DELETE FROM {table} WHERE rid IN (SELECT rid FROM chunk WHERE did = ?)", did)
            con.execute("DELETE FROM chunk WHERE did = ?", did)
            con.execute("DELETE FROM document WHERE did = ?", did)
        removed += bool(dids)
    return removed


def _indexes(document: IndexedDocument) -> Iterator[tuple[int, Sequence[tuple[Chunk, Embedded]]]]:
    yield _PLAIN if document.contextual else _ONLY, document.chunks
    if document.contextual:
        yield _CONTEXTUAL, document.contextual


def _insert(con: apsw.Connection, document: IndexedDocument, chunks: Sequence[tuple[Chunk, Embedded]], lid: int) -> None:
    con.execute("INSERT INTO document(id, source, lid) VALUES(?, ?, ?)", (document.document_id, document.source, lid))
    did = con.last_insert_rowid()
    stems = con.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    for chunk, embedded in chunks:
        _insert_chunk(con, did, lid, chunk, embedded, stems)


def _insert_chunk(con: apsw.Connection, did: int, lid: int, chunk: Chunk, embedded: Embedded, stems: Any) -> None:
    body = expand(indexed_text(chunk))
    length = len(_tokens(stems, body.encode()))
    con.execute(
        "INSERT INTO chunk(did, ordinal, title, heading_path, body, kind, uri, span, context, version, language, meta, entities) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            did,
            chunk.ordinal,
            chunk.title,
            json.dumps(chunk.heading_path),
            chunk.text,
            chunk.kind,
            chunk.uri,
            _span_json(chunk.span),
            chunk.context,
            chunk.version,
            chunk.language,
            json.dumps(dict(chunk.meta), sort_keys=True),
            _entities_json(chunk.entities),
        ),
    )
    rid = con.last_insert_rowid()
    con.execute("INSERT INTO cn(rid, lid, len, id) VALUES(?, ?, ?, ?)", (rid, lid, length, chunk.chunk_id))
    con.execute("INSERT INTO emb(rid, v) VALUES(?, ?)", (rid, embedded.vector))
    con.execute("INSERT INTO tok VALUES(?, ?, ?, ?)", (rid, embedded.token_ids, embedded.token_vectors, embedded.token_scale))
    con.execute("INSERT INTO ft(rid, body) VALUES(?, ?)", (rid, body))
    named = [(entity.name, rid, int(entity.subject)) for entity in chunk.entities]
    con.executemany("INSERT OR IGNORE INTO entity(name, rid, subject) VALUES(?, ?, ?)", named)


# --- verifying and mending --------------------------------------------------------------------------------------------

_COUNTS = ("SELECT count(DISTINCT id) FROM document", "SELECT count(*) FROM chunk")
_NOT_WHOLE = frozenset({"store_corrupt", "store_unreadable", "store_failed"})
_PARTS = ("ft", "cn", "emb", "tok")
_INCOMPLETE = "SELECT h.did FROM chunk h WHERE " + " OR ".join(
    f"NOT EXISTS (SELECT 1 FROM {part} WHERE rid = h.rid)" for part in ("cn", "emb", "tok", "ft")
)
_IN_DOUBT: Mapping[str, str] = {
    "a chunk without its label, vector, tokens or indexed text": _INCOMPLETE,
    "a chunk under another label than its document": (
        "SELECT h.did FROM cn JOIN chunk h USING(rid) JOIN document d USING(did) WHERE cn.lid <> d.lid"
    ),
    "a vector of another length than the model's": (
        "SELECT h.did FROM emb e JOIN chunk h USING(rid) WHERE length(e.v) <> "
        "4 * (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'dimensions')"
    ),
    "a document under the label of another source, or of none": (
        f'SELECT d.did FROM document d LEFT JOIN label l USING(lid) WHERE l."s_{SOURCE_FIELD}" IS NOT d.source'
    ),
}
"""What of a document contradicts the rest of it, as a statement that gives the documents."""
_WRONG_COUNTS = "(l.n, l.s) IS NOT (SELECT count(*), coalesce(sum(len), 0) FROM cn WHERE cn.lid = l.lid)"
_LEFT_OVER = {
    **dict.fromkeys(_PARTS, "rid NOT IN (SELECT rid FROM chunk WHERE did IN (SELECT did FROM document))"),
    "chunk": "did NOT IN (SELECT did FROM document)",
    "entity": "rid NOT IN (SELECT rid FROM chunk WHERE did IN (SELECT did FROM document))",
}
"""Rows that belong to no document, by table."""


def _left_over(con: apsw.Connection) -> dict[str, str]:
    """Of the tables that the file has: one of an older schema is verified as it is."""
    tables = {str(name) for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    return {table: where for table, where in _LEFT_OVER.items() if table in tables}


def _faults(con: apsw.Connection, tenant: str, entity: EntityType) -> list[str]:
    meta, fields = dict(con.execute("SELECT key, value FROM meta")), _fields_json(entity)
    _check_partition(meta, tenant)
    faults = [f"sqlite: {row[0]}" for row in con.execute("PRAGMA integrity_check") if row[0] != "ok"]
    if not _words_agree(con):
        faults.append("the full-text index does not agree with the text: run `pointsman index verify --repair`")
    for words, sql in _IN_DOUBT.items():
        if count := con.execute(f"SELECT count(*) FROM ({sql})").get:
            faults.append(f"{words} ({count})")
    if count := con.execute(f"SELECT count(*) FROM label l WHERE {_WRONG_COUNTS}").get:
        faults.append(f"a label whose counts are wrong ({count})")
    if count := sum(
        _count(con.execute(f"SELECT count(*) FROM {table} WHERE {where}").get) for table, where in _left_over(con).items()
    ):
        faults.append(f"rows of no document ({count})")
    forged = _forged(con)
    if forged:
        faults.append(f"a label that is not what its digest says ({len(forged)})")
    if count := len(_misfiled(con, entity if meta.get("fields") == fields else None) - forged):
        faults.append(f"a label that is filed otherwise than it reads ({count})")
    misfits = con.execute(
        "SELECT count(*) FROM document d JOIN label c USING(lid) WHERE c.lid NOT IN (SELECT value FROM json_each(?)) "
        "AND NOT pointsman_fits(c.json, ?)",
        (json.dumps(sorted(forged)), fields),
    ).get
    if misfits:
        faults.append(
            f"documents whose labels do not fit schema.cedarschema, so that nobody sees them ({misfits}): run `pointsman index`"
        )
    return faults


def _words_agree(con: apsw.Connection) -> bool:
    try:
        con.execute("INSERT INTO fts(fts, rank) VALUES('integrity-check', 1)")
    except apsw.CorruptError:
        return False
    return True


def _forged(con: apsw.Connection) -> set[int]:
    """Labels that are not what their digest says, or that cannot be read."""
    found: set[int] = set()
    idx = "0" if con.execute("SELECT value FROM meta WHERE key = 'schema'").get == "1" else "idx"
    rows: list[Any] = con.execute(f'SELECT lid, digest, json, {idx}, "s_{SOURCE_FIELD}" FROM label').fetchall()
    for lid, digest, text, index, source in rows:
        try:
            right = digest == label_digest(source, _labels_from(text)) + (f".{index}" if index else "")
        except (ValueError, TypeError):
            right = False
        if not right:
            found.add(lid)
    return found


def _misfiled(con: apsw.Connection, entity: EntityType | None) -> set[int]:
    """Labels whose columns (under `entity`, where these are of now) or members are not those of their JSON."""
    members: dict[int, set[tuple[str, str]]] = {}
    for lid, field, value in con.execute("SELECT lid, field, value FROM label_set").fetchall():
        members.setdefault(int(str(lid)), set()).add((str(field), str(value)))
    found: set[int] = set()
    for lid, text in con.execute("SELECT lid, json FROM label").fetchall():
        number = int(str(lid))
        try:
            labels = _labels_from(str(text))
            wanted = {(name, item) for name, value in labels.items() if isinstance(value, frozenset) for item in value}
            if members.get(number, set()) != wanted or (entity is not None and not _filed(con, number, _columns(labels, entity))):
                found.add(number)
        except (ValueError, TypeError):
            found.add(number)
    return found | (members.keys() - {int(str(lid)) for (lid,) in con.execute("SELECT lid FROM label")})


def _filed(con: apsw.Connection, lid: int, row: Mapping[str, Any]) -> bool:
    same = " AND ".join(f'"{column}" IS ?' for column in row)
    return bool(con.execute(f"SELECT {same} FROM label WHERE lid = ?", (*row.values(), lid)).get)


def _doubtful(con: apsw.Connection) -> list[str]:
    several = " UNION ".join([*_IN_DOUBT.values(), "SELECT did FROM document WHERE lid IN (SELECT value FROM json_each(?))"])
    sql = f"SELECT DISTINCT id FROM document WHERE did IN ({several}) ORDER BY id"
    return [str(row[0]) for row in con.execute(sql, (json.dumps(sorted(_forged(con))),))]


def _mend(con: apsw.Connection, entity: EntityType) -> list[str]:
    """Inside one transaction. The words come first: removing a row takes its text out of their index."""
    done: list[str] = []
    if not _words_agree(con):
        con.execute("INSERT INTO fts(fts) VALUES('rebuild')")
        done.append("the full-text index was made anew")
    forged, ids = _forged(con), _doubtful(con)
    left = 0
    if ids:
        _remove(con, ids)
        done.append(f"documents that contradicted themselves were removed ({len(ids)})")
    for table, where in _left_over(con).items():
        con.execute(f"DELETE FROM {table} WHERE {where}")
        left += con.changes()
    if left:
        done.append(f"rows of no document were removed ({left})")
    con.execute("DELETE FROM label WHERE lid IN (SELECT value FROM json_each(?))", (json.dumps(sorted(forged)),))
    if misfiled := _misfiled(con, entity):
        for lid in misfiled:
            _refile(con, lid)
        _refill(con, entity)
        done.append(f"labels were filed anew ({len(misfiled)})")
    con.execute(
        "UPDATE label AS l SET (n, s) = (SELECT count(*), coalesce(sum(len), 0) FROM cn WHERE cn.lid = l.lid) "
        f"WHERE {_WRONG_COUNTS}"
    )
    if con.changes():
        done.append(f"counts of labels were made anew ({con.changes()})")
    return done


def _refile(con: apsw.Connection, lid: int) -> None:
    con.execute("DELETE FROM label_set WHERE lid = ?", (lid,))
    text = con.execute("SELECT json FROM label WHERE lid = ?", (lid,)).get
    if text is not None:
        sets = {name: value for name, value in _labels_from(str(text)).items() if isinstance(value, frozenset)}
        con.executemany(
            "INSERT INTO label_set(field, value, lid) VALUES(?, ?, ?)",
            [(name, item, lid) for name, value in sets.items() for item in value],
        )
