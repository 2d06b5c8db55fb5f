"""`pointsman.toml` as one frozen `Settings`, read once. Paths are resolved against the file's folder.
Longer than most, because every setting and its description stand in one place.

What a security reviewer must approve is not here but in the policy folder. INVARIANT: an unknown key is an error that
names the nearest known one (tests/unit/test_config.py::test_unknown_key_names_nearest).
INVARIANT: every setting has a description, and deploy/configuration.md is made from them
(tests/unit/test_config.py::test_document_is_what_the_settings_say).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from router.errors import UsageError

FILE_NAME = "pointsman.toml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_HOST = r"^(https://[^\s/@?#]+|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?)/?$"
_VARIABLE = r"^[A-Z_][A-Z0-9_]{0,127}$"
_ADDRESS = r"^(https://[^\s@?#]+|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/[^\s?#]*)?)$"


def _check_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        if parts.hostname and parts.port != 0:
            return text
    except ValueError:
        pass
    raise ValueError("no address of a machine stands there")


Host = Annotated[str, Field(pattern=_HOST), AfterValidator(_check_address)]
Address = Annotated[str, Field(pattern=_ADDRESS), AfterValidator(_check_address)]


class RowLabels(_Strict):
    """Columns of a rows source that carry its labels, by attribute."""

    model_config = ConfigDict(extra="allow", frozen=True)
    groups: str = Field(description="column with the row's group or groups")
    sensitivity: str = Field(description="column with the row's sensitivity, a name or 0 to 3")

    def columns(self) -> dict[str, str]:
        return {
            **{name: str(value) for name, value in (self.model_extra or {}).items()},
            "groups": self.groups,
            "sensitivity": self.sensitivity,
        }


class SourceSettings(_Strict):
    """Where a source's documents are: a folder, or the rows of a query."""

    path: Path | None = Field(default=None, description="connector `folder`: the folder of the documents")
    database: str | None = Field(default=None, description="connector `rows`: SQLAlchemy URL of the database")
    query: str | None = Field(default=None, description="connector `rows`: the SELECT that gives one document a row")
    id: str | None = Field(default=None, description="connector `rows`: column that names a document for good")
    title: str | None = Field(default=None, description="connector `rows`: column of the title")
    text: tuple[str, ...] = Field(default=(), description="connector `rows`: columns that make up the text, in this order")
    labels: RowLabels | None = Field(
        default=None,
        description="connector `rows`: the columns that carry the labels; any other attribute of the schema's Document may stand beside",
    )
    contexts: Literal["none", "structure", "both", "claude"] = Field(
        default="structure",
        description="what stands in front of each chunk, for search only: nothing, a few words of the document around it, two indexes, one of each, "
        "or what Claude writes of it where the policies permit it (`[contexts]`)",
    )
    prefer: Literal["contextual", "plain"] = Field(
        default="contextual",
        description='with `contexts = "both"`: the index that answers where the question does not say; choose by `pointsman eval retrieval`',
    )

    recency_days: float | None = Field(
        default=None, gt=0, description="where newer documents matter more: after so many days, half of their lead is left"
    )
    keep_versions: int = Field(
        default=0,
        ge=0,
        le=1_000,
        description='how many earlier versions of each document stay, for questions "as of" a day; needs the optional attribute '
        "`effective_to` of the schema's Document (adr/0033)",
    )

    @property
    def index(self) -> Literal["contextual", "plain"]:
        """By which index the source is searched unless the caller says otherwise."""
        return {"none": "plain", "both": self.prefer}.get(self.contexts, "contextual")


TableName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]
TypeName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_ (),]*(\[\])*$", max_length=200)]


class TableSettings(_Strict):
    """Where a table of the governed SQL is copied from: files, or a table or query of a database."""

    path: Path | None = Field(
        default=None, description="a CSV, Parquet or DuckDB file; a `*` in the last part stands for several files of one kind"
    )
    format: Literal["auto", "csv", "parquet", "duckdb"] = Field(
        default="auto", description="what the file is; `auto` goes by its ending"
    )
    database: str | None = Field(default=None, description="SQLAlchemy URL of a database, instead of `path`")
    database_env: str | None = Field(
        default=None, description="name of the environment variable that holds the URL, where it holds a password"
    )
    table: str | None = Field(
        default=None, description="`table` or `schema.table` in the database or DuckDB file; default: the table's own name"
    )
    query: str | None = Field(default=None, description="a SELECT in the database, instead of `table`")
    types: Mapping[str, TypeName] = Field(
        default_factory=dict, description="DuckDB types by column, where the one that is found is not meant"
    )


