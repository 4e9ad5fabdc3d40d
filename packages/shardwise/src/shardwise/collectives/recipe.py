"""What exactly a call will do, a recipe: the transition, dims and dtypes, worked out once per kind of call.

Everything that can be refused without looking at sizes is refused here, before any group is resolved and before any
byte moves. A recipe knows nothing of groups, so it stays valid for ever; ``partner`` is the recipe of its gradient.

With input dtype D: none given, both are D; only ``op_dtype``, both are it; both given, as given; only ``out_dtype``, an
op that shrinks its operand runs in D and casts after, any other runs in the narrower of the two, because casting
commutes with moving numbers about and fewer bytes travel.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.compiler import is_compiling

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.communication import wire
from shardwise.op_rules.transitions import REDUCTIONS, TRANSITIONS, Transition, letter, transition
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.elements import NO_SUM
from shardwise.types.placement import PerMeshAxisSpmdType, Shard

from .kernels import KERNELS, Kernel, identity
from .request import Options, Request
from .sizes import CHECKS, Check

_SHRINKING = frozenset({("convert", whole, part) for whole in "RI" for part in "VS"})


BACKWARD_KEYS = ("op_dtype", "out_dtype", "async_op", "backward_options")


class Recipe:
    """One kind of call, resolved.

    ``dim``, ``other_dim``   as the kernel reads them, counted from the front.
    ``given``                the operand's dtype; ``op_dtype`` the one the kernel runs in; ``out_dtype`` the result's.
    ``way``                  how the collective is issued, see interop/communication/wire.py.
    ``narrow``               the dtype that would be summed in unasked in backward, or None.
    ``reduction``            the name of the reduction, where it makes one.
    ``partner``              the recipe that the gradient goes through, if one does.
    ``is_noop``              the call hands its operand back: no change of placement, and no cast asked for.
    """

    __slots__ = (
        "_waiting", "casts", "check", "dim", "given", "is_noop", "kernel", "narrow", "op_dtype", "options",
        "other_dim", "out_dtype", "partner", "reduction", "row", "way",
    )  # fmt: skip

    def __init__(
        self,
        row: Transition,
        dim: int,
        other_dim: int,
        given: torch.dtype,
        op_dtype: torch.dtype | None,
        out_dtype: torch.dtype | None,
        async_op: bool,
        options: Options | None,
    ) -> None:
        shrinks = row.op in REDUCTIONS or (row.op, row.src, row.dst) in _SHRINKING
        self.row = row
        self.reduction = row.reduction
        self.kernel: Kernel = KERNELS.get((row.op, row.src, row.dst), identity)
        self.check: Check | None = CHECKS.get(self.kernel)
        self.dim, self.other_dim = dim, other_dim
        self.given = given
        self.op_dtype, self.out_dtype = resolve_dtypes(given, op_dtype, out_dtype, shrinks=shrinks)
        self.casts = not (self.given == self.op_dtype == self.out_dtype)
        # A recipe made while torch.compile traces is not used outside that trace.
        self.way = wire.TRACED if is_compiling() else wire.DEFERRED if async_op else wire.EAGER
        self.options = options
        self.is_noop = row.is_noop and not self.casts and options is None
        self.narrow = self._summed_unasked()
        self.partner: Recipe | None = None
        self._waiting: Recipe | None = None

    def _summed_unasked(self) -> torch.dtype | None:
        if self.row.backward is None or self.row.backward[0] not in REDUCTIONS or self._option("op_dtype") is not None:
            return None
        return next((dtype for dtype in (self.op_dtype, self.out_dtype, self.given) if is_narrow(dtype)), None)

    def _option(self, name: str) -> Any:
        return next((value for key, value in self.options or () if key == name), None)

    def with_partner(self) -> Recipe:
        """This recipe, with ``partner`` made: the table is a cycle, so partners are made one step ahead."""
        if self.partner is None and self.row.backward is not None:
            self.partner = self._make_partner(bool(self._option("async_op")))
        return self

    def _make_partner(self, async_op: bool) -> Recipe:
        """What the gradient goes through. It arrives in this recipe's out dtype and leaves in its input's."""
        assert self.row.backward is not None, "only asked for where a gradient goes through"
        turned = self.row.op == "all_to_all"
        return Recipe(
            TRANSITIONS[self.row.backward],
            self.other_dim if turned else self.dim,
            self.dim if turned else self.other_dim,
            self.out_dtype,
            self._option("op_dtype"),
            self._option("out_dtype") or self.given,
            async_op,
            self._option("backward_options"),
        )

    @property
    def for_leaf(self) -> Recipe:
        """The same recipe with a backward that waits: a leaf's gradient is stored, and nothing would wait for it."""
        assert self.partner is not None, "recipes for calls are made with their partners"
        if self.partner.way != wire.DEFERRED:
            return self
        if self._waiting is None:
            self._waiting = copy.copy(self)
            self._waiting.partner = self._make_partner(False)
        return self._waiting


def make_recipe(axis: DeviceMeshAxis, request: Request) -> Recipe:
    """The recipe of a call. SW202, SW203 for the pair, or the dtype; SW205, SW905 for dims; SW208 for options."""
    op, src, dst = request.op, request.src, request.dst
    row = transition(op, src, dst, expert_mode=request.expert_mode, axis=axis)
    if isinstance(row, Diagnosis):
        raise SpmdValueError(row.message, code=row.code, help=row.help)
    recipe = Recipe(
        row,
        *_dims(request),
        request.dtype,
        request.op_dtype,
        request.out_dtype,
        request.async_op,
        request.options,
    )
    _check_elements(axis, recipe)
    return recipe.with_partner()


