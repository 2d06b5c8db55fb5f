"""Bearer tokens through PyJWT: signature, issuer, audience and times; and the development issuer's key and tokens.

A token names its issuer; the issuer, as reviewed in identity.yaml, names algorithms, audiences and where its keys are.
Nothing in a token's header chooses any of that: `jku`, `x5u` and `jwk` are never read, `alg` must be on the issuer's list.

INVARIANT: only asymmetric algorithms pinned per issuer verify, with a key whose type fits
(tests/faults/test_tokens.py::test_hmac_with_the_public_key).
INVARIANT: unknown key ids cause at most one refetch a minute (tests/faults/test_tokens.py::test_unknown_kid_flood).
INVARIANT: a refusal names no key, address or internal (tests/faults/test_tokens.py::test_refusals_say_nothing_internal).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import get_default_algorithms

from router.domain import Issuer
from router.errors import Refused, SourceError, UsageError

LEEWAY_S = 30
REFETCH_S = 60.0
FRESH_S = 600.0
STALE_S = 86_400.0
MAX_TOKEN_CHARS = 1_000_000
MAX_KEYS_BYTES = 1_000_000
MIN_RSA_BITS = 2_048
DEVELOPMENT_MINUTES = 15

_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_KEY_TYPES = {"R": "RSA", "P": "RSA", "E": "EC"}

_ALGORITHMS = get_default_algorithms()

Clock = Callable[[], float]
Fetch = Callable[[str], bytes]


def _refuse(code: str, message: str, hint: str = "ask the issuer for a new token") -> Refused:
    return Refused(code, message, hint)


# --- keys -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """One public key of an issuer, usable for exactly these algorithms."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: Any


def parse_jwks(raw: bytes, allowed: Sequence[str]) -> tuple[Key, ...]:
    """The signing keys of a JWKS that fit an allowed algorithm; keys of other kinds and uses are skipped."""
    try:
        entries = json.loads(raw)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        raise SourceError("issuer_keys_malformed", "an issuer's key set is not a JWKS", "check `jwks` in identity.yaml")
    keys = (_parse_key(entry, allowed) for entry in entries if isinstance(entry, dict))
    return tuple(key for key in keys if key is not None)


