"""The HTTP door as strangers use it: a server in a process of its own, asked by a real client."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.app import Router
from router.config import load_settings
from router.doors import bodies, http
from router.doors.bodies import AskBody
from router.errors import LedgerError, PointsmanError, PolicyError, Refused, SourceError, UsageError
from tests import world
from tests.conformance.corpus import examples
from tests.door_world import COMMAND, QUESTION, bearer, environment, locked, rows_config, serving, token_of
from tests.world import ROOT, run_command

BIG = "[" + ", ".join(f"g{number}" for number in range(4_500)) + "]"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The small world, with a person whose groups do not fit the filter of one policy."""
    folder = tmp_path_factory.mktemp("http") / "world"
    config = world.build_world(folder)
    with (folder / "policies" / "documents.cedar").open("a") as file:
        file.write(
            '\n@id("all-mine") @reason("r") @owner("o") permit (principal, action == Pointsman::Action::"search", resource)\n'
            'when { principal.groups.contains("dev:g1") && resource.groups.containsAll(principal.groups) };\n'
        )
    with (folder / "policies" / "people.yaml").open("a") as file:
        file.write(f"  big: {{ issuer: dev, sub: big, tenant: north, groups: {BIG}, clearance: 1 }}\n")
    return config


@pytest.fixture(scope="module")
def served(config):
    with serving(config) as running:
        yield running


@pytest.fixture(scope="module")
def router(config):
    with Router.open(config) as router:
        yield router


def ids(reply):
    assert reply.status == 200, reply.text
    return [passage["document_id"] for passage in reply.body["passages"]]


def timeless(body):
    """An answer as it travels, without its id and times."""
    body = json.loads(json.dumps(body))
    stages = [{name: value for name, value in stage.items() if name != "ms"} for stage in body["stages"]]
    return {**body, "decision_id": "", "stages": stages}


def log_lines(config: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (config.parent / "state" / "pointsman.jsonl").read_text().splitlines()]


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_one_question_of_several_people(served, router):
    got = {name: ids(served.ask(token_of(router, name), k=50)) for name in ("ada", "hal", "sue", "bob")}
    assert "handbook/hr/accident.md" in got["hal"]
    assert "handbook/hr/accident.md" not in got["ada"]
    assert "handbook/staff/press.md" in got["ada"]
    assert set(got["sue"]) == {"elsewhere/press.md", "elsewhere/oil.md"}
    assert got["bob"] == []
    assert served.ask(token_of(router, "bob")).body["outcome"] == "empty"


def test_the_door_answers_as_the_line_does(served, router):
    token = token_of(router, "hal")
    body = served.ask(token, k=7, route="documents").body
    assert timeless(body) == timeless(router.ask(QUESTION, token=token, k=7, route="documents").as_json())


CLAIMED = [
    {"X-Tenant": "south", "X-Pointsman-Tenant": "south", "X-User": "sue", "X-Groups": "hr,board", "X-Remote-User": "dev#sue"},
    {"X-Forwarded-User": "sue", "X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Original-URL": "/healthz"},
    {
        "Cookie": "token=a; tenant=south",
        "X-HTTP-Method-Override": "GET",
        "Proxy-Authorization": "Bearer a",
        "X-Now": "2027-01-01",
    },
]


def test_identity_comes_from_the_token_alone(served, router):
    token = token_of(router, "ada")
    plain = timeless(served.ask(token, k=50).body)
    for headers in CLAIMED:
        assert timeless(served.ask(token, k=50, headers=list(headers.items())).body) == plain
    body = json.dumps({"question": QUESTION, "k": 50}).encode()
    path = "/v1/ask?tenant=south&groups=hr&token=a&as=sue&now=2027-01-01"
    reply = served.send("POST", path, headers=[*bearer(token), ("Content-Type", "application/json")], body=body)
    assert timeless(reply.body) == plain
    for key in ("tenant", "principal", "subject", "groups", "token", "as", "now", "clearance", "filter", "deadline_s"):
        reply = served.ask(token, **{key: "x"})
        assert (reply.status, reply.code) == (422, "body_unknown_key"), key
    assert served.send("GET", "/v1/whoami?as=sue", headers=bearer(token)).body["principal"] == "dev#ada"


