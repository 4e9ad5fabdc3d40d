"""torch.export: strict and non-strict, guards, draft export with unbacked shapes,
a missing fake kernel.  TORCH_TRACE=DIR python export.py [case ...]"""

import sys

import torch
from torch.export import Dim, draft_export, export


class Dyn(torch.nn.Module):
    def forward(self, x, y):
        if x.shape[0] > 4:
            return x[: y.shape[0]] + y
        return x.sum() + y


class Unbacked(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        b = y.nonzero().shape[0]
        if a > 3:
            return torch.zeros(b) + a
        return torch.ones(b)


def case_strict():
    n, m = Dim("n", min=5), Dim("m")
    try:
        export(Dyn(), (torch.randn(8, 3), torch.randn(3, 3)), dynamic_shapes={"x": {0: n}, "y": {0: m}}, strict=True)
    except Exception as e:
        print(type(e).__name__, str(e)[:200])


def case_nonstrict():
    try:
        export(
            Dyn(),
            (torch.randn(8, 3), torch.randn(3, 3)),
            dynamic_shapes={"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}},
            strict=False,
        )
    except Exception as e:
        print(type(e).__name__, str(e)[:200])


def case_draft():
    try:
        ep = draft_export(Unbacked(), (torch.tensor(4), torch.tensor([1, 0, 2])))
        print(str(getattr(ep, "_report", ""))[:200])
    except Exception as e:
        print(type(e).__name__, str(e)[:200])


def case_fakekernel():
    @torch.library.custom_op("twexport::nofake", mutates_args=())
    def nofake(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @torch.library.custom_op("twexport::badfake", mutates_args=())
    def badfake(x: torch.Tensor) -> torch.Tensor:
        return x[:1].clone()

    @badfake.register_fake
    def _(x):
        return torch.empty_like(x)

    class M(torch.nn.Module):
        def forward(self, x):
            return torch.ops.twexport.nofake(x) + torch.ops.twexport.badfake(x)

    try:
        draft_export(M(), (torch.randn(4),))
    except Exception as e:
        print(type(e).__name__, str(e)[:200])


CASES = {k[5:]: v for k, v in list(globals().items()) if k.startswith("case_")}
if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        torch._dynamo.reset()
        CASES[name]()
        print("done", name, flush=True)
