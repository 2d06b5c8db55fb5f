"""Chunks: nothing lost, nothing cut by the model, structure kept."""

from __future__ import annotations

import itertools
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.local_models import WordPiece
from router.domain import Chunk, Span
from router.ingest.blocks import Block, Parsed
from router.ingest.chunk import build_chunks, chunk_plain, embed_text, title_of_key
from router.ingest.code import read_code
from router.ingest.markup import read_markdown, read_text

LIMIT = 256


@cache
def words() -> WordPiece:
    return WordPiece(Path(__file__).parents[2] / "router" / "model" / "vocab.txt")


def count(text: str) -> int:
    return words().count(text)


def chunks_of(parsed: Parsed, key: str = "a/b.md") -> tuple[Chunk, ...]:
    return build_chunks(parsed, source="s", key=key, uri="file:///a/b.md", count=count, max_tokens=LIMIT)


WORD = st.one_of(
    st.text(alphabet="abcdefghij", min_size=1, max_size=9),
    st.sampled_from(["ERR-4012", "PN-88213", "max_retry_count", "Größe", "契約", "a" * 700, "x.y", "\u202eabc", "🚚"]),
)
SENTENCE = st.lists(WORD, min_size=1, max_size=60).map(lambda parts: " ".join(parts) + ".")
PARAGRAPH = st.lists(SENTENCE, min_size=1, max_size=9).map(" ".join)
TABLE = st.lists(st.lists(WORD, min_size=2, max_size=4).map(" | ".join), min_size=2, max_size=40)
BLOCK = st.one_of(
    st.builds(lambda text, level: Block("heading", text, Span(), level=level), st.lists(WORD, min_size=1, max_size=8).map(" ".join), st.integers(1, 4)),
    st.builds(lambda text, page: Block("paragraph", text, Span(page=page)), PARAGRAPH, st.sampled_from([None, 1, 2])),
    st.builds(lambda rows: Block("table", "\n".join(rows), Span(), header_lines=1), TABLE),
    st.builds(lambda rows: Block("code", "\n".join(rows), Span()), st.lists(PARAGRAPH, min_size=1, max_size=5)),
)  # fmt: skip
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def visible(text: str) -> str:
    return "".join(text.split())


@QUICK
@given(st.lists(BLOCK, min_size=1, max_size=8), st.sampled_from(["", "A title", "long " * 80]))
def test_no_text_is_lost(blocks: list[Block], title: str) -> None:
    made = chunks_of(Parsed(title, tuple(blocks)))
    everything = [visible(" ".join((chunk.title, *chunk.heading_path)) + chunk.text) for chunk in made]
    for block in blocks:
        for word in block.text.split():
            if len(word) < 600:
                assert any(word in text for text in everything), word
    assert sum(text.count("a" * 60) > 0 for text in everything) > 0 or not any("a" * 700 in block.text for block in blocks)


@QUICK
@given(st.lists(BLOCK, min_size=1, max_size=8), st.sampled_from(["", "A title", "long " * 80]))
def test_chunks_fit_the_model(blocks: list[Block], title: str) -> None:
    for chunk in chunks_of(Parsed(title, tuple(blocks))):
        text = embed_text(chunk, count, LIMIT)
        assert count(text) + 2 <= LIMIT
        assert text.endswith(chunk.text)
        assert chunk.text.strip()


@QUICK
@given(st.lists(BLOCK, min_size=1, max_size=8))
def test_ids_and_pages(blocks: list[Block]) -> None:
    made = chunks_of(Parsed("t", tuple(blocks)))
    assert [chunk.chunk_id for chunk in made] == [f"s/a/b.md#{number}" for number in range(len(made))]
    for block in blocks:
        if block.kind == "paragraph" and block.span.page is not None:
            first = block.text.split()[0]
            assert any(chunk.span.page == block.span.page and (first in chunk.text or len(first) > 600) for chunk in made)


def test_heading_path_and_lines() -> None:
    text = (
        "# Pump\n\nIntro text.\n\n## Service\n\n"
        + ("The drive belt is tightened to 12 Nm. " * 18)
        + "\n\n## Faults\n\n"
        + ("Look at the lamp first. " * 30)
    )
    made = chunks_of(read_markdown(text))
    assert [chunk.heading_path for chunk in made] == [(), ("Service",), ("Faults",)]
    assert {chunk.title for chunk in made} == {"Pump"}
    assert [chunk.span.lines for chunk in made] == [(3, 3), (7, 7), (11, 11)]


def test_small_neighbours_join_under_the_heading_they_share() -> None:
    text = "# Pump\n\n## Codes\n\n### ERR-1\n\nOil is low.\n\n### ERR-2\n\nBelt slips.\n"
    (chunk,) = chunks_of(read_markdown(text))
    assert chunk.heading_path == ("Codes",)
    assert chunk.text == "ERR-1\n\nOil is low.\n\nERR-2\n\nBelt slips."


def test_table_is_split_by_rows_under_its_header() -> None:
    rows = "\n".join(f"| PN-{number} | bearing number {number} | bin A-{number} |" for number in range(200))
    made = chunks_of(read_markdown(f"# Parts\n\n| part | what | bin |\n|---|---|---|\n{rows}\n"))
    assert len(made) > 5
    assert all(chunk.text.startswith("| part | what | bin |\n|---|---|---|\n| PN-") for chunk in made)
    assert {chunk.kind for chunk in made} == {"table"}
    found = re.findall(r"PN-(\d+)", "\n".join(chunk.text for chunk in made))
    assert found == [str(number) for number in range(200)]


