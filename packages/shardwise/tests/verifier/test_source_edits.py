"""Do annotations stand where their tensors are reached and typed in time, and does nothing else of a file change?"""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from shardwise.verifier.annotating.annotations import Annotation, plan_annotations
from shardwise.verifier.annotating.inference import InferredType
from shardwise.verifier.annotating.source_edits import with_annotations
from shardwise.verifier.records.annotation_sites import AnnotationSites, Held, Place, Reach

R_OVER_DP = (('"dp"', "R"),)


def parameter(place, expression, line, **more):
    return Annotation(place, expression.split(".")[0].split("[")[0], line, (expression,), R_OVER_DP, **more)


def given(place, expression, line, **more):
    return parameter(place, expression, line, is_input=True, **more)


TOP = Place("", "", 0)
CASES = {
    "behind the statement that binds the name": (
        "model = Linear(\n    4,\n    2,\n)\nprint()\n",
        parameter(TOP, "model.weight", 2),
        'model = Linear(\n    4,\n    2,\n)\nassert_type(model.weight, {"dp": R})\nprint()\n',
    ),
    "behind what fills it, outside of the loop": (
        "model = Linear()\nfor layer in model:\n    fill(layer)\nprint()\n",
        parameter(TOP, "model.weight", 3),
        'model = Linear()\nfor layer in model:\n    fill(layer)\nassert_type(model.weight, {"dp": R})\nprint()\n',
    ),
    "at the end of __init__": (
        "class A(Module):\n    def __init__(self):\n        self.w = Parameter()\n        self.x = 1\n",
        parameter(Place("", "__init__", 2), "self.w", 3),
        "class A(Module):\n    def __init__(self):\n        self.w = Parameter()\n        self.x = 1\n"
        '        assert_type(self.w, {"dp": R})\n',
    ),
    "before the name stands for a wrapper": (
        "model = Linear()\nmodel = DDP(model)\n",
        parameter(TOP, "model.module.weight", 1, unwrapped=("model.weight",)),
        'model = Linear()\nassert_type(model.weight, {"dp": R})\nmodel = DDP(model)\n',
    ),
    "through the wrapper that the name stands for": (
        "model = DDP(Linear())\n",
        parameter(TOP, "model.module.weight", 1, unwrapped=("model.weight",)),
        'model = DDP(Linear())\nassert_type(model.module.weight, {"dp": R})\n',
    ),
    "before the loop in which what no module has is used": (
        "w = []\nfor n in sizes:\n    w.append(make(n))\nopt = SGD(w)\nfor x in data:\n    f(w, x).backward()\n",
        parameter(TOP, "w[0]", 6, held=Held.USED_HERE),
        "w = []\nfor n in sizes:\n    w.append(make(n))\nopt = SGD(w)\n"
        'assert_type(w[0], {"dp": R})\nfor x in data:\n    f(w, x).backward()\n',
    ),
    "before the call of what uses it, also in the loop in which it is made": (
        "for seed in seeds:\n    w = make(seed)\n    fill(w)\n    train(w)\n",
        parameter(TOP, "w['up']", 4, held=Held.USED_WITHIN),
        "for seed in seeds:\n    w = make(seed)\n    fill(w)\n    assert_type(w['up'], {\"dp\": R})\n    train(w)\n",
    ),
    "behind what binds it, where it is used without a loop": (
        "w = make()\nloss = f(w)\nloss.backward()\n",
        parameter(TOP, "w", 3, held=Held.USED_HERE),
        'w = make()\nassert_type(w, {"dp": R})\nloss = f(w)\nloss.backward()\n',
    ),
    "an argument that no module has": (
        "def train(w, data):\n    for x in data:\n        f(w, x).backward()\n",
        parameter(Place("", "train", 1), "w", 3, held=Held.USED_HERE),
        'def train(w, data):\n    assert_type(w, {"dp": R})\n    for x in data:\n        f(w, x).backward()\n',
    ),
    "an input of a loop": (
        "for x, y in loader:\n    model(x)\n",
        given(TOP, "x", 2),
        'for x, y in loader:\n    assert_type(x, {"dp": R})\n    model(x)\n',
    ),
    "an argument, behind the docstring": (
        'def step(batch):\n    """One."""\n    y = batch.y.flatten()\n    return model(batch.x)\n',
        given(Place("", "step", 1), "batch.x", 4),
        'def step(batch):\n    """One."""\n    assert_type(batch.x, {"dp": R})\n    y = batch.y.flatten()\n'
        "    return model(batch.x)\n",
    ),
    "the last assignment before the call, whichever branch it was in": (
        "x = whole()\nif split:\n    x = x.chunk(2)\nmodel(x)\n",
        given(TOP, "x", 4),
        'x = whole()\nif split:\n    x = x.chunk(2)\nassert_type(x, {"dp": R})\nmodel(x)\n',
    ),
    "an input without a name, in the call": (
        "loss = model(data()[0]).mean()\n",
        Annotation(TOP, "", 1, (), R_OVER_DP, is_input=True, call=(1, 7, 1, 23)),
        'loss = model(assert_type(data()[0], {"dp": R})).mean()\n',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_annotation_stands_where_its_tensor_is_reached(case):
    source, annotation, expected = CASES[case]
    edited = with_annotations(source, [annotation])
    assert edited.missed == ()
    assert edited.text == f"from shardwise import R, assert_type\n\n{expected}"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("import shardwise as sw\n", 'import shardwise as sw\nm = f()\nsw.assert_type(m.w, {"dp": sw.R})\n'),
        ("from shardwise import R\n", 'from shardwise import assert_type, R\nm = f()\nassert_type(m.w, {"dp": R})\n'),
        ("R = 8.3\n", 'import shardwise as spmd\n\nR = 8.3\nm = f()\nspmd.assert_type(m.w, {"dp": spmd.R})\n'),
        (
            '"""Trains."""\nfrom __future__ import annotations\n',
            '"""Trains."""\nfrom __future__ import annotations\nfrom shardwise import R, assert_type\n'
            'm = f()\nassert_type(m.w, {"dp": R})\n',
        ),
    ],
)
def test_imports_are_added_once_and_names_of_the_program_are_left_to_it(head, expected):
    annotation = parameter(TOP, "m.w", head.count("\n") + 1)
    edited = with_annotations(f"{head}m = f()\n", [annotation, annotation])
    lines = edited.text.splitlines(keepends=True)
    assert edited.text.replace("\n\n", "\n") == (expected + lines[-1]).replace("\n\n", "\n")


