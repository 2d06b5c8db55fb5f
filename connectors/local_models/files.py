"""A model of one's own as a folder says it is: which files there are, that they are the ones that were declared, what they say.

All bytes are read once; what is hashed is what is opened, so that nobody swaps a file between the two. One digest stands for all
files that can change a result: `sha256sum FILES | sha256sum` over the names that `doctor` prints says the same.

INVARIANT: a file that is missing, altered or too large is refused before the runtime sees a byte of it
(tests/unit/test_own_models.py::test_what_was_not_declared_is_refused, ::test_a_model_that_is_too_large_is_refused).
INVARIANT: a model keeps nothing in files that are not named here: the runtime would look for them in the working folder
(…::test_weights_outside_of_the_file_are_refused).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.errors import SourceError

MODEL_PLACES = ("model.onnx", "onnx/model.onnx")
"""Where exporters put the model, best first."""
BESIDE = (
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
"""What else changes a result, where it is there."""
MOST_MODEL_BYTES = 2_000_000_000
MOST_BESIDE_BYTES = 64_000_000
_OUTSIDE = b"\n\x08location"
"""How a file of this format says that weights stand in another file."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`digests` are those of each file by its name, `sha256` is the one over all."""

    folder: str
    model: bytes
    beside: Mapping[str, bytes]
    digests: Mapping[str, str]

    @property
    def sha256(self) -> str:
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.digests.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def said(self, name: str) -> dict[str, Any]:
        """What a JSON file says; nothing where it is not there."""
        try:
            value = json.loads(self.beside.get(name, b"{}"))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise broken(self.folder, f"`{name}` is not JSON that says something")
        return value

    def modules(self) -> list[str]:
        """Kinds of the modules that sentence-transformers runs one after the other; none where it does not say."""
        try:
            listed = json.loads(self.beside.get("modules.json", b"[]"))
            return [str(one["type"]).rpartition(".")[2] for one in listed]
        except (ValueError, RecursionError, TypeError, KeyError):
            raise broken(self.folder, "`modules.json` is no list of modules") from None


def read_files(folder: Path, file: str | None) -> ModelFiles:
    """`file` names the model inside of `folder`, where it is not at one of the usual places. Raises `SourceError("model_files")`."""
    if not folder.is_dir():
        raise SourceError("model_files", f"there is no model folder `{folder.name}`", "check its `path` in `[models]`")
    wanted = file or next((place for place in MODEL_PLACES if (folder / place).is_file()), MODEL_PLACES[0])
    model = _read(folder, wanted, MOST_MODEL_BYTES)
    if _OUTSIDE in model:
        raise broken(folder.name, f"weights of `{wanted}` stand in another file", "export it into one file, of 2 GB at most")
    beside = {name: _read(folder, name, MOST_BESIDE_BYTES) for name in BESIDE if (folder / name).is_file()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in (*beside.items(), (wanted, model))}
    return ModelFiles(folder.name, model, beside, digests)


def check_declared(files: ModelFiles, declared: str | None) -> None:
    """Raises `SourceError("model_files")` unless these are the files that the configuration declares."""
    if declared is None:
        raise broken(files.folder, "no `sha256` is declared", "`pointsman doctor` prints it: compare and write it down")
    if not hmac.compare_digest(declared.lower().encode(), files.sha256.encode()):
        raise broken(
            files.folder, "its files are not the declared ones",
            "put the right files there; where they are meant, `pointsman doctor` prints their `sha256`",
        )  # fmt: skip


def broken(folder: str, why: str, hint: str = "check its files and its table in `[models]`") -> SourceError:
    """The model cannot be used; no path of the machine is told."""
    return SourceError("model_files", f"the model `{folder}` cannot be used: {why}", hint)


def _read(folder: Path, name: str, most: int) -> bytes:
    path = folder / name
    try:
        if path.stat().st_size > most:
            raise broken(folder.name, f"`{name}` is over {most // 1_000_000} MB", "choose a smaller model")
        data = path.read_bytes()
    except OSError:
        raise broken(folder.name, f"`{name}` cannot be read") from None
    if len(data) > most:
        raise broken(folder.name, f"`{name}` is over {most // 1_000_000} MB", "choose a smaller model")
    return data
