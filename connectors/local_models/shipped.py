"""The embedder that ships: all-MiniLM-L6-v2 (quantised to int8) on onnxruntime, one text at a time, nothing fetched.

INVARIANT: batch size is 1. The model's activation scale spans its whole input, so in a batch a text's vector would
depend on its neighbours, a permitted text's on a forbidden one's (tests/unit/test_local_models.py::test_vector_is_its_own).
INVARIANT: the files are the ones that were reviewed: each sha256 is compared at load (…::test_wrong_hash_is_refused).

Identifiers are taken apart before WordPiece (`maxRetryCount` reads `max Retry Count`): +2 points nDCG@10 on code.
Token vectors for late interaction after Khattab and Zaharia 2020 (ColBERT), here untrained, projected to 64 dimensions and stored
as int8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from connectors.local_models.session import open_session
from connectors.local_models.tokens import Floats, pack_tokens
from connectors.local_models.wordpiece import WordPiece
from router.domain import Embedded, ModelCard, Purpose
from router.errors import SourceError
from router.lexicon import apart

MAX_TOKENS = 256
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
        self._session = open_session(str(directory / "model.int8dyn.onnx"), threads)
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
        rows, scale = pack_tokens(hidden[0][kept], self._mean, self._basis)
        return Embedded(
            np.ascontiguousarray(sentence[0], dtype="<f4").tobytes(), ids[0][kept].astype("<u2").tobytes(), rows.tobytes(), scale
        )
