"""What every test runs under: no network but this machine's own, a bare environment, and hypothesis that repeats itself.

POINTSMAN_LONG=10 multiplies the examples of the property suites (see tests/conformance/corpus.py::examples).
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # `pytest` alone, without `python -m`, does not put it there

pytest.register_assert_rewrite("tests.conformance.suite")

KEPT = (
    "CI",
    "HYPOTHESIS_",
    "LANG",
    "LC_",
    "PATH",
    "POINTSMAN_LONG",
    "POINTSMAN_TEST_",
    "PYTEST_",
    "PYTHON",
    "TMP",
    "TEMP",
    "TZ",
    "VIRTUAL_ENV",
)

_COMMON: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("ci", derandomize=True, **_COMMON)
settings.register_profile("dev", **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


class NetworkTouched(BaseException):
    """Not an Exception: nothing that is tested may catch it and degrade."""


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True  # a unix socket's path
    host = str(address[0]).split("%")[0]
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and not _is_local(arguments[1]):
        raise NetworkTouched(f"a test opened a connection to {arguments[1]}")
    if event == "socket.getaddrinfo" and not _is_local((arguments[0] or "",)):
        raise NetworkTouched(f"a test looked up {arguments[0]}")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True, scope="session")
def _bare_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No key, proxy or configuration of the machine reaches a test, and `~` is an empty folder."""
    for name in [name for name in os.environ if not name.startswith(KEPT)]:
        del os.environ[name]
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
