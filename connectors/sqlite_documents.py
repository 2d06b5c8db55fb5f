"""Documents in SQLite: one file a tenant and generation; BM25 and exact vector distance under one filter, in one statement.

Labels stand in a table of their own, one row for each distinct combination, so that a filter is evaluated once per
label and not per chunk, and the statistics of BM25 (count, document frequency, mean length) are those of the rows the
filter admits: a chunk that the caller may not see moves no score (tests/conformance/test_doc_store.py::
test_hidden_chunks_change_nothing). BM25 after Robertson et al. 1994 with k1 1.2, b 0.75 and Lucene's idf.

INVARIANT: every read carries a filter, lowered to SQL with bound values; nothing is filtered after top-k.
INVARIANT: a partition's file says whose it is, and that is compared on every open (…::test_foreign_partition_is_refused).
INVARIANT: each write is one transaction; readers see all of it or none (tests/faults/test_store.py).

This file is above 600 lines because schema, lowering, reading and writing share one layout and change together.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from router.domain import (
    SOURCE_FIELD,
    Candidate,
    Chunk,
    Embedded,
    Found,
    IndexedDocument,
    Labels,
    Leg,
    ModelCard,
    Search,
    Span,
    Stored,
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
    like,
)
from router.lexicon import STOP_WORDS, expand
from router.ports import DocumentInfo

SCHEMA = 1
OLDEST_SQLITE = (3, 51, 3)  # before it, two connections in WAL mode could corrupt a file
BUSY_S = 20.0
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_MOST_TERMS = 256

_TABLES = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE label(lid INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, json TEXT NOT NULL, n INTEGER NOT NULL DEFAULT 0,
                   s INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX label_unused ON label(lid) WHERE n = 0;
CREATE TABLE label_set(field TEXT NOT NULL, value TEXT NOT NULL, lid INTEGER NOT NULL, PRIMARY KEY(lid, field, value)) STRICT, WITHOUT ROWID;
CREATE TABLE document(did INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, lid INTEGER NOT NULL) STRICT;
CREATE INDEX document_source ON document(source, id);
CREATE TABLE chunk(rid INTEGER PRIMARY KEY, did INTEGER NOT NULL, ordinal INTEGER NOT NULL, title TEXT NOT NULL, heading_path TEXT NOT NULL,
                   body TEXT NOT NULL, kind TEXT NOT NULL, uri TEXT NOT NULL, span TEXT NOT NULL, context TEXT NOT NULL, version TEXT,
                   language TEXT, meta TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX chunk_place ON chunk(did, ordinal);
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
_OK = "ok AS MATERIALIZED (SELECT c.lid lid, c.n n, c.s s FROM label c WHERE c.n > 0 AND {where})"
_LEXICAL = """
st AS MATERIALIZED (SELECT coalesce(sum(n), 0) n, max(1.0, 1.0 * sum(s) / max(1, sum(n))) a FROM ok),
raw AS (SELECT q.value t, v.doc rid, count(*) f FROM json_each(:terms) q CROSS JOIN temp.fv v ON v.term = q.value GROUP BY 1, 2),
tf AS MATERIALIZED (SELECT raw.t t, raw.rid rid, raw.f f, k.len l FROM raw CROSS JOIN cn k ON k.rid = raw.rid
  WHERE k.lid IN (SELECT lid FROM ok)),
df AS MATERIALIZED (SELECT t, count(*) n FROM tf GROUP BY t),
scored AS MATERIALIZED (SELECT tf.rid rid, sum(ln(1 + (st.n - df.n + 0.5) / (df.n + 0.5)) * tf.f * 2.2
  / (tf.f + 1.2 * (0.25 + 0.75 * tf.l / st.a))) s FROM tf JOIN df ON df.t = tf.t CROSS JOIN st GROUP BY tf.rid),
