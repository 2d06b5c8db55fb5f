"""A new generation against the shown one, through the whole line, as people of people.yaml; and the commands around generations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.app import Router
from router.comparison import compare_generations, line_for, load_saved_questions, tenants_of
from router.doors.cli import _run
from router.doors.cli.generations import print_compared
from router.errors import SourceError, UsageError
from router.ingest import repair
from router.memo import Memo
from tests.world import ask_as, build_world, ids, write_page

PRESS = {"question": "What is the pressure of the press in bar?", "person": "ada", "expected": ["handbook/staff/press.md"]}
PAY_HAL = {"question": "What is paid for running the press at night?", "person": "hal", "expected": {"handbook/hr/pay.md": 2}}
PAY_ADA = {**PAY_HAL, "person": "ada"}
OPEN = {"question": "What does a yellow sign mean?", "person": "ada"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_world(tmp_path / "world").parent


@pytest.fixture
def router(folder: Path) -> Iterator[Router]:
    with Router.open(folder / "pointsman.toml") as opened:
        yield opened


def save(folder: Path, *questions: Any) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in questions))
    return path


def run(folder: Path, *args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    try:
        code = _run(["index", *args, "--json", "--config", str(folder / "pointsman.toml")])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out = capsys.readouterr().out
    return code, json.loads(out) if out.strip() else {}


def kinds(router: Router, kind: str) -> list[dict[str, Any]]:
    return [json.loads(record.body) for _, record in router.ledger.read("north") if record.kind == kind]


def test_asked_as_the_person(folder: Path, router: Router) -> None:
    """Who may not see the page on pay finds it in no generation, though it answers the question best."""
    report = router.index(full=True, compare=save(folder, PAY_ADA))
    assert [(one.recall_at_20, one.accepted) for one in report.compared] == [((0.0, 0.0), True)] * 2
    report = router.index(full=True, compare=save(folder, PAY_HAL, OPEN))
    assert [(one.questions, one.judged, one.recall_at_20, one.overlap_at_10) for one in report.compared if one.questions] == [
        (2, 1, (100.0, 100.0), 100.0)
    ]
    assert [(body["accepted"], body["figures"]["recall_at_20_new"]) for body in kinds(router, "generations_compared")] == [
        (True, 0),
        (True, 100_000),
    ]


def test_a_worse_one_is_kept_aside(folder: Path, router: Router, capsys: pytest.CaptureFixture[str]) -> None:
    """Not shown, on record, exit code 1; it can be gone to all the same."""
    old = router.store.generation("north")
    write_page(folder, "handbook/staff/press.md", "# Lunch\n\nThe canteen opens at noon.")
    save(folder, PRESS)
    code, out = run(folder, "--full", "--compare", str(folder / "questions.jsonl"), capsys=capsys)
    assert code == 1
    (one,) = (item for item in out["compared"] if item["tenant"] == "north")
    assert (one["accepted"], one["old"], one["worse"]) == (False, old, 1)
    assert router.store.generation("north") == old
    assert {body["cause"] for body in kinds(router, "generation")} == {"kept_aside"}
    code, out = run(folder, "status", capsys=capsys)
    assert [(item["name"], item["role"]) for item in out["generations"] if item["tenant"] == "north"][-1] == (
        one["new"],
        "newer, not shown",
    )
    code, out = run(folder, "rollback", "--tenant", "north", "--to", one["new"], capsys=capsys)
    assert (code, out["now"], out["before"]) == (0, one["new"], old)
    code, out = run(folder, "rollback", "--tenant", "north", capsys=capsys)
    assert (code, out["now"]) == (0, old)
    assert [body["cause"] for body in kinds(router, "generation")][-2:] == ["rolled_back", "rolled_back"]
    code, out = run(folder, "verify", "--repair", capsys=capsys)
    assert (code, out["ok"]) == (0, True)


def test_how_much_worse_it_may_be_is_configured(folder: Path) -> None:
    config = folder / "pointsman.toml"
    config.write_text('[index]\ncompare = "questions.jsonl"\ncompare_points = 100\n' + config.read_text())
    save(folder, PRESS)
    write_page(folder, "handbook/staff/press.md", "# Lunch\n\nThe canteen opens at noon.")
    with Router.open(config) as router:
        before = router.store.generation("north")
        report = router.index(full=True)
        assert [(one.tenant, one.accepted) for one in report.compared if one.judged] == [("north", True)]
        assert router.store.generation("north") != before


def test_half_a_search_is_no_comparison(folder: Path, router: Router) -> None:
    class Broken:
        card = router.embedder.card
        count_tokens = staticmethod(router.embedder.count_tokens)

        def embed_question(self, *_: Any) -> Any:
            raise RuntimeError("out of memory")

    policies = router.policies.current()
    questions = tenants_of(load_saved_questions(save(folder, PRESS), policies), policies)["north"]
    line = line_for(router.line, None, local=router.embedder.card)
    name = router.store.generation("north")
    assert name is not None
    with router.store.pinned("north", name) as view, pytest.raises(SourceError, match="compare_incomplete"):
        compare_generations(
            (line, replace(line, embedder=Broken(), vocabularies=Memo())),  # type: ignore[arg-type]
            (view, view),
            questions,
            tenant="north",
            names=(name, name),
            allowed_points=1.0,
            record=lambda *_: None,
            run_id="c-1",
        )


def test_another_model_that_is_gone_cannot_be_compared(router: Router) -> None:
    with pytest.raises(UsageError, match="compare_impossible"):
        line_for(router.line, "somebody/else@1", local=router.embedder.card)


@pytest.mark.parametrize(
    "line",
    [
        '{"question": "x"}',
        '{"question": "", "person": "ada"}',
        '{"question": "x", "person": "ada", "expected": "handbook/a.md"}',
        '{"question": "x", "person": "ada", "expected": {"a": 0}}',
        '{"question": "x", "person": "ada", "expects": []}',
        "[]",
        "nonsense",
    ],
)
def test_questions_that_are_not_understood(folder: Path, router: Router, line: str) -> None:
    path = folder / "questions.jsonl"
    path.write_text(line + "\n")
    before = router.store.generation("north")
    with pytest.raises(UsageError, match="questions_malformed"):
        router.index(full=True, compare=path)
    assert router.store.generation("north") == before


def test_what_is_refused_before_anything_is_built(folder: Path, router: Router) -> None:
    with pytest.raises(UsageError, match="person_unknown"):
        router.index(full=True, compare=save(folder, {**PRESS, "person": "nobody"}))
    with pytest.raises(UsageError, match="questions_missing"):
        router.index(full=True, compare=folder / "none.jsonl")
    with pytest.raises(UsageError, match="questions_missing"):
        router.index(full=True, compare=save(folder))
    with pytest.raises(UsageError, match="compare_without_full"):
        router.index(compare=save(folder, PRESS))
    for option in ("dry_run", "estimate"):
        with pytest.raises(UsageError, match="compare_without_full") as refused:
            router.index(full=True, compare=save(folder, PRESS), **{option: True})  # type: ignore[arg-type]
        assert refused.value.hint == f"leave --{option.replace('_', '-')} out"
    with pytest.raises(UsageError, match="tenant_needed"):
        router.index_rollback()
    with pytest.raises(UsageError, match="tenant_unknown"):
        router.index_rollback("west")
    assert all(len(several) == 1 for tenant, several in router.generations().items())


def test_a_tenant_that_nobody_asks_for_is_told(folder: Path, router: Router, capsys: pytest.CaptureFixture[str]) -> None:
    report = router.index(full=True, compare=save(folder, PRESS))
    assert {one.tenant: one.questions for one in report.compared} == {"north": 1, "south": 0}
    print_compared(report.compared)
    assert "south: no question is asked by one of its people" in " ".join(capsys.readouterr().out.split())


def test_nothing_is_copied_before_a_refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = folder / "pointsman.toml"
    (folder / "stock.csv").write_text("part,pieces\nPN-1,3\n")
    config.write_text(config.read_text() + '[tables.stock]\npath = "stock.csv"\n')
    code, out = run(folder, "--compare", str(save(folder, PRESS)), capsys=capsys)
    assert (code, out["error"]["code"]) == (2, "compare_without_full")
    with Router.open(config) as opened:
        assert opened.snapshots.current() is None


# --- commands of maintenance and the policy folder of the moment -------------------------------------------------------


def restrict(folder: Path) -> None:
    """One page for the board only."""
    place = folder / "handbook" / "labels.yaml"
    place.write_text(place.read_text() + '  - { match: "staff/oil.md", groups: ["dev:board"], sensitivity: restricted }\n')


def sees_oil(folder: Path) -> bool:
    with Router.open(folder / "pointsman.toml") as opened:
        return "handbook/staff/oil.md" in ids(ask_as(opened, "ada", "oil of the press", k=50))


def test_a_repair_goes_by_the_sources_of_the_moment(folder: Path, router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it looks, a reviewer narrows the source and another run applies that: it is not taken back."""
    verify, narrowed = repair.verify_index, []

    def meanwhile(*given: Any) -> Any:
        found = verify(*given)
        if not narrowed:
            narrowed.append(True)
            place = folder / "policies" / "sources.yaml"
            place.write_text(
                place.read_text().replace('"dev:staff", "dev:hr", "dev:board"], least: public', '"dev:board"], least: public')
            )
            with Router.open(folder / "pointsman.toml") as other:
                assert other.index(["handbook"]).sources[0].changed
        return found

    assert sees_oil(folder)
    monkeypatch.setattr(repair, "verify_index", meanwhile)
    assert router.index_repair().left == ()
    assert not sees_oil(folder)


