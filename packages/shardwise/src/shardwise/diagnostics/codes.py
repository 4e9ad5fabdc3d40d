"""The one table of diagnostic codes, one for each offence; `explain/SW###.md` has the page of each.

1xx types of operands, 2xx collectives and coercions, 3xx missing rules and trusted regions, 4xx global placement,
5xx uniformity across ranks, 6xx the training step, 9xx usage. A code is never reused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    ERROR = "error"
    """The program is wrong; the run exits 1."""
    WARNING = "warning"
    """Probably a mistake, possibly meant; printed, does not change the exit code."""
    NOTE = "note"
    """Information that was asked for, or of which a project says that it only wants to be told."""


@dataclass(frozen=True, slots=True)
class Code:
    """An offence: ``name`` in kebab-case, ``summary`` in a sentence.

    ``label``  what is said under the call where it adds to the headline; ``{operand}`` is the name of the one culprit.
    """

    code: str
    name: str
    summary: str
    severity: Severity = Severity.ERROR
    label: str = ""


_TABLE = (
    Code("SW101", "invariant-mixed", "an invariant operand meets replicate, varying or partial ones"),
    Code("SW102", "missing-annotation", "an operand without any type meets typed ones"),
    Code("SW103", "missing-axis", "an operand's type says nothing about a mesh axis that is in play"),
    Code("SW110", "partial-meets-varying", "a pending sum is combined with a varying operand"),
    Code(
        "SW111",
        "product-of-partials",
        "two pending sums are multiplied",
        label="the product of sums is not the sum of products",
    ),
    Code(
        "SW112",
        "partial-sum-in-nonlinear-op",
        "a pending sum enters an operator that is not linear",
        label="non-linear in {operand}",
    ),
    Code(
        "SW113",
        "term-added-per-rank",
        "a term that is not partial is added to a pending sum",
        label="added once per rank",
    ),
    Code("SW114", "partial-in-nonlinear-argument", "a pending sum is a divisor, an index, a mask or a condition"),
    Code(
        "SW115",
        "partial-value-read",
        "Python reads the value of a pending sum",
        label="reads one rank's share of the sum",
    ),
    Code(
        "SW116",
        "varying-value-read",
        "Python branches on a value that differs between ranks",
        Severity.WARNING,
        label="may differ between ranks",
    ),
    Code("SW117", "varying-shape", "ranks hand tensors of different lengths to one collective", Severity.WARNING),
    Code("SW118", "gradient-through-extremum", "a maximum or minimum over ranks would receive a gradient"),
    Code(
        "SW120",
        "in-place-retype",
        "an in-place or out= call would change its destination's type",
        label="would change the type of what it writes to",
    ),
    Code(
        "SW121",
        "unsynchronised-random",
        "a random operator draws different numbers for values that must be equal",
        label="draws different numbers on each rank",
    ),
    Code("SW130", "annotation-conflict", "an annotation contradicts the type that the tensor has"),
    Code("SW131", "shard-conflict", "two shardings of one tensor contradict each other"),
    Code("SW132", "bad-annotation", "an annotation cannot be meant for this tensor"),
    Code("SW133", "incompatible-meshes", "two presentations of the ranks do not describe the same region"),
    Code("SW134", "scalar-conflict", "two typed scalars cannot be combined"),
    Code("SW135", "contraction-not-sharded", "a partial result is asked for where nothing varies"),
    Code("SW140", "boundary-mismatch", "a typed function boundary does not match its declaration"),
    Code("SW150", "scales-differ", "operands are too large by different powers of an axis's size"),
    Code("SW151", "scale-in-nonlinear", "a value that is too large by an axis's size enters what is not homogeneous"),
    Code("SW152", "declared-off-scale", "a value declared equal or sharded is too large or small by an axis's size"),
    Code("SW201", "wrong-source-type", "a collective's operand does not have the declared src type"),
    Code("SW202", "bad-transition", "a collective or coercion cannot go from src to dst"),
    Code("SW203", "expert-mode-needed", "a coercion that is rarely meant in forward code"),
    Code("SW204", "indivisible-dim", "a tensor dim cannot be cut evenly over a mesh axis"),
    Code("SW205", "dim-conflict", "two arguments name different tensor dims"),
    Code("SW206", "bad-size", "a tensor dim must have one entry per rank, or split sizes do not add up"),
    Code("SW207", "collective-on-untyped", "a collective runs over an axis that its operand's type does not mention"),
    Code("SW208", "bad-option", "an option of a collective has an unknown or impossible value"),
    Code("SW209", "low-precision-reduction", "gradients would be summed in a narrow dtype without being asked for"),
    Code("SW210", "unsupported-reduction", "a raw collective whose reduction or form has no typing rule"),
    Code("SW211", "no-process-group", "an axis cannot be resolved to a process group"),
    Code("SW212", "wrong-shard-dim", "a collective's S(i) names another dim than the tensor is sharded on"),
    Code("SW220", "used-before-wait", "a tensor is used while the collective that fills it has not been waited for"),
    Code("SW221", "written-before-wait", "a tensor is written while a collective that was started on it may still run"),
    Code("SW222", "never-waited", "a collective or a message is started and nobody waits for it"),
    Code(
        "SW223",
        "misplaced-piece",
        "pieces are joined along a dim or in an order that is not theirs, or meet pieces in another order",
    ),
    Code("SW301", "no-rule", "an operator that has no op rule"),
    Code("SW302", "unregistered-function", "an autograd function without a typing declaration"),
    Code("SW303", "unregistered-hook", "a module backward hook without a typing declaration"),
    Code("SW304", "bad-rule", "a hand-declared rule is malformed or leaves an argument or output out"),
    Code("SW305", "rule-refused", "a hand-declared rule does not admit these operand types"),
    Code(
        "SW306", "forward-not-as-declared", "the forward of an autograd function does something else than its rule says"
    ),
    Code(
        "SW307",
        "backward-not-partner",
        "the backward of an autograd function is the partner of no forward like its own",
    ),
    Code(
        "SW308",
        "function-misfit",
        "an autograd function is the partner of its backward for operands of other types only",
    ),
    Code(
        "SW309",
        "backward-scaled",
        "the backward of an autograd function is off by the size of its group",
        Severity.WARNING,
    ),
    Code("SW310", "wrong-derivative", "the backward of an autograd function is not the derivative of its forward"),
    Code("SW401", "shardings-disagree", "operands are sharded on different dims over one mesh axis"),
    Code("SW402", "whole-meets-shard", "an operand has the whole of a dim that the others have sharded"),
    Code("SW403", "mean-over-shard", "a mean over a sharded dim sees only this rank's elements"),
    Code("SW404", "extremum-over-shard", "a reduction other than a sum over a sharded dim"),
    Code("SW405", "dim-needed-whole", "an operator needs every element along a dim that is sharded"),
    Code("SW406", "position-over-shard", "an operator counts positions along a sharded dim from 0 on every rank"),
    Code("SW407", "unasked-partial", "a contraction over a sharded dim leaves a pending sum that nobody asked for"),
    Code("SW408", "varying-without-spec", "a varying operand does not say which dim is sharded"),
    Code("SW409", "axis-order-conflict", "mesh axes that shard one dim stand in different orders"),
    Code("SW410", "axis-not-innermost", "a collective over an axis that is not the innermost one sharding its dim"),
    Code("SW411", "no-global-rule", "an operator whose op rule does not say what becomes of sharded dims"),
    Code("SW412", "stack-form-on-global-axis", "a collective that adds or removes a dim over a globally typed axis"),
    Code("SW413", "local-meets-global-axis", "a collective over a flattened axis of which one part has local types"),
    Code("SW417", "uneven-shards", "a call needs shards of one length, and those of its operand may differ"),
    Code("SW418", "whole-size-for-shard", "a view is given the sizes of the whole tensor, and one rank has a shard"),
    Code("SW420", "branches-disagree", "two branches of a cond give results of different types"),
    Code("SW421", "loop-changes-type", "a loop's body gives a carried value another type than it takes"),
    Code("SW422", "collective-after-parting", "a collective stands where some of its ranks may not arrive"),
    Code("SW501", "collective-divergence", "ranks of one group issue different collectives, or some issue none"),
    Code("SW502", "group-divergence", "ranks make different process groups, or make them in different orders"),
    Code("SW503", "rank-missing", "a collective waits for a rank whose part of the program has ended"),
    Code("SW504", "crossed-waits", "ranks wait for each other in calls that they issue in different orders"),
    Code("SW505", "collective-mismatch", "the arguments of one collective do not fit together across ranks"),
    Code("SW506", "unmatched-message", "a send without its receive, or a receive without its send"),
    Code("SW507", "rank-dependent-value", "a value that is equal over an axis by its type is computed differently"),
    Code("SW508", "declared-unequal", "a value is declared equal over an axis, and its values differ between ranks"),
    Code("SW509", "generators-differ", "equal values are drawn from generators whose states differ between ranks"),
    Code(
        "SW601",
        "replicated-loss",
        "backward starts from a replicate loss: the gradient is counted once per rank",
        label="counts the gradient once per rank",
    ),
    Code("SW602", "varying-loss", "backward starts from a varying loss"),
    Code("SW603", "untyped-loss", "backward starts from a loss without a type"),
    Code("SW604", "gradient-accumulation-conflict", "backward adds a pending sum to a gradient that has been summed"),
    Code("SW605", "gradient-sum-not-owed", "a gradient is summed over an axis along which no sum is pending"),
    Code("SW606", "gradient-not-dual", "a gradient given to autograd does not have the dual of its tensor's type"),
    Code("SW607", "backward-not-as-declared", "the backward of an autograd function contradicts its declaration"),
    Code("SW608", "gradient-not-summed", "a gradient enters the optimizer while its sum over a mesh axis is pending"),
    Code("SW609", "local-gradient-norm", "gradients are scaled by a norm of one rank's pieces"),
    Code("SW610", "gradient-not-summed-in-norm", "a norm is taken of gradients whose sum over a mesh axis is pending"),
    Code("SW611", "sum-owed-by-nobody", "a step ends with a pending sum that its contract gives to others, or to none"),
    Code("SW612", "sum-owed-twice", "two owners sum one gradient over a mesh axis, or one sums what is not pending"),
    Code("SW613", "undeclared-parameter", "nothing says whether a parameter is equal or split along a mesh axis"),
    Code("SW614", "misplaced-gradient", "a gradient enters the optimizer with the elements of another place"),
    Code("SW615", "unseen-gradient", "a gradient enters the optimizer and nobody has seen how it came about"),
    Code("SW616", "gradient-off-scale", "a gradient enters the optimizer too large or too small by an axis's size"),
    Code(
        "SW617",
        "setting-varies",
        "a setting of an optimizer, as its learning rate, differs between ranks on which its parameters are equal",
    ),
    Code(
        "SW620", "repeated-random", "ranks draw the same random numbers for pieces that should differ", Severity.WARNING
    ),
    Code("SW630", "tangent-not-alike", "a tangent given to forward-mode autograd does not have its tensor's type"),
    Code("SW901", "axes-not-orthogonal", "mesh axes overlap: they share ranks along more than one point"),
    Code("SW902", "unknown-axis", "no mesh axis has this name"),
    Code("SW903", "bad-mesh", "a mesh cannot be built from these arguments"),
    Code("SW904", "no-current-mesh", "a name or bare type needs a current mesh"),
    Code("SW905", "bad-argument", "an argument is of the wrong kind or value"),
    Code("SW910", "script-error", "the program under check raised an exception"),
    Code("SW911", "nothing-checked", "the program under check never ran a typed operation"),
    Code("SW912", "interrupted", "the run was interrupted"),
    Code(
        "SW920",
        "unneeded-ignore",
        "an ignore comment on a line that ran without the finding it names",
        Severity.WARNING,
        label="nothing is held back by it",
    ),
    Code(
        "SW921", "bad-ignore", "an ignore comment that names no known code, or stands on no statement", Severity.WARNING
    ),
    Code("SW922", "revealed-type", "the type that reveal_type was asked for", Severity.NOTE),
)

CODES: dict[str, Code] = {code.code: code for code in _TABLE}