def test_windows_share_the_end_of_the_one_before() -> None:
    text = " ".join(f"Sentence number {number} says something of its own." for number in range(120))
    made = chunks_of(read_text(text), "a.txt")
    for before, after in itertools.pairwise(made):
        assert after.text.split(".")[0] in before.text
    assert all(chunk.span.lines == (1, 1) for chunk in made)


ITEMS = [f"Step {n} turns the part numbered {n * 7} by a hand and a half." for n in range(1, 60)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("\n".join(f"{n}. {item}" for n, item in enumerate(ITEMS, 1)), "a.md"),
        ("\n".join(f"{n}.\n{item}" for n, item in enumerate(ITEMS, 1)), "a.md"),
        (" ".join(f"{n}. {item}" for n, item in enumerate(ITEMS, 1)), "a.md"),
        ("\n\n".join(f"{n}.\n\n{item}" for n, item in enumerate(ITEMS, 1)), "a.md"),
        ("\n".join(f"  ({n}) {item}" for n, item in zip("abcdefghijklmnopqrstuvwxyz", ITEMS, strict=False)), "a.txt"),
        ("\n".join(f"- {item}\n  {item}" for item in ITEMS), "a.md"),
    ],
)
def test_list_markers_stay_with_their_text(text: str, name: str) -> None:
    made = chunks_of((read_markdown if name == "a.md" else read_text)(text), name)
    assert len(made) > 2
    for chunk in made:
        lines = chunk.text.split("\n")
        assert not re.fullmatch(r"\W*\w{0,2}\W*", lines[-1]), lines[-1]
        assert re.match(r"\W*(\w{1,2}\W+)?Step", chunk.text), chunk.text[:40]
        assert chunk.text.endswith("half.")
    for n, item in enumerate(ITEMS[:26], 1):
        assert any(item in chunk.text for chunk in made), n


def test_windows_begin_where_a_reader_would() -> None:
    """Lines that are broken in mid sentence: a window begins at a sentence or an item, when one is near."""
    sentences = [
        f"Sentence {n} runs over more than one line, as lines of mails and manuals do, and ends here." for n in range(80)
    ]
    wrapped = textwrap.fill(" ".join(sentences), 50)
    for made in (chunks_of(read_markdown(wrapped)), chunks_of(read_text(wrapped), "a.txt")):
        assert len(made) > 4
        assert all(chunk.text.startswith("Sentence") for chunk in made[1:])
    items = "\n".join(textwrap.fill(f"- {sentence} {sentence}", 50, subsequent_indent="  ") for sentence in sentences)
    made = chunks_of(read_markdown(items))
    assert all(re.match(r"(- )?Sentence", chunk.text.lstrip()) for chunk in made)
    endless = " ".join(f"word{n}" for n in range(900)).replace("9 ", "9\n")
    assert set(" ".join(chunk.text for chunk in chunks_of(read_text(endless), "a.txt")).split()) == set(endless.split())


def test_a_title_alone_is_a_chunk() -> None:
    (chunk,) = chunks_of(read_markdown("# Only a title\n"))
    assert chunk.text == "Only a title"


def test_title_of_key() -> None:
    assert title_of_key("hr/leave-policy_v2.docx") == "leave policy v2"
    assert title_of_key("src/a.py", code=True) == "src/a.py"


def test_code_keeps_functions_whole_and_splits_large_types() -> None:
    methods = "\n".join(
        f"    def method_{n}(self) -> int:\n        return {n} + self.start + other_call({n}) * 7\n" for n in range(30)
    )
    padding = "x " * 60
    function = f'@decorate\ndef first(a: int) -> int:\n    """Doc of first."""\n    return a + 1 + len("{padding}")\n'
    text = f'"""Module."""\nimport os\n\n\n{function}\n\nclass Gate:\n    """A gate."""\n\n    limit = 3\n\n{methods}'
    made = chunks_of(read_code(text, "python"), "src/gate.py")
    first = next(chunk for chunk in made if chunk.heading_path == ("first",))
    assert first.text.startswith("@decorate\ndef first")
    assert '"""Doc of first."""' in first.text
    assert all(chunk.kind == "code" and chunk.language == "python" and chunk.meta["imports"] == "import os" for chunk in made)
    inside = [chunk for chunk in made if chunk.heading_path[:1] == ("Gate",)]
    assert len(inside) > 3
    for chunk in inside:
        assert chunk.text.count("def ") == chunk.text.count("return") or "limit" in chunk.text


def test_chunk_plain() -> None:
    short = "A passage that fits."
    assert chunk_plain("t", short, count=count, max_tokens=LIMIT) == [short]
    long = " ".join(f"word{number}" for number in range(600))
    windows = chunk_plain("t", long, count=count, max_tokens=LIMIT, window_chars=900, overlap_chars=200)
    assert all(len(window) <= 900 for window in windows)
    assert set(" ".join(windows).split()) == set(long.split())
    for before, after in itertools.pairwise(windows):
        assert after.split()[0] in before.split()
