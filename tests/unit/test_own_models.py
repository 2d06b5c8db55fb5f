"""Models of one's own: only the declared files are opened, what they say is what is done, and what is wrong is refused at the start."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import time

import numpy as np
import pytest

from connectors.local_models import Choices, files, load_bi_encoder, load_cross_encoder, own, read_files
from connectors.local_models.tokens import build_basis
from router.domain import Purpose
from router.errors import SourceError, UsageError
from tests import onnx_file
from tests.ingest_world import RULES, World
from tests.own_world import (
    VOCABULARY,
    WORDS,
    axes,
    digest_of,
    write_bi_encoder,
    write_cross_encoder,
    write_folder,
    write_foreign_tokenizer,
)

PURPOSE = Purpose("tests", "embed_question", frozenset({1}), "d")


def opened(folder, **choices):
    return load_bi_encoder(folder, sha256=digest_of(folder), choices=Choices(**choices))


def judge(folder, max_tokens=None):
    return load_cross_encoder(folder, sha256=digest_of(folder), max_tokens=max_tokens)


def vector(model, text, *, passage=False):
    made = model.embed_chunks([text], PURPOSE)[0] if passage else model.embed_question(text, PURPOSE)
    return np.frombuffer(made.vector, "<f4")


def pieces_of(made):
    return [VOCABULARY[at] for at in np.frombuffer(made.token_ids, "<u2")]


# --- what a folder says is what is done -------------------------------------------------------------------------------


def test_mean_is_the_mean_and_cls_is_the_first(tmp_path):
    mean = opened(write_bi_encoder(tmp_path / "mean"))
    wanted = np.zeros(64, np.float32)
    for word in ("pump", "reset"):
        wanted[VOCABULARY.index(word) % 64] += 1
    assert np.allclose(vector(mean, "pump RESET"), wanted / np.linalg.norm(wanted), atol=1e-6)
    table = axes(64, special=1.0)
    folder = write_folder(
        tmp_path / "cls", onnx_file.bi_encoder(table), {"1_Pooling/config.json": {"pooling_mode_cls_token": True}}
    )
    assert np.argmax(vector(opened(folder), "pump reset valve")) == 0
    assert np.argmax(vector(opened(folder, pooling="mean"), "pump pump pump pump pump")) == VOCABULARY.index("pump") % 64


def test_near_is_nearer_than_far(tmp_path):
    model = opened(write_bi_encoder(tmp_path / "m"))
    asked = vector(model, "reset the pump controller")
    assert asked @ vector(model, "controller of a pump") > asked @ vector(model, "holiday of staff")


def test_prefixes_are_declared_or_read_and_leave_room(tmp_path):
    said = {"config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": "passage: "}}}
    folder = write_bi_encoder(tmp_path / "m", **said)
    model, bare = opened(folder), opened(folder, question_prefix="", passage_prefix="")
    assert vector(model, "pump")[VOCABULARY.index("query") % 64] > 0.4
    assert vector(model, "pump", passage=True)[VOCABULARY.index("passage") % 64] > 0.4
    assert np.argmax(vector(bare, "pump")) == VOCABULARY.index("pump") % 64
    assert (bare.card.max_tokens, model.card.max_tokens) == (128, 126)
    assert pieces_of(model.embed_question("reset pump", PURPOSE)) == ["reset", "pump"], "a prefix is no word of the question"


def test_limits_are_the_least_that_is_said(tmp_path):
    limits = [
        ({}, 128),
        ({"sentence_bert_config.json": {"max_seq_length": 64}}, 64),
        ({"tokenizer_config.json": {"model_max_length": 100}}, 100),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 128),
        ({"config.json": {"model_type": "roberta", "max_position_embeddings": 130}}, 128),
        ({"config.json": {}}, 512),
    ]
    for at, (said, limit) in enumerate(limits):
        assert opened(write_bi_encoder(tmp_path / str(at), **said)).card.max_tokens == limit, said
    assert opened(tmp_path / "0", max_tokens=40).card.max_tokens == 40
    for wrong in (129, 31):
        with pytest.raises(SourceError, match="cannot read"):
            opened(tmp_path / "0", max_tokens=wrong)


def test_long_text_is_cut_at_the_limit(tmp_path):
    """One more token than the limit would be refused by a model with that many places; both tokenizers count the special ones."""
    folder = write_bi_encoder(tmp_path / "m")
    foreign = write_bi_encoder(tmp_path / "foreign")
    write_foreign_tokenizer(foreign)
    for model in (opened(folder), opened(foreign)):
        assert model.count_tokens("pump " * 1_000) == 1_000
        assert len(model._pieces.encode("pump " * 1_000, 128)) == 128
        ids, types = model._pieces.encode_pair("reset " * 1_000, "pump " * 1_000, 128)
        assert len(ids) == len(types) <= 128
        assert types.count(1) >= 40
        assert len(model.embed_question("pump " * 50_000, PURPOSE).vector) == 4 * 64


def test_cased_words_and_accents_are_kept_where_the_folder_says_so(tmp_path):
    cased = opened(write_bi_encoder(tmp_path / "cased", **{"tokenizer_config.json": {"do_lower_case": False}}))
    uncased = opened(write_bi_encoder(tmp_path / "uncased"))
    assert pieces_of(cased.embed_question("Pump é pump", PURPOSE)) == ["Pump", "é", "pump"]
    assert pieces_of(uncased.embed_question("Pump é pump", PURPOSE)) == ["pump", "pump"]


@pytest.mark.parametrize(
    ("said", "vocabulary", "lowered"),
    [
        ({"normalizer": {"type": "BertNormalizer", "lowercase": False}}, None, False),
        ({"normalizer": {"type": "BertNormalizer", "lowercase": True}}, None, True),
        ({"normalizer": {"type": "NFC"}}, None, False),
        (None, None, False),
        (None, "\n".join(word for word in VOCABULARY if word != "Pump"), True),
    ],
)
def test_case_is_read_and_not_guessed(tmp_path, said, vocabulary, lowered):
    """Where tokenizer_config.json does not speak of it, tokenizer.json does, or else the capitals of the vocabulary."""
    files = {"tokenizer_config.json": None, "tokenizer.json": said}
    model = opened(write_folder(tmp_path / "m", onnx_file.bi_encoder(axes(64)), files, vocabulary))
    one, other = (model.embed_question(text, PURPOSE).vector for text in ("Pump valve", "pump valve"))
    assert (one == other) is lowered


def test_text_of_unknown_words_is_said_to_have_no_vector(tmp_path):
    """Nothing is kept from anybody there: the model knows none of its words."""
    world = World(tmp_path / "world")
    world.write("labels.yaml", RULES)
    world.write("a.md", "zzz qqq xxy\n")
    world.write("b.md", "the pump\n")
    report = world.index(models=opened(write_bi_encoder(tmp_path / "m")))
    assert [(note.key, note.reason) for note in report.notes] == [("a.md", "no_vector")]


def test_the_declared_longest_text_is_tried(tmp_path):
    """A model that bears 600 tokens is refused where 4,096 are declared, when it is opened and not in the middle of an index."""
    table, positions = axes(64), np.zeros((600, 64), np.float32)
    made = onnx_file.model(
        [
            onnx_file.node("CumSum", ["attention_mask", "axis"], "place"),
            onnx_file.node("Gather", ["positions", "place"], "placed", axis=0),
            onnx_file.node("Gather", ["table", "input_ids"], "meant", axis=0),
            onnx_file.node("Add", ["placed", "meant"], "last_hidden_state"),
        ],
        [
            onnx_file.tensor("table", table),
            onnx_file.tensor("positions", positions),
            onnx_file.tensor("axis", np.array([1])),
        ],
        onnx_file._ids(["input_ids", "attention_mask"]),
        [onnx_file.value("last_hidden_state", onnx_file.FLOAT, ["batch", "tokens", 64])],
    )
    folder = write_folder(tmp_path / "m", made, {"config.json": None})
    with pytest.raises(SourceError, match="model_failed"):
        opened(folder, max_tokens=4096)
    assert opened(folder, max_tokens=500).card.max_tokens == 500


def test_identifiers_are_taken_apart_where_that_is_chosen(tmp_path):
    folder = write_bi_encoder(tmp_path / "m")
    assert pieces_of(opened(folder, identifiers="apart").embed_question("resetPump", PURPOSE)) == ["reset", "pump"]
    assert pieces_of(opened(folder).embed_question("resetPump", PURPOSE)) == []


def test_special_tokens_are_text(tmp_path):
    folder, foreign = write_bi_encoder(tmp_path / "m"), write_bi_encoder(tmp_path / "foreign")
    write_foreign_tokenizer(foreign)
    for model, spelled, special in (
        (opened(folder), "[MASK] [SEP] [CLS]", {0, 2, 3, 4}),
        (opened(foreign), "<mask> </s> <s> <pad>", {0, 2, 3, 4}),
    ):
        assert not special & set(model._pieces.encode(spelled, 99)[1:-1])
        ids, _ = model._pieces.encode_pair(spelled, spelled, 99)
        assert 4 not in ids


def test_inputs_with_and_without_token_types_are_fed(tmp_path):
    kinds = [("input_ids",), ("input_ids", "attention_mask"), ("attention_mask", "input_ids", "token_type_ids")]
    found = [
        opened(write_folder(tmp_path / str(at), onnx_file.bi_encoder(axes(64), inputs=kind))).embed_question("pump", PURPOSE)
        for at, kind in enumerate(kinds)
    ]
    assert found[0] == found[1] == found[2]


def test_a_tokenizer_that_is_not_berts(tmp_path):
    foreign = write_bi_encoder(tmp_path / "m")
    write_foreign_tokenizer(foreign)
    model = opened(foreign)
    assert pieces_of(model.embed_question("reset the pump , \ud800", PURPOSE)) == ["reset", "pump"]
    assert vector(model, "reset pump") @ vector(model, "pump") > 0.5 > vector(model, "reset") @ vector(model, "pump")


def test_without_the_package_it_says_which(tmp_path, monkeypatch):
    foreign = write_bi_encoder(tmp_path / "m")
    write_foreign_tokenizer(foreign)
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(UsageError, match="needs the package `tokenizers`") as raised:
        opened(foreign)
    assert raised.value.hint == "install `pointsman[tokenizers]`"


def test_a_model_that_pools_itself_is_believed(tmp_path):
    """With an output of its own for the whole text, and one for its tokens."""
    nodes = [
        onnx_file.node("Gather", ["table", "input_ids"], "token_embeddings", axis=0),
        onnx_file.node("ReduceMax", ["token_embeddings"], "sentence_embedding_all", keepdims=0),
        onnx_file.node("ReduceSum", ["token_embeddings", "tokens"], "sentence_embedding", keepdims=0),
    ][::2]
    model = onnx_file.model(
        nodes,
        [onnx_file.tensor("table", axes(64)), onnx_file.tensor("tokens", np.array([1]))],
        [onnx_file.value("input_ids", onnx_file.INT64, ["batch", "tokens"])],
        [
            onnx_file.value("sentence_embedding", onnx_file.FLOAT, ["batch", 64]),
            onnx_file.value("token_embeddings", onnx_file.FLOAT, ["batch", "tokens", 64]),
        ],
    )
    made = opened(write_folder(tmp_path / "m", model, {"1_Pooling/config.json": None})).embed_question("pump pump reset", PURPOSE)
    found = np.frombuffer(made.vector, "<f4")
    assert np.isclose(found[VOCABULARY.index("pump") % 64] / found[VOCABULARY.index("reset") % 64], 2)
    assert pieces_of(made) == ["pump", "pump", "reset"]


def test_a_vector_is_its_own(tmp_path):
    model = opened(write_bi_encoder(tmp_path / "m"))
    texts = ["reset the pump", "", "holiday " * 500, "reset the pump"]
    beside = model.embed_chunks(texts, PURPOSE)
    assert beside == [model.embed_chunks([text], PURPOSE)[0] for text in texts]
    assert beside[0] == beside[3]


def test_token_vectors_fit_the_card_and_can_be_left_out(tmp_path):
    folder = write_bi_encoder(tmp_path / "m", width=256)
    for asked, kept in ((128, 128), (64, 64), (512, 256), (0, 0)):
        model = opened(folder, token_dimensions=asked)
        made = model.embed_question("reset pump", PURPOSE)
        assert (model.card.dimensions, model.card.token_dimensions) == (256, kept)
        assert len(made.token_vectors) == kept * len(made.token_ids) // 2 == (2 * kept if kept else 0)
        if kept:
            rows = np.frombuffer(made.token_vectors, np.int8).reshape(2, kept) / made.token_scale
            assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.05)


def test_directions_keep_distances_and_are_the_same_everywhere():
    basis = build_basis(384, 128)
    rows = np.random.RandomState(5).standard_normal((40, 384))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    small = rows @ basis
    assert np.abs((small @ small.T) - (rows @ rows.T)).max() < 0.45
    assert hashlib.sha256((basis > 0).tobytes()).hexdigest().startswith(GOLDEN)


GOLDEN = "fc15e4cec3ebac1377d6d27d"


def test_each_choice_changes_the_card(tmp_path):
    folder = write_bi_encoder(tmp_path / "m")
    other = write_folder(tmp_path / "o" / "m", onnx_file.bi_encoder(axes(64) * 2))
    choices = [
        {},
        {"pooling": "cls"},
        {"max_tokens": 64},
        {"token_dimensions": 32},
        {"question_prefix": "query : "},
        {"passage_prefix": "query : "},
        {"identifiers": "apart"},
    ]
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\nmore\n")  # a piece that the model has no row for
    with pytest.raises(SourceError):
        opened(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    cards = [opened(folder, **({"pooling": "mean"} | one)).card for one in choices] + [opened(other, pooling="mean").card]
    assert len({card.id for card in cards}) == len(cards)
    assert opened(folder).card.id == opened(folder).card.id
    assert opened(folder).card.name == "own/m"


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_was_not_declared_is_refused(tmp_path):
    folder = write_bi_encoder(tmp_path / "SECRETPLACE" / "m")
    right = digest_of(folder)
    for declared, said in ((None, "no `sha256` is declared"), ("0" * 64, "not the declared ones")):
        with pytest.raises(SourceError, match=said) as raised:
            load_bi_encoder(folder, sha256=declared, choices=Choices())
        assert raised.value.code == "model_files"
        assert "doctor" in raised.value.hint
        assert "SECRETPLACE" not in f"{raised.value} {raised.value.hint}"
    load_bi_encoder(folder, sha256=right.upper(), choices=Choices())
    for name in ("model.onnx", "vocab.txt", "config.json", "1_Pooling/config.json"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(kept + b" ")
        with pytest.raises(SourceError, match="not the declared ones"):
            load_bi_encoder(folder, sha256=right, choices=Choices())
        (folder / name).write_bytes(kept)
    (folder / "modules.json").write_text("[]")  # what was added counts, too
    with pytest.raises(SourceError, match="not the declared ones"):
        load_bi_encoder(folder, sha256=right, choices=Choices())


def test_the_digest_is_what_anybody_can_compute(tmp_path):
    folder = write_bi_encoder(tmp_path / "m")
    names = sorted(read_files(folder, None).digests)
    listed = subprocess.run(["sha256sum", *names], cwd=folder, check=True, capture_output=True).stdout
    assert hashlib.sha256(listed).hexdigest() == digest_of(folder)


def test_a_missing_folder_or_file_is_said(tmp_path):
    with pytest.raises(SourceError, match="there is no model folder `nowhere`"):
        read_files(tmp_path / "nowhere", None)
    folder = write_bi_encoder(tmp_path / "m")
    (folder / "model.onnx").rename(folder / "other.onnx")
    with pytest.raises(SourceError, match=r"`model\.onnx` cannot be read"):
        read_files(folder, None)
    assert "other.onnx" in read_files(folder, "other.onnx").digests
    (folder / "vocab.txt").unlink()
    with pytest.raises(SourceError, match=r"neither a `vocab\.txt`"):
        load_bi_encoder(folder, sha256=digest_of(folder, "other.onnx"), choices=Choices(), file="other.onnx")


def test_a_model_that_is_too_large_is_refused(tmp_path, monkeypatch):
    folder = write_bi_encoder(tmp_path / "m")
    with (folder / "model.onnx").open("r+b") as file:
        file.truncate(files.MOST_MODEL_BYTES + 1)  # a hole: nothing is read of it
    started = time.monotonic()
    with pytest.raises(SourceError, match="is over 2000 MB"):
        read_files(folder, None)
    assert time.monotonic() - started < 1
    write_bi_encoder(folder)
    monkeypatch.setattr(files, "MOST_BESIDE_BYTES", 10)
    with pytest.raises(SourceError, match="is over"):
        read_files(folder, None)


def test_weights_outside_of_the_file_are_refused(tmp_path, monkeypatch):
    """The runtime would take them from the working folder, where nobody has hashed them."""
    table = axes(64)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(table.tobytes())
    folder = write_folder(tmp_path / "m", onnx_file.bi_encoder(table, outside="weights.bin"))
    with pytest.raises(SourceError, match="stand in another file"):
        read_files(folder, None)


@pytest.mark.parametrize(
    "damaged", [b"", b"no model " * 100, onnx_file.bi_encoder(axes(64))[:-30], onnx_file.bi_encoder(axes(64))[100:]]
)
def test_a_damaged_model_is_refused_even_where_it_was_declared(tmp_path, damaged):
    folder = write_folder(tmp_path / "m", damaged)
    with pytest.raises(SourceError) as raised:
        opened(folder)
    assert raised.value.code == "model_files"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"1_Pooling/config.json": None}, "does not say how it is pooled"),
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "does not say how it is pooled"),
        ({"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}}, "how it is pooled"),
        ({"1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 32}}, "64 numbers, and not 32"),
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, "needs `Dense` after pooling"),
        ({"modules.json": "{]"}, "no list of modules"),
        ({"config.json": "[1]"}, "is not JSON that says something"),
        ({"config.json": "[" * 100_000}, "is not JSON that says something"),
        ({"vocab.txt": "one\ntwo\n"}, "no vocabulary of BERT's"),
        ({"vocab.txt": None, "tokenizer.json": "{}"}, "`tokenizer.json` cannot be read"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(tmp_path, said, why):
    with pytest.raises(SourceError, match=why):
        opened(write_bi_encoder(tmp_path / "m", **said))


def test_declared_numbers_must_be_the_models(tmp_path):
    folder = write_bi_encoder(tmp_path / "m")
    with pytest.raises(SourceError, match="64 numbers, and not 65"):
        opened(folder, dimensions=65)
    with pytest.raises(SourceError, match="no output for the pooling `model`"):
        opened(folder, pooling="model")
    with pytest.raises(SourceError, match="prefixes leave no room"):
        opened(folder, passage_prefix="pump " * 100)


def test_what_takes_or_gives_something_else_is_refused(tmp_path):
    images = write_folder(tmp_path / "images", onnx_file.bi_encoder(axes(64), inputs=("input_ids", "pixel_values")))
    with pytest.raises(SourceError, match="it takes something else"):
        opened(images)
    with pytest.raises(SourceError, match="no output of scores"):
        judge(write_bi_encoder(tmp_path / "no_judge"))
    with pytest.raises(SourceError, match="3 scores a pair"):
        judge(write_cross_encoder(tmp_path / "three", classes=3))
    with pytest.raises(SourceError, match="no output for the pooling `mean`"):
        opened(write_cross_encoder(tmp_path / "no_bi"))


def test_what_is_not_finite_raises(tmp_path):
    for number in (np.nan, np.inf):
        table = axes(64)
        table[VOCABULARY.index("valve")] = number
        model = opened(write_folder(tmp_path / f"{number}", onnx_file.bi_encoder(table)))
        assert np.isfinite(vector(model, "pump")).all()
        with pytest.raises(SourceError) as raised:
            model.embed_chunks(["pump", "valve"], PURPOSE)
        assert raised.value.code == "model_output"
    with pytest.raises(SourceError, match="no finite number"):
        opened(write_folder(tmp_path / "all", onnx_file.bi_encoder(axes(64) * np.nan)))
    with pytest.raises(SourceError, match="it gives zeros"):
        opened(write_folder(tmp_path / "zeros", onnx_file.bi_encoder(axes(64) * 0)))


# --- the cross-encoder ------------------------------------------------------------------------------------------------

PASSAGES = ["holiday of staff", "torque of gearbox bolts", "reset the pump controller valve", "the pump"]


@pytest.mark.parametrize("classes", [1, 2])
def test_a_cross_encoder_scores_each_pair(tmp_path, classes):
    model = judge(write_cross_encoder(tmp_path / "m", classes=classes))
    scores = model.rerank("reset pump controller", PASSAGES, PURPOSE, deadline_s=5)
    assert scores == [one * classes for one in (0, 0, 3, 1)]
    for order in itertools.permutations(range(4)):
        assert model.rerank("reset pump controller", [PASSAGES[at] for at in order], PURPOSE, deadline_s=5) == [
            scores[at] for at in order
        ]
    assert model.rerank("reset", [], PURPOSE, deadline_s=5) == []


def test_a_cross_encoder_with_a_tokenizer_that_is_not_berts(tmp_path):
    folder = write_cross_encoder(tmp_path / "m")
    write_foreign_tokenizer(folder)
    assert judge(folder).rerank("reset pump controller", PASSAGES, PURPOSE, deadline_s=5) == [0, 0, 3, 1]


def test_long_texts_leave_each_other_room(tmp_path):
    """However long either is, words of both are read."""
    model = judge(write_cross_encoder(tmp_path / "m"), max_tokens=64)
    long = " ".join(WORDS[-43:-3])
    found = model.rerank(f"{'pump ' * 500}", [f"pump {long * 50}", f"{long * 50} pump"], PURPOSE, deadline_s=5)
    assert found[0] > 20
    assert found[1] == 0, "what is beyond the limit is not read"


def test_a_deadline_ends_the_scoring(tmp_path):
    model = judge(write_cross_encoder(tmp_path / "m"))
    started = time.monotonic()
    with pytest.raises(SourceError) as raised:
        model.rerank("reset pump", ["pump " * 100] * 100_000, PURPOSE, deadline_s=0.2)
    assert (raised.value.code, raised.value.retryable) == ("deadline", True)
    assert time.monotonic() - started < 2
    with pytest.raises(SourceError, match="scored 0 of 1"):
        model.rerank("reset pump", ["pump"], PURPOSE, deadline_s=0)


def test_one_run_is_stopped_at_its_deadline(tmp_path):
    """A model that takes for ever over one text: the runtime itself is stopped."""
    steps, big = 200, np.zeros((1_000, 1_000), np.float32)
    nodes = [
        onnx_file.node("Gather", ["table", "input_ids"], "rows", axis=0),
        onnx_file.node("ReduceSum", ["rows", "axes"], "one", keepdims=0),
        onnx_file.node("Add", ["one", "big"], "h0"),
        *(onnx_file.node("MatMul", [f"h{at}", "big"], f"h{at + 1}") for at in range(steps)),
        onnx_file.node("ReduceSum", [f"h{steps}"], "logits", keepdims=1),
    ]
    tensors = [
        onnx_file.tensor("table", np.ones((9, 1), np.float32)),
        onnx_file.tensor("big", big),
        onnx_file.tensor("axes", np.array([1])),
    ]
    taken = [onnx_file.value("input_ids", onnx_file.INT64, ["batch", "tokens"])]
    session = own.open_session(onnx_file.model(nodes, tensors, taken, [onnx_file.value("logits", onnx_file.FLOAT, [1, 1])]), 1)
    started = time.monotonic()
    with pytest.raises(Exception, match="terminate"):
        own.run_within(session, ["logits"], {"input_ids": np.array([[1, 2]])}, 0.1)
    assert time.monotonic() - started < 3


def test_a_score_that_is_not_finite_raises(tmp_path):
    table = axes(len(VOCABULARY))
    table[VOCABULARY.index("valve")] = np.nan
    model = judge(write_folder(tmp_path / "m", onnx_file.cross_encoder(table)))
    assert model.rerank("pump", ["pump"], PURPOSE, deadline_s=5) == [1.0]
    with pytest.raises(SourceError) as raised:
        model.rerank("pump", ["pump", "valve"], PURPOSE, deadline_s=5)
    assert raised.value.code == "model_output"
