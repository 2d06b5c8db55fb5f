"""Who may be sent text: what the configuration names, what the key's absence means, and what the policies say of questions."""

from __future__ import annotations

import json

import pytest

from router.app import Router
from router.config import parse_settings
from router.errors import UsageError
from router.policy.load import inspect_files
from router.policy.strict import Faults
from router.review.check import check_policies
from tests import policy_world as world

NAMED = {"key_env": "SOME_KEY", "model": "claude-test"}


def settings(tmp_path, claude=None):
    folder = tmp_path / "policies"
    folder.mkdir(exist_ok=True)
    for name, body in world.folder_files("").items():
        (folder / name).write_bytes(body)
    return parse_settings({"providers": {"claude": claude}} if claude is not None else {}, tmp_path)


# --- configuration ----------------------------------------------------------------------------------------------------


def test_without_a_name_or_a_key_there_is_no_provider(tmp_path, monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-never-asked-for")
    with Router(settings(tmp_path)) as router:
        assert router.claude is None
    for key in (None, "", "  \n"):
        if key is not None:
            monkeypatch.setenv("SOME_KEY", key)
        with Router(settings(tmp_path, NAMED)) as router:
            assert router.claude is None


def test_with_a_key_there_is_one_and_it_is_closed_with_the_router(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-1")
    router = Router(settings(tmp_path, {**NAMED, "streaming": True}))
    assert router.claude is router.claude
    assert router.claude.provider == "claude"
    router.close()
    router.close()
    assert "claude" not in vars(router)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"model": "m"}, "providers.claude.key_env"),
        ({"key_env": "SOME_KEY"}, "providers.claude.model"),
        ({**NAMED, "key_env": "sk-ant-SECRET"}, "providers.claude.key_env"),
        ({**NAMED, "model": ""}, "providers.claude.model"),
        ({**NAMED, "model": "a\nb"}, "providers.claude.model"),
        ({**NAMED, "base_url": "http://provider.example"}, "providers.claude.base_url"),
        ({**NAMED, "base_url": "http://127.0.0.1.example/"}, "providers.claude.base_url"),
        ({**NAMED, "base_url": "https://user:SECRET@provider.example"}, "providers.claude.base_url"),
        ({**NAMED, "base_url": "ftp://provider.example"}, "providers.claude.base_url"),
        ({**NAMED, "streaming": "perhaps"}, "providers.claude.streaming"),
        ({**NAMED, "key": "sk-ant-SECRET"}, "providers.claude.key"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_shown(tmp_path, wrong, place):
    with pytest.raises(UsageError) as raised:
        settings(tmp_path, wrong)
    assert f"`{place}`" in raised.value.message
    assert "SECRET" not in f"{raised.value.message} {raised.value.hint}"


@pytest.mark.parametrize(
    "url", ["https://gateway.example/anthropic", "http://127.0.0.1:8080", "http://[::1]:1/x", "http://localhost"]
)
def test_addresses_that_are_taken(tmp_path, url):
    assert settings(tmp_path, {**NAMED, "base_url": url}).providers.claude.base_url == url


def test_doctor_says_what_text_could_be_sent_to(tmp_path, monkeypatch, capsys):
    from router.doors.cli.setup import run_doctor

    settings(tmp_path)
    path = tmp_path / "pointsman.toml"

    def line() -> dict[str, str]:
        with pytest.raises(SystemExit):  # nothing is set up here: other lines are faults
            run_doctor(as_json=True, config=path)
        shown = json.loads(capsys.readouterr().out)["checks"]
        return next(check for check in shown if check["name"] == "providers")

    path.write_text("")
    assert (line()["level"], line()["message"]) == ("ok", "none configured: no text leaves this machine")
    path.write_text('[providers.claude]\nkey_env = "SOME_KEY"\nmodel = "claude-test"\n')
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert line()["level"] == "warning"
    assert "`SOME_KEY`" in line()["hint"]
    monkeypatch.setenv("SOME_KEY", "sk-CANARY")
    found = line()
    assert (found["level"], "claude-test" in found["message"]) == ("ok", True)
    assert "CANARY" not in json.dumps(found)


COHERE = {"key_env": "SOME_KEY", "embed_model": "embed-test", "rerank_model": "rerank-test"}
ENDPOINT = {"base_url": "http://127.0.0.1:1/v1", "model": "e5-test", "dimensions": 8}


def hosted(tmp_path, **raw):
    settings(tmp_path)
    return parse_settings(raw, tmp_path)


def test_local_models_are_the_default(tmp_path):
    with Router(hosted(tmp_path, providers={"cohere": COHERE, "openai_compatible": ENDPOINT})) as router:
        assert (router.remote_embedder, router.remote_reranker) == (None, None)
        assert router.index_card == router.embedder.card


@pytest.mark.parametrize(
    ("raw", "said", "hint"),
    [
        ({"models": {"embedder": "cohere"}}, "`[models] embedder` names `cohere`", "give `embed_model` in `[providers.cohere]`"),
        (
            {"models": {"embedder": "cohere"}, "providers": {"cohere": {"key_env": "SOME_KEY", "rerank_model": "r"}}},
            "`[models] embedder` names `cohere`",
            "give `embed_model`",
        ),
        ({"models": {"embedder": "openai_compatible"}}, "names `openai_compatible`", "`[providers.openai_compatible]`"),
        (
            {"search": {"rerank_by": "cohere"}, "providers": {"cohere": {"key_env": "SOME_KEY", "embed_model": "e"}}},
            "`[search] rerank_by` names `cohere`",
            "give `rerank_model`",
        ),
    ],
)
def test_what_is_used_must_be_configured(tmp_path, raw, said, hint):
    with pytest.raises(UsageError) as raised:
        hosted(tmp_path, **raw)
    assert said in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("provider", "changes", "place"),
    [
        ("cohere", {"key_env": "co-SECRET"}, "key_env"),
        ("cohere", {"base_url": "http://provider.example"}, "base_url"),
        ("cohere", {"base_url": "https://u:SECRET@provider.example"}, "base_url"),
        ("cohere", {"embed_model": "a b"}, "embed_model"),
        ("cohere", {"dimensions": 1}, "dimensions"),
        ("cohere", {"calls_at_once": 0}, "calls_at_once"),
        ("cohere", {"key": "co-SECRET"}, "key"),
        ("openai_compatible", {"base_url": "http://10.0.0.1/v1"}, "base_url"),
        ("openai_compatible", {"dimensions": None}, "dimensions"),
        ("openai_compatible", {"embed_price": -1}, "embed_price"),
    ],
)
def test_what_is_wrong_with_a_hosted_model_is_named(tmp_path, provider, changes, place):
    with pytest.raises(UsageError) as raised:
        hosted(tmp_path, providers={provider: {**(COHERE if provider == "cohere" else ENDPOINT), **changes}})
    assert f"`providers.{provider}.{place}`" in raised.value.message
    assert "SECRET" not in f"{raised.value.message} {raised.value.hint}"


