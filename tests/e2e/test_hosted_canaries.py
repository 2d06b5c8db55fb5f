"""Every byte that fake providers ever got, searched for canaries: one of each class in every page, over indexing, asking and reranking.

Whatever the permits say, no canary of a class that they do not cover may be among the bytes; nor anything that its reader may not see.
"""

from __future__ import annotations

import re

import pytest

from router import attempts
from tests import cohere_server
from tests import hosted_world as hosted
from tests.hosted_world import EMBED, KEY, RERANK, SECRET, body_of, index_records, opened
from tests.world import NOW, PAGES

CLASSES = {
    "all": 0, "staff": 1, "since": 1, "later": 1, "monday.md": 1, "tuesday.md": 1, "press.md": 1, "oil.md": 1,
    "hr": 2, "board": 3, "hidden": 3,
}  # fmt: skip
READERS = ("ada", "hal", "max", "low", "bob", "nil", "sue")
QUESTIONS = (
    "what does ERR-4012 on the press mean",
    "the accident at the press and the guard",
    "who is paid for the night",
    "when is the press hall sold, and the oil filter?",
    "PN-88213",
)
STRATEGIES = (None, "widened", "decomposed", "feedback", "acronyms")
CANARY = re.compile(rb"CANARY-(\d)-(\w+)")


def class_of(place: str) -> int:
    return CLASSES[place.split("/")[1]]


def canary(place: str) -> str:
    return f"CANARY-{class_of(place)}-{re.sub(r'[^a-z]', 'x', place)}"


@pytest.fixture(scope="module")
def server():
    yield from cohere_server.serve()


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.1)


def permitted(most: int | None) -> str:
    return "// nothing leaves\n" if most is None else (EMBED + RERANK).replace("<= 1", f"<= {most}")


@pytest.mark.parametrize(("most", "open_"), [(None, set()), (0, {0}), (1, {0, 1}), (2, {0, 1})])
def test_no_byte_of_a_forbidden_class_leaves(tmp_path, server, most, open_):
    """`00-never.cedar` forbids what is confidential, whatever a permit says; `open_` are the classes that are left."""
    pages = {place: f"{text}\n\nThe word of the press is {canary(place)}." for place, text in PAGES.items()}
    config = hosted.write_hosted(
        tmp_path / "world", server.url, embedder="cohere", rerank_by="cohere", permits=permitted(most), pages=pages
    )
    server.says()
    with opened(config) as router:
        report = router.index()
        assert not any(source.failures or source.error for source in report.sources)
        indexed = heard_classes(server)
        assert len(index_records(router)) == len(server.received)
        for person in READERS:
            allowed = set()
            for question in QUESTIONS:
                for strategy in STRATEGIES if person in ("ada", "max") else STRATEGIES[:1]:
                    server.says()
                    answer = router.ask(question, token=router.mint(person), now=NOW, k=20, strategy=strategy, route="documents")
                    record = body_of(router, answer)
                    assert sum(one["bytes"] for one in record["egress"]) == sum(len(one.raw) for one in server.received)
                    assert len(record["egress"]) == len(server.received)
                    assert heard_classes(server) <= open_
                    allowed |= {canary(document.split("#")[0]) for document in reach(router, person)}
                    assert {match.decode() for match in heard(server)} <= allowed
    assert indexed == open_  # what may go did go


def heard(server) -> set[bytes]:
    return {match.group() for match in CANARY.finditer(server.heard)}


def heard_classes(server) -> set[int]:
    return {int(match.group(1)) for match in CANARY.finditer(server.heard)}


def reach(router, person: str) -> list[str]:
    """Ids of the documents that a person may see, by the store and the policies alone."""
    from router.filters import Never
    from router.plan import build

    policies = router.policies.current()
    principal = router.whoami(router.mint(person))
    grants = policies.grants(principal, NOW)
    steps = build(grants, policies.document_type, legs=("lexical",), candidates=50, rerank=50)
    return [] if isinstance(steps.searched, Never) else router.store.admitted(principal.tenant, steps.searched)
