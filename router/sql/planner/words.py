"""English as the planner knows it, as data. A word that stands nowhere here and nowhere in the catalogue stops a plan.

Operator phrases name what a piece of a question does; they are looked up as folded words, longest first.
"""

from __future__ import annotations

NUMBER_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50, "hundred": 100, "zero": 0, "once": 1, "twice": 2, "single": 1,
}  # fmt: skip

IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "feet": "foot", "mice": "mouse", "teeth": "tooth",
    "wives": "wife", "lives": "life", "leaves": "leaf", "knives": "knife", "shelves": "shelf", "halves": "half",
    "series": "series", "species": "species", "news": "news", "movies": "movie", "cookies": "cookie", "bus": "bus", "gas": "gas",
    "has": "has", "was": "was", "does": "does", "this": "this", "its": "its", "as": "as", "is": "is", "us": "us", "yes": "yes",
    "data": "data", "criteria": "criterion", "indices": "index", "indexes": "index", "analyses": "analysis", "bases": "base",
    "buses": "bus", "statuses": "status", "means": "means", "less": "less", "alias": "alias", "ids": "id", "expectancies": "expectancy",
    "matrices": "matrix", "vertices": "vertex", "phases": "phase", "potatoes": "potato", "tomatoes": "tomato", "heroes": "hero",
    "addresses": "address", "always": "always", "dies": "die", "ties": "tie", "pies": "pie", "lens": "lens", "canvas": "canvas",
}  # fmt: skip

CONTRACTIONS = {
    low + "n't": parts
    for low, parts in {
        "do": ("do", "not"), "does": ("does", "not"), "did": ("did", "not"), "is": ("is", "not"), "are": ("are", "not"),
        "was": ("was", "not"), "were": ("were", "not"), "has": ("has", "not"), "have": ("have", "not"), "had": ("had", "not"),
    }.items()
}  # fmt: skip

ABBREVIATIONS: dict[str, tuple[str, ...]] = {
    "fname": ("first", "name"), "lname": ("last", "name"), "firstname": ("first", "name"), "lastname": ("last", "name"),
    "dob": ("date", "of", "birth"), "desc": ("description",), "descr": ("description",), "dept": ("department",),
    "emp": ("employee",), "stu": ("student",), "addr": ("address",), "qty": ("quantity",), "amt": ("amount",), "num": ("number",),
    "nbr": ("number",), "no": ("number",), "tel": ("telephone",), "avg": ("average",), "min": ("minimum",), "max": ("maximum",),
    "pct": ("percentage",), "perc": ("percentage",), "dest": ("destination",), "src": ("source",), "cat": ("category",),
    "mgr": ("manager",), "org": ("organization",), "std": ("standard",), "temp": ("temperature",), "lat": ("latitude",),
    "lng": ("longitude",), "lon": ("longitude",), "yr": ("year",), "mo": ("month",), "cust": ("customer",), "prod": ("product",),
    "acct": ("account",), "inv": ("invoice",), "pos": ("position",), "info": ("information",), "msg": ("message",),
    "ref": ("reference",), "fac": ("faculty",), "rm": ("room",), "bldg": ("building",), "enr": ("enrollment",),
    "gov": ("government",), "edu": ("education",), "lang": ("language",), "abbrev": ("abbreviation",), "loc": ("location",),
    "mpg": ("miles", "per", "gallon"), "hs": ("high", "school"), "ssn": ("social", "security", "number"),
}  # fmt: skip

FILLER = frozenset(
    """the a an please all any some there also then as so just currently now still overall given ever actually respectively that this these those
    which what it its they them their theirs he she his her him we us our you your me i can could would will shall should might must
    here such about among 's ? . : ; one ones do does did be been being get gets got to altogether     corresponding associated respective related if database
    list table """.split()
)
"""Words that say nothing of their own."""

