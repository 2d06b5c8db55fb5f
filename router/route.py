"""Which legs a question needs. Until the classifier exists a question goes where its caller says, else to documents, and the
answer says so."""

from __future__ import annotations

from router.domain import Grants, Route, Wanted


def choose(grants: Grants, wanted: Wanted | None) -> Route:  # noqa: ARG001 (the classifier will read them)
    """`grants` hold granted names only, so no route and no reason can tell of others; nothing granted reads as nothing found."""
    if wanted is not None:
        return Route(wanted, {wanted: 1.0}, 1.0, abstained=False, reasons=("chosen by the caller",))
    return Route("documents", {"documents": 1.0}, 1.0, abstained=False, reasons=("only documents are searched by this version",))
