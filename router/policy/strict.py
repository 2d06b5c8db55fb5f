"""Strict reading of reviewed files: what is wrong is said with file and line, and nothing unknown is skipped over.

A `Fault` is one thing wrong in the policy folder. Loading collects them, so that `policies check` can show all at once
and `load_policies` refuses with the first.

INVARIANT: YAML aliases, duplicate keys and unknown keys are refused (tests/faults/test_policies.py::test_yaml_is_strict).
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from router.errors import PolicyError
from router.filters import check_text

MAX_FILE_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong. `file` is relative to the folder; `line` counts from 1, 0 where none can be named."""

    code: str
    file: str
    line: int
    message: str
    hint: str
    policy_id: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def as_error(self, more: int = 0) -> PolicyError:
        rest = f" (and {more} more; `pointsman policies check` shows all)" if more else ""
        return PolicyError(self.code, f"{self.where}: {self.message}{rest}", self.hint)


@dataclass(slots=True)
class Faults:
    """Collects what is wrong while a folder is read."""

    items: list[Fault] = field(default_factory=list)

    def add(self, code: str, file: str, line: int, message: str, hint: str = "", policy_id: str = "") -> None:
        self.items.append(Fault(code, file, line, message, hint, policy_id))

    def refuse(self) -> None:
        if self.items:
            raise self.items[0].as_error(len(self.items) - 1)


class Lined(dict[str, Any]):
    """A YAML mapping that knows on which line each key stands."""

    lines: dict[str, int]

    def line(self, key: str) -> int:
        return self.lines.get(key, self.lines.get("", 0))


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`" if close else f"known here: {', '.join(names)}" if names else ""


def parse_yaml(text: str, file: str, faults: Faults) -> Lined:
    """The mapping at the top of a YAML file; an empty one, with a fault, where it is not readable."""
    import yaml

    try:
        node = _compose(text)
        if not isinstance(node, yaml.MappingNode):
            faults.add("policy_yaml", file, 1, "the file is not a mapping", "write `key: value` lines")
            return _empty()
        value = _build(node, yaml.constructor.SafeConstructor())
        assert isinstance(value, Lined)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        faults.add("policy_yaml", file, mark.line + 1 if mark else 0, str(error.problem or error.context), "correct the YAML")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        faults.add("policy_yaml", file, 0, f"the file is not readable YAML ({type(error).__name__})", "correct the YAML")
    else:
        return value
    return _empty()


def _empty() -> Lined:
    value = Lined()
    value.lines = {"": 1}
    return value


def _compose(text: str) -> Any:
    import yaml

    # libyaml where the wheel has it: ten times as quick, and every start of the command line reads these files.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem="aliases are refused; write the value out", problem_mark=mark)
    return yaml.compose(text, Loader=loader)


_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp"))


def _build(node: Any, scalars: Any) -> Any:
    """Plain values out of nodes; mappings keep lines and refuse a key that stands twice or is no string."""
    import yaml

    if node.tag not in _TAGS:
        raise yaml.MarkedYAMLError(problem=f"the tag `{node.tag}` is refused", problem_mark=node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, scalars) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        # Dates stay text, so that 2025-01-01 means the same wherever it is written.
        return node.value if node.tag.endswith(":timestamp") else scalars.construct_object(node)
    built = Lined()
    built.lines = {"": node.start_mark.line + 1}
    for key_node, value_node in node.value:
        key = key_node.value
        if key_node.tag != "tag:yaml.org,2002:str" or not isinstance(key, str):
            raise yaml.MarkedYAMLError(problem="a key is not a string; quote it", problem_mark=key_node.start_mark)
        if key in built:
            raise yaml.MarkedYAMLError(problem=f"the key `{key}` stands twice", problem_mark=key_node.start_mark)
        built[key] = _build(value_node, scalars)
        built.lines[key] = key_node.start_mark.line + 1
    return built


# --- bytes ------------------------------------------------------------------------------------------------------------


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file, at most one more than may be read; a link to one will do. Raises `OSError` for all else.

    A pipe or a device would hang or never end; what is no file is never taken for an absent one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(descriptor, "rb", closefd=False) as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


# --- entries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One mapping under scrutiny: takes typed keys out and faults what is missing, mistyped or unknown."""

    file: str
    name: str
    body: Lined
    faults: Faults

    def fault(self, key: str, message: str, hint: str = "") -> None:
        self.faults.add("policy_format", self.file, self.body.line(key), f"`{self.name}` {message}", hint)

    def only(self, known: Iterable[str]) -> None:
        """Fault every key that is not known, naming the nearest."""
        names = list(known)
        for key in self.body:
            if key not in names:
                self.fault(key, f"has an unknown key `{key}`", nearest(key, names))

    def text(self, key: str, default: str | None = None) -> str:
        value = self.body.get(key, default)
        if not isinstance(value, str) or (not value.strip() and default is None):
            self.fault(key, f"needs `{key}`, a string", f"add `{key}: ...`")
            return ""
        return self._clean(key, value)

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings that is not empty and names nothing twice."""
        value = self.body.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            self.fault(key, f"needs `{key}`, a list of strings", f"add `{key}: [...]`")
            return ()
        words = tuple(self._clean(key, item) for item in value)
        if len(set(words)) != len(words):
            self.fault(key, f"names something twice in `{key}`", "remove one")
        return words

    def flag(self, key: str) -> bool:
        value = self.body.get(key, False)
        if not isinstance(value, bool):
            self.fault(key, f"needs `{key}` to be true or false", f"write `{key}: true` or leave it out")
            return False
        return value

    def child(self, key: str, *, required: bool = True) -> Entry | None:
        value = self.body.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, Lined):
            self.fault(key, f"needs `{key}`, a mapping", f"add `{key}: {{...}}`")
            return None
        return Entry(self.file, f"{self.name}.{key}" if self.name != self.file else key, value, self.faults)

    def children(self, parse: Callable[[str, Entry], Any]) -> dict[str, Any]:
        """Every value of this mapping, itself a mapping, through `parse`; None is left out."""
        parsed = {}
        for key in self.body:
            child = self.child(key)
            value = parse(key, child) if child else None
            if value is not None:
                parsed[key] = value
        return parsed

    def _clean(self, key: str, value: str) -> str:
        try:
            check_text(value, f"`{key}`")
        except PolicyError as error:
            self.fault(key, error.message, error.hint)
            return ""
        return unicodedata.normalize("NFC", value)


def top(raw: Mapping[str, bytes], file: str, faults: Faults) -> Entry | None:
    """A YAML file of the folder, opened for strict reading; None with a fault where it is missing or unreadable."""
    text = decode(raw, file, faults)
    if text is None:
        return None
    before = len(faults.items)
    body = parse_yaml(text, file, faults)
    return Entry(file, file, body, faults) if len(faults.items) == before else None


def decode(raw: Mapping[str, bytes], file: str, faults: Faults) -> str | None:
    if file not in raw:
        if not any(fault.file == file for fault in faults.items):  # a file that cannot be read has said so already
            faults.add("policy_file_missing", file, 0, "the file is missing", "restore it from review")
        return None
    try:
        text = raw[file].decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[file][: error.start].count(b"\n") + 1
        faults.add("policy_text", file, line, "the file is not UTF-8", "save it as UTF-8")
        return None
    if "\0" in text:
        faults.add(
            "hostile_text", file, text[: text.index("\0")].count("\n") + 1, "a NUL character stands in the file", "remove it"
        )
        return None
    return text.removeprefix("\ufeff")
