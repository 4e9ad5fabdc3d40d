"""Does a function compute on a mesh what it computes on one device? An assertion for tests, by ``verify``."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Mapping

import torch

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.shape import MeshShape
from shardwise.verifier.run import verify
from shardwise.verifier.text import Verdict

from .block import Running, running

TIMEOUT_S = 60.0
LEAVE = os._exit
"""As it is before a test runs, which may replace it."""

# The ranks are processes, and the call that differs is none of these modules'.
add_internal_prefix(os.path.dirname(multiprocessing.__file__) + os.sep)
add_internal_prefix(threading.__file__)


class DifferenceError(AssertionError):
    """What a mesh computes is not what one device computes; ``verdict`` says where, and the text is its own.

    Example:
        >>> issubclass(DifferenceError, AssertionError)
        True
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"\n{verdict}")
        self.verdict = verdict


def assert_same_on_one_device(
    fn: Callable[..., object],
    *args: object,
    mesh: str | Mapping[str, int] | None = None,
    global_types: bool = False,
    strict: bool = False,
    rtol: float | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Verdict:
    """Run ``fn(*args)`` on every rank of a mesh and on one rank, and compare values and gradients; the verdict.

    ``fn``      takes whole values, which every rank gets a copy of, and cuts its own share. What it returns is
                compared, as are the values that it declares, losses and gradients. If it returns one loss (a number
                that requires a gradient) and has not called backward, that is done here.
    ``mesh``    axes with their sizes; left out, that of the checked test around the call.
    ``rtol``    how far values may be apart, relative to the largest; left out, it follows from their dtypes.

    The ranks are processes that talk over gloo, and see everything that the caller sees; what they change stays with
    them.

    Errors: DifferenceError, an AssertionError that names the first tensor that differs; also for a run that fails or
    hangs, and where nothing could be compared. SW903 for what is no mesh, SW905 for no mesh at all.
    Example:
        >>> from shardwise.testing import assert_same_on_one_device
        >>> def doubled(x):
        ...     return assert_type(x, {"tp": R}) * 2
        >>> assert_same_on_one_device(doubled, torch.ones(4), mesh="tp=2").numbers.equal
        2
    """
    __tracebackhide__ = True
    around = running()
    if mesh is None and around is None:
        said = "assert_same_on_one_device needs a mesh: mesh='dp=2,tp=2', or a test with the mark spmd around it"
        raise SpmdArgumentError(said, code="SW905")
    shape = around.options.mesh if mesh is None and around is not None else MeshShape.of(mesh or "")

    def program() -> object:
        given = copy.deepcopy(args)
        came = fn(*given)
        if isinstance(came, torch.Tensor) and came.requires_grad and came.numel() == 1 and not _has_gradients(given):
            torch.autograd.backward(came)
        return came

    program.__qualname__ = getattr(fn, "__qualname__", "fn")

    def judged() -> Verdict:
        sizes = dict(shape.axes)
        return verify(program, sizes, strict=strict, local=not global_types, rtol=rtol, timeout_s=timeout_s)

    verdict = judged() if around is None else _outside(around, judged)
    if not verdict.ok:
        raise DifferenceError(verdict)
    return verdict


def _has_gradients(args: object) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.grad is not None for leaf in tree_leaves(args))


def _outside(around: Running, judged: Callable[[], Verdict]) -> Verdict:
    """The verdict from a fork that has left the imagined job, in which there are process groups already."""
    read, write = os.pipe()
    fork = os.fork()
    if fork == 0:
        code = 1
        try:
            os.close(read)
            around.stack.close()
            answers: list[Verdict | Exception] = []

            def answer() -> None:
                try:
                    answers.append(judged())
                except Exception as error:
                    answers.append(error)

            thread = threading.Thread(target=answer)  # one that nothing checks
            thread.start()
            thread.join()
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answers[0], pipe)
            code = 0
        finally:
            LEAVE(code)
    os.close(write)
    with os.fdopen(read, "rb") as answered:
        told = answered.read()
    os.waitpid(fork, 0)
    if not told:
        raise RuntimeError("the process that compares with one device has ended without a word")
    answer = pickle.loads(told)
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Verdict)
    return answer
