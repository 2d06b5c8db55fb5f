"""`pointsman.toml`: strict, typed, and every mistake named so that it can be mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from router.app import Router
from router.config import (
    FILE_NAME,
    Settings,
    SourceSettings,
    find_settings,
    load_settings,
    parse_settings,
    settings_markdown,
)
from router.errors import UsageError
from tests.world import ROOT


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def refused(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    return raised.value


def test_an_empty_file_has_every_default(tmp_path):
    settings = load(tmp_path, "")
    assert settings.policy_folder == tmp_path / "policies"
    assert settings.state_folder == tmp_path / "state"
    assert settings.store_folder == tmp_path / "state" / "stores"
    assert (settings.search.candidates, settings.search.fusion, settings.deadlines.ask_s) == (50, "zsum", 10.0)
    assert settings.policy_grace_s == 60


def test_paths_are_relative_to_the_file_and_absolute_ones_stay(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings = load(tmp_path, 'policies = "../p"\nstate = "/srv/state"\n[stores]\npath = "here"\n')
    assert settings.policy_folder == tmp_path / ".." / "p"
    assert settings.state_folder == Path("/srv/state")
    assert settings.store_folder == tmp_path / "here"


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("polices = 'p'", "polices", "policies"),
        ("[serch]", "serch", "search"),
        ("[search]\ncandidate = 5", "search.candidate", "candidates"),
        ("[deadlines]\nask = 5", "deadlines.ask", "ask_s"),
        ("[sources.handbook]\npth = 'x'", "sources.handbook.pth", "path"),
        ("[sources.search]\ndatabse = 'x'", "sources.search.databse", "database"),
        ("[ledger]\nURL = 'x'", "ledger.URL", "url"),
    ],
)
def test_unknown_key_names_nearest(tmp_path, text, place, nearest):
    error = refused(tmp_path, text)
    assert (error.code, error.exit_code) == ("config_unknown_key", 2)
    assert f"`{place}`" in error.message
    if nearest.lower() == place.rpartition(".")[2].lower():
        return
    assert error.hint == f"did you mean `{nearest}`"


def test_unknown_key_far_from_all_says_remove_it(tmp_path):
    assert refused(tmp_path, "zzzzqq = 1").hint == "remove it"


def test_folder_is_not_a_setting(tmp_path):
    """The field is the loader's: a file that could move it would move every path."""
    assert refused(tmp_path, "folder = '/'").code == "config_unknown_key"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("policies = 3", "policies"),
        ("sources = 3", "sources"),
        ("[sources]\nx = 3", "sources.x"),
        ("[sources.x]\ntext = 'one'", "sources.x.text"),
        ("[sources.x.labels]\ngroups = 'g'", "sources.x.labels.sensitivity"),
        ("[search]\ncandidates = 1", "search.candidates"),
        ("[search]\nfusion = 'sum'", "search.fusion"),
        ("[search]\ndense_weight = 1.5", "search.dense_weight"),
        ("[ledger]\nquestion = 'none'", "ledger.question"),
        ("[deadlines]\nask_s = 0", "deadlines.ask_s"),
        ("[deadlines]\nask_s = nan", "deadlines.ask_s"),
        ("[deadlines]\nask_s = inf", "deadlines.ask_s"),
        ("[models]\nthreads = 1.5", "models.threads"),
        ("policy_grace_s = -1", "policy_grace_s"),
    ],
)
def test_wrong_value_names_its_key(tmp_path, text, place):
    error = refused(tmp_path, text)
    assert (error.code, error.exit_code) == ("config_invalid", 2)
    assert f"`{place}` is wrong" in error.message
    assert "Settings" not in error.message
    assert "pathlib" not in error.message


CLUSTER = "[stores.opensearch]\nhosts = ['https://one:9200']\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[providers.cohere]\nkey_env = 'K'\nbase_url = 'https://h:99999/v1'", "no address of a machine"),
        ("[providers.cohere]\nkey_env = 'K'\nbase_url = 'https://[::1/v1'", "no address of a machine"),
        ("[providers.cohere]\nkey_env = 'K'\nbase_url = 'http://elsewhere/v1'", "no https address"),
        ("[stores.opensearch]\nhosts = ['https://h:99999']", "no address of a machine"),
        ("[stores.opensearch]\nhosts = ['http://elsewhere']", "no https address"),
        (CLUSTER + "username = 'me'", "without `password_env`"),
        (CLUSTER + "password_env = 'P'", "without `username`"),
        (CLUSTER + "client_key = 'key.pem'", "without `client_cert`"),
    ],
)
def test_addresses_and_keys_are_whole(tmp_path, text, said):
    error = refused(tmp_path, text)
    assert error.code == "config_invalid"
    assert said in error.message
    assert "pattern" not in error.message


