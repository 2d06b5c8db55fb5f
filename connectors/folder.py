"""Documents in a folder. Reads, never writes: labels stand in `labels.yaml` inside it, or where sources.yaml says.

A sidecar `NAME.labels.yaml` (or `.yml`, in any case of letters) narrows the document NAME. Hidden files, labels and sidecars
are no documents. Links are reported and never followed: what they lead to is a document under its own key and labels. A hard
link cannot be told from a file: whoever may make one may also copy the text, and its labels are those of the place it is in.

INVARIANT: no byte is read through a link, below the folder or out of it, for a document, a sidecar or labels
(tests/faults/test_documents.py::test_links_are_never_followed, ::test_labels_and_sidecars_are_plain_files).
INVARIANT: a file that changes while it is read is read again once and then left for the next run
(tests/faults/test_documents.py::test_file_that_changes_while_read).
INVARIANT: a pattern this file does not understand refuses the labels; a rule that silently matched nothing could leave a
document wider than meant (tests/faults/test_documents.py::test_pattern_not_understood).
INVARIANT: a sidecar that fits no document keeps the documents beside it out of the index, for it was meant to narrow one
(tests/faults/test_documents.py::test_sidecars_of_no_document).
INVARIANT: matching a name takes time linear in it, whatever the pattern (…::test_patterns_take_linear_time).
INVARIANT: labels are those of the latest listing, however long the object lives (…::test_labels_are_those_of_the_latest_listing).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from router.domain import Content, Entry, RawLabels, Rejected
from router.errors import SourceError
from router.plain import MAX_CHARS, NotPlain, parse_yaml

LABELS = "labels.yaml"
MAX_BYTES = 64 * 1024 * 1024
SIDECAR_BYTES = 1024 * 1024
SETTLED_S = 0.05  # a file written less than this ago may change again under the same time stamp
SETTLED_COARSE_S = 2.5  # the same where the file system keeps whole seconds
_JUST_BEFORE_US = 60_000_000
"""Labels that changed so shortly before a listing, or after it, may be of another text than was listed. More than clocks differ."""
_SIDECAR = re.compile(r"(?s)(.+)\.labels\.ya?ml", re.IGNORECASE)
_LABELS_NAME = re.compile(r"labels\.ya?ml", re.IGNORECASE)
_HINT_LABELS = "see policies/README.md for the format of labels"
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe put in a file's place cannot hang the run
_LINKED = (errno.ELOOP, errno.ENOTDIR)  # what opening says of a link that must not be followed


class Folder:
    """Implements `router.ports.DocumentSource`. `labels` is the labels file, by default `labels.yaml` in the folder."""

    quick = True

    def __init__(self, path: Path, *, labels: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._root = path
        self._labels, self._named = labels if labels is not None else path / LABELS, labels is not None
        self._max_bytes = max_bytes
        self._rules: Rules | None = None
        self._sidecars: dict[str, list[str]] = {}
        self._misplaced: dict[str, str] = {}
        self._memo: dict[tuple[int, ...], tuple[Mapping[str, object], ...]] = {}
        self._listed_us = 0
        self.emptied = False
        """Whether the latest listing found nothing but hidden files, as in a place where nothing is mounted."""

    # --- listing ---

    def entries(self) -> Iterator[Entry | Rejected]:
        self._rules, self._memo = load_rules(self._labels, named=self._named), {}
        self._listed_us = time.time_ns() // 1000
        if not self._root.is_dir():
            raise SourceError(
                "source_missing",
                f"the folder `{_printable(str(self._root))}` is not there",
                "mount it, or correct `path` in pointsman.toml",
            )
        sidecars: list[str] = []
        self.emptied = True
        found = list(self._walk(sidecars))
        keys = [item.key for item in found if isinstance(item, Entry)]
        found.extend(self._place_sidecars(sorted(sidecars), keys))
        found.sort(key=lambda item: item.key)
        yield from found
        yield from self._rules.without_document(keys)

    def _walk(self, sidecars: list[str]) -> Iterator[Entry | Rejected]:
        """Every item, in no order; sidecars go into the list given."""
        waiting = [(str(self._root), "")]
        while waiting:
            folder, prefix = waiting.pop()
            for item in self._scan(folder, prefix):
                key = prefix + item.name
                self.emptied = self.emptied and item.name.startswith(".")
                if item.name.startswith(".") or self._is_labels(item):
                    continue
                if not _is_text(key):
                    yield Rejected(_printable(key), "name_not_text", "its name is not UTF-8; rename it")
                elif _SIDECAR.fullmatch(item.name):
                    sidecars.append(key)
                elif _LABELS_NAME.fullmatch(item.name):
                    yield _idle_labels(key)
                elif (kind := _kind_of(item, key)) == "link":
                    yield Rejected(key, "link", "a link is not followed; what it leads to is indexed under its own name")
                elif kind == "folder":
                    waiting.append((item.path, key + "/"))
                else:
                    yield self._visit(item, key)

    def _scan(self, folder: str, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as scan:
                return list(scan)
        except OSError as error:
            raise _unlisted(prefix or ".", error) from None

    def _visit(self, item: os.DirEntry[str], key: str) -> Entry | Rejected:
        try:
            status = item.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT):  # a fault of the medium says nothing of one document
                raise _unlisted(key, error) from None
            return Rejected(key, "unreadable", "it cannot be opened")
        if not stat.S_ISREG(status.st_mode):
            return Rejected(key, "not_a_file", "neither a file nor a folder")
        return Entry(key, status.st_size, _fingerprint(status), _address(item.path), _changed_us(status))

    def _is_labels(self, item: os.DirEntry[str]) -> bool:
        return item.name == self._labels.name and os.path.realpath(item.path) == os.path.realpath(self._labels)

    def _place_sidecars(self, sidecars: Sequence[str], keys: Sequence[str]) -> Iterator[Rejected]:
        """Each to its document; one that has none is a fault of what stands beside it, or else worth saying."""
        self._sidecars, self._misplaced = {}, {}
        if not sidecars:
            return
        there = {_nfc(key) for key in keys}
        folded = [(key, _nfc(key).casefold()) for key in keys]
        for sidecar in sidecars:
            match = _SIDECAR.fullmatch(sidecar)
            assert match is not None
            target = _nfc(match[1])
            if target in there:
                self._sidecars.setdefault(target, []).append(sidecar)
                continue
            wanted = target.casefold()
            beside = [key for key, name in folded if wanted in (name, os.path.splitext(name)[0]) or name.startswith(wanted + "/")]
            self._misplaced.update(dict.fromkeys(beside, sidecar))
            if not beside:
                yield Rejected(sidecar, "sidecar_without_document", "it narrows no document; name it NAME.labels.yaml after one")

    # --- labels ---

    def labels(self, entry: Entry) -> RawLabels:
        if self._rules is None:
            self._rules = load_rules(self._labels, named=self._named)
        key = _nfc(entry.key)
        at = self._rules.matching(key)
        rules = self._memo.get(at)
        if rules is None:
            rules = self._memo[at] = tuple(self._rules.rules[number] for number in at)
        changed_us = self._rules.changed_us
        if entry.key in self._misplaced:
            name = _printable(self._misplaced[entry.key].rsplit("/", 1)[-1])
            return RawLabels(rules, fault=f"beside it stands `{name}`, which is the sidecar of no document")
        if key not in self._sidecars:
            return RawLabels(rules, changed_us=changed_us)
        try:
            read = [self._read_sidecar(sidecar) for sidecar in self._sidecars[key]]
        except NotPlain as fault:
            return RawLabels(rules, fault=f"its sidecar cannot be read ({fault})")
        changed_us = max([changed_us, *(at_us for _, at_us in read)])
        if changed_us > self._listed_us - _JUST_BEFORE_US and self._is_another(entry):
            return RawLabels(
                rules, fault="it changed while its labels were read, which may be of the new text; the next run reads both"
            )
        return RawLabels(rules, tuple(said for said, _ in read), changed_us=changed_us)

    def _is_another(self, entry: Entry) -> bool:
        """Whether the file is no longer the one that was listed."""
        try:
            return _fingerprint(os.stat(self._root / entry.key, follow_symlinks=False)) != entry.fingerprint
        except OSError:
            return True

    def _read_sidecar(self, key: str) -> tuple[Mapping[str, object], int]:
        """What it says, and when it last changed. Raises `NotPlain`."""
        try:
            handle = _open_below(self._root, key)
            changed_us = _changed_us(os.fstat(handle))
            text = _read_plain(handle, SIDECAR_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise NotPlain("no plain file of text") from None
        sidecar = parse_yaml(text)
        if not isinstance(sidecar, dict):
            raise NotPlain("no mapping")
        return sidecar, changed_us

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
        try:
            with open(_open_below(self._root, entry.key), "rb") as file:
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
            if error.errno in _LINKED:
                raise SourceError("gone", "there is a link in its place now") from None
            if error.errno in (errno.EACCES, errno.EPERM):  # somebody took it away
                raise SourceError(
                    "unreadable", f"the file cannot be read: {error.strerror}", "check its permissions", retryable=True
                ) from None
            raise SourceError(
                "read_failed", f"the file cannot be read: {error.strerror}", "check the disk or the mount", retryable=True
            ) from None
        if _fingerprint(before) != _fingerprint(after) or len(data) != after.st_size:
            return None
        age_s = (time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns)) / 1e9
        settled = age_s > (SETTLED_S if after.st_ctime_ns % 1_000_000_000 else SETTLED_COARSE_S)
        return Content(data, entry.key.rsplit("/", 1)[-1], _fingerprint(after) if settled else "")


def _kind_of(item: os.DirEntry[str], key: str) -> str:
    """Where the medium does not say it, all below the name may be missing."""
    try:
        return "link" if item.is_symlink() else "folder" if item.is_dir() else "file"
    except OSError as error:
        raise _unlisted(key, error) from None


def _unlisted(place: str, error: OSError) -> SourceError:
    return SourceError(
        "source_unreadable",
        f"the folder `{_printable(place)}` cannot be listed: {error.strerror}",
        "check its permissions",
        retryable=True,
    )


def _open_below(root: Path, key: str) -> int:
    """Step by step from the folder, so that no link is followed, not even one put there a moment ago."""
    *folders, name = key.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, _PLAIN_FILE, dir_fd=at)
    finally:
        os.close(at)


def _read_plain(handle: int, most_bytes: int) -> bytes:
    """All of a regular file within the limit; anything else is an `OSError`."""
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"above {most_bytes} bytes")
    return data


def _idle_labels(key: str) -> Rejected:
    if "/" in key:
        return Rejected(key, "labels_below_the_top", "only the labels at the top of a source count; move its rules there")
    return Rejected(key, "labels_not_used", "its rules do not count: the labels of this source stand elsewhere")


def _fingerprint(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def _changed_us(status: os.stat_result) -> int:
    """A file that is moved or linked into place keeps the time of its bytes, and takes a new one of its own."""
    return max(status.st_mtime_ns, status.st_ctime_ns) // 1000


def _address(path: str) -> str:
    """`Path.as_uri` of an absolute path, without making a Path of every file."""
    return "file://" + quote(os.path.abspath(path))


def _nfc(name: str) -> str:
    """Some file systems keep names in parts (NFD); a rule means the name as people see it."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


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

    def __init__(
        self, name: str, rules: Sequence[Mapping[str, object]], patterns: Sequence[str | re.Pattern[str]], *, changed_us: int = 0
    ) -> None:
        self.name, self.rules, self.changed_us = name, rules, changed_us
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
        there = {_nfc(key) for key in keys}
        idle = [number for number, pattern in self._patterns if not any(map(pattern.fullmatch, there))]
        idle += [number for name, numbers in self._names.items() if name not in there for number in numbers]
        for number in sorted(idle):
            yield Rejected(self.name, "rule_matches_nothing", f"rule {number + 1} matches no document")


