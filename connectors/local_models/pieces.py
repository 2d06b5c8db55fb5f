"""Text to the ids of a model of one's own: BERT's words by our own tokenizer, every other one by the package `tokenizers`.

INVARIANT: text cannot inject special tokens, whichever of the two reads it (tests/unit/test_own_models.py::test_special_tokens_are_text).
INVARIANT: nothing is longer than the model's limit, special tokens included (…::test_long_text_is_cut_at_the_limit).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from connectors.local_models.files import ModelFiles, broken
from connectors.local_models.wordpiece import Reading, WordPiece, is_unspoken
from router.errors import UsageError

_OF_BERT = ("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast", "ElectraTokenizer",
            "ElectraTokenizerFast")  # fmt: skip
_MARKS = "▁ĠĊ# "
"""What pieces of other vocabularies carry beside their letters."""


class Pieces(Protocol):
    """What reads text for a model."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str, limit: int) -> list[int]: ...

    def encode_pair(self, first: str, second: str, limit: int) -> tuple[list[int], list[int]]: ...

    def count(self, text: str) -> int: ...

    def unspoken(self) -> npt.NDArray[np.bool_]: ...


def load_pieces(files: ModelFiles) -> Pieces:
    """By vocab.txt where the model has BERT's words, else by tokenizer.json."""
    said = files.said("tokenizer_config.json")
    kind = said.get("tokenizer_class", _OF_BERT[0])
    if "vocab.txt" in files.beside and kind in _OF_BERT:
        return _load_words(files, said)
    if "tokenizer.json" not in files.beside:
        raise broken(files.folder, "there is neither a `vocab.txt` of BERT's words nor a `tokenizer.json`")
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise UsageError(
            "package_missing", f"the model `{files.folder}` needs the package `tokenizers`", "install `pointsman[tokenizers]`"
        ) from None
    try:
        return _Foreign(tokenizers, files.beside["tokenizer.json"].decode())
    except Exception as error:
        raise broken(files.folder, "its `tokenizer.json` cannot be read") from error


def _load_words(files: ModelFiles, said: dict[str, Any]) -> WordPiece:
    try:
        text = files.beside["vocab.txt"].decode().replace("\r\n", "\n")
        return WordPiece(text, _read_reading(files, said, text))
    except (UnicodeDecodeError, KeyError):
        raise broken(files.folder, "its `vocab.txt` is no vocabulary of BERT's, with [UNK], [CLS] and [SEP]") from None


def _read_reading(files: ModelFiles, said: dict[str, Any], vocabulary: str) -> Reading:
    """By tokenizer_config.json; what that does not say by the normaliser in tokenizer.json; and where neither says whether letters are
    lowered, by the vocabulary: one with capitals was made of text that kept them."""
    normalizer = files.said("tokenizer.json").get("normalizer")
    also = normalizer if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer" else {}
    lowered = said.get("do_lower_case", also.get("lowercase"))
    if lowered is None:
        lowered = not any(map(_has_capitals, vocabulary.split("\n")))
    accents = said.get("strip_accents", also.get("strip_accents"))
    return Reading(
        lowered=lowered is not False,
        without_accents=lowered is not False if accents is None else bool(accents),
        chinese_apart=said.get("tokenize_chinese_chars", also.get("handle_chinese_chars")) is not False,
    )


def _has_capitals(piece: str) -> bool:
    return piece != piece.lower() and not (piece.startswith("[") and piece.endswith("]"))


class _Foreign:
    """A tokenizer.json. Its own limits and padding are left aside; thread-safe, since settings are made once."""

    def __init__(self, tokenizers: Any, text: str) -> None:
        self._package, self._text = tokenizers, text
        self._counting = self._made(None)
        self._vocabulary: dict[str, int] = self._counting.get_vocab(with_added_tokens=True)
        self._added = {one.content for one in self._counting.get_added_tokens_decoder().values()}
        self._cut: dict[tuple[int, bool], Any] = {}

    @property
    def size(self) -> int:
        return max(self._vocabulary.values(), default=-1) + 1

    def encode(self, text: str, limit: int) -> list[int]:
        return list(self._limited(limit, pair=False).encode(_plain(text)).ids)

    def encode_pair(self, first: str, second: str, limit: int) -> tuple[list[int], list[int]]:
        made = self._limited(limit, pair=True).encode(self._shortened(first, limit // 2), _plain(second))
        return list(made.ids), list(made.type_ids)

    def count(self, text: str) -> int:
        return len(self._counting.encode(_plain(text), add_special_tokens=False).ids)

    def unspoken(self) -> npt.NDArray[np.bool_]:
        found = np.zeros(self.size, np.bool_)
        for piece, at in self._vocabulary.items():
            found[at] = piece in self._added or is_unspoken(piece.strip(_MARKS).lower())
        return found

    def _shortened(self, text: str, tokens: int) -> str:
        """Text of not more than so many tokens: only the second of a pair is cut by the package, so the first must leave it room."""
        offsets = self._counting.encode(_plain(text), add_special_tokens=False).offsets
        return _plain(text) if len(offsets) <= tokens else _plain(text)[: offsets[max(0, tokens - 4)][1]]

    def _limited(self, limit: int, *, pair: bool) -> Any:
        held = self._cut.get((limit, pair))
        if held is None:
            held = self._cut[limit, pair] = self._made((limit, "only_second" if pair else "longest_first"))
        return held

    def _made(self, cut: tuple[int, str] | None) -> Any:
        made = self._package.Tokenizer.from_str(self._text)
        made.encode_special_tokens = True  # a special token that is spelled in a text is that text
        made.no_padding()
        made.no_truncation()
        if cut is not None:
            made.enable_truncation(max_length=cut[0], strategy=cut[1])
        return made


def _plain(text: str) -> str:
    """The package takes no lone surrogates."""
    return text.encode("utf-8", "replace").decode()
