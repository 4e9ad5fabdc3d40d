"""The command line in this process."""

from __future__ import annotations

import pytest

from tracewise.cli.main import main


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of ``tracewise ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int), "a command ends with a status"
    return ended.value.code, captured.out, captured.err