def test_doctor_names_who_embeds_and_reranks(tmp_path, monkeypatch, capsys):
    from router.doors.cli.setup import run_doctor

    settings(tmp_path)
    path = tmp_path / "pointsman.toml"
    said = '[providers.cohere]\nkey_env = "SOME_KEY"\nembed_model = "embed-test"\nrerank_model = "rerank-test"\n'

    def lines() -> dict[str, dict[str, str]]:
        with pytest.raises(SystemExit):
            run_doctor(as_json=True, config=path)
        return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}

    monkeypatch.setenv("SOME_KEY", "co-CANARY")
    path.write_text(said)
    assert lines()["providers"]["message"] == "configured and not used: `[models]` and `[search]` name none"
    path.write_text(f'{said}[models]\nembedder = "cohere"\n[search]\nrerank_by = "cohere"\n')
    found = lines()
    assert "cohere: embed-test embeds, cohere: rerank-test reranks" in found["providers"]["message"]
    assert "CANARY" not in json.dumps(found)
    assert "cohere/embed-test@" in json.dumps(found)
    monkeypatch.delenv("SOME_KEY")
    assert lines()["providers"]["level"] == "warning"


# --- policies ---------------------------------------------------------------------------------------------------------


def with_classes(text: str) -> dict[str, bytes]:
    return world.folder_files("", identity__yaml=world.IDENTITY + text)


def test_a_question_is_internal_unless_its_tenant_says_otherwise():
    policies = world.load_files(with_classes("question_class: { t1: confidential }\n"))
    assert (policies.question_class("t1"), policies.question_class("t'2"), policies.question_class("x")) == (2, 1, 1)
    assert world.load_files(world.folder_files("")).question_class("t1") == 1
    assert world.load_files(with_classes("question_class:\n")).question_class("t1") == 1


def test_the_class_of_questions_is_part_of_the_version():
    one, other = (world.load_files(with_classes(f"question_class: {{ t1: {word} }}\n")) for word in ("public", "internal"))
    assert one.version != other.version


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("question_class: { t1: secret }\n", "the class `secret`", "known here"),
        ("question_class: { t1: confidentail }\n", "the class `confidentail`", "did you mean `confidential`"),
        ("question_class: { t1: 2 }\n", "needs `t1`", ""),
        ("question_class: { t9: internal }\n", "`t9`, a tenant that no issuer may assert", ""),
        ("question_class: internal\n", "needs `question_class`, a mapping", ""),
        ("question_classes: {}\n", "unknown key `question_classes`", "did you mean `question_class`"),
    ],
)
def test_what_is_wrong_with_it_is_a_fault(text, said, hint):
    policies, faults = inspect_files(with_classes(text), Faults())
    assert policies is None
    assert any(said in fault.message and hint in fault.hint and fault.file == "identity.yaml" for fault in faults), faults


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ('context.purpose == "draft"', None),
        ('["route", "context"].contains(context.purpose)', None),
        ('context.purpose == "drafts"', "drafts"),
        ('"draft_sql" == context.purpose', "draft_sql"),
        ('["route", "sql"].contains(context.purpose)', "sql"),
    ],
)
def test_a_purpose_for_which_nothing_is_sent(tmp_path, condition, named):
    text = (
        '@id("sends") @reason("r") @owner("o") permit (principal is Pointsman::User, action == Pointsman::Action::"disclose", '
        f'resource == Pointsman::Provider::"claude") when {{ {condition} }};'
    )
    for name, body in world.folder_files(text, people__yaml="people: {}\n").items():
        (tmp_path / name).write_bytes(body)
    found = [finding for finding in check_policies(tmp_path) if "purpose" in finding.message]
    assert [finding.policy_id for finding in found] == (["sends"] if named else [])
    assert all(f"`{named}`" in finding.message for finding in found)
