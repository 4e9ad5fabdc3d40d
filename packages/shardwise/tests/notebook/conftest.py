"""One IPython shell, as a notebook has it, that knows shardwise. Pages of the docs make one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "shardwise")
    yield shell
    InteractiveShell.clear_instance()
