"""What `pointsman init` copies: a working starter whose policies explain themselves.

INVARIANT: the starter loads, its cases pass and cover every policy, whatever tenant, group and sensitivity are given
(tests/unit/test_starter.py).
INVARIANT: nothing is written outside the target, which was empty; it appears whole or not at all
(tests/unit/test_starter.py::test_target_must_be_empty).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import unicodedata
from pathlib import Path

from router.domain import CLASSES
from router.errors import UsageError

ALIAS = "dev"
_HERE = Path(__file__).parent
_SAMPLES = "documents"
_COPIED = ("pointsman.toml", "labels", "policies", _SAMPLES)


def write_starter(
    target: Path,
    *,
    documents: Path | None = None,
    tenant: str = "me",
    group: str = "staff",
    sensitivity: str = "internal",
) -> list[Path]:
    """Write configuration, policies, labels and (without `documents`) sample pages; returns the files, relative to `target`."""
    bare_group = _bare(group)
    if sensitivity not in CLASSES:
        raise UsageError("sensitivity_unknown", f"`{sensitivity}` is no sensitivity", f"one of {', '.join(CLASSES)}")
    _check_folders(target, documents)
    where = _text("documents", str(documents.resolve())) if documents is not None else _SAMPLES
    filled = {
        "{documents}": _quote(where),
        "{tenant}": _quote(_text("tenant", tenant)),
        "{group}": _quote(f"{ALIAS}:{bare_group}"),
        "{bare_group}": _quote(bare_group),
        "{other_group}": "guests" if bare_group == "visitors" else "visitors",
        "{sensitivity}": sensitivity,
        "{clearance}": str(CLASSES.index(sensitivity)),
        "{description}": _quote(f"documents of {tenant}"),
    }
    return _write(target, filled, with_samples=documents is None)


def read_starter(name: str) -> str:
    """One file of the starter as shipped, placeholders unfilled (Cedar files have none)."""
    return (_HERE / name).read_text(encoding="utf-8")


def _check_folders(target: Path, documents: Path | None) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError("target_not_empty", f"`{target}` is not an empty folder", "name a new one; nothing was written")
    if documents is None:
        return
    if not documents.is_dir():
        raise UsageError("documents_missing", f"`{documents}` is not a folder", "name the folder that holds your documents")
    if target.resolve().is_relative_to(documents.resolve()):
        hint = "name a target beside it; nothing is written into the documents' folder"
        raise UsageError("target_inside_documents", f"`{target}` lies inside `{documents}`", hint)


def _write(target: Path, filled: dict[str, str], *, with_samples: bool) -> list[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        written = [_copy(path, making, filled) for path in _templates(with_samples=with_samples)]
        shutil.copyfile(_HERE / "gitignore", making / ".gitignore")
        making.chmod(0o777 & ~_umask())
        os.replace(making, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return written


def _templates(*, with_samples: bool) -> list[Path]:
    names = [name for name in _COPIED if with_samples or name != _SAMPLES]
    found = [path for name in names for path in sorted([_HERE / name, *(_HERE / name).rglob("*")])]
    return [path.relative_to(_HERE) for path in found if path.is_file()]


def _copy(path: Path, making: Path, filled: dict[str, str]) -> Path:
    text = read_starter(str(path))
    if path.suffix in (".yaml", ".toml"):
        # In one pass: what is filled in is never itself taken for a mark.
        text = re.sub("|".join(map(re.escape, filled)), lambda mark: filled[mark[0]], text)
    (making / path).parent.mkdir(parents=True, exist_ok=True)
    (making / path).write_text(text, encoding="utf-8")
    return path


def _bare(group: str) -> str:
    alias, colon, name = group.partition(":")
    if not colon:
        return _text("group", group)
    if alias != ALIAS:
        raise UsageError(
            "group_unknown_issuer",
            f"`{group}` is not of the issuer `{ALIAS}`",
            f"the starter has no other; write `{ALIAS}:{name}`",
        )
    return _text("group", name)


def _text(what: str, value: str) -> str:
    """One line of plain text, in the form in which labels and claims are compared."""
    if not value.strip() or not value.isprintable():
        raise UsageError(f"{what}_malformed", f"the name given for {what} is not plain text", "use printable characters")
    return unicodedata.normalize("NFC", value)


def _quote(value: str) -> str:
    """A JSON string is a YAML and a TOML string too."""
    return json.dumps(value, ensure_ascii=False)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
