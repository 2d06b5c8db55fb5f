"""Documents in a folder. Reads, never writes: labels stand in `labels.yaml` inside it, or where sources.yaml says.

A sidecar `NAME.labels.yaml` narrows the document NAME. Hidden files, the labels and the sidecars are no documents.
Links are followed only while they stay inside the folder.

INVARIANT: no byte from outside the folder is ever read as a document (tests/faults/test_documents.py::test_symlink_out_of_the_folder).
INVARIANT: a file that changes while it is read is read again once and then left for the next run
(tests/faults/test_documents.py::test_file_that_changes_while_read).
INVARIANT: a pattern this file does not understand refuses the labels; a rule that silently matched nothing could leave a
document wider than meant (tests/faults/test_documents.py::test_pattern_not_understood).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from router.domain import Content, Entry, RawLabels, Rejected
from router.errors import SourceError
from router.plain import NotPlain, parse_yaml

LABELS = "labels.yaml"
SIDECAR = ".labels.yaml"
MAX_BYTES = 64 * 1024 * 1024
SETTLED_S = 0.05  # a file written less than this ago may change again under the same time stamp
SETTLED_COARSE_S = 2.5  # the same where the file system keeps whole seconds
_HINT_LABELS = "see policies/README.md for the format of labels"


class Folder:
    """Implements `router.ports.DocumentSource`. `labels` is the labels file, by default `labels.yaml` in the folder."""

    def __init__(self, path: Path, *, labels: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._root = path
        self._labels = labels if labels is not None else path / LABELS
        self._max_bytes = max_bytes
        self._rules: Rules | None = None
        self._sidecars: set[str] = set()
        self._memo: dict[tuple[int, ...], tuple[Mapping[str, object], ...]] = {}

    # --- listing ---

    def entries(self) -> Iterator[Entry | Rejected]:
        self._rules = load_rules(self._labels)
        self._sidecars = set()
        if not self._root.is_dir():
            raise SourceError(
                "source_missing",
                f"the folder `{_printable(str(self._root))}` is not there",
                "mount it, or correct `path` in pointsman.toml",
            )
        self._real_root = os.path.realpath(self._root)
        found = list(self._walk())
        found.sort(key=lambda item: item.key)
        yield from found
        yield from self._rules.without_document([item.key for item in found if isinstance(item, Entry)])

    def _walk(self) -> Iterator[Entry | Rejected]:
        """Every item, in no order. Folders wait with the real paths above them, so that a circle is seen."""
        waiting = [(str(self._root), "", frozenset({self._real_root}))]
        while waiting:
            folder, prefix, above = waiting.pop()
            for item in self._scan(folder, prefix):
                key = prefix + item.name
                if item.name.startswith("."):
                    continue
                if not _is_text(key):
                    yield Rejected(_printable(key), "name_not_text", "its name is not UTF-8; rename it")
                elif item.name.endswith(SIDECAR):
                    self._sidecars.add(key.removesuffix(SIDECAR))
                elif item.name == LABELS and prefix:
                    yield Rejected(
                        key, "labels_below_the_top", "only the labels at the top of a source count; move its rules there"
                    )
                elif not self._is_labels(item, prefix):
                    found = self._visit(item, key, above)
                    if isinstance(found, str):
                        waiting.append((item.path, key + "/", above | {found}))
                    else:
                        yield found

    def _scan(self, folder: str, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as scan:
                return list(scan)
        except OSError as error:
            raise SourceError(
                "source_unreadable",
                f"the folder `{_printable(prefix or '.')}` cannot be listed: {error.strerror}",
                "check its permissions",
                retryable=True,
            ) from None

    def _visit(self, item: os.DirEntry[str], key: str, above: frozenset[str]) -> Entry | Rejected | str:
        """An entry, why there is none, or the real path of a folder to be walked."""
        real = os.path.realpath(item.path) if item.is_symlink() else item.path
        if item.is_symlink() and not self._inside(real):
            return Rejected(key, "link_out_of_source", "a link that leads out of the folder is not followed")
        try:
            if item.is_dir():
                real = os.path.realpath(item.path)
                return Rejected(key, "link_in_a_circle", "a link to a folder above it is not followed") if real in above else real
            status = item.stat()
        except OSError:
            return Rejected(key, "unreadable", "it cannot be opened")
        if not stat.S_ISREG(status.st_mode):
            return Rejected(key, "not_a_file", "neither a file nor a folder")
        return Entry(key, status.st_size, _fingerprint(status), _address(item.path))

    def _is_labels(self, item: os.DirEntry[str], prefix: str) -> bool:
        return (not prefix and item.name == LABELS) or (item.name == self._labels.name and Path(item.path) == self._labels)

    def _inside(self, real: str) -> bool:
        return real == self._real_root or real.startswith(self._real_root.rstrip(os.sep) + os.sep)

    # --- labels ---

    def labels(self, entry: Entry) -> RawLabels:
        if self._rules is None:
            self._rules = load_rules(self._labels)
        at = self._rules.matching(entry.key)
        rules = self._memo.get(at)
        if rules is None:
            rules = self._memo[at] = tuple(self._rules.rules[number] for number in at)
        if entry.key not in self._sidecars:
            return RawLabels(rules)
        try:
            sidecar = parse_yaml((self._root / (entry.key + SIDECAR)).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, NotPlain) as error:
            return RawLabels(rules, fault=f"its sidecar cannot be read ({error if isinstance(error, NotPlain) else 'no text'})")
        if not isinstance(sidecar, dict):
            return RawLabels(rules, fault="its sidecar is no mapping")
        return RawLabels(rules, (sidecar,))

    # --- reading ---

    def read(self, entry: Entry) -> Content:
        for _ in range(2):
            content = self._read_once(entry)
            if content is not None:
                return content
        raise SourceError(
            "changed_while_read", "the file changed while it was read", "it is read again by the next run", retryable=True
        )

    def _read_once(self, entry: Entry) -> Content | None:
        path = self._root / entry.key
        try:
            real = os.path.realpath(path)
            if not self._inside(real):
                raise SourceError("gone", "the file now leads out of the folder")
            with open(real, "rb", opener=_open_no_follow) as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise SourceError("gone", "it is no file any more")
                if before.st_size > self._max_bytes:
                    raise SourceError("too_large", f"{before.st_size} bytes; the limit is {self._max_bytes}")
                data = file.read(self._max_bytes + 1)
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            raise SourceError("gone", "the file is not there any more", retryable=True) from None
        except OSError as error:
            raise SourceError(
                "unreadable", f"the file cannot be read: {error.strerror}", "check its permissions", retryable=True
            ) from None
        if _fingerprint(before) != _fingerprint(after) or len(data) != after.st_size:
            return None
        age_s = (time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns)) / 1e9
        settled = age_s > (SETTLED_S if after.st_ctime_ns % 1_000_000_000 else SETTLED_COARSE_S)
        return Content(data, entry.key.rsplit("/", 1)[-1], _fingerprint(after) if settled else "")


def _open_no_follow(path: str, flags: int) -> int:
    """Non-blocking, so that a pipe put in a file's place cannot hang the run; the path is resolved, so no link is left."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _fingerprint(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def _address(path: str) -> str:
    """`Path.as_uri` of an absolute path, without making a Path of every file."""
    return "file://" + quote(os.path.abspath(path))


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name.encode("utf-8", "replace").decode("utf-8"))


