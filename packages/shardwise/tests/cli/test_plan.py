"""``shardwise plan``: what it prints, and what it says of what cannot be planned."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main

MOVE = ["f32[8192, 4096@(dp,tp)]", "f32[8192@dp, 4096]", "--mesh", "dp=8,tp=4"]


def asked(*words: str):
    return CliRunner().invoke(main, ["plan", *words])


def test_json_has_the_steps_the_rejected_plans_and_dtensors():
    result = asked(*MOVE, "--format", "json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert [(step["op"], step["axes"], step["bytes"]) for step in said["steps"]] == [
        ("all_to_all", ["dp", "tp"], 4 * 2**20 * 31 // 32),
        ("all_gather", ["tp"], 12 * 2**20),
    ]
    assert said["bytes"] == sum(step["bytes"] for step in said["steps"])
    assert said["dtensor"]["bytes"] > said["bytes"]
    assert all(one["bytes"] > said["bytes"] for one in said["rejected"])


def test_a_slow_axis_is_spared():
    types = ["f32[4096] {dp: P, tp: I}", "f32[4096] {dp: R, tp: I}", "--mesh", "dp=8,tp=4"]
    result = asked(*types, "--bandwidth", "dp=network,tp=nvlink", "--format", "json")
    steps = json.loads(result.output)["steps"]
    assert [step["op"] for step in steps] == ["convert", "all_reduce", "all_gather"]
    held = 4096 * 4 // 4
    assert steps[1]["bytes"] == 2 * 7 * held // 8
    assert steps[1]["time_s"] == pytest.approx(steps[1]["bytes"] / 50e9)


def test_axes_of_one_rank_cut_together():
    result = asked("f32[8, 16@(dp,tp)]", "f32[8@dp, 16]", "--mesh", "dp=1,tp=1")
    assert result.exit_code == 0, result.output
    assert "nothing to do" in result.output
    result = asked("f32[8, 16@(dp,tp,ep)]", "f32[8@dp, 16]", "--mesh", "dp=1,tp=2,ep=1")
    assert "all_gather  over tp" in result.output


def test_types_that_say_the_same_need_nothing():
    result = asked("f32[8@dp]", "f32[8@dp]", "--mesh", "dp=2")
    assert "nothing to do" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["f32[8@xp]", "f32[8]", "--mesh", "dp=2"], "expected one of the axes dp"),
        (["f32[8@dp]", "f32[9]", "--mesh", "dp=2"], "keeps the dtype and the global shape"),
        (["f32[8@dp]", "f32[8]", "--mesh", "dp=2", "--max-bytes", "8"], "--max-bytes 8 cannot be kept"),
        (["f32[8@dp]", "f32[8]", "--mesh", "dp=2", "--max-bytes", "8 apples"], "is no number of bytes"),
        (["f32[8@dp]", "f32[8]", "--mesh", "dp=2", "--bandwidth", "tp=4"], "the mesh has no axis 'tp'"),
        ([f"f32[{10**20}]", f"f32[{10**20}]", "--mesh", "dp=2"], "more than PyTorch can count"),
        (
            ["f32[8@dp]", "f32[8]", "--mesh", "dp=2", "--bandwidth", "dp=fast"],
            "expected a number of GB/s above 0, or nvlink",
        ),
        (
            ["f32[8@dp]", "f32[8]", "--mesh", "dp=2", "--bandwidth", "dp=0"],
            "axis dp has '0', expected a number of GB/s above 0",
        ),
        (["f32[8] {dp: V}", "f32[8]", "--mesh", "dp=2"], "; try S(i) in place of V, which says the dim, or redis"),
        (
            ["q7[8@dp]", "q7[8]", "--mesh", "dp=2"],
            "expected a dtype like f32, bf16 or i64 at position 0",
        ),
        ([*MOVE, "--draw", "--format", "json"], "leave out --format json"),
        (["f32[8] {dp: R}", "f32[8] {dp: P(max)}", "--mesh", "dp=2"], "no step makes another pending reduction"),
    ],
)
def test_wrong_usage_is_told_in_one_line(words, said):
    result = asked(*words)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_who_sends_what_to_whom_is_drawn():
    words = ("f32[8, 8@tp]", "f32[8@tp, 8]", "--mesh", "tp=2")
    plain, drawn = asked(*words, "--no-draw"), asked(*words)
    assert drawn.exit_code == 0, drawn.output
    assert drawn.stdout == asked(*words, "--draw").stdout
    assert drawn.stdout.startswith(plain.stdout)
    picture = drawn.stdout.removeprefix(plain.stdout)
    assert "1. all_to_all over tp" in picture
    # Each holds a quarter of the 64 elements that the other needs.
    assert [line.split("│")[1:3] for line in picture.splitlines() if line.startswith(" rank ")] == [
        [" own  ", "  16  "],
        ["  16  ", " own  "],
    ]


def test_a_plan_over_a_million_ranks_is_drawn_without_listing_them():
    start = time.process_time()
    shown = asked("f32[1048576@(dp,tp)]", "f32[1048576@tp]", "--mesh", "dp=1024,tp=1024")
    assert "rank 1048575" in shown.output
    assert time.process_time() - start < 10  # 22 s where each is listed