def test_a_value_is_never_repeated(tmp_path):
    """An address may hold a password."""
    error = refused(tmp_path, "[ledger]\nurl = ['postgresql://u:hunter2@h/d']")
    assert "hunter2" not in error.message + error.hint


@pytest.mark.parametrize("text", ['policies = "a\\u0000b"', '[sources."a\\u0000b"]', '[sources.x]\ntext = ["\\u0000"]'])
def test_nul_is_refused(tmp_path, text):
    assert refused(tmp_path, text).code == "config_invalid"


def test_broken_toml_names_the_line(tmp_path):
    error = refused(tmp_path, "[search]\nx =\n")
    assert error.code == "config_invalid"
    assert "line 2" in error.message


def test_text_that_is_no_utf_8(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(b"state = '\xff'")
    with pytest.raises(UsageError) as raised:
        load_settings(path)
    assert raised.value.code == "config_unreadable"


def test_row_labels_keep_other_attributes(tmp_path):
    settings = load(tmp_path, "[sources.t.labels]\ngroups = 'g'\nsensitivity = 's'\nregion = 'r'\n")
    labels = settings.sources["t"].labels
    assert labels is not None
    assert labels.columns() == {"groups": "g", "sensitivity": "s", "region": "r"}


def test_settings_are_frozen(tmp_path):
    settings = load(tmp_path, "")
    with pytest.raises(ValueError, match="frozen"):
        settings.state = Path("x")


# --- which file -------------------------------------------------------------------------------------------------------


def test_nearest_file_above_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv("POINTSMAN_CONFIG", raising=False)
    (tmp_path / FILE_NAME).write_text("")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert find_settings(None) == tmp_path / FILE_NAME
    (tmp_path / "a" / FILE_NAME).write_text("")
    assert find_settings(None) == tmp_path / "a" / FILE_NAME


def test_named_file_goes_before_environment_before_search(tmp_path, monkeypatch):
    for name in ("one.toml", "two.toml", FILE_NAME):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POINTSMAN_CONFIG", str(tmp_path / "two.toml"))
    assert find_settings(tmp_path / "one.toml") == tmp_path / "one.toml"
    assert find_settings(None) == tmp_path / "two.toml"


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_named_file_that_is_missing_is_never_replaced_by_another(tmp_path, monkeypatch, by_environment):
    (tmp_path / FILE_NAME).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POINTSMAN_CONFIG", str(tmp_path / "gone.toml") if by_environment else "")
    with pytest.raises(UsageError) as raised:
        find_settings(None if by_environment else tmp_path / "gone.toml")
    assert raised.value.code == "config_missing"


def test_no_file_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("POINTSMAN_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        Router.open()
    assert raised.value.code == "config_missing"


# --- the document -----------------------------------------------------------------------------------------------------


def models(model=Settings, seen=None):
    seen = {} if seen is None else seen
    seen[model] = None
    for field in model.model_fields.values():
        for choice in (field.annotation, *getattr(field.annotation, "__args__", ())):
            for inner in (choice, *getattr(choice, "__args__", ())):
                if isinstance(inner, type) and issubclass(inner, BaseModel) and inner not in seen:
                    models(inner, seen)
    return list(seen)


def test_every_setting_has_a_description_and_a_row():
    document = settings_markdown()
    assert SourceSettings in models()
    for model in models():
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            if name != "folder":
                assert f"`{name}`" in document or f"[{name}]" in document or f"[{name}.NAME]" in document


def test_document_is_what_the_settings_say():
    """Make it anew with: python -m router.config > deploy/configuration.md"""
    assert (ROOT / "deploy" / "configuration.md").read_text(encoding="utf-8") == settings_markdown()


@pytest.mark.parametrize("place", ["deploy/demo/pointsman.toml", "router/starter/pointsman.toml"])
def test_shipped_files_are_valid(place):
    import tomllib

    text = (ROOT / place).read_text(encoding="utf-8").replace("{documents}", '"documents"')
    assert parse_settings(tomllib.loads(text), ROOT).sources


def test_contexts_say_which_index_answers(tmp_path):
    """Structural contexts unless said otherwise; where both are kept, the one preferred."""
    settings = load(
        tmp_path,
        "[sources.a]\n[sources.b]\ncontexts = 'none'\n[sources.c]\ncontexts = 'both'\n[sources.d]\ncontexts = 'both'\nprefer = 'plain'\n",
    )
    assert {name: source.contexts for name, source in settings.sources.items()} == {
        "a": "structure",
        "b": "none",
        "c": "both",
        "d": "both",
    }
    assert settings.contextual_sources == frozenset("ac")
    assert settings.plain_sources == frozenset("bd")
    assert "contexts" in refused(tmp_path, "[sources.a]\ncontexts = 'claude'\n").message
