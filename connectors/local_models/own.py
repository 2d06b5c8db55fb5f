"""Models of one's own on the shipped one's runtime: a bi-encoder that embeds, a cross-encoder that reranks (adr/0032).

What a folder says of itself is believed only after its digest is the declared one, and tried once when it is opened: a model that
cannot do what its files promise is refused at the start and not in the middle of an index.

INVARIANT: batch size is 1, as with the model that ships: a text's vector or score depends on nothing beside it
(tests/unit/test_own_models.py::test_a_vector_is_its_own).
INVARIANT: a vector or score that is not finite never leaves here (…::test_what_is_not_finite_raises).
INVARIANT: whatever changes a vector changes the card, so that an index is never searched with another model
(…::test_each_choice_changes_the_card).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from connectors.local_models.files import ModelFiles, broken, check_declared, read_files
from connectors.local_models.pieces import load_pieces
from connectors.local_models.session import open_session, run_within
from connectors.local_models.tokens import Floats, build_basis, pack_tokens
from router.domain import Embedded, ModelCard, Purpose
from router.errors import SourceError
from router.lexicon import apart

Pooling = Literal["mean", "cls", "model"]
LONGEST = 512
"""Of tokens, where neither the folder nor the configuration says less or more."""
LEAST_TOKENS = 32
MOST_DIMENSIONS = 4096
_HIDDEN = ("last_hidden_state", "token_embeddings", "hidden_states")
_SENTENCE = "sentence_embedding"
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_WHOLE = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_KNOWN_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
_TRIED = "The controller of the pump, 4012 times"


@dataclass(frozen=True, slots=True)
class Choices:
    """What the configuration says of a bi-encoder; None is left to what its folder says."""

    pooling: Pooling | None = None
    dimensions: int | None = None
    max_tokens: int | None = None
    token_dimensions: int = 128
    question_prefix: str | None = None
    passage_prefix: str | None = None
    identifiers: Literal["kept", "apart"] = "kept"


def load_bi_encoder(
    folder: Path, *, sha256: str | None, choices: Choices, file: str | None = None, threads: int = 1
) -> BiEncoder:
    """Raises `SourceError` where the folder is not the declared one or its model does not do what it should."""
    files = read_files(folder, file)
    check_declared(files, sha256)
    return BiEncoder(files, choices, threads)


def load_cross_encoder(
    folder: Path, *, sha256: str | None, max_tokens: int | None, file: str | None = None, threads: int = 1
) -> CrossEncoder:
    """The same of a model that scores a question and a passage together."""
    files = read_files(folder, file)
    check_declared(files, sha256)
    return CrossEncoder(files, max_tokens, threads)


class _Network:
    """One opened model: ids in, its output checked."""

    def __init__(self, files: ModelFiles, threads: int) -> None:
        self.folder = files.folder
        try:
            self._session = open_session(files.model, threads)
        except Exception as error:
            raise broken(files.folder, "the runtime cannot read it", "export it again as ONNX, in one file") from error
        self._inputs = {one.name: _WHOLE.get(one.type) for one in self._session.get_inputs()}
        if "input_ids" not in self._inputs or None in self._inputs.values() or not set(self._inputs) <= _INPUTS:
            raise broken(files.folder, f"it takes something else than {', '.join(sorted(_INPUTS))}")
        self.outputs = {one.name: len(one.shape or ()) for one in self._session.get_outputs()}

    def run(
        self, outputs: Sequence[str], ids: Sequence[int], types: Sequence[int] | None = None, deadline_s: float | None = None
    ) -> list[Floats]:
        """Of each output the first of a batch of one. Raises `SourceError`, also where a result is not finite."""
        given = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": types or [0] * len(ids)}
        inputs = {name: np.array([given[name]], dtype=kind) for name, kind in self._inputs.items()}
        try:
            found: list[Floats] = [
                np.asarray(one, dtype=np.float32)[0] for one in run_within(self._session, outputs, inputs, deadline_s)
            ]
        except Exception as error:
            raise SourceError("model_failed", f"the model `{self.folder}` failed", "check its files and limits") from error
        if not all(np.isfinite(one).all() for one in found):
            raise SourceError("model_output", f"the model `{self.folder}` gave what is no finite number", "check its files")
        return found


class BiEncoder:
    """Implements `router.ports.Embedder`. Thread-safe: the session is, and everything else is read only."""

    def __init__(self, files: ModelFiles, choices: Choices, threads: int) -> None:
        self._files, self._choices = files, choices
        self._network, self._pieces = _Network(files, threads), load_pieces(files)
        self._pooling, self._output = self._find_pooling()
        self._hidden = next((name for name in (*_HIDDEN, *self._network.outputs) if self._network.outputs.get(name) == 3), "")
        self._question, self._passage = self._find_prefixes()
        self._limit = find_limit(files, choices.max_tokens)
        self._dropped = self._pieces.unspoken()
        width, dimensions = self._try()
        kept = min(choices.token_dimensions, width) if self._hidden else 0
        self._basis, self._mean = build_basis(width, kept) if kept else None, np.zeros(width, np.float32)
        room = self._limit - max(self._pieces.count(one) for one in (self._question, self._passage))
        if room < LEAST_TOKENS:
            raise broken(files.folder, f"its prefixes leave no room in {self._limit} tokens")
        self._card = ModelCard(_name(files.folder), self._digest(), dimensions, kept, room)

    @property
    def card(self) -> ModelCard:
        return self._card

    def embed_question(self, text: str, purpose: Purpose) -> Embedded:  # noqa: ARG002 (a local model sends nothing)
        return self._embed(self._question, text)

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:  # noqa: ARG002
        return [self._embed(self._passage, text) for text in texts]

    def count_tokens(self, text: str) -> int:
        return self._pieces.count(self._read(text))

    def _read(self, text: str) -> str:
        return apart(text) if self._choices.identifiers == "apart" else text

    def _embed(self, prefix: str, text: str) -> Embedded:
        ids = self._pieces.encode(prefix + self._read(text), self._limit)
        wanted = [self._output] if self._output == self._hidden or self._basis is None else [self._output, self._hidden]
        found = self._network.run(wanted, ids)
        hidden = found[-1]
        sentence = found[0] if self._pooling == "model" else hidden.mean(axis=0) if self._pooling == "mean" else hidden[0]
        vector = _unit(sentence).astype("<f4").tobytes()
        if self._basis is None:
            return Embedded(vector, b"", b"", 1.0)
        kept = ~self._dropped[ids]
        kept[: 1 + self._pieces.count(prefix)] = False  # what stands in front of every text tells none from another
        rows, scale = pack_tokens(hidden[kept], self._mean, self._basis)
        # Vocabularies of more than 65,536 pieces are folded: an id only says how rare a piece is among the candidates.
        return Embedded(vector, (np.array(ids)[kept] % 65_536).astype("<u2").tobytes(), rows.tobytes(), scale)

    def _find_pooling(self) -> tuple[Pooling, str]:
        """As declared; else as the model itself pools; else as the folder says. Guessed it would be wrong without a word."""
        outputs, folder = self._network.outputs, self._files.folder
        declared = self._choices.pooling or ("model" if outputs.get(_SENTENCE) == 2 else self._pooling_of_folder())
        usual, rank = ((_SENTENCE,), 2) if declared == "model" else (_HIDDEN, 3)
        found = next((name for name in (*usual, *outputs) if outputs.get(name) == rank), None)
        if found is None:
            raise broken(folder, f"it has no output for the pooling `{declared}`")
        return declared, found

    def _pooling_of_folder(self) -> Pooling:
        foreign = set(self._files.modules()) - _KNOWN_MODULES
        if foreign:
            raise broken(self._files.folder, f"it needs `{min(foreign)[:40]}` after pooling", "export it with that inside")
        said = self._files.said("1_Pooling/config.json")
        on = {name for name, value in said.items() if name.startswith("pooling_mode_") and value is True}
        known: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
        if len(on) != 1 or not on <= set(known):
            raise broken(self._files.folder, "its folder does not say how it is pooled, or in a way that is not known here",
                         "declare `pooling` as `mean` or `cls`")  # fmt: skip
        return known[on.pop()]

    def _find_prefixes(self) -> tuple[str, str]:
        prompts = self._files.said("config_sentence_transformers.json").get("prompts")
        named = prompts if isinstance(prompts, dict) else {}
        question, passage = self._choices.question_prefix, self._choices.passage_prefix
        if question is None:
            question = str(named.get("query") or "")
        if passage is None:
            passage = str(named.get("document") or named.get("passage") or "")
        return question, passage

    def _try(self) -> tuple[int, int]:
        """Width of a token's vector and of a text's, by a first run; and that it bears its longest text and its last piece."""
        ids = self._pieces.encode(self._question + _TRIED, self._limit)
        (found,) = self._network.run([self._output], ids)
        longest = (ids[:-1] * self._limit)[: self._limit - 1]
        self._network.run([self._output], [*longest, self._pieces.size - 1])
        dimensions, said = found.shape[-1], self._files.said("1_Pooling/config.json").get("word_embedding_dimension")
        declared = self._choices.dimensions or (None if self._pooling == "model" else said)
        if not 2 <= dimensions <= MOST_DIMENSIONS or declared not in (None, dimensions):
            raise broken(self._files.folder, f"its vectors have {dimensions} numbers, and not {declared}")
        if not found.any():
            raise broken(self._files.folder, "it gives zeros")
        return (self._network.run([self._hidden], ids)[0].shape[-1] if self._hidden else dimensions), dimensions

    def _digest(self) -> str:
        """Of the files and of all that changes what comes of them."""
        said = {**asdict(self._choices), "pooling": self._pooling, "limit": self._limit}
        prefixes = {"question_prefix": self._question, "passage_prefix": self._passage}
        return hashlib.sha256(json.dumps([self._files.sha256, {**said, **prefixes}], sort_keys=True).encode()).hexdigest()


class CrossEncoder:
    """Implements `router.ports.Reranker`. One pair after the other; what is left at the deadline is not scored, and that raises."""

    def __init__(self, files: ModelFiles, max_tokens: int | None, threads: int) -> None:
        self._network, self._pieces = _Network(files, threads), load_pieces(files)
        self._limit = find_limit(files, max_tokens)
        self._output = next((name for name, rank in self._network.outputs.items() if rank == 2), "")
        self._id = f"{_name(files.folder)}@{files.sha256[:12]}"
        if not self._output:
            raise broken(files.folder, "it has no output of scores")
        self._score(_TRIED, _TRIED * self._limit, None)
        self._network.run([self._output], [self._pieces.size - 1])

    @property
    def id(self) -> str:
        """For the record's versions."""
        return self._id

    def rerank(self, question: str, texts: Sequence[str], purpose: Purpose, *, deadline_s: float) -> list[float]:  # noqa: ARG002
        until = time.monotonic() + deadline_s
        scores: list[float] = []
        for text in texts:
            left_s = until - time.monotonic()
            try:
                if left_s > 0:
                    scores.append(self._score(question, text, left_s))
                    continue
            except SourceError:
                if time.monotonic() < until:
                    raise
            raise SourceError(
                "deadline", f"the model scored {len(scores)} of {len(texts)} passages in time",
                "let it judge fewer, or raise the deadline", retryable=True,
            )  # fmt: skip
        return scores

    def _score(self, question: str, text: str, deadline_s: float | None) -> float:
        """The logit; of two classes how far the second, which is relevant, is above the first."""
        ids, types = self._pieces.encode_pair(question, text, self._limit)
        (logits,) = self._network.run([self._output], ids, types, deadline_s)
        if logits.shape not in ((1,), (2,)):
            raise broken(self._network.folder, f"it gives {logits.size} scores a pair, and one or two are known")
        return float(logits[-1] - (logits[0] if len(logits) == 2 else 0.0))


def find_limit(files: ModelFiles, declared: int | None) -> int:
    """Tokens that the model reads at once, special ones included: the declared ones, else what the folder says, at most `LONGEST`."""
    config = files.said("config.json")
    positions = config.get("max_position_embeddings")
    if type(positions) is int and str(config.get("model_type", "")) in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= 2  # they count from the place after padding
    said = [
        files.said("sentence_bert_config.json").get("max_seq_length"),
        files.said("tokenizer_config.json").get("model_max_length"),
        positions,
    ]
    known = [one for one in said if type(one) is int and one > 0]
    limit = declared or min([LONGEST, *known])
    if limit < LEAST_TOKENS or (type(positions) is int and limit > positions):
        raise broken(files.folder, f"it cannot read {limit} tokens at once", "declare another `max_tokens`")
    return limit


def _unit(vector: Any) -> Any:
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return vector if length == 0 else (vector / length).astype(np.float32)


def _name(folder: str) -> str:
    """The folder's own name, as it stands in records and in an index."""
    return "own/" + (re.sub(r"[^A-Za-z0-9._-]+", "-", folder).strip("-")[:60] or "model")
