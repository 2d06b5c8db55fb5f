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


SAYS = {
    "T-002": "Dimensions|Fields|scalar",
    "T-003": "scalar|total_revenue|aggregate",
    "T-007": "aggregate|Where|Having",
    "T-008": "Having|Where",
    "T-009": "row-level|aggregate|split",
    "T-013": "orders|inventory_movements|shared dimension",
    "T-014": "actors|movies|bridge",
    "T-019": "order_placed_by|order_fulfilled_by",
    "T-020": "total_revenue|global",
    "T-021": "pre-aggregate",
    "T-022": "scalar|fan-out|customers|orders",
    "T-023": "orders.amount|aggregate|customers",
    "T-025": "orders|aggregation|single home",
    "T-029": "window|Where|Qualify|subquery",
    "T-030": "nested window|single window|derived field",
    "T-033": "window|composition|derived field|§10",
    "T-034": "GROUPS|ROWS|RANGE|§10",
    "T-035": "parameter|literal integer|UNBOUNDED|§10",
    "T-040": "customers|weather_observations|no path|relationship",
    "T-041": "select|reserved|rename",
    "T-042": "grain|deferred|§10",
    "T-050": "Dimensions|Measures|at least one",
    "T-051": "Fields|at least one|scalar",
}
"""What the catalogue wants to read in a refusal (`must_contain`), where the refusal can know it."""


def words_of(vector):
    if vector.document is not None or vector.model:
        faults = check_catalog(vector.catalog) if vector.model else check_document(vector.document)
        return " ".join(f"{fault.where} {fault.message}" for fault in faults)
    with pytest.raises(Refused) as caught:
        lower_form(parse_form(vector.form), vector.catalog)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("number", SAYS)
def test_refusal_says_what_the_catalogue_wants_to_read(number):
    vector = next(one for one in VECTORS if one.number == number and one.list == DATA)
    text = words_of(vector).lower()
    assert [part for part in SAYS[number].split("|") if part.lower() not in text] == []


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
