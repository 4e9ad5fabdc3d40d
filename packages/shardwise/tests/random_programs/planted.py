"""A search for a random program that a planted wrong rule accepts and the numbers refute, in a process of its own.

python planted.py RULE      prints the shortest program that was found; exit code 1 if there is none
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from random_programs.drawing import programs
from random_programs.judging import Unsuited, disagreement
from random_programs.program import TRANSITIONS, RandomProgram

import shardwise as spmd
from shardwise.op_rules import registry


def tanh_is_linear() -> None:
    table = registry._table()
    table["tanh"] = replace(table["neg"], op="tanh", labels=table["tanh"].labels)


def softmax_is_elementwise() -> None:
    table = registry._table()
    table["softmax"] = replace(table["softmax"], labels=table["tanh"].labels)


def all_reduce_sums_in_backward_too() -> None:
    """A transition that computes what it should and whose gradient is that of another one."""
    right = TRANSITIONS["all_reduce"]
    wrong = {spmd.R: spmd.I, spmd.I: spmd.R}

    def planted(x, axis, *, src, dst):  # type: ignore[no-untyped-def]
        result = right(x, axis, src=src, dst=wrong.get(dst, dst))
        return spmd.mutate_type(result, axis, src=wrong[dst], dst=dst) if dst in wrong else result

    TRANSITIONS["all_reduce"] = planted  # type: ignore[index]


RULES: dict[str, tuple[Callable[[], None], bool]] = {
    "tanh is linear": (tanh_is_linear, True),
    "softmax is elementwise": (softmax_is_elementwise, False),
    "all_reduce sums in backward too": (all_reduce_sums_in_backward_too, True),
}
"""What is planted, and whether programs with local types show it."""


def refuted(program: RandomProgram) -> bool:
    try:
        return disagreement(program) is not None
    except Unsuited:
        return False


def main() -> int:
    plant, local = RULES[sys.argv[1]]
    plant()
    phases = [Phase.generate, Phase.shrink] if "--shrink" in sys.argv else [Phase.generate]
    quiet = settings(
        max_examples=5000, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=phases
    )
    try:
        found = find(programs(local=local, meshes=((2,),)), refuted, settings=quiet, random=random.Random(0))
    except NoSuchExample:
        return 1
    print(disagreement(found))  # noqa: T201  this is what the command is for
    return 0


if __name__ == "__main__":
    sys.exit(main())