def load_rules(path: Path, *, named: bool = True) -> Rules:
    """The rules of a labels file. Where none is named and none is there, there are no rules, and nothing is indexed; one that
    is named and missing, or cannot be understood, fails the source, since half of the rules could be wider than all."""
    shown = _printable(path.name)
    try:
        handle = os.open(path, _PLAIN_FILE)
        changed_us = _changed_us(os.fstat(handle))
        text = _read_plain(handle, MAX_CHARS).decode("utf-8")
    except FileNotFoundError:
        if not named:
            return Rules(shown, (), ())
        raise _labels_fault("labels_missing", f"the labels `{shown}` are not there") from None
    except (OSError, UnicodeDecodeError):
        raise _labels_fault("labels_unreadable", f"`{shown}` is no plain file of UTF-8 text up to {MAX_CHARS} bytes") from None
    try:
        body = parse_yaml(text)
    except NotPlain as error:
        raise _labels_fault("labels_invalid", f"`{shown}`: {error}") from None
    if not isinstance(body, dict) or set(body) != {"rules"} or not isinstance(body["rules"], list | None):
        raise _labels_fault("labels_invalid", f"`{shown}` must hold one list called `rules`")
    pairs = [_rule(rule, f"rule {number} of `{shown}`") for number, rule in enumerate(body["rules"] or [], 1)]
    return Rules(shown, [rule for _, rule in pairs], [pattern for pattern, _ in pairs], changed_us=changed_us)


