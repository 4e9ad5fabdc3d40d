"""A launcher like torchrun whose ranks are forks of this process, which has loaded torch already."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from shardwise.cli.main import main

TIMEOUT_S = 240.0


def forked(folder: Path, *words: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """The command as every rank of a job; where a rank fails, the others are ended."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host, port = listening.getsockname()
        job = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": host, "MASTER_PORT": port}
        job |= {"GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "forked", "TORCHELASTIC_USE_AGENT_STORE": True}
        outputs = [folder / f"printed-{one}" for one in ("out", "err")]
        for output in outputs:
            output.write_text("")
        started = [_started(folder, words, job | {"RANK": rank, "LOCAL_RANK": rank}, outputs) for rank in range(ranks)]
        store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    code = _waited_for(started)
    del store
    out, err = (output.read_text("utf-8") for output in outputs)
    return subprocess.CompletedProcess(words, code, out, err)


def _started(folder: Path, words: tuple[str, ...], variables: dict[str, object], outputs: list[Path]) -> int:
    process = os.fork()
    if process:
        return process
    try:
        for number, output in enumerate(outputs, 1):
            os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        os.environ.update({name: str(value) for name, value in variables.items()})
        sys.argv = ["shardwise", *words]
        torch.set_num_threads(1)
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1)
    finally:
        os._exit(1)


def _waited_for(processes: list[int]) -> int:
    """The first exit code that is not 0, and 0 if there is none."""
    left, code = set(processes), 0
    deadline = time.monotonic() + TIMEOUT_S
    while left:
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process, signal.SIGKILL)
        for process in list(left):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                left.remove(process)
                if (here := os.waitstatus_to_exitcode(status)) and not code:
                    code = here
                    for other in left:
                        os.kill(other, signal.SIGTERM)
        time.sleep(0.05)
    return code
