"""Blocks to chunks that a model reads whole: by structure first, by windows only where a piece is too long.

What goes into the embedder is `embed_text`: title, heading path, then the text. The text's room is what title and path
leave of the model's limit, so nothing of it is cut off. Sections that are far below the limit join their neighbours under
the heading they share; a chunk never crosses a page, slide or sheet, so that its citation is exact.

INVARIANT: every visible character of the blocks stands in some chunk's text or heading path
(tests/unit/test_ingest_chunk.py::test_no_text_is_lost).
INVARIANT: no chunk ends with a list marker whose item is elsewhere, none begins with one alone, and a window begins in mid
sentence only where no better place is near (tests/unit/test_ingest_chunk.py::test_list_markers_stay_with_their_text,
::test_windows_begin_where_a_reader_would).
INVARIANT: `embed_text` of a chunk is within the model's limit (tests/unit/test_ingest_chunk.py::test_chunks_fit_the_model).
"""

from __future__ import annotations

import itertools
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from router.domain import Chunk, ContentKind, Span
from router.ingest.blocks import Block, Parsed, clean_title

Count = Callable[[str], int]

SPECIAL_TOKENS = 2
SMALL_TOKENS = 64  # a piece below this says too little alone
JOINED_SHARE = 0.75  # small neighbours join up to this share of the room
LEAST_ROOM_SHARE = 0.5  # title and heading path never take more than the other half
OVERLAP_TOKENS = 32
FEWEST_CHARS = 200
CHARS_PER_TOKEN = 8  # a "word" of a thousand characters is one unknown token; it still has to be read by somebody
PROGRAMMING = frozenset({"python", "javascript", "typescript", "tsx", "java", "go", "rust", "c", "cpp", "sql"})
NEAR_SHARE = 0.25  # how much of the room a window gives up to end at a better place
_SENTENCE = re.compile(r"((?<=[.!?:;])[ \t]+|\n)")
_MARKER = re.compile(
    r"\s*(?:[-*+\u2022\u2023\u25aa\u25cf\u2013]|\(?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-Za-z]|[ivxlIVXL]{1,6})[.):])\s*"
)
_ITEM = re.compile(r"\s*(?:[-*+\u2022\u2023\u25aa\u25cf\u2013]|\(?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-Za-z])[.)])\s+\S")
_ANYWHERE, _LINE, _BREAK = 0, 1, 2  # how good a place it is to begin: in mid line, in mid sentence, at a sentence or item


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: str
    text: str
    span: Span
    cost: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A sentence or line of a text that is cut into windows, and how good a place its beginning is to begin."""

    text: str
    cost: int
    place: int


@dataclass(slots=True)
class _Draft:
    """A chunk in the making: pieces under one heading path."""

    path: tuple[str, ...]
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def cost(self) -> int:
        return sum(piece.cost for piece in self.pieces)


def build_chunks(
    parsed: Parsed,
    *,
    source: str,
    key: str,
    uri: str,
    count: Count,
    max_tokens: int,
    version: str | None = None,
    meta: Mapping[str, str] | None = None,
) -> tuple[Chunk, ...]:
    """The chunks of one document, in order."""
    title = parsed.title or title_of_key(key, code=parsed.language in PROGRAMMING)
    splitter = _Splitter(title, count, max_tokens)
    code = is_code(parsed)
    drafts = splitter.code_drafts(parsed.blocks) if code else splitter.prose_drafts(parsed.blocks)
    document_id = f"{source}/{key}"
    shared = {**parsed.meta, **(meta or {})}
    return tuple(
        Chunk(
            f"{document_id}#{ordinal}",
            document_id,
            source,
            ordinal,
            title,
            draft.path,
            "\n".join(piece.text for piece in draft.pieces) if code else "\n\n".join(piece.text for piece in draft.pieces),
            "code" if code else _kind(draft.pieces),
            uri,
            _joined_span([piece.span for piece in draft.pieces]),
            version=version,
            language=parsed.language,
            meta={**shared, "scope": ".".join(draft.path)} if code and draft.path else shared,
        )
        for ordinal, draft in enumerate(drafts)
    )


def is_code(parsed: Parsed) -> bool:
    """A source file whose blocks are its lines."""
    return parsed.language in PROGRAMMING and all(block.kind == "code" and block.span.page is None for block in parsed.blocks)


def embed_text(chunk: Chunk, count: Count, max_tokens: int) -> str:
    """What the embedder reads of a chunk. Context and heading give way to the text, never the other way round: `max_tokens` is
    the limit under which the chunk was cut, without what was set aside for contexts."""
    head = chunk_head(chunk.title, chunk.heading_path, count, max_tokens)
    return "\n".join(part for part in (head, chunk.context, chunk.text) if part)


def chunk_head(title: str, path: Sequence[str], count: Count, max_tokens: int) -> str:
    """Title and heading path within their share: outer headings go first, then the title's last words."""
    room = int((max_tokens - SPECIAL_TOKENS) * (1 - LEAST_ROOM_SHARE))
    for start in range(len(path) + 1):
        head = "\n".join(part for part in (title, " > ".join(path[start:])) if part)
        if _cost(head, count) <= room:
            return head
    words, low, high = title.split(), 0, len(title.split())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _cost(" ".join(words[:middle]), count) <= room else (low, middle - 1)
    return " ".join(words[:low])


