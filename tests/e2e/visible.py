"""Which documents whom, written out by hand from the tables of deploy/demo/README.md: no policy engine, no label file, no product.

What a person may see stands here as patterns of paths; everything else is hidden, whatever a policy or a label comes to say.

INVARIANT: no answer holds a passage that is not listed here (tests/e2e/test_question_set.py::test_nobody_sees_what_must_not_be_seen).
"""

from __future__ import annotations

import sqlite3
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

DEMO = Path(__file__).parents[2] / "deploy" / "demo"

PUBLIC = ("manuals/public/*", "bulletins/recalls/*", "people/public/*")
ON_SITE = (*PUBLIC, "manuals/*/operator/*", "bulletins/safety/*", "people/site/*")
STAFF = (*ON_SITE, "warehouse/guides/*", "rules/approvals/*", "people/staff/*")
FITTERS = ("manuals/*/basics/*", "manuals/*/service/*", "bulletins/20*", "warehouse/settings/*", "incidents/field/*", "incidents/depots/*")  # fmt: skip
DESK = ("rules/claims/*.*", "incidents/customers/*")
HALL = ("contoso_manuals/hall/*", "contoso_people/staff/*")

SEES: dict[str, tuple[str, ...]] = {
    "ada": (*STAFF, *FITTERS),
    "bela": (*ON_SITE, "manuals/*/basics/*"),
    "carla": (*STAFF, "people/hr/*", "people/managers/*"),
    "dmitri": (*STAFF, "people/security/*", "incidents/security/*"),
    "esther": (*STAFF, *DESK, "rules/claims/regional/west/*"),
    "farid": (*STAFF, *DESK, "rules/claims/regional/east/*"),
    "gwen": (*STAFF, "warehouse/settings/*", "warehouse/stock/*", "incidents/depots/*"),
    "hugo": (*STAFF, *FITTERS, *DESK, "manuals/*/engineering/*", "codebase/*"),
    "lena": STAFF,
    "mira": STAFF,
    "nadia": (*STAFF, "bulletins/held/*", "rules/drafts/*"),
    "otto": STAFF,
    "ines": (*HALL, "contoso_manuals/workshop/*"),
    "jonas": (*HALL, "contoso_people/hr/*"),
    "pavel": HALL,
}
TICKETS_OF: dict[str, tuple[str, ...]] = {
    "ada": ("all", "technicians"), "carla": ("all", "hr"), "dmitri": ("all", "security"), "esther": ("all", "adjusters"),
    "farid": ("all", "adjusters"), "gwen": ("all", "warehouse"), "hugo": ("all", "engineering", "adjusters"), "lena": ("all",),
    "mira": ("all",), "nadia": ("all",), "otto": ("all",),
}  # fmt: skip
CLASSES = ("public", "internal", "confidential", "restricted")
CLEARED = {"ada": 1, "gwen": 1, "lena": 1, "dmitri": 3}  # 2 for all others who have tickets
REGIONAL = "rules/claims/regional/"


def may_see(person: str, document: str) -> bool:
    if document.startswith("tickets/"):
        groups, level = _tickets().get(document.removeprefix("tickets/"), (frozenset(), 9))
        return bool(groups & set(TICKETS_OF.get(person, ()))) and level <= CLEARED.get(person, 2)
    return any(_matches(document, pattern) for pattern in SEES[person])


def _matches(document: str, pattern: str) -> bool:
    """`rules/claims/*.*` are the files of that folder, never those of the regions below it."""
    regional = document.startswith(REGIONAL)
    return fnmatchcase(document, pattern) and (not regional or pattern.startswith(REGIONAL))


@cache
def _tickets() -> dict[str, tuple[frozenset[str], int]]:
    con = sqlite3.connect(":memory:")
    con.executescript((DEMO / "tickets.sql").read_text(encoding="utf-8"))
    rows = con.execute("SELECT ticket_id, group_name, sensitivity FROM tickets").fetchall()
    con.close()
    return {ticket: (frozenset(groups.split(",")), CLASSES.index(level)) for ticket, groups, level in rows}
