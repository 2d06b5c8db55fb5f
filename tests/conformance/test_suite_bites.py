"""The suite is worth what it catches: each broken store must fail the promises that name its fault, and no right one may."""

from __future__ import annotations

import pytest

from router.errors import PointsmanError
from tests.conformance import suite
from tests.conformance.broken import BREAKS, Break, InMemoryReference
from tests.conformance.labs import SqliteLab, quick_folder

CAUGHT = (AssertionError, PointsmanError, pytest.fail.Exception)
CASES = [(broken, name) for broken in BREAKS for name in broken.caught_by]


@pytest.mark.parametrize(("broken", "name"), CASES, ids=[f"{broken.name}-{name}" for broken, name in CASES])
def test_a_broken_store_is_caught(broken: Break, name: str) -> None:
    with quick_folder() as folder:
        lab = broken.lab()(folder)
        try:
            with pytest.raises(CAUGHT):
                suite.all_tests()[name](lab)
        finally:
            lab.close()


def test_every_break_names_promises_that_exist() -> None:
    for broken in BREAKS:
        assert broken.caught_by
        assert set(broken.caught_by) <= set(suite.all_tests())


def test_another_right_store_passes() -> None:
    """The suite asks for answers, not for this store's way to them."""

    class Lab(SqliteLab):
        kind = InMemoryReference

    for name in (
        "missing_reads_as_missing",
        "empty_sets_and_empty_lists",
        "extreme_numbers",
        "a_bool_is_no_number",
        "large_sets",
    ):
        with quick_folder() as folder:
            lab = Lab(folder)
            suite.all_tests()[f"test_{name}"](lab)
            lab.close()
