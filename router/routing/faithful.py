"""Whether a question that a model wrote in full says what was asked, and nothing that nobody said.

A model is asked what a follow-up means; its sentence is then read as if the caller had typed it. So each of its words must stand in
the caller's own questions, but for articles and the like; what the follow-up says must all be there; and a number, a negation or a
comparison may neither lose its word nor get another. What does not pass is not mended: the line goes on as without a model.

INVARIANT: no word, number, identifier or sign enters that stands in none of the questions
(tests/unit/test_routing_faithful.py::test_nothing_enters_that_nobody_said).
INVARIANT: what is denied or compared stays denied or compared as it was (…::test_negations_and_comparisons_stay_as_they_were).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from router.routing.follow_up import leans

MAX_CHARS, MAX_WORDS = 1_000, 60

_GLUE = frozenset("a an the of in on at for is are was were be been do does did has have had there that which what and".split())
"""All that may be added: it names nothing, compares nothing and denies nothing."""
_SPARED = frozenset(
    """it its they them their theirs those these this he she him his her hers one ones thing things about same instead too also again
    so ok okay but now then well right alright please just rather as make show tell me us i we you can could would""".split()
)
"""What a follow-up may say beside what it asks: words that point back, and lead-ins."""
_NEGATIONS = frozenset("not no never none nor neither without except excluding besides unlike".split())
_OPERATORS = _NEGATIONS | frozenset(
    "than over above under below more less fewer least most before after since until between exactly only other up".split()
)
_SIGNS = frozenset("?.,")
_TOKEN = re.compile(r"[^\W_]+(?:[-_./:,'&+#][^\W_]+)*")
_WORD = re.compile(r"(?:[^\W\d_]+(?:[-'][^\W\d_]+)*)?")
_ABOUT = re.compile(r"\b(?:what|how) about\b")


def accept_whole(earlier: Sequence[str], question: str, whole: str) -> str | None:
    """`whole` where it may be read in place of `question`, asked after the `earlier` ones, oldest first; else None."""
    text = " ".join(whole.split())
    if not text or len(text) > MAX_CHARS or len(text.split()) > MAX_WORDS or not text.isprintable() or leans(text):
        return None
    given = "\n".join((*earlier, question))
    said, new, asked = _tokens(given), _tokens(text), _tokens(_ABOUT.sub(" ", _plain(question)))
    known = _roots(said)
    if {char for char in text if not char.isalnum() and not char.isspace()} - _SIGNS - set(given) or _odd(text) - _odd(given):
        return None
    if any(not _stands(token, known) for token in new if token not in _GLUE):
        return None
    there = _roots(new)
    if any(not _stands(token, there) for token in asked if token not in _GLUE and token not in _SPARED):
        return None
    bound = set(_bound(new))
    return text if bound <= set(_bound(said)) and set(_kept(earlier, asked)) <= bound else None


def _kept(earlier: Sequence[str], asked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the questions before deny and count, back to the last whole one, unless a later one denies or counts by itself."""
    later = list(asked)
    for one in reversed(earlier):
        denies, counts = any(token in _NEGATIONS for token in later), any(_is_exact(token) for token in later)
        tokens = _tokens(one)
        for run, word in _bound(tokens):
            denied = any(token in _NEGATIONS for token in run.split())
            if (denied and not denies) or (_is_exact(word) and not counts and not denied):
                yield run, word
        if not leans(one):
            return
        later += tokens


def _odd(text: str) -> set[str]:
    """What stands between spaces and is more than a word: `-5`, `5%`, a word in quotes. Such things have one spelling."""
    chunks = (chunk.strip("?.,!;:()") for chunk in _plain(text).split())
    return {chunk for chunk in chunks if not _WORD.fullmatch(chunk)}


def _bound(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each number with the comparison or negation before it, where there is one; each other word only with one."""
    run: list[str] = []
    for token in tokens:
        if token in _OPERATORS:
            run.append(token)
        elif token not in _GLUE:
            if run or _is_exact(token):
                yield " ".join(run), token if _is_exact(token) else min(_forms(token))
            run = []
    if run:
        yield " ".join(run), ""


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    text = text.replace("cannot", "can not").replace("can't", "can not").replace("won't", "will not")
    return re.sub(r"n't\b", " not", text)


def _tokens(text: str) -> list[str]:
    return [token.removesuffix("'s") for token in _TOKEN.findall(_plain(text))]


def _is_exact(token: str) -> bool:
    """Numbers and identifiers, which have no other form."""
    return any(char.isdigit() for char in token)


def _forms(token: str) -> frozenset[str]:
    """With its singular: the plural of a word says nothing new."""
    if _is_exact(token) or len(token) < 4 or not token.endswith("s") or token.endswith("ss"):
        return frozenset({token})
    if token.endswith("ies"):
        return frozenset({token, token[:-3] + "y"})
    return frozenset({token, token[:-1], token[:-2]} if token.endswith("es") else {token, token[:-1]})


def _roots(tokens: Sequence[str]) -> frozenset[str]:
    return frozenset(form for token in tokens for form in _forms(token))


def _stands(token: str, known: frozenset[str]) -> bool:
    return token in known or bool(_forms(token) & known)
