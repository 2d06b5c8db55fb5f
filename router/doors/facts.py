"""What a caller is told of themselves: the verified principal as every door shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from router.domain import CLASSES, Principal


def principal_facts(principal: Principal) -> dict[str, Any]:
    attributes = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in principal.attributes}
    clearance = attributes.get("clearance")
    named = {"clearance_name": CLASSES[clearance]} if type(clearance) is int and 0 <= clearance < len(CLASSES) else {}
    return {
        "principal": principal.name,
        "kind": principal.kind,
        "tenant": principal.tenant,
        "groups": sorted(principal.groups),
        **attributes,
        **named,
        "expires_at": datetime.fromtimestamp(principal.expires_at_s, UTC).isoformat(),
        "development": principal.development,
    }