def build_passages(
    parsed: Parsed,
    *,
    source: str,
    key: str,
    uri: str,
    count: Count,
    max_tokens: int,
    version: str | None = None,
    meta: Mapping[str, str] | None = None,
) -> tuple[Chunk, ...]:
    """One passage as it is, or its windows."""
    document_id = f"{source}/{key}"
    text = "\n".join(block.text for block in parsed.blocks)
    kind: ContentKind = "code" if looks_like_code(text) else "prose"
    windows = chunk_plain(parsed.title, text, count=count, max_tokens=max_tokens)
    return tuple(
        Chunk(
            f"{document_id}#{at}",
            document_id,
            source,
            at,
            parsed.title,
            (),
            window,
            kind,
            uri,
            Span(),
            version=version,
            meta=meta or {},
        )
        for at, window in enumerate(windows)
    )


_CODE_LINE = re.compile(r"[{};,(\[\\]$|^(?://|/?\*|\*/|#|@|--)|\)[;:,]?$|->|=>|::|\w\(.*\)|^\w+ = ")


def looks_like_code(text: str) -> bool:
    """Of text without a file name: several lines, most of them code or comment by their look, or many marks of code."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 4:
        return False
    marks = sum(char in "{}()[];=<>_&|" for char in text)
    return marks > 0.03 * len(text) or sum(bool(_CODE_LINE.search(line)) for line in lines) >= 0.6 * len(lines)


def chunk_plain(
    title: str, text: str, *, count: Count, max_tokens: int, window_chars: int = 900, overlap_chars: int = 200
) -> list[str]:
    """A passage that is a document already stays whole when title and text fit the model; else windows of about `window_chars`
    that share `overlap_chars`, cut at blanks, and shorter ones where the model reads so dense a text in smaller pieces only."""
    room = max_tokens - SPECIAL_TOKENS - count(title)
    if count(text) <= room:
        return [text]
    windows = _char_windows(text, window_chars, overlap_chars)
    while window_chars > FEWEST_CHARS and any(count(window) > room for window in windows):
        window_chars, overlap_chars = int(0.85 * window_chars), int(0.85 * overlap_chars)
        windows = _char_windows(text, window_chars, overlap_chars)
    return windows


def _char_windows(text: str, window_chars: int, overlap_chars: int) -> list[str]:
    windows: list[str] = []
    start = 0
    while start < len(text):
        end = start + window_chars
        if end < len(text):
            blank = max(text.rfind(" ", start + window_chars // 2, end), text.rfind("\n", start + window_chars // 2, end))
            end = blank if blank > 0 else end
        windows.append(text[start:end].strip())
        if end >= len(text):
            break
        back = max(end - overlap_chars, start + 1)
        blank = text.find(" ", back, end)
        start = blank + 1 if 0 < blank < end else back
    return [window for window in windows if window]


def title_of_key(key: str, *, code: bool = False) -> str:
    """A document that does not name itself is called by its place."""
    if code:
        return clean_title(key)
    return clean_title(os.path.splitext(key.rsplit("/", 1)[-1])[0].replace("_", " ").replace("-", " ")) or clean_title(key)


def _cost(text: str, count: Count) -> int:
    return max(count(text), len(text) // CHARS_PER_TOKEN)


class _Splitter:
    """One document's title and model, for the functions below."""

    def __init__(self, title: str, count: Count, max_tokens: int) -> None:
        self._title, self._count, self._max_tokens = title, count, max_tokens

    def room(self, path: Sequence[str]) -> int:
        head = chunk_head(self._title, path, self._count, self._max_tokens)
        return self._max_tokens - SPECIAL_TOKENS - _cost(head, self._count)

    def cost(self, text: str) -> int:
        return _cost(text, self._count)

    # --- prose: sections under headings ---

    def prose_drafts(self, blocks: Sequence[Block]) -> list[_Draft]:
        drafts: list[_Draft] = []
        for path, body in _sections(blocks, self._title):
            drafts.extend(self._section_drafts(path, body))
        joined = self._join_small([draft for draft in drafts if draft.pieces])
        if not joined and blocks:  # nothing but its title
            joined = [_Draft((), [_Piece("heading", blocks[0].text, blocks[0].span, self.cost(blocks[0].text))])]
        return joined

    def _section_drafts(self, path: tuple[str, ...], body: Sequence[Block]) -> Iterator[_Draft]:
        room = self.room(path)
        draft = _Draft(path)
        for block in _with_markers(body):
            for piece in self._pieces(block, room):
                turned = draft.pieces and _place(draft.pieces[-1].span) != _place(piece.span)
                if draft.pieces and (turned or draft.cost + piece.cost > room):
                    yield draft
                    draft = _Draft(path)
                draft.pieces.append(piece)
        yield draft

    def _pieces(self, block: Block, room: int) -> Iterable[_Piece]:
        cost = self.cost(block.text)
        if cost <= room:
            return [_Piece(block.kind, block.text, block.span, cost)]
        if block.kind == "table":
            return self._table_pieces(block, room)
        if block.kind == "code":
            return self._line_pieces(block, room)
        return self._windows(block, room, OVERLAP_TOKENS)

    def _join_small(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        joined: list[_Draft] = []
        for draft in drafts:
            last = joined[-1] if joined else None
            both = self._joined(last, draft) if last is not None else None
            if both is not None:
                joined[-1] = both
            else:
                joined.append(draft)
        return joined

    def _joined(self, left: _Draft, right: _Draft) -> _Draft | None:
        """Both in one draft under the heading they share, if one is small and they fit; headings below it become text."""
        if left.path == right.path and left.cost + right.cost > self.room(left.path):
            return None
        if left.path != right.path and max(left.cost, right.cost) >= 2 * SMALL_TOKENS:
            return None  # a section that stands by itself keeps its heading path
        if min(left.cost, right.cost) >= SMALL_TOKENS or _place(left.pieces[-1].span) != _place(right.pieces[0].span):
            return None
        shared = tuple(
            a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left.path, right.path, strict=False))
        )
        both = _Draft(shared, [*self._headed(left, shared), *self._headed(right, shared)])
        return both if both.cost <= JOINED_SHARE * self.room(shared) else None

    def _headed(self, draft: _Draft, path: tuple[str, ...]) -> list[_Piece]:
        below = draft.path[len(path) :]
        if not below:
            return draft.pieces
        text, span = " > ".join(below), draft.pieces[0].span
        return [_Piece("heading", text, span, self.cost(text)), *draft.pieces]

    # --- code: units of the syntax tree ---

    def code_drafts(self, blocks: Sequence[Block]) -> list[_Draft]:
        drafts: list[_Draft] = []
        for path, piece in self._code_pieces(blocks):
            last = drafts[-1] if drafts else None
            small = last is not None and last.cost < SMALL_TOKENS and piece.cost < SMALL_TOKENS
            if last is not None and small and last.path[:-1] == path[:-1]:
                last.pieces.append(piece)
                last.path = last.path if last.path == path else path[:-1]
            else:
                drafts.append(_Draft(path, [piece]))
        return drafts

    def _code_pieces(self, blocks: Sequence[Block]) -> Iterator[tuple[tuple[str, ...], _Piece]]:
        for block in blocks:
            path = tuple(name for name in (*block.scope.split("."), block.name) if name)
            cost, room = self.cost(block.text), self.room(path)
            if cost <= room:
                yield path, _Piece("code", block.text, block.span, cost)
            elif block.parts:
                yield from self._code_pieces(block.parts)
            else:
                for piece in self._line_pieces(block, room):
                    yield path, piece

    # --- pieces that are too long ---

    def _table_pieces(self, block: Block, room: int) -> Iterator[_Piece]:
        """Rows in groups, each under the header again, unless the header itself is most of the room."""
        lines = block.text.split("\n")
        header = lines[: block.header_lines]
        head_cost = self.cost("\n".join(header)) if header else 0
        repeated = header if head_cost <= room // 2 else []
        first = _first_line(block.span)
        group: list[str] = []
        began = 0
        spent = head_cost if repeated else 0
        for number, line in enumerate(lines[len(repeated) :], len(repeated)):
            cost = self.cost(line) + 1
            if group and spent + cost > room:
                yield self._rows(block, repeated + group, first, began, number - 1)
                group, spent = [], head_cost if repeated else 0
            if not group:
                began = number
            if spent + cost > room:
                span = _lines(block.span, first, number, number)
                yield from self._windows(Block("table", line, span), room, 0)
                continue
            group.append(line)
            spent += cost
        if group:
            yield self._rows(block, repeated + group, first, began, len(lines) - 1)

    def _rows(self, block: Block, lines: Sequence[str], first: int | None, began: int, ended: int) -> _Piece:
        text = "\n".join(lines)
        return _Piece(block.kind, text, _lines(block.span, first, began, ended), self.cost(text))

    def _line_pieces(self, block: Block, room: int) -> Iterator[_Piece]:
        """Code by lines, cut at the last blank line that fits."""
        lines, first = block.text.split("\n"), _first_line(block.span)
        costs = [self.cost(line) for line in lines]
        count = -(-sum(costs) // room)  # pieces of about one size, no tail of two lines
        room = min(room, -(-sum(costs) // count) + max(costs))
        at = 0
        while at < len(lines):
            end, spent = at, 0
            while end < len(lines) and (spent + costs[end] <= room):
                spent += costs[end]
                end += 1
            if end == at:
                yield from self._windows(Block(block.kind, lines[at], _lines(block.span, first, at, at)), room, 0)
                at += 1
                continue
            if end < len(lines):
                blank = next((n for n in range(end, at + (end - at) // 2, -1) if not lines[n - 1].strip()), end)
                end = blank
            text = "\n".join(lines[at:end])
            if text.strip():
                yield _Piece(block.kind, text, _lines(block.span, first, at, end - 1), self.cost(text))
            at = end

    def _windows(self, block: Block, room: int, overlap: int) -> Iterator[_Piece]:
        """Sentences in groups that fit, each group beginning with the end of the one before."""
        group: list[_Part] = []
        old = 0  # parts at its beginning that the group before has, too
        for part in self._sentences(block.text, room):
            while len(group) > old and sum(item.cost for item in group) + part.cost > room:
                cut = _best_cut(group, old, part, room)
                yield self._window(block, group[:cut])
                rest = group[cut:]
                spare = room - part.cost - sum(item.cost for item in rest)
                kept = _overlap(group[:cut], (rest or [part])[0], min(overlap, spare))
                group, old = [*kept, *rest], len(kept)
            group.append(part)
        if len(group) > old:
            yield self._window(block, group)

    def _window(self, block: Block, group: Sequence[_Part]) -> _Piece:
        text = "".join(part.text for part in group).strip("\n").rstrip()
        return _Piece(block.kind, text, block.span, self.cost(text))

    def _sentences(self, text: str, room: int) -> Iterator[_Part]:
        """Sentences and lines, each with the blank or line end after it; a list marker stays with what it marks."""
        place = _BREAK
        for sentence, gap in _marked(_SENTENCE.split(text)):
            if not sentence.strip():
                place = _BREAK  # a blank line
                continue
            if _ITEM.match(sentence):
                place = _BREAK
            cost = self.cost(sentence)
            if cost <= room and len(sentence) < room * CHARS_PER_TOKEN - 2:
                yield _Part(sentence + gap, self.cost(sentence + gap), place)
            else:
                *firsts, last = self._word_groups(sentence, room)
                for group in firsts:
                    yield _Part(group + " ", self.cost(group), place)
                    place = _ANYWHERE
                yield _Part(last + gap, self.cost(last), place)
            place = _BREAK if sentence.rstrip().endswith((".", "!", "?", ":", ";")) else _LINE

    def _word_groups(self, sentence: str, room: int) -> Iterator[str]:
        group: list[str] = []
        spent = 0
        for word in self._words(sentence, room):
            cost = self.cost(word)
            if group and (spent + cost > room or sum(map(len, group)) + len(group) + len(word) > room * CHARS_PER_TOKEN - 2):
                yield " ".join(group)
                group, spent = [], 0
            group.append(word)
            spent += cost
        if group:
            yield " ".join(group)

    def _words(self, sentence: str, room: int) -> Iterator[str]:
        """Words; one that alone is above the room is cut by characters (base64, a script without blanks)."""
        for word in sentence.split():
            if self.cost(word) <= room:
                yield word
            else:
                yield from (word[at : at + room] for at in range(0, len(word), room))


def _marked(parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(sentence, gap after it) of a text that was split at its gaps; a lone list marker is part of the sentence after it."""
    marker = ""
    for sentence, gap in itertools.zip_longest(parts[::2], parts[1::2], fillvalue=""):
        if _MARKER.fullmatch(sentence) and gap:
            marker += sentence + gap
        elif sentence.strip() or not marker:
            yield marker + sentence, gap
            marker = ""
    if marker:
        yield marker, ""


def _best_cut(group: Sequence[_Part], old: int, following: _Part, room: int) -> int:
    """Index in the group at which the next window begins: its end, or a better place shortly before it."""
    best, place, spent = len(group), following.place, 0
    for at in range(len(group) - 1, old, -1):
        spent += group[at].cost
        if place == _BREAK or spent > NEAR_SHARE * room or spent + following.cost > room:
            break
        if group[at].place > place:
            best, place = at, group[at].place
    return best


def _overlap(before: Sequence[_Part], following: _Part, room: int) -> list[_Part]:
    """The last parts of a window, from where a reader could begin; none when the window after them begins better alone."""
    kept: list[_Part] = []
    for part in reversed(before):
        if sum(item.cost for item in kept) + part.cost > room:
            break
        kept.insert(0, part)
    breaks = [at for at, part in enumerate(kept) if part.place == _BREAK]
    if breaks:
        return kept[breaks[0] :]
    return [] if following.place == _BREAK else kept


def _with_markers(blocks: Sequence[Block]) -> Iterator[Block]:
    """A paragraph that is nothing but a list marker begins the paragraph after it (some formats give them apart)."""
    marker: Block | None = None
    for block in blocks:
        if marker is not None:
            if block.kind == "paragraph" and _place(block.span) == _place(marker.span):
                span = _joined_span([marker.span, block.span])
                block = replace(block, text=f"{marker.text.strip()} {block.text}", span=span)  # noqa: PLW2901
            else:
                yield marker
            marker = None
        if block.kind == "paragraph" and _MARKER.fullmatch(block.text):
            marker = block
        else:
            yield block
    if marker is not None:
        yield marker


# --- sections, places, kinds ------------------------------------------------------------------------------------------


def _sections(blocks: Sequence[Block], title: str) -> Iterator[tuple[tuple[str, ...], list[Block]]]:
    """(heading path, blocks). A heading that repeats the title is left out of the path; one without a body or a deeper
    heading after it becomes a body of its own."""
    stack: list[tuple[int, str]] = []
    body: list[Block] = []
    for at, block in enumerate(blocks):
        if block.kind != "heading":
            body.append(block)
            continue
        if body:
            yield _path(stack, title), body
            body = []
        while stack and stack[-1][0] >= block.level:
            stack.pop()
        name = " ".join(block.text.split())
        following = blocks[at + 1] if at + 1 < len(blocks) else None
        barren = following is None or (following.kind == "heading" and following.level <= block.level)
        if barren and name != title:
            yield _path(stack, title), [Block("paragraph", block.text, block.span)]
        stack.append((block.level, name))
    if body:
        yield _path(stack, title), body


def _path(stack: Sequence[tuple[int, str]], title: str) -> tuple[str, ...]:
    names = tuple(name for _, name in stack)
    return names[1:] if names and names[0] == title else names


def _place(span: Span) -> tuple[int | None, str | None]:
    return span.page, span.sheet


def _first_line(span: Span) -> int | None:
    return span.lines[0] if span.lines else None


def _lines(span: Span, first: int | None, began: int, ended: int) -> Span:
    if first is None or span.lines is None:
        return span
    last = span.lines[1]
    return Span(span.page, (min(first + began, last), min(first + ended, last)), span.sheet)


def _joined_span(spans: Sequence[Span]) -> Span:
    lines = [span.lines for span in spans if span.lines]
    around = (min(begin for begin, _ in lines), max(end for _, end in lines)) if lines else None
    return Span(spans[0].page, around, spans[0].sheet)


def _kind(pieces: Sequence[_Piece]) -> ContentKind:
    total = sum(piece.cost for piece in pieces) or 1
    for kind in ("table", "code"):
        if 2 * sum(piece.cost for piece in pieces if piece.kind == kind) > total:
            return "table" if kind == "table" else "code"
    return "prose"