def test_whoami_says_what_the_command_says(served, router, config):
    done = run_command("whoami", "--as", "hal", "--json", "--config", config, cwd=config.parent)
    expected = json.loads(done.stdout)
    reply = served.get("/v1/whoami", token_of(router, "hal"))
    assert reply.status == 200
    assert {**reply.body, "expires_at": ""} == {**expected, "expires_at": ""}


def test_tokens_that_are_not_believed(served, router, config):
    ada = token_of(router, "ada")
    head, payload, signature = ada.split(".")
    wrong = {
        "token_expired": token_of(router, "ada", age_s=3_600),
        "token_issuer": token_of(router, "ada", iss="https://other.invalid"),
        "token_audience": token_of(router, "ada", aud="another"),
        "token_signature": f"{head}.{payload}.{'A' * 86}",
        "token_malformed": "no-token",
        "tenant_not_allowed": token_of(router, "out"),
        "claims_malformed": token_of(router, "ada", clearance="3"),
    }
    for code, token in wrong.items():
        for reply in (served.ask(token), served.get("/v1/whoami", token), served.get("/v1/sources", token)):
            assert (reply.status, reply.code) == (401, code)
            challenge = reply.headers["www-authenticate"]
            assert challenge == f'Bearer realm="pointsman", error="invalid_token", error_description="{code}"'
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.headers["cache-control"] == "no-store"
            assert (reply.body["status"], reply.body["title"]) == (401, "Unauthorized")
            assert signature not in reply.text
    logged = [line for line in log_lines(config) if line["event"] == "token_refused"]
    assert {line["code"] for line in logged} >= set(wrong)
    assert {line["issuer"] for line in logged} == {"dev", "unknown"}


def test_requests_without_one_token(served, router):
    ada = token_of(router, "ada")
    two = [("Authorization", f"Bearer {ada}"), ("Authorization", f"Bearer {ada}")]
    for headers in ([], two, [("Authorization", "Basic YTpi")], [("Authorization", "Bearer")], [("Authorization", "Bearer  ")]):
        for method, path in (("GET", "/v1/whoami"), ("GET", "/v1/sources"), ("POST", "/v1/ask"), ("GET", "/v1/anything")):
            reply = served.send(method, path, headers=headers, body=b"{" if method == "POST" else None)
            assert (reply.status, reply.code) == (401, "token_missing")
            assert reply.headers["www-authenticate"] == 'Bearer realm="pointsman"'
    assert served.send("GET", "/v1/whoami", headers=[("authorization", f"bEARER   {ada}")]).status == 200


def test_strange_tokens(served):
    for token in ("é" * 5, "a.b.c", "\x80\xff", "x" * 20_000, "e30.e30.", "..", '"; drop', "{}"):
        header = [("Authorization", f"Bearer {token}".encode("latin-1", "replace"))]
        reply = served.send("GET", "/v1/whoami", headers=header)
        assert (reply.status, reply.code[:6]) == (401, "token_"), token


def test_sources_are_the_callers(served, router):
    got = {name: served.get("/v1/sources", token_of(router, name)).body for name in ("ada", "sue", "bob")}
    assert [one["name"] for one in got["ada"]["sources"]] == ["handbook", "notes"]
    assert got["ada"]["sources"][1]["description"] == "shift notes"
    assert [one["name"] for one in got["sue"]["sources"]] == ["elsewhere"]
    assert "notes" not in json.dumps(got["sue"])
    assert got["bob"] == {"sources": [], "datasets": [], "metrics": []}


def test_policy_refuses_with_the_decision(served, router):
    """After identity a refusal is an answer on record: 403, and its id can be looked up."""
    big = token_of(router, "big")
    reply = served.ask(big)
    assert (reply.status, reply.code, reply.body["title"]) == (403, "policy_too_large", "Forbidden")
    assert "www-authenticate" not in reply.headers
    decision_id = reply.body["error"]["decision_id"]
    kinds = [record.kind for _, record in router.ledger.read("north", decision_id=decision_id)]
    assert kinds == ["asked", "answered"]
    reply = served.get("/v1/sources", big)
    assert (reply.status, reply.code) == (403, "policy_too_large")
    assert served.get("/v1/whoami", big).status == 200


# --- what is asked ----------------------------------------------------------------------------------------------------

