"""The composition root: parts are built on first use, files belong to their owner, and closing lets everything go."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading

import pytest

import router
from router.app import Router, load_record_key
from router.config import LogSettings, load_settings
from router.errors import PolicyError, Refused, UsageError
from tests import world
from tests.world import NOW, ROOT, ask_as, bytes_of, ids

QUESTION = "what does ERR-4012 on the press mean"


@pytest.fixture
def config(tmp_path):
    return world.build_world(tmp_path / "world")


# --- what is built when -----------------------------------------------------------------------------------------------


def test_public_names_come_from_the_package():
    for name in router.__all__:
        assert getattr(router, name).__name__ == name
    assert router.Router is Router
    with pytest.raises(AttributeError, match="nonsense"):
        _ = router.nonsense


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, router; print([m for m in ('numpy','onnxruntime','sqlalchemy','pydantic','cedarpy','apsw') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_whoami_loads_no_model_and_no_store(config):
    script = f"""
import sys
from router import Router
with Router.open({str(config)!r}) as router:
    print(router.whoami(router.mint("ada")).name)
print([m for m in ("numpy", "onnxruntime", "apsw", "connectors.ledger") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "dev#ada\n[]\n"


def test_parts_are_built_once_for_all_threads(config):
    with Router.open(config) as made:
        lines = []
        threads = [threading.Thread(target=lambda: lines.append(made.line)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(line) for line in lines}) == 1
        assert lines[0].ledger is made.ledger
        assert lines[0].store is made.store


def test_closing_twice_and_asking_again(config):
    made = Router.open(config)
    before = ask_as(made, "ada", QUESTION)
    made.close()
    made.close()
    assert ids(ask_as(made, "ada", QUESTION)) == ids(before), "a later call opens anew"
    made.close()


def test_closing_leaves_no_thread(config):
    before = set(threading.enumerate())
    with Router.open(config) as made:
        ask_as(made, "ada", QUESTION)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_asking_from_a_server(config):
    with Router.open(config) as made:
        token = made.mint("ada")

        async def all_at_once():
            return await asyncio.gather(*(made.ask_async(QUESTION, token=token, now=NOW) for _ in range(4)))

        answers = asyncio.run(all_at_once())
        assert len({answer.decision_id for answer in answers}) == 4
        assert all(bytes_of(answer) == bytes_of(answers[0]) for answer in answers)


def test_broken_policies_open_nothing(config):
    (config.parent / "policies" / "00-never.cedar").write_text("")
    with pytest.raises(PolicyError):
        Router.open(config)


# --- people -----------------------------------------------------------------------------------------------------------


def test_minted_token_is_verified_like_any_other(config):
    with Router.open(config) as made:
        principal = made.whoami(made.mint("hal"))
        assert (principal.tenant, principal.groups, principal.development) == ("north", {"dev:staff", "dev:hr"}, True)
        other = Router.open(world.build_world(config.parent.parent / "other"))
        with other, pytest.raises(Refused):
            (config.parent.parent / "other" / "state" / "keys" / "development.pem").unlink()
            from router.app import make_development_issuer

            make_development_issuer(other.settings)
            other.whoami(made.mint("hal"))


def test_people_from_elsewhere_are_still_bound_by_identity(config):
    """`--people` gives claims, not rights: the issuer may assert only its tenants."""
    with Router.open(config) as made:
        people = {"eve": {"issuer": "dev", "sub": "eve", "tenant": "west", "groups": ["staff"], "clearance": 3}}
        with pytest.raises(Refused) as raised:
            made.whoami(made.mint("eve", people=people))
        assert raised.value.code == "tenant_not_allowed"
        with pytest.raises(UsageError) as raised:
            made.mint("eve")
        assert raised.value.code == "person_unknown"
        with pytest.raises(UsageError) as raised:
            made.mint("eve", people={"eve": {"issuer": "corp"}})
        assert raised.value.code == "issuer_not_development"


# --- sources ----------------------------------------------------------------------------------------------------------


def test_a_source_needs_a_reviewers_and_an_operators_word(config):
    text = config.read_text()
    config.write_text(text + '[sources.more]\npath = "notes"\n')
    with Router.open(config) as made, pytest.raises(UsageError) as raised:
        made.jobs()
    assert raised.value.code == "source_unknown"
    config.write_text(
        text.replace("[sources.notes]", "[sources.handbook.labels]").replace('path = "notes"', 'groups="g"\nsensitivity="s"')
    )
    with Router.open(config) as made, pytest.raises(UsageError) as raised:
        made.jobs()
    assert raised.value.code == "source_unconfigured"


def test_incomplete_source_says_what_it_needs(config):
    config.write_text(config.read_text().replace('path = "notes"', 'title = "t"'))
    with Router.open(config) as made, pytest.raises(UsageError) as raised:
        made.jobs()
    assert raised.value.code == "source_incomplete"
    assert "`path`" in raised.value.message


# --- files ------------------------------------------------------------------------------------------------------------


def test_record_key_is_made_once_and_for_its_owner(tmp_path):
    path = tmp_path / "keys" / "record.key"
    keys = []
    threads = [threading.Thread(target=lambda: keys.append(load_record_key(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path], "nothing is left beside it"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.chmod(0o640), "record_key_open"),
        (lambda path: path.write_bytes(b"short"), "record_key_malformed"),
        (lambda path: (path.unlink(), path.mkdir(mode=0o700)), "record_key_unreadable"),
    ],
)
def test_record_key_that_is_not_right(tmp_path, spoil, code):
    path = tmp_path / "record.key"
    load_record_key(path)
    spoil(path)
    with pytest.raises(UsageError) as raised:
        load_record_key(path)
    assert raised.value.code == code
    assert str(tmp_path) not in raised.value.message


def test_state_that_cannot_be_made(tmp_path):
    config = world.write_world(tmp_path / "world")
    (tmp_path / "file").write_text("")
    settings = load_settings(config).model_copy(update={"state": tmp_path / "file" / "state"})
    with pytest.raises((UsageError, PolicyError)) as raised:
        Router(settings)
    assert str(tmp_path) not in raised.value.message


def test_log_goes_where_it_is_told(config, capfd):
    settings = load_settings(config)
    with Router(settings.model_copy(update={"log": LogSettings(path="-")})) as made:
        answer = ask_as(made, "ada", QUESTION)
    assert answer.decision_id in capfd.readouterr().err
    with Router(settings.model_copy(update={"log": LogSettings(path="own.jsonl")})) as made:
        answer = ask_as(made, "ada", QUESTION)
    own = config.parent / "own.jsonl"
    assert answer.decision_id in own.read_text()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    broken = settings.model_copy(update={"log": LogSettings(path="own.jsonl/below")})
    with Router(broken) as made, pytest.raises(UsageError) as raised:
        ask_as(made, "ada", QUESTION)
    assert raised.value.code == "log_unwritable"


def test_ledger_file_of_ones_own_choice(config):
    config.write_text('[ledger]\nurl = "records/l.db"\n' + config.read_text())
    with Router.open(config) as made:
        ask_as(made, "ada", QUESTION)
    assert (config.parent / "records" / "l.db").is_file()
    assert os.stat(config.parent / "records" / "l.db").st_mode & 0o077 == 0
