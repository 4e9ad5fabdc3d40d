"""A typed shape is written down in one way, and what was written reads back as the same value."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.notation import _ABBREVIATIONS, TypedShape, abbreviate, format_type, parse
from shardwise.types.placement import UNKNOWN, I, P, R, V
from shardwise.types.spec import PartitionSpec, make_entry
from shardwise.types.tensor_type import Ground, TensorType

PP, DP, CP, TP = (MeshAxis.of(2, 2**bit) for bit in (3, 2, 1, 0))
NAMES = {"pp": PP, "dp": DP, "cp": CP, "tp": TP}
of = TensorType.of


@pytest.fixture(autouse=True, scope="module")
def _mesh():
    with set_current_mesh(NAMES):
        yield


WRITTEN = [
    (("float32", (8, 16), of({DP: R, TP: V}, PartitionSpec(None, TP))), "f32[8, 16@tp] {dp: R}"),
    (("bfloat16", (8,), of({DP: V, TP: V}, PartitionSpec((DP, TP)))), "bf16[8@(dp,tp)]"),
    (("bfloat16", (8,), of({DP: V, TP: V}, PartitionSpec((TP, DP)))), "bf16[8@(tp,dp)]"),
    (("bfloat16", (8,), of({DP: V, TP: V}, PartitionSpec((DP, TP)), uneven={TP})), "bf16[8@(dp,~tp)]"),
    (("int64", (5,), of({TP: V}, PartitionSpec(TP), uneven={TP})), "i64[5@~tp]"),
    (("float32", (), of()), "f32[]"),
    (("int64", (3, 0), of({TP: P, DP: I})), "i64[3, 0] {dp: I, tp: P}"),
    (("bool", (3,), of({TP: UNKNOWN, DP: V})), "b8[3] {dp: V, tp: ?}"),
    (("float64", (2,), of({TP: R}, ground=Ground.ZERO)), "f64[2] {tp: R} zero"),
    (("float64", (2,), of(ground=Ground.EMPTY)), "f64[2] empty"),
    (("quint8", (2,), of()), "quint8[2]"),
]


@pytest.mark.parametrize(("parts", "text"), WRITTEN)
def test_typed_shapes_are_written_like_this(parts, text):
    assert str(TypedShape(*parts)) == text


@pytest.mark.parametrize(("parts", "text"), WRITTEN)
def test_what_is_written_is_read_back(parts, text):
    assert parse(text, NAMES) == TypedShape(*parts)


@st.composite
def typed_shapes(draw):
    shape = tuple(draw(st.lists(st.integers(0, 64), max_size=4)))
    placements = draw(st.dictionaries(st.sampled_from(list(NAMES.values())), st.sampled_from([R, I, V, P, UNKNOWN])))
    dims = [[] for _ in shape]
    for axis in draw(st.permutations([axis for axis, place in placements.items() if place is V])):
        if dims and draw(st.booleans()):
            draw(st.sampled_from(dims)).append(axis)
    spec = PartitionSpec(*map(make_entry, dims)) if any(dims) else None
    uneven = frozenset(draw(st.sets(st.sampled_from(list(NAMES.values())))))
    type = of(placements, spec, draw(st.sampled_from(list(Ground))), uneven)
    return TypedShape(draw(st.sampled_from(list(_ABBREVIATIONS))), shape, type)


@pytest.mark.slow
@given(typed_shapes())
def test_every_typed_shape_survives_the_round_trip(typed):
    assert parse(str(typed), NAMES) == typed


@pytest.mark.slow
@given(typed_shapes(), typed_shapes())
def test_different_typed_shapes_are_written_differently(one, other):
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.parametrize("name", ["tp[4:1]", "{dp,cp}", "MeshAxis((3, 2):(4, 1))", "SP/TP{4:1}"])
def test_names_with_brackets_and_commas_are_read_whole(name):
    axes = {name: TP, "dp": DP}
    assert parse(f"f32[8@(dp,{name}), 4] ", axes).type is of({DP: V, TP: V}, PartitionSpec((DP, TP), None))
    assert parse(f"f32[8@{name}, 4] {{dp: R}}", axes).type is of({DP: R, TP: V}, PartitionSpec(TP, None))
    assert parse(f"f32[8] {{{name}: P, dp: R}}", axes).type is of({DP: R, TP: P})


@pytest.mark.parametrize(
    "text", ["f32[8,16@tp]{dp:R}", " f32 [ 8 , 16 @ tp ] { dp : R } ", "float32[8, 16@tp] {dp: R}"]
)
def test_blanks_and_full_dtype_names_do_not_matter(text):
    assert str(parse(text, NAMES)) == "f32[8, 16@tp] {dp: R}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a dtype like f32, bf16 or i64 at position 0, the text ends"),
        ("f33[8]", "expected a dtype like f32, bf16 or i64 at position 0, got 'f33"),
        ("float[8]", "expected a dtype like f32, bf16 or i64 at position 0"),
        ("boolean[8]", "expected a dtype like f32, bf16 or i64 at position 0"),
        ("f32", "expected '[' at position 3, the text ends"),
        ("f32[8", "expected ',' or ']' at position 5"),
        ("f32[x]", "expected the size of a dim at position 4, got 'x]'"),
        ("f32[8@zz]", "expected one of the axes cp, dp, pp, tp at position 6, got 'zz]'"),
        ("f32[8@(tp dp)]", "expected ',' or ')' at position 10"),
        ("f32[8] {tp: Q}", "expected R, I, V, P, P(max), P(min), P(avg) or"),
        ("f32[8] {tp R}", "expected ':' at position 11"),
        ("f32[8@tp] {tp: R}", "expected an axis that cuts no dim: one that does is V at position 11"),
        ("f32[8] {tp: R, tp: V}", "expected an axis that was not given yet at position 15, got 'tp: V}'"),
        ("f32[8] {tp: S(0)}", "(S(i) is written at the dim, as in f32[8@dp]) at position 12, got 'S(0)}'"),
        ("f32[8@dp,tp]", "(several axes that cut one dim are written 8@(dp,tp)) at position 9, got 'tp]'"),
        (
            "f32[8] {tp: R} once",
            "expected constant, uniform, zero, empty, unknown or the end at position 15, got 'once'",
        ),
        ("f32[8] zero zero", "expected the end at position 12"),
    ],
)
def test_what_is_not_notation_is_refused_at_its_position(text, words):
    with pytest.raises(SpmdValueError, match=re.escape(words)) as caught:
        parse(text, NAMES)
    assert caught.value.code == "SW905"


def test_a_sharding_axis_that_is_not_varying_stays_in_the_braces():
    assert str(TypedShape("f32", (8,), of({TP: P}, PartitionSpec(TP)))) == "f32[8@tp] {tp: P}"


def test_a_spec_of_the_wrong_length_still_prints():
    assert (
        str(TypedShape("f32", (8,), of({TP: V}, PartitionSpec(None, TP)))) == "f32[8] {tp: V} PartitionSpec(None, tp)"
    )


@pytest.mark.parametrize("dtype", ["float32", "torch.float32", "f32"])
def test_a_dtype_may_be_given_under_any_of_its_names(dtype):
    assert TypedShape(dtype, (), of()).dtype == "float32"


def test_every_dtype_of_pytorch_is_read_under_both_names():
    dtypes = {one for one in vars(torch).values() if isinstance(one, torch.dtype)}
    for name in (str(dtype).removeprefix("torch.") for dtype in dtypes):
        assert {parse(f"{written}[8]", {}).dtype for written in (name, abbreviate(name))} == {name}


def test_abbreviations_are_those_of_pytorch():
    from torch.utils._dtype_abbrs import dtype_abbrs

    known = {
        str(dtype): short for dtype, short in dtype_abbrs.items() if str(dtype).removeprefix("torch.") in _ABBREVIATIONS
    }
    assert known == {name: abbreviate(name) for name in known}
    assert len(known) == len(_ABBREVIATIONS)


def test_a_type_alone_is_written_in_braces():
    assert format_type(of({TP: P, DP: V}, PartitionSpec(DP))) == "{dp: V, tp: P}"
    assert format_type(of()) == "{}"
