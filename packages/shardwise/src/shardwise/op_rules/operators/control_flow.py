"""What do operators do that run functions of the program? Types follow from the functions, and from what decides.

The checker runs each function once on tensors without data. These rules say how the results meet: whichever branch is
taken and however often a loop runs, there is one type, so results of different functions join as the operands of
``where`` do, with the predicate as its condition.
"""

from __future__ import annotations

from ..propagation.dim_labels import pointwise
from ..schema import Kind, OpRule

RULES = (
    OpRule(
        "cond",
        "pred true_fn false_fn",
        "true_fn + false_fn",
        law="one of two results, as with where: both branches give one type, and a predicate that varies makes it vary",
        source="torch.cond",
        kind=Kind.CONTROL,
        labels=pointwise,
    ),
    OpRule(
        "while_loop",
        "cond_fn carried_inputs body_fn",
        "carried_inputs + body_fn",
        law="a fixpoint: the body gives each carried value the type that it takes it with, as if it ran any number of "
        "times; a condition that varies makes the results vary",
        source="torch.while_loop",
        kind=Kind.CONTROL,
        labels=pointwise,
    ),
    OpRule(
        "scan",
        "init ~xs combine_fn",
        "init + combine_fn",
        law="a fixpoint over the slices of xs in order: the scanned dim is not sharded, the carry keeps its type, the "
        "outputs are stacked along a dim that is not sharded",
        source="torch._higher_order_ops.scan",
        kind=Kind.CONTROL,
        labels=pointwise,
    ),
    OpRule(
        "associative_scan",
        "xs combine_fn",
        "xs + combine_fn",
        law="a scan whose carry is the first slice: combining two slices gives the type of a slice",
        source="torch._higher_order_ops.associative_scan",
        kind=Kind.CONTROL,
        labels=pointwise,
    ),
    OpRule(
        "map",
        "xs args",
        law="the function of each slice along dim 0, one by one: that dim may be sharded and stays so, the other "
        "operands are whole along those axes",
        source="torch._higher_order_ops.map",
        kind=Kind.CONTROL,
        spellings=("map_impl",),
    ),
)
