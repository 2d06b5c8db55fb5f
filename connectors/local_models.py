"""The embedder that ships: all-MiniLM-L6-v2 (quantised to int8) on onnxruntime, one text at a time, nothing fetched.

INVARIANT: batch size is 1. The model's activation scale spans its whole input, so in a batch a text's vector would
depend on its neighbours, a permitted text's on a forbidden one's (tests/unit/test_local_models.py::test_vector_is_its_own).
INVARIANT: the files are the ones that were reviewed: each sha256 is compared at load (…::test_wrong_hash_is_refused).
INVARIANT: word pieces are BERT's own, for any text (…::test_any_text_gives_the_word_pieces_of_bert).
INVARIANT: text cannot inject special tokens: `[MASK]` in a document is brackets and a word (…::test_special_tokens_are_text).

Identifiers are taken apart before WordPiece (`maxRetryCount` reads `max Retry Count`): +2 points nDCG@10 on code.
WordPiece after Devlin et al. 2019 (BERT, uncased); token vectors for late interaction after Khattab and Zaharia 2020
(ColBERT), here untrained, projected to 64 dimensions and stored as int8.
"""

from __future__ import annotations

import functools
import hashlib
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # has to stand before the import; the pinned version has no telemetry either

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from router.domain import Embedded, ModelCard, Purpose
from router.errors import SourceError
from router.lexicon import STOP_WORDS, apart
from router.matrix import multiply

_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs"})
_NO_SPACE = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))  # white space to Python, control characters to BERT
Floats = npt.NDArray[Any]

MAX_TOKENS = 256
LONGEST_WORD = 100  # as BERT has it: a longer word is unknown
LONGEST_KEPT = 64
TOKEN_DIMENSIONS = 64
FILES = {
    "model.int8dyn.onnx": "b595ad690f077aff4342939dcaf045c367505409ecba86d4db611c3cb060432c",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "token_projection.npz": "624baa040f7ce70613eb796f34c60b278ee70d00c807f27a175954f418114f54",
}


