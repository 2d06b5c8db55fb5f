"""Loading: what is evaluated is what was checked, the version is of the reviewed bytes, and versions are kept whole."""

import hashlib
from pathlib import Path

import pytest

from router.domain import Claim
from router.filters import EntityType, Field
from router.policy import keep_version, load_policies
from router.policy.folder import compute_version
from router.policy.load import inspect_files, split_statements
from router.policy.strict import Faults
from tests import policy_world as world

ROOT = Path(__file__).parents[2] / "policies"

TRICKY = r"""
// a comment with ; and "quotes
@id("one") @reason("a ; in a \"reason\" // no comment") @owner("o") // trailing ; comment
permit (principal, action == Pointsman::Action::"search", resource)
when { resource.title == "semi;colon // not a comment" };@id("two") @reason("r") @owner("o") forbid
  (principal, action == Pointsman::Action::"search", resource) unless { resource.title like "back\\*;\"" };
// the end
"""


def test_statements_are_the_file():
    policies = world.load_files(world.folder_files(TRICKY))
    found = [(statement.policy_id, statement.line) for statement in policies.statements if statement.file == "documents.cedar"]
    assert found == [("one", 3), ("two", 5)]
    assert [statement.reason for statement in policies.statements][1] == 'a ; in a "reason" // no comment'


def test_split_keeps_an_unfinished_statement():
    assert split_statements('a;\n\n b "x;') == [(1, "a;"), (3, 'b "x;')]


def test_comments_alone_are_no_policy():
    assert len(world.load_files(world.folder_files("// nothing\n")).statements) == 1


def test_root_policies_load():
    policies = load_policies(ROOT)
    assert policies.document_type.fields["sensitivity"] == Field("long", required=True)
    assert policies.document_type.fields["effective_from"] == Field("long", required=False)
    assert policies.issuers["corp"].attributes == (("clearance", Claim(("clearance",))), ("region", Claim(("region",))))
    assert policies.sources["manuals"].tenant == "fabrikam"


def test_version_is_of_the_reviewed_bytes():
    raw = world.folder_files("", people__yaml="people: {}\n")
    base = world.load_files(raw).version
    assert base == world.load_files(dict(reversed(raw.items()))).version
    assert world.load_files(raw | {"people.yaml": b"people: { ada: { issuer: corp, sub: ada } }\n"}).version == base
    for name in ("schema.cedarschema", "00-never.cedar", "documents.cedar", "identity.yaml", "sources.yaml", "governance.yaml"):
        comment = b"\n// x\n" if "cedar" in name else b"\n# x\n"
        assert world.load_files(raw | {name: raw[name] + comment}).version != base
    assert compute_version(raw | {"catalog.yaml": b"a: 1\n"}) != base
    assert world.load_files(raw | {"more.cedar": b"\n"}).version != base


def test_version_does_not_run_files_together():
    raw = world.folder_files("")
    one = raw | {"a.cedar": b"// x\n", "b.cedar": b"// y\n"}
    two = raw | {"a.cedar": b"// x\n// y\n", "b.cedar": b""}
    assert world.load_files(one).version != world.load_files(two).version


def test_keep_version_is_whole_and_idempotent(tmp_path):
    policies = world.load_files(world.folder_files(TRICKY, people__yaml="people: {}\n"))
    kept = keep_version(policies, tmp_path)
    assert kept == tmp_path / "policies" / policies.version
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept.iterdir()}
    assert set(before) == set(policies.raw) - {"people.yaml"}
    assert keep_version(policies, tmp_path) == kept
    assert load_policies(kept).version == policies.version
    assert [path.name for path in kept.parent.iterdir()] == [policies.version]


def schema_faults(text):
    return [
        fault for fault in inspect_files(world.folder_files("", schema__cedarschema=text), Faults())[1] if "schema" in fault.file
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: String", "title: Striing", "Striing"),
        ("title: String", "title: decimal", "decimal"),
        ("title: String", "title: { a: Long }", "title"),
        ("title: String", "title: Source", "Source"),
        ("title: String", "title: Set<Long>", "Set<Long>"),
        ("title: String", '"the title": String', "the title"),
        ("tags: Set<String>, sensitivity", "tags?: Set<String>, sensitivity", "optional set"),
        ("sensitivity: Long", "sensitivity?: Long", "sensitivity"),
        ("sensitivity: Long", "sensitivity: String", "sensitivity"),
        ("entity Document in [Source] = {\n    tenant: String", "entity Document in [Source] = {\n    tenant?: String", "tenant"),
        ("entity Document in [Source]", "entity Document in [Group]", "parents"),
        ("entity Document in [Source]", "entity Document", "parents"),
        ("entity Group;", "entity Group in [Group];", "parents"),
        ("entity Group;", 'entity Group enum ["a"];', "numerated"),
        ("entity Provider;", "", "Provider"),
        ("entity Provider;", "entity Provider; entity Documents;", "`Documents`"),
        ("entity Provider;", "entity Provider; type Name = String;", "common type"),
        ('action "audit"', 'action "audits"', "audit"),
        ("resource: [Document], context: { now: Long }", "resource: [Document, Decision], context: { now: Long }", "search"),
        ("purpose: String, class: Long", "purpose: String", "disclose"),
        ("namespace Pointsman", "namespace Pointman", "namespace"),
    ],
)
def test_schema_faults(old, new, said):
    assert old in world.SCHEMA
    faults = schema_faults(world.SCHEMA.replace(old, new, 1))
    assert any(said in fault.message for fault in faults), faults
    assert all(fault.line for fault in faults)


def test_dataset_types_stand_in_the_schema():
    text = world.SCHEMA.replace(
        "entity Provider;", "entity Provider; entity claims = { tenant: String, region?: String };"
    ).replace(
        'action "query", "read_column"',
        'action "query" appliesTo { principal: [User, Service], resource: [claims], context: { now: Long } }; action "read_column"',
    )
    facts = "datasets: { claims: { attributes: { tenant: t, region: r }, columns: { id: [plain] } } }\n"
    policies = world.load_files(world.folder_files("", schema__cedarschema=text, governance__yaml=facts))
    assert policies.types["claims"] == EntityType("claims", {"tenant": Field("string", True), "region": Field("string", False)})
    assert policies.datasets["claims"].relation == "main.claims"


def test_all_faults_are_collected():
    text = '@id("a") permit (principal, action, resource);\n@id("a") @reason("r") @owner("o") permit (principal, action, resource) when { x };'
    faults = inspect_files(world.folder_files(text, governance__yaml="x: 1\n"), Faults())[1]
    assert {fault.file for fault in faults} >= {"documents.cedar", "governance.yaml"}


def test_claim_paths():
    text = world.IDENTITY.replace("teams: teams", 'teams: { path: ["https://x.example/teams"] }').replace(
        "region: { path: region,", "region: { path: address.region,"
    )
    claims = dict(world.load_files(world.folder_files("", identity__yaml=text)).issuers["corp"].attributes)
    assert claims["teams"] == Claim(("https://x.example/teams",))
    assert claims["region"] == Claim(("address", "region"), required=True)
