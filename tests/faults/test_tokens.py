"""Tokens that must not be believed. Each is refused with a stable code, and the refusal says nothing internal."""

import base64
import hashlib
import hmac
import http.server
import json
import threading

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from connectors.oidc import (
    LEEWAY_S,
    MAX_TOKEN_CHARS,
    REFETCH_S,
    OidcVerifier,
    load_development_key,
    make_development_key,
    mint_token,
    public_jwk,
)
from router.domain import Claim, Issuer
from router.errors import Refused, SourceError, UsageError
from router.filters import EntityType, Field
from router.identity import identify

NOW_S = 1_780_000_000
USER = EntityType(
    "User",
    {
        "tenant": Field("string", required=True),
        "groups": Field("set", required=True),
        "clearance": Field("long", required=True),
        "region": Field("string", required=False),
    },
)
TYPES = {"User": USER, "Service": USER}


def issuer(alias="corp", **changes):
    facts = {
        "alias": alias,
        "iss": f"https://{alias}.example",
        "development": False,
        "jwks": f"{alias}.json",
        "audiences": ("pointsman",),
        "algorithms": ("RS256", "ES256", "EdDSA"),
        "tenants": frozenset({"fabrikam"}),
        "tenant": Claim(("tenant",)),
        "groups": Claim(("realm", "groups"), required=True),
        "attributes": (("clearance", Claim(("clearance",))), ("region", Claim(("region",)))),
    }
    return Issuer(**(facts | changes))


