"""Turns of phrase: questions that say with a verb, or at their end, what the planner reads as a noun with its "of".

"What is the stock worth in each region?" asks for the value of the stock in each region, "What do the open claims add up to?" for
their total amount, and "on average" at the end is an average of what was asked for. Words are moved and joints put in; no word is
taken away, and each keeps its own spelling. A turn is tried only where the question as it stands is no plan, and what comes of it
is held to everything that any plan is held to. Two turns that mean different things are asked back.

INVARIANT: a turn drops no word of the question (tests/sql/planner/test_plan_turns.py::test_a_turn_keeps_every_word).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from router.sql.planner.index import Index
from router.sql.planner.literals import doer, doers
from router.sql.planner.tokens import Token, name_words
from router.sql.planner.words import SHARES, past

Tokens = tuple[Token, ...]
Turn = Callable[[Tokens, Index], Iterator[Tokens]]

MOST_TURNS = 8

_ARTICLES = frozenset("a an the".split())
_NOUNS: dict[str, tuple[str, ...]] = {
    "cost": ("cost", "price"), "costs": ("cost", "price"), "weigh": ("weight",), "earn": ("salary", "wage", "income", "earnings"),
    "last": ("duration", "length"), "measure": ("size", "length"), "charge": ("fee", "price"), "hold": ("capacity",),
}  # fmt: skip
"""What a verb measures, as a noun."""
_TAKING = frozenset(
    "take takes have has cost costs need needs require requires last lasts weigh weighs spend spends use uses".split()
)
_GREETINGS = ("good morning", "good afternoon", "good evening", "good day", "hello", "hi", "hey", "dear all")
_THANKS = ("thank you very much", "many thanks", "thanks a lot", "thank you", "thanks", "cheers")
_ADDING = ("add up to", "sum up to", "come to", "amount to", "add up", "total")
_GROUPING = ("per", "by", "for each", "in each", "at each", "of each", "each", "for every", "in every")
_ASKING = (
    "what is",
    "what are",
    "what was",
    "what were",
    "how much is",
    "how much are",
    "show",
    "show me",
    "give me",
    "tell me",
    "list",
)
_SIZES = frozenset("much high large big long great low small".split())
_ONE_FIELD = re.compile(r"\s*SUM\s*\(\s*[\w.\"]+\s*\)\s*", re.IGNORECASE)


def turned(tokens: Sequence[Token], index: Index) -> list[Tokens]:
    """Other ways to put the question, the nearest first; none of them is the question as it stands."""
    found: dict[Tokens, None] = {tuple(tokens): None}
    for turn in (
        _polite,
        _exists,
        _sized,
        _costing,
        _lasting,
        _taking,
        _worth,
        _placed,
        _done_by,
        _happened,
        _adding,
        _shared,
        _averaged,
    ):
        for one in list(found):
            for other in turn(one, index):
                if len(found) <= MOST_TURNS:
                    found.setdefault(other)
    return list(found)[1:]


# --- looking ------------------------------------------------------------------------------------------------------------------


def _at(tokens: Tokens, at: int, phrases: Sequence[str]) -> int:
    """The number of tokens of the longest of the phrases that stands here, or 0."""
    best = 0
    for phrase in phrases:
        words = phrase.split()
        if len(words) > best and [token.low for token in tokens[at : at + len(words)]] == words:
            best = len(words)
    return best


def _joint(word: str) -> Token:
    """A word that joins what was moved; nobody said it."""
    return Token(word, word, word, "word", said="")


def _said(tokens: Sequence[Token], word: str) -> Token:
    """Another word in the place of some, spelled as they are."""
    return Token(word, word, word, "word", said=" ".join(token.spelled for token in tokens))


def _names(tokens: Tokens, at: int, index: Index) -> int:
    """The number of tokens of the longest name of a field or metric that is no dataset's."""
    best = 0
    words: tuple[str, ...] = ()
    for size, token in enumerate(tokens[at : at + 10], start=1):
        words = (*words, token.lemma)
        meaning = index.phrases.get(words)
        if meaning is not None and not meaning.datasets and (meaning.fields or meaning.metrics or meaning.partial):
            best = size
    return best