_PHRASES: dict[str, str] = {
    # asking
    "ask": """what is|what are|what was|what were|what's|show|show me|list|list out|list down|find|find out|give|give me|return
        |tell me|i need|we need|i need to know|i would like to know|i would like to see|i want to see|we want to know|let me know
        |could you tell me|could you show me|can you show me|could you give me|can you give me|display|select|get|get me
        |provide|fetch|compute|calculate|report|identify|name|state|i want to know|i want
        |can you tell me|please show|please list|could you|what|which|who|who is|who are|which are|which is|what does|what do
        |what did|search for|search|retrieve|determine|for which|in which|see""",
    "when": "when was|when were|when did",
    "everything": """all information|all the information|all details|all the details|all info|everything|all columns|all fields|the details
        |the information|all data""",
    # measures
    "count": """how many|number of|the number of|total number of|the total number of|count of|count the number of|count the|count
        |numbers of|the count of|counts of|the counts of|how many times|quantity of|the total count of|total count of
        |how many total|how many pieces of|how many units of|how many items of|number of pieces of|the number of pieces of
        |number of units of|the number of units of""",
    "agg:avg": "average|avg|mean|averaged|the average of|average of|average value of|mean value of|averages",
    "agg:sum": "total|sum of|sum|combined|total amount of|overall total|the sum of|totals|summed|total value of|total of",
    "agg:max": "maximum|max|maximal|maximum value of|maximum of",
    "agg:min": "minimum|min|minimal|minimum value of|minimum of",
    "agg:median": "median|median of",
    "sortverb": "sort|order|rank",
    "distinct": "different|distinct|unique|differing|various",
    # extremes
    "sup:desc": "highest|largest|greatest|biggest|top|most|the most|best|largest value of",
    "sup:asc": "lowest|smallest|least|fewest|the fewest|the least|littlest",
    "common:desc": """most used|most frequently used|most commonly used|most widely used|most often used|most common|most frequent
        |most frequently|most commonly|most popular|most often|most prevalent""",
    "common:asc": "least used|least frequently used|least commonly used|least common|least frequent|least popular",
    "top": "top|first|the first|the top",
    "bottom": "bottom|last|the bottom|the last",
    # grouping
    "each": """for each|for every|in each|of each|each|every|per|for all different|by each|from each|on each|at each|to each
        |with each|under each|within each|grouped by|group by|broken down by|across different|for each of the|of every
        |in every|each of the|in each of the|of each of the|for different|by different|of different|in different
        |for the different""",
    "by": "by",
    # comparison
    "cmp:>": """later than|greater in number than|more in number than|more than|greater than|larger than|bigger than|higher than|over
        |above|exceeding|exceed|exceeds|in excess of|that exceeds|that exceed|>|is above|surpassing|beyond|better than
        |longer than|upwards of|strictly more than""",
    "cmp:<": "earlier than|less than|fewer than|smaller than|lower than|under|below|<|shorter than|beneath",
    "cmp:>=": """at least|no less than|not less than|no fewer than|a minimum of|greater than or equal to|more than or equal to|>=
        |minimum of|no smaller than|no lower than|as many as""",
    "cmp:<=": """at most|no more than|not more than|up to|a maximum of|less than or equal to|<=|not exceeding|maximum of|no larger than
        |no greater than|no higher than""",
    "cmp:=": "equal to|equals|equal|exactly|=|precisely|only|same as",
    "cmp:<>": "not equal to|<>|!=",
    "ormore": """or more|or higher|or above|or greater|or older|or over|or larger|or longer|or later|or after|and above|and over
        |or bigger|or better|and older""",
    "orless": "or less|or fewer|or lower|or below|or under|or younger|or smaller|or earlier|or before|or shorter|and below|and under",
    "between": "between|in the range of|in the range|ranging from|in between|ranging between|ranges from|ranges between",
    "is": "is|are|was|were|be|being|as|of type|equals to|is set to|are set to",
    # words of conditions
    "with": """with|having|that have|that has|who have|who has|which have|which has|that had|who had|where|when|whose|for which the
        |such that|has|have|had|with a|with an|that are|that is|who are|who is|that was|that were|which is|which are|if
        |provided that|given that|that includes|who were|who was|possess|possesses|possessing""",
    "also": """along with|together with|as well as|with their|with its|with his|with her|and their|and its|with the corresponding
        |and also|and the corresponding|including|alongside|plus""",
    "not": "not|never|cannot|neither|nor|don't|doesn't|didn't|isn't|aren't|wasn't|haven't|hasn't",
    "no": """no|without|without any|without a|without an|do not have|does not have|did not have|have no|has no|had no|don't have
        |doesn't have|do not have any|does not have any|did not have any|have not had|has not had|lack|lacks|lacking|not have
        |not have any|with no|who have no|that have no|not any|zero|have never had|has never had|with zero
        |not a single|not one|not even one""",
    "except": """save for|aside from|with the exception of|other than|except|except for|excluding|besides|apart from|but not
        |is different from|different from|different than|outside|not including|all but|everything but|anything but|everyone but
        |all except|everything except|but for""",
    "contains": """containing|contains|contain|that contains|includes the word|include the word|include the substring
        |includes the substring|contains the word|containing the word|contains the substring|has the word|have the word
        |with the word|contains the letter|containing the letter|has the letter|with the letter|has the substring
        |with the substring|has the string|contains the string|contain the word|contain the letter|contain the letters
        |containing the letters|containing the string|contain the string|contain the substring|containing the substring
        |that contain|contains the text|contains the phrase|like|has a word|contains word|containing word|include""",
    "starts": """starting with|starts with|start with|started with|beginning with|begins with|begin with|starts with the letter
        |start with the letter|starting with the letter|beginning with the letter|begins with the letter|with the prefix
        |has the prefix|begin with the letter|prefixed with""",
    "ends": """ending with|ends with|end with|ends in|ending in|end in|ends with the letter|ending with the letter|with the suffix
        |end with the letter""",
    "init": "in it|in them",
    "null": """missing|null|is missing|are missing|is null|are null|is empty|is unknown|are unknown|not known|unset|blank
        |is not specified|not specified|not recorded|is blank""",
    "notnull": "is not missing|is not null|are not null|not null|is known|not missing",
    "yes": "is true|true",
    "instock": "in stock|on hand|in our stock",
    "soldout": "out of stock|not in stock|not on hand|no longer in stock|sold out",
    # order
    "order": """ordered by|sorted by|order by|sort by|in order of|in the order of|ranked by|sorted according to|ordered according to
        |in alphabetical order of|in ascending order of|in increasing order of|sorted by the|ordered by the
        |in lexicographical order of|in lexicographic order of|in the ascending order of|arranged by|order them by
        |sort them by|sort the results by|order the results by|sorted alphabetically by|ordered alphabetically by
        |sort the list by|sort the result by|order them alphabetically by|sort results by|listed in order of
        |in the increasing order of|ascending order of|ascending order by|in ascending order by|and sort them by|and order by
        |and sort by|and order them by|sorted based on|ordered based on|sort in ascending order by|order in ascending order by""",
    "order:desc": """in descending order of|in decreasing order of|in the descending order of|in reverse alphabetical order of
        |descending order of|in descending order by|sorted in descending order by|ordered in descending order by
        |sorted in descending order of|sorted descending by|ordered descending by|in the decreasing order of
        |in reverse order of|ordered in descending order of""",
    "asc": """in ascending order|ascending|in increasing order|from low to high|from lowest to highest|from smallest to largest
        |from least to most|in ascending alphabetical order|from small to large|from earliest to latest|from oldest to newest
        |from fewest to most|asc|in an ascending order|from the lowest to the highest|increasing|from smallest to biggest
        |from a to z|from the earliest to the latest|from the smallest to the largest|from shortest to longest""",
    "desc": """in descending order|descending|in decreasing order|from high to low|from highest to lowest|from largest to smallest
        |from most to least|in reverse alphabetical order|in descending alphabetical order|desc|from large to small
        |from latest to earliest|from newest to oldest|in a descending order|from the highest to the lowest|decreasing
        |in reverse order|from biggest to smallest|from the most to the least|in descending lexicographical order
        |from most recent to oldest|from the largest to the smallest|from longest to shortest|from z to a
        |from the latest to the earliest""",
    "asc:first": "lowest first|the lowest first|smallest first|the smallest first|fewest first|least first",
    "desc:first": "highest first|the highest first|largest first|the largest first|biggest first|the biggest first|most first",
    "newfirst": "newest first|the newest first|latest first|the latest first|most recent first|the most recent first",
    "oldfirst": "oldest first|the oldest first|earliest first|the earliest first",
    "alpha": """in alphabetical order|alphabetically|in lexicographical order|in lexicographic order|in lexical order
        |ordered alphabetically|sorted alphabetically|sorted in alphabetical order|in alphabetic order
        |in the alphabetical order|ordered in alphabetical order""",
    "agesdesc": "from the oldest to the youngest|from oldest to youngest|from the oldest to youngest|oldest to youngest",
    "agesasc": "from the youngest to the oldest|from youngest to oldest|youngest to oldest",
    # joints
    "and": """and|as well|but|and also|while|and then|and have|and that|and who|and has|and with|and are|and is|and whose|but also
        |and were|and was|and the""",
    "or": "or|or are|or is|or have|or with|or in|or from",
    "comma": ",",
    "both": "both",
    "either": "either|one of|any of",
    "of": "of|for|belonging to|about|regarding|across|across all|among all|over all",
    "total": "in total|in all|all together",
    "whole": "in the database|in the system",
    "fill": "at the moment|at this moment|right now|at present|as of now|as of today|for the moment|at this time",
    "in": "in|from|on|at|within|inside|during|under the|located in|that come from|from the|based in",
    "his": "their|its|his|her|that of|those of",
}


