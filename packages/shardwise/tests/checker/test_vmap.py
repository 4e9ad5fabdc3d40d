"""Types inside vmap and out of it again; item 22: specs go along."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import PartitionSpec, S, rules
from shardwise.checker import typecheck

from .helpers import make, place, refused


def sharded(spec: PartitionSpec, *shape: int) -> torch.Tensor:
    x = torch.ones(shape)
    x.__dict__.clear()
    return spmd.assert_type(x, {}, spec)


@pytest.mark.parametrize("vmap", [torch.vmap, torch.func.vmap])
@pytest.mark.parametrize("letter", "RIVP")
def test_mapped_inputs_keep_their_types(tp_mesh, letter, vmap):
    seen = []

    def body(x: torch.Tensor) -> torch.Tensor:
        seen.append((place(x), x.ndim))
        return x * 2

    with typecheck():
        assert place(vmap(body)(make(letter))) == letter
    assert seen == [(letter, 1)]


def test_captured_tensors_keep_theirs(tp_mesh):
    w = make("V")
    with typecheck():
        assert place(torch.vmap(lambda x: x @ w)(make("R"))) == "V"


def test_errors_inside_are_errors(tp_mesh):
    with typecheck(), refused("SW112", "relu"):
        torch.vmap(lambda x: torch.relu(x))(make("P"))


def test_several_arguments_containers_and_unmapped_inputs(tp_mesh):
    def body(tree: Any, w: torch.Tensor) -> Any:
        return {"product": tree["x"] * w, "pair": (tree["y"], tree["x"] * 2)}

    with typecheck():
        out = torch.vmap(body, in_dims=({"x": 0, "y": 1}, None), out_dims=1)(
            {"x": make("R"), "y": make("I")}, make("V")
        )
    assert (place(out["product"]), place(out["pair"][0]), place(out["pair"][1])) == ("V", "I", "R")


def test_vmap_nests(tp_mesh):
    with typecheck():
        assert place(torch.vmap(torch.vmap(lambda x, y: x * y))(make("P"), make("R"))) == "P"


def test_writing_inside_retypes_the_input(tp_mesh):
    x, y = make("R"), make("V")
    with typecheck():
        torch.vmap(lambda a, b: a.copy_(b))(x, y)
    assert place(x) == "V"


def test_results_do_not_share_a_type_that_changes(tp_mesh):
    with typecheck():
        first, second = torch.vmap(lambda x: (x * 1, x * 2))(make("V"))
    spmd.mutate_type(first, "tp", src=spmd.V, dst=spmd.P)
    assert (place(first), place(second)) == ("P", "V")


@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_the_spec_inside_lacks_the_mapped_dim(mesh, in_dim):
    x = sharded(PartitionSpec("dp", None, "tp"), 2, 2, 2)
    expected = [entry for at, entry in enumerate(("dp", None, "tp")) if at != in_dim]
    seen = []
    with typecheck("permissive"):
        torch.vmap(lambda a: seen.append(spmd.get_partition_spec(a)) or a * 1, in_dims=in_dim)(x)
    wanted = spmd.normalize_partition_spec(PartitionSpec(*expected))
    assert seen == [None if not any(wanted) else wanted]


@pytest.mark.parametrize(("out_dim", "expected"), [(0, ("tp", None)), (1, (None, "tp")), (-1, (None, "tp"))])
def test_the_mapped_dim_comes_back_with_its_shards(tp_mesh, out_dim, expected):
    x = sharded(PartitionSpec("tp", None), 2, 3)
    with typecheck():
        out = torch.vmap(lambda a: spmd.assert_type(a.clone(), {"tp": spmd.V}), out_dims=out_dim)(x)
    assert spmd.get_partition_spec(out) == spmd.normalize_partition_spec(PartitionSpec(*expected))


def test_shards_of_other_dims_make_room_for_the_mapped_one(tp_mesh):
    x = sharded(PartitionSpec(None, "tp"), 2, 3)
    with typecheck():
        out = torch.vmap(lambda a: spmd.assert_type(a.clone(), {"tp": S(0)}), out_dims=0)(x)
    assert spmd.get_partition_spec(out) == spmd.normalize_partition_spec(PartitionSpec(None, "tp"))


def test_globally_the_mapped_dim_stays_sharded(mesh):
    x, w = sharded(PartitionSpec("dp", "tp"), 2, 3), sharded(PartitionSpec(None, "tp"), 4, 3)
    spmd.assert_type(w, {"dp": spmd.R})
    with typecheck(local=False):
        out = torch.vmap(torch.nn.functional.linear, in_dims=(0, None))(x, w)
    assert (place(out, "dp"), place(out, "tp")) == ("V", "P")
    assert spmd.get_partition_spec(out) == spmd.normalize_partition_spec(PartitionSpec("dp", None))


def test_an_autograd_function_with_a_generated_vmap_rule(tp_mesh):
    class Square(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad

        @staticmethod
        def spmd_typecheck(*, x: Any) -> Any:
            return rules.einsum("...->...", x)

    with typecheck():
        assert place(torch.vmap(Square.apply)(make("V", grad=True))) == "V"
        x = make("P")
        with refused("SW305"):
            torch.vmap(lambda a: Square.apply(a))(x)


def test_nothing_is_typed_when_nothing_is_checked(tp_mesh):
    assert not spmd.has_local_type(torch.vmap(lambda x: x * 1)(make("V")))


def globally(*shapes: tuple[PartitionSpec, tuple[int, ...]]) -> list[torch.Tensor]:
    """Tensors with these specs, replicate where they are not sharded."""
    made = []
    for spec, shape in shapes:
        x = sharded(spec, *shape)
        named = {axis for entry in spec for axis in ([entry] if isinstance(entry, str) else entry or ())}
        made.append(spmd.assert_type(x, {axis: spmd.R for axis in ("dp", "tp") if axis not in named}))
    return made


ROWS = (PartitionSpec("tp", None), (2, 3))
CAPTURED = [
    ("sharded on the axis of the mapped dim", (PartitionSpec("tp"), (3,)), lambda x, w: x * w, "SW401"),
    ("sharded on another axis", (PartitionSpec("dp"), (3,)), lambda x, w: x.sum() * w, ("tp", "dp")),
    ("whole", (PartitionSpec(None), (3,)), lambda x, w: x * w, ("tp", None)),
    ("whole, and the mapped input is not used", (PartitionSpec(None), (3,)), lambda x, w: w * 2, ("tp", None)),
    ("whole, and nothing is used", (PartitionSpec(None), (3,)), lambda x, w: torch.ones(3), ("tp", None)),
]


@pytest.mark.parametrize(
    ("captured", "body", "expected"), [row[1:] for row in CAPTURED], ids=[row[0] for row in CAPTURED]
)
def test_what_a_mapped_function_captures(mesh, captured, body, expected):
    x, w = globally(ROWS, captured)
    with typecheck(local=False):
        if isinstance(expected, str):
            with refused(expected, "mul"):
                torch.vmap(lambda a: body(a, w))(x)
            return
        out = torch.vmap(lambda a: body(a, w))(x)
    assert spmd.get_partition_spec(out) == spmd.normalize_partition_spec(PartitionSpec(*expected))
    assert place(out, "tp") == "V"


@pytest.mark.parametrize("letter", ["I", "P"])
def test_a_result_that_is_no_piece_of_a_stack_is_refused(mesh, letter):
    (x,) = globally(ROWS)
    w = spmd.assert_type(torch.ones(3), {"dp": spmd.R, "tp": getattr(spmd, letter)})
    with typecheck(local=False), refused("SW405", "vmap"):
        torch.vmap(lambda a: w * 2)(x)


def test_mapped_arguments_are_sharded_alike(mesh):
    x, y = globally(ROWS, (PartitionSpec(None, None), (2, 3)))
    with typecheck(local=False), refused("SW401", "vmap"):
        torch.vmap(lambda a, b: a * b)(x, y)


def test_a_mapped_constant_is_cut_like_the_others_only_where_all_its_slices_are_alike(mesh):
    (x,) = globally(ROWS)
    with typecheck(local=False):
        out = torch.vmap(lambda a, b: a * b)(x, torch.ones(2))
        assert spmd.get_partition_spec(out) == spmd.normalize_partition_spec(PartitionSpec("tp", None))
        with refused("SW401", "vmap"):  # positions of the whole, of which the shard has a part
            torch.vmap(lambda a, b: a * b)(x, torch.arange(2.0))


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.vmap(torch.dot)(x, w)


@pytest.mark.parametrize("differentiate", ["backward", "grad"])
def test_a_gradient_that_goes_through_vmap_is_one(tp_mesh: Any, differentiate: str) -> None:
    """Inside, torch says of no tensor that it requires grad; I and R mix only where none does."""
    with typecheck():
        product(make("I"), make("V"))
        product(make("I"), make("V"))
        with refused("SW101"):
            if differentiate == "backward":
                product(make("I").requires_grad_(), make("V"))
            else:
                w = make("V")
                torch.func.grad(lambda x: product(x, w).sum())(make("I"))
        product(make("I"), make("V"))


def test_a_write_through_a_view_inside_is_seen(tp_mesh: Any) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        made = torch.zeros_like(x)
        made[1:].copy_(x[1:])
        return made

    with typecheck():
        assert [place(torch.vmap(body)(make(letter))) for letter in "VP"] == ["V", "P"]
