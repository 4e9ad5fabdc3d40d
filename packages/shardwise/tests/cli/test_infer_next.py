"""What infer calls for next: the check that sees what the annotations say."""

import pytest

from shardwise.cli.infer import _next_commands
from shardwise.verifier.annotating.inference import InferredType


def inferred(place):
    return InferredType("parameter", "w", (0, 1), "w", (4, 4), {"tp": place}, {"tp": "its values"})


@pytest.mark.parametrize(
    ("module", "words", "place", "command", "then"),
    [
        (None, ("train.py",), "R", "shardwise check train.py --mesh tp=2", None),
        (None, ("train.py",), "S(0)", "shardwise check train.py --mesh tp=2", "train.py --mesh tp=2 --global"),
        (None, ("a b.py", "--steps", "2"), "R", "shardwise check 'a b.py' --mesh tp=2 -- --steps 2", None),
        ("pkg.train", ("x",), "S(1)", "shardwise check -m pkg.train --mesh tp=2 -- x", "--mesh tp=2 --global -- x"),
    ],
)
def test_the_next_command_can_be_pasted(module, words, place, command, then):
    first, *further = _next_commands(module, words, "tp=2", [inferred(place)])
    assert first == f"next: {command}"
    assert [f"{then} also judges" in line for line in further] == ([] if then is None else [True])
