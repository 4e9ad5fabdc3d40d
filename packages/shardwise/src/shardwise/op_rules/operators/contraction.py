"""Which operators multiply and add up? Products are linear in each factor, contractions are products and a sum.

One factor of every product may be a pending sum; an added bias must then be one too.
"""

from __future__ import annotations

from ..schema import OpRule

_BILINEAR = "bilinear: one factor may be a pending sum"
_AFFINE = "a product plus a term: the term must be pending when the product is, or it is added once per rank"
_PRODUCT = "multilinear: exactly one factor may be a pending sum"


def _product(op: str, first: str, second: str, *spellings: str, rest: str = "") -> OpRule:
    return OpRule(
        op,
        f"{first} {second} {rest}".strip(),
        f"{first} {second}",
        law=_BILINEAR,
        source=f"torch.{op}",
        spellings=spellings,
    )


def _accumulating(op: str, first: str, second: str, *spellings: str) -> OpRule:
    return OpRule(
        op,
        f"input {first} {second} beta alpha",
        f"beta input + alpha {first} {second}",
        law=_AFFINE,
        source=f"torch.{op}: beta * input + alpha * ({first} @ {second})",
        spellings=spellings,
    )


RULES = (
    _product("matmul", "input", "other", "linalg.matmul"),
    _product("rmatmul", "input", "other"),
    _product("mm", "input", "mat2", "spmm", "smm", "dsmm", "sparse.mm", "_sparse_mm"),
    _product("bmm", "input", "mat2"),
    _product("grouped_mm", "mat_a", "mat_b", "_grouped_mm", rest="offs"),
    _product("_int_mm", "input", "mat2"),
    _product("mv", "input", "vec"),
    _product("dot", "input", "tensor"),
    _product("vdot", "input", "other"),
    _product("linalg.vecdot", "x", "y", rest="dim"),
    _product("inner", "input", "other"),
    _product("outer", "input", "vec2", "ger"),
    _product("kron", "input", "other"),
    _product("cross", "input", "other", rest="dim"),
    _product("linalg.cross", "input", "other"),
    _product("tensordot", "a", "b", rest="dims"),
    OpRule("einsum", "equation *operands", "^operands", law=_PRODUCT, source="torch.einsum"),
    OpRule("chain_matmul", "*matrices", "^matrices", law=_PRODUCT, source="torch.chain_matmul"),
    OpRule("linalg.multi_dot", "*tensors", "^tensors", law=_PRODUCT, source="torch.linalg.multi_dot"),
    _accumulating("addmm", "mat1", "mat2"),
    _accumulating("addmv", "mat", "vec"),
    _accumulating("addbmm", "batch1", "batch2"),
    _accumulating("baddbmm", "batch1", "batch2"),
    _accumulating("addr", "vec1", "vec2"),
    _accumulating("sspaddmm", "mat1", "mat2", "saddmm"),
    OpRule(
        "linear",
        "input weight bias",
        "input weight + bias",
        law=_AFFINE,
        source="torch.nn.functional.linear: input @ weight.T + bias",
    ),
    OpRule(
        "bilinear",
        "input1 input2 weight bias",
        "input1 input2 weight + bias",
        law=_AFFINE,
        source="torch.nn.functional.bilinear: input1.T @ weight @ input2 + bias",
    ),
    *(
        OpRule(
            op,
            "y x dx",
            "y x dx",
            law="a sum of products of values and distances",
            source=f"torch.{op}",
            spellings=spellings,
        )
        for op, spellings in (("trapezoid", ("trapz",)), ("cumulative_trapezoid", ()))
    ),
)