MISTAKES = [
    ({"question": "q", "k": 0}, "body_invalid"),
    ({"question": "q", "k": 51}, "body_invalid"),
    ({"question": "q", "k": "5"}, "body_invalid"),
    ({"question": "q", "k": True}, "body_invalid"),
    ({"question": "q", "k": 2.5}, "body_invalid"),
    ({"question": "q", "k": None}, "body_invalid"),
    ({"question": "q", "K": 5}, "body_unknown_key"),
    ({"question": "q", "route": "everything"}, "body_invalid"),
    ({"question": "q", "deadline_ms": 0}, "body_invalid"),
    ({"question": "q", "deadline_ms": -5}, "body_invalid"),
    ({"question": "q", "deadline_ms": 10**12}, "body_invalid"),
    ({"question": "q", "deadline_ms": "1s"}, "body_invalid"),
    ({"question": ""}, "body_invalid"),
    ({"question": " \t\n"}, "question_empty"),
    ({"question": "q" * 10_001}, "body_invalid"),
    ({"question": 5}, "body_invalid"),
    ({"question": "q", "context": "earlier"}, "body_invalid"),
    ({"question": "q", "context": ["q"] * 21}, "body_invalid"),
    ({"question": ["q"]}, "body_invalid"),
    ({}, "body_invalid"),
]


@pytest.mark.parametrize(("body", "code"), MISTAKES, ids=[str(body)[:40] for body, _ in MISTAKES])
def test_mistakes_are_said(served, router, body, code):
    headers = [*bearer(token_of(router, "ada")), ("Content-Type", "application/json")]
    reply = served.send("POST", "/v1/ask", headers=headers, body=json.dumps(body).encode())
    assert (reply.status, reply.code) == (422, code)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.body["error"]["hint"]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"q"', b"null", b"\xff\xfe", b'{"question": "\\ud800"}', b"[" * 100_000, b"NaN"]
)
def test_bodies_that_are_no_question(served, router, raw):
    headers = [*bearer(token_of(router, "ada")), ("Content-Type", "application/json")]
    reply = served.send("POST", "/v1/ask", headers=headers, body=raw)
    assert reply.status in (400, 422)
    assert reply.code in ("body_malformed", "body_invalid")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(["question", "k", "route", "deadline_ms", "sources", "filters", "context"]) | st.text(max_size=8)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(_KEYS, _VALUES, max_size=5), raw=st.binary(max_size=60) | st.none())
def test_no_body_is_a_fault(served, router, body, raw):
    """Whatever stands in a body: an answer, or what is wrong with it."""
    sent = json.dumps(body).encode() if raw is None else raw
    headers = [*bearer(token_of(router, "bob")), ("Content-Type", "application/json")]
    reply = served.send("POST", "/v1/ask", headers=headers, body=sent)
    assert reply.status in (200, 400, 422), (sent, reply.text)
    assert reply.status == 200 or set(reply.body) == {"type", "title", "status", "detail", "error"}


