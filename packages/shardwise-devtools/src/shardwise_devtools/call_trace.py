"""Which files of shardwise a checked call enters, in order: the way of one call, measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.worlds.fake import fake_world

PACKAGE = Path(shardwise.__file__).parent
DEVICES = PACKAGE / "host"
"""Left out: the imagined devices, which see every call of a script beside the checker."""


def files_entered(call: Callable[[], object]) -> list[str]:
    """The files of shardwise in the order in which ``call`` first enters them, up to the raise if it is refused."""
    entered: dict[str, None] = {}
    refused = False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal refused
        frame.f_trace_lines = False
        refused = refused or (event == "exception" and issubclass(argument[0], SpmdTypeError))
        path = Path(frame.f_code.co_filename)
        if event == "call" and not refused and path.is_relative_to(PACKAGE) and not path.is_relative_to(DEVICES):
            entered.setdefault(path.relative_to(PACKAGE).as_posix())
        return trace

    sys.settrace(trace)
    try:
        call()
    except SpmdTypeError:
        pass
    finally:
        sys.settrace(None)
    return list(entered)


def ways() -> dict[str, list[str]]:
    """The files of each kind of call: seen for the first time, seen before, refused, and a typed collective."""
    with fake_world(rank=0, world_size=8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with shardwise.set_current_mesh(mesh), typecheck():
            x = shardwise.assert_type(torch.randn(8, 16), {"dp": S(0), "tp": R})
            w = shardwise.assert_type(torch.randn(4, 16), {"dp": R, "tp": S(0)})
            p = shardwise.assert_type(torch.randn(8, 16), {"dp": V, "tp": P})
            F.linear(x, w[:1])  # what is loaded once per process is loaded
            shardwise.all_reduce(p, "tp", src=P, dst=I)
            return {
                "F.linear(x, w), first": files_entered(lambda: F.linear(x, w)),
                "F.linear(x, w), again": files_entered(lambda: F.linear(x, w)),
                "F.gelu(p), refused, to the raise": files_entered(lambda: F.gelu(p)),
                "all_reduce(p), first": files_entered(lambda: shardwise.all_reduce(p, "tp", src=P, dst=R)),
            }


def table() -> str:
    """The ways as Markdown, a line each."""
    return "\n".join(
        f"**{name}**: {len(files)} files\n\n" + "".join(f"    {file}\n" for file in files)
        for name, files in ways().items()
    )


if __name__ == "__main__":
    sys.stdout.write(table())
