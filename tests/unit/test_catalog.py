"""The catalogue: a plain Ossie document, judged by Ossie's own schema, its places named where something is wrong."""

from pathlib import Path

import pytest

from router.errors import Refused
from router.policy import load_policies
from router.policy.load import inspect_files
from router.policy.strict import Faults
from router.sql.paths import build_graph, one_way

FOLDER = Path(__file__).parents[1] / "sql" / "policies"
RAW = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}
TEXT = RAW["catalog.yaml"].decode()


def faults_of(text):
    return inspect_files(RAW | {"catalog.yaml": text.encode()}, Faults())[1]


def changed(old, new):
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_nouns():
    catalog = load_policies(FOLDER).catalog
    assert [dataset.name for dataset in catalog.datasets] == ["claims_v", "approvals_v", "inventory_v", "depots_v"]
    claims = catalog.dataset("CLAIMS_V")
    assert claims.keys == (frozenset({"claim_id"}),)
    assert claims.field("reported_at").is_time
    assert not claims.field("amount").is_time
    assert [relationship.name for relationship in catalog.relationships] == [
        "approval_of_claim",
        "claim_at_depot",
        "stock_at_depot",
    ]


def test_synonyms_metrics_and_flags():
    text = changed("datatype: Date\n", "datatype: Date\n            dimension: { is_time: false }\n").replace(
        "        description: Depots\n", "        description: Depots\n        ai_context: { synonyms: [warehouses, yards] }\n"
    )
    text += "    metrics:\n      - name: open_claims\n        expression: { dialects: [{ dialect: ANSI_SQL, expression: COUNT(claims_v.claim_id) }] }\n"
    policies, faults = inspect_files(RAW | {"catalog.yaml": text.encode()}, Faults())
    assert not faults
    assert policies.catalog.dataset("depots_v").synonyms == ("warehouses", "yards")
    assert policies.catalog.metric("open_claims").expression == "COUNT(claims_v.claim_id)"
    assert not policies.catalog.dataset("inventory_v").field("last_counted").is_time


def test_label_and_time_come_from_governance():
    text = RAW["governance.yaml"].decode().replace("relation: main.claims_v", "label: claim_id\n    time: reported_at")
    policies, faults = inspect_files(RAW | {"governance.yaml": text.encode()}, Faults())
    assert not faults
    assert (policies.catalog.dataset("claims_v").label, policies.catalog.dataset("claims_v").time) == ("claim_id", "reported_at")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version: 0.2.0.dev0", "version: 0.1.1", '`version` is "0.1.1", and this version reads `0.2.0.dev0`'),
        ("version: 0.2.0.dev0\n", "", "has no `version`"),
        ("source: main.claims_v", "sources: main.claims_v", "`semantic_model.0.datasets.0` has no `source`"),
        ("datatype: Integer", "datatype: Number", '"Number"; known here: String, Integer'),
        ("datatype: Integer", "datatypes: Integer", "`semantic_model.0.datasets.0.fields.0.datatypes` is an unknown key"),
        ("primary_key: [claim_id]", "primary_key: claim_id", "not of type array"),
        ("primary_key: [claim_id]", "primary_key: [claim]", "`claims_v` speaks of the column `claim`"),
        ("expression: status", "expression: state", "`status` speaks of the column `state`, which governance.yaml does not list"),
        (
            "dialect: ANSI_SQL, expression: status",
            "dialect: SNOWFLAKE, expression: status",
            "`status` has no expression in ANSI_SQL",
        ),
        ("- name: status\n", "- name: Severity\n", "`severity` stands twice among the fields of `claims_v`"),
        ("name: approval_of_claim", "name: claim_at_depot", "`claim_at_depot` stands twice among the relationships"),
        ("to: depots_v", "to: depot_v", "joins `depot_v`, which is no dataset"),
        ("to_columns: [claim_id]", "to_columns: [claim_id, tenant_id]", "joins 1 columns with 2"),
        ("from_columns: [depot_id]", "from_columns: [depot]", "speaks of the column `depot`"),
        ("- name: depots_v", "- name: depot_v", "says nothing of the dataset `depot_v`"),
    ],
)
def test_faults_name_the_place(old, new, said):
    found = faults_of(changed(old, new))
    assert any(said in fault.message for fault in found), [(fault.line, fault.message) for fault in found]
    fault = next(fault for fault in found if said in fault.message)
    assert fault.file == "catalog.yaml"
    lines = changed(old, new).splitlines()
    word = new.split(":")[0].strip("- ") or "version"
    assert any(word in line for line in lines[max(0, fault.line - 2) : fault.line + 2]) or fault.line <= 2 or "source" in said


