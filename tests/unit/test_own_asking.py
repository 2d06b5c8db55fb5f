"""Models of one's own in the line: indexed and asked through the command, mixed models refused, and bad days said aloud."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time

import pytest

from connectors.local_models import own
from router.app import Router
from router.ask import ask
from router.config import load_settings, parse_settings
from router.domain import Degraded, Purpose, Question
from router.errors import SourceError, UsageError
from tests import own_world
from tests.world import NOW, ask_as, build_world, bytes_of, ids, run_command, write_page, write_world

PRESS = "what does ERR-4012 on the press mean"
PURPOSE = Purpose("tests", "rerank", frozenset({1}), "d")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Indexed by a model of its own, as an operator would do it."""
    made = write_world(tmp_path_factory.mktemp("own") / "world")
    own_world.name_models(made)
    done = run_command("index", "--json", cwd=made.parent)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def router(config):
    with Router(load_settings(config)) as made:
        yield made


def put(router, *, person="ada", text=PRESS, deadline_s=10.0, **changes):
    """One question to a line of which something was replaced."""
    line = dataclasses.replace(router.line, **changes)
    return ask(line, router.mint(person), Question(text, NOW, 5, deadline_s, as_of=True, route="documents"))


def said(answer):
    return [entry for entry in answer.degraded if entry.stage != "now"]


class Broken:
    """A model whose named call is another."""

    def __init__(self, model, **calls):
        self._model, self._calls = model, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._model, name)


# --- a good day -------------------------------------------------------------------------------------------------------


def test_the_command_indexes_and_asks_with_ones_own_models(config):
    done = run_command("ask", PRESS, "--as", "ada", "--json", cwd=config.parent)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["passages"][0]["document_id"] == "handbook/staff/press.md"
    assert not [entry for entry in body["degraded"] if entry["stage"] in ("embed", "rerank")]
    assert {"embed_own", "rerank_own"} <= {stage["name"] for stage in body["stages"]}
    shown = json.loads(run_command("log", "show", body["decision_id"], "--json", cwd=config.parent).stdout)
    text = json.dumps(shown)
    assert "own/bi_encoder@" in text
    assert "own/cross_encoder@" in text


def test_the_index_is_of_the_own_model(router):
    assert router.index_card == router.own_embedder.card != router.embedder.card
    assert router.index_status().sources[0].models == (router.own_embedder.card.id,)
    answer = ask_as(router, "ada", PRESS)
    assert {"dense", "lexical"} <= {leg for passage in answer.passages for leg in passage.why}
    assert said(answer) == []
    dense = put(router, search=router.line.search.model_copy(update={"legs": "dense"}), own_reranker=None)
    assert ids(dense)[0] in ("handbook/staff/press.md", "notes/monday.md"), "near by the model's own measure"


def test_the_judge_reorders_the_head_alone(router):
    judge, bare = router.line.own_reranker, put(router, own_reranker=None)
    for passages in (2, 3, 50):
        found = put(router, own_reranker=dataclasses.replace(judge, passages=passages))
        head = bare.passages[:passages]
        scores = judge.model.rerank(PRESS, [f"{one.title}\n{one.text}" for one in head], PURPOSE, deadline_s=5)
        best = [head[at].document_id for at in sorted(range(len(head)), key=lambda at: -scores[at])]
        if passages <= len(bare.passages):
            assert ids(found)[:passages] == best
            assert ids(found)[passages:] == ids(bare)[passages:]
        stage = next(stage for stage in found.stages if stage.name == "rerank_own")
        assert stage.count_out is not None
        assert stage.count_out <= passages


def test_what_a_person_may_not_see_reaches_no_model(router):
    heard = []

    def rerank(question, texts, purpose, *, deadline_s):
        heard.extend(texts)
        return [0.0] * len(texts)

    answer = put(
        router, person="low", own_reranker=dataclasses.replace(router.line.own_reranker, model=Broken(None, rerank=rerank))
    )
    assert said(answer) == []
    assert heard
    assert not [text for text in heard if "40 bar" in text or "supplement" in text]


def test_routes_and_tables_still_read_the_shipped_model(config, router, tmp_path):
    """Their weights were fitted to it: the same scores with either index."""
    with Router(load_settings(build_world(tmp_path / "shipped"))) as shipped:
        for question in (PRESS, "how many presses are there", "hello"):
            theirs, ours = (one.ask(question, token=one.mint("ada"), now=NOW).route.scores for one in (shipped, router))
            assert theirs == ours


