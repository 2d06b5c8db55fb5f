"""`ask` on the route of tables: from words to governed rows, with the reading, the record and the receipts; and what is asked back."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import duckdb
import pytest

from router import draft, table_leg
from router.app import Router, make_development_issuer
from router.config import load_settings
from router.decision import decision_model
from router.errors import UsageError
from router.line import Evidence
from router.review.cases import map_person
from router.sql.vocabulary import build_vocabulary
from tests.claims_world import NOW, SQL, build_claims_world
from tests.sql.tools import tool_world


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with Router.open(build_claims_world(tmp_path_factory.mktemp("world"))) as router:
        router.copy_tables()
        yield router


@pytest.fixture(scope="module")
def raw(router):
    """The same rows without any policy: what numbers are compared with."""
    con = duckdb.connect(str(router.snapshots.path()), read_only=True)
    yield lambda sql: con.execute(sql).fetchall()
    con.close()


def ask(router, text, person="analyst-1"):
    return router.ask(text, token=router.mint(person), route="sql", now=NOW)


def body_of(router, answer, tenant="1"):
    *_, (link, record) = router.ledger.read(tenant, decision_id=answer.decision_id)
    return json.loads(record.body) | {"seq": link.seq, "previous": link.previous, "digest": link.digest}


@pytest.mark.parametrize("person", ["analyst-1", "analyst-2", "analyst-3"])
def test_a_count_is_over_the_callers_rows(router, raw, person):
    answer = ask(router, "How many open claims are there in region west?", person)
    tenant = person[-1]
    assert answer.outcome == "answered", answer.clarify
    (table,) = answer.tables
    ((expected,),) = raw(f"SELECT count(*) FROM claims_v WHERE tenant_id = {tenant} AND status = 'open' AND region = 'west'")
    assert table.rows == ((expected,),)
    assert (table.origin, answer.route.name, answer.route.reasons) == ("planner", "sql", ("chosen by the caller",))


def test_the_reading_says_what_was_bound_and_the_sql_names_governed_things(router):
    answer = ask(router, "How many open claims in region West are older than 30 days?")
    (table,) = answer.tables
    for word in ("claims", "open", "west", "2024-07-16"):
        assert word in table.reading
    assert "tenant" not in table.sql
    shown = answer.as_json()["tables"][0]
    assert shown["columns"][0]["type"] == "BIGINT"
    assert "generated" not in shown


def test_the_record_holds_tables_filters_policies_and_a_digest_of_the_text(router):
    answer = ask(router, "How many claims per region?")
    body = body_of(router, answer)
    decision_model().model_validate(body)
    assert body["route"]["name"] == "sql"
    assert body["sql"]["tables"] == ["claims_v"]
    assert body["sql"]["rows"] == len(answer.tables[0].rows)
    assert [entry["leg"] for entry in body["filter_digests"]] == ["sql:claims_v"] == [entry.leg for entry in answer.filters]
    assert body["policies"] == ["analysts-query", "tenant-wall"]
    assert {"grants", "vocabulary", "draft", "rows"} <= set(body["stages"])
    assert "west" not in json.dumps(body)


def test_what_cannot_be_understood_is_asked_back_with_the_words(router):
    answer = ask(router, "Why did the claims in region west rise?")
    assert (answer.outcome, answer.tables, answer.passages) == ("clarify", (), ())
    assert answer.clarify is not None
    assert "rise" in answer.clarify.question
    assert answer.as_json()["clarify"]["question"] == answer.clarify.question
    assert body_of(router, answer)["outcome"] == "clarify"


def test_nothing_granted_is_empty(router):
    answer = ask(router, "How many open claims are there in region west?", "guest")
    assert (answer.outcome, answer.clarify, answer.tables, answer.filters) == ("empty", None, (), ())


def test_a_hidden_name_reads_like_one_that_does_not_exist(router):
    """`claimant_phone` is in the view and permitted to nobody; `claimant_shoe` is nowhere."""
    hidden = ask(router, "List the claimant phone of the claims").as_json()
    absent = ask(router, "List the claimant shoes of the claims").as_json()
    assert (hidden["outcome"], absent["outcome"]) == ("clarify", "clarify")
    question = hidden["clarify"]["question"].replace("phone", "shoes")
    assert (question, hidden["clarify"]["options"]) == (absent["clarify"]["question"], absent["clarify"]["options"])


def test_a_masked_column_is_shown_masked_and_bound_to_nothing_else(router):
    """A draft that filtered, grouped or sorted by a mask would mislead."""
    (table,) = ask(router, "List the claimant name of the open claims").tables
    assert [column.masked for column in table.columns] == [True]
    assert table.rows
    assert all("*" in name for (name,) in table.rows)
    assert "shown masked" in table.reading
    for text in ("How many claims per claimant name?", "List the claims sorted by claimant name"):
        answer = ask(router, text)
        assert (answer.outcome, answer.tables) == ("clarify", ())


def test_stored_values_come_of_the_callers_own_rows(router, raw):
    """A region that only another tenant has is a word that nobody knows here."""
    mine = {value for (value,) in raw("SELECT DISTINCT region FROM claims_v WHERE tenant_id = 1")}
    theirs = {value for (value,) in raw("SELECT DISTINCT region FROM claims_v WHERE tenant_id <> 1")} - mine
    for value in theirs:
        assert ask(router, f"How many claims in region {value}?").outcome == "clarify"


def test_a_vocabulary_is_kept_until_the_data_change(router):
    ask(router, "How many claims per region?")
    kept = len(router.line.vocabularies)
    ask(router, "How many claims per status?")
    assert len(router.line.vocabularies) == kept
    router.copy_tables(full=True)
    ask(router, "How many claims per status?")
    assert len(router.line.vocabularies) == kept + 1


def test_without_a_snapshot_it_is_a_source_that_is_missing(tmp_path):
    shutil.copytree(SQL / "policies", tmp_path / "policies")
    (tmp_path / "pointsman.toml").write_text('state = "state"\n', encoding="utf-8")
    make_development_issuer(load_settings(tmp_path / "pointsman.toml"))
    with Router.open(tmp_path / "pointsman.toml") as router, pytest.raises(Exception, match="tables_missing") as raised:
        ask(router, "How many claims per region?")
    assert raised.value.exit_code == 4
    assert raised.value.decision_id


def test_a_route_that_there_is_not_is_refused(router):
    with pytest.raises(UsageError) as raised:
        router.ask("anything", token=router.mint("analyst-1"), route="tables")
    assert raised.value.code == "route_unknown"


def test_a_plan_below_the_threshold_is_told_and_not_run(router, monkeypatch):
    monkeypatch.setattr(draft, "CURATED", 1.1)
    answer = ask(router, "How many claims per region?")
    assert (answer.outcome, answer.tables) == ("clarify", ())
    assert "for each region" in answer.clarify.options[0]
    assert "rows" not in [stage.name for stage in answer.stages]


def test_tools_are_told_apart_by_words_where_the_embedder_fails():
    def similarity(text, others):
        raise MemoryError

    policies = tool_world.policies()
    query = policies.grants(map_person("desk", policies), tool_world.NOW).query
    vocabulary = build_vocabulary(policies.catalog, query, policies.tools, frozenset(), lambda _: None)
    drafted = draft.draft("Is PN-88213 in stock at depot 4?", vocabulary, tool_world.TODAY, similarity)
    assert [one.origin for one in drafted] == ["tool"]


def test_an_embedder_that_fails_is_said(router):
    """What is given to the tools says what it fails in, and raises it for them to go on without."""

    def embed_question(text, purpose):
        raise MemoryError("CANARY")

    line = dataclasses.replace(router.line, embedder=SimpleNamespace(embed_question=embed_question))
    found = Evidence()
    asking = SimpleNamespace(
        line=line,
        found=found,
        question=SimpleNamespace(text="q"),
        principal=SimpleNamespace(name="n"),
        decision_id="d",
    )
    with pytest.raises(MemoryError):
        table_leg._similar(asking, None, "q", ("example",))
    assert [(one.stage, one.reason) for one in found.degraded] == [
        ("embed", "MemoryError: query tools were told apart by words alone")
    ]
