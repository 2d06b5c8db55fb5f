"""`catalog derive` and `catalog check`."""

from __future__ import annotations

import sys
from pathlib import Path

from router import app
from router.config import find_settings, load_settings
from router.doors.cli.output import plain, print_json, say
from router.errors import CHECK_FAILED, SourceError
from router.policy import load_policies
from router.review import catalog


def run_derive(database: str | None, *, as_json: bool, config: Path | None) -> None:
    """Of the tables that `index` copied where no database is named."""
    if database is None:
        database, name = str(app.current_tables(load_settings(find_settings(config)))), "tables"
    else:
        name = Path(database.rpartition("/")[2]).stem
    document = catalog.derive_catalog(app.read_relations(database), name or "model")
    if as_json:
        print_json(document)
        return
    import yaml

    sys.stdout.write("# Names, types and keys, as the database says them. Descriptions, synonyms and metrics are yours to add.\n")
    yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True, width=130)


def run_check(database: Path | None, *, as_json: bool, config: Path | None) -> None:
    """Exit code 1 when something cannot be served as it stands."""
    settings = load_settings(find_settings(config))
    policies = load_policies(settings.policy_folder)
    if database is None:
        try:
            database = app.current_tables(settings)
        except SourceError:
            database = None  # nothing copied yet: what needs a database is left out, and that is said
    relations = app.read_relations(str(database)) if database is not None else ()
    findings = catalog.check_catalog(policies, relations, database, app.count_missing)
    faults = [finding for finding in findings if finding.level == "error"]
    if as_json:
        shown = [finding.as_json() for finding in findings]
        print_json({"ok": not faults, "database": database is not None, "findings": shown})
    else:
        for item in findings:
            say(f"{item.level}  {item.file}  {plain(item.place)}", "red" if item.level == "error" else "yellow")
            say(f"  {plain(item.message)}; {plain(item.hint)}")
        if database is None:
            say("no table has been copied yet, so nothing was compared with a database", "yellow")
        say(f"{len(policies.datasets)} datasets, {len(faults)} errors, {len(findings) - len(faults)} warnings")
    if faults:
        raise SystemExit(CHECK_FAILED)
