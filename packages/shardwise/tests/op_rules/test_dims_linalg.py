"""Matrices in batches and transforms, in global mode: what the rules say is what the numbers say, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from .agreement import assert_agreement, randn

L = torch.linalg
Tensors = Sequence[torch.Tensor]


def square(*batch: int, n: int = 2) -> torch.Tensor:
    """Positive definite matrices, far from singular."""
    (a,) = randn((*batch, n, n))
    return a @ a.mT + n * torch.eye(n, dtype=a.dtype)


def positive(a: torch.Tensor) -> torch.Tensor:
    """A well-behaved matrix for any one, so that other values of the same shape serve too."""
    return a @ a.mT + 2 * torch.eye(a.shape[-1], dtype=a.dtype)


def factors(a: torch.Tensor) -> torch.Tensor:
    return L.cholesky(positive(a))


FACTORISATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "inverse": torch.inverse,
    "linalg.inv": L.inv,
    "linalg.inv_ex": L.inv_ex,
    "pinverse": torch.pinverse,
    "linalg.pinv": L.pinv,
    "det": torch.det,
    "logdet": lambda a: torch.logdet(positive(a)),
    "slogdet": torch.slogdet,
    "linalg.slogdet": L.slogdet,
    "linalg.det": L.det,
    "cholesky": lambda a: torch.cholesky(positive(a)),
    "linalg.cholesky": lambda a: L.cholesky(positive(a)),
    "linalg.cholesky_ex": lambda a: L.cholesky_ex(positive(a)),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(factors(a)),
    "qr": torch.qr,
    "linalg.qr": L.qr,
    "linalg.qr r": lambda a: L.qr(a, "r"),
    "svd": torch.svd,
    "linalg.svd": lambda a: L.svd(a, full_matrices=False),
    "linalg.svdvals": L.svdvals,
    "linalg.eig": lambda a: L.eig(a.detach()),
    "linalg.eigh": lambda a: L.eigh(positive(a)),
    "linalg.eigvals": L.eigvals,
    "linalg.eigvalsh": L.eigvalsh,
    "lu": torch.lu,
    "lu with infos": lambda a: torch.lu(a, get_infos=True),
    "linalg.lu": L.lu,
    "linalg.lu_factor": L.lu_factor,
    "linalg.lu_factor_ex": L.lu_factor_ex,
    "lu_unpack": lambda a: torch.lu_unpack(*L.lu_factor(a)),
    "lu_unpack data": lambda a: torch.lu_unpack(*L.lu_factor(a), unpack_pivots=False),
    "linalg.ldl_factor": lambda a: L.ldl_factor(positive(a).detach()),
    "linalg.ldl_factor_ex": lambda a: L.ldl_factor_ex(positive(a).detach()),
    "geqrf": lambda a: torch.geqrf(a.detach()),
    "orgqr": lambda a: torch.orgqr(*torch.geqrf(a.detach())),
    "linalg.householder_product": lambda a: L.householder_product(a, a.sum(-1)),
    "ormqr": lambda a: torch.ormqr(a.detach(), a.sum(-1).detach(), a),
    "matrix_exp": torch.matrix_exp,
    "linalg.matrix_exp": L.matrix_exp,
    "matrix_power": lambda a: torch.matrix_power(a, 3),
    "linalg.matrix_power": lambda a: L.matrix_power(a, -1),
    "linalg.cond": L.cond,
    "linalg.cond fro": lambda a: L.cond(a, "fro"),
    "linalg.matrix_rank": L.matrix_rank,
    "linalg.matrix_norm": L.matrix_norm,
    "linalg.matrix_norm nuc": lambda a: L.matrix_norm(a, "nuc", keepdim=True),
    "linalg.norm matrix": lambda a: L.norm(a, dim=(1, 2)),
    "linalg.norm vectors": lambda a: L.norm(a, 3, 1, keepdim=True),
    "linalg.norm sum": lambda a: L.norm(a, 1, 1),
    "linalg.norm max": lambda a: L.norm(a, float("inf"), 1),
    "linalg.vander": lambda a: L.vander(a, N=3),
    "linalg.vander of as many powers": L.vander,
}
if hasattr(L, "polar"):  # exceptions.NEWER
    FACTORISATIONS |= {"linalg.polar": L.polar, "linalg.matrix_sqrth": lambda a: L.matrix_sqrth(positive(a))}

SOLVERS: dict[str, tuple[Callable[..., Any], Tensors]] = {
    "linalg.solve": (L.solve, [square(4), *randn((4, 2, 5))]),
    "linalg.solve vectors": (L.solve, [square(4), *randn((4, 2))]),
    "linalg.solve one": (L.solve, [square(), *randn((2, 5))]),
    "linalg.solve rows": (lambda a, b: L.solve(a, b, left=False), [square(4), *randn((4, 5, 2))]),
    "linalg.solve broadcast": (L.solve, [square(1), *randn((4, 2, 5))]),
    "linalg.solve_ex": (L.solve_ex, [square(4), *randn((4, 2, 5))]),
    "linalg.solve_triangular": (lambda a, b: L.solve_triangular(a, b, upper=False), [square(4), *randn((4, 2, 5))]),
    "linalg.solve_triangular rows": (
        lambda a, b: L.solve_triangular(a, b, upper=True, left=False),
        [square(4), *randn((4, 5, 2))],
    ),
    "triangular_solve": (lambda b, a: torch.triangular_solve(b, a), [*randn((4, 2, 5)), square(4)]),
    "cholesky_solve": (torch.cholesky_solve, [*randn((4, 2, 5)), square(4)]),
    "lu_solve": (lambda b, a: torch.lu_solve(b, a, pivots(a)), [*randn((4, 2, 5)), square(4)]),
    "linalg.lu_solve": (lambda a, b: L.lu_solve(a, pivots(a), b), [square(4), *randn((4, 2, 5))]),
    "linalg.lu_solve rows": (lambda a, b: L.lu_solve(a, pivots(a), b, left=False), [square(4), *randn((4, 5, 2))]),
    "linalg.ldl_solve": (lambda a, b: L.ldl_solve(a.detach(), pivots(a), b), [square(4), *randn((4, 2, 5))]),
    "linalg.lstsq": (lambda a, b: L.lstsq(a, b).solution, [square(4), *randn((4, 2, 5))]),
    "linalg.lstsq with all results": (lambda a, b: L.lstsq(a, b, driver="gelsd"), [square(4), *randn((4, 2, 5))]),
    "linalg.lstsq with residuals": (lambda a, b: L.lstsq(a, b, driver="gelsd"), randn((4, 5, 2), (4, 5, 4))),
    "linalg.lstsq of one": (lambda a, b: L.lstsq(a, b, driver="gels"), [square(), *randn((2, 5))]),
    "linalg.tensorsolve": (L.tensorsolve, [square(n=4).reshape(2, 2, 4), *randn((2, 2))]),
    "linalg.tensorinv": (lambda a: L.tensorinv(a, ind=1), [square(n=4).reshape(4, 2, 2)]),
}
OPAQUE = {"linalg.tensorsolve", "linalg.tensorinv"}

TRANSFORMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "fft": (torch.fft.fft, (4, 5)),
    "fft first": (lambda x: torch.fft.fft(x, 7, 0), (4, 5)),
    "ifft": (torch.fft.ifft, (4, 5)),
    "rfft": (torch.fft.rfft, (4, 5)),
    "irfft": (torch.fft.irfft, (4, 5)),
    "hfft": (torch.fft.hfft, (4, 5)),
    "ihfft": (torch.fft.ihfft, (4, 5)),
    "fft2": (torch.fft.fft2, (4, 2, 5)),
    "rfft2": (lambda x: torch.fft.rfft2(x, dim=(0, 1)), (4, 2, 5)),
    "irfft2": (torch.fft.irfft2, (4, 2, 5)),
    "fftn": (lambda x: torch.fft.fftn(x, dim=(1,)), (4, 2, 5)),
    "ifftn": (lambda x: torch.fft.ifftn(x, s=(4,)), (4, 5)),
    "rfftn": (lambda x: torch.fft.rfftn(x, (2, 4)), (4, 2, 5)),
    "irfftn": (lambda x: torch.fft.irfftn(x, dim=-1), (4, 5)),
    "hfft2": (torch.fft.hfft2, (4, 2, 5)),
    "ihfftn": (lambda x: torch.fft.ihfftn(x, dim=-1), (4, 5)),
    "fftshift": (lambda x: torch.fft.fftshift(x, 1), (4, 5)),
    "ifftshift": (lambda x: torch.fft.ifftshift(x, dim=(0,)), (4, 5)),
    "stft": (lambda x: torch.stft(x, 4, window=window(), return_complex=True), (2, 16)),
    "stft pairs": (lambda x: torch.stft(x, 4, window=window(), return_complex=False), (2, 16)),
    "istft": (lambda x: torch.istft(torch.complex(x, x), 4, window=window()), (2, 3, 5)),
}


def pivots(a: torch.Tensor) -> torch.Tensor:
    """Rows in their order, made from the operand so that they lie where it does."""
    return (a.detach().sum(-1) * 0).int() + torch.arange(1, a.shape[-1] + 1, dtype=torch.int32)


def window() -> torch.Tensor:
    return torch.hann_window(4, dtype=torch.float64)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_a_matrix_is_taken_as_a_whole_and_the_batch_is_kept(name: str) -> None:
    if name in ("cholesky", "qr") and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14):
        pytest.skip(f"torch 2.14 has removed torch.{name}, which earlier ones replace by torch.linalg.{name}")
    assert_agreement(FACTORISATIONS[name], [square(4)])


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SOLVERS)
def test_columns_of_a_right_hand_side_are_free(name: str) -> None:
    fn, tensors = SOLVERS[name]
    assert_agreement(fn, tensors, at_least=1 if name in OPAQUE else 3)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_mixes_its_own_dims_only(name: str) -> None:
    fn, shape = TRANSFORMS[name]
    assert_agreement(fn, randn(shape))