class OpenSearchSettings(_Strict):
    """A cluster of OpenSearch 3.5 or later with k-NN. The password stands in the environment, never here."""

    hosts: tuple[Host, ...] = Field(
        min_length=1, description="https address of each node that may be asked; http on this machine only"
    )
    username: str | None = Field(default=None, description="basic authentication")
    password_env: str | None = Field(
        default=None, pattern=_VARIABLE, description="name of the environment variable that holds the password"
    )
    ca: Path | None = Field(
        default=None,
        description="certificates of the authorities that vouch for the nodes; default: those of the package certifi",
    )
    client_cert: Path | None = Field(default=None, description="certificate by which this side is known, where nodes ask for one")
    client_key: Path | None = Field(default=None, description="its key")
    prefix: str = Field(
        default="pointsman",
        pattern=r"^[a-z][a-z0-9_]{0,40}$",
        description="what the names of indices begin with, one for each deployment",
    )
    shards: int = Field(default=1, ge=1, le=64, description="of each tenant's index; one up to some millions of chunks")
    replicas: int = Field(default=1, ge=0, le=8, description="copies of each shard on other nodes")
    exact_below: int = Field(
        default=100_000,
        ge=0,
        description="where a caller is admitted to no more chunks than this, each is measured; above, the graph of nearest neighbours is used, "
        "which chunks the caller may not see have shaped (adr/0026)",
    )
    wait_s: float = Field(default=30.0, gt=0, le=600, description="for one request outside a question: writes, lists, reviews")


class IndexSettings(_Strict):
    """`index --watch`, and from when on an index is old."""

    every_s: float = Field(default=60.0, ge=0.2, le=86_400, description="`index --watch`: seconds from one round to the next")
    tables_every_s: float = Field(
        default=900.0,
        ge=1,
        le=604_800,
        description="`index --watch`: the same for tables; those of a database are copied whole each time",
    )
    compare: Path | None = Field(
        default=None,
        description="`index --full`: saved questions, one JSON object a line, that the new generation is held against before it is shown",
    )
    compare_points: float = Field(
        default=1.0, ge=0, le=100, description="by how many points of 100 Recall@20 or nDCG@10 of these questions may fall"
    )
    stale_s: float = Field(
        default=86_400.0,
        gt=0,
        description="`doctor` warns where a change waits longer than this to be indexed; of a source that has to be read to know, where the "
        "last good run is longer ago",
    )


class StoreSettings(_Strict):
    path: Path | None = Field(default=None, description="folder of the document stores; default: `stores` in the state folder")
    opensearch: OpenSearchSettings | None = Field(
        default=None, description="documents in OpenSearch instead of files (extra `opensearch`)"
    )


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


ASKING_A_MODEL = frozenset({"decomposed_by_model", "rounds", "multi_query", "hyde", "step_back"})
"""Strategies that send the question to a hosted model."""


