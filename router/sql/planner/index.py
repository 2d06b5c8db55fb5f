"""What the words of a catalogue and of its stored values mean, by phrase.

Built once for what one caller may use, then only read. A phrase is found by hash, and among its meanings by dataset, so that
the time of a plan does not grow with the catalogue.

INVARIANT: every lookup is by hash, none walks the fields (tests/bench/planner.py).
INVARIANT: what is not in the narrowed catalogue is not in the index (tests/sql/planner/test_plan_examples.py::test_masked_fields_do_not_exist).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from router.catalog import Catalog, Dataset, DatasetField
from router.sql.expressions import expand_metric, reads
from router.sql.paths import Graph, build_graph
from router.sql.planner.tokens import name_words, opened, tokenise, value_words
from router.sql.planner.words import DATASET_NOISE, EVENT_TAILS, GENERIC_TAILS, JOINTS, NAME_TAILS

MOST_WORDS = 10
"""Longest name or stored value that is looked for in running text; longer values are found in quotes."""

MOST_VALUES = 2_000
"""A field with more distinct texts than these has none in the index."""

MOST_HOPS = 3
MOST_NAMES = 2_000
"""Names among which suggestions are looked for."""

FieldKey = tuple[str, str]
_PREFIX = re.compile(r"(?<![\w-])[A-Z]{1,8}[-_/](?!\w)")
"""How a description says what codes begin with: "Part number, PN- and five digits"."""
_NUMBERS = frozenset({"Integer", "Decimal", "Float"})
_TIMES = frozenset({"Date", "DateTime", "DateTimeTz"})


@dataclass(frozen=True, slots=True)
class StoredValues:
    """The distinct stored texts of one field, under the caller's row filter."""

    dataset: str
    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """What the planner asks of a field. `words` is its name."""

    dataset: str
    name: str
    words: tuple[str, ...]
    datatype: str | None
    numeric: bool
    time: bool
    key: bool
    year: bool


@dataclass(frozen=True, slots=True)
class Masks:
    """Fields that are shown as masks; of these, which may be looked for by their raw values, and whose masks only round, so that
    the greatest of them is the greatest, rounded."""

    shown: frozenset[FieldKey] = frozenset()
    findable: frozenset[FieldKey] = frozenset()
    rounded: frozenset[FieldKey] = frozenset()


NO_MASKS = Masks()


@dataclass(slots=True)
class Meaning:
    """All that one phrase may name. Fields by dataset, each with its weight; `partial` fields count only near their dataset."""

    datasets: dict[str, float] = field(default_factory=dict)
    fields: dict[str, dict[str, float]] = field(default_factory=dict)
    partial: dict[str, dict[str, float]] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


