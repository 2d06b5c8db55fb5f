"""The version in force: replaced whole when the bytes change, kept when only time stamps do."""

import os

import pytest

from router.errors import PolicyError
from router.policy import LivePolicies, load_policies
from router.policy import live as live_module
from tests import policy_world as world

MORE = '@id("p") @reason("r") @owner("o")\npermit (principal, action == Pointsman::Action::"search", resource) when { resource.active };\n'


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def folder(tmp_path):
    for name, body in world.folder_files().items():
        (tmp_path / name).write_bytes(body)
    return tmp_path


def age(folder, seconds=60):
    """As if the files had last changed a while ago."""
    for path in folder.iterdir():
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - seconds * 10**9))


def test_reload_when_bytes_change(folder):
    clock, loaded = Clock(), []
    live = LivePolicies(folder, clock=clock, on_load=loaded.append)
    first = live.current()
    (folder / "documents.cedar").write_text(MORE)
    assert live.current() is first
    clock.now_s += 1
    second = live.current()
    assert second.version == load_policies(folder).version != first.version
    assert [policies.version for policies in loaded] == [first.version, second.version]


def test_touch_keeps_the_version_and_its_memo(folder):
    clock = Clock()
    live = LivePolicies(folder, clock=clock)
    first = live.current()
    (folder / "documents.cedar").touch()
    clock.now_s += 1
    assert live.current() is first


def test_same_size_and_time_stamp_just_after_loading(folder):
    """Within the grain of time stamps the bytes decide."""
    clock = Clock()
    path = folder / "documents.cedar"
    path.write_text(MORE)
    live = LivePolicies(folder, clock=clock)
    first, stat = live.current(), path.stat()
    path.write_text(MORE.replace("active", "vctiae").replace("vctiae", "active").replace('"p"', '"q"'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    clock.now_s += 1
    assert live.current().version != first.version


def test_nothing_is_read_while_nothing_changes(folder, monkeypatch):
    age(folder)
    clock = Clock()
    live = LivePolicies(folder, clock=clock)
    reads = []
    monkeypatch.setattr("router.policy.live.read_folder", lambda *_: reads.append(1))
    for _ in range(10):
        clock.now_s += 1
        live.current()
        assert live.ready
    assert not reads


def test_new_people_are_known_without_a_new_version(folder):
    clock = Clock()
    live = LivePolicies(folder, clock=clock)
    first = live.current()
    (folder / "people.yaml").write_text("people: { ada: { issuer: corp, sub: ada } }\n")
    clock.now_s += 1
    assert live.current().version == first.version
    assert set(live.current().people) == {"ada"}


def test_folder_that_changes_while_it_is_read_is_left_for_the_next_look(folder, monkeypatch):
    clock = Clock()
    live = LivePolicies(folder, clock=clock)
    first = live.current()
    (folder / "documents.cedar").write_text(MORE)
    from router.policy import live as module

    real = module.read_folder

    def read(path, faults):
        raw = real(path, faults)
        (folder / "sources.yaml").write_text(world.SOURCES_YAML + "# still writing\n")
        return raw

    monkeypatch.setattr(module, "read_folder", read)
    clock.now_s += 1
    assert live.current() is first
    monkeypatch.undo()
    clock.now_s += 1
    assert live.current().version == load_policies(folder).version


def test_a_crash_while_loading_is_not_readiness(folder, monkeypatch):
    clock = Clock()
    live = LivePolicies(folder, grace_s=60, clock=clock)
    (folder / "documents.cedar").write_text(MORE)
    clock.now_s += 1

    def crash(*_):
        raise RuntimeError("a bug in the loader")

    monkeypatch.setattr("router.policy.live.inspect_files", crash)
    with pytest.raises(RuntimeError):
        live.current()
    assert not live.ready


def test_the_latest_waits_for_no_second(folder):
    """Who changes what is shown goes by the folder of this moment, not by a look of up to a second ago."""
    clock = Clock()
    live = LivePolicies(folder, clock=clock)
    first = live.current()
    (folder / "documents.cedar").write_text(MORE)
    assert live.current() is first
    second = live.latest()
    assert second.version == load_policies(folder).version != first.version
    assert live.current() is live.latest() is second


def test_of_a_broken_folder_there_is_no_latest(folder):
    live = LivePolicies(folder, clock=Clock())
    whole = (folder / "documents.cedar").read_bytes()
    (folder / "documents.cedar").write_text("permit (")
    with pytest.raises(PolicyError) as raised:
        live.latest()
    assert raised.value.code == "policy_broken"
    assert not live.ready
    (folder / "documents.cedar").write_bytes(whole)
    assert live.latest().version == load_policies(folder).version


def test_of_a_folder_that_is_being_written_there_is_no_latest(folder, monkeypatch):
    live = LivePolicies(folder, clock=Clock())
    read = live_module.read_folder

    def reading(*args):
        raw = read(*args)
        (folder / "documents.cedar").write_text(MORE + "\n" * len(seen))
        seen.append(1)
        return raw

    seen: list[int] = []
    monkeypatch.setattr(live_module, "read_folder", reading)
    with pytest.raises(PolicyError):
        live.latest()
    monkeypatch.setattr(live_module, "read_folder", read)
    assert live.latest().version == load_policies(folder).version