class World:
    """One issuer with three keys in a file, and tokens signed by it."""

    def __init__(self, folder):
        self.folder = folder
        self.ed = ed25519.Ed25519PrivateKey.generate()
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.keys = [
            public_jwk(self.ed) | {"kid": "ed"},
            jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True) | {"kid": "rsa"},
            jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True) | {"kid": "ec"},
        ]
        self.issuers = {"corp": issuer()}
        self.time_s = 0.0
        self.write()

    def write(self):
        (self.folder / "corp.json").write_text(json.dumps({"keys": self.keys}))

    def verifier(self, **options):
        return OidcVerifier(self.issuers, folder=self.folder, clock=lambda: self.time_s, **options)

    def claims(self, **changes):
        claims = {
            "iss": "https://corp.example",
            "aud": "pointsman",
            "sub": "ada",
            "exp": NOW_S + 600,
            "tenant": "fabrikam",
            "realm": {"groups": ["staff"]},
            "clearance": 1,
        }
        claims |= changes
        return {name: value for name, value in claims.items() if value is not ...}

    def token(self, key=None, algorithm="EdDSA", kid="ed", headers=None, **changes):
        header = ({"kid": kid} if kid else {}) | (headers or {})
        return jwt.encode(self.claims(**changes), key or self.ed, algorithm=algorithm, headers=header)

    def ask(self, token, verifier=None, now_s=NOW_S):
        return identify(token, verifier or self.verifier(), self.issuers, TYPES, now_s=now_s)

    def refuses(self, code, token, **options):
        with pytest.raises(Refused) as caught:
            self.ask(token, **options)
        assert caught.value.code == code, str(caught.value)
        return caught.value


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def raw_token(header, payload, signature=b""):
    parts = [json.dumps(header).encode(), json.dumps(payload).encode() if isinstance(payload, dict) else payload, signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_good_tokens_of_every_key_type_are_believed(world):
    for key, algorithm, kid in ((world.ed, "EdDSA", "ed"), (world.rsa, "RS256", "rsa"), (world.ec, "ES256", "ec")):
        principal = world.ask(world.token(key, algorithm, kid))
        assert (principal.name, principal.tenant, principal.groups) == ("corp#ada", "fabrikam", {"corp:staff"})
        assert principal.attributes == (("clearance", 1),)


def test_unsigned(world):
    header = {"alg": "none", "typ": "JWT"}
    world.refuses("token_algorithm", raw_token(header, world.claims()))
    world.refuses("token_algorithm", raw_token({"alg": "None"}, world.claims()))
    world.refuses("token_signature", raw_token({"alg": "EdDSA", "kid": "ed"}, world.claims()))


def test_wrong_key(world):
    stranger = ed25519.Ed25519PrivateKey.generate()
    world.refuses("token_signature", world.token(stranger))
    world.refuses("token_signature", world.token()[:-6] + "AAAAAA")


def test_changed_payload(world):
    header, _, signature = world.token().split(".")
    payload = base64.urlsafe_b64encode(json.dumps(world.claims(tenant="contoso")).encode()).rstrip(b"=").decode()
    world.refuses("token_signature", f"{header}.{payload}.{signature}")


def test_hmac_with_the_public_key(world):
    pem = world.rsa.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = raw_token({"alg": "HS256", "kid": "rsa"}, world.claims()).rsplit(".", 1)[0]
    signature = hmac.new(pem, unsigned.encode(), hashlib.sha256).digest()
    token = unsigned + "." + base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    world.refuses("token_algorithm", token)


def test_algorithm_not_of_this_issuer(world):
    world.refuses("token_algorithm", world.token(world.rsa, "RS512", "rsa"))


def test_key_type_must_fit_the_algorithm(world):
    """An allowed algorithm with the id of a key of another type finds no key."""
    world.refuses("token_kid_unknown", world.token(world.rsa, "RS256", "ec"))
    world.keys = [world.keys[1] | {"alg": "RS512"}]
    world.write()
    world.refuses("token_kid_unknown", world.token(world.rsa, "RS256", "rsa"))


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_keys_that_do_not_verify_are_skipped(world):
    weak = rsa.generate_private_key(65537, 1024)
    world.keys = [
        jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True) | {"kid": "weak"},
        world.keys[0] | {"kid": "enc", "use": "enc"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
        {"kty": "OKP", "crv": "Ed25519", "x": "!", "kid": "broken"},
        "no key at all",
    ]
    world.write()
    world.refuses("token_kid_unknown", world.token(weak, "RS256", "weak"))
    world.refuses("token_kid_unknown", world.token(kid="enc"))


def test_expired(world):
    token = world.token(exp=NOW_S - LEEWAY_S)
    world.refuses("token_expired", token)
    assert world.ask(token, now_s=NOW_S - 1).subject == "ada"


def test_not_yet_valid(world):
    world.refuses("token_not_yet_valid", world.token(nbf=NOW_S + LEEWAY_S + 1))
    world.refuses("token_not_yet_valid", world.token(iat=NOW_S + 3600))
    assert world.ask(world.token(nbf=NOW_S + LEEWAY_S)).subject == "ada"


@pytest.mark.parametrize("exp", ["soon", True, None, [], 1e300, -5, 10**40])
def test_expiry_that_is_no_time(world, exp):
    world.refuses("claims_malformed", world.token(exp=exp))


@pytest.mark.parametrize("audience", ["another", ["another", 3], [], "", "pointsman2", {"pointsman": 1}])
def test_other_audience(world, audience):
    world.refuses("token_audience", raw_signed(world, world.claims(aud=audience)))


def test_audience_in_a_list(world):
    assert world.ask(world.token(aud=["another", "pointsman"])).subject == "ada"


@pytest.mark.parametrize("missing", ["iss", "aud", "exp", "sub"])
def test_mandatory_claims(world, missing):
    codes = {"iss": "token_issuer", "aud": "token_audience"}
    world.refuses(codes.get(missing, "claims_missing"), world.token(**{missing: ...}))


def test_other_issuer(world):
    world.refuses("token_issuer", world.token(iss="https://elsewhere.example"))
    world.refuses("token_issuer", raw_signed(world, world.claims(iss=["https://corp.example"])))


def test_tenant_the_issuer_may_not_assert(world):
    world.refuses("tenant_not_allowed", world.token(tenant="contoso"))


def test_one_issuer_cannot_speak_for_another(world, tmp_path):
    """A key of one issuer signs nothing for the other, even with the same key id."""
    world.issuers["other"] = issuer("other", tenants=frozenset({"contoso"}))
    stranger = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "other.json").write_text(json.dumps({"keys": [public_jwk(stranger) | {"kid": "ed"}]}))
    world.refuses("token_signature", world.token(stranger))
    assert world.ask(world.token(stranger, iss="https://other.example", tenant="contoso")).groups == {"other:staff"}


def test_unknown_kid_flood(world):
    """However many unknown key ids come, the issuer is asked once a minute; known ones go on working."""
    fetched = []

    def fetch(url):
        fetched.append(url)
        return json.dumps({"keys": world.keys}).encode()

    world.issuers["corp"] = issuer(jwks="https://corp.example/keys")
    verifier = world.verifier(fetch=fetch)
    assert world.ask(world.token(), verifier).subject == "ada"
    for at in range(500):
        world.time_s += 0.1
        world.refuses("token_kid_unknown", world.token(kid=f"flood-{at}"), verifier=verifier)
        assert world.ask(world.token(), verifier).subject == "ada"
    assert len(fetched) == 1
    world.time_s += REFETCH_S
    world.refuses("token_kid_unknown", world.token(kid="flood"), verifier=verifier)
    world.refuses("token_kid_unknown", world.token(kid="flood2"), verifier=verifier)
    assert len(fetched) == 2


