"""Which backward kernels do programs call by name? Each is linear in the gradient: that is what a backward pass is."""

from __future__ import annotations

from ..schema import Row


def _backward(op: str, params: str) -> Row:
    law = "a backward pass is linear in the gradient that arrives"
    return Row(op, params, "grad_output", law=law, source=f"torch.ops.aten.{op}")


ROWS = (
    _backward("_softmax_backward_data", "grad_output output dim input_dtype"),
    _backward("_log_softmax_backward_data", "grad_output output dim input_dtype"),
    _backward("native_dropout_backward", "grad_output mask scale"),
)
