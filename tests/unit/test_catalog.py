"""The catalogue: a plain Ossie document, judged by Ossie's own schema, its places named where something is wrong."""

from pathlib import Path

import pytest

from router.policy import load_policies
from router.policy.load import inspect_files
from router.policy.strict import Faults

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
