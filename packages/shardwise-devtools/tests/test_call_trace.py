"""The page about the checker shows the files that a call enters, as they are measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardwise

README = Path(shardwise.__file__).parent / "checker" / "README.md"


@pytest.mark.slow
@pytest.mark.processes
def test_the_page_shows_the_files_that_a_call_enters():
    # In a process of its own: what has been seen before takes another way.
    command = [sys.executable, "-m", "shardwise_devtools.call_trace"]
    measured = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert README.read_text().endswith(measured), "python -m shardwise_devtools.call_trace says otherwise"