lex AS MATERIALIZED (SELECT k.rid rid FROM scored x CROSS JOIN cn k ON k.rid = x.rid ORDER BY x.s DESC, k.id LIMIT :limit)"""
_NO_LEXICAL = """
st AS MATERIALIZED (SELECT coalesce(sum(n), 0) n FROM ok),
scored(rid, s) AS MATERIALIZED (SELECT 0, 0.0 WHERE 0),
lex(rid) AS MATERIALIZED (SELECT 0 WHERE 0)"""
_DENSE = """
den AS MATERIALIZED (SELECT k.rid rid, vec_distance_cosine(e.v, :vector) d FROM cn k CROSS JOIN emb e ON e.rid = k.rid
  WHERE k.lid IN (SELECT lid FROM ok) ORDER BY d, k.id LIMIT :limit)"""
_NO_DENSE = """
den(rid, d) AS MATERIALIZED (SELECT 0, 0.0 WHERE 0)"""
_BOTH = """
SELECT k.id, d.id, d.source, coalesce(x.s, 0.0), {cosine}, k.rid IN (SELECT rid FROM lex), k.rid IN (SELECT rid FROM den), st.n
FROM (SELECT rid FROM lex UNION SELECT rid FROM den) u CROSS JOIN cn k ON k.rid = u.rid CROSS JOIN chunk h ON h.rid = u.rid
CROSS JOIN document d ON d.did = h.did CROSS JOIN emb e ON e.rid = u.rid LEFT JOIN scored x ON x.rid = u.rid CROSS JOIN st
ORDER BY k.id"""
_STORED = """
SELECT k.id, d.id, d.source, h.ordinal, h.title, h.heading_path, h.body, h.kind, h.uri, h.span, h.context, h.version, h.language, h.meta,
       l.json, t.ids, t.vectors, t.scale
FROM {origin} CROSS JOIN chunk h ON h.rid = k.rid CROSS JOIN document d ON d.did = h.did CROSS JOIN label l ON l.lid = k.lid
CROSS JOIN tok t ON t.rid = k.rid WHERE k.lid IN (SELECT lid FROM ok) ORDER BY {order}"""


def partition_name(tenant: str) -> str:
    """`t-` and the first 20 hex digits of SHA-256(tenant): no tenant's name can collide, escape or be read off the disk."""
    return "t-" + hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:20]


# --- lowering ---------------------------------------------------------------------------------------------------------


