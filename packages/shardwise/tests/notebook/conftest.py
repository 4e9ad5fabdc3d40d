"""One IPython shell, as a notebook has it, that knows shardwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture(scope="package")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "shardwise")
    yield shell
    InteractiveShell.clear_instance()
