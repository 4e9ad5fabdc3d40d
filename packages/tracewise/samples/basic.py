"""One process, CPU: frames, graph breaks, restarts, recompiles, dynamic shapes,
cache hit and miss, failures, compiled autograd, DDP-free.  Usage:
    TORCH_TRACE=DIR python basic.py [case ...]
Each case can be run alone; all by default."""

import sys

import torch
import torch.nn as nn


def case_simple():
    m = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    m(torch.randn(3, 8)).sum().backward()  # forward, joint, backward graphs


def case_infer():
    @torch.compile
    def f(x):
        return torch.softmax(x @ x.t(), -1)

    with torch.no_grad():
        f(torch.randn(16, 16))  # aot_inference_graph


def case_break():
    @torch.compile
    def f(x):
        y = x.sin() + 1
        print("side effect")  # graph break, resume function
        z = y.cos() * 2
        torch._dynamo.graph_break()
        return z.relu()

    f(torch.randn(4))


def case_restart():
    def helper(x):
        if x.sum() > 0:  # data dependent branch inside an inlined call
            return x + 1
        return x - 1

    @torch.compile
    def f(x):
        return helper(x * 2) * 3

    f(torch.ones(4))


def case_recompile():
    @torch.compile(dynamic=False)
    def f(x, n):
        return x * n

    for n in (1, 2, 3):
        f(torch.randn(4), n)
    for s in (5, 6, 7):
        f(torch.randn(s), 1)


def case_limit():
    torch._dynamo.config.recompile_limit = 3

    @torch.compile(dynamic=False)
    def f(x):
        return x * 2

    for s in range(2, 9):
        f(torch.randn(s))
    torch._dynamo.config.recompile_limit = 8


def case_dynamic():
    @torch.compile(dynamic=True)
    def f(x, y):
        if x.shape[0] > 4:  # a guard on a symbol
            return x[: y.shape[0]] + y.sum()
        return x.sum() + y

    f(torch.randn(8, 3), torch.randn(3, 3))
    f(torch.randn(2, 3), torch.randn(3, 3))


def case_specialize():
    @torch.compile
    def f(x):
        torch._dynamo.mark_dynamic  # noqa: B018
        return x.view(-1, 4) if x.shape[0] == 8 else x * 2

    x = torch.randn(8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    f(x)


def case_cache():
    def f(x):
        return (x.sin() + x.cos()).sum()

    for _ in range(2):
        torch._dynamo.reset()
        g = torch.compile(f)
        x = torch.randn(32, requires_grad=True)
        g(x).backward()  # miss, then hit


def case_fail():
    @torch.compile(fullgraph=True)
    def f(x):
        print("no break allowed")
        return x

    try:
        f(torch.randn(2))
    except Exception as e:
        print(type(e).__name__)

    @torch.library.custom_op("twdemo::bad", mutates_args=())
    def bad(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @torch.compile
    def g(x):
        return torch.ops.twdemo.bad(x) + 1  # no fake kernel

    try:
        g(torch.randn(2))
    except Exception as e:
        print(type(e).__name__)

    def backend(gm, inputs):
        raise RuntimeError("backend <b>failed</b> & 'quoted'")

    try:
        torch.compile(lambda x: x + 1, backend=backend)(torch.randn(2))
    except Exception as e:
        print(type(e).__name__)


def case_cautograd():
    m = torch.compile(nn.Linear(4, 4))
    with torch._dynamo.config.patch(compiled_autograd=True):

        @torch.compile
        def step(x):
            loss = m(x).sum()
            loss.backward()
            return loss

        step(torch.randn(2, 4))


def case_unbacked():
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

    @torch.compile
    def f(x):
        n = x.nonzero().shape[0]
        torch._check(n >= 2)
        u = x.sum().int().item()
        torch._check(u >= 0)
        return torch.zeros(n) + u

    f(torch.tensor([1.0, 0.0, 3.0, 1.0]))


CASES = {k[5:]: v for k, v in list(globals().items()) if k.startswith("case_")}
if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        torch._dynamo.reset()
        CASES[name]()
        print("done", name, flush=True)
