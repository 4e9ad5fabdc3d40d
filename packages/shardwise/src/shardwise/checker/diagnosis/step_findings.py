"""What is said of the gradients and settings that a step takes, per code: SW608, SW609, SW614 to SW617. They go
by the names of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.autograd.parameter_names import listed
from shardwise.interop.calls.located_call import axis_text
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.notation import times_off
from shardwise.types.tensor_type import Power


def gradient_not_summed(
    op: str, names: Sequence[str], axis: MeshAxis, ways: Sequence[str], *, pending: bool, facts: Sequence[str] = ()
) -> Diagnosis:
    """SW608. ``pending``: the gradients are addends; otherwise they vary, though the parameters do not.

    ``ways``   the sums that mend it; ``facts``: of which elements that is so, where it is not of all.
    """
    where, size, one = axis_text(axis), axis.size(), len(names) == 1
    what = f"the gradient of {names[0]}, which" if one else f"the gradients of {listed(names)}, which"
    state = f"{'is' if one else 'are'} not summed over" if pending else f"{'differs' if one else 'differ'} over"
    fact = f"each of the {size} ranks steps with its own addend, and what should be equal there drifts apart"
    if not pending:
        fact = f"each of the {size} ranks steps with a gradient of its own, and what should be equal drifts apart"
    return Diagnosis(
        "SW608",
        f"{op} takes {what} {state} {where}",
        (fact, *facts),
        tuple(ways),
    )


def gradient_kept_back(op: str, names: Sequence[str], axis: MeshAxis, method: str) -> Diagnosis:
    """SW608 of parameters for which ``fully_shard`` has gradients that it was told by ``method`` not to sum."""
    one = len(names) == 1
    return Diagnosis(
        "SW608",
        f"{op} sees no gradient of {listed(names)}: fully_shard owes {'its' if one else 'their'} sum over "
        f"{axis_text(axis)} and was told not to synchronise",
        (f"the addends of {axis.size()} ranks wait in fully_shard, and the step changes nothing",),
        (f"model.{method}(True) before the backward of the last micro-batch",),
    )


def setting_differs(op: str, setting: str, names: Sequence[str], axis: MeshAxis) -> Diagnosis:
    """SW617 of a learning rate or another setting that ranks have differently, as the norm to which they clip."""
    where = axis_text(axis)
    return Diagnosis(
        "SW617",
        f"{op} takes another {setting} on each rank of {where}, and {listed(names)} "
        f"{'is' if len(names) == 1 else 'are'} equal there",
        (f"each of the {axis.size()} ranks takes another step, and what should be equal drifts apart",),
        (f"compute {setting} from what all ranks of {where} have alike, and not from what a rank has for itself",),
    )


def gradient_unseen(op: str, names: Sequence[str]) -> Diagnosis:
    """SW615."""
    one = len(names) == 1
    return Diagnosis(
        "SW615",
        f"{op} takes the gradient{'' if one else 's'} of {listed(names)}, of which nothing is known",
        (f"{'it was' if one else 'they were'} made where nothing is checked, or assigned without a type",),
        (
            "run backward inside the checked block",
            "assert_type(p.grad, ...) where it is assigned, with the type that it has",
        ),
    )


def gradient_misplaced(op: str, name: str, range: str, found: str) -> Diagnosis:
    """SW614: elements of the gradient called ``name`` are those that ``found`` says."""
    return Diagnosis(
        "SW614",
        f"{op} takes the gradient of {name}, of which {range} are {found}",
        ("what was copied out of a bucket is not what was copied into it: the offsets differ, or the order",),
        (f"copy {name}.grad out of the place in the bucket that it was copied into",),
    )


def gradient_off_scale(op: str, names: Sequence[str], axis: MeshAxis, exponent: Power) -> Diagnosis:
    """SW616, of gradients whose scale has this exponent."""
    where, size, what = axis_text(axis), axis.size(), listed(names)
    noun, verb = ("gradient", "is") if len(names) == 1 else ("gradients", "are")
    if exponent < 0:
        fact = (
            f"a division by {size}, or an average over {size} ranks, is right where the loss is {size} times too large"
        )
        ways = (
            f"leave out one division by the size of {where}, or sum the gradients where they are averaged",
            f"a loss that is a mean over each rank's own samples, if a wrapper averages over {axis_argument(axis)}",
        )
    else:
        fact = (
            f"the mean of each rank's own samples is {size} times its part of the mean of all: nothing averages over "
            f"{where}, or the loss is multiplied besides"
        )
        ways = (
            f"divide the loss, or the summed gradients, by mesh.size({axis_argument(axis)})",
            f"or average them over {axis_argument(axis)}: op=dist.ReduceOp.AVG, DistributedDataParallel, fully_shard",
        )
    return Diagnosis(
        "SW616",
        f"{op} takes the {noun} of {what}, which {verb} {times_off(size, exponent)} times too "
        f"{'large' if exponent > 0 else 'small'} over {where}",
        (fact,),
        ways,
    )


def local_gradient_norm(name: str, axis: MeshAxis) -> Diagnosis:
    where = axis_text(axis)
    return Diagnosis(
        "SW609",
        f"the gradient of {name} is scaled by a norm that differs between the ranks of {where}",
        (f"a norm of gradients that are split over {where} is that of one piece in {axis.size()}",),
        (
            "shardwise.train.clip_grad_norm_(parameters, max_norm), which counts every piece once",
            f"all_reduce of the squared norms of the split gradients over {axis_argument(axis)} before the root",
        ),
    )
