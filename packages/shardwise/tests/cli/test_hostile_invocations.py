"""Calls of the command that cannot work: each names what is wrong with them, and nothing of the user's is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.rewriting.file_edit import FileEdit

MISTAKE = """
with set_current_mesh(mesh):
    torch.relu(assert_type(torch.ones(2), {"dp": V, "tp": P}))
"""


def said(result):
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def test_what_is_no_file_of_a_script_is_named_as_what_it_is(project):
    os.mkfifo("pipe.py")
    os.symlink("loop.py", "loop.py")
    assert "the script pipe.py is a pipe or a device: save it as a file" in said(project.check("pipe.py"))
    assert "the script loop.py is a link to loop.py, where no file is" in said(project.check("loop.py"))
    assert "not from standard input: save it" in said(project.check("-"))
    assert "the name of the script is empty" in said(project.check(""))


@pytest.mark.parametrize("option", ["--html", "--schedule", "--baseline"])
def test_no_option_writes_over_what_another_has_written(project, option):
    name = project.write(MISTAKE, typed=True)
    before = (project.folder / name).read_text()
    more = ["--write-baseline"] if option == "--baseline" else []
    result = project.check(name, option, name, *more)
    assert f"{option} train.py: cannot be written, because it is there, and holds something else" in said(result)
    assert (project.folder / name).read_text() == before


@pytest.mark.parametrize("option", ["--html", "--schedule", "--baseline"])
def test_what_an_option_has_written_it_writes_again(project, option):
    name = project.write(MISTAKE, typed=True)
    more = ["--write-baseline"] if option == "--baseline" else []
    for _ in range(2):
        assert project.check(name, option, "file", *more).exit_code in (0, 1)


def test_references_are_not_written_over_a_program(project):
    name = project.write("print(1)\n")
    result = CliRunner().invoke(main, ["verify", name, "--record", name])
    assert "--record train.py: cannot be written, because it is there" in said(result)


def test_a_source_file_that_cannot_be_written_whole_is_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "train.py"
    file.write_text("before\n")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copymode", full)
    with pytest.raises(OSError, match="No space left"):
        FileEdit(file, "before\n", "after\n").write()
    assert file.read_text() == "before\n"
    assert os.listdir(tmp_path) == ["train.py"]


def test_a_changed_file_keeps_its_mode_and_the_link_that_leads_to_it(tmp_path):
    file, link = tmp_path / "train.py", tmp_path / "link.py"
    file.write_text("before\n")
    file.chmod(0o750)
    link.symlink_to(file)
    FileEdit(link, "before\n", "after\n").write()
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after\n", 0o750)


@pytest.mark.processes
@pytest.mark.parametrize("words", [("check", "train.py"), ("explain",)], ids=lambda words: words[0])
def test_a_full_disk_behind_standard_output_is_told(project, words):
    project.write(MISTAKE, typed=True)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shardwise", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.endswith("output cannot be written (No space left on device), so there is no report\n")
    assert "Traceback" not in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("closed", ["<&-", "2>&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_verdict(project, closed):
    project.write(MISTAKE, typed=True)
    done = subprocess.run(
        f'"{sys.executable}" -m shardwise check train.py {closed}',
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert ("SW112" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
