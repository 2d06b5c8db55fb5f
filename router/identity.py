"""Identity: verified claims become a `Principal`, exactly as identity.yaml says, or the token is refused.

The signature, issuer, audience and times are the `Verifier` port's (connectors/oidc.py); what the claims mean is here.

INVARIANT: whatever would make a principal see more by being absent or malformed refuses the token
(tests/faults/test_tokens.py).
INVARIANT: tenant and groups come from claims alone, and only tenants that the issuer may assert
(tests/unit/test_identity.py::test_tenant_must_be_allowed).
INVARIANT: the one principal without a token is the indexing service, and it has the least of everything
(tests/unit/test_identity.py::test_the_indexing_service_has_the_least).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Literal

from router.domain import CLASSES, Claim, Issuer, Principal
from router.errors import PolicyError, Refused
from router.filters import LONG_MAX, LONG_MIN, EntityType, Field, Scalar, check_text
from router.ports import Verifier

MAX_GROUPS = 10_000
MAX_CHARS = 1_024
LATEST_S = 253_402_300_799
"""The last second of the year 9999: what lies beyond (milliseconds taken for seconds) no calendar can show."""
INDEXER = ("service", "indexer")
"""Issuer and subject of the indexing service."""
_OVERAGE = ("_claim_names", "hasgroups")
_MISSING = object()


def identify(
    token: str, verifier: Verifier, issuers: Mapping[str, Issuer], types: Mapping[str, EntityType], *, now_s: int
) -> Principal:
    """The line's first step: a bearer token to a principal. Raises `Refused` with a stable code."""
    alias, claims = verifier.verify(token, now_s=now_s)
    return map_claims(alias, claims, issuers, types)


def map_claims(
    alias: str, claims: Mapping[str, Any], issuers: Mapping[str, Issuer], types: Mapping[str, EntityType]
) -> Principal:
    """Verified claims of the issuer `alias` to a principal; `types` are the policy schema's entity types."""
    issuer = issuers.get(alias)
    if issuer is None:
        raise Refused("token_issuer", "this issuer is not trusted", "use a token of an issuer in identity.yaml")
    kind = _kind(issuer, claims)
    subject = _text(claims.get("sub", _MISSING), "sub")
    return Principal(
        issuer=alias,
        subject=subject,
        kind=kind,
        tenant=_tenant(issuer, claims),
        groups=_groups(issuer, claims),
        attributes=_attributes(issuer, claims, types[kind]),
        expires_at_s=_expiry(claims),
        development=issuer.development,
    )


def indexing_service(tenant: str, types: Mapping[str, EntityType]) -> Principal:
    """The service in whose name a tenant's documents are indexed: no token, no group, and of every attribute that the schema
    demands the least. It searches nothing; policies judge it where text would leave (`disclose`)."""
    least: Mapping[str, Scalar | frozenset[str]] = {"string": "", "long": 0, "bool": False, "set": frozenset()}
    attributes = tuple(
        (name, least[spec.kind])
        for name, spec in sorted(types["Service"].fields.items())
        if spec.required and name not in ("tenant", "groups")
    )
    return Principal(*INDEXER, "Service", tenant, frozenset(), attributes, LATEST_S)


def _kind(issuer: Issuer, claims: Mapping[str, Any]) -> Literal["User", "Service"]:
    """A service's token has the claim that only clients carry and lacks the one that only people carry."""
    if issuer.service is None or issuer.service_absent is None:
        return "User"
    is_service = _find(claims, issuer.service) is not _MISSING and _find(claims, issuer.service_absent) is _MISSING
    return "Service" if is_service else "User"


def _tenant(issuer: Issuer, claims: Mapping[str, Any]) -> str:
    value = _find(claims, issuer.tenant)
    if value is _MISSING or value == "":
        raise Refused("tenant_missing", "the token names no tenant", "ask the issuer to add the tenant claim")
    tenant = _text(value, "tenant")
    if tenant not in issuer.tenants:
        raise Refused(
            "tenant_not_allowed", "this issuer may not assert the token's tenant", "list it under `tenants` in identity.yaml"
        )
    return tenant