def _bare(token: Token) -> bool:
    return token.low in ("?", ".", ",")


def _ends(tokens: Tokens, at: int) -> bool:
    """Whether the question ends here, or goes on with groups only."""
    while at < len(tokens) and _bare(tokens[at]):
        at += 1
    return at >= len(tokens) or _at(tokens, at, _GROUPING) > 0


# --- turns --------------------------------------------------------------------------------------------------------------------


def _polite(tokens: Tokens, _: Index) -> Iterator[Tokens]:
    """ "Hi, how many …", "… Thanks!": said to somebody and not of anything."""
    begin = _at(tokens, 0, _GREETINGS)
    rest = tokens[begin:]
    while begin and rest and rest[0].low in (",", "!", "."):
        rest = rest[1:]
    end = next((at for at in range(1, len(rest)) if (size := _at(rest, at, _THANKS)) and _over(rest, at + size)), len(rest))
    kept = rest[:end]
    if kept and len(kept) < len(tokens):
        before, after = tokens[: len(tokens) - len(rest)], rest[end:]
        yield (*_quiet(before), *kept, *_quiet(after))


def _quiet(tokens: Tokens) -> Tokens:
    return (_said(tokens, "please"),) if tokens else ()


def _over(tokens: Tokens, at: int) -> bool:
    return all(token.low in (",", "!", ".", "?") for token in tokens[at:])


