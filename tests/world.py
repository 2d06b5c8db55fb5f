"""A small real world for tests of the whole line: two tenants, several groups and clearances, documents as files, indexed by
the ordinary pipeline with the real embedder. Every page of the first tenant speaks of the same press, so that what is hidden
would compete with what is shown."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from router.app import Router, make_development_issuer
from router.config import Settings, load_settings
from router.domain import Answer
from router.starter import write_starter

ROOT = Path(__file__).parents[1]
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)

IDENTITY = """
issuers:
  dev:
    iss: https://issuer.pointsman.invalid
    development: true
    audiences: [pointsman]
    algorithms: [EdDSA]
    tenants: [north, south]
    claims:
      tenant: tenant
      groups: { path: groups, required: true }
      attributes:
        clearance: { path: clearance }
"""
PEOPLE = """
people:
  ada: { issuer: dev, sub: ada, tenant: north, groups: [staff], clearance: 1 }
  hal: { issuer: dev, sub: hal, tenant: north, groups: [staff, hr], clearance: 2 }
  max: { issuer: dev, sub: max, tenant: north, groups: [staff, hr, board], clearance: 3 }
  low: { issuer: dev, sub: low, tenant: north, groups: [staff], clearance: 0 }
  bob: { issuer: dev, sub: bob, tenant: north, groups: [visitors], clearance: 3 }
  sue: { issuer: dev, sub: sue, tenant: south, groups: [staff], clearance: 1 }
  nil: { issuer: dev, sub: nil, tenant: north, groups: [], clearance: 3 }
  out: { issuer: dev, sub: out, tenant: west, groups: [staff], clearance: 1 }