def _phrases() -> dict[str, dict[tuple[str, ...], str]]:
    """By first word: the words of the phrase -> what it does."""
    table: dict[str, dict[tuple[str, ...], str]] = {}
    for what, listed in _PHRASES.items():
        for phrase in listed.split("|"):
            words = tuple(phrase.split())
            if words:
                table.setdefault(words[0], {}).setdefault(words, what)
    return table


PHRASES = _phrases()
LONGEST = max(len(words) for table in PHRASES.values() for words in table)

_VERBS = """
    accommodate accompany act admit adopt advise affect air allocate appear apply appoint arrange arrive assemble assign assist
    associate attach attack attend audit author award bake base battle be bear become begin belong bill board book border born
    borrow breed brew bridge bring broadcast build buy call capture carry cast catch cause charge cite claim climb coach come
    command commence comment compensate compete compose comprise conduct connect conquer consider consist constitute consume
    contact contain contract control cook correspond cost cover create cross cycle dance date deal decide dedicate defend delegate
    deliver depart depict deposit derive describe design detail devote diagnose direct discuss dispatch display distribute dive
    donate download drink drive earn eat edit educate elect email employ end engage enrol enroll enter entitle establish examine
    execute exhibit exist exit explain export feature feed fight file finance find fish flow fly follow form foul found fund get
    give go govern graduate grant grow guard handle happen harvest head hike hire hold host house hunt illustrate import include
    inform inhabit initiate instruct insure intersect introduce invest invoice involve issue join jump keep know label land last
    launch lead learn lease leave lend like link list listen live load locate lose love maintain major make manage manufacture
    mark mean measure mention mentor mix monitor move name need neighbor nominate notify occupy occur offer operate order organise
    organize originate own paint participate pay perform plan plant play portray possess post prescribe present print process
    produce propose protect provide publish purchase put qualify race rank rate read receive recommend record recruit refer
    reference register relate release rent repair report represent request require reschedule research reserve reside review ride
    row rule run sail save schedule score seat see sell send serve service set shelter ship show sign sing sink situate
    smoke span speak spend sponsor star start station stay stock stop store stream stretch study submit subscribe suggest
    supervise supply support surround swim tag take talk teach tie title trade train transfer translate travel treat tutor tweet
    unload upload use visit vote walk want watch weigh win work write
""".split()
_FORMS = {
    "win": ("won", "winning"), "lose": ("lost", "losing"), "sing": ("sang", "sung"), "teach": ("taught",),
    "take": ("took", "taken"), "hold": ("held",), "make": ("made",), "build": ("built",),
    "write": ("wrote", "written", "writing"), "run": ("ran", "running"), "lead": ("led",), "speak": ("spoke", "spoken"),
    "buy": ("bought",), "sell": ("sold",), "pay": ("paid",), "send": ("sent",), "give": ("gave", "given"),
    "fly": ("flew", "flown", "flies"), "find": ("found",), "know": ("known", "knew"), "see": ("seen", "saw"), "come": ("came",),
    "go": ("went", "gone", "goes"), "ship": ("shipped", "shipping"), "stop": ("stopped", "stopping"),
    "transfer": ("transferred", "transferring"), "refer": ("referred", "referring"), "stay": ("stayed",),
    "swim": ("swam", "swum", "swimming"), "sink": ("sank", "sunk"), "lend": ("lent",), "ride": ("rode", "ridden"),
    "drive": ("drove", "driven"), "meet": ("met",), "begin": ("began", "begun", "beginning"), "spend": ("spent",),
    "become": ("became",), "keep": ("kept",), "fight": ("fought",), "leave": ("left",), "eat": ("ate", "eaten"),
    "grow": ("grew", "grown"), "catch": ("caught",), "deal": ("dealt",), "bring": ("brought",), "set": ("setting",),
    "put": ("putting",), "bear": ("born",), "get": ("got", "getting"), "star": ("starred", "starring"), "cast": ("casting",),
    "mean": ("meant",), "be": ("being",), "show": ("shown",), "submit": ("submitted", "submitting"),
    "occur": ("occurred", "occurring"), "enroll": ("enrolled",),
}  # fmt: skip


