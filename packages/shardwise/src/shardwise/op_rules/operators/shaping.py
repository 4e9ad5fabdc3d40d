"""Which operators only move elements about? All of them are linear, and most are views.

A tensor that merely gives a shape (``expand_as``) is a template. Lists that are joined must be pending throughout.
"""

from __future__ import annotations

from ..schema import Each, OpRule
from .guards import given, no_dtype

_MOVES = "moves elements without mixing them"
_JOINS = "joins pending sums; a part that is not pending would be counted once per rank"

# Rules of one operand whose other parameters are numbers: name, parameters after the first, further spellings.
_VIEWS = (
    ("reshape", "shape"),
    ("flatten", "start_dim end_dim"),
    ("unflatten", "dim sizes"),
    ("ravel", ""),
    ("squeeze", "dim"),
    ("unsqueeze", "dim"),
    ("expand", "size", "broadcast_to"),
    ("transpose", "dim0 dim1", "swapaxes", "swapdims"),
    ("t", "", "T", "H", "numpy_T", "matrix_H"),
    ("mT", "", "mH", "adjoint"),
    ("permute", "dims"),
    ("movedim", "source destination", "moveaxis"),
    ("narrow", "dim start length"),
    ("select", "dim index"),
    ("slice", "dim start end step"),
    ("split", "split_size_or_sections dim", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"),
    ("chunk", "chunks dim", "unsafe_chunk"),
    ("tensor_split", "indices_or_sections dim"),
    ("hsplit", "indices_or_sections"),
    ("vsplit", "indices_or_sections"),
    ("dsplit", "indices_or_sections"),
    ("unbind", "dim", "__iter__"),
    ("diagonal", "offset dim1 dim2"),
    ("linalg.diagonal", "offset dim1 dim2"),
    ("unfold", "dimension size step", "im2col"),
    ("as_strided", "size stride storage_offset"),
    ("values", ""),
)
_COPIES = (
    ("flip", "dims", "flipud", "__reversed__"),
    ("fliplr", ""),
    ("roll", "shifts dims"),
    ("rot90", "k dims"),
    ("repeat", "repeats"),
    ("tile", "dims"),
    ("tril", "diagonal", "triu"),
    ("diag", "diagonal"),
    ("diagflat", "offset"),
    ("diag_embed", "offset dim1 dim2"),
    ("combinations", "r"),
    ("pixel_shuffle", "upscale_factor"),
    ("pixel_unshuffle", "downscale_factor"),
    ("channel_shuffle", "groups", "native_channel_shuffle"),
)
_COPIED_VIEWS = (
    "as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy split_copy"
    " split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy"
    " view_as_complex_copy view_as_real_copy _reshape_alias_copy _reshape_copy"
)
_TEMPLATED = ("view_as", "reshape_as", "expand_as")
# The list's tensors are laid side by side.
_JOINED = (
    ("cat", "concat", "concatenate"),
    ("stack", "_stack"),
    ("hstack",),
    ("vstack", "row_stack"),
    ("dstack",),
    ("column_stack",),
    ("block_diag",),
    ("_chunk_cat",),
    ("cartesian_prod",),
    ("broadcast_tensors",),
    ("meshgrid",),
    ("atleast_1d",),
    ("atleast_2d",),
    ("atleast_3d",),
)

# Other joins take the tensors one by one, or nothing but the list.
_BESIDE = {"cat": "dim", "stack": "dim", "_chunk_cat": "dim num_chunks"}
_EACH = {
    "broadcast_tensors": Each.SHAPED,
    "meshgrid": Each.SHAPED,
    "atleast_1d": Each.APART,
    "atleast_2d": Each.APART,
    "atleast_3d": Each.APART,
}


def _moved(op: str, rest: str, *spellings: str, view: bool) -> OpRule:
    params = f"input {rest}".strip()
    return OpRule(op, params, "input", law=_MOVES, source=f"torch.{op}", view=view, spellings=spellings)


def _joined(op: str, *spellings: str) -> OpRule:
    view = op.startswith("atleast")
    params = f"*tensors {_BESIDE.get(op, '')}".strip()
    each = _EACH.get(op)
    law = _JOINS if each is None else "every result has the elements of one tensor of the list, moved or repeated"
    return OpRule(op, params, "tensors", each=each, law=law, source=f"torch.{op}", view=view, spellings=spellings)


RULES = (
    OpRule(
        "view",
        "input shape dtype",
        "input",
        law=_MOVES,
        source="torch.Tensor.view",
        view=True,
        static=("shape", "dtype"),
        guard=no_dtype("shape", "dtype"),
        spellings=("_unsafe_view", "_reshape_alias"),
    ),
    OpRule(
        "repeat_interleave",
        "input repeats dim",
        "input",
        law=_MOVES,
        source="torch.repeat_interleave",
        static=("repeats",),
        guard=given("repeats", "a single operand is the counts, which say where elements go"),
    ),
    *(_moved(*entry, view=True) for entry in _VIEWS),
    *(_moved(*entry, view=False) for entry in _COPIES),
    *(_moved(op, "", view=False) for op in _COPIED_VIEWS.split()),
    *(OpRule(op, "input ~other", "input", law=_MOVES, source=f"torch.Tensor.{op}", view=True) for op in _TEMPLATED),
    *(_joined(*entry) for entry in _JOINED),
)