def test_json_is_said_to_be_json(served, router):
    """Also what keeps a page in a browser from asking without the browser's leave."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = [*bearer(token_of(router, "ada")), *([("Content-Type", kind)] if kind else [])]
        reply = served.send("POST", "/v1/ask", headers=headers, body=b'{"question": "q"}')
        assert (reply.status, reply.code) == (422, "body_malformed")
        assert "application/json" in reply.body["error"]["hint"]


def test_a_key_that_is_nearly_right(served, router):
    assert served.ask(token_of(router, "ada"), rout="sql").body["error"]["hint"] == "did you mean `route`"


def test_bodies_that_are_too_large(served, router):
    large = json.dumps({"question": "q" * http.MAX_BODY_BYTES}).encode()
    json_of = [*bearer(token_of(router, "ada")), ("Content-Type", "application/json")]
    for body in (large, iter([large[at : at + 10_000] for at in range(0, len(large), 10_000)])):
        reply = served.send("POST", "/v1/ask", headers=json_of, body=body)
        assert (reply.status, reply.code) == (413, "body_too_large")
    assert served.send("POST", "/v1/ask", body=large).status == 401
    longest = json.dumps({"question": "\U0001f600" * 10_000}).encode()
    assert served.send("POST", "/v1/ask", headers=json_of, body=longest).status == 200


def test_places_that_are_not_there(served, router):
    ada = token_of(router, "ada")
    for method, path, status, code in (
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/asks", 404, "not_found"),
        ("GET", "/v1/ask", 405, "method_not_allowed"),
        ("DELETE", "/v1/sources", 405, "method_not_allowed"),
        ("GET", "/v1/../healthz", 404, "not_found"),
        ("GET", "/metrics", 404, "not_found"),
        ("GET", "/v1/ask/", 404, "not_found"),
    ):
        reply = served.send(method, path, headers=bearer(ada))
        assert (reply.status, reply.code) == (status, code), path


def test_a_body_has_the_names_of_the_line():
    """What a body can say goes to `Router.ask` under its own name, so that the door needs no list of its own."""
    taken = set(inspect.signature(Router.ask).parameters) - {"self", "token", "now"}
    assert {*AskBody.model_fields} - {"deadline_ms"} == taken - {"deadline_s"}
    options = AskBody(question="and in the North?", k=3, route="sql", context=["how many claims"]).options(1.0)
    assert options == {"k": 3, "route": "sql", "context": ["how many claims"], "deadline_s": 1.0}


def test_a_deadline_can_be_shortened_and_not_lengthened(served, router):
    for given_ms, deadline_s in ((500, 0.5), (60_000, 10.0), (None, 10.0)):
        assert AskBody(question="q", deadline_ms=given_ms).options(10.0)["deadline_s"] == deadline_s
    reply = served.ask(token_of(router, "ada"), deadline_ms=1)
    if reply.status == 200:
        assert reply.body["degraded"]
    else:
        assert (reply.status, reply.body["error"]["code"][:4]) == (503, "dead")


def test_failures_tell_nothing(served, router, config):
    """No path, no token, no question, no name of the other tenant or of a source that is not granted."""
    ada, wrong = token_of(router, "ada"), token_of(router, "ada", age_s=9_999)
    secret = "zebra-question-with-words"
    replies = [
        served.ask(wrong, secret),
        served.ask(ada, secret, tenant="south"),
        served.ask(ada, secret, route="elsewhere"),
        served.ask(ada, secret + "q" * 10_000),
        served.ask(token_of(router, "big"), secret),
        served.ask(token_of(router, "out"), secret),
        served.send("POST", "/v1/ask", headers=bearer(ada), body=secret.encode()),
        served.send("POST", "/v1/ask", headers=[*bearer(ada), ("Content-Type", "application/json")], body=b'{"x": "zebra'),
        served.send("GET", f"/{secret}", headers=bearer(ada)),
        served.get("/v1/whoami", "a.b.c"),
    ]
    for reply in replies:
        assert reply.status >= 400
        assert set(reply.body) == {"type", "title", "status", "detail", "error"}
        for word in (
            "zebra",
            str(config.parent),
            str(ROOT),
            ada,
            wrong,
            ".sqlite",
            "handbook",
            "Traceback",
            "site-packages",
            "fastapi",
        ):
            assert word not in reply.text
        assert "server" not in reply.headers


# --- probes and documents ---------------------------------------------------------------------------------------------


def test_probes(served):
    assert (served.get("/healthz").status, served.get("/healthz").body) == (200, {"status": "ok"})
    parts = dict.fromkeys(("policies", "ledger", "model", "documents", "tables"), "ok")
    assert (served.get("/readyz").status, served.get("/readyz").body) == (200, {"status": "ok", "parts": parts})


def closed(schema):
    """The schema with nothing allowed that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    body = {name: closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **body} if body.get("type") == "object" and "properties" in body else body


