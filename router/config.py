"""`pointsman.toml` as one frozen `Settings`, read once. Paths are resolved against the file's folder.

What a security reviewer must approve is not here but in the policy folder. INVARIANT: an unknown key is an error that
names the nearest known one (tests/unit/test_config.py::test_unknown_key_names_nearest).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from router.errors import UsageError

FILE_NAME = "pointsman.toml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RowLabels(_Strict):
    """Columns of a rows source that carry its labels, by attribute."""

    model_config = ConfigDict(extra="allow", frozen=True)
    groups: str
    sensitivity: str

    def columns(self) -> dict[str, str]:
        return {
            **{name: str(value) for name, value in (self.model_extra or {}).items()},
            "groups": self.groups,
            "sensitivity": self.sensitivity,
        }


class SourceSettings(_Strict):
    """Where a source's documents are: a folder, or the rows of a query."""

    path: Path | None = None
    database: str | None = None
    query: str | None = None
    id: str | None = None
    title: str | None = None
    text: tuple[str, ...] = ()
    labels: RowLabels | None = None


class StoreSettings(_Strict):
    path: Path | None = Field(default=None, description="folder of the document stores; default: `stores` in the state folder")


class LedgerSettings(_Strict):
    url: str | None = Field(
        default=None, description="SQLAlchemy URL, or a SQLite file; default: ledger.sqlite in the state folder"
    )
    question: Literal["kept", "redacted", "digest"] = Field(
        default="kept", description="what the record keeps of a question's text"
    )


class LogSettings(_Strict):
    path: str | None = Field(
        default=None, description="file for one JSON line a decision, `-` for standard error; default: in the state folder"
    )


class SearchSettings(_Strict):
    candidates: int = Field(default=50, ge=5, le=1000, description="hits of each leg")
    rerank: int = Field(default=50, ge=1, le=1000, description="fused hits that are reranked")
    fusion: Literal["zsum", "rrf", "weighted"] = "zsum"
    dense_weight: float = Field(default=0.5, ge=0, le=1, description="share of the dense leg under `weighted`")
    legs: Literal["both", "dense", "lexical"] = "both"
    rerank_by: Literal["local", "none"] = "local"


class DeadlineSettings(_Strict):
    ask_s: float = Field(default=10.0, gt=0, le=600, description="for one question, all stages together")
    embed_share: float = Field(default=0.3, gt=0, le=1, description="the most of it that embedding the question may take")
    rerank_share: float = Field(default=0.2, gt=0, le=1, description="what must be left for the rerank to be tried")


class ModelSettings(_Strict):
    threads: int = Field(default=1, ge=1, le=64, description="threads of the local embedder")


class Settings(_Strict):
    """Everything `pointsman.toml` can say."""

    folder: Path = Field(description="the folder of the configuration file; set by `load_settings`")
    policies: Path = Path("policies")
    state: Path = Path("state")
    policy_grace_s: float = Field(default=60.0, ge=0, le=3600)
    sources: Mapping[str, SourceSettings] = Field(default_factory=dict)
    stores: StoreSettings = StoreSettings()
    ledger: LedgerSettings = LedgerSettings()
    log: LogSettings = LogSettings()
    search: SearchSettings = SearchSettings()
    deadlines: DeadlineSettings = DeadlineSettings()
    models: ModelSettings = ModelSettings()

    def at(self, path: Path) -> Path:
        """`path` against the folder of the configuration file."""
        return (self.folder / path).absolute()

    @property
    def policy_folder(self) -> Path:
        return self.at(self.policies)

    @property
    def state_folder(self) -> Path:
        return self.at(self.state)

    @property
    def store_folder(self) -> Path:
        return self.at(self.stores.path) if self.stores.path else self.state_folder / "stores"


def find_settings(given: Path | None) -> Path:
    """The configuration file: the one given, else POINTSMAN_CONFIG, else `pointsman.toml` here or in a folder above."""
    if given is None and (named := os.environ.get("POINTSMAN_CONFIG")):
        given = Path(named)
    if given is not None:
        if not given.is_file():
            raise UsageError(
                "config_missing", f"there is no configuration file `{given}`", "name one with --config, or run `pointsman init`"
            )
        return given
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise UsageError(
        "config_missing",
        f"there is no `{FILE_NAME}` here or in a folder above",
        "run `pointsman init DIR`, or name one with --config",
    )


def load_settings(path: Path) -> Settings:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            "config_unreadable", f"the configuration file `{path}` cannot be read", "check that it is UTF-8 text and readable"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError("config_invalid", f"the configuration file is not valid TOML: {error}", "correct that line") from None
    return parse_settings(raw, path.parent.absolute())


def parse_settings(raw: Mapping[str, Any], folder: Path) -> Settings:
    """Raises `UsageError` that names the key and, for an unknown one, the nearest known."""
    try:
        return Settings.model_validate({**raw, "folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(first["loc"][-1]), _known(first["loc"][:-1]), n=1, cutoff=0.4)
            hint = f"did you mean `{near[0]}`" if near else "remove it"
            raise UsageError("config_unknown_key", f"`{place}` is not a known setting", hint) from None
        raise UsageError(
            "config_invalid", f"`{place}` is wrong: {first['msg'][:1].lower()}{first['msg'][1:]}", "correct that key"
        ) from None


def _known(place: tuple[int | str, ...]) -> list[str]:
    """The keys that may stand at `place`."""
    model: Any = Settings
    for part in place:
        field = model.model_fields.get(part)
        model = SourceSettings if field is None else field.annotation if isinstance(field.annotation, type) else SourceSettings
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            model = SourceSettings
    return [name for name in model.model_fields if name != "folder"]