class SearchSettings(_Strict):
    candidates: int = Field(default=50, ge=5, le=1000, description="hits of each leg")
    rerank: int = Field(default=50, ge=1, le=1000, description="fused hits that are reranked")
    fusion: Literal["zsum", "rrf", "weighted"] = Field(
        default="zsum", description="standardised scores summed, reciprocal ranks summed, or scores weighted"
    )
    dense_weight: float = Field(default=0.5, ge=0, le=1, description="share of the dense leg under `weighted`")
    legs: Literal["both", "dense", "lexical"] = Field(default="both", description="what is searched: vectors, BM25 or both")
    rerank_by: Literal["local", "none", "cross_encoder", "cohere"] = Field(
        default="local",
        description="`none` leaves the fused order; a model of your own (`[models.cross_encoder]`) or a provider reorders it after that; "
        "what may not be sent to the provider is ranked on this machine",
    )
    strategy: Literal[
        "auto",
        "simple",
        "widened",
        "decomposed",
        "feedback",
        "whole",
        "acronyms",
        "decomposed_by_model",
        "rounds",
        "multi_query",
        "hyde",
        "step_back",
    ] = Field(default="auto", description="how many searches a question is worth (adr/0023); `auto` goes by the question's form")
    whole_chunks: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="where a caller is admitted to no more chunks than this, all of them that hold are handed over (strategies `auto` and `whole`)",
    )
    relevance: Literal["gate", "off"] = Field(
        default="gate", description="`gate` says that nothing was found where nothing of it is likely to answer"
    )
    versions: Literal["current", "all"] = Field(
        default="current",
        description="`current` leaves out documents that another one replaced, and mirrors of one text, and mixes documents",
    )
    neighbours: int = Field(
        default=0, ge=0, le=10, description="pieces of the same document that are joined to a passage on each side"
    )
    budget_tokens: int | None = Field(
        default=None, ge=64, description="the most that all passages of an answer may hold together"
    )
    narrowing: Literal["question", "off"] = Field(
        default="question", description="`question` leaves out documents whose labels contradict the question's own words"
    )
    linked: int = Field(
        default=0,
        ge=0,
        le=5,
        description="the most passages that are added behind those found, of other documents about a code that these name (adr/0030)",
    )
    subject_first: bool = Field(
        default=True, description="passages about the one code that a question names come before all others (adr/0030)"
    )


class DeadlineSettings(_Strict):
    ask_s: float = Field(default=10.0, gt=0, le=600, description="for one question, all stages together")
    embed_share: float = Field(default=0.3, gt=0, le=1, description="the most of it that embedding the question may take")
    rerank_share: float = Field(default=0.2, gt=0, le=1, description="what must be left for the rerank to be tried")


class CacheSettings(_Strict):
    """Evidence kept in the memory of one process for the same question under the same grants."""

    enabled: bool = Field(
        default=False,
        description="keep what was found for a question, and hand it to whoever asks the same under equal filters, columns, masks and permits; "
        "who is asked for, judged in full and recorded as ever (adr/0031)",
    )
    lifetime_s: float = Field(default=60.0, gt=0, le=86_400, description="the longest that anything is kept")
    entries: int = Field(default=1_000, ge=1, le=100_000, description="how many questions at most; the oldest goes first")
    megabytes: int = Field(default=64, ge=1, le=4_096, description="how much memory at most")


_ENV = r"^[A-Z_][A-Z0-9_]{0,127}$"
_MODEL = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"


class _Calls(_Strict):
    """How a provider is called."""

    calls_at_once: int = Field(default=4, ge=1, le=64, description="the most calls that run at the same time")
    call_s: float = Field(
        default=20.0, gt=0, le=600, description="for one call; within a question its stage's share of the deadline is the bound"
    )


class ClaudeSettings(_Calls):
    """Anthropic's Claude. The key stands in the environment, never here."""

    key_env: str = Field(
        pattern=_ENV,
        description="name of the environment variable that holds the key; while it is empty the provider is not there",
    )
    model: str = Field(pattern=_MODEL, description="the model's name at the provider")
    base_url: Address = Field(
        default="https://api.anthropic.com",
        description="https address of the provider or of a gateway; http on this machine only",
    )
    call_s: float = Field(
        default=60.0,
        gt=0,
        le=600,
        description="for one call, of a long document for example; within a question its stage's share of the deadline is the bound",
    )
    streaming: bool = Field(default=False, description="receive the answer as a stream of events")
    thinking: Literal["off", "model"] = Field(
        default="off",
        description="`off` asks for the answer at once; `model` leaves it to the model, for those that cannot do without thinking",
    )
    price_input: float = Field(
        default=0.0, ge=0, le=1e6, description="price of a million tokens read, for the record of drafts, routes and searches"
    )
    price_output: float = Field(default=0.0, ge=0, le=1e6, description="price of a million tokens written, for the same")