def _verbs() -> frozenset[str]:
    found: set[str] = set()
    for verb in _VERBS:
        found |= {verb, verb + "s", verb + "es", *_FORMS.get(verb, ())}
        stem = verb[:-1] if verb.endswith("e") else verb
        found |= {stem + "ed", stem + "ing"}
        if verb.endswith("y"):
            found |= {verb[:-1] + "ied", verb[:-1] + "ies"}
    return frozenset(found - {"being", "be"})


VERBS = _verbs()
PARTICIPLES = VERBS - {verb + ending for verb in _VERBS for ending in ("", "s", "es")}
"""Verbs that only tie one thing to another. They bind nothing and are told in the explanation. What says a state ("cancelled",
"failed", "approved") is not among them: it is a condition, and without a stored value for it a question is declined."""


def past(verb: str) -> tuple[str, ...]:
    """How a verb may be spelled of what was done: `join` -> `joined`, `close` -> `closed`, `pay` -> `paid`."""
    regular = verb + "d" if verb.endswith("e") else verb[:-1] + "ied" if verb.endswith("y") else verb + "ed"
    return (regular, *_FORMS.get(verb, ()))


IDLE_VERBS = frozenset(
    """exist exists existed existing hold held holding take taken took happen happened occur occurs occurred list listed record recorded show
    shown store stored make made provide provided offer offered include included give given have has had know known see seen find found keep
    kept represent represented report reported mention mentioned register registered describe described come came contain contained
    live lives living work works working play plays played perform performs performed attend attended participate participated""".split()
)
"""After these nothing need follow: "how many concerts are held?" asks of all concerts."""