@dataclass(slots=True)
class Index:
    """`phrases` by lemmas, `values` by folded words; `ways` remembers the to-one ways already looked for."""

    catalog: Catalog
    graph: Graph
    phrases: dict[tuple[str, ...], Meaning]
    values: dict[tuple[str, ...], dict[FieldKey, str]]
    longest: dict[str, int]
    longest_value: dict[str, int]
    info: dict[FieldKey, FieldInfo]
    labels: dict[str, tuple[str, ...]]
    times: dict[str, tuple[str, ...]]
    declared: dict[str, Dataset]
    ways: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    metric_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metric_homes: dict[str, str] = field(default_factory=dict)
    events: dict[str, dict[FieldKey, None]] = field(default_factory=dict)
    valued: set[FieldKey] = field(default_factory=set)
    shapes: dict[str, dict[FieldKey, str]] = field(default_factory=dict)
    masks: Masks = NO_MASKS

    def to_one(self, start: str) -> dict[str, tuple[int, int]]:
        """Datasets that a row of `start` has at most one row of: hops and number of ways (2 stands for more)."""
        known = self.ways.get(start)
        if known is None:
            known = self.ways[start] = _reach(self.graph, start)
        return known

    def on_the_way(self, start: str, goal: str) -> set[str]:
        """The datasets that the shortest to-one way to `goal` joins, `goal` among them."""
        found = self.to_one(start)
        joined = {goal} if goal != start else set()
        here = goal
        while found.get(here, (0, 0))[0] > 1:
            hop = found[here][0] - 1
            steps = (step for step in self.graph[here] if found.get(step.there, (0, 0))[0] == hop and step.there != start)
            here = next(step.there for step in steps if any(b.there == here and b.to_one for b in self.graph[step.there]))
            joined.add(here)
        return joined

    def before(self, start: str, goal: str) -> str | None:
        """The last dataset before `goal` on the only to-one way from `start`."""
        hops, ways = self.to_one(start).get(goal, (0, 2))
        if ways != 1:
            return None
        if hops == 1:
            return start
        found = self.to_one(start)
        steps = [step.there for step in self.graph[goal] if found.get(step.there, (0, 0))[0] == hops - 1 and step.there != start]
        return next((name for name in steps if any(back.there == goal and back.to_one for back in self.graph[name])), None)

    def pointing(self, here: str, key: FieldKey) -> str | None:
        """The field of `here` that holds the key `key` of a row that it points at."""
        target = self.declared[key[0]].field(key[1])
        if target is None:
            return None
        wanted = target.expression.strip('"').lower()
        for step in self.graph[here]:
            if step.there == key[0] and step.to_one and len(step.pairs) == 1 and step.pairs[0][1].lower() == wanted:
                column = step.pairs[0][0].lower()
                return next((one.name for one in self.declared[here].fields if one.expression.strip('"').lower() == column), None)
        return None

    def linked(self, one: FieldKey, other: FieldKey) -> bool:
        """Whether the two fields are the two ends of one relationship: equal wherever both exist."""
        mine, theirs = self.declared[one[0]].field(one[1]), self.declared[other[0]].field(other[1])
        if mine is None or theirs is None:
            return False
        pair = (mine.expression.strip('"').lower(), theirs.expression.strip('"').lower())
        return any(
            step.there == other[0] and any((a.lower(), b.lower()) == pair for a, b in step.pairs) for step in self.graph[one[0]]
        )


def _reach(graph: Graph, start: str) -> dict[str, tuple[int, int]]:
    """Nearest first. A way visits no dataset twice: back over a one-to-one step is no second way to where it came from."""
    found = {start: (0, 1)}
    edge: list[tuple[str, ...]] = [(start,)]
    for hop in range(1, MOST_HOPS + 1):
        edge = [(*way, step.there) for way in edge for step in graph[way[-1]] if step.to_one and step.there not in way]
        for way in edge:
            known = found.get(way[-1])
            found[way[-1]] = (hop, 1) if known is None else (known[0], 2)
    return found


def build_index(
    catalog: Catalog,
    values: Iterable[StoredValues] = (),
    masks: Masks = NO_MASKS,
) -> Index:
    """The index of a narrowed catalogue. `values` of fields that are not in it are left out."""
    index = Index(catalog, build_graph(catalog), {}, {}, {}, {}, {}, {}, {}, {one.name: one for one in catalog.datasets})
    index.masks = masks
    for dataset in catalog.datasets:
        _add_dataset(index, dataset)
    _add_heads(index, catalog)
    _drop_ownership(index)
    for metric in catalog.metrics:
        read = reads(expand_metric(catalog, metric.name))
        tables = tuple(sorted({table for table, _ in read}))
        index.metric_tables[metric.name] = tables
        homes = [one for one in tables if all(other in index.to_one(one) for other in tables)]
        if homes:
            index.metric_homes[metric.name] = homes[0]
        for words in _variants((metric.name, *metric.synonyms)):
            meaning = _meaning(index, words)
            meaning.metrics = (*meaning.metrics, *((metric.name,) if metric.name not in meaning.metrics else ()))
    for relationship in catalog.relationships:
        for synonym in relationship.synonyms:
            for words in _variants((synonym,)):
                meaning = _meaning(index, words)
                meaning.roles = tuple(dict.fromkeys((*meaning.roles, relationship.name)))
    for stored in values:
        _add_values(index, stored)
    index.names = [" ".join(words) for words in index.phrases][:MOST_NAMES]
    return index


