"""What the heads see of a question besides its embedding: cues, shape numbers, patterns and hashed words.

Nothing here knows a source, a dataset or a stored value: features come of the question's text alone, so what is or is not
granted cannot move them. The table of cues is the model: its order is the order of the weights (router/model/ROUTE.md).

INVARIANT: the features are the ones that the weights were trained on, to the last bucket
(tests/unit/test_routing_features.py::test_equal_the_frozen_ones).
INVARIANT: at most `CHARS` characters are looked at, so no text makes a pattern run long
(…::test_a_long_text_costs_what_its_beginning_costs).
"""

from __future__ import annotations

import itertools
import re
import zlib

CHARS = 1_000
"""The longest question of the training data has 522; the embedder reads 256 tokens."""
PATTERN_BUCKETS, WORD_BUCKETS = 2_048, 8_192

_SUPERLATIVES = (
    "most|least|highest|lowest|largest|smallest|biggest|maximum|minimum|max|min|best|worst|top|bottom|longest|shortest|oldest"
    "|youngest|latest|earliest|newest|greatest|fewest|cheapest|fastest|slowest"
)
_COMPARING = r"more|less|fewer|greater|higher|lower|larger|smaller|older|younger|above|below|over|under|exceed\w*|at least|at most|between|than"
_LISTING = (
    "list|show|give|find|display|return|select|get|report|retrieve|fetch|provide|name|identify|calculate|compute|determine|count"
    "|rank|sort|compare|plot|tabulate"
)
_GROUPING = (
    r"per|for each|each|every|by (the )?\w+|grouped?|breakdown|broken down|distribution|trend|over time|ranked?|sort(ed)?"
    r"|order(ed)? by|descending|ascending|alphabetical\w*"
)
_EXPLAINING = (
    r"explain|describe|summari[sz]e|summary|overview|tell me about|define|definition|meaning|means?|difference between"
    r"|what is meant|elaborate|discuss|guidance|best practice\w*|advantages?|risks?"
)
_POLICY = (
    "polic(y|ies)|rules?|guidelines?|guide|procedure|process|manual|handbook|agreement|contract|clause|terms?|regulations?"
    "|documentation|docs?|document|section|chapter|article|compliance|permitted|allowed|prohibited|required|requirement|eligible"
    "|according to|stated?|says?"
)
_TROUBLE = r"error|fail(s|ed|ure)?|issue|problem|fix|troubleshoot|not work(ing)?|exception|crash|unable|cannot|can't|won't"
_TECHNICAL = (
    "python|java|javascript|sql|api|code|function|class|method|module|library|install|configure|configuration|setup|deploy|file"
    "|string|list|json|csv|xml|server|client|endpoint|database|query|script|parse|convert"
)
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december|q[1-4]"
_COMMANDS = (
    "set|play|turn|send|call|add|delete|remove|cancel|book|order|remind|open|start|write|translate|tell|sing|switch|stop|pause"
    "|resume|put|make|create|shut|wake|dim|mute|skip|increase|decrease|lower|raise|change|speak|text|message|dial|post|tweet|buy"
    "|email|schedule|snooze|shuffle|repeat|disable|enable|save|rate|move|clear|rename|schedule"
)
_DEVICES = (
    "alarm|timer|reminder|remind|song|music|playlist|radio|lights?|volume|weather|joke|podcast|album|calendar|pizza|taxi|uber"
    "|phone|speaker|lamp|coffee|movie|restaurant|shopping list|message"
)
_GREETINGS = (
    "hi|hello|hey|thanks|thank you|thx|bye|goodbye|good (morning|evening|night|afternoon)|please|sorry|ok|okay|yes|yeah|no|nope"
    "|cool|great|awesome|lol|haha|nice|wow|yep|sure"
)
_OPENERS = (
    "hi|hello|hey|thanks|thank|thx|bye|good|ok|okay|yes|yeah|no|nope|cool|great|awesome|nice|wow|sure|well|oh|that|it|i|you"
    "|don't|do not"
)
_PERSONAL = (
    "are you|do you|you are|you're|your (name|favou?rite|age|boss|job)|who made you|can you|did you|have you|will you|i love"
    "|i like|i hate|i feel|i am|i'm|let's|talk to me"
)
_SECOND_ASK = (
    "how|what|why|who|which|where|when|is|are|does|do|should|can|list|show|find|give|tell|also|count"  # after "and", "plus" …
)
_BY_THE_BOOK = (
    r"according to|as (defined|stated|set|described) (in|by)|set (by|in|out)|defined (in|by)|under the|in line with|comply"
    r"|complies|breach|within the|meet(s)? the|allowed|limit|threshold|target|definition"
)
_BUSINESS = (
    "revenue|sales|profit|cost|costs|price|salary|amount|balance|budget|margin|income|customers?|employees?|orders?|products?"
    "|patients?|students?|department|region|country|countries|state|city|team|players?|score|population|id|ids|date|name|names"
    "|type|status|quantity|value|transactions?|users?"
)

