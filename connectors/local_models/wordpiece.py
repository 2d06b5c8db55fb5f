"""BERT's own tokenizer in plain Python, so that a model with a vocab.txt needs no package beside the runtime.

INVARIANT: word pieces are BERT's own, for any text (tests/unit/test_local_models.py::test_any_text_gives_the_word_pieces_of_bert).
INVARIANT: text cannot inject special tokens: `[MASK]` in a document is brackets and a word (…::test_special_tokens_are_text).

WordPiece after Devlin et al. 2019.
"""

from __future__ import annotations

import functools
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from router.lexicon import STOP_WORDS

LONGEST_WORD = 100  # as BERT has it: a longer word is unknown
LONGEST_KEPT = 64
_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs"})
_NO_SPACE = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))  # white space to Python, control characters to BERT


@dataclass(frozen=True, slots=True)
class Reading:
    """How a vocabulary wants its text: letters lowered, accents off, each Chinese character a word."""

    lowered: bool = True
    without_accents: bool = True
    chinese_apart: bool = True


class WordPiece:
    """BERT's tokenizer over vocab.txt, in plain Python. Uncased unless `reading` says otherwise."""

    def __init__(self, vocabulary: Path | str, reading: Reading = Reading()) -> None:
        """From a file, or from its text."""
        text = vocabulary if isinstance(vocabulary, str) else vocabulary.read_text(encoding="utf-8")
        self._pieces = text.split("\n")
        if self._pieces[-1] == "":
            self._pieces.pop()
        self._reading = reading
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._unknown, self._start, self._end = (self._ids[piece] for piece in ("[UNK]", "[CLS]", "[SEP]"))
        self._run = functools.lru_cache(maxsize=50_000)(self._split_run)
        self._word = functools.lru_cache(maxsize=50_000)(self._split_word)

    @property
    def size(self) -> int:
        return len(self._pieces)

    def unspoken(self) -> npt.NDArray[np.bool_]:
        """True for ids that carry no content of their own: specials, punctuation, stop words."""
        return np.array([is_unspoken(piece) for piece in self._pieces])

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids with the two special tokens, cut at `limit`."""
        room = limit - 2
        ids: list[int] = []
        for run in _runs(text):
            ids.extend(self._pieces_of(run))
            if len(ids) >= room:
                break
        return [self._start, *ids[:room], self._end]

    def encode_pair(self, first: str, second: str, limit: int) -> tuple[list[int], list[int]]:
        """Ids of both between special tokens, and which text each belongs to. The second is cut; the first where it is over half."""
        one = self.encode(first, max(2, limit // 2))
        two = self.encode(second, limit - len(one) + 1)[1:]
        return [*one, *two], [0] * len(one) + [1] * len(two)

    def count(self, text: str) -> int:
        return sum(len(self._pieces_of(run)) for run in _runs(text))

    def _pieces_of(self, run: str) -> tuple[int, ...]:
        """Only words are remembered: text without spaces would fill the memory (…::test_long_text_is_not_kept)."""
        return self._run(run) if len(run) <= LONGEST_KEPT else self._split_run(run)

    def _split_run(self, run: str) -> tuple[int, ...]:
        """One run without white space: clean, fold accents and case, cut at punctuation and CJK, then into pieces."""
        cleaned = "".join(
            f" {char} " if self._reading.chinese_apart and _is_cjk(ord(char)) else char
            for char in run
            if char != "\ufffd" and unicodedata.category(char) not in _DROPPED
        )
        ids: list[int] = []
        for word in _words(self._fold(cleaned)):
            ids.extend(self._word(word) if len(word) <= LONGEST_WORD else (self._unknown,))
        return tuple(ids)

    def _fold(self, cleaned: str) -> str:
        folded = cleaned
        if self._reading.without_accents:
            folded = "".join(char for char in unicodedata.normalize("NFD", cleaned) if unicodedata.category(char) != "Mn")
        if not self._reading.lowered:
            return folded
        # BERT lowers each letter by itself; Python knows the final sigma.
        return folded.lower() if "Σ" not in folded else "".join(map(str.lower, folded))

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


def is_unspoken(piece: str) -> bool:
    """Whether a piece says nothing by itself: a special token, punctuation, a stop word."""
    return (
        piece in STOP_WORDS
        or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2)
        or all(map(_is_punctuation, piece))
    )


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