def _parse_key(entry: dict[str, Any], allowed: Sequence[str]) -> Key | None:
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        return None
    fitting = tuple(name for name in allowed if _fits(name, entry))
    if not fitting:
        return None
    try:
        public = _ALGORITHMS[fitting[0]].from_jwk({key: entry[key] for key in entry if key != "d"})
    except (jwt.InvalidKeyError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None
    if entry["kty"] == "RSA" and public.key_size < MIN_RSA_BITS:
        return None
    kid = entry.get("kid")
    return Key(kid if isinstance(kid, str) else None, fitting, public)


def _fits(algorithm: str, entry: Mapping[str, Any]) -> bool:
    """Whether a key is of the type (and curve) of an algorithm, and does not declare another."""
    if entry.get("alg", algorithm) not in (algorithm, "Ed25519" if algorithm == "EdDSA" else algorithm):
        return False
    if algorithm == "EdDSA":
        return entry.get("kty") == "OKP" and entry.get("crv") in ("Ed25519", "Ed448")
    if entry.get("kty") != _KEY_TYPES.get(algorithm[0]):
        return False
    return entry.get("kty") != "EC" or entry.get("crv") == _CURVES.get(algorithm)


def fetch_url(url: str) -> bytes:
    """The bytes at an https URL (http for loopback only), without following redirects."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")):
        raise SourceError(
            "issuer_keys_unreachable", "an issuer's keys are not at an https address", "check `jwks` in identity.yaml"
        )
    opener = urllib.request.build_opener(_NoRedirect())
    with opener.open(url, timeout=5) as answer:
        return bytes(answer.read(MAX_KEYS_BYTES + 1))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class KeySet:
    """An issuer's keys, cached; refetched when stale and, for an unknown key id, at most once a minute."""

    issuer: Issuer
    read: Callable[[], bytes]
    clock: Clock
    keys: tuple[Key, ...] = ()
    fetched_at_s: float = -math.inf
    tried_at_s: float = -math.inf
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, kid: str | None, algorithm: str) -> Key:
        age_s = self.clock() - self.fetched_at_s
        if age_s >= FRESH_S:
            # Stale keys go on serving while their issuer is unreachable, for a day; nobody waits for the attempt.
            self._refetch(wait=age_s >= STALE_S)
        if self.clock() - self.fetched_at_s >= STALE_S:
            hint = "check `jwks` in identity.yaml and the network; a token can be checked only with its issuer's keys"
            raise SourceError("issuer_keys_unreachable", "an issuer's keys cannot be read", hint, retryable=True)
        key = self._pick(kid, algorithm)
        if key is None:
            self._refetch(wait=True)
            key = self._pick(kid, algorithm)
        if key is None:
            raise _refuse("token_kid_unknown", "the token is signed with a key that its issuer does not publish")
        return key

    def _pick(self, kid: str | None, algorithm: str) -> Key | None:
        fitting = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.kid == kid), None)

    def _refetch(self, *, wait: bool) -> None:
        """One attempt a minute, whoever asks; what fails leaves the keys as they were."""
        if not self.lock.acquire(blocking=wait):
            return
        try:
            if self.clock() - self.tried_at_s >= REFETCH_S:
                self.tried_at_s = self.clock()
                raw = self.read()
                if len(raw) <= MAX_KEYS_BYTES:
                    self.keys = parse_jwks(raw, self.issuer.algorithms)
                    self.fetched_at_s = self.clock()
        except (OSError, ValueError, HTTPException, SourceError):
            pass
        finally:
            self.lock.release()


# --- the verifier -----------------------------------------------------------------------------------------------------


class OidcVerifier:
    """Implements `Verifier` for the issuers of one policy version. Thread-safe."""

    def __init__(
        self,
        issuers: Mapping[str, Issuer],
        *,
        development_key: Path | None = None,
        folder: Path = Path(),
        fetch: Fetch = fetch_url,
        clock: Clock = time.monotonic,
    ) -> None:
        """`folder` is where relative `jwks` files are looked up. Without a `development_key`, development issuers are off."""
        self._by_iss = {issuer.iss: issuer for issuer in issuers.values() if not issuer.development or development_key}
        self._keys = {
            issuer.iss: KeySet(issuer, _reader(issuer, development_key, folder, fetch), clock) for issuer in self._by_iss.values()
        }

    def verify(self, token: str, *, now_s: int) -> tuple[str, Mapping[str, Any]]:
        header, payload, signed, signature = _split(token)
        issuer = self._by_iss.get(payload["iss"]) if isinstance(payload.get("iss"), str) else None
        if issuer is None:
            raise _refuse("token_issuer", "the token's issuer is not trusted here", "use a token of an issuer in identity.yaml")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            raise _refuse("token_algorithm", "the token is not signed by an algorithm that its issuer may use")
        if "crit" in header or header.get("b64") is False:
            raise _refuse("token_malformed", "the token demands an extension that is not understood here")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise _refuse("token_malformed", "the token's key id is not a text")
        key = self._keys[issuer.iss].find(kid, algorithm)
        if not _is_signed(algorithm, signed, key, signature):
            raise _refuse("token_signature", "the token's signature is not its issuer's")
        _check_claims(payload, issuer, now_s)
        return issuer.alias, payload


def _reader(issuer: Issuer, development_key: Path | None, folder: Path, fetch: Fetch) -> Callable[[], bytes]:
    if issuer.development:
        path = development_key
        assert path is not None
        return lambda: json.dumps({"keys": [public_jwk(load_development_key(path))]}).encode()
    jwks = issuer.jwks or ""
    if "://" in jwks:
        return lambda: fetch(jwks)
    return (folder / jwks).read_bytes