def _groups(issuer: Issuer, claims: Mapping[str, Any]) -> frozenset[str]:
    if any(name in claims for name in _OVERAGE):
        hint = "let the issuer send only groups that matter here, so that the list is complete"
        raise Refused("groups_overage", "the token says that its list of groups is not complete", hint)
    if issuer.groups is None:
        return frozenset()
    value = _find(claims, issuer.groups)
    if value is _MISSING:
        if issuer.groups.required:
            raise Refused("groups_missing", "the token has no groups claim", "ask the issuer to add it; an empty list will do")
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(group, str) and group for group in value):
        raise Refused("groups_malformed", "the groups claim is not a list of names", "ask the issuer for a list of strings")
    if len(value) > MAX_GROUPS:
        raise Refused(
            "groups_malformed", f"the token has over {MAX_GROUPS} groups", "let the issuer send only groups that matter here"
        )
    return frozenset(f"{issuer.alias}:{_text(group, 'groups', 'groups_malformed')}" for group in value)


def _attributes(issuer: Issuer, claims: Mapping[str, Any], entity: EntityType) -> tuple[tuple[str, Scalar | frozenset[str]], ...]:
    """The schema's own attributes, sorted by name; one that the type does not declare is not mapped for it."""
    mapped = dict(issuer.attributes)
    found: list[tuple[str, Scalar | frozenset[str]]] = []
    for name, spec in sorted(entity.fields.items()):
        if name in ("tenant", "groups"):
            continue
        claim = mapped.get(name)
        value = _MISSING if claim is None else _find(claims, claim)
        if value is not _MISSING:
            found.append((name, _typed(name, spec, value)))
        elif spec.required or (claim is not None and claim.required):
            raise Refused("claims_missing", f"the token has no claim for `{name}`", "ask the issuer to add it")
    return tuple(found)


def _typed(name: str, spec: Field, value: Any) -> Scalar | frozenset[str]:
    match spec.kind, value:
        case "string", str():
            return _text(value, name)
        case "bool", bool():
            return value
        case "long", int() if not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX:
            if name == "clearance" and not 0 <= value < len(CLASSES):
                raise Refused("claims_malformed", "the token's clearance is not from 0 to 3", "ask the issuer to correct it")
            return int(value)
        case "set", list() if len(value) <= MAX_GROUPS and all(isinstance(item, str) for item in value):
            return frozenset(_text(item, name) for item in value)
    raise Refused("claims_malformed", f"the claim for `{name}` is not a {spec.kind}", "ask the issuer to correct it")


def _find(claims: Mapping[str, Any], claim: Claim) -> Any:
    """The value at the claim's path; null counts as missing."""
    at: Any = claims
    for step in claim.path:
        if not isinstance(at, Mapping) or step not in at:
            return _MISSING
        at = at[step]
    return _MISSING if at is None else at


def _text(value: Any, name: str, code: str = "claims_malformed") -> str:
    """A claim's text in NFC, the form in which labels and policies are compared."""
    if value is _MISSING:
        raise Refused("claims_missing", f"the token has no `{name}`", "ask the issuer to add it")
    if not isinstance(value, str) or not value or len(value) > MAX_CHARS:
        raise Refused(
            code, f"the claim for `{name}` is not a text of 1 to {MAX_CHARS} characters", "ask the issuer to correct it"
        )
    try:
        check_text(value, name)
    except PolicyError:
        raise Refused(
            code, f"the claim for `{name}` holds a character that no name has", "ask the issuer to correct it"
        ) from None
    return unicodedata.normalize("NFC", value)


def _expiry(claims: Mapping[str, Any]) -> int:
    value = claims.get("exp")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("claims_missing", "the token has no `exp`", "ask the issuer for tokens that expire")
    if not -LATEST_S <= value <= LATEST_S:  # NaN and infinity too
        hint = "ask the issuer to give seconds, not milliseconds"
        raise Refused("claims_malformed", "the token's `exp` lies beyond the year 9999", hint)
    return int(value)