def test_openapi_is_valid(served):
    spec = served.get("/openapi.json").body
    assert spec["openapi"].startswith("3.1")
    assert set(spec["paths"]) == {"/v1/ask", "/v1/sources", "/v1/whoami", "/healthz", "/readyz"}
    schemas = spec["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in re.findall(r'"\$ref":\s*"#/components/schemas/([^"]+)"', json.dumps(spec)):
        assert reference in schemas
    for path in ("/v1/ask", "/v1/sources", "/v1/whoami"):
        (operation,) = spec["paths"][path].values()
        assert operation["security"] == [{"HTTPBearer": []}]
        assert {"200", "401", "503"} <= set(operation["responses"])
    assert set(spec["paths"]["/v1/ask"]["post"]["responses"]) == {"200", "401", "403", "413", "422", "500", "503"}
    assert spec["components"]["schemas"]["AskBody"]["additionalProperties"] is False


def test_answers_are_what_openapi_says(served, router):
    spec = served.get("/openapi.json").body
    definitions = {"components": {"schemas": closed(spec["components"]["schemas"])}}

    def check(reply, name):
        jsonschema.validate(reply.body, {"$ref": f"#/components/schemas/{name}", **definitions})

    check(served.ask(token_of(router, "hal"), k=50), "AnswerBody")
    check(served.ask(token_of(router, "bob")), "AnswerBody")
    check(served.get("/v1/sources", token_of(router, "ada")), "SourcesBody")
    check(served.get("/readyz"), "ReadyBody")
    check(served.ask(None), "ProblemBody")
    check(served.ask(token_of(router, "big")), "ProblemBody")
    check(served.ask(token_of(router, "ada"), k=99), "ProblemBody")
    bodies.WhoamiBody.model_validate(served.get("/v1/whoami", token_of(router, "ada")).body)


def test_the_page_fetches_nothing(served):
    reply = served.get("/docs")
    assert reply.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "/v1/ask" in reply.text
    assert not re.search(r"<script|<link|<img|src=|https?://", reply.text)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl(served, router):
    body = json.dumps({"question": QUESTION, "k": 2})
    command = ["curl", "-sS", "-f", f"{served.url}/v1/ask", "-H", "Content-Type: application/json", "-d", body]
    done = subprocess.run([*command, "-H", f"Authorization: Bearer {token_of(router, 'ada')}"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)["passages"]) == 2
    assert subprocess.run(command, capture_output=True, check=False).returncode == 22


# --- many, and trouble ------------------------------------------------------------------------------------------------


def test_many_at_once(served, router, config):
    people = ["ada", "hal", "sue", "bob"] * 4
    tokens = {name: token_of(router, name) for name in set(people)}
    alone = {name: ids(served.ask(token, k=50)) for name, token in tokens.items()}
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda name: served.ask(tokens[name], k=50), people))
    assert [ids(reply) for reply in replies] == [alone[name] for name in people]
    assert len({reply.body["decision_id"] for reply in replies}) == 16
    done = run_command("log", "verify", "--json", "--config", config, cwd=config.parent)
    assert done.returncode == 0, done.stdout


def test_nothing_indexed_is_not_ready(served, config):
    held = config.parent / "state" / "stores"
    held.rename(held.with_name("away"))
    try:
        time.sleep(http.READY_FOR_S + 0.1)
        ready = served.get("/readyz")
        assert (ready.status, ready.body["parts"]["documents"]) == (503, "store_missing")
    finally:
        held.with_name("away").rename(held)
    time.sleep(http.READY_FOR_S + 0.1)
    assert served.get("/readyz").status == 200


def test_a_ledger_that_cannot_write(served, router, config):
    ledger = config.parent / "state" / "ledger.sqlite"
    ledger.rename(ledger.with_name("away"))
    try:
        time.sleep(http.READY_FOR_S + 0.1)
        reply = served.ask(token_of(router, "ada"))
        assert (reply.status, reply.code) == (503, "ledger_unwritable")
        assert "passages" not in reply.text
        ready = served.get("/readyz")
        assert (ready.status, ready.body["parts"]["ledger"]) == (503, "ledger_unwritable")
        assert served.get("/healthz").status == 200
        assert served.ask("bad").status == 401, "a refused token stays one, though its sum cannot be written"
    finally:
        ledger.with_name("away").rename(ledger)
    time.sleep(http.READY_FOR_S + 0.1)
    assert served.ask(token_of(router, "ada")).status == 200
    assert served.get("/readyz").status == 200


def until(look, within_s=15.0):
    end = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


def test_a_policy_folder_that_breaks_while_serving(tmp_path):
    config = world.build_world(tmp_path / "world")
    config.write_text("policy_grace_s = 0\n" + config.read_text())
    policy = config.parent / "policies" / "documents.cedar"
    good = policy.read_text()
    with Router.open(config) as router, serving(config, stop=signal.SIGINT) as served:
        ada = token_of(router, "ada")
        assert served.ask(ada).status == 200
        policy.write_text(good + "\npermit (principal")
        until(lambda: served.get("/readyz").status == 503)
        assert served.get("/readyz").body["parts"]["policies"] == "policy_invalid"
        for reply in (served.ask(ada), served.get("/v1/whoami", ada), served.get("/v1/sources", ada), served.ask("bad")):
            assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "policy_invalid", "1")
        assert served.get("/healthz").status == 200
        policy.write_text(good)
        until(lambda: served.get("/readyz").status == 200)
        assert served.ask(ada).status == 200


