"""From a database to a filter on documents: values that a reviewer calls public are found under each name that they go by."""

from __future__ import annotations

import pytest

from router.app import Router
from router.config import load_settings
from router.ingest.watch import Stop
from tests import claims_world
from tests.rows_world import edit
from tests.world import ask_as, ids, run_command

PAGES = {
    "city.md": "# Where lorries wait\n\nLorries wait behind the gate of Graz until noon, with photographs of the load.\n",
    "code.md": "# Keys\n\nThe spare keys of T1-D01 hang in the office, with photographs of the load.\n",
    "other.md": "# Tyres\n\nTyres are changed in Turin in winter; photographs of the load are not needed.\n",
}
QUESTION = "where are photographs of the load"


@pytest.fixture
def config(tmp_path):
    """The city of a depot is its label; that of another tenant is in a page as well."""
    config = claims_world.build_claims_world(tmp_path, documents=True)
    policies = tmp_path / "policies"
    edit(policies, "governance.yaml", "      code: [plain]\n      city: [plain]", "      code: { tags: [plain], values: public }\n"
         "      city: { tags: [plain], values: public }")  # fmt: skip
    edit(policies, "governance.yaml", "    relation: main.depots_v\n", "    relation: main.depots_v\n    label: city\n")
    for name, text in PAGES.items():
        (tmp_path / "guide" / name).write_text(text, encoding="utf-8")
    return config


def found(router, name):
    return sorted(ids(ask_as(router, "analyst-1", QUESTION, filters=(f"entity={name}",), k=9)))


def check(config):
    with Router(load_settings(config)) as router:
        assert found(router, "Graz") == found(router, "graz") == ["guide/city.md", "guide/code.md"]
        assert found(router, "T1-D01") == ["guide/code.md"]
        assert found(router, "Turin") == [], "another tenant's value is no name here"


def test_public_values_are_names_in_documents(config):
    done = run_command("index", "--config", config, cwd=config.parent)
    assert done.returncode == 0, done
    check(config)


def test_the_first_round_of_a_watch_knows_them(config):
    stop = Stop()
    with Router(load_settings(config)) as router:
        for told in router.watch(stop=stop, every_s=0.2):
            assert (told.error, told.failed, told.seen.not_copied) == (None, {}, None)
            stop.ask(15)
    stop.close()
    check(config)