"""
SOURCES = """
sources:
  handbook: { tenant: north, connector: folder, groups: ["dev:staff", "dev:hr", "dev:board"], least: public, description: handbook }
  notes: { tenant: north, connector: folder, groups: ["dev:staff", "dev:hr"], least: internal, description: shift notes }
  elsewhere: { tenant: south, connector: folder, groups: ["dev:staff"], least: internal, description: the south's handbook }
"""
LABELS = {
    "handbook": """
rules:
  - { match: "all/**", groups: ["dev:staff"], sensitivity: public }
  - { match: "staff/**", groups: ["dev:staff"], sensitivity: internal }
  - { match: "hr/**", groups: ["dev:hr"], sensitivity: confidential }
  - { match: "board/**", groups: ["dev:board"], sensitivity: restricted }
  - { match: "later/**", groups: ["dev:staff"], sensitivity: internal, effective_from: 2027-01-01 }
  - { match: "since/**", groups: ["dev:staff"], sensitivity: internal, effective_from: 2026-02-03 }
""",
    "notes": """
rules:
  - { match: "**", groups: ["dev:staff"], sensitivity: internal }
  - { match: "hidden/**", groups: ["dev:staff"], sensitivity: restricted }
""",
    "elsewhere": 'rules:\n  - { match: "**", groups: ["dev:staff"], sensitivity: internal }\n',
}
TOML = "".join(f'[sources.{name}]\npath = "{name}"\n' for name in LABELS)
PAGES = {
    "handbook/all/welcome.md": "# Welcome\n\nThe press hall opens at seven. Visitors wear a helmet near the press.",
    "handbook/all/signs.md": "# Signs\n\nA yellow sign beside the press means that its guard is open.",
    "handbook/staff/press.md": "# Pressing plates\n\nThe press runs at 40 bar. ERR-4012 on the press means low oil pressure.",
    "handbook/staff/oil.md": "# Oil\n\nChange the oil of the press after 500 hours. Part number PN-88213 is the oil filter.",
    "handbook/staff/guard.md": "# Guard\n\nThe guard of the press closes before each stroke. Never bridge its switch.",
    "handbook/staff/belt.md": "# Belt\n\nTighten the belt of the feeder to 45 Nm with the press switched off.",
    "handbook/since/torque.md": "# Torque\n\nSince February the bolts of the press take 52 Nm.",
    "handbook/later/torque.md": "# New torque\n\nFrom next year the bolts of the press take 61 Nm.",
    "handbook/hr/pay.md": "# Pay\n\nWho runs the press at night is paid a supplement of nine percent.",
    "handbook/hr/accident.md": "# Accident\n\nThe accident at the press in March: the guard was bridged, ERR-4012 ignored.",
    "handbook/board/sale.md": "# Sale\n\nThe press hall is to be sold in autumn; ERR-4012 and the oil filter lower the price.",
    "notes/monday.md": "# Monday\n\nThe press stopped twice with ERR-4012. We refilled oil and it ran again.",
    "notes/tuesday.md": "# Tuesday\n\nNo stop of the press. The feeder squeaks.",
    "notes/hidden/wednesday.md": "# Wednesday\n\nThe press was run without its guard on order of the board.",
    "elsewhere/press.md": "# The South's press\n\nOur press runs at 70 bar. ERR-4012 on our press means a blocked filter.",
    "elsewhere/oil.md": "# The South's oil\n\nPN-88213 is a gasket here, not a filter.",
}


def write_world(folder: Path, pages: Mapping[str, str] = PAGES) -> Path:
    """Configuration, policies, key and pages, not indexed yet; returns the configuration file."""
    write_starter(folder)
    shutil.rmtree(folder / "documents")
    shutil.rmtree(folder / "labels")
    shutil.rmtree(folder / "policies" / "cases")
    config = folder / "pointsman.toml"
    config.write_text(TOML)
    for name, text in (("identity", IDENTITY), ("people", PEOPLE), ("sources", SOURCES)):
        (folder / "policies" / f"{name}.yaml").write_text(text)
    for source, text in LABELS.items():
        (folder / source).mkdir(exist_ok=True)
        (folder / source / "labels.yaml").write_text(text)
    for place, text in pages.items():
        write_page(folder, place, text)
    make_development_issuer(load_settings(config))
    return config


def write_page(folder: Path, place: str, text: str) -> None:
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(text, encoding="utf-8")


def build_world(folder: Path, pages: Mapping[str, str] = PAGES) -> Path:
    """`write_world`, and indexed. Copying an indexed one is quicker than indexing again."""
    if pages is not PAGES:
        config = write_world(folder, pages)
        with Router(load_settings(config)) as router:
            router.index()
        return config
    shutil.copytree(_indexed(), folder, dirs_exist_ok=True)
    return folder / "pointsman.toml"


@functools.cache
def _indexed() -> Path:
    """Once per session; never asked, so that its ledger holds the label changes of indexing only."""
    made = tempfile.TemporaryDirectory(prefix="pointsman-world-")
    _KEPT.append(made)
    folder = Path(made.name) / "world"
    with Router(load_settings(write_world(folder))) as router:
        report = router.index()
    assert not any(source.failures or source.error for source in report.sources), report
    return folder


_KEPT: list[Any] = []


def open_world(folder: Path, **changes: Any) -> Router:
    """A router over a fresh copy of the world. `changes` replace parts of `Settings`."""
    settings: Settings = load_settings(build_world(folder))
    return Router(settings.model_copy(update=changes))


def ask_as(router: Router, person: str, question: str, **options: Any) -> Answer:
    return router.ask(question, token=router.mint(person), **{"now": NOW, "route": "documents", **options})


def ids(answer: Answer) -> list[str]:
    return [passage.document_id for passage in answer.passages]


def bytes_of(answer: Answer) -> dict[str, Any]:
    """An answer's JSON without times and ids: what must not depend on hidden data."""
    body = answer.as_json()
    body.pop("decision_id")
    for stage in body["stages"]:
        stage.pop("ms")
    return body


def run_command(*arguments: object, cwd: Path, env: Mapping[str, str] | None = None, **options: Any) -> Any:
    """`pointsman …` as a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")}
    command = [sys.executable, "-c", "from router.doors.cli import main; main()", *map(str, arguments)]
    given = {"cwd": cwd, "env": {**plain, "PYTHONPATH": str(ROOT), **(env or {})}, "capture_output": True, "timeout": 120}
    return subprocess.run(command, check=False, **{**given, **options})