def _sized(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "How high is the reserve of …": what is it."""
    if len(tokens) > 4 and tokens[0].low == "how" and tokens[1].low in _SIZES and tokens[2].low in ("is", "are", "was", "were"):
        at = 4 if tokens[3].low in _ARTICLES else 3
        if _names(tokens, at, index):
            yield (_said(tokens[:2], "what"), *tokens[2:])


def _goes_on(tokens: Tokens, at: int) -> bool:
    """Whether what follows says where, when or by what, and not what for."""
    return at >= len(tokens) or _bare(tokens[at]) or _ends(tokens, at) or tokens[at].low in ("in", "at", "on", "from")


def _costing(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "What does a belt cost": the cost, or else the price, of a belt."""
    begin = _at(tokens, 0, ("what does", "what do", "how much does", "how much do"))
    verb = next((at for at in range(begin + 1, len(tokens)) if tokens[at].low in _NOUNS), 0) if begin else 0
    if not verb or not _goes_on(tokens, verb + 1):
        return
    for noun in _NOUNS[tokens[verb].low]:
        if (noun,) in index.phrases:
            yield _of(tokens[:begin], _said(tokens[verb : verb + 1], noun), tokens[begin:verb], tokens[verb + 1 :])


def _of(asked: Tokens, noun: Token, whose: Tokens, rest: Tokens) -> Tokens:
    """ "What is <noun> of <whose> <rest>"."""
    return (_said(asked, "what"), _joint("is"), noun, _joint("of"), *whose, *rest)


def _taking(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "How many hours does an approval take on average": the average of a number that rows have. Without an average said it may be
    any row's."""
    begin = _at(tokens, 0, ("how many", "how much"))
    size = _names(tokens, begin, index) if begin else 0
    whose = begin + size + 1
    if not size or whose >= len(tokens) or tokens[whose - 1].low not in ("do", "does"):
        return
    verb = next((at for at in range(whose + 1, len(tokens)) if tokens[at].low in _TAKING), 0)
    if verb and _goes_on(tokens, verb + 1) and _average_at(tokens, verb + 1):
        field = tokens[begin : begin + size]
        asked = _said(tokens[:begin], "what")
        said = _said((tokens[whose - 1], tokens[verb]), "please")
        yield (asked, _joint("is"), said, *field, _joint("of"), *tokens[whose:verb], *tokens[verb + 1 :])


def _lasting(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "How long does an approval take": the approval time, where there is such a metric; or its average, where that is said."""
    begin = _at(tokens, 0, ("how long does", "how long do"))
    verb = next((at for at in range(begin + 1, len(tokens)) if tokens[at].low in ("take", "last")), 0) if begin else 0
    if not verb or not _goes_on(tokens, verb + 1):
        return
    whose = tuple(token for token in tokens[begin:verb] if token.low not in _ARTICLES)
    called = {noun: index.phrases.get((*(token.lemma for token in whose), noun)) for noun in ("time", "duration")}
    metrics = [noun for noun, meaning in called.items() if meaning is not None and meaning.metrics]
    fields = [
        noun for noun, meaning in called.items() if meaning is not None and meaning.fields and _average_at(tokens, verb + 1)
    ]
    for noun in (metrics or fields)[:1]:
        asked, lasts = _said(tokens[:begin], "what"), _said(tokens[verb : verb + 1], noun)
        yield (asked, _joint("is"), *tokens[begin:verb], lasts, *tokens[verb + 1 :])


def _exists(tokens: Tokens, _: Index) -> Iterator[Tokens]:
    """ "Are there any open claims in West", "do we have light curtains": how many there are says both."""
    begin = _at(tokens, 0, ("is there", "are there", "do we have", "have we got", "do you have"))
    after = begin + int(begin > 0 and _at(tokens, begin, ("any", "a", "an", "some")) > 0)
    if (
        begin
        and after < len(tokens)
        and tokens[after].low not in ("no", "not", "only", "more", "at", "one", "another", "other", "enough")
    ):
        yield (_said(tokens[:after], "how"), _joint("many"), *tokens[after:])


def _placed(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "Where is depot 3": the place of a depot, where depots have one."""
    begin = _at(tokens, 0, ("where is", "where are"))
    if not begin or any(_at(tokens, at, ("and", "or", "not", "no")) for at in range(len(tokens))):
        return
    at = begin + int(tokens[begin].low in _ARTICLES) if begin < len(tokens) else begin
    meaning = index.phrases.get((tokens[at].lemma,)) if at < len(tokens) else None
    owner = next(iter(meaning.datasets)) if meaning is not None and len(meaning.datasets) == 1 else ""
    for noun in ("place", "location", "address", "city", "town"):
        place = index.phrases.get((noun,))
        if owner and place is not None and 1.0 in place.fields.get(owner, {}).values():
            yield (_said(tokens[:1], "what"), tokens[1], _joint(noun), _joint("of"), *tokens[begin:])


def _done_by(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "Who reported claim 7": the reporter of it, where the catalogue has one."""
    done = tokens[1].low if len(tokens) > 2 and tokens[0].low == "who" else ""
    if doer(done, index) is not None and (tokens[2].low in _ARTICLES or _first_dataset(tokens[2:3], index)):
        noun = next(who for who in doers(done) if (who,) in index.phrases)
        yield (_said(tokens[:1], "what"), _joint("is"), _said(tokens[1:2], noun), _joint("of"), *tokens[2:])


def _worth(tokens: Tokens, _: Index) -> Iterator[Tokens]:
    """ "What is the stock worth in each region": the value of it."""
    begin = _at(tokens, 0, ("what is", "what are", "how much is", "how much are"))
    at = next((at for at in range(begin + 1, len(tokens)) if tokens[at].low == "worth"), 0) if begin else 0
    if at and _goes_on(tokens, at + 1):
        yield _of(tokens[:begin], _said(tokens[at : at + 1], "value"), tokens[begin:at], tokens[at + 1 :])


def _happened(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "When did Ada join": when was she joined, as the time is called."""
    if _at(tokens, 0, ("when did",)):
        for at in range(3, len(tokens)):
            for done in past(tokens[at].low):
                meaning = index.phrases.get((done,))
                keys = [(owner, name) for owner, names in (meaning.fields if meaning else {}).items() for name in names]
                if keys and all(index.info[key].time for key in keys):
                    was, happened = _said(tokens[1:2], "was"), _said(tokens[at : at + 1], done)
                    yield (tokens[0], was, *tokens[2:at], happened, *tokens[at + 1 :])


def _adding(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "What do the claims of May add up to": the one sum that the catalogue has of them, or their amount."""
    begin = _at(tokens, 0, ("what do", "what does", "how much do", "how much does", "what did", "how much did"))
    for at in range(begin + 1, len(tokens)) if begin else ():
        size = _at(tokens, at, _ADDING)
        if size and _ends(tokens, at + size):
            owner = _first_dataset(tokens[begin:at], index)
            summed = _sum_of(owner, index) if owner else ()
            if summed:
                said = _said(tokens[at : at + size], "please")
                noun = tuple(_joint(word) for word in summed)
                asked = (_said(tokens[:begin], "what"), _joint("is"), said)
                yield (*asked, *noun, _joint("for"), *tokens[begin:at], *tokens[at + size :])
            return


def _first_dataset(tokens: Tokens, index: Index) -> str:
    for token in tokens:
        meaning = index.phrases.get((token.lemma,))
        if meaning is not None and len(meaning.datasets) == 1:
            return next(iter(meaning.datasets))
    return ""


def _sum_of(owner: str, index: Index) -> tuple[str, ...]:
    """The words of the only metric that adds up one field of these rows; else of the field that is their amount."""
    metrics = [
        one for one in index.catalog.metrics if _ONE_FIELD.fullmatch(one.expression) and index.metric_homes.get(one.name) == owner
    ]
    if metrics:
        return name_words(metrics[0].name) if len(metrics) == 1 else ()
    meaning = index.phrases.get(("amount",))
    fields = [name for name, weight in (meaning.fields.get(owner, {}) if meaning else {}).items() if weight == 1.0]
    return ("total", "amount") if len(fields) == 1 and index.info[owner, fields[0]].numeric else ()


def _shared(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "Which share of the claims is open": the share of open claims, where there is such a metric."""
    at = next((at for at, token in enumerate(tokens) if token.low in SHARES), -1)
    if at < 0 or at + 2 >= len(tokens) or tokens[at + 1].low != "of":
        return
    state = next((i for i in range(at + 3, len(tokens)) if tokens[i].low in ("is", "are", "was", "were")), 0)
    if state:
        size = next((n for n in (3, 2, 1) if _is_state(tokens[state + 1 : state + 1 + n], n, index)), 0)
        if not size or not _ends(tokens, state + 1 + size):
            return
        whose = tokens[at + 2 : state]
        said = _said(tokens[state : state + 1], "please")
        tokens = (*tokens[: at + 2], *tokens[state + 1 : state + 1 + size], *whose, said, *tokens[state + 1 + size :])
    for word in (tokens[at].low, "share", "percentage", "proportion", "rate"):
        if _metric_of(word, tokens[at + 1 :], index):
            yield (*tokens[:at], _said(tokens[at : at + 1], word), *tokens[at + 1 :])
            return


def _is_state(tokens: Tokens, size: int, index: Index) -> bool:
    return len(tokens) == size and tuple(token.low for token in tokens) in index.values


def _metric_of(word: str, tokens: Tokens, index: Index) -> bool:
    """Whether a metric is called "<word> of …" as the tokens go on."""
    words: tuple[str, ...] = (word,)
    for token in tokens[:10]:
        words = (*words, token.lemma) if token.low not in _ARTICLES else words
        meaning = index.phrases.get(words)
        if meaning is not None and meaning.metrics:
            return True
    return False


def _average_at(tokens: Tokens, begin: int = 0) -> tuple[int, int] | None:
    for at in range(begin, len(tokens)):
        size = _at(tokens, at, ("on average", "on an average", "in the mean", "on the average"))
        if size:
            return at, size
    return None


def _averaged(tokens: Tokens, index: Index) -> Iterator[Tokens]:
    """ "What is the amount of paid claims on average": the average amount."""
    found = _average_at(tokens)
    if found is None:
        return
    at, size = found
    size += int(at == 0 and len(tokens) > size and tokens[size].low == ",")
    rest = (*tokens[:at], *tokens[at + size :])
    begin = _at(rest, 0, _ASKING)
    while begin < len(rest) and (rest[begin].low in _ARTICLES or rest[begin].low in ("please", "is")):
        begin += 1
    if begin < len(rest) and _names(rest, begin, index):
        yield (*rest[:begin], _said(tokens[at : at + size], "average"), *rest[begin:])
