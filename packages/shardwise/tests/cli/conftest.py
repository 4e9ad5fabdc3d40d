"""A tiny project on disk, and the command run on it in this process."""

from __future__ import annotations

import textwrap

import pytest
import torch
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.cli.runs import asked_check
from shardwise.host.kept_process import kept_process

TYPED = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from shardwise import I, P, R, V, all_reduce, assert_type, set_current_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
"""


class Project:
    """``write`` a file, then ``check`` it."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, source, name="train.py", typed=False):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((TYPED if typed else "") + textwrap.dedent(source))
        return name

    def check(self, *arguments):
        return CliRunner().invoke(main, ["check", *arguments])

    def check_source(self, source, *options, typed=True):
        return self.check(self.write(source, typed=typed), *options)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def kept(monkeypatch):
    """As in a command of its own, further runs are in forks of this process, and not in a new Python."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a fork has none of those that a test may have started
    monkeypatch.setattr(asked_check, "kept_process", lambda *, wanted: kept_process(wanted=True))
    yield
    torch.set_num_threads(threads)
