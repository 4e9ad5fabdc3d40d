"""Does the comparison object to every wrong tensor, name rank and index, and pass over every right one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from shardwise import I, P, R, S, V, set_current_mesh
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.interop.running.recording import Draw, HeldElements, Key, Record, Recorder
from shardwise.oracle.reassemble import Grid
from shardwise.types.notation import TypedShape
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNTYPED, TensorType
from shardwise.verifier.comparison.compare import compare
from shardwise.verifier.distance.numbers import Against, NotCompared, Numbers
from shardwise.verifier.records.record import RankRun

GRID = Grid.of({"dp": 2, "tp": 2})
NAMES = {axis: name for name, axis in GRID.axes.items()}
WHOLE = torch.arange(1.0, 33.0, dtype=torch.float64).reshape(4, 8)
HERE = SourceLocation("train.py", 7, 7, 4, 9)


def type_of(claim: Any, ndim: int = 2) -> TensorType:
    with set_current_mesh(dict(GRID.axes)):
        return asserted_type((claim,), ndim)


def record(
    value: torch.Tensor, type: TensorType, kind: str = "value", name: str = "x", nth: int = 1, **more: Any
) -> Record:
    place = None if kind == "trained" else HERE
    return Record(
        Key(kind, name, place, nth), type, str(TypedShape(str(value.dtype), tuple(value.shape), type)), value, **more
    )


def run(*entries: Record | Draw) -> RankRun:
    return RankRun(list(entries), dict(NAMES), {torch.float64})


def compared(pieces: Sequence[torch.Tensor], alone: torch.Tensor, claim: Any, kind: str = "value") -> Numbers:
    """The verdict on one tensor whose pieces on the four ranks are claimed to be ``claim``."""
    type = UNTYPED if claim is None else type_of(claim, pieces[0].ndim)
    return compare([run(record(piece, type, kind)) for piece in pieces], run(record(alone, UNTYPED, kind)))


def rows(x: torch.Tensor = WHOLE) -> list[torch.Tensor]:
    """Rows over dp, the same on both tp ranks."""
    return [x[:2].clone(), x[:2].clone(), x[2:].clone(), x[2:].clone()]


def both(x: torch.Tensor = WHOLE) -> list[torch.Tensor]:
    """Rows over dp, columns over tp."""
    return [x[:2, :4].clone(), x[:2, 4:].clone(), x[2:, :4].clone(), x[2:, 4:].clone()]


def summed(x: torch.Tensor = WHOLE) -> list[torch.Tensor]:
    """Addends over tp, the same for both dp ranks."""
    return [0.25 * x, 0.75 * x, 0.25 * x, 0.75 * x]


RIGHT: dict[str, tuple[list[torch.Tensor], Any]] = {
    "replicated": ([WHOLE] * 4, {"dp": R, "tp": R}),
    "invariant": ([WHOLE] * 4, {"dp": R, "tp": I}),
    "rows over dp": (rows(), {"dp": S(0), "tp": R}),
    "rows and columns": (both(), {"dp": S(0), "tp": S(1)}),
    "rows over both, dp outside": (list(WHOLE.split(1)), PartitionSpec(("dp", "tp"), None)),
    "rows over both, tp outside": ([WHOLE[i : i + 1] for i in (0, 2, 1, 3)], PartitionSpec(("tp", "dp"), None)),
    "partial": (summed(), {"dp": R, "tp": P}),
    "rows over dp, partial over tp": ([0.5 * x for x in rows()], {"dp": S(0), "tp": P}),
    "uneven rows": ([WHOLE[:3], WHOLE[:3], WHOLE[3:], WHOLE[3:]], {"dp": S(0), "tp": R}),
    "not a number in the same place": ([WHOLE.log().sub(3).sqrt()] * 4, {"dp": R, "tp": R}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_as_claimed_is_equal(case):
    pieces, claim = RIGHT[case]
    whole = WHOLE.log().sub(3).sqrt() if "number" in case else WHOLE
    numbers = compared(pieces, whole, claim)
    assert (numbers.equal, numbers.disagreements, numbers.not_compared) == (1, (), ())


def changed(pieces: list[torch.Tensor], rank: int, index: tuple[int, ...], by: float = 0.5) -> list[torch.Tensor]:
    pieces = [piece.clone() for piece in pieces]
    pieces[rank][index] += by
    return pieces


WRONG: dict[str, tuple[list[torch.Tensor], Any, int, tuple[int, ...], tuple[int, ...]]] = {
    "a shard": (changed(both(), 2, (1, 3)), {"dp": S(0), "tp": S(1)}, 2, (1, 3), (3, 3)),
    "the last shard": (changed(both(), 3, (0, 2)), {"dp": S(0), "tp": S(1)}, 3, (0, 2), (2, 6)),
    "an addend": (changed(summed(), 1, (3, 0)), {"dp": S(0), "tp": P}, 0, (3, 0), (3, 0)),
    "all replicas": ([x + 1.0 for x in [WHOLE] * 4], {"dp": R, "tp": I}, 0, (0, 0), (0, 0)),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_differs_from_one_rank_is_named_with_rank_and_index(case):
    pieces, claim, rank, index, whole_index = WRONG[case]
    alone = torch.cat([WHOLE, WHOLE]) if case == "an addend" else WHOLE
    (wrong,) = compared(pieces, alone, claim).disagreements
    assert (wrong.against, wrong.rank, wrong.index, wrong.whole_index) == (Against.ALONE, rank, index, whole_index)
    assert wrong.difference is not None
    assert wrong.difference.expected == alone[whole_index]
    assert "{" in wrong.claim or "@" in wrong.claim


def test_what_nobody_has_said_a_type_of_is_not_claimed_to_be_unknown():
    recorder = Recorder()
    recorder.add("value", "x", torch.ones(2), UNTYPED, None)
    assert [record.claim for record in recorder.entries] == ["f32[2]"]


def test_all_ranks_of_a_sum_are_named():
    (wrong,) = compared(changed(summed(), 1, (0, 0)), WHOLE, {"tp": P, "dp": P}).disagreements
    assert wrong.ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("place", [R, I])
@pytest.mark.parametrize("rank", [1, 3])
def test_ranks_that_should_be_equal_are_so_bit_by_bit(place, rank):
    (wrong,) = compared(changed(rows(), rank, (0, 1), by=1e-15 * 16), WHOLE, {"dp": S(0), "tp": place}).disagreements
    assert (wrong.against, wrong.rank, wrong.index) == (Against.RANKS, rank, (0, 1))
    assert wrong.said == f"is claimed to be {place!r} over tp, but rank {rank} differs from rank {rank - 1}"


@pytest.mark.parametrize(
    ("factor", "hint"),
    [
        (2.0, "2 times as much, the size of dp or tp: summed once too often over dp or tp?"),
        (0.5, "1/2 of it, 2 being the size of dp or tp: divided once too often, or a sum over it missing?"),
        (4.0, "4 times as much, the size of dp and tp: summed once too often over dp and tp?"),
        (0.0, "zero throughout: dropped, or overwritten?"),
        (-1.0, "the sign is wrong throughout"),
        (3.0, "3 times as much throughout"),
    ],
)
def test_a_clean_factor_is_explained(factor, hint):
    (wrong,) = compared([factor * WHOLE] * 4, WHOLE, {"dp": R, "tp": R}).disagreements
    assert wrong.hint == hint


@pytest.mark.parametrize(("factor", "said"), [(0.5, True), (0.5004, False)])
def test_a_single_number_near_half_of_another_is_not_explained(factor, said):
    one = torch.tensor(3.0, dtype=torch.float64)
    (wrong,) = compared([factor * one] * 4, one, {"dp": R, "tp": R}).disagreements
    assert bool(wrong.hint) is said


def test_results_that_are_padded_for_equal_parts_are_compared_without_the_padding():
    whole = torch.arange(1.0, 8.0, dtype=torch.float64)
    padded = torch.cat([whole, torch.zeros(1, dtype=torch.float64)]).chunk(4)
    claim = PartitionSpec(("dp", "tp"))
    assert compared(padded, whole, claim, "result").equal == 1
    (wrong,) = compared(changed(list(padded), 1, (0,)), whole, claim, "result").disagreements
    assert (wrong.against, wrong.index) == (Against.ALONE, (0,))


def test_a_factor_that_is_not_clean_is_not_explained():
    (wrong,) = compared(changed([2 * WHOLE] * 4, 0, (0, 0))[:1] * 4, WHOLE, {"dp": R, "tp": R}).disagreements
    assert wrong.hint == ""


@pytest.mark.parametrize(
    ("dtype", "off", "equal"),
    [
        (torch.float64, 1e-11, True),
        (torch.float64, 1e-7, False),
        (torch.float32, 1e-5, True),
        (torch.float32, 1e-2, False),
        (torch.bfloat16, 1e-2, True),
        (torch.bfloat16, 0.2, False),
        (torch.int64, 1, False),
    ],
)
def test_the_dtype_says_how_far_values_may_be_apart(dtype, off, equal):
    x = WHOLE.to(dtype)
    wrong = x + torch.tensor(off * 32 if dtype.is_floating_point else off, dtype=dtype)
    numbers = compared([wrong] * 4, x, {"dp": R, "tp": R})
    assert numbers.equal == int(equal)


def test_a_coarser_dtype_on_the_way_widens_the_tolerance():
    entries = [run(record(WHOLE * (1 + 1e-3), type_of({"dp": R, "tp": R}))) for _ in range(4)]
    alone = run(record(WHOLE, UNTYPED))
    assert len(compare(entries, alone).disagreements) == 1
    alone.dtypes.add(torch.bfloat16)
    assert compare(entries, alone).equal == 1
    assert len(compare(entries, alone, rtol=1e-6).disagreements) == 1


def test_a_gradient_that_is_zero_but_for_rounding_is_equal_to_another_one():
    claim = type_of({"dp": R, "tp": R})

    def gradients(noise: float, type: TensorType = claim) -> RankRun:
        big = record(WHOLE, type, "gradient", "big")
        return run(big, record(torch.full((4, 8), noise, dtype=torch.float64), type, "gradient", "small"))

    alone = gradients(3e-17, UNTYPED)
    assert compare([gradients(-1e-17)] * 4, alone).equal == 2
    assert len(compare([gradients(1e-3)] * 4, alone).disagreements) == 1


NOT_COMPARABLE: dict[str, tuple[list[torch.Tensor], Any, str]] = {
    "varying": (rows(), {"dp": V}, "it varies over dp"),
    "untyped": (rows(), None, "it is not fully typed"),
    "an axis not mentioned": (summed(), {"tp": P}, "it is not fully typed"),
}


@pytest.mark.parametrize("case", NOT_COMPARABLE)
def test_what_nothing_is_said_about_is_listed_as_not_compared(case):
    pieces, claim, reason = NOT_COMPARABLE[case]
    numbers = compared(pieces, WHOLE + 1.0, claim)
    assert numbers.compared == 0
    assert reason in numbers.not_compared[0].reason


def test_equality_is_checked_also_where_nothing_else_can_be():
    assert compared([x + 1.0 for x in rows()], WHOLE, {"dp": V, "tp": R}).replicas == 1
    (wrong,) = compared(changed(rows(), 3, (0, 0)), WHOLE, {"dp": V, "tp": R}).disagreements
    assert (wrong.rank, wrong.ranks) == (3, (2, 3))


def test_varying_pieces_that_make_the_whole_in_some_way_are_equal():
    assert compared(rows(), WHOLE, {"dp": V, "tp": R}).equal == 1


def test_pieces_that_vary_over_two_axes_or_are_merged_are_put_together_too():
    assert compared(list(WHOLE.chunk(4, 0)), WHOLE, {"dp": V, "tp": V}).equal == 1
    halves = [torch.cat([part.chunk(2, 1)[tp] for part in WHOLE.chunk(2, 1)], 1) for tp in range(2)]
    assert compared(halves * 2, WHOLE, {"dp": R, "tp": V}).equal == 1


@pytest.mark.parametrize("kind", ["parameter", "gradient", "trained"])
def test_parameters_without_a_type_are_replicas(kind):
    assert compared([WHOLE] * 4, WHOLE, None, kind).equal == 1
    (wrong,) = compared(changed([WHOLE] * 4, 2, (0, 0), by=1e-14), WHOLE, None, kind).disagreements
    assert (wrong.against, wrong.rank) == (Against.RANKS, 2)
    assert len(compared(rows(), WHOLE, None, kind).not_compared) == 1


def test_the_initial_pieces_of_a_weight_say_how_its_gradients_lie():
    claim = type_of({"dp": R, "tp": V})
    columns = [WHOLE[:, :4], WHOLE[:, 4:]] * 2

    def runs(change: Callable[[int, torch.Tensor], torch.Tensor], first: torch.Tensor) -> Numbers:
        pieces = [first[:, :4], first[:, 4:]] * 2
        ranks = [
            run(record(pieces[at], claim, "parameter", "w"), record(change(at, columns[at]), claim, "gradient", "w"))
            for at in range(4)
        ]
        return compare(ranks, run(record(first, UNTYPED, "parameter", "w"), record(WHOLE, UNTYPED, "gradient", "w")))

    assert runs(lambda at, x: x, WHOLE).equal == 2
    assert runs(lambda at, x: x * 2, WHOLE).disagreements[0].key.kind == "gradient"
    # Zeros lie in any way, so they tell nothing.
    assert runs(lambda at, x: x * 2, torch.zeros_like(WHOLE)).disagreements == ()


@pytest.mark.parametrize(
    ("first", "having"),
    [(rows(), (0, 2)), (rows(), (1, 2)), ([WHOLE] * 4, (3,))],
    ids=["cut over dp", "other ranks of tp", "whole"],
)
def test_a_gradient_counts_for_the_ranks_that_hold_the_same_piece(first, having):
    def runs(factor: float, having: Sequence[int]) -> Numbers:
        ranks = [[record(piece, UNTYPED, "parameter", "w")] for piece in first]
        for at in having:
            ranks[at].append(record(first[at] * factor, UNTYPED, "gradient", "w"))
        alone = run(record(WHOLE, UNTYPED, "parameter", "w"), record(WHOLE, UNTYPED, "gradient", "w"))
        return compare([run(*entries) for entries in ranks], alone, mesh={"dp": 2, "tp": 2})

    assert (runs(1.0, having).equal, runs(1.0, having).not_compared) == (2, ())
    assert runs(2.0, having).disagreements[0].key.kind == "gradient"


def test_a_gradient_that_no_rank_with_a_piece_has_is_not_compared():
    ranks = [[record(piece, UNTYPED, "parameter", "w")] for piece in rows()]
    ranks[0].append(record(rows()[0], UNTYPED, "gradient", "w"))
    alone = run(record(WHOLE, UNTYPED, "parameter", "w"), record(WHOLE, UNTYPED, "gradient", "w"))
    (left,) = compare([run(*entries) for entries in ranks], alone, mesh={"dp": 2, "tp": 2}).not_compared
    assert left.reason == "rank 2, 3 of those that hold it has none"


@pytest.mark.parametrize("parts", [False, True], ids=["whole pieces", "parts of pieces"])
@pytest.mark.parametrize(("having", "tp"), [((0, 1), 1), ((2, 3), 1), ((0, 2), 2), ((1, 3), 2)])
def test_a_gradient_settles_along_which_axis_a_constant_is_cut(having, tp, parts):
    """Halves of zeros may be cut over either axis. An optimizer that shares out its work has gradients on a few ranks:
    if they are that of one rank in one of the ways, so they lie; if in none, nobody knows."""

    def gradient(piece: torch.Tensor, start: int, stop: int) -> Record:
        held = HeldElements(tuple(piece.shape), ((start, stop),))
        return record(piece.flatten()[start:stop].clone(), UNTYPED, "gradient", "w", held=held)

    def runs(pieces: Sequence[torch.Tensor]) -> Numbers:
        ranks = [[record(torch.zeros(2, 8), UNTYPED, "parameter", "w")] for _ in range(4)]
        for at, piece in zip(having, pieces, strict=True):
            other = at ^ (2 // tp)
            ranks[at].append(gradient(piece, 0, 6) if parts else record(piece, UNTYPED, "gradient", "w"))
            if parts:
                ranks[other].append(gradient(piece, 6, 16))
        zeros = record(torch.zeros_like(WHOLE), UNTYPED, "parameter", "w")
        alone = run(zeros, record(WHOLE, UNTYPED, "gradient", "w"))
        return compare([run(*entries) for entries in ranks], alone, mesh={"dp": 2, "tp": 2})

    first, second = WHOLE[:2], WHOLE[2:]
    right = runs([first, second])
    assert (right.equal, right.not_compared, right.disagreements) == (2, (), ())
    for wrong in ([first, first], [second, first], [2 * first, second]):
        told = runs(wrong)
        assert (told.equal, len(told.not_compared) + len(told.disagreements)) == (1, 1)


def test_a_gradient_that_may_not_have_been_summed_may_be_either():
    declared = type_of({"dp": R, "tp": R})

    def verdict(piece: torch.Tensor) -> Numbers:
        owing = [run(record(piece, declared, "gradient", owing=declared.backward_type())) for _ in range(4)]
        return compare(owing, run(record(WHOLE, UNTYPED, "gradient")))

    assert verdict(WHOLE).equal == verdict(WHOLE / 4).equal == 1
    assert len(verdict(WHOLE / 2).disagreements) == 1


def test_whole_tensors_that_are_claimed_to_be_shards_are_a_wrong_claim():
    (wrong,) = compared([WHOLE] * 4, WHOLE, {"dp": S(0), "tp": R}).disagreements
    assert wrong.against is Against.SHAPE
    assert wrong.said == "is [8, 8] together, and [4, 8] on one rank: every rank has the whole, and not a shard of it"


def test_work_that_grows_with_the_mesh_parts_the_runs():
    first = [record(x, type_of({"dp": S(0), "tp": R})) for x in (WHOLE, WHOLE, WHOLE + 1, WHOLE + 1)]
    after = record(WHOLE, type_of({"dp": R, "tp": R}), name="y")
    numbers = compare([run(x, after) for x in first], run(record(WHOLE, UNTYPED), record(WHOLE - 1, UNTYPED, name="y")))
    assert numbers.disagreements == ()
    assert numbers.replicas == 1
    assert numbers.parting is not None
    assert "as large as on one" in numbers.parting.reason


@pytest.mark.parametrize(
    ("states", "shapes", "reason"),
    [
        ("aaaaa", "44444", None),
        ("aabbc", "44444", "in different states"),
        ("aaaaa", "22224", "draws [2] random numbers here, [4] there"),
        ("aaaa ", "4444 ", "in some of the runs only"),
    ],
)
def test_random_numbers_that_differ_part_the_runs(states, shapes, reason):
    runs = []
    for at, (state, shape) in enumerate(zip(states, shapes, strict=True)):
        drawn = [] if state == " " else [Draw(Key("drawn", "dropout", HERE), state.encode(), (int(shape),))]
        runs.append(run(*drawn, record(WHOLE + (at == 4), type_of({"dp": R, "tp": R}))))
    numbers = compare(runs[:4], runs[4])
    assert len(numbers.disagreements) == (reason is None)
    assert numbers.replicas == (reason is not None)
    assert (numbers.parting is None) == (reason is None)
    assert reason is None or reason in numbers.parting.reason


def test_records_that_some_runs_lack_are_listed():
    claim = type_of({"dp": R, "tp": R})
    x, y, z = (record(WHOLE, claim, name=name) for name in "xyz")
    numbers = compare([run(x, y), run(x, y), run(y), run(y)], run(y, z))
    assert numbers.equal == 1
    assert {str(one.key): one.reason for one in numbers.not_compared} == {
        "value x": "only rank 0, 1 has it",
        "value z": "only the run on one rank has it",
    }


def test_records_of_a_loop_that_runs_more_often_on_the_mesh_are_not_mixed_up():
    claim = type_of({"dp": R, "tp": R})
    ranks = [run(record(WHOLE, claim, nth=1), record(WHOLE + 1, claim, nth=2)) for _ in range(4)]
    numbers = compare(ranks, run(record(WHOLE + 1, UNTYPED)))
    assert (numbers.equal, numbers.replicas, numbers.disagreements) == (0, 2, ())


def test_runs_that_take_different_numbers_of_steps_part_there():
    claim = type_of({"dp": R, "tp": R})

    def steps(values: Sequence[float], type: TensorType) -> RankRun:
        gradients = [record(WHOLE * value, type, "gradient", nth=nth) for nth, value in enumerate(values, 1)]
        return run(*gradients, record(WHOLE * values[0], type, name="after"))

    numbers = compare([steps([2.0], claim)] * 4, steps([1.0, 1.0], UNTYPED))
    assert (numbers.equal, numbers.replicas, numbers.disagreements) == (0, 2, ())
    assert numbers.parting is not None
    assert numbers.parting.reason == "it happens 1 time here and 2 times on one rank"


def test_disagreements_come_in_program_order():
    claim = type_of({"dp": R, "tp": R})
    names = ["b", "a", "c"]
    ranks = [run(*(record(WHOLE + 1, claim, name=name) for name in names)) for _ in range(4)]
    numbers = compare(ranks, run(*(record(WHOLE, UNTYPED, name=name) for name in reversed(names))))
    assert [wrong.key.name for wrong in numbers.disagreements] == names


def test_ranks_that_claim_different_types_are_not_compared():
    claims = [{"dp": R, "tp": R}] * 3 + [{"dp": R, "tp": I}]
    numbers = compare([run(record(WHOLE, type_of(claim))) for claim in claims], run(record(WHOLE, UNTYPED)))
    assert "another rank claims f64[4, 8] {" in numbers.not_compared[0].reason


def test_pieces_that_do_not_fit_together_are_a_wrong_claim():
    pieces = [WHOLE[:, :4], WHOLE[:, :4], WHOLE[:, :3], WHOLE[:, :3]]
    (wrong,) = compared(pieces, WHOLE, {"dp": S(0), "tp": R}).disagreements
    assert wrong.against is Against.SHAPE
    assert "do not fit together" in wrong.said


def test_losses_of_a_line_that_one_rank_does_not_have_are_no_other_lines_losses():
    there = SourceLocation("train.py", 8, 8, 4, 9)
    penalty = Record(Key("loss", "", there), type_of(P, 0), "", torch.tensor(5.0))
    loss = record(torch.tensor(2.0), type_of(P, 0), "loss", "")
    ranks = [run(loss, penalty) for _ in range(4)]
    alone = run(*(record(torch.tensor(float(8 * nth)), UNTYPED, "loss", "", nth) for nth in (1, 2)))
    numbers = compare(ranks, alone, mesh={"dp": 2, "tp": 2})
    assert not numbers.disagreements, numbers.disagreements


@pytest.mark.parametrize(
    ("kinds", "equal_gradients", "said"),
    [
        (["loss"], 0, "1 loss was not compared"),
        (["loss", "loss", "gradient"], 0, "2 losses and 1 gradient were not compared"),
        (["gradient"], 0, "1 gradient was not compared"),
        (["loss", "gradient", "gradient"], 3, "2 gradients were not compared"),
        (["loss"], 3, None),
        (["value"], 0, None),
    ],
)
def test_losses_and_gradients_that_are_left_out_leave_the_verdict_open(kinds, equal_gradients, said):
    left = tuple(NotCompared(Key(kind, "w", None, at), "f32[4]", "no rank has it") for at, kind in enumerate(kinds))
    assert Numbers(gradients=equal_gradients, not_compared=left).open_questions == ((said,) if said else ())