def _variants(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Each name as words, and with abbreviations opened."""
    found: dict[tuple[str, ...], None] = {}
    for name in names:
        words = name_words(name)
        if words and len(words) <= MOST_WORDS:
            found.setdefault(words)
            found.setdefault(opened(words))
    return list(found)


def _meaning(index: Index, words: tuple[str, ...]) -> Meaning:
    found = index.phrases.get(words)
    if found is None:
        found = index.phrases[words] = Meaning()
        if len(words) > index.longest.get(words[0], 0):
            index.longest[words[0]] = len(words)
    return found


def _core(words: tuple[str, ...]) -> tuple[str, ...]:
    """A dataset's name without what tables are called for technical reasons."""
    kept = tuple(word for word in words if word not in DATASET_NOISE)
    return kept or words


def _add_dataset(index: Index, dataset: Dataset) -> None:
    own = _variants((dataset.name, *dataset.synonyms))
    for words in own:
        for each in dict.fromkeys((words, _core(words))):
            meaning = _meaning(index, each)
            meaning.datasets[dataset.name] = max(meaning.datasets.get(dataset.name, 0.0), 1.0)
    prefixes = {_core(words) for words in own} | set(own)
    keys = {column.lower() for key in (dataset.primary_key, *dataset.unique_keys) for column in key}
    foreign = {a.lower() for step in index.graph[dataset.name] for a, _ in step.pairs}
    for one in dataset.fields:
        _add_field(index, dataset, one, prefixes, one.expression.strip('"').lower() in keys | foreign)
    raw = tuple(one for one in dataset.fields if (dataset.name, one.name) not in index.masks.shown)
    index.labels[dataset.name] = _labels(replace(dataset, fields=raw), prefixes)
    times = tuple(one.name for one in raw if index.info[dataset.name, one.name].time)
    # A default that is hidden leaves none: another date in its place would answer another question.
    index.times[dataset.name] = (dataset.time,) if dataset.time else times if dataset.time is None else ()


def _add_field(index: Index, dataset: Dataset, one: DatasetField, prefixes: set[tuple[str, ...]], key: bool) -> None:
    words = name_words(one.name)
    kind = one.datatype
    time = kind in _TIMES or (one.is_time and kind != "Time" and kind not in _NUMBERS)
    last = words[-1] if words else ""
    called = [words, *map(name_words, one.synonyms)]
    year = kind in ("Integer", "Decimal", "Float", "String", None) and any(
        each[-1:] in (("year",), ("yr",)) or each[:1] == ("year",) for each in called
    )
    index.info[dataset.name, one.name] = FieldInfo(
        dataset.name, one.name, words, kind, kind in _NUMBERS, time, key or last == "id", year
    )
    if time or year:
        for event in _events(words):
            index.events.setdefault(event, {})[dataset.name, one.name] = None
    if kind == "String" and (key or one.name == dataset.label):
        for prefix in _PREFIX.findall(one.description):
            index.shapes.setdefault(prefix.casefold(), {})[dataset.name, one.name] = prefix
    names = _variants((one.name, *((one.label,) if one.label else ()), *one.synonyms))
    for each in names:
        _bind(index, each, dataset.name, one.name, 1.0)
    for each in names:
        for prefix in prefixes:
            if len(each) > len(prefix) and each[: len(prefix)] == prefix:
                _part(index, each[len(prefix) :], dataset.name, one.name, 0.9)
        if len(each) > 1:
            if each[-1] in GENERIC_TAILS:
                _part(index, each[:-1], dataset.name, one.name, 0.65)
            _part(index, each[1:], dataset.name, one.name, 0.6)
            if len(each) > 2:
                _part(index, each[-1:], dataset.name, one.name, 0.5)
            if each[:-1] not in prefixes:
                _part(index, (each[-1], "of", *each[:-1]), dataset.name, one.name, 0.85)
            if each[0] in ("number", "count", "total", "amount", "quantity"):
                _bind(index, (each[0], "of", *each[1:]), dataset.name, one.name, 1.0)
            if each[-1] in ("number", "count", "total", "amount", "quantity") and len(each) == 2 and each[:1] not in prefixes:
                _bind(index, (each[-1], "of", each[0]), dataset.name, one.name, 0.9)


def _events(words: tuple[str, ...]) -> list[str]:
    """What was done at a time, by the name of the field: `closed_at`, `release_date`, `date_arrived`, `date_of_birth`."""
    kept = [word for word in words if word not in EVENT_TAILS and word != "of"]
    if len(kept) != 1 or len(kept) == len(words):
        return []
    word = kept[0]
    if word == "birth":
        return ["born"]
    return [word] if word.endswith("ed") else [word, word + ("d" if word.endswith("e") else "ed"), word + word[-1] + "ed"]


def _bind(index: Index, words: tuple[str, ...], dataset: str, name: str, weight: float) -> None:
    fields = _meaning(index, words).fields.setdefault(dataset, {})
    fields[name] = max(fields.get(name, 0.0), weight)


def _part(index: Index, words: tuple[str, ...], dataset: str, name: str, weight: float) -> None:
    if words[0] in JOINTS or words[-1] in JOINTS:
        return
    fields = _meaning(index, words).partial.setdefault(dataset, {})
    fields[name] = max(fields.get(name, 0.0), weight)


def _labels(dataset: Dataset, prefixes: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The declared label; else what looks like one: "name", "<dataset> name", "title", or first and last name."""
    if dataset.label:
        return (dataset.label,)
    texts = [one for one in dataset.fields if one.datatype in ("String", None)]
    for one in texts:
        if name_words(one.name) in prefixes:
            return (one.name,)
    for tail in NAME_TAILS:
        wanted = tuple(tail.split())
        for one in texts:
            words = {name_words(name) for name in (one.name, *one.synonyms)} | {opened(name_words(one.name))}
            if any(each == wanted or (each[-len(wanted) :] == wanted and each[: -len(wanted)] in prefixes) for each in words):
                return (one.name,)
    spelled = {words: one.name for one in texts for words in _variants((one.name, *one.synonyms))}
    first, last = spelled.get(("first", "name")), spelled.get(("last", "name"))
    return (first, last) if first and last else ()


def _add_heads(index: Index, catalog: Catalog) -> None:
    """The last word of a dataset's name stands for it where it stands for nothing else."""
    heads: dict[tuple[str, ...], set[str]] = {}
    for dataset in catalog.datasets:
        for words in _variants((dataset.name,)):
            core = _core(words)
            if len(core) > 1:
                heads.setdefault(core[-1:], set()).add(dataset.name)
    for words, owners in heads.items():
        known = index.phrases.get(words)
        if len(owners) == 1 and (known is None or not (known.datasets or known.fields)):
            _meaning(index, words).datasets[next(iter(owners))] = 0.6


def _drop_ownership(index: Index) -> None:
    """ "Id of template" is the id of a template where there are templates, not a field called template id somewhere else."""
    for words, meaning in list(index.phrases.items()):
        if (
            len(words) > 2
            and words[1] == "of"
            and meaning.partial
            and not (meaning.fields or meaning.datasets or meaning.metrics)
        ):
            owner = index.phrases.get(words[2:])
            if owner is not None and owner.datasets:
                del index.phrases[words]


def _add_values(index: Index, stored: StoredValues) -> None:
    dataset = index.catalog.dataset(stored.dataset)
    one = dataset.field(stored.field) if dataset else None
    if dataset is None or one is None or len(stored.values) > MOST_VALUES:
        return
    at = (dataset.name, one.name)
    index.valued.add(at)
    for value in stored.values:
        words = value_words(value)
        if not words:
            continue
        index.values.setdefault(words, {}).setdefault(at, value)
        if len(words) <= MOST_WORDS and len(words) > index.longest_value.get(words[0], 0):
            index.longest_value[words[0]] = len(words)


def quoted_words(text: str) -> tuple[str, ...]:
    """The words under which a quoted text would be stored."""
    return tuple(token.low for token in tokenise(text) if token.kind != "mark" or token.low == "'s")
