"""Tables as a reviewer and an operator look at them: is everything that governance.yaml speaks of there, whole, and fresh?

`doctor` says it line by line, `index verify` counts what differs. Nothing that stands in a row is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from router import app
from router.app import Router
from router.errors import SourceError
from router.review.catalog import check_catalog

Level = Literal["warning", "fault"]


@dataclass(frozen=True, slots=True)
class TableFault:
    """One thing that differs. `place` is a table, a dataset, or `dataset.column`."""

    level: Level
    place: str
    kind: str
    message: str
    hint: str


def check_copies(router: Router) -> list[TableFault]:
    """Configuration against snapshot, and both against what is governed."""
    datasets = router.policies.current().datasets
    found = [TableFault(each.level, each.table, each.kind, each.message, each.hint) for each in router.verify_tables()]
    governed = {facts.relation.lower() for facts in datasets.values()}
    found += [
        TableFault(
            "warning",
            name,
            "table_ungoverned",
            f"governance.yaml does not speak of `{name}`, so it exists for nobody",
            "add it there, or take it out of pointsman.toml",
        )
        for name in sorted(router.settings.tables)
        if f"main.{name}".lower() not in governed
    ]
    if datasets and not router.settings.tables and current(router) is None:
        message = f"{len(datasets)} datasets are governed, and no table is configured"
        found.append(TableFault("fault", "", "tables_missing", message, "say in pointsman.toml where each is: `[tables.NAME]`"))
    return found


def check_governed(router: Router) -> list[TableFault]:
    """What governance.yaml and catalog.yaml say, against the snapshot; without one, what can be said without."""
    database = current(router)
    try:
        relations = app.read_relations(str(database)) if database is not None else ()
    except SourceError:
        database, relations = None, ()  # the snapshot cannot be read, which `check_copies` says
    found = check_catalog(router.policies.current(), relations, database, app.count_missing)
    levels: dict[str, Level] = {"error": "fault", "warning": "warning"}
    return [TableFault(levels[each.level], each.place, "catalogue", each.message, each.hint) for each in found]


def current(router: Router) -> Path | None:
    """The file of the current snapshot; None before the first."""
    try:
        return router.snapshots.path()
    except SourceError as error:
        if error.code != "tables_missing":
            raise
        return None