def test_two_metrics_of_one_name():
    metric = "      - { name: total, expression: { dialects: [{ dialect: ANSI_SQL, expression: SUM(claims_v.amount) }] } }\n"
    (fault,) = faults_of(f"{TEXT}    metrics:\n{metric}{metric.replace('total', 'Total')}")
    assert "`Total` stands twice among the metrics" in fault.message
    assert fault.line == len(TEXT.splitlines()) + 3


def test_two_models_are_one_too_many():
    (fault,) = faults_of(TEXT + TEXT[TEXT.index("  - name: claims_desk") :])
    assert "there are 2 models" in fault.message
    assert fault.line == 3


def test_a_governed_dataset_missing_here():
    text = TEXT[: TEXT.index("      - name: depots_v")] + "    relationships: []\n"
    (fault,) = faults_of(text)
    assert "the dataset `depots_v` of governance.yaml is not in the catalogue" in fault.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "version: 0.2.0.dev0",
        "version: &a 0.2.0.dev0\nsemantic_model: *a",
        "semantic_model: {}",
        "a: !!python/object:os.system {}",
    ],
)
def test_hostile_documents_are_faults(text):
    found = faults_of(text)
    assert found
    assert all(fault.file == "catalog.yaml" for fault in found)


# --- meaning ----------------------------------------------------------------------------------------------------------


def with_metric(expression, name="m"):
    quoted = expression.replace("'", "''")
    return f"{TEXT}    metrics:\n      - name: {name}\n        expression: {{ dialects: [{{ dialect: ANSI_SQL, expression: '{quoted}' }}] }}\n"


def with_status(expression):
    return changed("expression: status }", f"expression: '{expression}' }}")


STATUS = next(at for at, line in enumerate(TEXT.splitlines(), 1) if "expression: status }" in line)
END = len(TEXT.splitlines())


@pytest.mark.parametrize(
    ("text", "code", "said", "line"),
    [
        (with_status("upper("), "E_EXPRESSION", "`claims_v.status`", STATUS),
        (with_status("1; DROP TABLE x"), "E_EXPRESSION", "is not one expression", STATUS),
        (with_status("(SELECT 1)"), "E_EXPRESSION", "`claims_v.status`", STATUS),
        (with_status("upper(stat)"), "catalog_format", "the column `stat`, which governance.yaml does not list", STATUS),
        (with_status("count(claim_id)"), "E_AGGREGATE_IN_FIELD", "`claims_v.status`", STATUS),
        (with_status("severity || depots_v.code"), "", "", 0),
        (with_status("approvals_v.decision || 1"), "E_UNAGGREGATED_FINER_GRAIN_REFERENCE", "aggregate it", STATUS),
        (with_status("severity || depots_v.cod"), "E_NAME_NOT_FOUND", "`depots_v.cod`", STATUS),
        (with_metric("SUM(claims_v.amount)"), "", "", 0),
        (with_metric("SUM(claims_v.amounts)"), "E_NAME_NOT_FOUND", "`claims_v.amounts`", END + 3),
        (with_metric("SUM(claims_v.claimant_phone)"), "E_NAME_NOT_FOUND", "`claims_v.claimant_phone`", END + 3),
        (with_metric("m + 1"), "E_FIELD_DEPENDENCY_CYCLE", "the metric `m` refers to itself", END + 3),
        (with_metric("SUM("), "E_EXPRESSION", "`m`: ", END + 3),
        (with_metric("SUM(claims_v.amount)", "Claims_v"), "E_NAME_COLLISION", "`Claims_v` is the name of two things", END + 2),
        (with_metric("SUM(claims_v.amount)", "where"), "E_RESERVED_NAME", "`where` is reserved", END + 2),
    ],
)
def test_meaning(text, code, said, line):
    found = faults_of(text)
    if not code:
        assert found == []
        return
    (fault,) = found
    assert (fault.code, fault.file, fault.line) == (code, "catalog.yaml", line), fault.message
    assert said in fault.message
    assert fault.hint


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("    description: Claims, their", "    parameters: {}\n    description: Claims, their", "semantic_model.0.parameters"),
        (
            "        primary_key: [claim_id]",
            "        metrics: []\n        primary_key: [claim_id]",
            "semantic_model.0.datasets.0.metrics",
        ),
        (
            "            datatype: Decimal",
            "            agg: sum\n            datatype: Decimal",
            "semantic_model.0.datasets.0.fields.9.agg",
        ),
    ],
)
def test_deferred_keys_are_named_as_such(old, new, key):
    (fault,) = faults_of(changed(old, new))
    assert (fault.code, fault.message) == ("E_DEFERRED_KEY_REJECTED", f"`{key}` is deferred by the Foundation draft (§10)")
    assert fault.line == next(
        at for at, line in enumerate(changed(old, new).splitlines(), 1) if key.rpartition(".")[2] + ":" in line
    )


