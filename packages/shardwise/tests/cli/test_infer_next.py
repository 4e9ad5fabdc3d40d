"""What infer calls for next: the check that sees what the annotations say."""

import pytest

from shardwise.cli.infer import _next_command
from shardwise.verifier.annotating.inference import InferredType


def inferred(place):
    return InferredType("parameter", "w", (0, 1), "w", (4, 4), {"tp": place}, {"tp": "its values"})


@pytest.mark.parametrize(
    ("module", "words", "place", "command"),
    [
        (None, ("train.py",), "R", "shardwise check train.py --mesh tp=2"),
        (None, ("train.py",), "S(0)", "shardwise check train.py --mesh tp=2 --global"),
        (None, ("a b.py", "--steps", "2"), "R", "shardwise check 'a b.py' --mesh tp=2 -- --steps 2"),
        ("pkg.train", ("x",), "S(1)", "shardwise check -m pkg.train --mesh tp=2 --global -- x"),
    ],
)
def test_the_next_command_can_be_pasted(module, words, place, command):
    assert _next_command(module, words, "tp=2", [inferred(place)]) == command
