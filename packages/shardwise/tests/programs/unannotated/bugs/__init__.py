"""One-change bugs in the right programs of this folder, by style: the program, the old text, the new text, what it is,
and the tensor or line at which it has to be found. None of them changes what the program computes on one rank.
"""

from . import (
    by_hand,
    compiled,
    data_parallel,
    dtensors,
    experts,
    long_context,
    objectives,
    optimizers,
    pipelines,
    recipes,
    sharded_states,
    tensor_parallel,
)

_FAMILIES = (
    by_hand,
    compiled,
    data_parallel,
    dtensors,
    experts,
    long_context,
    objectives,
    optimizers,
    pipelines,
    recipes,
    sharded_states,
    tensor_parallel,
)
BUGS = [bug for family in _FAMILIES for bug in family.BUGS]
