"""What lies between the parts of a product: one change there is found by types, on a rank that has the loss."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.zoo.catalogue import entry

CHANGES = {
    "a norm's gradient is summed over cp alone": (
        "llama_405b_4d",
        '"norm": "f64[2@pp, 8@dp] {cp: R, tp: R}"',
        '"norm": "f64[2@pp, 8@dp] {cp: R, tp: I}"',
        "SW101",
    ),
    "tokens go to the ranks with the same experts": (
        "deepseek_v3",
        'all_to_all(sent, "ep"',
        'all_to_all(sent, "edp"',
        "SW410",
    ),
    "experts that differ are summed": (
        "deepseek_v3",
        '"inner": "f64[2@pp, 4@ep, 2, 6, 8] {edp: R}"',
        '"inner": "f64[2@pp, 4@edp, 2, 6, 8] {ep: R}"',
        "SW401",
    ),
    "the loss is summed over the experts' mesh": (
        "deepseek_v3",
        'out_partial_axes="dp"',
        'out_partial_axes="ep"',
        "SW902",
    ),
    "tokens are cut where the experts' ranks have whole batches": (
        "megatron_five",
        "inputs.number, folded, 1)",
        "inputs.number, folded, 0)",
        "SW401",
    ),
    "the router's gradient is of some tokens": (
        "megatron_five",
        '"router": "f64[2@pp, 4, 8] {dp: R, cp: R, tp: R}"',
        '"router": "f64[2@pp, 4, 8] {dp: R, cp: R, tp: I}"',
        "SW101",
    ),
}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "right", "wrong", "code"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_found(name: str, right: str, wrong: str, code: str, tmp_path: Path) -> None:
    found = entry(name)
    text = found.path.read_text()
    assert text.count(right) == 1
    script = tmp_path / f"{name}.py"
    script.write_text(text.replace(right, wrong))
    mesh = found.program.mesh
    options = [word for axis, size in mesh.items() for word in (f"--{axis}", str(size))]
    sizes = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    words = [
        "check",
        os.fspath(script),
        "--strict",
        "--global",
        "--rank",
        str(prod(mesh.values()) - 1),
        "--mesh",
        sizes,
    ]
    done = CliRunner().invoke(main, [*words, "--", *options])
    assert done.exit_code == 1, done.output
    assert f"\n{code} " in f"\n{done.output}"
