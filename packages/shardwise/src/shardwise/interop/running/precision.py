"""In which precision does a device multiply numbers of float32? As the program has set it, or as the device does."""

from __future__ import annotations

import torch

CONVOLUTIONS = frozenset(
    {
        *(torch.conv1d, torch.conv2d, torch.conv3d),
        *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    }
)
_TF32 = "tf32"


def rounds_products(*, convolutions: bool) -> bool:
    """Whether a CUDA device rounds factors of float32 to TF32, which keeps 10 bits.

    ``convolutions``  the program calls them: they are rounded unless it has forbidden it, other products only if it
                      has asked for it. Without CUDA that default says nothing.
    """
    if torch.backends.cuda.matmul.fp32_precision == _TF32:
        return True
    return convolutions and torch.version.cuda is not None and torch.backends.cudnn.conv.fp32_precision == _TF32  # type: ignore[attr-defined]
