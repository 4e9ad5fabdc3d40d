"""Calls of the command that cannot work: each names what is wrong with them, and nothing of the user's is lost."""

from __future__ import annotations

import errno
import functools
import os
import resource
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


def said_by(done):
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_is_no_file_of_a_script_is_named_as_what_it_is(project):
    os.mkfifo("pipe.py")
    os.symlink("loop.py", "loop.py")
    assert "the script pipe.py is a pipe or a device: save it as a file" in said(project.check("pipe.py"))
    assert "the script loop.py is a link to loop.py, where no file is" in said(project.check("loop.py"))
    assert "not from standard input: save it" in said(project.check("-"))
    assert "the name of the script is empty" in said(project.check(""))
    name = project.write("def step(): ...\n")
    assert f"the script {name}:step does not exist, and {name} does: FILE:FUNCTION is for verify and infer" in said(
        project.check(f"{name}:step")
    )


def test_a_current_folder_that_is_gone_is_named(project):
    name = project.folder / project.write(MISTAKE, typed=True)
    gone = project.folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert "the current folder is gone" in said(project.check(str(name)))


@pytest.mark.parametrize("option", ["--html", "--schedule", "--baseline"])
def test_no_option_writes_over_what_another_has_written(project, option):
    name = project.write(MISTAKE, typed=True)
    before = (project.folder / name).read_text()
    more = ["--write-baseline"] if option == "--baseline" else []
    result = project.check(name, option, name, *more)
    assert f"{option} train.py: cannot be written, because it is there, and holds something else" in said(result)
    assert (project.folder / name).read_text() == before


@pytest.mark.parametrize("option", ["--html", "--schedule"])
@pytest.mark.parametrize(
    ("file", "why"), [("", "'': cannot be written, because the name is empty"), (".", "is a directory")]
)
def test_what_is_no_name_of_a_file_is_told_before_anything_runs(project, option, file, why):
    result = project.check(project.write("print('run')\n"), option, file)
    assert why in said(result)
    assert "run" not in result.stdout


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
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("words", [("check", "train.py"), ("explain",)], ids=lambda words: words[0])
def test_a_full_disk_behind_standard_output_is_told(project, words):
    project.write(MISTAKE, typed=True)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shardwise", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.endswith("output cannot be written (No space left on device), so there is no report\n")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.one_in(3)
@pytest.mark.parametrize("option", ["--html", "--schedule", "--baseline"])
def test_what_an_option_has_written_is_kept_where_a_full_disk_takes_no_more(project, option):
    more = ["--write-baseline"] if option == "--baseline" else []
    command = [sys.executable, "-m", "shardwise", "check", project.write(MISTAKE, typed=True), option, "file", *more]
    subprocess.run(command, capture_output=True, timeout=120, check=False)
    before, there = (project.folder / "file").read_bytes(), sorted(os.listdir(project.folder))
    nothing = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=nothing)
    assert "file too large" in said_by(done).lower()
    assert (project.folder / "file").read_bytes() == before
    assert sorted(os.listdir(project.folder)) == there


@pytest.mark.nightly
@pytest.mark.processes
def test_that_temporary_files_have_no_room_is_told(project):
    name = project.write("import torch.distributed as dist\ndist.init_process_group()\n")
    nothing = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    command = [sys.executable, "-m", "shardwise", "verify", name, "--mesh", "dp=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=nothing)
    assert "there is no room for temporary files" in said_by(done)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
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


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["draw", "f32[8@(tp,tp)]", "--mesh", "dp=2,tp=2"], "expected an axis that cuts nothing yet at position 10"),
        (["plan", "f32[8@tp,8@tp]", "f32[8,8]", "--mesh", "tp=2"], "expected an axis that cuts nothing yet"),
        (["draw", f"f32[{'1' * 5000}]", "--mesh", "tp=2"], "expected a size of at most 30 digits at position 4"),
        (["draw", "f32[\u0668]", "--mesh", "tp=2"], "expected the size of a dim at position 4"),
        (
            ["draw", f"f32[{','.join('8' * 900)}]", "--mesh", "tp=2"],
            "has at most 64 dims or axes, and here are 900",
        ),
        (["draw", "f32[8]", "--names", "a,b", "--mesh", "tp=2"], "2 names ('a', 'b') for a tensor of 1 dims"),
        (["plan", "f32[8]", "f32[8@tp]", "--mesh", "tp=2", "--max-bytes", "9" * 400], "leave the limit out"),
        (["plan", "f32[8]", "f32[8]"], "Say the axes and their sizes, outermost first, like --mesh dp=2,tp=4"),
        (["mesh", f"dp={'9' * 5000}"], "a mesh of 5003 letters is none that was written"),
        (["check", "-m", ""], "'' is no name of a module"),
        (["cost", "-m", "..", "--mesh", "tp=2"], "'..' is no name of a module"),
        (["check", "x.py", "--ranks", "all", "--timeout", "nan"], "nan is no finite number"),
        (["verify", "x.py", "--mesh", "dp=2", "--rtol", "inf"], "inf is no finite number"),
        (["check", "x" * 300 + ".py"], "xxx.py does not exist"),
        (["check", "a/" * 3000 + "x.py"], "characters left out"),
    ],
)
def test_arguments_of_any_length_and_alphabet_are_named_and_no_failure(project, words, what):
    result = CliRunner().invoke(main, words)
    assert what in said(result)
    assert len(result.stderr) < 3000


def test_an_escape_sequence_in_an_argument_does_not_reach_the_terminal(project):
    result = CliRunner().invoke(main, ["check", "\x1b[31mred.py"], color=True)
    assert "[31mred.py does not exist" in said(result)
    assert "\x1b" not in result.stderr


def test_a_module_that_cannot_be_run_is_told_apart_from_one_that_is_not_there(project):
    project.write("", name="pkg/__init__.py")
    assert "no module pkg that can be run; it is a package without __main__" in said(project.check("-m", "pkg"))
    project.write("print(1)")
    assert "leave -m out to run the file ./train.py" in said(project.check("-m", "./train.py"))


def test_a_configuration_with_a_byte_order_mark_is_read_and_one_that_is_nested_too_deep_is_told(project):
    name = project.write(MISTAKE, typed=True)
    (project.folder / "pyproject.toml").write_bytes(b'\xef\xbb\xbf[tool.shardwise]\r\nignore = ["SW112"]\r\n')
    assert "SW112 partial-sum" not in project.check(name).stdout
    (project.folder / "pyproject.toml").write_text(f"[tool.shardwise]\nignore = {'[' * 5000}\n")
    assert "is not TOML: values are nested too deep" in said(project.check(name))