# --- labels.yaml ------------------------------------------------------------------------------------------------------


class Rules:
    """The rules of one labels file. Plain names are looked up, so that a rule for each of many documents stays quick."""

    def __init__(self, name: str, rules: Sequence[Mapping[str, object]], patterns: Sequence[str | re.Pattern[str]]) -> None:
        self.name, self.rules = name, rules
        self._patterns = [(number, pattern) for number, pattern in enumerate(patterns) if not isinstance(pattern, str)]
        self._names: dict[str, list[int]] = {}
        for number, pattern in enumerate(patterns):
            if isinstance(pattern, str):
                self._names.setdefault(pattern, []).append(number)

    def matching(self, key: str) -> tuple[int, ...]:
        found = [number for number, pattern in self._patterns if pattern.fullmatch(key)]
        return tuple(sorted([*found, *self._names.get(key, ())]))

    def without_document(self, keys: Sequence[str]) -> Iterator[Rejected]:
        """A rule that matches nothing is most likely a misspelt folder, and a restriction that is not there."""
        idle = [number for number, pattern in self._patterns if not any(pattern.fullmatch(key) for key in keys)]
        there = set(keys)
        idle += [number for name, numbers in self._names.items() if name not in there for number in numbers]
        for number in sorted(idle):
            yield Rejected(self.name, "rule_matches_nothing", f"rule {number + 1} matches no document")


def load_rules(path: Path) -> Rules:
    """The rules of a labels file; no file means no rules, and so no document of the source is indexed."""
    shown = _printable(path.name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Rules(shown, (), ())
    except (OSError, UnicodeDecodeError):
        raise SourceError("labels_unreadable", f"`{shown}` cannot be read as UTF-8 text", _HINT_LABELS) from None
    try:
        body = parse_yaml(text)
    except NotPlain as error:
        raise SourceError("labels_invalid", f"`{shown}`: {error}", _HINT_LABELS) from None
    if body is None:
        return Rules(shown, (), ())
    if not isinstance(body, dict) or set(body) != {"rules"} or not isinstance(body["rules"], list | None):
        raise SourceError("labels_invalid", f"`{shown}` must hold one list called `rules`", _HINT_LABELS)
    pairs = [_rule(rule, f"rule {number} of `{shown}`") for number, rule in enumerate(body["rules"] or [], 1)]
    return Rules(shown, [rule for _, rule in pairs], [pattern for pattern, _ in pairs])


def _rule(rule: Any, where: str) -> tuple[str | re.Pattern[str], Mapping[str, object]]:
    if not isinstance(rule, dict) or not isinstance(rule.get("match"), str) or not rule["match"]:
        raise SourceError("labels_invalid", f"{where} has no `match`", _HINT_LABELS)
    match = rule["match"]
    pattern = lower_pattern(match)
    if pattern is None:
        raise SourceError(
            "labels_invalid", f"{where} uses a pattern that is not understood: `{_printable(match)}`",
            "use names, `*`, `?` and `**`; put a backslash before [ ] { } * ? in names",
        )  # fmt: skip
    return pattern if set(match) & set("*?\\") else match, {name: value for name, value in rule.items() if name != "match"}


def lower_pattern(pattern: str) -> re.Pattern[str] | None:
    """`*` and `?` inside one name, `**` across folders (`**/` also none), a backslash before a literal character."""
    if pattern.startswith(("/", "!")) or "//" in pattern:
        return None
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            if at + 2 != len(pattern) or (at and pattern[at - 1] != "/"):
                return None
            out.append(".*")
            at += 2
        elif char == "\\" and at + 1 < len(pattern):
            out.append(re.escape(pattern[at + 1]))
            at += 2
        elif char in "[]{}\\":
            return None
        else:
            out.append("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char))
            at += 1
    return re.compile("".join(out), re.DOTALL)