# --- opening and closing ----------------------------------------------------------------------------------------------


def test_stopping_finishes_what_was_asked(tmp_path):
    config = world.build_world(tmp_path / "world")
    with Router.open(config) as router, serving(config) as served:
        tokens = [token_of(router, name) for name in ("ada", "hal", "sue", "low")]
        with ThreadPoolExecutor(4) as pool:
            with locked(config.parent / "state" / "ledger.sqlite"):
                asked = [pool.submit(served.ask, token) for token in tokens]
                time.sleep(0.7)
                served.process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
                assert served.process.poll() is None, "it waits for what it was asked"
                assert not any(one.done() for one in asked)
                with pytest.raises(OSError):
                    served.get("/healthz")
            replies = [one.result(30) for one in asked]
        assert [reply.status for reply in replies] == [200] * 4
        assert served.process.wait(20) == 0
        for reply, tenant in zip(replies, ("north", "north", "south", "north"), strict=True):
            kinds = [record.kind for _, record in router.ledger.read(tenant, decision_id=reply.body["decision_id"])]
            assert kinds == ["asked", "answered"]


def test_an_open_door_needs_real_issuers(tmp_path):
    config = world.build_world(tmp_path / "world")
    done = run_command("serve", "--host", "0.0.0.0", "--port", "0", "--json", "--config", config, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "development_issuer_exposed")
    with Router.open(config) as trusting, Router.open(config, development=False) as strict:
        for host in ("0.0.0.0", "::", "192.0.2.1", "example.invalid"):
            with pytest.raises(UsageError, match="development"):
                http.serve(trusting, host, 0, print)
        token = trusting.mint("ada")
        assert trusting.whoami(token).name == "dev#ada"
        for call in (strict.whoami, strict.sources, lambda token: strict.ask(QUESTION, token=token)):
            with pytest.raises(Refused) as raised:
                call(token)
            assert raised.value.code == "development_issuer"
            assert http.status_of(raised.value) == 503
        assert strict.readiness()["policies"] == "development_issuer"
        assert trusting.readiness()["policies"] == "ok"


def test_a_ledger_that_cannot_write_from_the_start(tmp_path):
    """Nobody is told of a door behind which no decision could be recorded."""
    config = world.build_world(tmp_path / "world")
    ledger = tmp_path / "world" / "state" / "ledger.sqlite"
    ledger.unlink()
    ledger.mkdir()
    done = run_command("serve", "--port", "0", "--json", "--config", config, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, "ledger_unwritable")


def test_loopback():
    assert all(map(http.is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(http.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "", "127.0.0.1.example")))


def test_places_that_cannot_be_listened_on(served, router):
    for host, port in (("127.0.0.1", int(served.url.rsplit(":", 1)[1])), ("::1", -1)):
        with pytest.raises(UsageError) as raised:
            http.serve(router, host, port, print)
        assert raised.value.code == "address_unavailable"


def test_help_imports_no_server():
    script = (
        "import sys; from router.doors.cli import app\n"
        "try: app(['serve', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('fastapi', 'uvicorn', 'starlette', 'mcp', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_the_package(config, tmp_path):
    (tmp_path / "hidden.py").write_text(
        "import importlib.util as u, sys\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('fastapi', 'mcp') else real(name, *a)\n"
        "from router.doors.cli import main\nmain()\n"
    )
    for arguments, extra in ((("serve",), "pointsman[http]"), (("mcp", "--token", "x"), "pointsman[mcp]")):
        command = [sys.executable, str(tmp_path / "hidden.py"), *arguments, "--json", "--config", str(config)]
        done = subprocess.run(command, env=environment(), capture_output=True, check=False)
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (2, "package_missing")
        assert extra in error["hint"]


# --- what cannot be provoked from outside -----------------------------------------------------------------------------


class Slow(Router):
    """A router whose questions wait until they may go on, or fail in a way that nobody foresaw."""

    go = threading.Event()

    def ask(self, question, **options):
        if question == "fail":
            raise ZeroDivisionError("secret of a fault")
        assert self.go.wait(20)
        return super().ask(question, **options)


@pytest.fixture
def slow(tmp_path):
    """Served inside this process, on a thread."""
    Slow.go.clear()
    with Slow(load_settings(world.build_world(tmp_path / "world"))) as router:
        config = uvicorn.Config(http.build_app(router), port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
        listener = config.bind_socket()
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started)
        from tests.door_world import Served

        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path / "world" / "pointsman.toml", None), router
        Slow.go.set()
        server.should_exit = True
        thread.join(30)