def test_what_has_no_place_is_told_and_changes_nothing():
    source = textwrap.dedent("""\
        def build(): return Linear()
        run(lambda: build())
    """)
    missed = parameter(Place("", "build", 1), "model.weight", 1)
    edited = with_annotations(source, [missed])
    assert edited.text == source
    assert edited.missed == (missed,)


def test_a_process_group_is_not_used_before_it_is_made():
    source = "model = Linear()\nTP = new_group()\nmodel(x)\n"
    early = Annotation(TOP, "model", 1, ("model.weight",), (("TP", "R"),))
    assert with_annotations(source, [early]).missed == (early,)
    assert with_annotations("TP = new_group()\nmodel = Linear()\n", [replace(early, line=2)]).missed == ()


def test_a_place_that_makes_weights_of_several_types_is_left_for_its_callers():
    helper, outer = Place("a.py", "make", 1), Place("a.py", "__init__", 9)
    types = [
        InferredType("parameter", name, (0,), name, (2,), {"tp": place}, {"tp": ""})
        for name, place in (("up", "S(0)"), ("down", "S(1)"))
    ]
    reach = {
        name: (Reach(helper, "made", "made", 2), Reach(outer, f"self.{name}", "self", line))
        for name, line in (("up", 10), ("down", 11))
    }
    plan = plan_annotations(types, [AnnotationSites(parameters=reach, names={"tp": "model"})])
    assert [(one.place, one.expressions, one.type) for one in plan.annotations] == [
        (outer, ("self.up",), (('"model"', "S(0)"),)),
        (outer, ("self.down",), (('"model"', "S(1)"),)),
    ]


def test_what_is_written_already_is_not_written_again():
    reach = Reach(TOP, "model.weight", "model", 1, declared=("dp",))
    types = [InferredType("parameter", "weight", (0,), "weight", (2,), {"dp": "R", "tp": "R or I"}, {})]
    plan = plan_annotations(types, [AnnotationSites(parameters={"weight": (reach,)})])
    assert [one.type for one in plan.annotations] == [(('"tp"', "R"),)]
    assert plan.choices == [("weight", "tp")]
    assert plan.unnamed == ['"tp"']


@pytest.mark.parametrize("made", [{}, {Place("a.py", "__init__", 3): {7, 8}}], ids=["reached", "made"])
def test_what_some_modules_of_a_place_lack_is_no_attribute_there(made):
    """Two stages are made by one ``__init__``, and the last alone has a head."""
    init = Place("a.py", "__init__", 3)

    def sites(*ways):
        return AnnotationSites(
            parameters={
                path: (Reach(init, f"self.{path}", "self", 4, path=path, holder=holder),) for path, holder in ways
            },
            names={"tp": "tp"},
            made=made,
        )

    ranks = [sites(*[("norm.weight", 7)] * (not made)), sites(("norm.weight", 8), ("head.weight", 8), ("head.bias", 8))]
    types = [
        InferredType("parameter", name, having, name, (2,), {"tp": "R"}, {"tp": ""})
        for name, having in (("norm.weight", (0, 1) if not made else (1,)), ("head.weight", (1,)), ("head.bias", (1,)))
    ]
    (one, *others) = plan_annotations(types, ranks).annotations
    assert not others
    assert one.expressions[0].startswith("[p for name, p in self.named_parameters() if name in (")
    assert '"head.weight", "head.bias"' in one.expressions[0]


def test_a_source_that_only_python_reads_gets_no_annotation() -> None:
    source = "def build():\n    if True:\n\t    model = Model()\n"
    compile(source, "a.py", "exec")
    missed = parameter(Place("", "build", 1), "model.weight", 1)
    edited = with_annotations(source, [missed])
    assert (edited.text, edited.missed) == (source, (missed,))
