"""A question as query tools read it: tokens, the shape of what is asked, and the words that must be accounted for.

Words are judged strictly because a tool answers with a finished query: what is not a filler, not a value and not in a tool's own
vocabulary speaks of something that the tool does not do. A sign that is neither punctuation nor part of a word counts as a word.

INVARIANT: any text is read or refused, in time linear in its length (tests/sql/tools/test_tools.py::test_any_text_is_matched_or_not).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

MAX_CHARS = 500

Answer = Literal["list", "value", "yesno", "count"]

FILLERS = frozenset(
    """a all an any are at be by currently do does every for from got has have in is list me now of on our please right s so some
    still that the there to us we what which with
    """.split()
)
"""Words that add nothing: articles, auxiliary verbs, plain prepositions, and `still` and `now` of what is so today. Not among them:
`I` and `my`, which ask of one person's, `these` and `it`, which speak of what was said before, and `by` where no value follows."""

PAST = frozenset("been did had was were".split())
"""A tool answers what is so today: these are heard only where an example has them."""

NEGATIONS = frozenset("not no never without except excluding but none neither nor nobody nothing".split())
"""These turn a question round; bags of words would not notice."""

RANKING = frozenset(
    "first last newest oldest latest earliest most least highest lowest largest smallest biggest best worst top bottom".split()
)
"""Words of a description that say how a tool orders its rows; a question that uses them wants one row of these."""

_LONE = {
    "can't": "not",
    "cannot": "not",
    "won't": "not",
    "€": "euro",
    "eur": "euro",
    "$": "dollar",
    "usd": "dollar",
    "%": "percent",
}
_IGNORED = frozenset("?!.,:;()\"'`-\u2013\u2014\u2026\u00ab\u00bb\u201c\u201d#")
_TOKEN = re.compile(
    r"""\{(?P<slot>\w+)\}
      | "(?P<quoted>[^"]*)"
      | (?<![^\s(])'(?P<single>[^']*)'(?![^\s?!.,:;)])
      | (?P<day>\d{4}-\d{2}-\d{2}|\d{1,2}\.\d{1,2}\.\d{4})(?![\w-])
      | (?P<number>\d+(?:,\d+)*(?:\.\d+)?[km]?)(?![\w-]|\.\d)
      | (?P<word>\w+(?:['_/-]\w+)*)
      | (?P<minus>-(?=\d))
      | (?P<sign>\S)""",
    re.VERBOSE | re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:please |(?:can|could|would) (?:you|i|we) |(?:i|we) (?:would |d )?(?:need|want|like) (?:to )?|let me "
    r"|tell (?:me|us) |(?:know|see|find|check) (?:out )?|(?P<list>list) (?:me |us )?|(?:show|give|get|display|name) (?:me |us )?)*"
)
_VALUES = re.compile(r"(?:(?:\0|in|at|of|for|from|the|region) )*")
_SHAPES: tuple[tuple[str, tuple[Answer, ...]], ...] = (
    (r"how many |(?:what (?:is|s|are) )?(?:the )?(?:total )?number of |count (?:of )?", ("count",)),
    (r"how much |how (?:is|are) |when |where |what (?:is|was|s) the ", ("value",)),
    (r"(?:how|why) ", ()),
    (r"(?:which|what|whats|who|whose) ", ("list", "value")),
    (r"(?:is|are|was|were|has|have|had|do|does|did) ", ("yesno",)),
)
_COUNT_WORDS = re.compile(r"how many |(?:(?<= )|^)(?:number of|count) ")
_WH = re.compile(r"(?:(?<= )|^)(?:why|how|when|where|which|what|who|whose) ")
_SHAPE_WORDS = frozenset("how many much number count total".split())
RESERVED = (
    FILLERS | NEGATIONS | RANKING | PAST | _SHAPE_WORDS | frozenset("who whose when where why and or per each average".split())
)
"""Words of questions: a stored value that is made of these alone can be asked for in quotes only."""


@dataclass(frozen=True, slots=True)
class Token:
    """One word, number, quotation or sign. `word` is folded, `text` as it was written (without quotation marks)."""

    kind: Literal["word", "number", "day", "quoted", "slot", "sign"]
    text: str
    word: str


@dataclass(frozen=True, slots=True)
class Said:
    """What is left of a question once its values are taken out: possible shapes, content words in order, words of the past, and the
    text with names of parameters for their values."""

    shapes: frozenset[Answer]
    content: tuple[str, ...]
    past: frozenset[str]
    masked: str

    @property
    def head(self) -> str:
        """What is asked about, as a rule."""
        return self.content[0] if self.content else ""

    @property
    def negated(self) -> bool:
        return not NEGATIONS.isdisjoint(self.content)


