"""Operands without a type, types without an axis, strict and permissive, constants and factories."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import R, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused


def test_an_untyped_operand_meeting_a_typed_one_is_an_error_in_strict_mode(tp_mesh: Any) -> None:
    x, stray = make("R"), torch.randn(4, 4)
    with typecheck(), refused("SW102", "stray", "x"):
        x + stray


@pytest.mark.parametrize("of_x", ["R", "I", "V", "P"])
def test_an_untyped_operand_makes_the_result_unknown_in_permissive_mode(tp_mesh: Any, of_x: str) -> None:
    x, stray = make(of_x), torch.randn(4, 4)
    with typecheck("permissive"):
        assert place(x + stray) == ""
        assert place(torch.relu(x + stray) @ x) == "", "and nothing is found where it is used"


def test_rows_in_lists_may_be_others_on_every_rank(tp_mesh: Any) -> None:
    """A program deals out its samples as it likes, as by ``rows[rank::size]``, which no number tells."""
    x, rows = make("R"), [[1.0, 2.0, 3.0, 4.0]]
    with typecheck("permissive"):
        assert place(x * torch.tensor(rows)) == ""
        assert place(x * x.new_tensor(rows[0])) == ""
        assert place(x * torch.tensor(2.0)) == "R", "one number is a constant"
    with typecheck():
        assert place(x * torch.tensor(rows)) == "R", "as strict mode says of numbers without an origin"


def test_untyped_tensors_may_be_worked_on_before_they_are_annotated(tp_mesh: Any) -> None:
    with typecheck():
        x = (torch.randn(4, 4) * 2).to(torch.float64)
        assert f"{x.shape}" == "torch.Size([4, 4])"
        repr(x)
        spmd.assert_type(x, {"tp": V})
        assert place(x + 1) == "V"


def test_a_type_that_leaves_out_a_mesh_axis_is_an_error_in_strict_mode(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4), {"tp": R})
    with typecheck(), refused("SW103", "dp", "x"):
        x + x
    with typecheck("permissive"):
        assert place(x + x) == "R"


def test_operands_with_different_axes_and_no_mesh() -> None:
    a = spmd.assert_type(torch.randn(4), {spmd.MeshAxis.of(2, 4): R})
    b = spmd.assert_type(torch.randn(4), {spmd.MeshAxis.of(4, 1): R})
    with typecheck(), refused("SW103"):
        a + b
    with typecheck("permissive"):
        assert spmd.get_local_type(a + b) == {}


@pytest.mark.parametrize(
    "factory",
    [
        lambda: torch.zeros(4, 4),
        lambda: torch.ones(4, 4),
        lambda: torch.full((4, 4), 2.0),
        lambda: torch.arange(16.0).view(4, 4),
        lambda: torch.eye(4),
        lambda: torch.tensor([[1.0] * 4] * 4),
        lambda: torch.linspace(0, 1, 16).view(4, 4).cos(),
        lambda: torch.ones(4, 4).tril() * 2,
        lambda: torch.outer(torch.arange(4.0), torch.arange(4.0)),
    ],
)
@pytest.mark.parametrize("letter", "RIV")
def test_a_constant_is_whatever_the_other_operands_need(
    tp_mesh: Any, factory: Callable[[], torch.Tensor], letter: str
) -> None:
    x = make(letter, grad=True)
    with typecheck():
        constant = factory()
        assert place(constant) == "R"
        assert place(constant * x) == letter
        assert place(x + constant) == letter


def test_zeros_may_be_added_to_a_partial_sum_and_ones_may_not(tp_mesh: Any) -> None:
    x = make("P")
    with typecheck():
        assert place(x + torch.zeros(4, 4)) == "P"
        assert place(torch.zeros_like(x) + x) == "P"
        assert place(torch.zeros(2, 4)[:1] + x) == "P"
        assert place(x + x.new_zeros(4, 4)) == "P"
        with refused("SW113"):
            x + torch.ones(4, 4)
        with refused("SW113"):
            x + torch.ones_like(x)


@pytest.mark.parametrize("like", [torch.zeros_like, torch.ones_like, torch.empty_like])
@pytest.mark.parametrize("letter", "RIV")
def test_a_like_factory_shows_the_type_of_its_template(tp_mesh: Any, like: Callable[[Any], Any], letter: str) -> None:
    with typecheck():
        assert place(like(make(letter))) == letter


@pytest.mark.parametrize("like", [torch.zeros_like, lambda x, dtype: x.new_zeros(4, 4, dtype=dtype)])
def test_truth_values_of_the_shape_of_a_pending_sum_are_pending_nowhere(tp_mesh: Any, like: Any) -> None:
    with typecheck():
        assert place(like(make("P"), dtype=torch.bool)) == "R"
        assert place(torch.zeros_like(make("P"), dtype=torch.int64)) == "P"


def test_a_constant_that_requires_grad_is_a_replicate_leaf(tp_mesh: Any) -> None:
    with typecheck():
        leaf = torch.ones(4, 4, requires_grad=True)
        with refused("SW101"):
            leaf * make("I", grad=True)


@pytest.mark.parametrize("random", [torch.randn, torch.rand, lambda *s: torch.randint(3, s), torch.empty])
def test_random_and_empty_tensors_have_no_type_until_annotated(tp_mesh: Any, random: Callable[..., Any]) -> None:
    with typecheck():
        assert not spmd.get_local_type(random(4, 4))


def test_buffers_take_the_type_of_what_is_written(tp_mesh: Any) -> None:
    with typecheck():
        buffer = torch.empty(4, 4)
        buffer.copy_(make("V"))
        assert place(buffer) == "V"
        other = torch.empty(4, 4)
        other[0] = make("V", 4)
        assert place(other) == "V"
        sums = torch.zeros(4, 4)
        sums += make("P")
        assert place(sums) == "P"


@pytest.mark.parametrize("letter", "RIP")
def test_dropout_needs_equal_masks_for_equal_values(tp_mesh: Any, letter: str) -> None:
    with typecheck(), refused("SW121", "tp"):
        F.dropout(make(letter), 0.1)


@pytest.mark.parametrize(
    "draw", [lambda x: F.dropout(x, 0.1), torch.randn_like, torch.bernoulli, lambda x: x.clone().normal_()]
)
def test_random_numbers_for_varying_values_are_fine(tp_mesh: Any, draw: Callable[[Any], Any]) -> None:
    with typecheck():
        assert place(draw(make("V"))) == "V"


@pytest.mark.parametrize("draw", [torch.randn_like, torch.bernoulli, lambda x: x.clone().normal_()])
def test_random_numbers_for_replicate_values_are_an_error(tp_mesh: Any, draw: Callable[[Any], Any]) -> None:
    with typecheck(), refused("SW121"):
        draw(make("R"))


@pytest.mark.parametrize(
    "look",
    [
        repr,
        str,
        lambda x: f"{x}",
        lambda x: x.shape,
        lambda x: x.data_ptr(),
        lambda x: x.register_hook(lambda g: g) if x.requires_grad else None,
        lambda x: x.is_same_size(x),
        torch.is_floating_point,
        lambda x: x.requires_grad_(),
        len,
        lambda x: x.numel(),
        lambda x: x.stride(),
        lambda x: x.untyped_storage(),
        lambda x: x.grad,
    ],
)
@pytest.mark.parametrize("letter", ["P", ""])
def test_looking_at_a_tensor_is_never_an_error(tp_mesh: Any, look: Callable[[Any], Any], letter: str) -> None:
    with typecheck():
        look(make(letter) if letter else torch.randn(4, 4))


@pytest.mark.parametrize("read", [lambda x: x.item(), lambda x: x.tolist(), bool, int, float, lambda x: x.numpy()])
def test_reading_the_value_of_a_partial_sum_is_an_error(tp_mesh: Any, read: Callable[[Any], Any]) -> None:
    with typecheck(), refused("SW115", "partial", "all_reduce"):
        read(make("P", 1)[0])


def test_branching_on_a_varying_value_warns(tp_mesh: Any) -> None:
    with typecheck(), pytest.warns(UserWarning, match=r"SW116.*tp"):
        bool(make("V", 1)[0])


def _in_a_test(x: Any) -> None:
    if x.item() > 0:
        pass


def _in_a_loop(x: Any) -> None:
    for _ in range(int(x)):
        pass


def _by_a_name(x: Any) -> None:
    total = float(x)
    assert total < 1e9


@pytest.mark.parametrize("read", [_in_a_test, _in_a_loop, _by_a_name, lambda x: 1 in x.reshape(1)])
def test_a_number_that_decides_is_told_with_the_axis_and_a_way_out(tp_mesh: Any, read: Callable[[Any], Any]) -> None:
    collector = Collector()
    with checking(collect=collector):
        read(make("V", 1)[0])
    (finding,) = collector.result().findings
    assert (finding.code, finding.axis) == ("SW116", "tp")
    assert "all_reduce(x" in finding.help[0]
    assert '"tp", src=V, dst=R) first' in finding.help[0]


@pytest.mark.parametrize("read", [lambda x: x.item(), float, lambda x: x.reshape(1).tolist(), lambda x: f"{x:.2f}"])
def test_a_number_that_is_only_logged_is_silent(tp_mesh: Any, read: Callable[[Any], Any], recwarn: Any) -> None:
    with typecheck():
        read(make("V", 1)[0])
    assert not [one for one in recwarn if "SW116" in str(one.message)]


@pytest.mark.parametrize("letter", "RI")
def test_branching_on_equal_values_is_silent(tp_mesh: Any, letter: str, recwarn: Any) -> None:
    with typecheck():
        assert bool(make(letter, 1)[0])
    assert not [one for one in recwarn if "SW116" in str(one.message)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x, s: x * s, {"R": "R", "V": "V", "P": "P"}),
        (lambda x, s: x + s, {"R": "R", "V": "V", "P": "SW113"}),
        (lambda x, s: torch.full((2,), s), {"R": "R", "V": "V", "P": "P"}),
    ],
)
@pytest.mark.parametrize("letter", "RVP")
def test_typed_scalars_take_part(tp_mesh: Any, call: Any, expected: dict[str, str], letter: str) -> None:
    x, scalar = make("R"), spmd.Scalar(2.0, {"tp": spmd.PerMeshAxisLocalSpmdType(letter)})
    with typecheck():
        if expected[letter].startswith("SW"):
            with refused(expected[letter]):
                call(x, scalar)
        else:
            assert place(call(x, scalar)) == expected[letter]


def test_a_typed_scalar_in_a_slice_makes_the_slice_vary(tp_mesh: Any) -> None:
    with typecheck():
        start = spmd.Scalar(1, {"tp": V})
        assert place(make("R")[start : start + 2]) == "V"
        assert place(make("R").narrow(0, start, 2)) == "V"


def test_an_operand_on_another_presentation_of_the_mesh_is_read_on_the_current_one(mesh: Any) -> None:
    whole = spmd.MeshAxis.of(8, 1)
    x = spmd.assert_type(torch.randn(4), {whole: R})
    y = spmd.assert_type(torch.randn(4), {"dp": V, "tp": R})
    with typecheck():
        z = x + y
        assert (place(z, "dp"), place(z)) == ("V", "R")


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'loose'.*'strict', 'permissive'"), typecheck("loose"):
        pass


def test_types_of_results_do_not_share_state(tp_mesh: Any) -> None:
    x = make("R")
    with typecheck():
        y = x + 1
        y.mul_(make("V"))
        assert (place(x), place(y)) == ("R", "V")


@pytest.mark.parametrize("letter", "RI")
def test_declared_synchronised_generators_draw_equal_numbers(mesh: Any, letter: str) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"dp": V, "tp": spmd.PerMeshAxisLocalSpmdType(letter)})
    with typecheck():
        with spmd.synchronised_rng("tp"):
            assert place(F.dropout(x, 0.1)) == letter
        with refused("SW121", "tp", "synchronised_rng"):
            F.dropout(x, 0.1)
        with pytest.raises(spmd.SpmdTypeError, match="nonsense"), spmd.synchronised_rng("nonsense"):
            pass


def test_two_threads_may_check_two_programs(tp_mesh: Any) -> None:
    x = make("P")
    outcomes: dict[str, Any] = {}

    def unchecked() -> None:
        outcomes["other thread"] = (spmd.is_type_checking(), place_free(x))

    def place_free(tensor: torch.Tensor) -> bool:
        return bool(torch.relu(tensor).sum() >= 0)

    with typecheck():
        other = threading.Thread(target=unchecked)
        other.start()
        other.join()
        assert spmd.is_type_checking()
    assert outcomes["other thread"] == (False, True)


def test_a_nested_check_changes_strictness_and_restores_it(tp_mesh: Any) -> None:
    x, stray = make("R"), torch.randn(4, 4)
    with typecheck():
        with typecheck("permissive"):
            x + stray
            with typecheck("strict"), refused("SW102"):
                x + stray
            x + stray
        with refused("SW102"):
            x + stray


def test_a_branch_inside_torch_is_not_the_programs(tp_mesh: Any, recwarn: pytest.WarningsRecorder) -> None:
    with typecheck():
        scale = make("V").exp()
        torch.distributions.Normal(scale, scale).log_prob(scale)
        assert not [one for one in recwarn if "SW116" in str(one.message)]
        with pytest.warns(UserWarning, match="SW116.*the program branches on"):
            assert (scale > 0).all()


def test_a_comparison_of_two_varying_values_is_one_finding(tp_mesh: Any, recwarn: pytest.WarningsRecorder) -> None:
    with typecheck():
        torch.equal(make("V"), make("V"))
    assert len(recwarn) == 1


@pytest.mark.parametrize("letter", "RIVP")
def test_tensors_of_any_type_may_be_compared_in_a_test(tp_mesh: Any, letter: str) -> None:
    with typecheck():
        torch.testing.assert_close(make(letter), make(letter))
        with pytest.raises(AssertionError, match="not close"):
            torch.testing.assert_close(make(letter), make(letter) * 2)


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
def test_a_call_that_was_made_before_is_traced_all_the_same(tp_mesh: Any, caplog: Any, local: bool) -> None:
    x = make("R", 2)
    with typecheck(local=local):
        torch.relu(x)
        with spmd.trace(), caplog.at_level("INFO", "shardwise.trace"):
            torch.relu(x)
            with spmd.trace(False):
                torch.relu(x)
            torch.relu(x)
        torch.relu(x)
    assert [line.partition("  ")[2] for line in caplog.messages] == ["relu(f32[2] {tp: R}) -> f32[2] {tp: R}"] * 2
