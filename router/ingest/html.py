"""HTML to blocks: headings, paragraphs, lists, tables and preformatted text of the part that a reader came for.

Own walk over lxml's tree. Extractors made for news sites were tried on the same pages: they drop the text of links inside
table cells and heading levels, and internal pages have neither adverts nor comments to remove. Navigation goes by its tag,
its role, or by being nearly all links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from router.domain import Span
from router.ingest.blocks import Block, Parsed, Unreadable, clean_text, clean_title
from router.ingest.front_matter import NARROWING_WORDS, fold_name
from router.ingest.markup import table_block

_DROPPED = {
    "script", "style", "noscript", "template", "svg", "math", "head", "nav", "iframe", "object", "canvas", "button", "select",
    "input", "textarea", "audio", "video",
}  # fmt: skip
_ROLES = {"navigation", "banner", "search", "menu", "menubar", "toolbar", "contentinfo"}
_FURNITURE = re.compile(
    r"(^|[\s_-])(nav|navbox|navbar|navigation|sidebar|breadcrumbs?|footer|cookie|menu|toc|pagination|editsection|jump-link|catlinks|"
    r"share|social|tabs?|noprint)([\s_-]|$)",
    re.IGNORECASE,
)
_CONTAINERS = {
    "div", "section", "article", "main", "body", "header", "footer", "aside", "form", "fieldset", "figure", "details", "dl", "center",
    "html", "blockquote", "hgroup", "address", "tbody", "thead", "tfoot", "tr", "td", "th",
}  # fmt: skip
_BLOCKS = _CONTAINERS | {
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "table",
    "pre",
    "dd",
    "dt",
    "figcaption",
    "summary",
    "hr",
}
_MOSTLY_LINKS = 0.6
_MAX_DEPTH = 200


def read_html(text: str) -> Parsed:
    import lxml.html

    text = clean_text(text)
    body = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    try:
        root: Any = lxml.html.document_fromstring(
            body, parser=lxml.html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False)
        )
    except Exception as error:  # noqa: BLE001 (lxml raises several kinds for text that is no markup)
        raise Unreadable("corrupt", f"not HTML ({type(error).__name__})") from None
    main = _main_part(root)
    blocks = tuple(_walk(main, 0))
    title = _title(root, main)
    language = (root.get("lang") or "").split("-")[0].lower() or None
    meta = {
        name: clean_title(content)
        for name in ("author", "description", "date")
        for content in root.xpath("//meta[@name=$name]/@content", name=name)[:1]
    }
    return Parsed(title, blocks, _narrowing(root), meta, language)


def _narrowing(root: Any) -> dict[str, Any]:
    """`<meta name="sensitivity" content="…">` is this format's front matter; a name that comes twice becomes a list."""
    wanted = {fold_name(word) for word in (*NARROWING_WORDS, "tenant")}
    found: dict[str, list[str]] = {}
    for tag in root.iter("meta"):
        name = tag.get("name") or tag.get("property") or ""
        if fold_name(name) in wanted:
            found.setdefault(name, []).append(tag.get("content") or "")
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def read_fragment(text: str) -> tuple[Block, ...]:
    """The blocks of HTML inside something else, as a message; its lines are not the document's."""
    return tuple(replace(block, span=Span()) for block in read_html(text).blocks) if text.strip() else ()


def _title(root: Any, main: Any) -> str:
    headings = [clean_title(_inline(heading)) for heading in main.iter("h1")]
    titles = [clean_title(title.text_content()) for title in root.iter("title")][:1]
    if len(headings) == 1 and headings[0]:
        return headings[0]
    return titles[0] if titles else ""


def _main_part(root: Any) -> Any:
    """`main` where there is one, an only `article` that holds most of the text, else the body."""
    body = root.find("body")
    body = root if body is None else body
    for path in (".//main", ".//*[@role='main']", ".//article"):
        found = body.xpath(path)
        if len(found) == 1 and 2 * len(_visible(found[0])) > len(_visible(body)):
            return found[0]
    return body


def _visible(element: Any) -> str:
    return " ".join("".join(element.xpath(".//text()[not(ancestor::script or ancestor::style or ancestor::nav)]")).split())


def _is_furniture(element: Any) -> bool:
    tag = element.tag
    if (
        tag in _DROPPED
        or element.get("role") in _ROLES
        or element.get("aria-hidden") == "true"
        or element.get("hidden") is not None
    ):
        return True
    if "display:none" in (element.get("style") or "").replace(" ", ""):
        return True
    links = sum(len(_text_of(link)) for link in element.iter("a"))
    if not links:
        return False
    share = links / max(1, len(_text_of(element)))
    named = tag in {"footer", "aside"} or bool(_FURNITURE.search(f"{element.get('class') or ''} {element.get('id') or ''}"))
    count = len(element.findall(".//a"))
    return (named and share > 0.3) or (tag in {"ul", "ol", "div", "table"} and share > _MOSTLY_LINKS and count > 8)