class CohereSettings(_Calls):
    """Cohere's models. The key stands in the environment, never here."""

    key_env: str = Field(
        pattern=_ENV, description="name of the environment variable that holds the key; while it is empty nothing is sent"
    )
    base_url: Address = Field(
        default="https://api.cohere.com",
        description="https address of the provider or of a gateway; http on this machine only",
    )
    embed_model: str | None = Field(default=None, pattern=_MODEL, description='the model of `[models] embedder = "cohere"`')
    dimensions: int = Field(default=1024, ge=2, le=4096, description="how many numbers its vectors have")
    ask_dimensions: bool = Field(
        default=True, description="ask for vectors of that many numbers; `false` for models that know one length only"
    )
    rerank_model: str | None = Field(default=None, pattern=_MODEL, description='the model of `[search] rerank_by = "cohere"`')
    embed_price: float = Field(
        default=0.0, ge=0, le=1e6, description="price of a million tokens, for the record; in whatever currency"
    )
    rerank_price: float = Field(default=0.0, ge=0, le=1e6, description="price of a thousand searches, for the record")


class OpenAICompatibleSettings(_Calls):
    """An embedder behind an OpenAI-compatible endpoint, one's own for example. The key stands in the environment, never here."""

    base_url: Address = Field(description="https address before `/embeddings`, mostly ending in `/v1`; http on this machine only")
    key_env: str | None = Field(
        default=None,
        pattern=_ENV,
        description="name of the environment variable that holds the key, where the endpoint wants one",
    )
    model: str = Field(pattern=_MODEL, description="the model's name at the endpoint")
    dimensions: int = Field(ge=2, le=4096, description="how many numbers its vectors have")
    ask_dimensions: bool = Field(default=False, description="ask for vectors of that many numbers, where the endpoint knows how")
    question_prefix: str = Field(
        default="", max_length=500, description="stands in front of each question, as some models want it"
    )
    passage_prefix: str = Field(default="", max_length=500, description="stands in front of each passage")
    embed_price: float = Field(
        default=0.0, ge=0, le=1e6, description="price of a million tokens, for the record; in whatever currency"
    )


class ProviderSettings(_Strict):
    """Who may be sent text, where a `disclose` permit of the policies covers it."""

    claude: ClaudeSettings | None = Field(
        default=None,
        description="Claude drafts a query where no tool and no reading fits, and writes contexts; in the policies it is called `claude`",
    )
    cohere: CohereSettings | None = Field(
        default=None,
        description="Cohere embeds and reranks, where `[models]` and `[search]` say so; in the policies it is called `cohere`",
    )
    openai_compatible: OpenAICompatibleSettings | None = Field(
        default=None,
        description="an endpoint that embeds, where `[models]` says so; in the policies it is called `openai_compatible`",
    )


class ContextSettings(_Strict):
    """How contexts are written, and what that may cost. Prices are the provider's, of a million tokens."""

    model: str | None = Field(
        default=None, pattern=_MODEL, description="the model that writes them; default: that of `[providers.claude]`"
    )
    send: Literal["auto", "direct", "batch"] = Field(
        default="auto",
        description="one by one, in batches, or the first `batch_from` of a run one by one and the others in batches",
    )
    batch_from: int = Field(default=50, ge=0, le=100_000, description="how many `auto` asks one by one")
    wait_s: float = Field(
        default=3600.0, ge=0, le=172_800, description="how long a run waits for its batches; a later run collects what came later"
    )
    window_tokens: int = Field(
        default=120_000, ge=1_000, le=2_000_000, description="how much of a document the model reads at once, about"
    )
    spend_cap: float | None = Field(
        default=None, ge=0, description="the most that one run may spend, in `currency`; needs the prices"
    )
    token_cap: int | None = Field(default=None, ge=0, description="the most tokens that one run may use, all kinds together")
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="what the prices are in")
    price_input: float | None = Field(default=None, ge=0, le=1e6, description="of tokens read anew")
    price_cache_write: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        description="of tokens written to the provider's cache, in batches for an hour; default: `price_input`",
    )
    price_cache_read: float | None = Field(
        default=None, ge=0, le=1e6, description="of tokens read from the provider's cache; default: `price_input`"
    )
    price_output: float | None = Field(default=None, ge=0, le=1e6, description="of tokens written")
    batch_share: float = Field(default=0.5, gt=0, le=1, description="what a batch costs of these prices")


_FILE = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,3}$"