# --- mixed models -----------------------------------------------------------------------------------------------------


def test_an_index_of_another_model_is_refused_and_rebuilt(tmp_path):
    config = build_world(tmp_path / "world")
    own_world.name_models(config, reranker=False)
    with Router(load_settings(config)) as router:
        with pytest.raises(UsageError) as refused:
            router.index()
        assert refused.value.code == "model_changed"
        with pytest.raises(SourceError) as raised:
            ask_as(router, "ada", PRESS)
        assert raised.value.code == "model_mismatch"
        router.index(full=True)
        answer = ask_as(router, "ada", PRESS)
        assert said(answer) == []
        assert any("dense" in one.why for one in answer.passages)


# --- files that are not the declared ones -----------------------------------------------------------------------------


def test_doctor_prints_what_is_to_be_declared(tmp_path, capsys):
    from router.doors.cli.setup import run_doctor

    def check(config, name):
        with pytest.raises(SystemExit):  # nothing is indexed here, which is a fault of another line
            run_doctor(as_json=True, config=config)
        return next(one for one in json.loads(capsys.readouterr().out)["checks"] if one["name"] == name)

    config = write_world(tmp_path / "world")
    (config.parent / "handbook" / "labels.yaml").unlink()
    (config.parent / "policies" / "sources.yaml").write_text("sources: {}\n")
    assert check(config, "own models")["message"] == "none configured"
    own_world.name_models(config, declared=False)
    with Router(load_settings(config)) as router, pytest.raises(SourceError, match="no `sha256` is declared"):
        ask_as(router, "ada", PRESS)
    for kind in ("bi_encoder", "cross_encoder"):
        found, digest = check(config, "own models"), own_world.digest_of(config.parent / "models" / kind)
        assert (found["level"], digest in found["message"], digest in found["hint"]) == ("fault", True, True)
        path = f'path = "models/{kind}"\n'
        config.write_text(config.read_text().replace(path, f'{path}sha256 = "{digest}"\n'))
    assert check(config, "own models")["level"] == "ok"
    model = config.parent / "models" / "cross_encoder" / "model.onnx"
    model.write_bytes(model.read_bytes()[:-4] + b"\1\1\1\1")
    found = check(config, "own models")
    assert found["level"] == "fault"
    assert "`[models.cross_encoder]` declares another `sha256`" in found["message"]