def read_tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text; none where it is too long to be a question for a tool."""
    if len(text) > MAX_CHARS:
        return ()
    plain = unicodedata.normalize("NFC", text).translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'})
    tokens: list[Token] = []
    for match in _TOKEN.finditer(plain):
        kind = match.lastgroup or "sign"
        found = match[kind]
        if kind == "word":
            tokens += _words(found)
        elif kind in ("quoted", "single"):
            tokens.append(Token("quoted", found, found.casefold()))
        elif kind == "minus":
            tokens.append(Token("sign", found, "minus"))
        elif kind == "sign":
            if found not in _IGNORED:
                tokens.append(Token("sign", found, _LONE.get(found, found)))
        else:
            tokens.append(Token(kind, found, f"{{{found}}}" if kind == "slot" else found.casefold()))  # type: ignore[arg-type]
    return tuple(_numbered(tokens))


def _words(found: str) -> list[Token]:
    """Contractions and hyphens taken apart, unless it is an identifier: `on-hand` is two words, `PN-88213` is one."""
    low = found.casefold()
    if low in _LONE:
        return [Token("word", found, _LONE[low])]
    if low.endswith("n't"):
        return [Token("word", found[:-3], fold(low[:-3])), Token("word", "not", "not")]
    if any(char.isdigit() for char in found):
        return [Token("word", found, low)]
    return [Token("word", part, fold(part.casefold())) for part in re.split(r"['_/-]", found)]


def _numbered(tokens: list[Token]) -> list[Token]:
    """`depot no. 8` denies nothing."""
    after = [*tokens[1:], Token("sign", "", "")]
    return [
        Token("word", token.text, "number") if token.word in ("no", "nr") and follower.kind == "number" else token
        for token, follower in zip(tokens, after, strict=False)
    ]


def fold(word: str) -> str:
    """Lower case, without the s of plurals and of verbs; nothing else, since `open` and `opened` are two things."""
    if word in FILLERS or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "uses", "xes", "ches", "shes")) else word[:-1]


def fold_words(text: str) -> tuple[str, ...]:
    return tuple(token.word for token in read_tokens(text))


def is_content(word: str) -> bool:
    return word not in FILLERS and word not in PAST


def read_said(tokens: tuple[Token, ...], taken: dict[int, str]) -> Said:
    """`taken` says which tokens a parameter accounts for: its name for the value, nothing for the cue before it."""
    kept = [(at, token) for at, token in enumerate(tokens) if taken.get(at) != ""]
    parts = ["\0 " if at in taken else _heard(token) + " " for at, token in kept]
    whole = "".join(parts)
    lead = _LEAD.match(whole)
    start = lead.end() if lead else 0
    shapes = _shapes(whole[start:], listed=bool(lead and lead["list"]))
    content: list[str] = []
    offset = 0
    for (at, token), part in zip(kept, parts, strict=True):
        offset += len(part)
        if (
            at not in taken
            and offset > start
            and (is_content(token.word) or (token.word == "by" and not _before_value(tokens, at, taken)))
        ):
            content.append(token.word)
    if "count" in shapes or "how much " in whole[start:]:
        content = [word for word in content if word not in _SHAPE_WORDS]
    past = frozenset(token.word for at, token in kept if at not in taken and token.word in PAST)
    return Said(shapes, tuple(content), past, _masked(tokens, taken))


def _before_value(tokens: tuple[Token, ...], at: int, taken: dict[int, str]) -> bool:
    after = at + 2 if at + 1 < len(tokens) and tokens[at + 1].word == "the" else at + 1
    return after in taken


def _heard(token: Token) -> str:
    """As the patterns of shapes know it: a word in lower case, all else a stop."""
    return re.sub(r"[\s\0]", "_", token.text.casefold()) or "_" if token.kind == "word" else "_"


def _shapes(rest: str, *, listed: bool) -> frozenset[Answer]:
    """From how the question begins, values aside; a clause with a question word later on says it where the beginning does not."""
    begin = _VALUES.match(rest)
    tail = rest[begin.end() :] if begin else rest
    if (shapes := _asked(tail)) is not None:
        return shapes
    if _COUNT_WORDS.search(rest):
        return frozenset({"count"})
    if later := _WH.search(rest):
        return _asked(rest[later.start() :]) or frozenset()
    return frozenset({"list"}) if listed else frozenset({"list", "value"})


def _asked(text: str) -> frozenset[Answer] | None:
    return next((frozenset(shapes) for pattern, shapes in _SHAPES if re.match(pattern, text)), None)


def _masked(tokens: tuple[Token, ...], taken: dict[int, str]) -> str:
    words: list[str] = []
    for at, token in enumerate(tokens):
        name = taken.get(at)
        if name:
            if not words or words[-1] != name:
                words.append(name)
        else:
            words.append(token.text)
    return " ".join(words)
