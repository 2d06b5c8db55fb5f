"""Every vector of the Foundation draft, by its number: rows where it is inside the surface, a code where it is not."""

from __future__ import annotations

from collections import Counter

import pytest

from router.errors import Refused
from router.sql.check import check_catalog, check_document
from router.sql.compile import lower_form
from router.sql.parse_form import parse_form
from tests.sql.form.vectors import DATA, TABLE, VECTORS, table
from tests.sql.form.worlds import run


def outcome(vector):
    """The rows, or the codes with which the vector is refused."""
    if vector.document is not None:
        return {fault.code for fault in check_document(vector.document)}
    if vector.model:
        return {fault.code for fault in check_catalog(vector.catalog)}
    try:
        compiled = lower_form(parse_form(vector.form), vector.catalog)
    except Refused as refused:
        return {refused.code}
    return run(compiled.sql, vector.catalog.name, vector.extra)


def plain(rows, ordered):
    numbers = [
        tuple(round(float(cell), 2) if isinstance(cell, int | float) or hasattr(cell, "quantize") else cell for cell in row)
        for row in rows
    ]
    return numbers if ordered else Counter(numbers)


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v.verdict != "not applicable"], ids=lambda v: f"{v.number}-{v.list}-{v.title}"
)
def test_vector(vector):
    found = outcome(vector)
    if vector.code:
        assert found == {vector.code}
    else:
        assert isinstance(found, list), found
        assert plain(found, vector.ordered) == plain(vector.rows, vector.ordered)


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.rows is not None], ids=lambda v: f"{v.number}-{v.list}-{v.title}")
def test_model_of_a_passing_vector_has_no_fault(vector):
    assert check_catalog(vector.catalog) == ()


def test_every_number_of_the_catalogue_is_there():
    numbers = {vector.number for vector in VECTORS if vector.list == DATA}
    plain_numbers = [*range(1, 37), *range(40, 54)]
    assert {number.rstrip("abcde") for number in numbers} == {f"T-{number:03}" for number in plain_numbers}
    assert {f"T-005{letter}" for letter in "abcde"} | {"T-036b"} <= numbers
    assert all(vector.note for vector in VECTORS if vector.verdict == "not applicable")


def test_table_in_the_docs_is_the_generated_one():
    assert TABLE.read_text(encoding="utf-8") == table()