def _labels_fault(code: str, what: str, hint: str = _HINT_LABELS) -> SourceError:
    return SourceError(code, f"{what}; until they are whole, nothing of this source changes and its old labels hold", hint)


def _rule(rule: Any, where: str) -> tuple[str | re.Pattern[str], Mapping[str, object]]:
    if not isinstance(rule, dict) or not isinstance(rule.get("match"), str) or not rule["match"]:
        raise _labels_fault("labels_invalid", f"{where} has no `match`")
    match = _nfc(rule["match"])
    pattern = lower_pattern(match)
    if pattern is None:
        raise _labels_fault(
            "labels_invalid", f"{where} uses a pattern that is not understood: `{_printable(match)}`",
            "use names, `*`, `?` and `**`; put a backslash before [ ] { } * ? in names",
        )  # fmt: skip
    return pattern if set(match) & set("*?\\") else match, {name: value for name, value in rule.items() if name != "match"}


def lower_pattern(pattern: str) -> re.Pattern[str] | None:
    """`*` and `?` inside one name, `**` across folders (`**/` also none), a backslash before a literal character.

    Of the pieces between stars each is matched where it first fits and that is never taken back (atomic groups): no later
    choice could do better, and taking back would cost exponential time.
    """
    if pattern.startswith(("/", "!")) or "//" in pattern:
        return None
    groups: list[list[str]] = [[]]
    for name in pattern.split("/"):
        lowered = "" if name == "**" else _lower_name(name)
        if lowered is None:
            return None
        if name != "**":
            groups[-1].append(lowered)
        elif len(groups) == 1 or groups[-1]:  # `**/**` says no more than `**`
            groups.append([])
    first, *others = groups
    if not others:
        return re.compile("/".join(first), re.DOTALL)
    *middle, last = others
    text = "".join(name + "/" for name in first)
    text += "".join(f"(?>(?:[^/]++/)*?{'/'.join(group)}/)" for group in middle)
    text += f"(?:[^/]++/)*{'/'.join(last)}" if last else ".*"
    return re.compile(text, re.DOTALL)


def _lower_name(name: str) -> str | None:
    """One name of a pattern, or None when it is not understood."""
    runs, at, starred = [""], 0, False
    while at < len(name):
        char = name[at]
        if char in "[]{}" or (char == "*" and starred) or (char == "\\" and at + 1 == len(name)):
            return None
        starred = char == "*"
        if starred:
            runs.append("")
        elif char == "\\":
            at += 1
            runs[-1] += re.escape(name[at])
        else:
            runs[-1] += "[^/]" if char == "?" else re.escape(char)
        at += 1
    if len(runs) == 1:
        return runs[0]
    first, *middle, last = runs
    return f"(?>{first}" + "".join(f"(?>[^/]*?{run})" for run in middle) + f"[^/]*{last}(?![^/]))"
