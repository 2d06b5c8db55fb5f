"""Every document store that runs here, through the one suite. OpenSearch joins by adding its laboratory to `LABS`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.labs import SqliteLab, quick_folder
from tests.conformance.suite import *  # noqa: F403 (the suite is the tests of this module)

LABS = {"sqlite": SqliteLab}


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest) -> Iterator[SqliteLab]:
    with quick_folder() as folder:
        opened = LABS[request.param](folder)
        yield opened
        opened.close()
