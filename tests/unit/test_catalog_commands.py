"""`catalog derive` and `catalog check`: names, types and keys and never a value; what cannot be served is said."""

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
import sqlalchemy as sa
import yaml

from router import app
from router.doors.cli import _run
from router.errors import SourceError
from router.policy import load_policies
from router.policy.catalogue import _check_shape
from router.policy.load import inspect_files
from router.policy.strict import Faults, parse_yaml
from router.review.catalog import check_catalog, ossie_type

SQL = Path(__file__).parents[1] / "sql"
SCRIPT = """
CREATE TABLE depots (depot_id INTEGER PRIMARY KEY, code VARCHAR UNIQUE, city VARCHAR, "Opened On" DATE, tags VARCHAR[]);
CREATE TABLE claims (claim_id BIGINT PRIMARY KEY, depot_id INTEGER REFERENCES depots (depot_id), amount DECIMAL(12,2),
  reported TIMESTAMP, paid BOOLEAN, score DOUBLE, at_zone TIMESTAMP WITH TIME ZONE);
INSERT INTO depots VALUES (1, 'CANARY-1', 'CANARY-2', NULL, ['CANARY-3']);
CREATE VIEW open_claims AS SELECT * FROM claims WHERE NOT paid;
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("derive") / "world.duckdb"
    app.make_tables(SCRIPT, path)
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "tables.duckdb"
    app.make_tables((SQL / "fixture.sql").read_text(encoding="utf-8"), path)
    return path


def derived(database, capsys):
    assert _run(["catalog", "derive", str(database)]) == 0
    return capsys.readouterr().out


def test_derive_is_an_ossie_document(database, capsys):
    text = derived(database, capsys)
    faults = Faults()
    _check_shape(parse_yaml(text, "catalog.yaml", faults), faults)
    assert faults.items == []
    (model,) = yaml.safe_load(text)["semantic_model"]
    assert [dataset["name"] for dataset in model["datasets"]] == ["claims", "depots", "open_claims"]
    claims, depots, _ = model["datasets"]
    assert claims["primary_key"] == ["claim_id"]
    assert depots["unique_keys"] == [["code"]]
    types = {field["name"]: field["datatype"] for dataset in (claims, depots) for field in dataset["fields"]}
    assert types == {
        "claim_id": "Integer", "depot_id": "Integer", "amount": "Decimal", "reported": "DateTime", "paid": "Boolean", "score": "Float",
        "at_zone": "DateTimeTz", "code": "String", "city": "String", "opened_on": "Date", "tags": "Opaque",
    }  # fmt: skip
    assert depots["fields"][3]["expression"]["dialects"][0]["expression"] == '"Opened On"'
    assert model["relationships"] == [
        {"name": "claims_depot_id", "from": "claims", "to": "depots", "from_columns": ["depot_id"], "to_columns": ["depot_id"]}
    ]


def test_what_is_derived_can_be_loaded(tmp_path, capsys):
    """Also where the database has names that SQL keeps for itself."""
    path = tmp_path / "odd.duckdb"
    app.make_tables('CREATE TABLE "order" (id INTEGER PRIMARY KEY, "Group" VARCHAR, "2nd" DATE, "from" INTEGER)', path)
    document = yaml.safe_load(derived(path, capsys))
    raw = {file.name: file.read_bytes() for file in (SQL / "policies").iterdir()}
    columns = {"id": ["plain"], "Group": ["plain"], "2nd": ["plain"], "from": ["plain"]}
    facts = {"order_": {"relation": "main.order", "attributes": {"tenant": "'meridian'"}, "columns": columns}}
    raw["governance.yaml"] = yaml.safe_dump({"datasets": facts}).encode()
    raw["catalog.yaml"] = yaml.safe_dump(document).encode()
    schema = raw["schema.cedarschema"].decode()
    raw["schema.cedarschema"] = schema.replace("depots_v", "order_").encode()
    for other in ("claims_v", "approvals_v", "inventory_v"):
        raw["schema.cedarschema"] = re.sub(rf".*entity {other}.*\n|\b{other}, ", "", raw["schema.cedarschema"].decode()).encode()
    policies, faults = inspect_files(raw, Faults())
    assert faults == []
    assert [field.name for field in policies.catalog.dataset("order_").fields] == ["id", "group_", "_2nd", "from_"]


def test_names_that_would_meet_are_kept_apart(tmp_path, capsys):
    """A field whose expression says a plain name means the column of that name, whatever else became plain."""
    path = tmp_path / "twins.duckdb"
    app.make_tables(
        'CREATE TABLE "A-b" (id INTEGER PRIMARY KEY); CREATE TABLE a_b (id INTEGER PRIMARY KEY);'
        'CREATE TABLE t ("X y" INTEGER, x_y INTEGER, "x-y" INTEGER, "order" INTEGER, order_ INTEGER, REF INTEGER REFERENCES a_b (id));'
        "CREATE TABLE t_ref (n INTEGER)",
        path,
    )
    (model,) = yaml.safe_load(derived(path, capsys))["semantic_model"]
    assert {dataset["source"]: dataset["name"] for dataset in model["datasets"]} == {
        "main.A-b": "a_b_2", "main.a_b": "a_b", "main.t": "t", "main.t_ref": "t_ref",
    }  # fmt: skip
    fields = next(dataset for dataset in model["datasets"] if dataset["name"] == "t")["fields"]
    assert {field["expression"]["dialects"][0]["expression"]: field["name"] for field in fields} == {
        '"X y"': "x_y_2", "x_y": "x_y", '"x-y"': "x_y_3", '"order"': "order__2", "order_": "order_", "REF": "ref",
    }  # fmt: skip
    assert model["relationships"][0]["name"] == "t_ref_2"


def test_no_value_is_told(database, capsys):
    assert "CANARY" not in derived(database, capsys)


def test_derive_from_sqlalchemy(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'shop.sqlite'}"
    with sa.create_engine(url).begin() as con:
        con.execute(sa.text("CREATE TABLE parts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price NUMERIC(8,2))"))
        con.execute(sa.text("CREATE TABLE stock (part INTEGER REFERENCES parts (id), n INTEGER)"))
    assert _run(["catalog", "derive", url, "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["semantic_model"]
    assert (model["name"], [dataset["name"] for dataset in model["datasets"]]) == ("shop", ["parts", "stock"])
    assert [field["datatype"] for field in model["datasets"][0]["fields"]] == ["Integer", "String", "Decimal"]
    assert model["relationships"][0]["to"] == "parts"


@pytest.mark.parametrize("database", ["nowhere.duckdb", "postgresql://user:CANARY@127.0.0.1:1/x", "nonsense://x", __file__])
def test_what_cannot_be_read_tells_nothing(database):
    with pytest.raises(SourceError) as found:
        app.read_relations(database)
    assert "CANARY" not in found.value.message + found.value.hint


@pytest.mark.parametrize("damage", ["empty", "noise", "inside", "sqlite"])
def test_a_file_that_is_damaged_or_of_another_kind(tmp_path, corpus, damage, capsys):
    whole, path = corpus.read_bytes(), tmp_path / "CANARY.duckdb"
    if damage == "sqlite":
        sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
    else:
        inside = whole[:12288] + b"\xff" * (len(whole) - 12288)
        path.write_bytes({"empty": b"", "noise": b"CANARY" * 9_000, "inside": inside}[damage])
    assert _run(["catalog", "derive", str(path), "--json"]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "database_unreadable"
    assert ("sqlite:///" in error["hint"]) == (damage == "sqlite")


def test_a_file_that_somebody_writes(tmp_path, corpus):
    path = tmp_path / "held.duckdb"
    path.write_bytes(corpus.read_bytes())
    hold = "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SourceError) as found:
            app.read_relations(str(path))
    finally:
        holder.communicate("")
    assert (found.value.code, found.value.retryable) == ("database_locked", True)
    assert len(app.read_relations(str(path))) > 4


def test_nothing_is_fetched_to_read_a_file(tmp_path):
    """Left to itself DuckDB asks its makers' server for what reads an SQLite file."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        path = tmp_path / "other.sqlite"
        sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        script = (
            "import sys\nfrom router.app import read_relations\nfrom router.errors import SourceError\n"
            "try:\n    read_relations(sys.argv[1])\nexcept SourceError as error:\n    print(error.code)"
        )
        env = os.environ | {"HTTP_PROXY": proxy, "http_proxy": proxy, "HOME": str(tmp_path / "home")}
        watcher = threading.Thread(target=_accept, args=(server, asked))
        watcher.start()
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, check=False, cwd=SQL.parents[1], env=env, capture_output=True, text=True, timeout=60)
        watcher.join()
    assert done.stdout.strip() == "database_unreadable", done.stderr
    assert asked == []
    assert not (tmp_path / "home").exists()