def test_rotation(world):
    verifier = world.verifier()
    assert world.ask(world.token(), verifier).subject == "ada"
    fresh = ed25519.Ed25519PrivateKey.generate()
    world.keys = [public_jwk(fresh) | {"kid": "new"}]
    world.write()
    world.time_s += REFETCH_S
    assert world.ask(world.token(fresh, kid="new"), verifier).subject == "ada"
    world.refuses("token_kid_unknown", world.token(), verifier=verifier)


def test_withdrawn_key_stops_working_without_an_unknown_kid(world):
    verifier = world.verifier()
    assert world.ask(world.token(), verifier).subject == "ada"
    world.keys = world.keys[1:]
    world.write()
    world.time_s += 3_600
    world.refuses("token_kid_unknown", world.token(), verifier=verifier)


def test_unreachable_issuer(world):
    """Nothing is believed without keys; keys once fetched serve on for a day."""
    up = True

    def fetch(_):
        if not up:
            raise OSError("no route to keys.internal")
        return json.dumps({"keys": world.keys}).encode()

    world.issuers["corp"] = issuer(jwks="https://corp.example/keys")
    verifier = world.verifier(fetch=fetch)
    up = False
    with pytest.raises(SourceError) as caught:
        world.ask(world.token(), verifier)
    assert caught.value.code == "issuer_keys_unreachable"
    assert "internal" not in str(caught.value)
    up, world.time_s = True, 61.0
    assert world.ask(world.token(), verifier).subject == "ada"
    up, world.time_s = False, 80_000.0
    assert world.ask(world.token(), verifier).subject == "ada"
    world.time_s = 90_000.0
    with pytest.raises(SourceError):
        world.ask(world.token(), verifier)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"keys": 3}', b"[]", b"[" * 5000, b"\xff", b"x" * 1_000_001])
def test_malformed_key_set(world, body):
    world.issuers["corp"] = issuer(jwks="https://corp.example/keys")
    with pytest.raises(SourceError):
        world.ask(world.token(), world.verifier(fetch=lambda _: body))


def test_keys_over_http_follow_no_redirect(world):
    """A real server on loopback; a redirect could lead to anybody's keys."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
                return
            body = json.dumps({"keys": world.keys}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        world.issuers["corp"] = issuer(jwks=f"{address}/keys")
        assert world.ask(world.token()).subject == "ada"
        world.issuers["corp"] = issuer(jwks=f"{address}/moved")
        with pytest.raises(SourceError):
            world.ask(world.token())
    finally:
        server.shutdown()
        server.server_close()


def test_keys_over_plain_http_from_elsewhere(world):
    world.issuers["corp"] = issuer(jwks="http://corp.example/keys")
    with pytest.raises(SourceError):
        world.ask(world.token())


def test_jku_header(world):
    """Headers that name keys are not read: the stranger's own key in them helps nothing."""
    stranger = ed25519.Ed25519PrivateKey.generate()
    for headers in ({"jku": "http://127.0.0.1:9/keys"}, {"x5u": "http://127.0.0.1:9/chain"}, {"jwk": public_jwk(stranger)}):
        world.refuses("token_signature", world.token(stranger, headers=headers))
        assert world.ask(world.token(headers=headers)).subject == "ada"


def test_crit_header(world):
    world.refuses("token_malformed", raw_signed(world, world.claims(), {"crit": ["exp"]}))
    world.refuses("token_malformed", raw_signed(world, world.claims(), {"b64": False}))


def test_no_kid(world):
    """Without a key id the key must be the only one that fits."""
    assert world.ask(world.token(kid=None)).subject == "ada"
    world.keys.append(public_jwk(ed25519.Ed25519PrivateKey.generate()) | {"kid": "second"})
    world.write()
    world.refuses("token_kid_unknown", world.token(kid=None))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "a.b",
        "a.b.c.d",
        "..",
        "é.é.é",
        "\ud800.a.b",
        "e30.e30.e30=",
        "e30.W10.e30",
        "W10.e30.e30",
        "e30.e3.e30",
        raw_token({"alg": "EdDSA"}, b"[" * 100_000),
        raw_token({"alg": "EdDSA"}, b'{"exp":' + b"9" * 10_000 + b"}"),
        "x" * (MAX_TOKEN_CHARS + 1),
    ],
)
def test_not_a_token(world, token):
    world.refuses("token_malformed", token)


def test_no_tenant(world):
    world.refuses("tenant_missing", world.token(tenant=...))
    world.refuses("tenant_missing", world.token(tenant=None))
    world.refuses("tenant_missing", world.token(tenant=""))
    world.refuses("claims_malformed", world.token(tenant=["fabrikam"]))


@pytest.mark.parametrize("groups", ["staff", {"staff": 1}, ["staff", 3], ["staff", ""], [["staff"]], 7, True])
def test_groups_as_a_string(world, groups):
    world.refuses("groups_malformed", world.token(realm={"groups": groups}))