def lower_filter(f: Filter, fields: Mapping[str, Field], present: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """SQL over one row `c` of `label`, with bound values `:f0`, `:f1`… A scalar column that this file lacks is absent."""
    values: dict[str, Any] = {}
    return _lower(f, fields, present, values), values


def _lower(f: Filter, fields: Mapping[str, Field], present: frozenset[str], values: dict[str, Any]) -> str:
    def bind(value: Any) -> str:
        name = f"f{len(values)}"
        values[name] = value
        return f":{name}"

    def column(name: str) -> str:
        spelled = _column(name, fields[name])
        return f'c."{spelled}"' if spelled in present else "NULL"

    def member(name: str) -> str:
        return f"EXISTS (SELECT 1 FROM label_set m WHERE m.lid = c.lid AND m.field = {bind(name)} AND m.value"

    match f:
        case Always():
            return "1"
        case Never():
            return "0"
        case And(items):
            return _balanced("AND", [_lower(item, fields, present, values) for item in items]) if items else "1"
        case Or(items):
            return _balanced("OR", [_lower(item, fields, present, values) for item in items]) if items else "0"
        case Not(item):
            return f"(({_lower(item, fields, present, values)}) IS NOT TRUE)"
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
            return f"{member(name)} IN (SELECT value FROM json_each({bind(json.dumps(sorted(strings)))})))"
        case Within(name, strings):
            return f"NOT {member(name)} NOT IN (SELECT value FROM json_each({bind(json.dumps(sorted(strings)))})))"
        case Like(name, parts):
            return f"pointsman_like({column(name)}, {bind(json.dumps(list(parts)))})"


def _balanced(joint: str, terms: list[str]) -> str:
    """SQLite bounds the depth of an expression at 1,000, and a flat chain counts as deep: halve it."""
    if len(terms) <= 8:
        return "(" + f" {joint} ".join(terms) + ")"
    middle = len(terms) // 2
    return f"({_balanced(joint, terms[:middle])} {joint} {_balanced(joint, terms[middle:])})"


def _column(name: str, spec: Field) -> str:
    """The type is part of the column's name: an attribute that changes its type starts absent, never misread."""
    return f"{spec.kind[0]}_" + name.replace('"', '""')


@functools.lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(json.loads(pattern))


def _like(value: Any, pattern: Any) -> bool | None:
    return None if value is None else like(value, _parts(pattern))


# --- labels and rows --------------------------------------------------------------------------------------------------


def _labels_json(labels: Labels) -> str:
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in labels.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _labels_from(text: str) -> Labels:
    return {name: frozenset(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}


def _label_digest(source: str, labels_json: str) -> str:
    return hashlib.sha256(f"{json.dumps(source)}{labels_json}".encode()).hexdigest()


def _span_json(span: Span) -> str:
    return json.dumps([span.page, span.lines, span.sheet], separators=(",", ":"))


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
        labels,
        *tokens,
    ) = row
    page, lines, sheet = json.loads(span)
    chunk = Chunk(
        chunk_id=chunk_id,
        document_id=document_id,
        source=source,
        ordinal=ordinal,
        title=title,
        heading_path=tuple(json.loads(heading)),
        text=body,
        kind=kind,
        uri=uri,
        span=Span(page, tuple(lines) if lines else None, sheet),
        context=context,
        version=version,
        language=language,
        meta=json.loads(meta),
    )
    return Stored(chunk, _labels_from(labels), *tokens)


def indexed_text(chunk: Chunk) -> str:
    """What both legs see of a chunk: title, headings and context stand in front of the text."""
    heading = " ".join(part for part in chunk.heading_path if part != chunk.title)
    return "\n".join(part for part in (chunk.title, heading, chunk.context, chunk.text) if part)


# --- connections ------------------------------------------------------------------------------------------------------


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
        raise SourceError(
            "store_full", "the disk of the document store is full", "free space and run `pointsman index` again"
        ) from None
    except (apsw.CorruptError, apsw.NotADBError):
        raise SourceError("store_corrupt", "the document store is damaged", "run `pointsman index --full`") from None
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError):
        raise SourceError(
            "store_unreadable", "the document store cannot be opened or written", "check the folder under `[stores]`"
        ) from None
    except apsw.Error as error:
        raise SourceError(
            "store_failed", f"the document store failed ({type(error).__name__})", "run `pointsman index verify`"
        ) from None


def _connect(path: Path, *, write: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if write else 0)
    con = apsw.Connection(str(path), flags=flags)
    con.set_busy_timeout(int(BUSY_S * 1000))
    con.execute(
        "PRAGMA mmap_size = 0; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA cache_size = -65536; PRAGMA trusted_schema = OFF"
    )
    con.enable_load_extension(True)
    con.load_extension(_vector_extension())
    con.enable_load_extension(False)
    con.create_scalar_function("pointsman_like", _like, 2, deterministic=True)  # type: ignore[arg-type]
    return con


