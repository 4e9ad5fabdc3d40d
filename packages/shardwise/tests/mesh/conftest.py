"""Every mesh test starts without names from other tests: the registry of axis names belongs to the process."""

import pytest

from shardwise.mesh.axis import _reset


@pytest.fixture(autouse=True)
def no_names() -> None:
    _reset()
