"""Tables from Cedar: rows that Cedar, the reference evaluator and DuckDB agree about, columns by their tags, facts read strictly."""

import dataclasses
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.duckdb_tables import lower_filter
from router.domain import ColumnGrant, Principal
from router.filters import matches
from router.policy import load_policies
from router.policy.load import inspect_files
from router.policy.strict import Faults
from router.review.cases import map_person
from tests import policy_world as world

CORPUS = Path(__file__).parents[1] / "sql" / "policies"
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

_ROW = """{
    tenant: String, groups: Set<String>, tags: Set<String>, sensitivity: Long, title: String, active: Bool,
    rank?: Long, region?: String, archived?: Bool,
  };"""
SCHEMA = world.SCHEMA.replace(
    "entity Column", f"entity things = {_ROW}\n  entity bare = {{ tenant: String, region?: String }};\n  entity Column"
).replace(
    'action "query", "read_column"',
    'action "query" appliesTo {\n    principal: [User, Service], resource: [bare, things], context: { now: Long }\n  };\n  action "read_column"',
)
FIELDS = {
    "tenant": "VARCHAR",
    "groups": "VARCHAR[]",
    "tags": "VARCHAR[]",
    "sensitivity": "BIGINT",
    "title": "VARCHAR",
    "active": "BOOLEAN",
    "rank": "BIGINT",
    "region": "VARCHAR",
    "archived": "BOOLEAN",
}
GOVERNANCE = f"""
datasets:
  things:
    relation: main.things_v
    attributes: {{ {", ".join(f"{name}: {name}_c" for name in FIELDS)} }}
    columns:
      id: [plain]
      Title: {{ tags: [personal], mask: "left(title, 1)", values: true }}
      secret: [personal]
      note: {{ tags: [plain, personal], mask: "''", values: public }}
      cost: {{ tags: [money], mask: "round(cost, -3)" }}
    min_group: 5
  bare:
    attributes: {{ tenant: CAST(tenant AS VARCHAR), region: region }}
    columns: {{ id: [plain] }}
"""
COLUMNS = """
@id("plain") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"read_column", resource) when { resource.tags.contains("plain") };
@id("masked") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"read_masked", resource) when { resource.tags.containsAny(["personal", "money"]) };
@id("pick-by-cost") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"filter_raw", resource) when { resource.tags.contains("money") && principal.vip };
"""
ALL_ROWS = '@id("rows") @reason("r") @owner("o")\npermit (principal, action == Pointsman::Action::"query", resource);\n'
ADA = Principal(
    "corp", "ada", "User", "t1", frozenset({"corp:a"}), (("clearance", 1), ("teams", frozenset()), ("vip", False)), 2**40
)


def folder(cedar, **files):
    return world.folder_files(cedar, schema__cedarschema=SCHEMA, **{"governance__yaml": GOVERNANCE} | files)


def grants(policies, principal=ADA):
    return {grant.name: grant for grant in policies.grants(principal, world.NOW).query}


def faults_of(cedar=ALL_ROWS, **files):
    return inspect_files(folder(cedar, **files), Faults())[1]


# --- rows -------------------------------------------------------------------------------------------------------------


def as_query(text):
    """The world's policies on documents, said of rows: no row is in a source, so that scope is left away."""
    text = text.replace('Action::"search"', 'Action::"query"').replace("Pointsman::Document", "Pointsman::things")
    for scope in ('resource in Pointsman::Source::"alpha")', 'resource is Pointsman::things in Pointsman::Source::"gamma")'):
        text = text.replace(f", {scope}", ", resource is Pointsman::things)")
    text = text.replace('resource is Pointsman::things in Pointsman::Source::"beta"', "resource is Pointsman::bare")
    return text.replace("action in [", "action in [").replace(", resource)", ", resource is Pointsman::things)")


@SETTINGS
@given(text=world.policy_texts(), principal=world.principals(), data=st.data())
def test_rows_agree(text, principal, data):
    """Cedar in full on a row, the reference evaluator on its filter, and DuckDB on the same filter say the same."""
    policies = world.load_files(folder(as_query(text) + COLUMNS))
    rows = data.draw(st.lists(world.labels(principal.tenant) | world.labels("elsewhere"), min_size=1, max_size=8))
    verdicts = [verdict.allowed for verdict in policies.judge_rows(principal, world.NOW, "things", rows)]
    grant = grants(policies, principal).get("things")
    if grant is None:
        assert not any(verdicts), world.describe(policies, principal, rows)
        return
    assert [matches(grant.filter, row) for row in rows] == verdicts, world.describe(policies, principal, rows)
    assert in_duckdb(grant, rows) == verdicts, world.describe(policies, principal, rows)


def in_duckdb(grant, rows):
    attributes = {name: (expression, kind) for name, expression, kind in grant.attributes}
    with duckdb.connect(":memory:") as con:
        con.execute(f"CREATE TABLE r (nr INTEGER, {', '.join(f'{name}_c {kind}' for name, kind in FIELDS.items())})")
        for at, row in enumerate(rows):
            values = [sorted(row[name]) if isinstance(row.get(name), frozenset) else row.get(name) for name in FIELDS]
            con.execute(f"INSERT INTO r VALUES ({', '.join('?' * (len(FIELDS) + 1))})", [at, *values])
        found = {at for (at,) in con.execute(f"SELECT nr FROM r WHERE {lower_filter(grant.filter, attributes)}").fetchall()}
    return [at in found for at in range(len(rows))]


