"""The YAML side of the policy folder: bytes, version, and what identity.yaml, sources.yaml and people.yaml declare.

INVARIANT: the policy version is a function of the reviewed bytes alone, never of README, matrix, cases or people
(tests/unit/test_policy_load.py::test_version_is_of_the_reviewed_bytes).
INVARIANT: an entry with the name of a policy that is no readable regular file is a fault, never skipped
(tests/faults/test_policies.py::test_a_policy_that_cannot_be_read_is_not_skipped).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from router.domain import CLASSES, Claim, Issuer, Source
from router.filters import EntityType
from router.policy.strict import MAX_FILE_BYTES, Entry, Fault, Faults, Lined, nearest, read_regular, top

NEVER_FILE = "00-never.cedar"
YAML_FILES = ("identity.yaml", "sources.yaml", "governance.yaml", "catalog.yaml", "people.yaml")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

_OF_THE_VERSION = ("schema.cedarschema", "identity.yaml", "sources.yaml", "governance.yaml", "catalog.yaml")
_BESIDE = ("README.md", "MATRIX.md")
_KNOWN = ("*.cedar", *_OF_THE_VERSION, "people.yaml", "cases/", *_BESIDE)
_EDITORS = re.compile(r".*~|.*\.bak|\..*\.sw[a-p]|\.?#.*")
"""What editors leave beside a file while and after it is edited; none of it is ever read."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


# --- bytes and version ------------------------------------------------------------------------------------------------


def list_entries(folder: Path) -> list[Path]:
    """Everything in the folder but what editors leave there, sorted. Raises `OSError`."""
    return sorted(path for path in folder.iterdir() if not _EDITORS.fullmatch(path.name))


def read_folder(folder: Path, faults: Faults) -> dict[str, bytes]:
    """Every file of the folder that can matter, by name. What should be read and cannot be is a fault, never an absence."""
    raw: dict[str, bytes] = {}
    try:
        entries = list_entries(folder)
    except OSError as error:
        message = f"the folder is not readable ({error.strerror})"
        faults.items.append(Fault("policy_folder", folder.name, 0, message, "check `policies` in pointsman.toml"))
        return {}
    for path in entries:
        if _is_read(path.name):
            body = _read(path, faults)
            if body is not None:
                raw[path.name] = body
        elif path.name.startswith(".") or path.name in _BESIDE or path.suffix == ".json":
            continue  # an issuer's keys may stand beside identity.yaml
        elif os.path.isdir(path):  # which is false, not an error, where nobody may look
            _refuse_nested(path, faults)
        else:
            faults.add("policy_file_unknown", path.name, 0, "nothing reads this file", nearest(path.name, _KNOWN))
    if not raw and not faults.items:
        faults.add(
            "policy_folder_empty", folder.name, 0, "the policy folder is empty", "restore it from review, or run `pointsman init`"
        )
    return raw


def _is_read(name: str) -> bool:
    return name.endswith(".cedar") or name in _OF_THE_VERSION or name in YAML_FILES


def _read(path: Path, faults: Faults) -> bytes | None:
    name = path.name
    if name.startswith("."):
        hint = "take the dot away, or rename it if it should not count"
        faults.add("policy_file_unreadable", name, 0, "a policy file hides behind a dot", hint)
        return None
    try:
        body = read_regular(path)
    except OSError as error:
        hint = "restore it from review; a policy that cannot be read is not skipped"
        faults.add("policy_file_unreadable", name, 0, f"the file cannot be read ({error.strerror})", hint)
        return None
    if len(body) > MAX_FILE_BYTES:
        faults.add("policy_file_large", name, 0, f"the file is over {MAX_FILE_BYTES} bytes", "policies are read by people")
        return None
    return body


def _refuse_nested(folder: Path, faults: Faults) -> None:
    for path in sorted(folder.rglob("*.cedar")):
        name = str(path.relative_to(folder.parent))
        faults.add(
            "policy_file_unknown", name, 0, "a policy stands in a folder inside the folder", "move it up; only the top is read"
        )


def compute_version(raw: Mapping[str, bytes]) -> str:
    """SHA-256 over the sorted reviewed files; lengths stand in front, so that no two folders run together."""
    sha = hashlib.sha256()
    for name, body in sorted(versioned(raw).items()):
        sha.update(f"{len(name)}:{name}:{len(body)}:".encode())
        sha.update(body)
    return sha.hexdigest()


def versioned(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: body for name, body in raw.items() if name.endswith(".cedar") or name in _OF_THE_VERSION}


