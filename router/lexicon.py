"""Words as the lexical leg and the reranker see them: stop words, identifiers, and text with identifiers taken apart.

One definition serves indexing and asking in every store, so that `max_retry_count`, `maxRetryCount` and "max retry
count" meet, and `ERR-4012` is found whole and in parts. Measured on code: +14 points nDCG@10 for the lexical leg.
Codes (part numbers, error codes, incident and claim numbers) are told by their shape alone, for what documents are linked by.

INVARIANT: each function takes time linear in its text (tests/unit/test_lexicon.py::test_hostile_text_takes_linear_time).
INVARIANT: a code has one name however it is joined: `PN-88213`, `pn 88213` and `PN88213` are one (…::test_a_code_has_one_name).
"""

from __future__ import annotations

import itertools
import re

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by can could
    did do does doing down during each few for from further had has have having he her here hers him his how i if in into is it
    its itself just me more most my myself no nor not now of off on once only or other our ours out over own same she should so
    some such than that the their theirs them then there these they this those through to too under until up us very was we were
    what when where which while who whom why will with would you your yours
    """.split()
)

_COMPOUND = re.compile(r"[A-Za-z0-9]+(?:[_.\-/:]+[A-Za-z0-9]+)*")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_JOINT = re.compile(r"[_\-]")


def identifiers(text: str) -> list[str]:
    """Tokens that name something exactly, lower case, in order and once each: `err-4012`, `max_retry_count`, `4012`."""
    found = (match.group().lower() for match in _COMPOUND.finditer(text) if _is_identifier(match.group()))
    return list(dict.fromkeys(found))


def _is_identifier(token: str) -> bool:
    digits = sum(char.isdigit() for char in token)
    if digits:
        return digits >= 3 or any(char.isalpha() for char in token)
    return "_" in token or any(low.islower() and up.isupper() for low, up in itertools.pairwise(token))


_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def apart(text: str) -> str:
    """`maxRetryCount` and `max_retry_count` as words, for a model that knows words only."""
    return _INNER_CAPITAL.sub(" ", text).replace("_", " ")


def expand(text: str) -> str:
    """`text` with each compound followed by what it is made of, for an index that splits at everything but letters and digits.

    A compound that mixes letters with digits, underscores or inner capitals is written whole without its joints, then in
    parts (`PDFs` too: its parts alone would never meet `pdfs`); all other text stays as it is.
    """
    return _COMPOUND.sub(_expand_one, text)


def _expand_one(match: re.Match[str]) -> str:
    token = match.group()
    if token.isalpha() and (token.islower() or token.isupper() or token[1:].islower()):
        return token
    out: list[str] = []
    for piece in re.split(r"[./:]+", token):
        parts = _PARTS.findall(piece)
        whole = _JOINT.sub("", piece)
        if len(parts) > 1 and (piece.isalpha() or _is_identifier(piece)):
            out.append(whole)
        out.extend(parts)
    return " ".join(out)


# --- codes ------------------------------------------------------------------------------------------------------------

_RUNS = re.compile(r"[^\W\d_]+|\d+")
_CODE = re.compile(r"(?<![A-Za-z0-9_-])[A-Z][A-Z0-9]{0,11}(?:[-_][A-Z0-9]{1,12}){0,3}(?![A-Za-z0-9_]|-[A-Za-z0-9])")
_ASKED = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z]{1,8}(?:[ _-]?\d{1,8}){1,3}(?:-[A-Za-z]{1,2})?(?![A-Za-z0-9_]|-[A-Za-z0-9])")
"""As people type them into a question: in small letters, with a blank for the joint."""
_NUMBERED = re.compile(
    r"\b(incident|ticket|claim|case|order|invoice|part|error|fault|alarm|bulletin|notice|request|change|batch|lot|serial)"
    r"( (?:no\.?|nr\.?|number|id))? ?(#?)(\d{3,10})(?![\w%]|[.,]\d)",
    re.IGNORECASE,
)
_PERIOD = re.compile(
    r"[^\W\d_]{4,}-(?:19|20)\d\d|(?:q-[1-4]|h-[12]|fy|cy|jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)-(?:\d\d|(?:19|20)\d\d)(?:-\d+)?"
)
_MOST_CODE_CHARS, _MOST_REVISION_CHARS = 28, 2
_LEAST_DIGITS, _LEAST_DIGITS_UNJOINED = 2, 3


def code_name(text: str) -> str:
    """The one name of a code, product or person however it is spelled: runs of letters and of digits, joined by hyphens."""
    return "-".join(_RUNS.findall(text.casefold()))


def read_codes(text: str) -> list[str]:
    """Names of the codes that a text writes as codes, in order and once each: capitals with at least two digits and a joint, or with
    three digits and none (`M10` is a thread), and a thing with its number (`claim 10042`). No list of prefixes is kept."""
    found: list[tuple[int, str]] = []
    for match in _CODE.finditer(text):
        head, *tail = re.split(r"[-_]", match.group())
        kept = [head, *itertools.takewhile(_is_part, tail)]
        token, name = "".join(kept), code_name("-".join(kept))
        least = _LEAST_DIGITS if len(kept) > 1 else _LEAST_DIGITS_UNJOINED
        if sum(char.isdigit() for char in token) >= least and len(token) <= _MOST_CODE_CHARS and not _PERIOD.fullmatch(name):
            found.append((match.start(), name))
    found += [(match.start(), name) for match in _NUMBERED.finditer(text) if (name := _numbered(match))]
    return list(dict.fromkeys(name for _, name in sorted(found)))


def _is_part(segment: str) -> bool:
    """Behind the first one: digits, or the letter or two of a revision. `CX-400-OPERATOR` is `CX-400`."""
    return len(segment) <= _MOST_REVISION_CHARS or any(char.isdigit() for char in segment)


def _numbered(match: re.Match[str]) -> str:
    """`order 2024` may be a year, `order #2024` is none."""
    thing, said, sign, number = match.groups()
    is_year = len(number) == 4 and number[:2] in ("19", "20") and not said and not sign
    return "" if is_year else f"{thing.lower()}-{number}"


def read_asked_codes(question: str) -> list[str]:
    """What of a question may be a code; whether it is one, the caller's own documents say."""
    loose = (
        code_name(match.group()) for match in _ASKED.finditer(question) if sum(map(str.isdigit, match.group())) >= _LEAST_DIGITS
    )
    return list(dict.fromkeys((*read_codes(question), *loose)))
