"""The embedder that ships: the right files, BERT's own word pieces, and vectors that depend on their own text alone."""

from __future__ import annotations

import shutil
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.local_models import FILES, MAX_TOKENS, TOKEN_DIMENSIONS, MiniLM, WordPiece, load_embedder
from router.domain import Embedded, Purpose
from router.errors import SourceError
from router.lexicon import apart
from tests.conformance.corpus import HOSTILE, examples

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "router" / "model"
REFERENCE = ROOT / "tests" / "files" / "minilm_reference_vectors.npz"
PURPOSE = Purpose("tests", "embed_question", frozenset({1}), "d")


@cache
def embedder() -> MiniLM:
    return load_embedder(MODEL)


@cache
def pieces() -> WordPiece:
    return WordPiece(MODEL / "vocab.txt")


@cache
def bert():
    """The reference: the same vocabulary in the `tokenizers` package, with special tokens spelled in a text read as text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: at for at, word in enumerate((MODEL / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n"))}
    built = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    built.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return built


def embed(text: str) -> Embedded:
    return embedder().embed_question(text, PURPOSE)


def vector(text: str) -> np.ndarray:
    return np.frombuffer(embed(text).vector, "<f4")


# --- word pieces ------------------------------------------------------------------------------------------------------

TEXTS = (
    "How many people live in Berlin?",
    "unaffable antidisestablishmentarianism",
    "Zażółć gęślą jaźń — naïve café déjà vu 東京 Ελλάδα",
    "ΟΔΥΣΣΕΥΣ Σ ς final sigma",
    "İstanbul ISTANBUL ıI ẞß ŉ ǆ ﬀ ﬃ",
    "tab\there\nnew\r\nline\x0bvertical\x0cform\x1cfile\x1dgroup\x1erecord\x1funit\x85next\xa0nbsp\u2028line\u2029para\u3000wide",
    "zero\u200bwidth\u200cjoin\u200der\ufeffbom soft\xadhyphen bidi\u202etxet",
    "replacement \ufffd character",
    "e\u0301 combining a\u0300\u0301 \u0301alone",
    "emoji 👩‍👩‍👧 🚧 and 🇩🇪",
    "punct!!! a.b,c;d:e-f_g/h\\i|j~k`l^m$n+o=p<q>r@s#t%u&v*w",
    "“quotes” ‘single’ «guillemets» … – — • § ¶ © ® ™ € £ ¥ ° ± × ÷",
    "日本語とカタカナ 한국어 中文字符𠀀𪜀𫝀豈丽",
    "नमस्ते दुनिया สวัสดี مرحبا بالعالم שלום",
    "x" * 100,
    "x" * 101,
    "ab" * 300,
    "a " * 300,
    "##ing ## #hash [unused1] {} [] ()",
    "١٢٣ ②③ Ⅷ ½ ⅓ ²³",
    "",
    " ",
    "\0",
    "\x00a\x00b",
    "\ud7ff\ue000\uffff",
    *HOSTILE,
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_word_pieces_equal_those_of_bert(text: str) -> None:
    expected = bert().encode(text).ids
    assert pieces().encode(text, len(expected)) == expected
    assert pieces().count(text) == len(expected) - 2


# Letters that both sides' Unicode tables know: those of `tokenizers` are older than Python's.
KNOWN = st.characters(exclude_categories=["Cs"]).filter(lambda char: unicodedata.ucd_3_2_0.category(char) != "Cn")


@settings(max_examples=examples(500))
@given(st.text(KNOWN, max_size=40) | st.text("aAéΣσß中\u0301\u200d\x85\x1c .-_'[]#1", max_size=40))
def test_any_text_gives_the_word_pieces_of_bert(text: str) -> None:
    assert pieces().encode(text, 10_000) == bert().encode(text).ids
    assert pieces().encode(apart(text), 10_000) == bert().encode(apart(text)).ids


def test_special_tokens_are_text() -> None:
    """A document that spells a special token gets brackets and a word, never the token."""
    special = {at for at, piece in enumerate((MODEL / "vocab.txt").read_text(encoding="utf-8").split("\n")) if piece in SPECIAL}
    for text in ("[MASK]", "a [SEP] b", "[CLS][PAD]", "[ MASK ]", "[mask]", "[UNK]"):
        assert not special & set(pieces().encode(text, 99)[1:-1]), text


SPECIAL = {"[MASK]", "[SEP]", "[CLS]", "[PAD]", "[UNK]"}


def test_cut_at_the_limit() -> None:
    ids = pieces().encode("word " * 1_000, MAX_TOKENS)
    assert len(ids) == MAX_TOKENS
    assert pieces().count("word " * 1_000) == 1_000
    assert embedder().count_tokens("maxRetryCount") == pieces().count("max Retry Count")


def test_long_text_is_not_kept() -> None:
    """The caches hold words, not documents: hostile text without spaces would fill the memory."""
    words = WordPiece(MODEL / "vocab.txt")
    words.count("中" * 100_000)
    words.count("a" * 100_000)
    words.count("." * 100_000)
    words.count("ordinary words")
    assert words._run.cache_info().currsize == 2  # the two ordinary words
    assert words._word.cache_info().currsize <= 5


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_vector_is_its_own() -> None:
    """The same bytes alone, beside others, and again: nothing of a neighbour gets in."""
    texts = ["How do I reset ERR-4012?", "x", "a very long neighbour " * 100, "", "How do I reset ERR-4012?"]
    beside = embedder().embed_chunks(texts, PURPOSE)
    alone = [embedder().embed_chunks([text], PURPOSE)[0] for text in texts]
    assert beside == alone == [embed(text) for text in texts]
    assert beside[0] == beside[4]


def test_shape_of_what_is_stored() -> None:
    for text in ("How many people live in Berlin?", "the of and", "", "!?", "\0", "👩‍👧", "word " * 1_000):
        found = embed(text)
        floats = np.frombuffer(found.vector, "<f4")
        assert floats.shape == (384,)
        assert np.isfinite(floats).all()
        assert abs(float(np.linalg.norm(floats)) - 1) < 1e-5
        tokens = len(found.token_ids) // 2
        assert len(found.token_vectors) == tokens * TOKEN_DIMENSIONS
        assert 0 < found.token_scale < 1e4
        rows = np.frombuffer(found.token_vectors, np.int8).reshape(tokens, TOKEN_DIMENSIONS) / found.token_scale
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.05)
    assert embed("the of and").token_ids == b"", "stop words carry no direction of their own"
    assert len(embed("word " * 1_000).token_ids) == 2 * (MAX_TOKENS - 2)


def test_agreement_with_full_precision() -> None:
    """The int8 model points where the fp32 one does, on texts whose identifiers are not taken apart first."""
    reference = np.load(REFERENCE)
    compared = 0
    for text, expected in zip(reference["texts"].tolist(), reference["vectors"], strict=True):
        if apart(text) == text:
            compared += 1
            assert float(vector(text) @ expected) >= 0.97, text
    assert compared >= 8


def test_near_is_nearer_than_far() -> None:
    pairs = [
        ("How do I reset the pump controller?", "Resetting the controller of a pump", "Holiday entitlement of part-time staff"),
        ("max_retry_count", "maximum number of retries", "the colour of the packaging"),
        ("who approves a claim", "claims are approved by the regional adjuster", "torque of the gearbox bolts"),
    ]
    for asked, near, far in pairs:
        assert vector(asked) @ vector(near) > vector(asked) @ vector(far) + 0.1


def test_identifiers_are_taken_apart() -> None:
    assert embed("maxRetryCount") == embed("max Retry Count") == embed("max_Retry_Count")


def test_hundred_thousand_characters() -> None:
    for text in ("word " * 20_000, "x" * 100_000, "中" * 100_000, "." * 100_000, "aA" * 50_000, "\u0301" * 100_000):
        assert len(embed(text).vector) == 4 * 384
        assert embedder().count_tokens(text) >= 0


def test_a_lone_surrogate_does_no_harm() -> None:
    assert embed("a \ud800 b").token_ids == embed("a b").token_ids


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FILES))
def test_wrong_hash_is_refused(name: str, tmp_path: Path) -> None:
    for each in FILES:
        if each != name:
            (tmp_path / each).symlink_to(MODEL / each)
    with pytest.raises(SourceError, match=r"model_files: the model file `.*` cannot be read"):
        load_embedder(tmp_path)
    shutil.copyfile(MODEL / name, tmp_path / name)
    with (tmp_path / name).open("r+b") as file:
        file.seek(1_000)
        byte = file.read(1)[0]
        file.seek(1_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(SourceError, match="is not the one that ships") as caught:
        load_embedder(tmp_path)
    assert str(tmp_path) not in f"{caught.value} {caught.value.hint}"


def test_the_card_names_what_is_loaded() -> None:
    card = embedder().card
    assert (card.sha256, card.dimensions, card.token_dimensions, card.max_tokens) == (FILES["model.int8dyn.onnx"], 384, 64, 256)