class _OwnModel(_Strict):
    """A folder with a model in ONNX, as its makers publish it."""

    path: Path = Field(description="the folder: the model and what its makers put beside it")
    file: str | None = Field(
        default=None, pattern=_FILE, description="the model in that folder; default: `model.onnx`, else `onnx/model.onnx`"
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9A-Fa-f]{64}$",
        description="digest of all its files that change a result; without it, or with another one, the model is not opened. "
        "`pointsman doctor` prints it",
    )
    max_tokens: int | None = Field(
        default=None, ge=32, le=8192, description="how many tokens it reads at once; default: what its folder says, 512 at most"
    )


class BiEncoderSettings(_OwnModel):
    """An embedder of your own, on this machine. What the folder says of itself is believed unless a setting says otherwise."""

    pooling: Literal["folder", "mean", "cls", "model"] = Field(
        default="folder",
        description="how the vectors of tokens become that of a text; `model`: it does so itself; `folder`: as the folder says",
    )
    dimensions: int | None = Field(
        default=None, ge=2, le=4096, description="how many numbers its vectors have, where that is to be checked"
    )
    token_dimensions: int = Field(
        default=128, ge=0, le=1024, description="how many numbers of each token are kept for the rerank; 0 leaves that out of it"
    )
    question_prefix: str | None = Field(
        default=None, max_length=500, description="stands in front of each question; default: what the folder says, else nothing"
    )
    passage_prefix: str | None = Field(default=None, max_length=500, description="stands in front of each passage; the same")
    identifiers: Literal["kept", "apart"] = Field(
        default="kept", description="`apart` reads `maxRetryCount` as `max Retry Count`, as the shipped model does"
    )


class CrossEncoderSettings(_OwnModel):
    """A reranker of your own, on this machine: it reads the question and a passage together."""

    passages: int = Field(
        default=20, ge=2, le=1000, description="how many of the best it judges, one after the other; the rest keep their places"
    )


class ModelSettings(_Strict):
    embedder: Literal["local", "bi_encoder", "cohere", "openai_compatible"] = Field(
        default="local",
        description="whose vectors an index holds: the shipped model's, one's of your own (`[models.bi_encoder]`), or a provider's; "
        "then what the policies do not let it have is found by its words. Run `index --full` after a change",
    )
    threads: int = Field(default=1, ge=1, le=64, description="threads of each model on this machine")
    bi_encoder: BiEncoderSettings | None = Field(
        default=None, description='an embedder of your own, on this machine, of `embedder = "bi_encoder"` (adr/0032)'
    )
    cross_encoder: CrossEncoderSettings | None = Field(
        default=None, description='a reranker of your own, on this machine, of `[search] rerank_by = "cross_encoder"` (adr/0032)'
    )


