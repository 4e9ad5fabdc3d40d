"""Parameters of a mesh run are found in the one-rank run, whatever the ranks call and hold of them."""

from __future__ import annotations

import pytest
import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import Way
from shardwise.oracle.reassemble import Grid
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType
from shardwise.verifier.layouts.alignment import Alignment, axis_parts
from shardwise.verifier.records.naming import NAMELESS

GRID = Grid.of({"pp": 2, "tp": 2})


def weights(count, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def names_and_ways(found):
    return [(one.ranks, one.name, [step.way for step in one.layouts[0].steps]) for one in found]


def test_a_parameter_that_all_ranks_hold_is_found_under_its_name():
    (w,) = weights(1, 4, 4)
    ranks = [{"w": w.chunk(2, 0)[tp]} for _, tp in GRID.coordinates]
    (found,) = Alignment(GRID, ranks, {"w": w}).of("w")
    assert names_and_ways([found]) == [((0, 1, 2, 3), "w", [Way.EQUAL, Way.SHARD])]


def test_halves_of_a_constant_are_cut_along_the_axis_that_somebody_says():
    ranks = [{"w": torch.ones(2)} for _ in GRID.coordinates]
    (found,) = Alignment(GRID, ranks, {"w": torch.ones(4)}).of("w")
    dp, tp = GRID.axes.values()
    assert found.equal_axes() == ()
    assert found.equal_axes(TensorType.of({dp: V}, PartitionSpec(dp))) == (tp,)
    assert found.equal_axes(TensorType.of({tp: V}, PartitionSpec(tp))) == (dp,)


def test_pieces_that_other_ranks_hold_than_their_order_says_are_found():
    (w,) = weights(1, 4, 4)
    ranks = [{"w": w.chunk(2, 0)[1 - tp]} for _, tp in GRID.coordinates]
    (found,) = Alignment(GRID, ranks, {"w": w}).of("w")
    assert names_and_ways([found]) == [((0, 1, 2, 3), "w", [Way.EQUAL, Way.EXCHANGED])]
    assert torch.equal(found.layouts[0].combined({rank: held["w"] for rank, held in enumerate(ranks)}), w)


@pytest.mark.parametrize("copies", ["of neighbours", "of every second"])
def test_a_piece_that_several_ranks_of_an_axis_hold_is_found_on_each_of_them(copies):
    """Two heads for keys on four tensor-parallel ranks."""
    grid = Grid.of({"dp": 2, "tp": 4})
    (w,) = weights(1, 4, 4)
    ranks = [{"k": w.chunk(2, 0)[tp // 2 if copies == "of neighbours" else tp % 2]} for _, tp in grid.coordinates]
    (found,) = Alignment(grid, ranks, {"k": w}).of("k")
    outer, inner = MeshAxis.of(2, 2), MeshAxis.of(2, 1)
    equal, cut = (inner, outer) if copies == "of neighbours" else (outer, inner)
    layout = found.layouts[0]
    assert {step.axis: step.way for step in layout.steps} == {
        grid.axes["dp"]: Way.EQUAL,
        equal: Way.EQUAL,
        cut: Way.SHARD,
    }
    assert torch.equal(layout.combined({rank: held["k"] for rank, held in enumerate(ranks)}), w)


@pytest.mark.parametrize("having", [(0, 3), (0, 2), (1, 3)])
def test_what_two_stages_of_four_share_is_found(having):
    """Input and output embeddings that are tied: the first and the last stage have the table."""
    (w,) = weights(1, 6, 4)
    ranks = [{"word": w} if rank in having else {} for rank in range(4)]
    (found,) = Alignment(Grid.of({"pp": 4}), ranks, {"word": w}).of("word")
    assert names_and_ways([found]) == [(having, "word", [Way.EQUAL])]


def test_what_two_stages_share_along_one_axis_is_cut_along_the_other():
    grid = Grid.of({"pp": 4, "tp": 2})
    (w,) = weights(1, 6, 4)
    ranks = [{"word": w.chunk(2, 0)[tp]} if pp in (0, 3) else {} for pp, tp in grid.coordinates]
    (found,) = Alignment(grid, ranks, {"word": w}).of("word")
    assert names_and_ways([found]) == [((0, 1, 6, 7), "word", [Way.EQUAL, Way.SHARD])]
    assert torch.equal(found.layouts[0].combined({rank: held["word"] for rank, held in enumerate(ranks) if held}), w)


def test_an_axis_of_a_prime_number_of_ranks_has_no_parts():
    assert axis_parts(MeshAxis.of(3, 2)) == []
    assert axis_parts(MeshAxis.of(8, 1)) == [
        (MeshAxis.of(4, 2), MeshAxis.of(2, 1)),
        (MeshAxis.of(2, 4), MeshAxis.of(4, 1)),
    ]


def stages(constant=False):
    """Four layers in two stages that count from 0, each weight cut over tp, with a bias of zeros."""
    layers = weights(4, 4, 4)
    alone = {f"layers.{at}.weight": w for at, w in enumerate(layers)}
    alone |= {f"layers.{at}.bias": torch.zeros(4) for at in range(4)}
    ranks = [
        {f"layers.{at}.weight": layers[2 * pp + at].chunk(2, 0)[tp] for at in range(2)}
        | {f"layers.{at}.bias": torch.zeros(2) for at in range(2)}
        for pp, tp in GRID.coordinates
    ]
    return ranks, alone


def test_layers_numbered_from_zero_in_every_stage_are_found_by_value():
    alignment = Alignment(GRID, *stages())
    assert names_and_ways(alignment.of("layers.1.weight")) == [
        ((0, 1), "layers.1.weight", [Way.SHARD]),
        ((2, 3), "layers.3.weight", [Way.SHARD]),
    ]


def test_a_layer_more_in_the_last_stage_is_found_by_value():
    """``nn.Sequential(*layers_of_the_stage, head)``: its number is one that only the last stage has."""
    ranks, alone = stages()
    (head,) = weights(1, 2, 4, seed=2)
    alone["layers.4.weight"] = head
    for rank in (2, 3):
        ranks[rank]["layers.2.weight"] = head
    alignment = Alignment(GRID, ranks, alone)
    assert names_and_ways(alignment.of("layers.2.weight")) == [((2, 3), "layers.4.weight", [Way.EQUAL])]
    assert alignment.of("layers.0.weight")


def test_a_constant_goes_where_its_neighbour_goes():
    alignment = Alignment(GRID, *stages())
    assert [(one.ranks, one.name) for one in alignment.of("layers.1.bias")] == [
        ((0, 1), "layers.1.bias"),
        ((2, 3), "layers.3.bias"),
    ]


def test_a_parameter_of_one_stage_is_found_on_its_ranks():
    (head,) = weights(1, 4, 4)
    ranks = [{} if pp == 0 else {"head": head} for pp, _ in GRID.coordinates]
    assert names_and_ways(Alignment(GRID, ranks, {"head": head}).of("head")) == [((2, 3), "head", [Way.EQUAL])]


def test_values_that_nothing_explains_are_not_aligned_but_known_to_be_equal_along_an_axis():
    own = weights(2, 4)
    alignment = Alignment(GRID, [{"w": own[tp]} for _, tp in GRID.coordinates], {"w": torch.zeros(8)})
    assert alignment.of("w") == ()
    assert alignment.equal_axes("w") == (GRID.axes["pp"],)


def test_nothing_is_known_of_constants_that_nothing_explains():
    alignment = Alignment(GRID, [{"w": torch.ones(4)} for _ in GRID.coordinates], {"w": torch.zeros(8)})
    assert alignment.equal_axes("w") == ()


def test_experts_that_were_dealt_out_and_start_equal_are_no_replicas():
    grid = Grid.of({"ep": 4})
    first, *others = weights(4, 4, 4)
    alone = {f"experts.{at}.weight": w for at, w in enumerate((first, *others))}
    for held in (first, torch.ones(4, 4), torch.rand(4, 4)):
        alignment = Alignment(grid, [{"experts.0.weight": held}] * 4, alone)
        assert alignment.of("experts.0.weight") == ()
        assert alignment.equal_axes("experts.0.weight") == ()


def test_experts_that_were_dealt_out_and_differ_are_replicas_along_the_other_axes():
    grid = Grid.of({"dp": 2, "ep": 2})
    held = weights(2, 4, 4, seed=1)
    alone = {f"experts.{at}.weight": w for at, w in enumerate(weights(2, 4, 4))}
    alignment = Alignment(grid, [{"experts.0.weight": held[ep]} for _, ep in grid.coordinates], alone)
    assert alignment.equal_axes("experts.0.weight") == (grid.axes["dp"],)


def test_experts_cut_over_another_axis_are_no_replicas_for_being_cut():
    """The ranks of tp have a half of an expert each; those of ep have other experts all the same."""
    grid = Grid.of({"ep": 2, "tp": 2})
    alone = weights(4, 4, 4)
    alone = {f"experts.{at}.weight": whole for at, whole in enumerate(alone)}
    halves = weights(2, 2, 4, seed=1)
    held = [{f"experts.{at}.weight": halves[tp] + at for at in range(2)} for _, tp in grid.coordinates]
    assert Alignment(grid, held, alone).equal_axes("experts.0.weight") == ()


def test_a_constant_that_only_an_optimizer_has_is_not_known_by_its_place():
    alignment = Alignment(Grid.of({"dp": 2}), [{"parameter 0": torch.zeros(2)}] * 2, {"parameter 0": torch.zeros(4)})
    assert alignment.of("parameter 0") == ()


def test_stages_that_keep_the_numbers_of_their_layers_share_none_out():
    layers = weights(4, 4, 4)
    alone = {f"layers.{at}.weight": w for at, w in enumerate(layers)}
    ranks = [{f"layers.{at}.weight": layers[at] for at in (pp, pp + 2)} for pp, _ in GRID.coordinates]
    alignment = Alignment(GRID, ranks, alone)
    assert names_and_ways(alignment.of("layers.3.weight")) == [((2, 3), "layers.3.weight", [Way.EQUAL])]


def test_parts_of_a_flattened_parameter_are_put_together_whatever_their_lengths():
    (w,) = weights(1, 3, 5)
    flat = w.flatten()
    held = [flat[:9], flat[9:]]
    (found,) = Alignment(Grid.of({"dp": 2}), [{"w": piece} for piece in held], {"w": w}).of("w")
    assert found.layouts[0].shape == (3, 5)
    assert torch.equal(found.layouts[0].combined(dict(enumerate(held))), w)
    swapped = [flat[9:], flat[:9]]
    assert Alignment(Grid.of({"dp": 2}), [{"w": piece} for piece in swapped], {"w": w}).of("w") == ()


def test_values_that_were_trained_before_agree_but_for_rounding():
    grid, whole = Grid.of({"dp": 2}), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    resumed, other = whole * (1 + 1e-6), whole * 1.1
    found = Alignment(grid, [{"w": resumed}, {"w": resumed}], {"w": whole})
    assert [part.name for part in found.of("w")] == ["w"]
    assert Alignment(grid, [{"w": other}, {"w": other}], {"w": whole}).of("w") == ()


@pytest.mark.parametrize("off", [0.0, 3e-8, 1e-3])
def test_values_that_are_zero_but_for_rounding_agree_with_others_that_are(off):
    """As what is set by the data that come in: the mean of what a layer before has normalised."""
    grid, (w, noise, other) = Grid.of({"dp": 2}), weights(3, 4, 4)
    ranks = [{"w": w, "shift": 2e-8 * noise + off} for _ in range(2)]
    found = Alignment(grid, ranks, {"w": w, "shift": 1e-8 * other}).of("shift")
    assert names_and_ways(found) == ([((0, 1), "shift", [Way.EQUAL])] if off < 1e-6 else [])
    assert Alignment(grid, [{"shift": 2e-8 * noise}] * 2, {"shift": 1e-8 * other}).of("shift") == ()


def test_a_constant_without_a_name_is_what_has_its_number_where_every_rank_has_as_many():
    alone = {f"{NAMELESS} {at}": torch.ones(4) for at in range(2)}
    (found,) = Alignment(GRID, [alone for _ in range(4)], alone).of(f"{NAMELESS} 0")
    assert names_and_ways([found]) == [((0, 1, 2, 3), f"{NAMELESS} 0", [Way.EQUAL, Way.EQUAL])]
    dealt_out = [{f"{NAMELESS} 0": torch.ones(4)} for _ in range(4)]
    assert Alignment(GRID, dealt_out, alone).of(f"{NAMELESS} 0") == ()


def test_a_constant_part_without_a_name_is_known_by_its_number_where_the_values_of_all_others_agree():
    (w,) = weights(1, 8)
    one, other = f"{NAMELESS}0", f"{NAMELESS}1"
    ranks = [{one: piece, other: torch.ones(2)} for piece in w.chunk(2)]
    (found,) = Alignment(Grid.of({"dp": 2}), ranks, {one: w, other: torch.ones(4)}).of(other)
    assert names_and_ways([found]) == [((0, 1), other, [Way.SHARD])]
    assert Alignment(Grid.of({"dp": 2}), ranks, {other: w, one: torch.ones(4)}).of(other) == ()


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_weights_that_are_scaled_by_a_size_of_one_rank_are_multiples(dim):
    (w,) = weights(1, 4, 4)
    ranks = [{"w": 1.4142 * (w if dim is None else w.chunk(2, dim)[tp])} for _, tp in GRID.coordinates]
    alignment = Alignment(GRID, ranks, {"w": w})
    assert alignment.of("w") == ()
    assert alignment.multiples == {"w": pytest.approx(1.4142)}


def test_other_weights_and_constants_are_no_multiples():
    w, other = weights(2, 4, 4)
    for held in (other, w + 0.1, w * torch.arange(4), torch.zeros(4, 4)):
        assert Alignment(GRID, [{"w": held} for _ in range(4)], {"w": w}).multiples == {}
    assert Alignment(GRID, [{"w": 2 * torch.ones(4)} for _ in range(4)], {"w": torch.ones(4)}).multiples == {}