SUPERLATIVES: dict[str, tuple[tuple[str, bool], ...]] = {
    # adjective -> (last or whole words of a field's name, descending), in the order of preference
    "oldest": (
        ("age", True), ("birth", False), ("birthday", False), ("birthdate", False), ("date of birth", False),
        ("birth date", False), ("birth year", False), ("opening year", False), ("founded", False), ("year built", False),
        ("founding year", False),
    ),
    "youngest": (
        ("age", False), ("birth", True), ("birthday", True), ("birthdate", True), ("date of birth", True),
        ("birth date", True), ("birth year", True),
    ),
    "tallest": (("height", True),), "shortest": (("height", False), ("length", False), ("duration", False), ("distance", False)),
    "heaviest": (("weight", True),), "lightest": (("weight", False),),
    "longest": (("length", True), ("duration", True), ("distance", True)),
    "fastest": (("speed", True), ("top speed", True), ("fastest lap speed", True)),
    "slowest": (("speed", False), ("top speed", False)),
    "cheapest": (("price", False), ("cost", False), ("unit price", False), ("unit cost", False)),
    "most expensive": (("price", True), ("cost", True), ("unit price", True), ("unit cost", True)),
    "least expensive": (("price", False), ("cost", False), ("unit price", False), ("unit cost", False)),
    "priciest": (("price", True), ("cost", True)), "costliest": (("price", True), ("cost", True)),
    "latest": (("date", True), ("time", True), ("year", True)), "newest": (("date", True), ("year", True)),
    "most recent": (("date", True), ("time", True), ("year", True)),
    "most recently": (("date", True), ("time", True), ("year", True)),
    "earliest": (("date", False), ("time", False), ("year", False)), "least recent": (("date", False),),
    "most populous": (("population", True),), "least populous": (("population", False),),
    "most populated": (("population", True),),
    "richest": (("income", True), ("net worth", True), ("wealth", True), ("market value", True)), "deepest": (("depth", True),),
    "widest": (("width", True),), "hottest": (("temperature", True),), "coldest": (("temperature", False),),
    "highest paid": (("salary", True),), "best paid": (("salary", True),), "lowest paid": (("salary", False),),
    "best rated": (("rating", True), ("stars", True)), "highest rated": (("rating", True), ("stars", True)),
    "lowest rated": (("rating", False), ("stars", False)), "most profitable": (("profit", True),),
    "strongest": (("strength", True),),
}  # fmt: skip

AGES = {"oldest": False, "earliest": False, "newest": True, "latest": True, "youngest": True, "most recent": True}
"""What these mean of a time that is asked for by name: whether the last comes first."""