@functools.cache
def _vector_extension() -> str:
    """The extension's file without importing its package, which would drag numpy in."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise SourceError("store_failed", "the package sqlite-vec is missing", "install pointsman again")
    return str(Path(spec.origin).with_name("vec0"))


class _Reader:
    """One connection of one thread to one generation of one tenant."""

    def __init__(self, path: Path, tenant: str) -> None:
        self.con = _connect(path, write=False)
        self._expires = 0.0
        meta = dict(self.con.execute("SELECT key, value FROM meta"))
        _check_partition(meta, tenant)
        self.model_id = meta.get("model_id", "")
        self.con.execute("CREATE VIRTUAL TABLE temp.fv USING fts5vocab(main, fts, instance)")
        self.con.set_progress_handler(self._late, 2_000)
        self._plain = self.con.fts5_tokenizer("unicode61", ["remove_diacritics", "2"])
        self._stems = self.con.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        self.present = frozenset(row[1] for row in self.con.execute("PRAGMA table_info(label)"))

    def _late(self) -> bool:
        return time.monotonic() > self._expires

    def until(self, deadline_s: float) -> None:
        self._expires = time.monotonic() + deadline_s

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

    def __init__(self, folder: Path, document_type: Callable[[], EntityType]) -> None:
        if tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) < OLDEST_SQLITE:
            raise SourceError(
                "store_failed", "this SQLite has a bug that can corrupt a store", "install apsw with SQLite 3.51.3 or later"
            )
        self._folder = folder
        self._document_type = document_type
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

    def search(self, search: Search) -> Found:
        fields = self._check(search.filter)
        if isinstance(search.filter, Never) or (search.text is None and search.vector is None):
            return Found((), 0)
        with _translated():
            reader = self._reader(search.tenant)
            if reader is None:
                return Found((), 0)
            if search.vector is not None and search.model_id != reader.model_id:
                raise SourceError(
                    "model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`"
                )
            reader.until(search.deadline_s)
            where, values = lower_filter(search.filter, fields, reader.present)
            terms = [] if search.text is None else reader.terms(search.text)
            lexical, dense = bool(terms), search.vector is not None
            sql = _search_sql(where, lexical=lexical, dense=dense)
            values["limit"] = search.limit
            if lexical:
                values["terms"] = json.dumps(terms)
            if dense:
                values["vector"] = search.vector
            rows = reader.con.execute(sql, values).fetchall()
            admitted = _count(rows[0][7]) if rows else self._admitted(reader, where, values)
        return Found(tuple(_candidate(row) for row in rows), admitted)

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        origin = "json_each(:ids) j CROSS JOIN cn k ON k.id = j.value"
        return self._read_stored(tenant, f, origin, "j.key", {"ids": json.dumps(list(chunk_ids))}, deadline_s)

    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        origin = (
            "(SELECT n.rid, n.lid, n.id FROM document o CROSS JOIN chunk p ON p.did = o.did CROSS JOIN cn n ON n.rid = p.rid "
            "WHERE o.id = :document AND p.ordinal BETWEEN :first AND :last) k"
        )
        return self._read_stored(
            tenant, f, origin, "h.ordinal", {"document": document_id, "first": first, "last": last}, deadline_s
        )

    def _read_stored(
        self, tenant: str, f: Filter, origin: str, order: str, values: dict[str, Any], deadline_s: float
    ) -> list[Stored]:
        fields = self._check(f)
        if isinstance(f, Never):
            return []
        with _translated():
            reader = self._reader(tenant)
            if reader is None:
                return []
            reader.until(deadline_s)
            where, bound = lower_filter(f, fields, reader.present)
            sql = f"WITH {_OK.format(where=where)} {_STORED.format(origin=origin, order=order)}"
            return [_stored(row) for row in reader.con.execute(sql, {**bound, **values})]

    def documents(self, tenant: str, *, generation: str | None = None) -> Iterator[DocumentInfo]:
        sql = (
            "SELECT d.source, d.id, (SELECT count(*) FROM chunk h WHERE h.did = d.did), l.digest FROM document d "
            "JOIN label l USING(lid) ORDER BY d.id"
        )
        return (DocumentInfo(*row) for row in self._rows(tenant, generation, sql))

    def labelled(self, tenant: str) -> Iterator[tuple[str, str, Labels]]:
        sql = "SELECT d.source, d.id, l.json FROM document d JOIN label l USING(lid) ORDER BY d.id"
        return ((source, document_id, _labels_from(text)) for source, document_id, text in self._rows(tenant, None, sql))

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        fields = self._check(f)
        if isinstance(f, Never):
            return []
        with _translated():
            reader = self._reader(tenant)
            if reader is None:
                return []
            reader.until(BUSY_S)
            where, bound = lower_filter(f, fields, reader.present)
            sql = f"WITH {_OK.format(where=where)} SELECT id FROM document WHERE lid IN (SELECT lid FROM ok) ORDER BY id"
            return [str(row[0]) for row in reader.con.execute(sql, bound)]

    def _rows(self, tenant: str, generation: str | None, sql: str) -> Iterator[tuple[Any, ...]]:
        """Over a connection of its own, so that a slow consumer holds up no asker."""
        with _translated():
            path = self._path(tenant, generation)
            if path is None:
                return
            con = _connect(path, write=False)
            try:
                _check_partition(dict(con.execute("SELECT key, value FROM meta")), tenant)
                yield from con.execute(sql)
            finally:
                con.close()

    def label_digest(self, source: str, labels: Labels) -> str:
        return _label_digest(source, _labels_json(labels))

    def generation(self, tenant: str) -> str | None:
        try:
            return (self._folder / partition_name(tenant) / "current").read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None
        except OSError:
            raise SourceError(
                "store_unreadable", "the document store cannot be opened", "check the folder under `[stores]`"
            ) from None

    def version(self, tenant: str) -> str:
        with _translated():
            reader = self._reader(tenant)
            if reader is None:
                return "empty"
            reader.until(1.0)
            return f"{self.generation(tenant)}.{reader.con.execute('SELECT value FROM meta WHERE key = ?', ('writes',)).get}"

    def _check(self, f: Filter) -> Mapping[str, Field]:
        """Refuse before any I/O what this store could misread; returns the fields that a label has here."""
        entity = self._document_type()
        fields = {**entity.fields, SOURCE_FIELD: Field("string", required=True)}
        check(f, EntityType(entity.name, fields))
        return fields

    def _admitted(self, reader: _Reader, where: str, values: dict[str, Any]) -> int:
        bound = {name: value for name, value in values.items() if name.startswith("f")}
        return _count(reader.con.execute(f"WITH {_OK.format(where=where)} SELECT coalesce(sum(n), 0) FROM ok", bound).get)

    def _reader(self, tenant: str) -> _Reader | None:
        generation = self.generation(tenant)
        if generation is None:
            return None
        readers: dict[str, tuple[str, _Reader]] = self._local.__dict__.setdefault("readers", {})
        held = readers.get(tenant)
        if held is not None and held[0] == generation:
            return held[1]
        if held is not None:
            self._drop(held[1].con)
        reader = _Reader(self._folder / partition_name(tenant) / f"{generation}.sqlite", tenant)
        with self._lock:
            self._open.append(reader.con)
        readers[tenant] = (generation, reader)
        return reader

    def _drop(self, con: apsw.Connection) -> None:
        with self._lock:
            if con in self._open:
                self._open.remove(con)
        con.close()

    # writing

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        with self._write(tenant, generation, model) as con:
            for document in documents:
                _remove(con, [document.document_id])
                _insert(con, document, self._lid(con, document.source, document.labels))

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        changed = 0
        with self._write(tenant, generation, None) as con:
            for document_id, new in labels.items():
                row = con.execute("SELECT did, source, lid FROM document WHERE id = ?", (document_id,)).get
                if row is None:
                    continue
                did, source, old = row
                lid = self._lid(con, source, new)
                if lid != old:
                    con.execute("UPDATE document SET lid = ?1 WHERE did = ?2", (lid, did))
                    con.execute("UPDATE cn SET lid = ?1 WHERE rid IN (SELECT rid FROM chunk WHERE did = ?2)", (lid, did))
                    changed += 1
        return changed

    def delete(self, tenant: str, document_ids: Sequence[str], *, generation: str | None = None) -> int:
        if self._path(tenant, generation) is None:
            return 0
        with self._write(tenant, generation, None) as con:
            return _remove(con, document_ids)

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        held = 0
        for path in sorted((self._folder / partition_name(tenant)).glob("g-*.sqlite")):
            with self._write(tenant, path.stem, None) as con:
                held += bool(_remove(con, document_ids))
            with _translated():
                con = _connect(path, write=True)
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
        if current is not None and keep:
            with _translated(), self._writing:
                con = _connect(folder / f"{current}.sqlite", write=True)
                try:
                    con.execute("VACUUM INTO ?", (str(folder / f"{name}.sqlite"),))
                finally:
                    con.close()
            with self._write(tenant, name, None) as con:
                sql = "SELECT id FROM document WHERE source NOT IN (SELECT value FROM json_each(?))"
                _remove(con, [str(row[0]) for row in con.execute(sql, (json.dumps(keep),)).fetchall()])
        return name

    def switch(self, tenant: str, generation: str) -> None:
        folder = self._folder / partition_name(tenant)
        previous = self.generation(tenant)
        self._point(folder, generation)
        for path in folder.glob("g-*.sqlite*"):
            if path.name.split(".")[0] not in (generation, previous):
                path.unlink(missing_ok=True)

    def verify(self, tenant: str) -> list[str]:
        with _translated():
            path = self._path(tenant, None)
            if path is None:
                return []
            con = _connect(path, write=True)
            try:
                return _faults(con, tenant)
            finally:
                con.close()

    @contextlib.contextmanager
    def _write(self, tenant: str, generation: str | None, model: ModelCard | None) -> Iterator[apsw.Connection]:
        """One transaction on a generation that is made when it does not exist yet."""
        check_text(tenant, "a tenant's name")
        folder = self._folder / partition_name(tenant)
        first = generation is None and self.generation(tenant) is None
        name = generation or self.generation(tenant) or "g-000001"
        with _translated(), self._writing:
            _make_private(folder)
            con = _connect(folder / f"{name}.sqlite", write=True)
            try:
                con.execute("PRAGMA journal_mode = WAL")
                con.execute("BEGIN IMMEDIATE")
                self._prepare(con, tenant, model)
                yield con
                con.execute("DELETE FROM label WHERE n = 0 AND lid NOT IN (SELECT lid FROM document)")
                con.execute("DELETE FROM label_set WHERE lid NOT IN (SELECT lid FROM label)")
                con.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'writes'")
                con.execute("COMMIT")
            finally:
                if con.in_transaction:
                    con.execute("ROLLBACK")
                con.close()
        if first:
            self._point(folder, name)

    def _prepare(self, con: apsw.Connection, tenant: str, model: ModelCard | None) -> None:
        if con.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").get == 0:
            con.execute(_TABLES)
            facts = {"schema": str(SCHEMA), "tenant": json.dumps(tenant), "writes": "0"}
            con.executemany("INSERT INTO meta VALUES(?, ?)", facts.items())
        meta = dict(con.execute("SELECT key, value FROM meta"))
        _check_partition(meta, tenant)
        if model is not None and meta.setdefault("model_id", model.id) != model.id:
            raise SourceError(
                "model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`"
            )
        if model is not None:
            con.execute("INSERT OR IGNORE INTO meta VALUES('model_id', ?)", (model.id,))
        present = {row[1] for row in con.execute("PRAGMA table_info(label)")}
        for name, spec in {**self._document_type().fields, SOURCE_FIELD: Field("string", required=True)}.items():
            if spec.kind != "set" and _column(name, spec) not in present:
                con.execute(
                    f'ALTER TABLE label ADD COLUMN "{_column(name, spec)}" {"TEXT" if spec.kind == "string" else "INTEGER"}'
                )

    def _lid(self, con: apsw.Connection, source: str, labels: Labels) -> int:
        text = _labels_json(labels)
        digest = _label_digest(source, text)
        found = con.execute("SELECT lid FROM label WHERE digest = ?", (digest,)).get
        if found is not None:
            return int(found)
        fields = self._document_type().fields
        columns = ["digest", "json", f"s_{SOURCE_FIELD}"]
        values: list[Any] = [digest, text, source]
        for name, value in labels.items():
            spec = fields.get(name)
            if spec is not None and spec.kind != "set":
                columns.append(_column(name, spec))
                values.append(value)
        names = ", ".join(f'"{column}"' for column in columns)
        con.execute(f"INSERT INTO label({names}) VALUES({', '.join('?' * len(values))})", values)
        lid = con.last_insert_rowid()
        members = [(name, item, lid) for name, value in labels.items() if isinstance(value, frozenset) for item in value]
        con.executemany("INSERT INTO label_set(field, value, lid) VALUES(?, ?, ?)", members)
        return lid

    def _path(self, tenant: str, generation: str | None) -> Path | None:
        name = generation or self.generation(tenant)
        path = self._folder / partition_name(tenant) / f"{name}.sqlite"
        return path if name is not None and path.exists() else None

    def _point(self, folder: Path, generation: str) -> None:
        """The pointer changes by rename: a reader sees the old generation or the new one."""
        beside = folder / f"current.{os.getpid()}"
        with beside.open("w", encoding="ascii") as file:
            file.write(generation)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / "current")


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        raise SourceError("store_unreadable", "the folder of the document store cannot be made", "check `[stores]`") from None


def _search_sql(where: str, *, lexical: bool, dense: bool) -> str:
    parts = (_OK.format(where=where), _LEXICAL if lexical else _NO_LEXICAL, _DENSE if dense else _NO_DENSE)
    cosine = "1.0 - vec_distance_cosine(e.v, :vector)" if dense else "0.0"
    return f"WITH {','.join(parts)} {_BOTH.format(cosine=cosine)}"


def _count(value: Any) -> int:
    return int(value)


def _candidate(row: tuple[Any, ...]) -> Candidate:
    chunk_id, document_id, source, bm25, cosine, in_lexical, in_dense, _ = row
    both: tuple[tuple[Leg, Any], ...] = (("dense", in_dense), ("lexical", in_lexical))
    legs = tuple(leg for leg, found_it in both if found_it)
    return Candidate(chunk_id, document_id, source, bm25, cosine, legs)


def _remove(con: apsw.Connection, document_ids: Sequence[str]) -> int:
    removed = 0
    for document_id in document_ids:
        did = con.execute("SELECT did FROM document WHERE id = ?", (document_id,)).get
        if did is None:
            continue
        for table in ("ft", "cn", "emb", "tok"):
            con.execute(f"DELETE FROM {table} WHERE rid IN (SELECT rid FROM chunk WHERE did = ?)", (did,))
        con.execute("DELETE FROM chunk WHERE did = ?", (did,))
        con.execute("DELETE FROM document WHERE did = ?", (did,))
        removed += 1
    return removed


def _insert(con: apsw.Connection, document: IndexedDocument, lid: int) -> None:
    con.execute("INSERT INTO document(id, source, lid) VALUES(?, ?, ?)", (document.document_id, document.source, lid))
    did = con.last_insert_rowid()
    stems = con.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    for chunk, embedded in document.chunks:
        _insert_chunk(con, did, lid, chunk, embedded, stems)


def _insert_chunk(con: apsw.Connection, did: int, lid: int, chunk: Chunk, embedded: Embedded, stems: Any) -> None:
    body = expand(indexed_text(chunk))
    length = len(_tokens(stems, body.encode()))
    con.execute(
        "INSERT INTO chunk(did, ordinal, title, heading_path, body, kind, uri, span, context, version, language, meta) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
        ),
    )
    rid = con.last_insert_rowid()
    con.execute("INSERT INTO cn(rid, lid, len, id) VALUES(?, ?, ?, ?)", (rid, lid, length, chunk.chunk_id))
    con.execute("INSERT INTO emb(rid, v) VALUES(?, ?)", (rid, embedded.vector))
    con.execute("INSERT INTO tok VALUES(?, ?, ?, ?)", (rid, embedded.token_ids, embedded.token_vectors, embedded.token_scale))
    con.execute("INSERT INTO ft(rid, body) VALUES(?, ?)", (rid, body))


def _faults(con: apsw.Connection, tenant: str) -> list[str]:
    _check_partition(dict(con.execute("SELECT key, value FROM meta")), tenant)
    faults = [f"sqlite: {row[0]}" for row in con.execute("PRAGMA integrity_check") if row[0] != "ok"]
    try:
        con.execute("INSERT INTO fts(fts, rank) VALUES('integrity-check', 1)")
    except apsw.CorruptError:
        faults.append("the full-text index does not agree with the text: run `pointsman index --full`")
    checks = {
        "a chunk without its label, vector, tokens or indexed text": "SELECT count(*) FROM chunk h WHERE NOT EXISTS (SELECT 1 FROM cn WHERE rid = h.rid) "
        "OR NOT EXISTS (SELECT 1 FROM emb WHERE rid = h.rid) OR NOT EXISTS (SELECT 1 FROM tok WHERE rid = h.rid) "
        "OR NOT EXISTS (SELECT 1 FROM ft WHERE rid = h.rid)",
        "a chunk under another label than its document": "SELECT count(*) FROM cn JOIN chunk h USING(rid) JOIN document d USING(did) WHERE cn.lid <> d.lid",
        "a label whose counts are wrong": "SELECT count(*) FROM label l WHERE (l.n, l.s) IS NOT "
        "(SELECT count(*), coalesce(sum(len), 0) FROM cn WHERE cn.lid = l.lid)",
    }
    for words, sql in checks.items():
        count = con.execute(sql).get
        if count:
            faults.append(f"{words} ({count})")
    return faults
