"""What does the model read? Windows of the lines of text.txt, one byte a token, each rank its share of the batch."""

import random
from pathlib import Path
from typing import NamedTuple

import torch
from parallel import Parallel
from torch import Tensor

import shardwise as spmd
from shardwise import R, S

PAD = 0
LINES = (Path(__file__).parent / "text.txt").read_bytes().splitlines()


class Batch(NamedTuple):
    """Integers [B, T], S(0)@dp and R@tp. A target of PAD lies behind the end of a line and does not count."""

    tokens_BT: Tensor
    targets_BT: Tensor


def make_batch(step: int, batch: int, length: int, parallel: Parallel, seed: int, device: torch.device) -> Batch:
    """This rank's share of the batch of ``batch`` windows that every mesh sees at ``step``."""
    draw = random.Random(f"{seed} {step}")
    windows = []
    for line in draw.choices(LINES, k=batch):
        start = draw.randrange(len(line) - 1)
        windows.append(list(line[start : start + length + 1].ljust(length + 1, bytes([PAD]))))
    share = batch // parallel.size("dp")
    first = parallel.rank("dp") * share
    window_BT = torch.tensor(windows[first : first + share], device=device)
    tokens_BT, targets_BT = window_BT[:, :-1].contiguous(), window_BT[:, 1:].contiguous()
    return Batch(*spmd.assert_type((tokens_BT, targets_BT), {"dp": S(0), "tp": R}))