CUES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("howmany", r"\b(how many|number of|no\. of|count of|count|how often|how many times)\b"),
        ("howmuch", r"\bhow much\b"),
        ("total", r"\b(total|sum|overall|altogether|combined|aggregate)\b"),
        ("avg", r"\b(average|avg|mean|median|per cent|percent|percentage|share of|proportion|ratio|rate)\b|%"),
        ("superl", rf"\b({_SUPERLATIVES})\b"),
        ("compar", rf"\b({_COMPARING})\b"),
        (
            "listverb",
            rf"^(please |can you |could you |i (want|need|would like)( to (see|know|get))? )?({_LISTING})\b",
        ),
        ("perx", rf"\b({_GROUPING})\b"),
        ("whichn", r"\bwhich\b"),
        ("what", r"^what\b"),
        ("who", r"^(who|whose|whom)\b"),
        ("when", r"^when\b|\bwhen (was|were|did|is)\b"),
        ("where", r"^where\b"),
        ("whatis", r"^what('s| is| are)\b"),
        ("whatdoes", r"^what (do|does|did|happens|should|can)\b"),
        ("howto", r"\b(how (to|do|can|should|would|could|does|did|is|are|am)|how do(es)? (i|we|you|one))\b"),
        ("how_i", r"\bhow (do|can|should|would|could|to|may) ?(i|we|you|one)?\b"),
        ("why", r"\b(why|reason|cause|because|purpose of)\b"),
        ("yesno", r"^(is|are|was|were|do|does|did|can|could|will|would|should|has|have|am|may|must)\b"),
        ("can_i", r"\b((can|may|should|must|could|do|am|will) (i|we|my))\b"),
        ("explain", rf"\b({_EXPLAINING})\b"),
        ("policy", rf"\b({_POLICY})\b"),
        ("trouble", rf"\b({_TROUBLE})\b"),
        ("tech", rf"\b({_TECHNICAL})\b"),
        ("first", r"\b(i|my|me|mine|im|i'm)\b"),
        ("we", r"\b(we|our|us|ours)\b"),
        ("you", r"\b(you|your|yours|u)\b"),
        ("year", r"\b(1[89]|20)\d\d\b"),
        ("num", r"\b\d+([.,]\d+)*\b"),
        ("month", rf"\b({_MONTHS})\b"),
        (
            "rel",
            r"\b(last|past|previous|this|next|current) (day|week|month|quarter|year|season)s?\b|\byesterday\b|\btoday\b|\bsince\b|\bago\b",
        ),
        ("ident", r"\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9]+([-_/.][A-Za-z0-9]+)*\b|\b[A-Z]{2,}-\d+\b"),
        ("codeid", r"\b[a-z]+(_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w*\b|\w+\(\)|\b\w+\.\w+\(|::|->"),
        ("quote", r"[\"“”]|'[^' ]+ ?[^']*'"),
        (
            "cmd",
            rf"^(hey,? |please |can you |could you |would you |i want you to |i need you to )?({_COMMANDS})\b",
        ),
        ("media", rf"\b({_DEVICES})\b"),
        ("greet", rf"\b({_GREETINGS})\b"),
        ("greet0", rf"^({_OPENERS})\b"),
        ("youare", rf"\b({_PERSONAL})\b"),
        ("creat", r"\b(poem|story|joke|essay|haiku|lyrics|fun fact|riddle)\b"),
        ("conj", rf",? (and|also|plus|then|as well as|together with|along with)( then)? ({_SECOND_ASK})\b|\? and\b|;"),
        ("and", r"\band\b"),
        ("relcl", r"\b(that|which|who|whose|where) (the|a|an|is|are|was|were|has|have|had|\w+(ed|s))\b"),
        ("in_the", r"\bin the\b"),
        ("of_the", r"\bof the\b"),
        ("acc", rf"\b({_BY_THE_BOOK})\b"),
        ("neg", r"\b(no|not|never|without|none|don't|doesn't|didn't|isn't)\b"),
        ("both", r"\bboth\b|\beither\b|\bneither\b|\bor\b"),
        ("unit", r"[$€£]|\b(usd|eur|dollars?|euros?|million|billion|days?|hours?|minutes?|years?|km|kg|miles?)\b"),
        ("biz", rf"\b({_BUSINESS})\b"),
    )
)
SHAPES = ("q", "len", "len2", "short", "capmid", "caps_ratio", "commas", "long", "wh", "numbers", "title")
CUE_COUNT = len(CUES) + len(SHAPES)

