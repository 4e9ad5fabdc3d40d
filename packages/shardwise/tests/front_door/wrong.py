"""A user's file: every marked line is wrong, and a strict type checker says so there. Never run."""

from torch import Tensor

import shardwise
from shardwise import Nonsense  # wrong
from shardwise import P, R, S, all_gather, all_reduce, assert_type, set_current_mesh
from shardwise.train import nonsense  # wrong


def step(x: Tensor) -> None:
    all_reduce(1, 2, 3, 4, foo=5)  # wrong
    all_reduce(x, "tp", dst=R, foo=5)  # wrong
    all_reduce(x, "tp")  # wrong
    all_reduce(x, 3, dst=R)  # wrong
    all_gather(x, "tp", src="S(0)", dst=R)  # wrong
    all_gather(x, "tp", src=S("0"), dst=R)  # wrong
    assert_type(x, {"tp": "R"})  # wrong
    shardwise.redistribute(x, "tp", src=P, dst=R, nonsense=True)  # wrong
    shardwise.linear(x)  # wrong
    shardwise.Nonsense  # wrong
    shardwise.typeof(x).nonsense  # wrong
    with set_current_mesh(5):  # wrong
        pass


__all__ = ["Nonsense", "nonsense"]
