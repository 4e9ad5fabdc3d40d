"""Element by element: operands are broadcast against each other and every dim is kept."""

from __future__ import annotations

from .. import casting, elementwise
from ..labels import Labeller, pointwise

_OTHERS = "dropout clone detach"

LABELS: dict[str, Labeller] = {
    **{row.op: pointwise for module in (elementwise, casting) for row in module.ROWS},
    **dict.fromkeys(_OTHERS.split(), pointwise),
}