@pytest.mark.parametrize("how", ["withdrawn", "unopenable", "moved"])
def test_one_source_stops_no_other(folder: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A source that a reviewer withdrew, or that cannot be opened: restrictions of all others land, and it is told."""
    config, sources = folder / "pointsman.toml", folder / "policies" / "sources.yaml"
    run(folder, "--full", capsys=capsys)
    restrict(folder)
    if how == "withdrawn":
        sources.write_text("".join(line for line in sources.read_text().splitlines(True) if "notes:" not in line))
    else:
        config.write_text(config.read_text().replace('[sources.notes]\npath = "notes"\n', ""))
    if how == "moved":
        sources.write_text(sources.read_text().replace("notes: { tenant: north", "notes: { tenant: south"))
    for command in (["verify"], ["verify", "--repair"]):
        code, out = run(folder, *command, capsys=capsys)
        assert code == 1
        assert "notes" in {one["source"] for one in out["findings"] if one["kind"] == "source_failed"}
    assert not sees_oil(folder)
    code, out = run(folder, capsys=capsys)
    assert code == 2
    assert [one["source"] for one in out["sources"] if one["error"]] == ["notes"]
    with Router.open(config) as opened:
        held = {info.source for info in opened.store.documents("north")}
    assert held == ({"handbook", "notes"} if how == "unopenable" else {"handbook"})
    code, out = run(folder, "rollback", "--tenant", "north", capsys=capsys)
    assert code == (2 if how == "unopenable" else 0)
    assert not sees_oil(folder)
    assert run(folder, "handbook", capsys=capsys)[0] == 0