def write_version(raw: Mapping[str, bytes], version: str, state: Path) -> Path:
    """Keep the reviewed bytes under state/policies/<version>, once, whole or not at all."""
    kept = state / "policies" / version
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".keep-", dir=kept.parent))
    try:
        for name, body in versioned(raw).items():
            with (making / name).open("wb") as out:
                out.write(body)
                out.flush()
                os.fsync(out.fileno())
        making.rename(kept)
    except OSError:
        if not kept.is_dir():  # another process may have been quicker
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return kept


# --- identity.yaml ----------------------------------------------------------------------------------------------------


def parse_identity(
    raw: Mapping[str, bytes], types: Mapping[str, EntityType], faults: Faults
) -> tuple[dict[str, Issuer], dict[str, int]]:
    """Issuers by alias; and the class of a question by tenant, where it is said."""
    file = top(raw, "identity.yaml", faults)
    if file is None:
        return {}, {}
    file.only(("issuers", "question_class"))
    section = file.child("issuers")
    issuers = {} if section is None else _issuers(section, types, faults)
    return issuers, _question_classes(file.child("question_class", required=False), issuers)


def _issuers(issuers: Entry, types: Mapping[str, EntityType], faults: Faults) -> dict[str, Issuer]:
    parsed: dict[str, Issuer] = issuers.children(lambda alias, entry: _issuer(alias, entry, types))
    seen: dict[str, str] = {}
    for alias, issuer in parsed.items():
        if other := seen.get(issuer.iss):
            issuers.fault(alias, f"gives `{alias}` the same `iss` as `{other}`", "one issuer, one alias")
        seen[issuer.iss] = alias
    if not parsed and not faults.items:
        issuers.fault("", "names no issuer", "add one; without an issuer nobody can ask")
    return parsed


def _question_classes(entry: Entry | None, issuers: Mapping[str, Issuer]) -> dict[str, int]:
    """How sensitive a tenant's questions are before anything stands beside them: what `disclose` is asked about."""
    found: dict[str, int] = {}
    for tenant in entry.body if entry is not None else ():
        assert entry is not None
        word = entry.text(tenant)
        if word not in CLASSES:
            entry.fault(tenant, f"gives `{tenant}` the class `{word}`", nearest(word, CLASSES))
        elif issuers and not any(tenant in issuer.tenants for issuer in issuers.values()):
            entry.fault(tenant, f"names `{tenant}`, a tenant that no issuer may assert", "add it to `tenants`, or take it out")
        else:
            found[tenant] = CLASSES.index(word)
    return found


def _section(file: Entry | None, key: str) -> Entry | None:
    if file is None:
        return None
    file.only((key,))
    return file.child(key)


def _issuer(alias: str, entry: Entry, types: Mapping[str, EntityType]) -> Issuer | None:
    entry.only(("iss", "development", "jwks", "audiences", "algorithms", "tenants", "claims"))
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", alias):
        entry.fault("", "is no alias", "use lower case letters, digits and hyphens")
    development = entry.flag("development")
    jwks = entry.text("jwks") if "jwks" in entry.body else None
    if development == (jwks is not None):
        entry.fault("jwks", "needs either `development: true` or `jwks`", "name the file or https URL of the issuer's keys")
    if jwks and "://" in jwks and not _may_fetch(jwks):
        entry.fault("jwks", "has a `jwks` that is neither https nor a file", "use https; http is for loopback only")
    algorithms = entry.words("algorithms")
    for name in algorithms:
        if name not in ALGORITHMS:
            entry.fault("algorithms", f"allows the algorithm `{name}`", f"known here: {', '.join(ALGORITHMS)}")
    if development and algorithms not in ((), ("EdDSA",)):
        entry.fault("algorithms", "is a development issuer and signs with EdDSA only", "write `algorithms: [EdDSA]`")
    claims = entry.child("claims")
    if claims is None:
        return None
    claims.only(("tenant", "groups", "attributes", "service"))
    service = claims.child("service", required=False)
    return Issuer(
        alias=alias,
        iss=entry.text("iss"),
        development=development,
        jwks=jwks,
        audiences=entry.words("audiences"),
        algorithms=algorithms,
        tenants=frozenset(entry.words("tenants")),
        tenant=_claim(claims, "tenant") or Claim(("tenant",), required=True),
        groups=_claim(claims, "groups") if "groups" in claims.body else None,
        attributes=_attributes(claims, types),
        service=_service(service, "path"),
        service_absent=_service(service, "absent"),
    )