def _accept(server, asked):
    until = time.monotonic() + 3
    while time.monotonic() < until:
        try:
            connection, address = server.accept()
        except TimeoutError:
            continue
        asked.append(address)
        connection.close()


def test_ossie_types():
    assert ossie_type("VARCHAR(20)") == "String"
    assert ossie_type("STRUCT(a DATE)") == ossie_type("INTEGER[]") == ossie_type("BLOB") == "Opaque"
    assert ossie_type("HUGEINT") == ossie_type("uinteger") == "Integer"


# --- check ------------------------------------------------------------------------------------------------------------


def check(tmp_path, database=None, **changes):
    folder = tmp_path / "policies"
    shutil.copytree(SQL / "policies", folder)
    for name, (old, new) in changes.items():
        path = folder / name.replace("__", ".")
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
    relations = app.read_relations(str(database)) if database else ()
    return check_catalog(load_policies(folder), relations, database, app.count_missing)


def test_the_corpus_folder_is_sound(tmp_path, corpus):
    found = check(tmp_path, corpus)
    assert [finding for finding in found if finding.level == "error"] == []
    assert [finding.place for finding in found] == ["claims_v.claimant_phone"]  # tagged for nobody, on purpose


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({"tables__cedar": ('contains("plain")', 'contains("plane")')}, "warning", "the tag `plane`, which no column has"),
        (
            {
                "catalog__yaml": (
                    "description: Depots\n",
                    "description: Depots\n        ai_context: { synonyms: [total yards] }\n",
                )
            },
            "warning",
            "the word `total`",
        ),
        (
            {
                "catalog__yaml": (
                    "name: stock_at_depot, from: inventory_v, to: depots_v",
                    "name: back, from: depots_v, to: claims_v",
                )
            },
            "warning",
            "part of a cycle",
        ),
        ({"governance__yaml": ("relation: main.depots_v", "relation: main.depots_w")}, "error", "no relation `main.depots_w`"),
        ({"governance__yaml": ("code: [plain]", "code: [plain]\n      bay: [plain]")}, "error", "has no column `bay`"),
        (
            {"governance__yaml": ("      claimant_phone: [contact]\n", "")},
            "warning",
            "`claimant_phone` of `main.claims_v` is not listed",
        ),
        (
            {"governance__yaml": ("CAST(tenant_id AS VARCHAR)", '"IF(claim_id < 4, NULL, CAST(tenant_id AS VARCHAR))"')},
            "error",
            "3 rows of `main.claims_v` lack the required attribute `tenant`",
        ),
        ({"governance__yaml": ("CAST(tenant_id AS VARCHAR)", "CAST(owner AS VARCHAR)")}, "error", "cannot be computed"),
    ],
)
def test_findings(tmp_path, corpus, changes, level, said):
    found = [finding for finding in check(tmp_path, corpus, **changes) if said in finding.message]
    assert found, said
    assert {finding.level for finding in found} == {level}


def test_check_command(tmp_path, corpus, capsys):
    shutil.copytree(SQL / "policies", tmp_path / "policies")
    (tmp_path / "pointsman.toml").write_text("", encoding="utf-8")
    config = ["--config", str(tmp_path / "pointsman.toml")]
    assert _run(["catalog", "check", "--json", *config]) == 0
    assert json.loads(capsys.readouterr().out)["database"] is False
    assert _run(["catalog", "check", "--database", str(corpus), *config]) == 0
    assert "4 datasets, 0 errors, 1 warnings" in capsys.readouterr().out
    with duckdb.connect(str(corpus)) as con:
        con.execute("DROP VIEW depots_v")
    with pytest.raises(SystemExit) as ended:
        _run(["catalog", "check", "--database", str(corpus), "--json", *config])
    assert ended.value.code == 1