def test_missing_groups_claim(world):
    world.refuses("groups_missing", world.token(realm=...))
    world.refuses("groups_missing", world.token(realm={}))
    world.refuses("groups_missing", world.token(realm={"groups": None}))
    world.refuses("groups_missing", world.token(realm="x"))
    assert world.ask(world.token(realm={"groups": []})).groups == frozenset()


def test_missing_groups_claim_that_is_not_required(world):
    world.issuers["corp"] = issuer(groups=Claim(("realm", "groups")))
    assert world.ask(world.token(realm=...)).groups == frozenset()
    world.refuses("groups_malformed", world.token(realm={"groups": "staff"}))


@pytest.mark.parametrize("mark", [{"_claim_names": {"groups": "src1"}}, {"hasgroups": True}, {"hasgroups": "true"}])
def test_group_overage(world, mark):
    world.refuses("groups_overage", world.token(**mark))


def test_4000_groups(world):
    names = [f"group-{at}-{'x' * 20}" for at in range(4_000)]
    assert len(world.ask(world.token(realm={"groups": names})).groups) == 4_000


def test_10001_groups(world):
    world.refuses("groups_malformed", world.token(realm={"groups": [f"g{at}" for at in range(10_001)]}))


@pytest.mark.parametrize("clearance", ["1", 1.0, True, 4, -1, 2**70, [1]])
def test_mistyped_attribute(world, clearance):
    world.refuses("claims_malformed", world.token(clearance=clearance))


def test_missing_required_attribute(world):
    world.refuses("claims_missing", world.token(clearance=...))
    world.refuses("claims_missing", world.token(clearance=None))


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "", "x" * 1_025])
def test_hostile_text(world, text):
    if text:
        payload = world.claims(sub=text)
        assert raw_signed(world, payload)
        world.refuses("claims_malformed", raw_signed(world, payload))
        world.refuses("groups_malformed", raw_signed(world, world.claims(realm={"groups": [text]})))
    world.refuses("claims_malformed", raw_signed(world, world.claims(region=text)))


def test_refusals_say_nothing_internal(world):
    """No key, no address, no path, no other tenant, no value of the token."""
    secrets = ["corp.example", "keys", "x25519", str(world.folder), "fabrikam", "contoso", "flood", "Traceback", "ed25519"]
    tokens = [
        world.token(ed25519.Ed25519PrivateKey.generate()),
        world.token(kid="flood"),
        world.token(tenant="contoso"),
        world.token(exp=1),
        world.token(iss="https://contoso.example"),
        world.token(aud="contoso"),
        "contoso",
    ]
    for token in tokens:
        with pytest.raises(Refused) as caught:
            world.ask(token)
        said = f"{caught.value.message} {caught.value.hint}"
        assert not [secret for secret in secrets if secret in said], said


def test_development_key(tmp_path):
    path = tmp_path / "state" / "development.pem"
    make_development_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.read_bytes()
    make_development_key(path)
    assert path.read_bytes() == first
    path.chmod(0o644)
    with pytest.raises(UsageError) as caught:
        load_development_key(path)
    assert caught.value.code == "development_key_open"


def test_development_token_is_verified_like_any_other(tmp_path):
    key = tmp_path / "development.pem"
    make_development_key(key)
    dev = issuer("dev", development=True, jwks=None, algorithms=("EdDSA",), groups=Claim(("groups",), required=True))
    person = {"issuer": "dev", "sub": "ada", "tenant": "fabrikam", "groups": ["staff"], "clearance": 2}
    token = mint_token(person, dev, key, now_s=NOW_S, minutes=5)
    verifier = OidcVerifier({"dev": dev}, development_key=key)
    principal = identify(token, verifier, {"dev": dev}, TYPES, now_s=NOW_S)
    assert principal.development
    assert principal.groups == {"dev:staff"}
    assert principal.expires_at_s == NOW_S + 300
    with pytest.raises(Refused) as caught:
        verifier.verify(token, now_s=NOW_S + 300 + LEEWAY_S)
    assert caught.value.code == "token_expired"
    with pytest.raises(Refused) as caught:
        OidcVerifier({"dev": dev}).verify(token, now_s=NOW_S)
    assert caught.value.code == "token_issuer"
    with pytest.raises(UsageError):
        mint_token(person, issuer(), key, now_s=NOW_S)


def raw_signed(world, payload, headers=None):
    """Signed whatever it is; PyJWT refuses to encode some of what an attacker can."""
    unsigned = raw_token({"alg": "EdDSA", "kid": "ed"} | (headers or {}), payload).rsplit(".", 1)[0]
    signature = base64.urlsafe_b64encode(world.ed.sign(unsigned.encode())).rstrip(b"=").decode()
    return f"{unsigned}.{signature}"
