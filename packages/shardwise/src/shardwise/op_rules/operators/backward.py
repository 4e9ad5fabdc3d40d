"""Which backward kernels do programs call by name? Each is linear in the gradient: that is what a backward pass is."""

from __future__ import annotations

from ..schema import OpRule


def _backward(op: str, params: str) -> OpRule:
    law = "a backward pass is linear in the gradient that arrives"
    return OpRule(op, params, "grad_output", law=law, source=f"torch.ops.aten.{op}")


RULES = (
    _backward("_softmax_backward_data", "grad_output output dim input_dtype"),
    _backward("_log_softmax_backward_data", "grad_output output dim input_dtype"),
    _backward("native_dropout_backward", "grad_output mask scale"),
)