COMPARATIVES: dict[str, tuple[tuple[str, bool], ...]] = {
    # adjective + than -> (field's words, "more of it" is greater)
    "older": (("age", True),), "younger": (("age", False),), "taller": (("height", True),),
    "shorter": (("height", False), ("length", False), ("duration", False)), "heavier": (("weight", True),),
    "lighter": (("weight", False),), "longer": (("length", True), ("duration", True), ("distance", True)),
    "faster": (("speed", True),), "slower": (("speed", False),), "cheaper": (("price", False), ("cost", False)),
    "more expensive": (("price", True), ("cost", True)), "less expensive": (("price", False), ("cost", False)),
    "deeper": (("depth", True),), "wider": (("width", True),), "richer": (("income", True),), "hotter": (("temperature", True),),
    "colder": (("temperature", False),),
}  # fmt: skip

MEASURING: dict[str, tuple[tuple[str, bool], ...]] = {
    # verb -> the field whose number follows it ("weigh over 200 pounds")
    **dict.fromkeys(("weigh", "weighs", "weighed", "weighing"), (("weight", True),)),
    **dict.fromkeys(("cost", "costs", "costing"), (("cost", True), ("price", True))),
    **dict.fromkeys(("earn", "earns", "earned", "earning"), (("salary", True), ("earning", True), ("income", True))),
    **dict.fromkeys(("last", "lasts", "lasted", "lasting"), (("duration", True), ("length", True))),
}

AVERSE_VERBS = frozenset(
    """save saves saved saving stop stops stopped stopping leave leaves left leaving lose loses lost losing
    become becomes became becoming stay stays stayed staying""".split()
)
"""What follows these is what is no longer or not meant: they do not only tie one thing to another."""

MOODS = frozenset("should would might may must could can shall will ought".split())
"""Before "be" they say of a state that it is not, or not for certain."""

SHARES = frozenset("share percentage proportion fraction ratio rate percent".split())
"""Before "of" they ask for one number over another, which only a metric can say."""

UNITS = frozenset(
    """year years old yrs dollar dollars usd eur euro euros pound pounds lbs kg kgs kilogram kilograms km kilometer kilometers mile miles meter
    meters metre metres cm inch inches feet ft foot minute minutes min mins hour hours second seconds day days week weeks month months
    pallet pallets mph kph degree degrees $ square million points""".split()
)
"""Words that may follow a number and say what it is of; they bind nothing."""

UNIT_NAMES: dict[str, frozenset[str]] = {
    word: frozenset(meant.split())
    for meant, words in {
        "dollar": "dollar dollars usd $", "euro": "eur euro euros", "sterling lb": "pound pounds", "sterling": "gbp sterling", "lb": "lb lbs",
        "kg": "kg kgs kilogram kilograms", "km": "km kms kilometer kilometers kilometre kilometres", "mile": "mile miles",
        "m": "meter meters metre metres", "cm": "cm centimeter centimeters centimetre centimetres", "inch": "inch inches",
        "ft": "foot feet ft", "minute": "minute minutes min mins", "hour": "hour hours", "second": "second seconds sec secs",
        "day": "day days", "week": "week weeks", "month": "month months", "year": "year years yrs", "mph": "mph", "kph": "kph",
        "million": "million millions mio", "pallet": "pallet pallets",
    }.items()
    for word in words.split()
}  # fmt: skip
"""What a word says a number is in; two meanings where it is two units."""

PERCENT = frozenset("percent percentage pct perc".split())

MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug", "september sep sept",
         "october oct", "november nov", "december dec"), 1)
    for name in names.split()
}  # fmt: skip

TIME_UNITS = {"day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year"}
GRAINS = {
    **TIME_UNITS,
    "daily": "day",
    "weekly": "week",
    "monthly": "month",
    "quarterly": "quarter",
    "yearly": "year",
    "annually": "year",
}
EVENT_TAILS = frozenset("at on date time year datetime timestamp day".split())
PLAIN_EVENTS = frozenset(
    """happened occurred recorded made created entered logged dated took taken held placed issued received filed lodged registered
    submitted""".split()
)
"""Verbs that say no more of a row than that it came to be: any default time may be meant."""

JOINTS = frozenset("a an the of for from in on at to by and or with per as is".split())
"""A part of a name neither begins nor ends with these."""

GENERIC_TAILS = frozenset(
    "code name id number description type date yn detail text amount value title key status level category".split()
)
NAME_TAILS = ("name", "title", "full name", "label")
DATASET_NOISE = frozenset("ref tbl table dim fact vw v view".split())
