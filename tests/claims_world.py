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


DOCUMENTS = {
    "handling.md": "# Handling a claim\n\nTo reopen a closed claim, ask the desk lead in writing and name the reason.\n",
    "limits.md": "# Approval limits\n\nAn adjuster approves claims up to 5,000; above that the head of claims signs.\n",
    "water.md": "# Water damage\n\nA claim for water damage needs photographs of the room and the plumber's report.\n",
}
SEARCH = """
@id("analysts-search") @reason("analysts read the guide") @owner("claims")
permit (principal, action == Pointsman::Action::"search", resource)
when { resource.groups.containsAny(principal.groups) };
"""


def add_documents(folder: Path) -> None:
    """A guide that analysts of tenant 1 may read, and an empty-handed guest may not."""
    sources = "sources:\n  guide: { tenant: '1', connector: folder, groups: [dev:analysts], least: internal,\n"
    sources += "    description: how claims are handled, question: how do I }\n"
    (folder / "policies" / "sources.yaml").write_text(sources, encoding="utf-8")
    (folder / "policies" / "documents.cedar").write_text(SEARCH, encoding="utf-8")
    (folder / "guide").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "guide" / name).write_text(text, encoding="utf-8")
    labels = "rules:\n  - { match: '**', groups: [dev:analysts], sensitivity: internal }\n"
    (folder / "guide" / "labels.yaml").write_text(labels, encoding="utf-8")


def build_claims_world(folder: Path, *, settings: str = "", disclosure: str = "", documents: bool = False) -> Path:
    """Returns the configuration; tables are copied, and documents indexed, by the router that opens it."""
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
    if documents:
        add_documents(folder)
        settings += '[sources.guide]\npath = "guide"\n'
    if disclosure:
        (folder / "policies" / "disclosure.cedar").write_text(disclosure, encoding="utf-8")
    make_tables((SQL / "fixture.sql").read_text(encoding="utf-8"), folder / "world.duckdb")
    tables = "".join(f'[tables.{name}]\npath = "world.duckdb"\ntable = "main.{name}"\n' for name in VIEWS)
    config = folder / "pointsman.toml"
    config.write_text(f'state = "state"\n{settings}{tables}', encoding="utf-8")
    make_development_issuer(load_settings(config))
    return config