class Settings(_Strict):
    """Everything `pointsman.toml` can say."""

    folder: Path = Field(description="the folder of the configuration file; set by `load_settings`")
    policies: Path = Field(default=Path("policies"), description="the policy folder")
    state: Path = Field(default=Path("state"), description="keys, index, ledger and log; nothing else is written")
    policy_grace_s: float = Field(
        default=60.0, ge=0, le=3600, description="how long the last good policies serve while the folder is broken"
    )
    sources: Mapping[str, SourceSettings] = Field(
        default_factory=dict,
        description="one table a source, by its name in sources.yaml: the folder of its documents, or the rows of a query",
    )
    tables: Mapping[TableName, TableSettings] = Field(
        default_factory=dict,
        description="one table a relation of the governed SQL, by the name that `source` in catalog.yaml gives; `pointsman index` copies it",
    )
    index: IndexSettings = Field(default=IndexSettings(), description="scheduled runs, and from when on an index is old")
    stores: StoreSettings = Field(default=StoreSettings(), description="where documents are indexed")
    ledger: LedgerSettings = Field(default=LedgerSettings(), description="where decisions are recorded")
    log: LogSettings = Field(default=LogSettings(), description="where decisions are logged")
    search: SearchSettings = Field(default=SearchSettings(), description="how documents are searched and ranked")
    cache: CacheSettings = Field(
        default=CacheSettings(),
        description="evidence kept in the memory of one process for the same question under the same grants",
    )
    deadlines: DeadlineSettings = Field(default=DeadlineSettings(), description="how long a question and its stages may take")
    models: ModelSettings = Field(default=ModelSettings(), description="models on this machine")
    contexts: ContextSettings = Field(
        default=ContextSettings(), description='contexts that Claude writes, for sources with `contexts = "claude"`'
    )
    providers: ProviderSettings = Field(
        default=ProviderSettings(),
        description="models at somebody else's; nothing is sent without a `disclose` permit in the policies",
    )

    def at(self, path: Path) -> Path:
        """`path` against the folder of the configuration file."""
        return (self.folder / path).absolute()

    def database_url(self, url: str) -> str:
        """A relative SQLite file is meant from the configuration's folder."""
        prefix = "sqlite:///"
        if url.startswith(prefix) and not url.startswith(prefix + "/") and url != prefix:
            return prefix + str(self.at(Path(url[len(prefix) :])))
        return url

    @property
    def contextual_sources(self) -> frozenset[str]:
        return frozenset(name for name, source in self.sources.items() if source.index == "contextual")

    @property
    def plain_sources(self) -> frozenset[str]:
        return frozenset(name for name, source in self.sources.items() if source.index == "plain")

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
    if "folder" in raw:
        raise UsageError("config_unknown_key", "`folder` is not a known setting", "paths are relative to the file itself")
    if _holds_nul(raw):
        raise UsageError("config_invalid", "a text in the configuration file holds NUL", "take it out")
    try:
        return _with_its_keys(_with_its_writer(_with_its_model(Settings.model_validate({**raw, "folder": folder}))))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(first["loc"][-1]), _known(first["loc"][:-1]), n=1, cutoff=0.4)
            hint = f"did you mean `{near[0]}`" if near else "remove it"
            raise UsageError("config_unknown_key", f"`{place}` is not a known setting", hint) from None
        plain = first["msg"].removeprefix("Value error, ")
        said = _SAID.get(first["type"], plain[:1].lower() + plain[1:])
        if first.get("ctx", {}).get("pattern") in (_HOST, _ADDRESS):
            said = "it is no https address (http is for this machine only)"
        raise UsageError("config_invalid", f"`{place}` is wrong: {said}", "correct that key") from None


def _with_its_keys(settings: Settings) -> Settings:
    cluster = settings.stores.opensearch
    pairs = (("username", "password_env"), ("password_env", "username"), ("client_key", "client_cert"))
    for given, missing in pairs if cluster is not None else ():
        if getattr(cluster, given) is not None and getattr(cluster, missing) is None:
            raise UsageError(
                "config_invalid", f"`stores.opensearch.{given}` stands without `{missing}`", "give both, or neither of them"
            )
    return settings


def _with_its_model(settings: Settings) -> Settings:
    if settings.search.strategy in ASKING_A_MODEL and settings.providers.claude is None:
        raise UsageError(
            "strategy_without_model", f"the strategy `{settings.search.strategy}` asks a model, and none is configured",
            "name one in `[providers]`",
        )  # fmt: skip
    cohere, embedder = settings.providers.cohere, settings.models.embedder
    needs = [
        ("[models] embedder", "cohere", "embed_model", embedder == "cohere" and not (cohere and cohere.embed_model)),
        ("[models] embedder", "openai_compatible", "model",
         embedder == "openai_compatible" and settings.providers.openai_compatible is None),
        ("[search] rerank_by", "cohere", "rerank_model",
         settings.search.rerank_by == "cohere" and not (cohere and cohere.rerank_model)),
    ]  # fmt: skip
    own = [
        ("[models] embedder", "bi_encoder", settings.models.bi_encoder is None, embedder),
        ("[search] rerank_by", "cross_encoder", settings.models.cross_encoder is None, settings.search.rerank_by),
    ]
    for setting, model, absent, named in own:
        if absent and named == model:
            raise UsageError(
                "model_missing",
                f"`{setting}` names `{model}`, and there is no `[models.{model}]`",
                "give its `path` and `sha256`",
            )
    for setting, provider, key, missing in needs:
        if missing:
            raise UsageError(
                "provider_missing", f"`{setting}` names `{provider}`, which is not configured for it",
                f"give `{key}` in `[providers.{provider}]`",
            )  # fmt: skip
    return settings


