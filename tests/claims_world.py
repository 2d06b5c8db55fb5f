"""The claims desk of the SQL suites as a whole router: four views, three tenants, words for the tables, and a guest with nothing."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from router.app import make_development_issuer, make_tables
from router.config import load_settings

SQL = Path(__file__).parent / "sql"
VIEWS = ("claims_v", "approvals_v", "inventory_v", "depots_v")
NOW = datetime(2024, 8, 15, 12, tzinfo=UTC)
NAMES = {"claims_v": "claim", "approvals_v": "approval", "inventory_v": "stock item", "depots_v": "depot"}


def build_claims_world(folder: Path, *, settings: str = "", disclosure: str = "") -> Path:
    """Returns the configuration; tables are copied by the router that opens it."""
    shutil.copytree(SQL / "policies", folder / "policies")
    governance = folder / "policies" / "governance.yaml"
    text = governance.read_text(encoding="utf-8").replace("status: [plain]", "status: { tags: [plain], values: true }")
    text = text.replace("region: [plain]", "region: { tags: [plain], values: true }", 1)
    text = text.replace("    relation: main.claims_v\n", "    relation: main.claims_v\n    time: reported_at\n")
    governance.write_text(text, encoding="utf-8")
    catalog = folder / "policies" / "catalog.yaml"
    text = catalog.read_text(encoding="utf-8")
    for view, word in NAMES.items():
        text = text.replace(f"      - name: {view}\n", f"      - name: {view}\n        ai_context: {{ synonyms: [{word}] }}\n")
    catalog.write_text(text, encoding="utf-8")
    people = (folder / "policies" / "people.yaml").read_text(encoding="utf-8")
    people += '  guest: { issuer: dev, sub: guest, tenant: "1", groups: [guests] }\n'
    (folder / "policies" / "people.yaml").write_text(people, encoding="utf-8")
    if disclosure:
        (folder / "policies" / "disclosure.cedar").write_text(disclosure, encoding="utf-8")
    make_tables((SQL / "fixture.sql").read_text(encoding="utf-8"), folder / "world.duckdb")
    tables = "".join(f'[tables.{name}]\npath = "world.duckdb"\ntable = "main.{name}"\n' for name in VIEWS)
    config = folder / "pointsman.toml"
    config.write_text(f'state = "state"\n{settings}{tables}', encoding="utf-8")
    make_development_issuer(load_settings(config))
    return config
