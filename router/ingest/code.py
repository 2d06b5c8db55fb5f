"""Source code by its syntax tree: whole functions and types with their comments and decorators, and what lies between.

The blocks of a file are its lines, each line in exactly one block; a type too large for one chunk falls into its members.
Definitions are found by tree-sitter; a file that does not parse still gives its lines.

INVARIANT: the blocks of a file join to its visible text (tests/unit/test_ingest_code.py::test_every_line_once).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from router.domain import Span
from router.ingest.blocks import Block, Parsed, clean_text

_GRAMMARS = {
    "python": ("tree_sitter_python", "language"), "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"), "tsx": ("tree_sitter_typescript", "language_tsx"),
    "java": ("tree_sitter_java", "language"), "go": ("tree_sitter_go", "language"), "rust": ("tree_sitter_rust", "language"),
    "c": ("tree_sitter_c", "language"), "cpp": ("tree_sitter_cpp", "language"), "sql": ("tree_sitter_sql", "language"),
}  # fmt: skip
_UNITS = frozenset(
    """
    function_definition class_definition decorated_definition function_declaration generator_function_declaration class_declaration
    abstract_class_declaration method_definition interface_declaration type_alias_declaration enum_declaration record_declaration
    method_declaration constructor_declaration annotation_type_declaration type_declaration function_item impl_item struct_item
    enum_item trait_item mod_item macro_definition union_item type_item struct_specifier enum_specifier union_specifier class_specifier
    type_definition namespace_definition template_declaration internal_module module export_statement statement
    compact_constructor_declaration function_signature_item public_field_definition
    """.split()
)
_CONTAINERS = frozenset(
    """
    class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration record_declaration impl_item
    trait_item mod_item namespace_definition class_specifier struct_specifier internal_module module decorated_definition
    export_statement template_declaration
    """.split()
)
_WRAPPERS = frozenset({"decorated_definition", "export_statement", "template_declaration"})
_TRANSPARENT = frozenset(
    """
    program translation_unit source_file module block class_body interface_body declaration_list field_declaration_list enum_body
    statement_block preproc_if preproc_ifdef preproc_else linkage_specification enum_body_declarations expression_statement
    field_declaration declaration object_type
    """.split()
)
_DECLARATIONS = frozenset({"lexical_declaration", "variable_declaration"})
_FUNCTIONS = frozenset({"arrow_function", "function_expression", "function", "class", "generator_function"})
_LEADING = frozenset({"comment", "line_comment", "block_comment", "attribute_item", "decorator", "marginalia"})
_IMPORTS = frozenset(
    {"import_statement", "import_from_statement", "import_declaration", "use_declaration", "preproc_include", "package_declaration", "package_clause"}
)  # fmt: skip
_MOST_IMPORT_CHARS = 400


@dataclass(frozen=True, slots=True)
class _Unit:
    """A definition as lines of the file, both ends from 0 and included."""

    first: int
    last: int
    scope: tuple[str, ...]
    name: str
    node: Any


def read_code(text: str, language: str) -> Parsed:
    from tree_sitter import Language, Parser

    text = clean_text(text).removeprefix("\ufeff")
    module, function = _GRAMMARS[language]
    grammar = Language(getattr(importlib.import_module(module), function)())
    root = Parser(grammar).parse(text.encode("utf-8")).root_node
    lines = text.split("\n")
    blocks = tuple(_blocks(lines, 0, len(lines) - 1, list(_units(root, ())), (), ""))
    imports = "; ".join(" ".join(_text(node).split()) for node in root.named_children if node.type in _IMPORTS)
    meta = {"imports": imports[:_MOST_IMPORT_CHARS]} if imports else {}
    return Parsed("", blocks, {}, meta, language)


def _blocks(
    lines: Sequence[str], first: int, last: int, units: Sequence[_Unit], scope: tuple[str, ...], name: str
) -> Iterator[Block]:
    """The lines from `first` to `last`: units as blocks of their own, what lies between as blocks of the enclosing scope."""
    at = first
    for unit in units:
        if unit.first < at or unit.last > last:
            continue  # on a line that is taken: it stays with what is there
        yield from _between(lines, at, unit.first - 1, scope, name)
        yield _unit_block(lines, unit)
        at = unit.last + 1
    yield from _between(lines, at, last, scope, name)


def _between(lines: Sequence[str], first: int, last: int, scope: tuple[str, ...], name: str) -> Iterator[Block]:
    while first <= last and not lines[first].strip():
        first += 1
    while last >= first and not lines[last].strip():
        last -= 1
    if first <= last:
        yield Block(
            "code", "\n".join(lines[first : last + 1]), Span(lines=(first + 1, last + 1)), scope=".".join(scope), name=name
        )


def _unit_block(lines: Sequence[str], unit: _Unit) -> Block:
    inner = _container(unit.node)
    parts: tuple[Block, ...] = ()
    if inner is not None:
        members = list(_units(inner, (*unit.scope, unit.name) if unit.name else unit.scope))
        if members:
            parts = tuple(_blocks(lines, unit.first, unit.last, members, unit.scope, unit.name))
    text = "\n".join(lines[unit.first : unit.last + 1])
    span = Span(lines=(unit.first + 1, unit.last + 1))
    return Block("code", text, span, scope=".".join(unit.scope), name=unit.name, parts=parts if len(parts) > 1 else ())


def _container(node: Any) -> Any:
    """The node that holds members, inside decorators and the like; None for a function."""
    while node.type in _WRAPPERS:
        inner = next((child for child in node.named_children if child.type in _UNITS or child.type in _DECLARATIONS), None)
        if inner is None:
            return None
        node = inner
    if node.type == "type_definition":
        node = next((child for child in node.named_children if child.type in _CONTAINERS), node)
    return node if node.type in _CONTAINERS else None


def _units(node: Any, scope: tuple[str, ...], depth: int = 0) -> Iterator[_Unit]:
    """Definitions directly inside `node`, with the comments and attributes right above them."""
    leading: int | None = None
    above = -2
    for child in node.named_children:
        row, end = child.start_point[0], _end_row(child)
        if child.type in _LEADING:
            leading = row if leading is None or row > above + 1 else leading
            above = end
            continue
        start = leading if leading is not None and row <= above + 1 else row
        leading = None
        name = _name(child)
        if child.type in _UNITS and (name or child.type in _WRAPPERS or child.type == "statement"):
            owner = _receiver(child)
            yield _Unit(start, end, (*scope, owner) if owner else scope, name, child)
        elif child.type in _DECLARATIONS and name:
            yield _Unit(start, end, scope, name, child)
        elif child.type in _TRANSPARENT and depth < 20:
            yield from _units(child, scope, depth + 1)


def _end_row(node: Any) -> int:
    row, column = node.end_point[0], node.end_point[1]
    return int(row - 1 if column == 0 and row > node.start_point[0] else row)


def _name(node: Any) -> str:
    kind = node.type
    if kind in _WRAPPERS:
        inner = next((child for child in node.named_children if child.type in _UNITS or child.type in _DECLARATIONS), None)
        return _name(inner) if inner is not None else ""
    if kind in _DECLARATIONS:
        return next((_text(child.child_by_field_name("name")) for child in node.named_children if _is_function(child)), "")
    if kind == "statement":
        return _sql_name(node)
    if kind == "type_declaration":
        inner = next((child.child_by_field_name("name") for child in node.named_children), None)
        return _text(inner)
    if kind == "public_field_definition":
        return _text(node.child_by_field_name("name")) if node.end_point[0] > node.start_point[0] else ""
    named = node.child_by_field_name("type" if kind == "impl_item" else "name")
    return _text(named) if named is not None else _declared(node)


def _is_function(node: Any) -> bool:
    value = node.child_by_field_name("value") if node.type == "variable_declarator" else None
    return value is not None and value.type in _FUNCTIONS


def _declared(node: Any) -> str:
    """C and C++: the innermost name of the declarator."""
    for _ in range(20):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            break
        node = inner
    return _text(node) if node.type.endswith("identifier") or node.type in {"operator_name", "destructor_name"} else ""


def _receiver(node: Any) -> str:
    """The type a Go method belongs to."""
    receiver = node.child_by_field_name("receiver") if node.type == "method_declaration" else None
    if receiver is None:
        return ""
    stack = [receiver]
    while stack:
        inner = stack.pop()
        if inner.type == "type_identifier":
            return _text(inner)
        stack.extend(inner.named_children)
    return ""


def _sql_name(node: Any) -> str:
    stack = list(reversed(node.named_children))
    for _ in range(50):
        if not stack:
            break
        inner = stack.pop()
        if inner.type == "object_reference":
            return _text(inner)
        stack.extend(reversed(inner.named_children))
    return ""


def _text(node: Any) -> str:
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""