def _split(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Header, payload, signed bytes and signature, before anything of it is believed."""
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS:
        raise _refuse("token_malformed", f"the token is over {MAX_TOKEN_CHARS} characters")
    parts = token.strip().split(".")
    if len(parts) != 3:
        raise _refuse("token_malformed", "the token is not a signed JWT")
    try:
        header, payload = json.loads(_decode(parts[0]).decode()), json.loads(_decode(parts[1]).decode())
        signature = _decode(parts[2])
    except (ValueError, RecursionError):
        raise _refuse("token_malformed", "the token is not a signed JWT") from None
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise _refuse("token_malformed", "the token is not a signed JWT")
    return header, payload, f"{parts[0]}.{parts[1]}".encode(), signature


def _decode(part: str) -> bytes:
    """Strict base64url without padding."""
    raw = part.encode("ascii")
    if b"=" in raw or b"+" in raw or b"/" in raw:
        raise binascii.Error
    return base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)


def _is_signed(algorithm: str, signed: bytes, key: Key, signature: bytes) -> bool:
    try:
        return bool(_ALGORITHMS[algorithm].verify(signed, key.public, signature))
    except (ValueError, TypeError):
        return False


def _check_claims(claims: Mapping[str, Any], issuer: Issuer, now_s: int) -> None:
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not any(name in issuer.audiences for name in audiences if isinstance(name, str)):
        raise _refuse("token_audience", "the token is made for another audience", "ask for a token for this service")
    if "exp" not in claims or not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise _refuse("claims_missing", "the token lacks `exp` or `sub`")
    if now_s >= _instant(claims, "exp") + LEEWAY_S:
        raise _refuse("token_expired", "the token has expired")
    for name in ("nbf", "iat"):
        if name in claims and now_s < _instant(claims, name) - LEEWAY_S:
            raise _refuse("token_not_yet_valid", "the token is not valid yet", "wait, or check the clocks")


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**53:
        raise _refuse("claims_malformed", f"the token's `{name}` is not a time")
    return value


# --- the development issuer -------------------------------------------------------------------------------------------


def make_development_key(path: Path) -> None:
    """A new Ed25519 key, readable by its owner only. Keeps the one that is there."""
    if path.exists():
        load_development_key(path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "wb") as out:
        out.write(pem)
        out.flush()
        os.fsync(out.fileno())


def load_development_key(path: Path) -> Ed25519PrivateKey:
    try:
        mode, pem = path.stat().st_mode, path.read_bytes()
    except OSError:
        raise UsageError("development_key_missing", "there is no development key", "run `pointsman init`") from None
    if mode & 0o077:
        raise UsageError("development_key_open", "others can read the development key", f"run chmod 600 on `{path.name}`")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            "development_key_malformed", "the development key is not an Ed25519 key", "remove it; `pointsman init` makes one"
        )
    return key


def public_jwk(key: Ed25519PrivateKey) -> dict[str, str]:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    x = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    thumbprint = hashlib.sha256(json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":")).encode()).digest()
    kid = base64.urlsafe_b64encode(thumbprint).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid, "use": "sig", "alg": "EdDSA"}


def mint_token(
    claims: Mapping[str, Any], issuer: Issuer, key_path: Path, *, now_s: int, minutes: int = DEVELOPMENT_MINUTES
) -> str:
    """A short-lived token of the development issuer with the claims of a person in people.yaml."""
    if not issuer.development:
        raise UsageError("issuer_not_development", f"`{issuer.alias}` is no development issuer", "ask the issuer for a token")
    key = load_development_key(key_path)
    body = {name: value for name, value in claims.items() if name != "issuer"}
    body |= {"iss": issuer.iss, "aud": issuer.audiences[0], "iat": now_s, "exp": now_s + minutes * 60}
    return jwt.encode(body, key, algorithm="EdDSA", headers={"kid": public_jwk(key)["kid"]})