def _check_elements(axis: DeviceMeshAxis, recipe: Recipe) -> None:
    """Truth values are not summed, unless they are counted in another dtype. Errors: SW202."""
    for place, dtype in ((recipe.row.reads, recipe.op_dtype), (recipe.row.dst, recipe.out_dtype)):
        if place == "P" and dtype is torch.bool:
            raise SpmdValueError(
                NO_SUM.format(place="P", axis=axis),
                code="SW202",
                help=(
                    "src=P(max) where any rank has to say True, P(min) where all have to",
                    "op_dtype=torch.int64, to count",
                ),
            )


def _dims(request: Request) -> tuple[int, int]:
    op, src, dst, ndim, dim = request.op, request.src, request.dst, request.ndim, request.dim
    if op == "all_to_all":
        # S(i) -> S(j): cut along j, join along i; S(i) -> V: cut along i; V -> S(j): join along j.
        both = isinstance(src, Shard) and isinstance(dst, Shard)
        cut = dst if both else src if isinstance(src, Shard) else None
        join = src if both else dst if isinstance(dst, Shard) else None
        return (
            _one_dim("split_dim", dim, cut, ndim),
            _one_dim("concat_dim", request.other_dim, join, ndim),
        )
    if op == "all_gather":
        return _one_dim("gather_dim", dim, src, ndim + (letter(src) == "V")), 0
    if op == "reduce_scatter":
        return _one_dim("scatter_dim", dim, dst, ndim), 0
    shard = src if isinstance(src, Shard) else dst
    stacks = (letter(src), letter(dst)) == ("V", "P")
    acts = isinstance(shard, Shard) or stacks or (letter(src) in "RI" and letter(dst) == "V" and op == "convert")
    return (_one_dim("dim", None, shard, ndim + stacks) if acts else 0), 0


def _one_dim(name: str, given: int | None, placement: PerMeshAxisSpmdType | None, ndim: int) -> int:
    """The dim that an argument and a placement agree on, counted from the front; 0 if neither says any."""
    wanted = placement.dim if isinstance(placement, Shard) else None
    for what, value in ((name, given), (f"S({wanted})", wanted)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise SpmdArgumentError(f"{name} must be an int, got {shown(value)}", code="SW905")
        if not -ndim <= value < ndim:
            raise SpmdValueError(f"{what} is out of range for a tensor of {ndim} dims", code="SW905")
    if given is None and wanted is None:
        if ndim == 0:
            raise SpmdValueError(f"{name} needs a tensor with at least one dim, got a 0-d tensor", code="SW206")
        return 0
    if given is not None and wanted is not None and given % ndim != wanted % ndim:
        raise SpmdValueError(
            f"{name}={given} and {placement} conflict: they name different tensor dims",
            code="SW205",
            help=(f"leave {name} out: {placement} says it",),
        )
    chosen = wanted if given is None else given
    assert chosen is not None, "one of the two was given"
    return chosen % ndim


def resolve_dtypes(
    given: torch.dtype, op_dtype: torch.dtype | None, out_dtype: torch.dtype | None, *, shrinks: bool
) -> tuple[torch.dtype, torch.dtype]:
    """The dtype that the op runs in and the dtype of its result."""
    for name, dtype in (("op_dtype", op_dtype), ("out_dtype", out_dtype)):
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise SpmdArgumentError(f"{name} must be a torch.dtype, got {shown(dtype)}", code="SW208")
    if op_dtype is not None:
        return op_dtype, out_dtype if out_dtype is not None else op_dtype
    if out_dtype is None:
        return given, given
    return given if shrinks or given.itemsize <= out_dtype.itemsize else out_dtype, out_dtype


def freeze_options(options: object) -> Options | None:
    """Backward options in hashable form. SW208 for keys that no collective knows."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise SpmdArgumentError(
            f"backward_options must be a dict, got {shown(options)}",
            code="SW208",
            help=('backward_options={"op_dtype": torch.float32}',),
        )
    unknown = [key for key in options if key not in BACKWARD_KEYS]
    if unknown:
        raise SpmdValueError(
            f"unknown backward_options {', '.join(map(repr, unknown))}; valid are {', '.join(BACKWARD_KEYS)}",
            code="SW208",
        )
    return tuple((key, freeze_options(value) if key == "backward_options" else value) for key, value in options.items())


def is_narrow(dtype: torch.dtype) -> bool:
    """True for floating dtypes (and complex ones by their parts) under 32 bits, in which long sums lose digits."""
    return (dtype.is_floating_point or dtype.is_complex) and torch.finfo(dtype).bits < 32


def demand_reduction_dtype(op: str, dtype: torch.dtype) -> SpmdValueError:
    """The refusal of a call whose backward would add up gradients in a narrow dtype that nobody chose."""
    return SpmdValueError(
        f"the backward of this {op} adds up gradients over ranks, and {_name(dtype)} is too narrow to do so unasked: "
        'backward_options["op_dtype"] must be given',
        code="SW209",
        help=(
            'backward_options={"op_dtype": torch.float32} to add in float32, as FSDP does for gathered parameters: '
            'all_gather(shard, "dp", src=S(0), dst=R, op_dtype=torch.bfloat16, '
            'backward_options={"op_dtype": torch.float32})',
            f'backward_options={{"op_dtype": {dtype}}} to add in {_name(dtype)} knowingly',
        ),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