def _with_its_writer(settings: Settings) -> Settings:
    for name, source in settings.sources.items():
        if source.contexts == "claude" and settings.providers.claude is None:
            raise UsageError(
                "contexts_without_model", f"`contexts` of `[sources.{name}]` are Claude's, and there is no `[providers.claude]`",
                "name its model and key, or choose other contexts",
            )  # fmt: skip
    written = settings.contexts
    if written.spend_cap is not None and None in (written.price_input, written.price_output):
        raise UsageError(
            "cap_without_prices", "`[contexts] spend_cap` cannot be held without prices", "set `price_input` and `price_output`"
        )
    return settings


_SAID = {"path_type": "it must be a path", "model_type": "it must be a table", "dict_type": "it must be a table"}
"""What pydantic would say in words of the code."""


def _holds_nul(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_nul, [*value, *value.values()]))
    return any(map(_holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _known(place: tuple[int | str, ...]) -> list[str]:
    """The keys that may stand at `place`."""
    return [name for name, _ in _fields(_model_at(place))]


def _model_at(place: tuple[int | str, ...]) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for depth, part in enumerate(place):
        if depth == 1 and place[0] in _NAMED:
            continue  # the names are the deployment's own
        field = model.model_fields.get(str(part))
        model = (_model_of(field.annotation) if field is not None else None) or model
    return model


_NAMED = ("sources", "tables")
"""Keys under which the deployment's own names stand."""


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The table that stands behind a key, if one does; `X | None` is `X`."""
    choices = (annotation, *get_args(annotation))
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return [(name, field) for name, field in model.model_fields.items() if name != "folder"]


# --- the document -----------------------------------------------------------------------------------------------------


def settings_markdown() -> str:
    """deploy/configuration.md: every setting with its type, default and meaning. `python -m router.config` prints it."""
    lines = [
        "# Settings",
        "",
        f"`{FILE_NAME}`, typed and strict: an unknown key is an error that names the nearest known one. Paths are relative to",
        "the file. What a security reviewer must approve is not here but in the policy folder (`policies/README.md`). The file is",
        "named by `--config`, else by `POINTSMAN_CONFIG`, else it is the nearest one in the working folder or above.",
        "Made from the code by `python -m router.config > deploy/configuration.md`.",
    ]
    for title, intro, model in _tables():
        own = [(name, field) for name, field in _fields(model) if title or _model_of(field.annotation) is None]
        lines += ["", f"## `[{title}]`" if title else "## At the top", "", f"{intro[:1].upper()}{intro[1:]}.", ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {_type_words(field)} | {_default_words(field)} | {field.description} |" for name, field in own]
    return "\n".join(lines) + "\n"


def _tables() -> Iterator[tuple[str, str, type[BaseModel]]]:
    yield "", "folders, and how long broken policies are borne", Settings
    for name, field in _fields(Settings):
        model = _model_of(field.annotation)
        if model is None:
            continue
        title = f"{name}.NAME" if name in _NAMED else name
        yield title, str(field.description), model
        for inner, part in _fields(model):
            if deeper := _model_of(part.annotation):
                yield f"{title}.{inner}", str(part.description), deeper


def _type_words(field: FieldInfo) -> str:
    model = _model_of(field.annotation)
    if model is not None:
        return "table"
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if kind in _TYPE_WORDS]
    if get_origin(field.annotation) is Mapping:
        return "table of text"
    word = "list of text" if get_origin(field.annotation) is tuple else _TYPE_WORDS[kinds[0]]
    return " ".join([word, *_bounds(field)])


_TYPE_WORDS: Mapping[Any, str] = {Path: "path", str: "text", int: "whole number", float: "number", bool: "true or false"}


def _bounds(field: FieldInfo) -> Iterator[str]:
    for rule in field.metadata:
        for name, word in (("ge", "from"), ("gt", "above"), ("le", "to")):
            if (value := getattr(rule, name, None)) is not None:
                yield f"{word} {value:g}"


def _default_words(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if (
        field.default is None
        or field.default == ()
        or field.default_factory is not None
        or _model_of(field.annotation) is not None
    ):
        return ""
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


if __name__ == "__main__":
    import sys

    sys.stdout.write(settings_markdown())
