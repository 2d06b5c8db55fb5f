"""The composition root: `Settings` in, a `Router` out. The only module that imports `connectors`.

Connectors are imported where they are first needed, so that `pointsman --help` and `whoami` load no model and no engine.
The file is longer than most because everything is wired here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from router import decision
from router.ask import MAX_QUESTION_CHARS, ask
from router.ask_sql import SqlAnswer, SqlLine, ask_sql
from router.attempts import Attempts, Spent
from router.catalog import Relation
from router.config import OpenAICompatibleSettings, Settings, find_settings, load_settings
from router.domain import (
    Answer,
    Compared,
    Generation,
    Grants,
    LabelChange,
    Link,
    ModelCard,
    Named,
    Offer,
    Principal,
    Question,
    Record,
    Refusal,
    Revocation,
    Source,
    SqlLimits,
    Switched,
    TableGrant,
    Wanted,
)
from router.egress import Egress, IndexEmbedder, RemoteEmbedder, RemoteModel, RemoteReranker, Sent, index_card
from router.errors import PointsmanError, PolicyError, Refused, SourceError, UsageError
from router.execute import Threads
from router.identity import identify, indexing_service
from router.kept import Kept
from router.line import Keeping, Line, OwnReranker
from router.memo import Memo
from router.policy import Fault, LivePolicies, PolicySet, keep_version
from router.routing.decide import POINTS
from router.routing.heads import Heads, load_heads

if TYPE_CHECKING:
    from connectors.claude import Claude
    from connectors.cohere_models import Cohere
    from connectors.context_cache import SqlContexts
    from connectors.duckdb_tables import DuckTables, LiveRows, PhysicalCopies
    from connectors.ledger import SqlLedger
    from connectors.local_models import BiEncoder, MiniLM
    from connectors.manifest import SqlManifest
    from connectors.oidc import OidcVerifier
    from connectors.openai_compatible import OpenAICompatible
    from connectors.opensearch_documents import OpenSearchDocuments
    from connectors.sqlite_documents import SqliteDocuments
    from connectors.table_snapshots import DuckSnapshots
    from connectors.trials import DuckTrial, SqliteTrial
    from router.filters import EntityType
    from router.ingest.build import Judge, Moment
    from router.ingest.entities import Aliases, PublicColumns
    from router.ingest.freshness import Freshness
    from router.ingest.generations import RolledBack
    from router.ingest.reconcile import Finding, Forgotten, IndexStatus
    from router.ingest.repair import Repaired
    from router.ingest.scribe import Purse, Scribe, Writing
    from router.ingest.tables import TableFinding, TableReport
    from router.ingest.watch import Round, Seen, Stop
    from router.ingest.workshop import Contexts, IndexReport, Progress, SourceJob, SourceReport, Workshop
    from router.policy.governance import DatasetFacts
    from router.ports import Embedder

DEFAULT_K = 5
MAX_K = 50
MAX_CONTEXT = 20
MAX_DEADLINE_S = 600
WANTED: tuple[str, ...] = get_args(Wanted)
VOCABULARIES = 64
NOTHING_INDEXED = "empty"
"""The version of a document store that holds nothing for a tenant."""
MAX_NARROWING_CHARS = 300
INDEXER = "service:indexer"
CONTEXTS_FILE = "contexts.sqlite"
FORGET_WAITS_S = 30.0
"""For another run to let go of the index."""
MODEL_FOLDER = Path(__file__).with_name("model")


class Router:
    """Ask, index and review over one configuration. Thread-safe; closes as a context manager."""

    def __init__(self, settings: Settings, *, development: bool = True) -> None:
        """Without `development` nobody is believed while a development issuer is trusted: for doors that others can reach."""
        self.settings = settings
        self._development = development
        self._lock = threading.RLock()
        self._verifier: tuple[Mapping[str, Any], OidcVerifier] | None = None
        self._refused = decision.RefusedTokens(_clock_us)
        self._version = ""
        self.policies = LivePolicies(
            settings.policy_folder, grace_s=settings.policy_grace_s, on_load=self._policy_loaded, on_fault=self._policy_broken
        )

    @classmethod
    def open(cls, config: str | Path | None = None, *, development: bool = True) -> Self:
        """From a `pointsman.toml`: the one given, else POINTSMAN_CONFIG, else the nearest above the working folder."""
        return cls(load_settings(find_settings(Path(config) if config is not None else None)), development=development)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is still summed, then let go of threads and files. Idempotent."""
        built = self.__dict__
        self._append_quietly(self._refused.drain())
        for name in (
            "tables",
            "threads",
            "leg_threads",
            "claude",
            "context_model",
            "cohere",
            "contexts",
            "store",
            "manifest",
            "ledger",
        ):
            if (part := built.pop(name, None)) is not None:
                part.close()
        for name in ("line", "sql_line", "remote_embedder", "remote_reranker"):
            built.pop(name, None)

    # --- asking ---------------------------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        *,
        token: str,
        k: int = DEFAULT_K,
        route: Wanted | None = None,
        context: Sequence[str] = (),
        strategy: str | None = None,
        sources: Sequence[str] = (),
        filters: Sequence[str] = (),
        now: datetime | None = None,
        deadline_s: float | None = None,
    ) -> Answer:
        """Governed passages or rows for one question. `route` says what to search, else the router chooses; `context` are earlier
        questions, oldest first, on which this one may lean. `strategy` says how documents are searched (adr/0023); `sources` and
        `filters` (FIELD=VALUE) leave documents out, under what the policies grant and never beyond.

        `now` replaces the clock for policy dates: for tests, so it is taken with a token of a development issuer only, and the
        answer and the record say so.

        Raises `UsageError`, `Refused` (identity), `SourceError` and `LedgerError`; a refusal by policy is an answer.
        """
        asked = _parse_question(question, k, now, self.settings.deadlines.ask_s if deadline_s is None else deadline_s)
        if route is not None:
            asked = replace(asked, route=_parse_route(route))
        if context:
            asked = replace(asked, context=_parse_context(context))
        if strategy is not None or sources or filters:
            asked = replace(
                asked, strategy=strategy, sources=_parse_texts("sources", sources), filters=_parse_texts("filters", filters)
            )
        try:
            return ask(self.line, token, asked)
        except Refused as error:
            self._token_refused(token, error)
            raise

    def ask_sql(
        self, text: str, *, token: str, run: bool = True, now: datetime | None = None, deadline_s: float | None = None
    ) -> SqlAnswer:
        """One SELECT over governed names, judged by the gate and, with `run`, answered with the caller's own rows."""
        asked = _parse_question(text, 1, now, self.settings.deadlines.ask_s if deadline_s is None else deadline_s)
        try:
            return ask_sql(self.sql_line, token, asked, run=run)
        except Refused as error:
            self._token_refused(token, error)
            raise

    async def ask_async(self, question: str, *, deadline_s: float | None = None, **options: Any) -> Answer:
        """`ask` for servers: one call on a thread, the line itself stays synchronous. Waiting for a thread takes of the deadline."""
        whole_s, start_s = self.settings.deadlines.ask_s if deadline_s is None else deadline_s, time.monotonic()

        def run() -> Answer:
            waited_s = time.monotonic() - start_s
            if 0 < whole_s <= waited_s:
                raise SourceError("deadline", "the deadline passed before there was a thread", "try again later", retryable=True)
            left_s = whole_s - waited_s if 0 < whole_s <= MAX_DEADLINE_S else whole_s
            return self.ask(question, deadline_s=left_s, **options)

        return await asyncio.to_thread(run)

    def whoami(self, token: str) -> Principal:
        """The principal that a token stands for. Raises `Refused`."""
        return self._identify(token, self.policies.current())

    def sources(self, token: str) -> Offer:
        """What the caller could ask about, by name. Raises `Refused` (identity); a refusal by policy stands in the offer."""
        policies = self.policies.current()
        principal = self._identify(token, policies)
        try:
            grants = policies.grants(principal, datetime.now(UTC))
        except Refused as error:
            return Offer(refusal=Refusal(error.code, error.message))
        return _build_offer(policies, grants)

    def readiness(self) -> dict[str, str]:
        """By part, `ok` or the code of what is wrong: no name, no path and no count, for a probe that anybody may send."""
        parts: dict[str, Callable[[], object]] = {
            "policies": self._check_policies,
            "ledger": lambda: self.ledger.check(),  # noqa: PLW0108 (opening it may fail, too)
            "model": self.open_models,
            "documents": self._check_documents,
            "tables": self._check_tables,
        }
        return {name: _checked(run) for name, run in parts.items()}

    def open_models(self) -> None:
        """The shipped ones and those of one's own, as a door does before it opens. Raises `SourceError` where one is not the declared."""
        _ = self.embedder, self.own_embedder, self.own_reranker

    def _check_policies(self) -> None:
        """Also the grace is a warning: red at once, while the last good version still serves."""
        self.verifier(self.policies.current())
        if not self.policies.ready:
            raise PolicyError("policy_broken", "the policy folder is broken", "see `pointsman policies check`")

    def _check_documents(self) -> None:
        """Also that something was indexed: before, every question about documents fails."""
        declared = self.policies.current().sources
        for tenant in {declared[name].tenant for name in self.settings.sources if name in declared}:
            if self.store.version(tenant) == NOTHING_INDEXED:
                raise SourceError("store_missing", "nothing has been indexed here yet", "run `pointsman index`")

    def _check_tables(self) -> None:
        snapshot = self.snapshots.current() if self.settings.tables else None
        if self.settings.tables and (snapshot is None or not snapshot.version):
            raise SourceError("tables_missing", "no table has been copied yet", "run `pointsman index`")

    def _identify(self, token: str, policies: PolicySet) -> Principal:
        try:
            return identify(token, self.verifier(policies), policies.issuers, policies.types, now_s=_clock_us() // 1_000_000)
        except Refused as error:
            self._token_refused(token, error)
            raise

    def mint(self, person: str, *, minutes: int | None = None, people: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """A short-lived token of the development issuer for a person in people.yaml; verified like any other when used."""
        from connectors.oidc import DEVELOPMENT_MINUTES, mint_token

        policies = self.policies.current()
        known = policies.people if people is None else people
        if person not in known:
            raise UsageError("person_unknown", f"there is no person `{person}`", "see people.yaml in the policy folder")
        alias = known[person].get("issuer")
        issuer = policies.issuers.get(str(alias))
        if issuer is None or not issuer.development:
            raise UsageError(
                "issuer_not_development", f"`{alias}` is no development issuer", "use --token with a token of your issuer"
            )
        return mint_token(
            known[person], issuer, self.development_key, now_s=_clock_us() // 1_000_000, minutes=minutes or DEVELOPMENT_MINUTES
        )

    def read_inputs(self, asked: Record, token: str) -> dict[str, Any] | None:
        """The personal inputs of a decision, for who may audit its tenant, or for one's own where `explain_own` is granted.

        The use is recorded before anything is shown. Raises `Refused`.
        """
        reader, now = self.whoami(token), datetime.now(UTC)
        policies = self.policies.current()
        body = json.loads(asked.body)
        own = (
            body.get("principal") == decision.principal_digest(self.key, reader.tenant, reader.name)
            and asked.tenant == reader.tenant
        )
        action = "explain_own" if own else "audit"
        if not policies.authorize(reader, now, action, tenant=asked.tenant):
            raise Refused(
                "not_permitted", f"you may not read the inputs of this decision (`{action}` is not granted)", "ask a reviewer"
            )
        use = decision.audit_use(
            tenant=asked.tenant, at_us=_clock_us(), principal=reader, key=self.key, action=action, target=asked.decision_id
        )
        self.ledger.append([use])
        return decision.load_inputs(asked)

    def _token_refused(self, token: str, error: Refused) -> None:
        """A refused token is one structured line and part of a sum a minute: there is no principal, so no decision.
        Policies that are broken, or trust a development issuer where none may be, refuse everybody: that is readiness."""
        if error.code in ("policy_invalid", "development_issuer"):
            return
        issuer = _claimed_issuer(token)
        alias = next((name for name, known in self.policies.current().issuers.items() if known.iss == issuer), "unknown")
        self.log("token_refused", issuer=alias, code=error.code)
        self._append_quietly(self._refused.add(alias, error.code))

    def _append_quietly(self, records: Sequence[Record]) -> None:
        """Sums must not turn a refusal into another error; what cannot be written is in the log line."""
        if not records:
            return
        try:
            self.ledger.append(records)
        except Exception as error:  # noqa: BLE001 (the refusal stands either way)
            self.log("refusals_unrecorded", error=type(error).__name__)

    # --- parts, built on first use ----------------------------------------------------------------------------------

    @functools.cached_property
    def line(self) -> Line:
        """What every question meets, built at the first one."""
        with self._lock:
            settings = self.settings
            return Line(
                policies=self.policies,
                verifier=self.verifier,
                ledger=self.ledger,
                store=self.store,
                embedder=self.embedder,
                threads=self.threads,
                leg_threads=self.leg_threads,
                search=settings.search,
                two_indexes=frozenset(name for name, one in settings.sources.items() if one.contexts == "both"),
                prefer_plain=settings.plain_sources,
                recency_days={name: days for name, one in settings.sources.items() if (days := one.recency_days) is not None},
                tables=lambda: self.tables,
                tables_version=lambda: self.snapshots.path().stem,
                vocabularies=Memo(limit=VOCABULARIES),
                examples=Memo(),
                heads=lambda: self.heads,
                point=POINTS["default"],
                model=lambda: self.remote_model,
                remote_embedder=lambda: self.remote_embedder,
                remote_reranker=lambda: self.remote_reranker,
                limits=SqlLimits(),
                embed_share=settings.deadlines.embed_share,
                rerank_share=settings.deadlines.rerank_share,
                key=self.key,
                question_form=settings.ledger.question,
                clock_us=_clock_us,
                sealed=self._sealed,
                alarm=self.log,
                keeping=self.keeping,
                own_embedder=self.own_embedder,
                own_reranker=self.own_reranker,
            )

    @functools.cached_property
    def sql_line(self) -> SqlLine:
        with self._lock:
            return SqlLine(
                policies=self.policies,
                verifier=self.verifier,
                ledger=self.ledger,
                tables=self.tables,
                limits=SqlLimits(),
                key=self.key,
                question_form=self.settings.ledger.question,
                clock_us=_clock_us,
                sealed=self._sealed,
            )

    @functools.cached_property
    def tables(self) -> DuckTables:
        return open_tables(self.snapshots.path)

    def verifier(self, policies: PolicySet) -> OidcVerifier:
        """The verifier of a policy version's issuers; its cached keys live on while the issuers stay the same."""
        from connectors.oidc import OidcVerifier

        if not self._development and any(issuer.development for issuer in policies.issuers.values()):
            raise Refused(
                "development_issuer", "a development issuer is trusted at an open door, so nobody is believed", "ask the operator"
            )
        held = self._verifier
        if held is not None and held[0] == policies.issuers:
            return held[1]
        key = self.development_key
        made = OidcVerifier(policies.issuers, development_key=key if key.exists() else None, folder=self.settings.policy_folder)
        self._verifier = (policies.issuers, made)
        return made

    @functools.cached_property
    def threads(self) -> Threads:
        return Threads()

    @functools.cached_property
    def leg_threads(self) -> Threads:
        return Threads()

    @functools.cached_property
    def ledger(self) -> SqlLedger:
        return _build_ledger(self.settings, self.state)

    @functools.cached_property
    def store(self) -> SqliteDocuments | OpenSearchDocuments:
        return _build_store(self.settings, lambda: self.policies.current().stored_type)

    def clear_cluster(self, tenant: str) -> None:
        """Remove what a throw-away router keeps outside its folder."""
        if self.settings.stores.opensearch is not None:
            cast("OpenSearchDocuments", self.store).drop(tenant)

    @functools.cached_property
    def embedder(self) -> MiniLM:
        from connectors.local_models import load_embedder

        return load_embedder(MODEL_FOLDER, threads=self.settings.models.threads)

    @functools.cached_property
    def keeping(self) -> Keeping | None:
        """Evidence of earlier questions, where the configuration wants it kept."""
        cache = self.settings.cache
        if not cache.enabled:
            return None
        kept = Kept(most_entries=cache.entries, most_bytes=cache.megabytes << 20, lifetime_s=cache.lifetime_s)
        digest = hashlib.sha256(self.settings.model_dump_json().encode()).hexdigest()
        return Keeping(kept, Memo(), digest)

    def _forget_kept(self) -> None:
        """What changed here is noticed by the next question; what was erased is not to wait for one."""
        if self.keeping is not None:
            self.keeping.kept.clear()

    @functools.cached_property
    def own_embedder(self) -> BiEncoder | None:
        """The deployment's own model, where the index holds its vectors. Raises `SourceError` where it is not the declared one."""
        models = self.settings.models
        if models.embedder != "bi_encoder" or models.bi_encoder is None:
            return None
        from connectors.local_models import Choices, load_bi_encoder

        named = models.bi_encoder
        choices = Choices(
            pooling=None if named.pooling == "folder" else named.pooling,
            dimensions=named.dimensions,
            max_tokens=named.max_tokens,
            token_dimensions=named.token_dimensions,
            question_prefix=named.question_prefix,
            passage_prefix=named.passage_prefix,
            identifiers=named.identifiers,
        )
        folder = self.settings.at(named.path)
        return load_bi_encoder(folder, sha256=named.sha256, choices=choices, file=named.file, threads=models.threads)

    @functools.cached_property
    def own_reranker(self) -> OwnReranker | None:
        """The deployment's own judge of a question and a passage, where it reranks. Raises as above."""
        models = self.settings.models
        if self.settings.search.rerank_by != "cross_encoder" or models.cross_encoder is None:
            return None
        from connectors.local_models import load_cross_encoder

        named = models.cross_encoder
        model = load_cross_encoder(
            self.settings.at(named.path),
            sha256=named.sha256,
            max_tokens=named.max_tokens,
            file=named.file,
            threads=models.threads,
        )
        return OwnReranker(model.id, model, named.passages)

    @functools.cached_property
    def heads(self) -> Heads:
        """The router's weights."""
        return load_heads(MODEL_FOLDER)

    @functools.cached_property
    def claude(self) -> Claude | None:
        """The hosted model, where the configuration names it and its key is there. Only `router.egress` may call it."""
        return _build_claude(self.settings)

    @functools.cached_property
    def cohere(self) -> Cohere:
        """The connection that its two models share. Only `router.egress` may call them."""
        return _build_cohere(self.settings)

    @functools.cached_property
    def attempts(self) -> Mapping[str, Attempts]:
        """By provider: how often it is called, when it is left alone, and what its calls came to."""
        providers = self.settings.providers
        named = {"claude": providers.claude, "cohere": providers.cohere, "openai_compatible": providers.openai_compatible}
        return {
            name: Attempts(name, at_once=one.calls_at_once, call_s=one.call_s) for name, one in named.items() if one is not None
        }

    def spent(self) -> dict[str, Spent]:
        """What calls of hosted models came to since this router was opened, by provider."""
        return {name: calls.spent() for name, calls in self.attempts.items()}

    @functools.cached_property
    def remote_model(self) -> RemoteModel | None:
        """What drafts queries, routes and searches, where it is named and its key is there."""
        named, claude = self.settings.providers.claude, self.claude
        if named is None or claude is None:
            return None
        return RemoteModel(claude, self.attempts["claude"], named.price_input, named.price_output)

    @functools.cached_property
    def remote_embedder(self) -> RemoteEmbedder | None:
        """Whose vectors the index holds, where that is not the local model."""
        settings = self.settings
        if settings.models.embedder == "cohere" and (cohere := settings.providers.cohere) and cohere.embed_model:
            from connectors.cohere_models import CohereEmbedder

            hosted = CohereEmbedder(
                self.cohere, model=cohere.embed_model, dimensions=cohere.dimensions, ask_dimensions=cohere.ask_dimensions
            )
            return RemoteEmbedder(hosted, self.attempts["cohere"], cohere.embed_price)
        if settings.models.embedder == "openai_compatible" and (named := settings.providers.openai_compatible):
            return RemoteEmbedder(_build_openai_compatible(named), self.attempts["openai_compatible"], named.embed_price)
        return None

    @functools.cached_property
    def remote_reranker(self) -> RemoteReranker | None:
        cohere = self.settings.providers.cohere
        if self.settings.search.rerank_by != "cohere" or cohere is None or not cohere.rerank_model:
            return None
        with self._lock:
            connection = self.cohere
        from connectors.cohere_models import CohereReranker

        return RemoteReranker(
            CohereReranker(connection, model=cohere.rerank_model), self.attempts["cohere"], 1000 * cohere.rerank_price
        )

    @property
    def index_card(self) -> ModelCard:
        """Of the model whose vectors the index holds."""
        return self.own_embedder.card if self.own_embedder is not None else index_card(self.embedder.card, self.remote_embedder)

    @functools.cached_property
    def manifest(self) -> SqlManifest:
        from connectors.manifest import open_manifest

        return open_manifest(f"sqlite:///{self.state / 'manifest.sqlite'}")

    @functools.cached_property
    def log(self) -> Callable[..., None]:
        """One JSON line an event, to a file in the state folder, another file, or standard error (`-`)."""
        make_state(self.settings)
        return _open_log(self.settings)

    @functools.cached_property
    def key(self) -> bytes:
        """The record key: names in records and filter receipts are digests under it."""
        return load_record_key(self.state / "keys" / "record.key")

    @functools.cached_property
    def state(self) -> Path:
        folder = self.settings.state_folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            raise UsageError(
                "state_unwritable", "the state folder cannot be made", "check `state` in the configuration"
            ) from None
        return folder

    @property
    def development_key(self) -> Path:
        return self.settings.state_folder / "keys" / "development.pem"

    def _sealed(self, record: Record, link: Link) -> None:
        self.log("decision", **decision.decision_line(record, link))

    def _policy_loaded(self, policies: PolicySet) -> None:
        """Keep the version's text before it serves, and say in the ledger from when it did."""
        keep_version(policies, self.state)
        if self._version and policies.version != self._version:
            self.ledger.append(
                [decision.policy_loaded(at_us=_clock_us(), policy_version=policies.version, previous_version=self._version)]
            )
            self.log("policy_loaded", policy_version=policies.version, previous_version=self._version)
        self._version = policies.version

    def _policy_broken(self, fault: Fault) -> None:
        """An alarm: from now on the last good version serves, and in `policy_grace_s` nothing does."""
        self.log("policy_broken", file=fault.file, line=fault.line, code=fault.code, grace_s=self.settings.policy_grace_s)

    # --- indexing ---------------------------------------------------------------------------------------------------

    def index(
        self,
        names: Sequence[str] = (),
        *,
        full: bool = False,
        dry_run: bool = False,
        estimate: bool = False,
        contexts: Contexts | None = None,
        spend_cap: float | None = None,
        compare: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> IndexReport:
        """Bring the named sources, or all, up to date. `contexts`, `spend_cap` and `compare` (saved questions, which a new generation is
        held against before it is shown) replace what the configuration says, for this run; `estimate` says what written contexts and
        hosted embeddings would take, and does nothing."""
        self.check_comparison(compare, full=full, dry_run=dry_run, estimate=estimate)
        declared = None if names else frozenset(self.policies.current().sources)
        jobs, unspoken = self._jobs_that_may_fail(names, contexts=contexts, spend_cap=spend_cap)
        report = self.index_jobs(
            jobs,
            full=full,
            dry_run=dry_run or estimate,
            estimate=estimate,
            declared=declared,
            compare=compare,
            progress=progress,
        )
        return replace(report, sources=(*report.sources, *unspoken))

    def check_comparison(self, compare: Path | None, *, full: bool, dry_run: bool = False, estimate: bool = False) -> None:
        """Raises `UsageError` where saved questions were named for a run that builds nothing, or are not understood."""
        from router.comparison import load_saved_questions

        if compare is None:
            return
        if dry_run or estimate:
            option = "--estimate" if estimate else "--dry-run"
            raise UsageError("compare_without_full", f"{option} builds nothing that could be compared", f"leave {option} out")
        if not full:
            raise UsageError("compare_without_full", "only a full build is held against questions", "add --full")
        load_saved_questions(compare, self.policies.current())

    def index_jobs(
        self,
        jobs: Sequence[SourceJob],
        *,
        full: bool = False,
        dry_run: bool = False,
        estimate: bool = False,
        declared: frozenset[str] | None = None,
        elsewhere: frozenset[str] = frozenset(),
        wait_s: float | None = None,
        compare: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> IndexReport:
        """The same over sources of one's own: any object that is a `router.ports.DocumentSource`. `elsewhere` are tenants of declared
        sources that are left alone; `wait_s` replaces how long written contexts are waited for."""
        from router.ingest.backfill import index_and_wait

        self.check_comparison(compare, full=full, dry_run=dry_run, estimate=estimate)
        judge, compared = self._judge(jobs, compare) if full and not dry_run else (None, list[Compared]())
        if declared is not None and not dry_run and (self.state / CONTEXTS_FILE).exists():
            self.contexts.keep_sources((source.tenant, source.name) for source in self.policies.current().sources.values())
        try:
            report = index_and_wait(
                jobs,
                self.workshop,
                wait_s=self.settings.contexts.wait_s if wait_s is None else wait_s,
                full=full,
                dry_run=dry_run,
                estimate=estimate,
                declared=declared,
                judge=judge,
                elsewhere=elsewhere,
                progress=progress,
                refresh=self._as_now,
            )
            if not report.dry_run:
                self._note_run(report)
            return replace(report, compared=tuple(compared))
        finally:
            self._forget_kept()
            for provider, spent in self.spent().items():
                if spent.calls or spent.failed:
                    self.log("hosted_spent", provider=provider, **asdict(spent))

    def _as_now(self, before: Moment) -> Moment:
        """A run may have waited for a day, or for another run: what it shows goes by the policy folder of this moment. A source that is
        declared no more, or for another tenant, is left to the next run."""
        policies, jobs = self.policies.latest(), []
        self._bury_forgotten({job.source.tenant for job in before.jobs})
        for job in before.jobs:
            source = policies.sources.get(job.source.name)
            if source is None or source.tenant != job.source.tenant:
                jobs += [] if job.declared else [job]
            elif source == job.source:
                jobs.append(job)
            else:
                documents = job.documents
                try:
                    documents = self._documents(source) if job.declared else documents
                except PointsmanError as error:
                    documents = _Unopened(error)
                jobs.append(replace(job, source=source, documents=documents))
        names = {job.source.name for job in jobs}
        left = {source.tenant for name, source in policies.sources.items() if name not in names}
        moved = {job.source.name for job in before.jobs} - names  # in the tenant that it left it is nobody's
        declared = before.declared
        if declared is not None:  # also those that are newer than the run, which another one may have indexed
            tenants = {job.source.tenant for job in before.jobs}
            newer = {source.name for source in policies.sources.values() if source.tenant in tenants}
            declared = (declared & policies.sources.keys() | newer) - moved
        return replace(
            before,
            jobs=tuple(jobs),
            workshop=replace(before.workshop, entity=policies.document_type),
            declared=declared,
            elsewhere=before.elsewhere | left,
        )

    def _note_run(self, report: IndexReport) -> None:
        """On record and in the log: what changed, and how long what was taken away could still be found. A failure is in the log."""
        failures = {(state.tenant, state.source): state.failures for state in self.manifest.states()}
        kind = "sqlite" if self.settings.stores.opensearch is None else "opensearch"
        records = []
        for source in report.sources:
            place = {"source": source.source, "tenant": source.tenant, "run_id": report.run_id}
            if source.error is not None:
                count = failures.get((source.tenant, source.source), 1)
                self.log("source_failed", **place, code=source.error.code, failures=count)
            if not source.changed:
                continue
            counts = {
                name: getattr(source, name) for name in ("listed", "unchanged", "indexed", "relabelled", "removed", "chunks")
            }
            reasons = Counter(failure.reason for failure in source.failures)
            self.log("index_run", **place, store=kind, **counts, **asdict(Revocation.of(source.revoked)))
            records.append(
                decision.index_run(
                    tenant=source.tenant,
                    at_us=_clock_us(),
                    by=INDEXER,
                    source=source.source,
                    generation=self.store.generation(source.tenant) or "",
                    total_us=round(report.elapsed_s * 1e6),
                    counts=counts,
                    failures=dict(sorted(reasons.items())),
                    data_version=self.store.version(source.tenant),
                    store=kind,
                    run_id=report.run_id,
                    revoked=source.revoked,
                )
            )
        if records:
            self.ledger.append(records)

    def watch(
        self,
        names: Sequence[str] = (),
        *,
        stop: Stop,
        tables: Sequence[str] | None = (),
        every_s: float | None = None,
        contexts: Contexts | None = None,
        spend_cap: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Round]:
        """Bring the named sources and tables up to date again and again, all where none are named (`tables` None: no table), until
        `stop` is asked; yields what came of each round. A cap is for all rounds together. Written contexts are not waited for."""
        from router.ingest.watch import Seen, run_rounds

        every_s = self.settings.index.every_s if every_s is None else every_s
        scribes, copied_s = _Scribes(self, spend_cap), 0.0

        def told(done: Progress) -> None:
            stop.check()
            if progress is not None:
                progress(done)

        def copy() -> Seen:
            nonlocal copied_s
            try:
                seen = Seen(tables=tuple(self.copy_tables(tables or ())))
            except PointsmanError as error:
                seen = Seen(not_copied=error)
            copied_s = time.monotonic()
            stop.check()
            return seen

        def look(resting: frozenset[str]) -> Seen:
            first = not copied_s
            due = tables is not None and (first or time.monotonic() - copied_s >= self.settings.index.tables_every_s)
            tables_seen = copy() if due and first else Seen()  # what public values name is looked for in documents
            seen = self._look(names, resting, contexts, scribes.again(), told)
            if due and not first:  # a copy may take long, and restrictions of documents do not wait for it
                stop.check()
                tables_seen = copy()
            return replace(seen, tables=tables_seen.tables, not_copied=tables_seen.not_copied)

        return run_rounds(look, every_s=every_s, stop=stop)

    def _look(
        self,
        names: Sequence[str],
        resting: frozenset[str],
        contexts: Contexts | None,
        scribes: _Scribes,
        progress: Callable[[Progress], None],
    ) -> Seen:
        """One round over the sources that are not `resting`, by the policies as they stand on disk."""
        from router.ingest.watch import Seen

        if not self.policies.ready:
            raise PolicyError(
                "policy_broken", "the policy folder is broken, so nothing is indexed", "see `pointsman policies check`"
            )
        declared = self.policies.current().sources
        jobs, faults = self._open_jobs([name for name in names or sorted(declared) if name not in resting], contexts, scribes)
        left = {source.tenant for name, source in declared.items() if name in resting}
        jobs += _failing(declared, faults)
        faults = {name: error for name, error in faults.items() if name not in declared}
        if not names:
            faults |= {name: _undeclared(name) for name in self.settings.sources if name not in declared}
        for name, error in faults.items():
            self.log("source_failed", source=name, code=error.code)
        report = self.index_jobs(
            jobs,
            declared=None if names else frozenset(declared),
            elsewhere=frozenset(left),
            wait_s=0.0,
            progress=progress,
        )
        return Seen(report, faults=faults)

    def freshness(self) -> list[Freshness]:
        """By source: what it holds and the index does not, since when, and how the latest runs went. Reads no document."""
        from router.ingest.freshness import measure_freshness

        declared = self.policies.current().sources
        names = sorted(declared)
        jobs, faults = self._open_jobs(names, None, _Scribes(self, None))
        return measure_freshness(
            [declared[name] for name in names],
            jobs,
            faults,
            store=self.store,
            manifest=self.manifest,
            entity=self.policies.current().document_type,
        )

    def copy_tables(
        self, names: Sequence[str] = (), *, full: bool = False, progress: Callable[[TableReport], None] | None = None
    ) -> list[TableReport]:
        """Copy the named tables of the configuration, or all, into a new snapshot; what is not named is carried over."""
        from connectors.sql_sources import TableRows
        from router.ingest.tables import copy_tables, table_jobs

        jobs, declared = table_jobs(self.settings, names, TableRows), tuple(self.settings.tables)
        if not jobs and self.snapshots.current() is None:
            return []
        try:
            return copy_tables(jobs, declared, self.snapshots, now_us=_clock_us, full=full, progress=progress)
        finally:
            self._forget_kept()

    def verify_tables(self) -> list[TableFinding]:
        """What configuration, places and snapshot of the tables do not agree about."""
        from connectors.sql_sources import TableRows
        from router.ingest.tables import table_jobs, verify_tables

        jobs = table_jobs(self.settings, (), TableRows)
        return verify_tables(jobs, self.snapshots, now_us=_clock_us())

    @functools.cached_property
    def snapshots(self) -> DuckSnapshots:
        from connectors.table_snapshots import DuckSnapshots

        return DuckSnapshots(self.state / "tables")

    def index_status(self) -> IndexStatus:
        """Counts, ages, model and failures by reason, by source."""
        from router.ingest.reconcile import index_status

        sources = self.policies.current().sources
        return index_status([sources[name] for name in sorted(sources)], self.store, self.manifest)

    def _judge(self, jobs: Sequence[SourceJob], compare: Path | None) -> tuple[Judge | None, list[Compared]]:
        """What holds a new generation against saved questions, and the list that it fills. Refuses at once what it could not judge."""
        path = compare or (self.settings.at(self.settings.index.compare) if self.settings.index.compare is not None else None)
        if path is None:
            return None, []
        from router.comparison import compare_generations, line_for, load_saved_questions, tenants_of, unjudged

        policies = self.policies.current()
        questions = tenants_of(load_saved_questions(path, policies), policies)
        compared: list[Compared] = []
        allowed = self.settings.index.compare_points
        run_id = decision.new_id(_clock_us(), "c")
        local = self.embedder.card
        lines = {
            tenant: line_for(self.line, one.model_id, local=local)
            for tenant in {job.source.tenant for job in jobs} & questions.keys()
            for one in self.store.generations(tenant)
            if one.current
        }

        def judge(tenant: str, old: str, new: str) -> bool:
            if tenant not in lines:
                compared.append(unjudged(tenant, (old, new), allowed_points=allowed))
                return True
            with self.store.pinned(tenant, old) as shown, self.store.pinned(tenant, new) as beside:
                result = compare_generations(
                    (lines[tenant], line_for(self.line, None, local=local)),
                    (shown, beside),
                    questions[tenant],
                    tenant=tenant,
                    names=(old, new),
                    allowed_points=allowed,
                    record=functools.partial(self._record_index_egress, tenant),
                    run_id=run_id,
                )
            self._record_comparison(result)
            compared.append(result)
            return result.accepted

        return judge, compared

    def _record_comparison(self, result: Compared) -> None:
        pairs = {"recall_at_20": result.recall_at_20, "ndcg_at_10": result.ndcg_at_10}
        figures = {
            f"{name}_{side}": round(1000 * pair[at]) for name, pair in pairs.items() for at, side in enumerate(("old", "new"))
        }
        figures |= {
            "overlap_at_10": round(1000 * result.overlap_at_10),
            "questions": result.questions,
            "judged": result.judged,
            "allowed_points": round(1000 * result.allowed_points),
        }
        self.ledger.append(
            [
                decision.generations_compared(
                    tenant=result.tenant, at_us=_clock_us(), by=INDEXER, old=result.old, new=result.new,
                    accepted=result.accepted, figures=figures,
                )
            ]
        )  # fmt: skip

    def generations(self) -> dict[str, list[Generation]]:
        """By tenant, every generation of its documents, the one that is shown among them."""
        declared = (source.tenant for source in self.policies.current().sources.values())
        return {tenant: self.store.generations(tenant) for tenant in sorted({*self.store.tenants(), *declared})}

    def index_repair(self, *, progress: Callable[[Progress], None] | None = None) -> Repaired:
        """Bring manifest, store and sources in step; what is in doubt is removed and made again from its source."""
        from router.ingest.repair import repair_index

        jobs, unspoken = self._jobs_that_may_fail()
        try:
            done = repair_index(
                jobs,
                self.workshop,
                declared=frozenset(self.policies.current().sources),
                progress=progress,
                refresh=self._as_now,
            )
            left = tuple(_unspoken_finding(one) for one in unspoken)
            return replace(done, found=(*done.found, *left), left=(*done.left, *left))
        finally:
            self._forget_kept()

    def index_rollback(
        self, tenant: str | None = None, *, to: str | None = None, progress: Callable[[Progress], None] | None = None
    ) -> RolledBack:
        """Show the previous generation again (or `to`), after it was brought in step with the sources. `tenant` may be left out where
        there is one."""
        from router.ingest.generations import roll_back

        jobs, _ = self._jobs_that_may_fail()
        declared = self.policies.current().sources
        tenants = sorted({source.tenant for source in declared.values()})
        if tenant is None and len(tenants) != 1:
            raise UsageError("tenant_needed", "there are several tenants", f"name one with --tenant: {', '.join(tenants)}")
        name = tenants[0] if tenant is None else tenant
        if name not in tenants:
            raise UsageError("tenant_unknown", f"no source is declared for a tenant `{name}`", f"there is: {', '.join(tenants)}")
        its = [job for job in jobs if job.source.tenant == name]
        for job in its:
            if isinstance(job.documents, _Unopened):
                raise job.documents.error
        mine = frozenset(job.source.name for job in its)
        try:
            return roll_back(its, name, self.workshop, to=to, declared=mine, progress=progress, refresh=self._as_now)
        finally:
            self._forget_kept()

    def _record_switch(self, switched: Switched) -> None:
        self.ledger.append(
            [
                decision.generation_switched(
                    tenant=switched.tenant, at_us=_clock_us(), by=INDEXER, old=switched.old, new=switched.new,
                    cause=switched.cause, figures=switched.figures,
                )
            ]
        )  # fmt: skip

    def index_verify(self) -> list[Finding]:
        """What manifest, store and sources do not agree about."""
        from router.ingest.reconcile import verify_index

        jobs, unspoken = self._jobs_that_may_fail()
        return verify_index(jobs, self.workshop) + [_unspoken_finding(one) for one in unspoken]

    def index_forget(self, document_id: str) -> Forgotten:
        """Erase a document from every generation and keep its content out; also where its source is not declared any more."""
        from router.ingest.reconcile import forget_everywhere

        def documents(source: Source) -> Any:
            return self._documents(source) if source.name in self.settings.sources else None

        def forget() -> Forgotten:
            return forget_everywhere(self.policies.current().sources, document_id, self.workshop, documents)

        try:
            gone = _wait_for_lock(forget)
        finally:
            self._forget_kept()
        if (self.state / CONTEXTS_FILE).exists():
            for tenant in {*self.store.tenants(), *(source.tenant for source in self.policies.current().sources.values())}:
                self.contexts.forget(tenant, gone.documents)
        return gone

    def _bury_forgotten(self, tenants: Iterable[str] | None = None) -> None:
        """In the manifest, what the ledger says was forgotten; in the ledger, where that is another one, what the manifest says."""
        from router.burials import bury_forgotten

        bury_forgotten(self.ledger, self.manifest, tenants=tenants, by=INDEXER, now_us=_clock_us)

    def _record_forgotten(self, tenant: str, source: str, hashes: Sequence[str]) -> None:
        record = decision.content_forgotten(tenant=tenant, at_us=_clock_us(), by=INDEXER, source=source, content_hashes=hashes)
        self.ledger.append([record])

    @property
    def workshop(self) -> Workshop:
        """Of a manifest that knows of all that was forgotten, also where it was lost or put back."""
        from router.ingest.workshop import Workshop

        self._bury_forgotten()
        return Workshop(
            store=self.store,
            embedder=self._index_embedder(),
            manifest=self.manifest,
            entity=self.policies.current().document_type,
            record=self._record_labels,
            record_switch=self._record_switch,
            record_forgotten=self._record_forgotten,
            principal=indexing_service("", self.policies.current().types).name,
            now_us=_clock_us,
            aliases=functools.cache(self._aliases),
        )

    def _aliases(self, tenant: str) -> Aliases:
        """Of the values that reviewers marked as everybody's, those of the tenant's own rows. Without a snapshot there are none, and
        one that cannot be read keeps no document from being indexed."""
        from router.ingest.entities import Aliases, build_aliases

        public = _public_columns(self.policies.current().datasets.values())
        if not public or self.snapshots.current() is None:
            return Aliases()
        try:
            return build_aliases(one.rows_of(tenant, _read_public(self.snapshots.path(), one)) for one in public)
        except SourceError as error:
            self.log("aliases_unread", code=error.code)
            return Aliases()

    def _index_embedder(self) -> Embedder:
        """The model of one's own, else the shipped one; or a hosted one beside it, judged for the indexing Service of each document's
        tenant, with each call on record before its first byte."""
        remote = self.remote_embedder
        if remote is None:
            return self.own_embedder or self.embedder
        return IndexEmbedder(self.embedder, remote, functools.cache(self.index_egress), self.threads.within)

    def _record_index_egress(self, tenant: str, sent: Sent, run_id: str) -> None:
        self.ledger.append(
            [
                decision.index_egress(
                    tenant=tenant,
                    at_us=_clock_us(),
                    by=INDEXER,
                    run_id=run_id,
                    policy_version=self.policies.current().version,
                    sent=sent.before(),
                )
            ]
        )

    def jobs(
        self, names: Sequence[str] = (), *, contexts: Contexts | None = None, spend_cap: float | None = None
    ) -> list[SourceJob]:
        """Declared and configured sources by name; all when none is named. A source needs both: a reviewer's and an operator's word.
        `contexts` and `spend_cap` replace what the configuration says."""
        declared = self.policies.current().sources
        for name in self.settings.sources if not names else ():
            if name not in declared:
                raise _undeclared(name)
        jobs, faults = self._open_jobs(names or sorted(declared), contexts, _Scribes(self, spend_cap))
        for error in faults.values():
            raise error
        return jobs

    def _jobs_that_may_fail(
        self, names: Sequence[str] = (), *, contexts: Contexts | None = None, spend_cap: float | None = None
    ) -> tuple[list[SourceJob], list[SourceReport]]:
        """The same where one source stops no other: what cannot be opened fails when it is looked at. Beside them, where none is
        named, configured sources that no reviewer declares (any more), as reports of their own."""
        from router.ingest.workshop import SourceReport

        declared = self.policies.current().sources
        if unknown := next((name for name in names if name not in declared), None):
            raise _undeclared(unknown)
        jobs, faults = self._open_jobs(names or sorted(declared), contexts, _Scribes(self, spend_cap))
        jobs += _failing(declared, faults)
        strangers = [] if names else [name for name in self.settings.sources if name not in declared]
        return jobs, [SourceReport(name, "", error=_undeclared(name)) for name in strangers]

    def _open_jobs(
        self, names: Sequence[str], contexts: Contexts | None, scribes: _Scribes
    ) -> tuple[list[SourceJob], dict[str, PointsmanError]]:
        """Those that can be opened, and what is wrong with the others."""
        from router.ingest.workshop import SourceJob

        if contexts == "claude" and self.settings.providers.claude is None:
            raise UsageError(
                "contexts_without_model", "there is no `[providers.claude]` to write contexts", "name its model and key"
            )
        declared, jobs = self.policies.current().sources, []
        faults: dict[str, PointsmanError] = {}
        for name in names:
            try:
                if name not in declared:
                    raise _undeclared(name)
                if name not in self.settings.sources:
                    raise UsageError(
                        "source_unconfigured", f"`[sources.{name}]` is missing", "say in pointsman.toml where its documents are"
                    )
                wanted = contexts or self.settings.sources[name].contexts
                scribe = scribes.of(declared[name].tenant) if wanted == "claude" else None
                keep = self.settings.sources[name].keep_versions
                documents = self._documents(declared[name])
                jobs.append(SourceJob(declared[name], documents, wanted, scribe, declared=True, keep_versions=keep))
            except PointsmanError as error:
                faults[name] = error
        return jobs, faults

    def scribe(self, tenant: str) -> Scribe:
        """What has contexts written for the documents of a tenant during one run of `index_jobs`."""
        return _Scribes(self, None).of(tenant)

    @functools.cached_property
    def contexts(self) -> SqlContexts:
        """What was written and paid for."""
        from connectors.context_cache import SqlContexts

        return SqlContexts(self.state / CONTEXTS_FILE)

    @functools.cached_property
    def context_model(self) -> Claude | None:
        """The model that writes contexts; only `router.egress` may call it."""
        return _build_claude(self.settings, self.settings.contexts.model)

    def index_egress(self, tenant: str) -> Egress:
        """What may leave for indexing: by the policies of the moment, each attempt on record before its first byte."""

        def may_disclose(principal: Principal, *, provider: str, purpose: str, sensitivity: int) -> object:
            return self.policies.current().may_disclose(principal, provider=provider, purpose=purpose, sensitivity=sensitivity)

        record = functools.partial(self._record_index_egress, tenant)
        return Egress(indexing_service(tenant, self.policies.current().types), may_disclose, self.key, record, keep=False)

    def _documents(self, source: Source) -> Any:
        settings = self.settings.sources[source.name]
        labels = self.settings.at(Path(source.labels)) if source.labels else None
        if source.connector == "folder" and settings.path is not None:
            from connectors.folder import Folder

            return Folder(self.settings.at(settings.path), labels=labels)
        if (
            source.connector == "rows"
            and settings.database
            and settings.query
            and settings.id
            and settings.text
            and settings.labels
        ):
            from connectors.sql_sources import Rows

            return Rows(
                database=self.settings.database_url(settings.database),
                query=settings.query,
                id_column=settings.id,
                title_column=settings.title,
                text_columns=settings.text,
                label_columns=settings.labels.columns(),
                envelope=source.groups,
            )
        needs = "`path`" if source.connector == "folder" else "`database`, `query`, `id`, `text` and `labels`"
        raise UsageError(
            "source_incomplete", f"`[sources.{source.name}]` of connector `{source.connector}` needs {needs}", "complete it"
        )

    def _record_labels(self, tenant: str, changes: Sequence[LabelChange]) -> None:
        at_us = _clock_us()
        self.ledger.append(
            [
                decision.label_change(
                    tenant=tenant,
                    at_us=at_us,
                    by=INDEXER,
                    source=change.source,
                    document_id=change.document_id,
                    old=change.old,
                    new=change.new,
                )
                for change in changes
            ]
        )


@dataclass(frozen=True, slots=True)
class _Unopened:
    """A declared source that could not be opened: it fails as one that cannot be listed."""

    error: PointsmanError

    def entries(self) -> Iterator[Any]:
        raise self.error

    def labels(self, _: object) -> Any:
        raise self.error

    def read(self, _: object) -> Any:
        raise self.error


def _failing(declared: Mapping[str, Source], faults: Mapping[str, PointsmanError]) -> list[SourceJob]:
    from router.ingest.workshop import SourceJob

    return [SourceJob(declared[name], _Unopened(error), declared=True) for name, error in faults.items() if name in declared]


def _unspoken_finding(report: SourceReport) -> Finding:
    from router.ingest.reconcile import Finding

    assert report.error is not None
    return Finding("", report.source, "", "source_failed", f"{report.error.code}: {report.error.message}; {report.error.hint}")


class _Scribes:
    """One scribe a tenant for one run, all with one purse."""

    def __init__(self, router: Router, spend_cap: float | None) -> None:
        from router.ingest.scribe import Purse

        self._router = router
        self._purse: Purse | None = None
        if spend_cap is not None:  # a cap that cannot be held is the command's fault, and of no source
            self._purse = Purse(_build_writing(router.settings, spend_cap))
        self._made: dict[str, Scribe] = {}

    def again(self) -> _Scribes:
        """For another run with the same purse."""
        self._made = {}
        return self

    def of(self, tenant: str) -> Scribe:
        from router.ingest.scribe import Purse, Scribe

        router = self._router
        if self._purse is None:
            self._purse = Purse(_build_writing(router.settings, None))
        if tenant not in self._made:
            named, model, egress = router.settings.providers.claude, router.context_model, router.index_egress(tenant)
            self._made[tenant] = Scribe(
                tenant,
                egress.contexts(model, router.attempts["claude"]) if model is not None else None,
                router.contexts,
                self._purse,
                model=router.settings.contexts.model or (named.model if named is not None else ""),
                principal=egress.principal.name,
                now_us=_clock_us,
            )
        return self._made[tenant]


def _build_writing(settings: Settings, spend_cap: float | None) -> Writing:
    from router.ingest.scribe import Writing
    from router.ingest.written_context import REPLY_TOKENS, Prices

    named, claude = settings.contexts, settings.providers.claude
    prices = None
    if named.price_input is not None and named.price_output is not None:
        kept, read = named.price_cache_write, named.price_cache_read
        prices = Prices(
            fresh=named.price_input,
            cache_write=named.price_input if kept is None else kept,
            cache_read=named.price_input if read is None else read,
            output=named.price_output,
            currency=named.currency,
            batch_share=named.batch_share,
        )
    if spend_cap is not None and prices is None:
        raise UsageError(
            "cap_without_prices", "a spend cap cannot be held without prices",
            "set `price_input` and `price_output` in `[contexts]`, or a `token_cap`",
        )  # fmt: skip
    return Writing(
        send=named.send,
        batch_from=named.batch_from,
        window_tokens=named.window_tokens,
        spend_cap=named.spend_cap if spend_cap is None else spend_cap,
        token_cap=named.token_cap,
        prices=prices,
        reply_tokens=REPLY_TOKENS[claude.thinking if claude is not None else "off"],
    )


def _undeclared(name: str) -> UsageError:
    return UsageError("source_unknown", f"the source `{name}` is not declared", "declare it in sources.yaml of the policy folder")


def _clock_us() -> int:
    return time.time_ns() // 1000


def _parse_question(text: str, k: int, now: datetime | None, deadline_s: float) -> Question:
    if not text.replace("\0", "").strip():
        raise UsageError("question_empty", "the question is empty", "ask something")
    if len(text) > MAX_QUESTION_CHARS:
        raise UsageError("question_too_long", f"the question is over {MAX_QUESTION_CHARS} characters", "shorten it")
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise UsageError("k_out_of_range", f"k must be from 1 to {MAX_K}", "choose another k")
    if not 0 < deadline_s <= MAX_DEADLINE_S:
        raise UsageError(
            "deadline_out_of_range", f"the deadline must be above 0 and at most {MAX_DEADLINE_S} s", "choose another"
        )
    moment = datetime.now(UTC) if now is None else now
    if moment.tzinfo is None:
        raise UsageError("now_without_zone", "`now` has no time zone", "give an aware datetime, for example in UTC")
    return Question(text, moment.astimezone(UTC), k, deadline_s, as_of=now is not None)


def _parse_texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """What each says is judged later, against what the caller may see."""
    if isinstance(given, str) or not all(isinstance(one, str) and len(one) <= MAX_NARROWING_CHARS for one in given):
        raise UsageError("narrowing_malformed", f"`{name}` is no list of short texts", "give a list")
    return tuple(given)


def _parse_route(route: str) -> Wanted:
    if route not in WANTED:
        raise UsageError("route_unknown", f"`{route}` is no route that can be asked for", f"choose one of {', '.join(WANTED)}")
    return cast(Wanted, route)


def _build_offer(policies: PolicySet, grants: Grants) -> Offer:
    sources = tuple(
        Named(source.name, source.description, source.question)
        for source in (policies.sources[grant.source] for grant in grants.search)
    )
    if policies.catalog is None or not grants.query:
        return Offer(sources)
    from router.sql.check import narrow

    granted = narrow(policies.catalog, grants.query)
    datasets, metrics = ([Named(one.name, one.description) for one in some] for some in (granted.datasets, granted.metrics))
    return Offer(sources, tuple(datasets), tuple(metrics))


def _checked(run: Callable[[], object]) -> str:
    try:
        run()
    except PointsmanError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 (whatever is wrong with a part, the probe says that it is)
        return type(error).__name__
    return "ok"


def _parse_context(context: Sequence[str]) -> tuple[str, ...]:
    if len(context) > MAX_CONTEXT or any(len(one) > MAX_QUESTION_CHARS for one in context):
        raise UsageError(
            "context_too_long",
            f"more than {MAX_CONTEXT} earlier questions, or one of over {MAX_QUESTION_CHARS} characters",
            "give the latest ones",
        )
    return tuple(one for one in context if one.strip())


def _claimed_issuer(token: str) -> str:
    """The issuer that a refused token names, for counting only."""
    import base64

    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims["iss"])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def _build_claude(settings: Settings, model: str | None = None) -> Claude | None:
    """None without a table in the configuration or without the key. `model` is another one of the same provider."""
    named = settings.providers.claude
    key = os.environ.get(named.key_env, "").strip() if named is not None else ""
    if named is None or not key:
        return None
    try:
        from connectors.claude import Claude
    except ModuleNotFoundError:
        raise UsageError(
            "package_missing", "`[providers.claude]` needs the package `anthropic`", "install `pointsman[claude]`"
        ) from None
    return Claude(
        key=key, model=model or named.model, base_url=named.base_url, streaming=named.streaming, thinking=named.thinking
    )


def _build_cohere(settings: Settings) -> Cohere:
    """Without the key each call fails before anything is opened, and says so."""
    named = settings.providers.cohere
    assert named is not None
    try:
        from connectors.cohere_models import Cohere
    except ModuleNotFoundError:
        raise UsageError(
            "package_missing", "`[providers.cohere]` needs the package `cohere`", "install `pointsman[cohere]`"
        ) from None
    return Cohere(key=os.environ.get(named.key_env, "").strip(), base_url=named.base_url)


def _build_openai_compatible(named: OpenAICompatibleSettings) -> OpenAICompatible:
    from connectors.openai_compatible import OpenAICompatible

    return OpenAICompatible(
        base_url=named.base_url,
        model=named.model,
        dimensions=named.dimensions,
        key=os.environ.get(named.key_env, "").strip() if named.key_env else None,
        ask_dimensions=named.ask_dimensions,
        question_prefix=named.question_prefix,
        passage_prefix=named.passage_prefix,
    )


def _build_store(settings: Settings, document_type: Callable[[], EntityType]) -> SqliteDocuments | OpenSearchDocuments:
    named = settings.stores.opensearch
    if named is None:
        from connectors.sqlite_documents import SqliteDocuments

        return SqliteDocuments(settings.store_folder, document_type)
    try:
        from connectors.opensearch_documents import OpenSearchDocuments, Place
    except ModuleNotFoundError:
        raise UsageError(
            "package_missing", "`[stores.opensearch]` needs the package `opensearch-py`", "install `pointsman[opensearch]`"
        ) from None
    password = os.environ.get(named.password_env, "") if named.password_env else None
    if password == "":
        raise UsageError("password_missing", f"`{named.password_env}` is not set", "set it to the password of OpenSearch")
    files = {name: str(settings.at(path)) for name in ("ca", "client_cert", "client_key") if (path := getattr(named, name))}
    for name, file in files.items():
        if not Path(file).is_file():
            raise UsageError("file_missing", f"`[stores.opensearch] {name}` is no file", "correct its path")
    return OpenSearchDocuments(
        Place(named.hosts, username=named.username, password=password, **files),
        document_type,
        prefix=named.prefix,
        exact_below=named.exact_below,
        shards=named.shards,
        replicas=named.replicas,
        wait_s=named.wait_s,
    )


def _build_ledger(settings: Settings, state: Path) -> SqlLedger:
    from connectors.ledger import SqlLedger

    url = settings.ledger.url
    if url is None or "://" not in url:
        return SqlLedger(settings.at(Path(url)) if url else state / "ledger.sqlite")
    return SqlLedger(url)


def digest_model(folder: Path, file: str | None) -> str:
    """The digest over all files of a model of one's own: what `sha256` of its table has to be."""
    from connectors.local_models import read_files

    return read_files(folder, file).sha256


@contextlib.contextmanager
def open_ledger(config: Path | None) -> Iterator[SqlLedger]:
    """The ledger alone: reading and verifying it must not depend on the policies of the day."""
    settings = load_settings(find_settings(config))
    ledger = _build_ledger(settings, make_state(settings))
    try:
        yield ledger
    finally:
        ledger.close()


def make_state(settings: Settings) -> Path:
    """The state folder, for its owner only: it holds text of documents, questions and keys."""
    folder = settings.state_folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        raise UsageError("state_unwritable", "the state folder cannot be made", "check `state` in the configuration") from None
    return folder


def make_development_issuer(settings: Settings) -> None:
    """The key of the development issuer, in the state folder."""
    from connectors.oidc import make_development_key

    keys = make_state(settings) / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    make_development_key(keys / "development.pem")


def make_database(path: Path, script: str) -> None:
    """A SQLite file from a script, for a demonstration or a test."""
    from connectors import sql_sources

    sql_sources.make_database(path, script)


def open_tables(database: Path | Callable[[], Path]) -> DuckTables:
    """Governed rows over a snapshot; the gate's functions go to the workers by name."""
    from connectors.duckdb_tables import DuckTables, Gate
    from router.sql import gate

    return DuckTables(Gate(gate.check_text, gate.check_versions, gate.govern, gate.refuse), database)


def make_tables(script: str, path: Path) -> None:
    """A DuckDB file from a script that is trusted, for evaluation."""
    from connectors.duckdb_tables import build_database

    build_database(script, path)


def open_duckdb_trial() -> DuckTrial:
    """A throw-away database in memory, for evaluation."""
    from connectors.trials import DuckTrial

    return DuckTrial()


def open_sqlite_trial() -> SqliteTrial:
    """The same in SQLite, for gold queries in its dialect."""
    from connectors.trials import SqliteTrial

    return SqliteTrial()


def read_relations(database: str) -> tuple[Relation, ...]:
    """What a database says of its relations: names, types and keys."""
    from connectors import relations

    return relations.read_relations(database)


def count_missing(database: Path, relation: str, expressions: Sequence[str]) -> tuple[int | None, ...]:
    """How many rows have no value of each expression."""
    from connectors import relations

    return relations.count_missing(database, relation, expressions)


def current_tables(settings: Settings) -> Path:
    """The file of the current snapshot. Raises `SourceError` before the first."""
    from connectors.table_snapshots import DuckSnapshots

    return DuckSnapshots(settings.state_folder / "tables").path()


def open_copies(database: Path, grants: Sequence[TableGrant]) -> PhysicalCopies:
    """Copies of only the granted rows and columns: what evaluation compares with."""
    from connectors.duckdb_tables import PhysicalCopies

    return PhysicalCopies(database, grants)


def _wait_for_lock(act: Callable[[], Forgotten]) -> Forgotten:
    """As soon as no other run holds the index, within `FORGET_WAITS_S`. A round of `--watch` is mostly over by then; a run that makes
    text for hours gives way to nobody but its operator."""
    until_s = time.monotonic() + FORGET_WAITS_S
    while True:
        try:
            return act()
        except SourceError as error:
            if error.code != "index_busy":
                raise
            if time.monotonic() >= until_s:
                error.hint = f"it was waited for {FORGET_WAITS_S:g} s: stop that run, which the next one continues, and try again"
                raise
        time.sleep(0.1)


def _public_columns(datasets: Iterable[DatasetFacts]) -> list[PublicColumns]:
    """Never a column with a mask, nor one of rows that nobody says the tenant of."""
    from router.ingest.entities import PublicColumns

    found = []
    for facts in datasets:
        tenant = next((expression for name, expression, _ in facts.attributes if name == "tenant"), None)
        names = tuple(column.name for column in facts.columns if column.values == "public" and column.mask is None)
        if tenant is not None and names:
            label = next((name for name in names if name.lower() == (facts.label or "").lower()), None)
            found.append(PublicColumns(facts.relation, tenant, names, label))
    return found


def _read_public(database: Path, public: PublicColumns) -> list[tuple[Any, ...]]:
    from connectors.duckdb_tables import read_values
    from router.ingest.entities import MOST_PUBLIC_ROWS

    return read_values(database, public.relation, public.tenant, public.columns, most=MOST_PUBLIC_ROWS)


def open_rows(database: Path) -> LiveRows:
    """Rows of a snapshot as policies know them: what evaluation holds filters against."""
    from connectors.duckdb_tables import LiveRows

    return LiveRows(database)


def load_record_key(path: Path) -> bytes:
    """32 random bytes, made once, readable by their owner only."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(beside, path)
            except FileExistsError:
                pass
            finally:
                beside.unlink()
        if path.stat().st_mode & 0o077:
            raise UsageError("record_key_open", "others can read the record key", f"run chmod 600 on `{path.name}`")
        key = path.read_bytes()
    except OSError:
        raise UsageError("record_key_unreadable", "the record key cannot be read or made", "check the state folder") from None
    if len(key) != 32:
        raise UsageError("record_key_malformed", "the record key is not 32 bytes", "restore it from a copy")
    return key


def log_file(settings: Settings) -> Path | None:
    """Where the log lines go; None for standard error."""
    path = settings.log.path
    if path == "-":
        return None
    return settings.at(Path(path)) if path else settings.state_folder / "pointsman.jsonl"


def _open_log(settings: Settings) -> Callable[..., None]:
    import sys

    import structlog

    target = log_file(settings)
    if target is None:
        out = sys.stderr
    else:
        try:
            out = os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
        except OSError:
            raise UsageError("log_unwritable", "the log file cannot be opened", "check `[log]` in the configuration") from None
    logger = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
    )

    def write(event: str, **fields: Any) -> None:
        logger.msg(event, **fields)

    return write