def test_a_full_door_says_so_and_probes_still_answer(slow, monkeypatch):
    served, router = slow
    ada = token_of(router, "ada")
    monkeypatch.setattr(http, "MAX_ASKS", http.THREADS + 4)
    with ThreadPoolExecutor(http.MAX_ASKS) as pool:
        waiting = [pool.submit(served.ask, ada) for _ in range(http.MAX_ASKS)]
        time.sleep(1.0)
        reply = served.ask(ada)
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "busy", "1")
        assert served.get("/readyz").status == 200
        assert served.get("/healthz").status == 200
        Slow.go.set()
        assert [one.result(30).status for one in waiting] == [200] * http.MAX_ASKS
    assert served.ask(ada).status == 200


def test_waiting_takes_of_the_deadline(tmp_path):
    """A question that found no thread within its deadline is not started."""
    with Slow(load_settings(world.build_world(tmp_path / "world"))) as router:
        Slow.go.clear()

        async def both():
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            first = asyncio.create_task(router.ask_async(QUESTION, token=router.mint("ada")))
            second = asyncio.create_task(router.ask_async(QUESTION, token=router.mint("ada"), deadline_s=0.05))
            await asyncio.sleep(0.3)
            Slow.go.set()
            return await asyncio.gather(first, second, return_exceptions=True)

        first, second = asyncio.run(both())
        assert first.outcome == "answered"
        assert (type(second), second.code, second.retryable) == (SourceError, "deadline", True)
        with pytest.raises(UsageError):
            asyncio.run(router.ask_async(QUESTION, token=router.mint("ada"), deadline_s=0))


def test_a_fault_that_nobody_foresaw(slow):
    served, router = slow
    reply = served.ask(token_of(router, "ada"), "fail")
    assert (reply.status, reply.code) == (500, "fault")
    assert "ZeroDivisionError" in reply.text
    assert "secret" not in reply.text
    Slow.go.set()
    assert served.ask(token_of(router, "ada")).status == 200


def test_every_failure_has_a_status():
    for error, status in (
        (Refused("token_expired", "m"), 401),
        (Refused("policy_too_large", "m", decision_id="d-1"), 403),
        (Refused("policy_invalid", "m"), 503),
        (UsageError("question_empty", "m"), 422),
        (SourceError("store_missing", "m"), 503),
        (LedgerError("ledger_full", "m"), 503),
        (PolicyError("policy_format", "m"), 503),
        (PointsmanError("other", "m"), 500),
    ):
        assert http.status_of(error) == status


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables():
    config = rows_config()
    with Router.open(config) as router, serving(config) as served:
        one, two, stranger = (token_of(router, name) for name in ("analyst-1", "analyst-2", "stranger"))
        offer = served.get("/v1/sources", one).body
        assert {dataset["name"] for dataset in offer["datasets"]} == {"claims_v", "approvals_v", "inventory_v", "depots_v"}
        assert served.get("/v1/sources", stranger).body == {"sources": [], "datasets": [], "metrics": []}
        question = "How many claims_v are there?"
        replies = [served.ask(token, question, route="sql") for token in (one, two, stranger)]
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert replies[2].body["outcome"] == "empty"
        assert replies[0].body == router_body(replies[0], router, one, question)
        assert replies[0].body["outcome"] in ("answered", "clarify")
        assert served.get("/readyz").body["parts"]["tables"] == "ok"


def router_body(reply, router, token, question):
    """The line's own answer with the id and times of the reply."""
    body = router.ask(question, token=token, route="sql").as_json()
    return {**json.loads(json.dumps(body)), "decision_id": reply.body["decision_id"], "stages": reply.body["stages"]}


def test_sockets_are_this_machines(served):
    """Bound to loopback, so the same port on another address of this machine is closed."""
    port = int(served.url.rsplit(":", 1)[1])
    with socket.socket() as other:
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port)) != 0
    assert COMMAND
