"""The corpus's four tables behind richer policies: row attributes of every kind, an optional one among them, and a person too many."""

from __future__ import annotations

import shutil
from pathlib import Path

from router.app import Router, make_development_issuer, make_tables
from router.config import load_settings

SQL = Path(__file__).parent / "sql"
WEST = """
@id("west-only") @reason("r") @owner("o")
forbid (principal, action == Pointsman::Action::"query", resource is Pointsman::claims_v)
unless { resource has region && resource.region == "west" };
"""
_ATTRIBUTES = "tenant: String, groups: Set<String>, region?: String, reported: Long, paid: Bool"
_MAPPED = (
    'tenant: CAST(tenant_id AS VARCHAR), groups: "[\'dev:\' || lower(status)]", region: "lower(region)", '
    "reported: epoch_ms(reported_at), paid: closed_at IS NOT NULL"
)
_TABLES = ("claims_v", "approvals_v", "inventory_v", "depots_v")


def edit(folder: Path, name: str, old: str, new: str) -> None:
    """One place of one file, which must be there."""
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text, (name, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def write_policies(folder: Path) -> Path:
    shutil.copytree(SQL / "policies", folder)
    edit(folder, "schema.cedarschema", "claims_v = { tenant: String }", f"claims_v = {{ {_ATTRIBUTES} }}")
    edit(folder, "governance.yaml", "attributes: { tenant: CAST(tenant_id AS VARCHAR) }", f"attributes: {{ {_MAPPED} }}")
    edit(folder, "people.yaml", "people:\n", 'people:\n  stranger: { issuer: dev, sub: s, tenant: "1", groups: [] }\n')
    with (folder / "tables.cedar").open("a", encoding="utf-8") as out:
        out.write(WEST)
    return folder


def write_rows_world(folder: Path) -> Path:
    """Configuration, policies, key and a database, nothing copied yet; returns the configuration file."""
    folder.mkdir()
    write_policies(folder / "policies")
    make_tables((SQL / "fixture.sql").read_text(encoding="utf-8"), folder / "source.duckdb")
    config = folder / "pointsman.toml"
    config.write_text("".join(f'[tables.{name}]\npath = "source.duckdb"\n' for name in _TABLES), encoding="utf-8")
    make_development_issuer(load_settings(config))
    return config


def build_rows_world(folder: Path) -> Path:
    """`write_rows_world`, and copied."""
    config = write_rows_world(folder)
    with Router(load_settings(config)) as router:
        assert [report.error for report in router.copy_tables()] == [None] * len(_TABLES)
    return config
