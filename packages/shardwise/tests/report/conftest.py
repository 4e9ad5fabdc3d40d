"""A tiny project on disk, and the command run on it in this process."""

from __future__ import annotations

import textwrap

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main

TYPED = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from shardwise import I, P, R, V, all_reduce, assert_type, set_current_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
"""


class Checked:
    """``write`` a file, then ``check`` it."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, source, name="train.py", typed=False):
        (self.folder / name).write_text((TYPED if typed else "") + textwrap.dedent(source))
        return name

    def check(self, *arguments):
        return CliRunner().invoke(main, ["check", *arguments])

    def check_source(self, source, *options, typed=True):
        return self.check(self.write(source, typed=typed), *options)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Checked(tmp_path)
