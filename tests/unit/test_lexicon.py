"""Identifiers whole and in parts, on both sides of the search, in time that grows with the text and no faster."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lexicon import STOP_WORDS, apart, code_name, expand, identifiers, read_asked_codes, read_codes

EXPANDED = [
    ("max_retry_count", "maxretrycount max retry count"),
    ("maxRetryCount", "maxRetryCount max Retry Count"),
    ("MaxRetryCount", "MaxRetryCount Max Retry Count"),
    ("MAX_RETRY_COUNT", "MAXRETRYCOUNT MAX RETRY COUNT"),
    ("HTTPServer", "HTTPServer HTTP Server"),
    ("PDFs", "PDFs PD Fs"),
    ("parseXMLFile2", "parseXMLFile2 parse XML File 2"),
    ("ERR-4012", "ERR4012 ERR 4012"),
    ("PN-88213", "PN88213 PN 88213"),
    ("E-17", "E17 E 17"),
    ("v2.1.4", "v2 v 2 1 4"),
    ("well-known", "well known"),
    ("hello", "hello"),
    ("Hello", "Hello"),
    ("PUMP", "PUMP"),
    ("2024-05-01", "20240501 2024 05 01"),
    ("os.path.join", "os path join"),
    ("a/b_c", "a bc b c"),
    ("", ""),
    ("naïve café", "naïve café"),
]


@pytest.mark.parametrize(("text", "expected"), EXPANDED)
def test_expand(text: str, expected: str) -> None:
    assert expand(text) == expected


def test_what_stands_around_is_kept() -> None:
    assert expand("(ERR-4012), see `max_len`!") == "(ERR4012 ERR 4012), see `maxlen max len`!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Why does ERR-4012 come?", ["err-4012"]),
        ("order PN-88213 or pn-88213", ["pn-88213"]),
        ("set max_retry_count and maxRetryCount", ["max_retry_count", "maxretrycount"]),
        ("in 2024, page 12", ["2024"]),
        ("a plain Question about PUMPS", []),
        ("well-known", []),
        ("", []),
        ("E17 4012", ["e17", "4012"]),
    ],
)
def test_identifiers(text: str, expected: list[str]) -> None:
    assert identifiers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maxRetryCount", "max Retry Count"),
        ("max_retry_count", "max retry count"),
        ("HTTPServer", "HTTP Server"),
        ("PUMP pump Pump", "PUMP pump Pump"),
        ("x2Y", "x2 Y"),
        ("ÄÖü", "ÄÖü"),
        ("", ""),
    ],
)
def test_apart(text: str, expected: str) -> None:
    assert apart(text) == expected


@given(st.text(max_size=200))
def test_no_letter_is_lost(text: str) -> None:
    """Taking apart adds spaces and takes joints; every letter and digit stays, in order."""
    assert apart(text).replace(" ", "") == text.replace("_", "").replace(" ", "")
    kept = iter(expand(text))
    assert all(char in kept for char in text if char.isalnum())


@given(st.text("aA1_-. ", max_size=60))
def test_asking_and_indexing_meet(text: str) -> None:
    """Every identifier that a question names is found in a text that names it: one expansion serves both."""
    indexed = set(expand(f"before {text} after").lower().replace(".", " ").replace("-", " ").replace("_", " ").split())
    asked = set(expand(text).lower().replace(".", " ").replace("-", " ").replace("_", " ").split())
    assert asked <= indexed


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "A" * 100_000,
        "aA" * 50_000,
        "A1" * 50_000,
        "a_" * 50_000,
        "a" + "-" * 100_000,
        "a-" * 50_000 + "!",
        "-" * 100_000,
        "a" + "_-./:" * 20_000 + "!",
        ("a" * 50 + "-" * 50) * 1_000,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4_000,
        "\u202e" * 100_000,
        "é_" * 50_000,
        " " * 100_000,
    ],
    ids=range(14),
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    start = time.process_time()
    identifiers(text)
    expand(text)
    apart(text)
    read_codes(text)
    read_asked_codes(text)
    assert time.process_time() - start < 1.0


def test_stop_words_are_lower_case_words() -> None:
    assert all(word.isalpha() and word.islower() for word in STOP_WORDS)
    assert {"the", "of", "what"} <= STOP_WORDS
    assert not {"error", "not-a-word", "limit"} & STOP_WORDS


# --- codes ------------------------------------------------------------------------------------------------------------


def test_a_code_has_one_name() -> None:
    for spelling in ("PN-88213", "pn 88213", "PN88213", "Pn_88213", "pn - 88213"):
        assert code_name(spelling) == "pn-88213", spelling
    assert code_name("Größe 9") == code_name("GRÖSSE-9".replace("SS", "ß")) == "grösse-9"
    assert code_name(" -- ") == ""


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("see ERR-4012/ERR-4013, (PN-88213-B).", ["err-4012", "err-4013", "pn-88213-b"]),
        ("INC-2041 of CLM-2026-0117; INC-2041", ["inc-2041", "clm-2026-0117"]),
        ("claim 10042, ticket no. 8812, Incident #2041", ["claim-10042", "ticket-8812", "incident-2041"]),
        ("X200 and E102, M10 and A4, UTF-8", ["x-200", "e-102"]),
        ("Q3-2024, H1-2025, FY-2024, MAY-2024, order 2024, in 2024", []),
        ("3-12 bolts, 2024-05-01, part 10 %, 45 Nm, claim 12.5, max-2000, err-4012", []),
        ("A" * 40 + "-12, MAX_RETRY, " + "-".join(["AB12"] * 9), []),
        (
            "CX-400-OPERATOR, CYCLE-COUNT-2026-10, ABSENCE-2026, INC-2041, B-04-1, CLM-2026",
            ["cx-400", "inc-2041", "b-04-1", "clm-2026"],
        ),
    ],
)
def test_codes_by_their_shape(text: str, codes: list[str]) -> None:
    assert read_codes(text) == codes


def test_codes_as_people_type_them() -> None:
    assert read_asked_codes("what is err 4012 on cx400, pn-88213?") == ["err-4012", "cx-400", "pn-88213"]
    assert read_asked_codes("why does it squeak") == []