def _text_of(element: Any) -> str:
    return " ".join(element.text_content().split())


def _walk(element: Any, depth: int) -> Iterator[Block]:
    """Blocks in document order; text between block elements becomes a paragraph of its own."""
    if depth > _MAX_DEPTH:
        text = _text_of(element)
        if text:
            yield Block("paragraph", text, _span(element))
        return
    loose: list[str] = [element.text or ""]
    for child in element:
        if not isinstance(child.tag, str):
            loose.append(child.tail or "")
            continue
        if child.tag in _BLOCKS:
            yield from _flushed(loose, element)
            loose = []
            if not _is_furniture(child):
                yield from _block(child, depth + 1)
        elif child.tag == "br":
            loose.append("\n")
        elif any(inner.tag in _BLOCKS for inner in child.iter() if isinstance(inner.tag, str)):
            yield from _flushed(loose, element)
            loose = []
            if not _is_furniture(child):
                yield from _walk(child, depth + 1)
        elif not _is_furniture(child):
            loose.append(_inline(child))
        loose.append(child.tail or "")
    yield from _flushed(loose, element)


def _block(element: Any, depth: int) -> Iterator[Block]:
    tag = element.tag
    if tag in {"h1", "h2", "h3", "h4", "h5", "h6"}:
        text = _tidy(_inline(element))
        if text:
            yield Block("heading", " ".join(text.split()), _span(element), level=int(tag[1]))
    elif tag in {"ul", "ol"}:
        lines = list(_list_lines(element, 0))
        if lines:
            yield Block("paragraph", "\n".join(lines), _span(element))
    elif tag == "table":
        yield from _table(element, depth)
    elif tag == "pre":
        text = element.text_content().strip("\n")
        if text.strip():
            yield Block("code", text, _span(element))
    else:
        yield from _walk(element, depth)


def _table(element: Any, depth: int) -> Iterator[Block]:
    """A table of data is one block; one that only arranges the page is walked through."""
    rows = [row for row in element.iter("tr") if next(row.iterancestors("table")) is element]
    cells = [[cell for cell in row if cell.tag in {"td", "th"}] for row in rows]
    if next(element.iterdescendants("table"), None) is not None or max(map(len, cells), default=0) < 2:
        for caption_or_cell in element.iter("caption", "td", "th"):
            if next(caption_or_cell.iterancestors("table")) is element:
                yield from _walk(caption_or_cell, depth)
        return
    for caption in element.iter("caption"):
        if text := _tidy(_inline(caption)):
            yield Block("paragraph", text, _span(caption))
    values = [[" ".join(_inline(cell, breaks=", ").split()) for cell in row] for row in cells if row]
    block = table_block(values, _span(element))
    if block is not None:
        headed = all(cell.tag == "th" for cell in cells[0]) if cells[0] else False
        yield Block("table", block.text, block.span, header_lines=1 if headed else block.header_lines)


def _list_lines(element: Any, indent: int) -> Iterable[str]:
    for number, item in enumerate((child for child in element if child.tag == "li"), 1):
        mark = f"{number}." if element.tag == "ol" else "-"
        own: list[str] = [item.text or ""]
        nested: list[Any] = []
        for child in item:
            if isinstance(child.tag, str) and child.tag in {"ul", "ol"}:
                nested.append(child)
            elif isinstance(child.tag, str) and not _is_furniture(child):
                own.append(_inline(child))
            own.append(child.tail or "")
        text = " ".join("".join(own).split())
        if text:
            yield f"{'  ' * indent}{mark} {text}"
        for inner in nested:
            yield from _list_lines(inner, indent + 1)


def _inline(element: Any, breaks: str = "\n") -> str:
    """Text of an element without what is not shown; block elements inside it part words."""
    if not isinstance(element.tag, str) or element.tag in _DROPPED or _FURNITURE_INLINE.search(element.get("class") or ""):
        return ""
    if element.tag == "br":
        return breaks
    parts = [element.text or ""]
    for child in element:
        inner = _inline(child, breaks)
        parts.append(f" {inner} " if isinstance(child.tag, str) and child.tag in _BLOCKS | {"li"} else inner)
        parts.append(child.tail or "")
    return "".join(parts)


_FURNITURE_INLINE = re.compile(r"\b(mw-editsection|hash-link|headerlink|anchor-link|sr-only|visually-hidden)\b")


def _flushed(loose: list[str], element: Any) -> Iterator[Block]:
    text = _tidy("".join(loose))
    if text:
        yield Block("paragraph", text, _span(element))


def _tidy(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _span(element: Any) -> Span:
    first = element.sourceline
    if not first:
        return Span()
    last = max((inner.sourceline or first for inner in element.iter()), default=first)
    return Span(lines=(first, max(first, last)))