def test_each_dataset_has_its_own_rows():
    """`is` and `has` fold by dataset: an attribute that one does not have is absent there, not an error."""
    text = """
@id("ranked") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"query", resource) when { resource has rank && resource.rank > 3 };
@id("bare-north") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"query", resource is Pointsman::bare) when { resource has region && resource.region == "north" };
"""
    found = grants(world.load_files(folder(text + COLUMNS)))
    assert found["things"].policies == ("ranked", "tenant-wall")
    assert found["bare"].policies == ("bare-north", "tenant-wall")
    assert matches(found["bare"].filter, {"tenant": "t1", "region": "north"})
    assert not matches(found["bare"].filter, {"tenant": "t'2", "region": "north"})
    assert not matches(found["bare"].filter, {"tenant": "t1"})


def test_no_permit_no_table():
    assert grants(world.load_files(folder(COLUMNS))) == {}
    assert grants(world.load_files(folder(ALL_ROWS))) == {}  # rows without a column are nothing


def test_grants_are_remembered_with_the_rest():
    policies = world.load_files(folder(ALL_ROWS + COLUMNS))
    first = policies.grants(ADA, world.NOW)
    assert policies.grants(ADA, world.NOW + timedelta(hours=1)).query is first.query
    assert policies.grants(dataclasses.replace(ADA, tenant="t'2"), world.NOW).query != first.query


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_by_tag():
    """`read_column` wins; masked without a mask, and what nothing permits, do not exist."""
    found = grants(world.load_files(folder(ALL_ROWS + COLUMNS)))["things"]
    assert found.columns == (
        ColumnGrant("id"),
        ColumnGrant("Title", "left(title, 1)"),
        ColumnGrant("note"),
        ColumnGrant("cost", "round(cost, -3)"),
    )
    assert found.relation == "main.things_v"
    assert found.min_group == 5
    vip = dataclasses.replace(ADA, attributes=(("clearance", 1), ("teams", frozenset()), ("vip", True)))
    assert grants(world.load_files(folder(ALL_ROWS + COLUMNS)), vip)["things"].columns[-1].filter_raw


def test_forbid_hides_a_column():
    text = """
@id("no-notes") @reason("r") @owner("o")
forbid (principal, action in [Pointsman::Action::"read_column", Pointsman::Action::"read_masked"], resource)
when { resource.tags.containsAll(["plain", "personal"]) };
"""
    found = grants(world.load_files(folder(ALL_ROWS + COLUMNS + text)))["things"]
    assert "note" not in [column.name for column in found.columns]


def test_columns_by_name_where_the_schema_says_so():
    schema = SCHEMA.replace("Column = { tenant: String,", "Column = { tenant: String, dataset: String, name: String,")
    text = """
@id("one") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"read_column", resource) when { resource.dataset == "things" && resource.name == "cost" };
"""
    policies = world.load_files(world.folder_files(ALL_ROWS + text, schema__cedarschema=schema, governance__yaml=GOVERNANCE))
    assert {name: grant.columns for name, grant in grants(policies).items()} == {"things": (ColumnGrant("cost"),)}


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  bare:", "  bore:", "bore` is a dataset that the schema does not have"),
        ("relation: main.things_v", "relation: main.things v", "relation"),
        ("relation: main.things_v", "relations: main.things_v", "unknown key `relations`"),
        ("tenant: tenant_c,", "", "maps nothing to `tenant`"),
        ("tenant: tenant_c,", "tenant: tenant_c, owner: owner,", "unknown key `owner`"),
        ("tenant: tenant_c,", "tenant: 'tenant; DROP TABLE x',", "`;`"),
        ("id: [plain]\n", "id: []\n", "`id`"),
        ("id: [plain]\n", "id: [plain]\n      ID: [plain]\n", "`id` and `ID`"),
        ("values: true", "values: yes please", "`values`"),
        ("min_group: 5", "min_group: 1", "`min_group`"),
        ("min_group: 5", "min_group: true", "`min_group`"),
    ],
)
def test_facts_are_read_strictly(old, new, said):
    found = faults_of(governance__yaml=GOVERNANCE.replace(old, new, 1))
    assert any(said in fault.message for fault in found), found
    assert all(fault.file == "governance.yaml" and fault.line > 0 for fault in found)


def test_every_dataset_of_the_schema_is_governed():
    (fault,) = faults_of(governance__yaml=GOVERNANCE[: GOVERNANCE.index("  bare:")])
    assert "`bare`" in fault.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("resource: [bare, things]", "resource: [things]", "`query`"),
        ("entity bare = { tenant: String,", "entity bare = {", "tenant"),
        ("Column = { tenant: String, tags: Set<String> }", "Column = { tenant: String }", "tags"),
        ("Column = { tenant: String,", "Column = { tenant: String, colour: String,", "colour"),
    ],
)
def test_schema_of_tables(old, new, said):
    assert old in SCHEMA
    found = inspect_files(
        world.folder_files("", schema__cedarschema=SCHEMA.replace(old, new), governance__yaml=GOVERNANCE), Faults()
    )[1]
    assert any(said in fault.message for fault in found), found


def test_the_corpus_folder_is_its_policy():
    """tests/sql/policies says in Cedar what the corpora are judged by: tests/sql/policy.json."""
    from tests.sql.oracle import grants as judged_by

    policies = load_policies(CORPUS)
    for tenant in (1, 2, 3):
        principal = map_person(f"analyst-{tenant}", policies)
        found = grants(policies, principal)
        for wanted in judged_by(tenant):
            assert (found[wanted.name].relation, found[wanted.name].columns) == (wanted.relation, wanted.columns)
            for row_tenant in ("1", "2", "3"):
                assert matches(found[wanted.name].filter, {"tenant": row_tenant}) == (row_tenant == str(tenant))
        assert len(found) == 4