def test_unknown_keys_are_all_named():
    found = faults_of(
        changed("        primary_key: [claim_id]", "        sorted: 1\n        colour: 2\n        primary_key: [claim_id]")
    )
    assert [fault.message.split("`")[1].rpartition(".")[2] for fault in found] == ["colour", "sorted"]


@pytest.mark.parametrize("role", ["label", "time"])
def test_label_and_time_are_fields(role):
    text = RAW["governance.yaml"].decode().replace("relation: main.claims_v", f"{role}: claim_no")
    (fault,) = inspect_files(RAW | {"governance.yaml": text.encode()}, Faults())[1]
    assert f"gives `claims_v` the {role} `claim_no`, which is none of its fields" in fault.message


def test_a_cycle_of_relationships_is_served_and_leaves_no_choice():
    """Tables do refer to each other in circles; such a model loads, and a question across it is refused unless it names the way."""
    back = "      - { name: back, from: depots_v, to: claims_v, from_columns: [depot_id], to_columns: [claim_id] }\n"
    policies, faults = inspect_files(RAW | {"catalog.yaml": (TEXT + back).encode()}, Faults())
    assert faults == []
    graph = build_graph(policies.catalog)
    with pytest.raises(Refused) as caught:
        one_way(graph, "claims_v", "depots_v")
    assert caught.value.code == "E_AMBIGUOUS_PATH"
    assert "`back`" in caught.value.message
    assert [step.relationship for step in one_way(graph, "claims_v", "depots_v", ("claim_at_depot",))] == ["claim_at_depot"]


def policy(condition, effect="permit", action="read_column"):
    text = f'@id("x") @reason("r") @owner("o")\n{effect} (principal, action == Pointsman::Action::"{action}", resource)\nwhen {{ {condition} }};\n'
    schema = (
        RAW["schema.cedarschema"].decode().replace("tags: Set<String> }", "tags: Set<String>, name: String, dataset: String }")
    )
    return RAW | {"x.cedar": text.encode(), "schema.cedarschema": schema.encode()}


@pytest.mark.parametrize("effect", ["permit", "forbid"])
@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ('resource.name == "amount"', ""),
        ('"amount" == resource.name && resource.dataset == "claims_v"', ""),
        ('resource.name == "salary"', "the column `salary`"),
        ('["amount", "salary"].contains(resource.name)', "the column `salary`"),
        ('resource.name == "amount" && resource.dataset == "depots_v"', "the column `amount`"),
        ('resource.dataset == "employees"', "the dataset `employees`"),
    ],
)
def test_policy_on_a_column_that_is_not_there(condition, said, effect):
    found = inspect_files(policy(condition, effect), Faults())[1]
    if not said:
        assert found == []
        return
    (fault,) = found
    assert (fault.code, fault.file, fault.line, fault.policy_id) == ("policy_column_unknown", "x.cedar", 1, "x")
    assert said in fault.message