_QUESTION_WORD = re.compile(r"(what|who|when|where|which|why|how|whose|whom)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


def read_cues(text: str) -> list[float]:
    """0 or 1 for each cue that the text holds, then the shape numbers."""
    text = text[:CHARS].strip()
    return [1.0 if pattern.search(text) else 0.0 for _, pattern in CUES] + _shape(text)


def _shape(text: str) -> list[float]:
    """Length, capitals, commas and numbers, each within 0 to 2."""
    words = text.split()
    count = len(words)
    capitals = sum(1 for word in words[1:] if word[:1].isupper())
    length = min(count, 40)
    return [
        1.0 if text.endswith("?") else 0.0,
        length / 20.0,
        length**2 / 800.0,
        1.0 if count <= 3 else 0.0,
        min(capitals, 6) / 3.0,
        capitals / max(1, count - 1),
        min(text.count(","), 4) / 2.0,
        1.0 if count > 25 else 0.0,
        1.0 if _QUESTION_WORD.match(text) else 0.0,
        min(len(_NUMBER.findall(text)), 4) / 2.0,
        1.0 if count > 1 and capitals >= 0.6 * (count - 1) else 0.0,
    ]


def named_cues(text: str) -> dict[str, str]:
    """The words of the question by the cue that they are: what a reason may quote, since the caller wrote it."""
    text = text[:CHARS].strip()
    return {name: found.group().strip(" ,") for name, pattern in CUES if (found := pattern.search(text))}


# --- patterns: the question with its content words blanked ------------------------------------------------------------

_KEPT = frozenset(
    """
    a an the of in on at by for to from with without about as into over under between than that which who whose whom what when
    where why how is are was were be been do does did can could may might must should will would shall has have had i we you he
    she it they my our your his her its their me us them this these those there here and or but if not no nor so also then please
    all any each every some most least more less many much few number count total sum average highest lowest maximum minimum list
    show give find tell return get name need want make set play turn add call send first last top per year month day week date
    time before after since during how's what's same different other only both either rate percentage ratio according policy rule
    process explain describe mean means define use used using required allowed
    """.split()
)
_TOKEN = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|\d[\d.,]*|[^\w\s]")


def blank_content(text: str) -> list[str]:
    """Function and cue words kept, every other word by its ending, numbers as 0; a run of plain content words is one."""
    out = ["^"]
    for at, token in enumerate(_TOKEN.findall(text[:CHARS])):
        lower = token.lower()
        if lower in _KEPT:
            out.append(lower)
        elif token[0].isdigit():
            out.append("0")
        elif token[0].isalpha():
            kind = _kind(token, lower, first=at == 0)
            if not (out[-1] == kind and kind in ("C", "w")):
                out.append(kind)
        else:
            out.append(token)
    return [*out, "$"]


def _kind(token: str, lower: str, *, first: bool) -> str:
    if token[0].isupper() and not first:
        return "C"
    return next((ending for ending in ("ly", "ing", "ed", "s") if lower.endswith(ending)), "w")


def hash_patterns(text: str) -> dict[int, float]:
    """1- to 3-grams of the blanked question by bucket; every bucket weighs the same, and together they have length 1."""
    tokens = blank_content(text)
    buckets = {
        zlib.crc32(" ".join(tokens[at : at + size]).encode("utf-8", "surrogatepass")) % PATTERN_BUCKETS
        for size in (1, 2, 3)
        for at in range(len(tokens) - size + 1)
    }
    return dict.fromkeys(buckets, 1 / max(1.0, len(buckets) ** 0.5))


# --- words ------------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"\w+|[^\w\s]")


def hash_words(text: str) -> dict[int, float]:
    """Words and pairs of words (weight 1), 3- and 4-grams of the characters of each word (weight 1/2), by bucket."""
    words = _WORD.findall(text[:CHARS].lower())
    distinct = dict.fromkeys(words)  # in order, as sums of floats must not depend on the order of a set
    whole = dict.fromkeys(["w" + word for word in distinct] + [f"b{left} {right}" for left, right in itertools.pairwise(words)])
    pieces = dict.fromkeys(
        "c" + padded[at : at + size]
        for padded in (f" {word} " for word in distinct)
        for size in (3, 4)
        for at in range(len(padded) - size + 1)
    )
    unit = (len(whole) + 0.5 * len(pieces) + 1e-9) ** -0.5
    weights: dict[int, float] = {}
    for items, weight in ((whole, unit), (pieces, 0.5 * unit)):
        for item in items:
            bucket = zlib.crc32(item.encode("utf-8", "surrogatepass")) % WORD_BUCKETS
            weights[bucket] = weights.get(bucket, 0.0) + weight
    return weights