def load_embedder(directory: Path, *, threads: int = 1) -> MiniLM:
    """Check the shipped files and open them. Raises `SourceError("model_files")` when one is missing or altered."""
    for name, wanted in FILES.items():
        try:
            with (directory / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            raise SourceError("model_files", f"the model file `{name}` cannot be read", "install pointsman again") from None
        if found != wanted:
            raise SourceError("model_files", f"the model file `{name}` is not the one that ships", "install pointsman again")
    return MiniLM(directory, threads)


class MiniLM:
    """Implements `router.ports.Embedder`. Thread-safe: the session is, and everything else is read only."""

    def __init__(self, directory: Path, threads: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(str(directory / "model.int8dyn.onnx"), options, providers=["CPUExecutionProvider"])
        self._words = WordPiece(directory / "vocab.txt")
        with np.load(directory / "token_projection.npz") as projection:
            self._mean: Floats = projection["mean"].astype(np.float32)
            self._basis: Floats = np.ascontiguousarray(projection["basis"][:TOKEN_DIMENSIONS].T.astype(np.float32))
        self._dropped = self._words.unspoken()
        self._card = ModelCard("all-MiniLM-L6-v2-int8-apart", FILES["model.int8dyn.onnx"], 384, TOKEN_DIMENSIONS, MAX_TOKENS)

    @property
    def card(self) -> ModelCard:
        return self._card

    def embed_question(self, text: str, purpose: Purpose) -> Embedded:  # noqa: ARG002 (a local model sends nothing)
        return self._embed(text)

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:  # noqa: ARG002
        return [self._embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        return self._words.count(apart(text))

    def _embed(self, text: str) -> Embedded:
        ids = np.array([self._words.encode(apart(text), MAX_TOKENS)], dtype=np.int64)
        ones = np.ones_like(ids)
        sentence, hidden = self._session.run(
            ["sentence_embedding", "last_hidden_state"],
            {"input_ids": ids, "attention_mask": ones, "token_type_ids": np.zeros_like(ids)},
        )
        kept = ~self._dropped[ids[0]]
        rows, scale = self._project(hidden[0][kept])
        return Embedded(
            np.ascontiguousarray(sentence[0], dtype="<f4").tobytes(), ids[0][kept].astype("<u2").tobytes(), rows.tobytes(), scale
        )

    def _project(self, hidden: Floats) -> tuple[npt.NDArray[np.int8], float]:
        """Unit length, minus the model's mean, onto the first principal directions, unit length, one int8 scale."""
        if not len(hidden):
            return np.zeros((0, TOKEN_DIMENSIONS), np.int8), 1.0
        directions = _unit(multiply(_unit(hidden) - self._mean, self._basis))
        scale = 127.0 / float(np.abs(directions).max())
        return np.rint(directions * scale).astype(np.int8), scale


def _unit(rows: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    unit: Floats = rows / np.maximum(lengths, 1e-12)
    return unit


class WordPiece:
    """BERT's uncased tokenizer over vocab.txt, in plain Python."""

    def __init__(self, vocabulary: Path) -> None:
        self._pieces = vocabulary.read_text(encoding="utf-8").split("\n")
        if self._pieces[-1] == "":
            self._pieces.pop()
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._unknown, self._start, self._end = (self._ids[piece] for piece in ("[UNK]", "[CLS]", "[SEP]"))
        self._run = functools.lru_cache(maxsize=50_000)(self._split_run)
        self._word = functools.lru_cache(maxsize=50_000)(self._split_word)

    def unspoken(self) -> npt.NDArray[np.bool_]:
        """True for ids that carry no content of their own: specials, punctuation, stop words."""
        return np.array(
            [
                piece in STOP_WORDS
                or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2)
                or all(map(_is_punctuation, piece))
                for piece in self._pieces
            ]
        )

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids with the two special tokens, cut at `limit`."""
        room = limit - 2
        ids: list[int] = []
        for run in _runs(text):
            ids.extend(self._pieces_of(run))
            if len(ids) >= room:
                break
        return [self._start, *ids[:room], self._end]

    def count(self, text: str) -> int:
        return sum(len(self._pieces_of(run)) for run in _runs(text))

    def _pieces_of(self, run: str) -> tuple[int, ...]:
        """Only words are remembered: text without spaces would fill the memory (…::test_long_text_is_not_kept)."""
        return self._run(run) if len(run) <= LONGEST_KEPT else self._split_run(run)

    def _split_run(self, run: str) -> tuple[int, ...]:
        """One run without white space: clean, fold accents and case, cut at punctuation and CJK, then into pieces."""
        cleaned = "".join(
            f" {char} " if _is_cjk(ord(char)) else char
            for char in run
            if char != "\ufffd" and unicodedata.category(char) not in _DROPPED
        )
        folded = "".join(char for char in unicodedata.normalize("NFD", cleaned) if unicodedata.category(char) != "Mn")
        # BERT lowers each letter by itself; Python knows the final sigma.
        lowered = folded.lower() if "Σ" not in folded else "".join(map(str.lower, folded))
        ids: list[int] = []
        for word in _words(lowered):
            ids.extend(self._word(word) if len(word) <= LONGEST_WORD else (self._unknown,))
        return tuple(ids)

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Longest piece first; a word with a part that no piece matches is unknown as a whole."""
        ids: list[int] = []
        at = 0
        while at < len(word):
            for end in range(len(word), at, -1):
                number = self._ids.get(word[at:end] if at == 0 else "##" + word[at:end])
                if number is not None:
                    ids.append(number)
                    at = end
                    break
            else:
                return (self._unknown,)
        return tuple(ids)


def _runs(text: str) -> list[str]:
    return text.translate(_NO_SPACE).split()


def _words(text: str) -> list[str]:
    words: list[str] = []
    start = -1
    for at, char in enumerate(text):
        alone = _is_punctuation(char)
        if alone or char.isspace():
            if start >= 0:
                words.append(text[start:at])
                start = -1
            if alone:
                words.append(char)
        elif start < 0:
            start = at
    if start >= 0:
        words.append(text[start:])
    return words


@functools.cache
def _is_punctuation(char: str) -> bool:
    point = ord(char)
    ascii_mark = 33 <= point <= 47 or 58 <= point <= 64 or 91 <= point <= 96 or 123 <= point <= 126
    return ascii_mark or unicodedata.category(char)[0] == "P"


def _is_cjk(point: int) -> bool:
    return (
        0x4E00 <= point <= 0x9FFF
        or 0x3400 <= point <= 0x4DBF
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point <= 0x2CEAF
        or 0x2F800 <= point <= 0x2FA1F
    )