def test_an_altered_model_answers_nothing_and_readiness_is_red(config, tmp_path):
    shutil.copytree(config.parent, tmp_path / "world")
    (tmp_path / "world" / "models" / "bi_encoder" / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n")
    with Router(load_settings(tmp_path / "world" / "pointsman.toml")) as router:
        assert router.readiness()["model"] == "model_files"
        for run in (lambda: ask_as(router, "ada", PRESS), router.index):
            with pytest.raises(SourceError) as raised:
                run()
            assert raised.value.code == "model_files"
            assert str(tmp_path) not in f"{raised.value} {raised.value.hint}"


def test_no_door_opens_on_an_altered_model(config, tmp_path):
    shutil.copytree(config.parent, tmp_path / "world")
    (tmp_path / "world" / "models" / "cross_encoder" / "model.onnx").write_bytes(b"another")
    done = run_command("serve", "--port", "0", "--json", cwd=tmp_path / "world")
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["code"] == "model_files"


def test_what_is_used_must_be_configured(tmp_path):
    for raw, missing in (
        ({"models": {"embedder": "bi_encoder"}}, "[models.bi_encoder]"),
        ({"search": {"rerank_by": "cross_encoder"}}, "[models.cross_encoder]"),
    ):
        with pytest.raises(UsageError) as raised:
            parse_settings(raw, tmp_path)
        assert (raised.value.code, missing in raised.value.message) == ("model_missing", True)
    for wrong in ("../model.onnx", "/etc/passwd", "a/../../b", ""):
        with pytest.raises(UsageError, match=r"models\.bi_encoder\.file"):
            parse_settings({"models": {"bi_encoder": {"path": "m", "file": wrong}}}, tmp_path)


def test_a_model_that_is_named_and_not_used_is_not_opened(config, tmp_path):
    text = 'models.bi_encoder]\npath = "nowhere"\n'
    path = build_world(tmp_path / "world")
    path.write_text(f"{path.read_text()}\n[{text}")
    with Router(load_settings(path)) as router:
        assert said(ask_as(router, "ada", PRESS)) == []


# --- bad days ---------------------------------------------------------------------------------------------------------


def raising(error):
    def call(*_, **__):
        raise error

    return call


def hanging(*_, **__):
    time.sleep(1.5)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (raising(SourceError("model_output", "no number")), "model_output"),
        (raising(MemoryError()), "MemoryError"),
        (hanging, "deadline"),
    ],
    ids=["not finite", "memory", "hangs"],
)
def test_bad_days_of_the_embedder(router, call, code):
    """Only words are searched then, and no token vector of the shipped model meets those of the index."""
    model = router.line.own_embedder
    answer = put(router, deadline_s=2.0, own_embedder=Broken(model, embed_question=call), own_reranker=None)
    assert said(answer) == [Degraded("embed", f"{code}: only the lexical leg was searched")]
    assert {leg for passage in answer.passages for leg in passage.why} == {"lexical"}
    assert ids(answer)[0] == "handbook/staff/press.md"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (raising(SourceError("model_failed", "the model failed")), "model_failed"),
        (lambda _, texts, *__, **___: [float("nan")] * len(texts), "model_output"),
        (lambda *_, **__: [1.0], "model_output"),
        (raising(RuntimeError("of the runtime")), "RuntimeError"),
        (hanging, "deadline"),
    ],
    ids=["fails", "not finite", "too few", "unknown", "hangs"],
)
def test_bad_days_of_the_judge(router, call, code):
    bare, judge = put(router, own_reranker=None), router.line.own_reranker
    answer = put(router, deadline_s=2.5, own_reranker=dataclasses.replace(judge, model=Broken(judge.model, rerank=call)))
    assert said(answer) == [Degraded("rerank", f"{code}: ranked without the model of your own")]
    assert ids(answer) == ids(bare)


def test_a_judge_that_is_slow_by_itself_is_stopped(router):
    """It scores one passage after the other and gives up at its share; the order that there was stands."""
    judge = router.line.own_reranker

    class Slow(own.CrossEncoder):
        def __init__(self):
            self._model = judge.model

        def _score(self, question, text, deadline_s):
            time.sleep(0.3)
            return 1.0

    answer = put(router, deadline_s=2.5, own_reranker=dataclasses.replace(judge, model=Slow()))
    assert said(answer) == [Degraded("rerank", "deadline: ranked without the model of your own")]
    assert ids(answer) == ids(put(router, own_reranker=None))


def test_no_time_left_for_the_judge_is_said(router):
    answer = put(router, rerank_share=1.0)
    assert {entry.stage for entry in said(answer)} == {"rerank"}
    assert "no time left: ranked without the model of your own" in {entry.reason for entry in said(answer)} or answer.passages


def test_a_document_that_the_model_fails_on_is_reported_and_the_rest_indexed(tmp_path):
    import numpy as np

    from tests import onnx_file

    config = write_world(tmp_path / "world")
    table = own_world.scattered(own_world.PIECES, 64)
    table[own_world.SHIPPED_VOCABULARY.split("\n").index("autumn")] = np.nan
    folder = own_world.write_folder(
        config.parent / "m", onnx_file.bi_encoder(table), own_world.LIMITS, own_world.SHIPPED_VOCABULARY
    )
    config.write_text(
        f'{config.read_text()}\n[models]\nembedder = "bi_encoder"\n[models.bi_encoder]\npath = "m"\n'
        f'sha256 = "{own_world.digest_of(folder)}"\n'
    )
    write_page(config.parent, "handbook/staff/long.md", "# Long\n\n" + "the press runs and runs " * 2_000)
    with Router(load_settings(config)) as router:
        report = router.index()
        failed = {failure.key: failure.reason for source in report.sources for failure in source.failures}
        assert failed == {"board/sale.md": "model_output"}
        assert said(ask_as(router, "ada", PRESS)) == []
        assert bytes_of(ask_as(router, "ada", PRESS)) == bytes_of(ask_as(router, "ada", PRESS))