def _may_fetch(url: str) -> bool:
    return url.startswith("https://") or bool(re.match(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?/", url))


def _service(entry: Entry | None, key: str) -> Claim | None:
    if entry is None:
        return None
    entry.only(("path", "absent"))
    if "path" not in entry.body or "absent" not in entry.body:
        entry.fault("", "needs `path` and `absent`", "for example `{ path: client_id, absent: preferred_username }`")
        return None
    return Claim(_path(entry, key))


def _claim(entry: Entry, key: str) -> Claim | None:
    """`groups: realm_access.groups`, or `groups: { path: ..., required: true }`."""
    if not isinstance(entry.body.get(key), Lined):
        return Claim(_path(entry, key))
    child = entry.child(key)
    if child is None:
        return None
    child.only(("path", "required"))
    return Claim(_path(child, "path"), required=child.flag("required"))


def _path(entry: Entry, key: str) -> tuple[str, ...]:
    """Dots go one level down; a list is taken literally, for claims whose name holds a dot (URLs)."""
    if isinstance(entry.body.get(key), list):
        return entry.words(key)
    path = tuple(entry.text(key).split("."))
    if not all(path):
        entry.fault(key, f"has an empty step in `{key}`", "write `a.b`, or a list of names")
    return path


def _attributes(claims: Entry, types: Mapping[str, EntityType]) -> tuple[tuple[str, Claim], ...]:
    entry = claims.child("attributes", required=False)
    declared = {name for kind in ("User", "Service") if kind in types for name in types[kind].fields} - {"tenant", "groups"}
    if entry is not None:
        entry.only(declared)
    mapped = {} if entry is None else {name: _claim(entry, name) for name in entry.body if name in declared}
    user = types.get("User")
    for name, spec in user.fields.items() if user else ():
        if spec.required and name in declared and name not in mapped:
            claims.fault(
                "attributes", f"maps no claim to `{name}`, which the schema's User requires", f"add `{name}: {{ path: ... }}`"
            )
    return tuple(sorted((name, claim) for name, claim in mapped.items() if claim is not None))


# --- sources.yaml, people.yaml -----------------------------------------------------------------------


def parse_sources(raw: Mapping[str, bytes], issuers: Mapping[str, Issuer], faults: Faults) -> dict[str, Source]:
    section = _section(top(raw, "sources.yaml", faults), "sources")
    return {} if section is None else section.children(lambda name, entry: _source(name, entry, issuers))


def _source(name: str, entry: Entry, issuers: Mapping[str, Issuer]) -> Source:
    entry.only(("tenant", "connector", "groups", "least", "description", "question", "labels"))
    if not _NAME.fullmatch(name):
        entry.fault("", "is no name for a source", "use lower case letters, digits, hyphens and underscores")
    least = entry.text("least")
    if least and least not in CLASSES:
        entry.fault("least", f"has `least: {least}`", nearest(least, CLASSES))
    tenant, groups = entry.text("tenant"), entry.words("groups")
    if issuers and tenant and not any(tenant in issuer.tenants for issuer in issuers.values()):
        entry.fault(
            "tenant", f"belongs to `{tenant}`, a tenant that no issuer may assert", "add it to `tenants` in identity.yaml"
        )
    for group in groups:
        if issuers and not is_group(group, issuers):
            entry.fault("groups", f"names the group `{group}`", spell_group(issuers))
    return Source(
        name=name,
        tenant=tenant,
        connector=entry.text("connector"),
        groups=frozenset(groups),
        least=CLASSES.index(least) if least in CLASSES else 0,
        description=entry.text("description"),
        question=entry.text("question", ""),
        labels=entry.text("labels") if "labels" in entry.body else None,
    )


def is_group(group: str, issuers: Iterable[str]) -> bool:
    """Whether some issuer could give anybody this group: `alias:name`, the alias known, without blanks around the name."""
    alias, _, name = group.partition(":")
    return alias in issuers and name != "" and name == name.strip()


def spell_group(issuers: Iterable[str]) -> str:
    return f"write issuer-alias:name, without blanks around the name; aliases: {', '.join(sorted(issuers))}"


def parse_people(raw: Mapping[str, bytes], issuers: Mapping[str, Issuer], faults: Faults) -> dict[str, dict[str, Any]]:
    """Name -> the claims of a token and `issuer`, the alias. Absent: nobody."""
    if "people.yaml" not in raw:
        return {}
    section = _section(top(raw, "people.yaml", faults), "people")
    return {} if section is None else section.children(lambda name, entry: _person(name, entry, issuers))


def _person(name: str, entry: Entry, issuers: Mapping[str, Issuer]) -> dict[str, Any]:
    alias = entry.text("issuer")
    if alias and issuers and alias not in issuers:
        entry.fault("issuer", f"comes from the issuer `{alias}`", nearest(alias, issuers))
    entry.text("sub")
    for key in ("iss", "aud", "exp", "iat", "nbf"):
        if key in entry.body:
            entry.fault(key, f"carries `{key}`", "the development issuer sets it")
    if not _NAME.fullmatch(name):
        entry.fault("", "is no name for a person", "use lower case letters, digits, hyphens and underscores")
    return dict(entry.body)
