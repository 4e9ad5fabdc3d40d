"""Are kernels kept from arguments that would crash them, and are the others let through?"""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.torch_compat import op_database
from shardwise_devtools.sweep.apart import GivenUp, run_apart
from shardwise_devtools.sweep.preconditions import check_arguments
from shardwise_devtools.sweep.samples import cases_of, full_name

X = torch.ones(2, 3, 4)
LU, PIVOTS = torch.linalg.lu_factor(torch.eye(3) + torch.ones(3, 3))
LD, BLOCKS = torch.linalg.ldl_factor(torch.eye(3) + torch.ones(3, 3))


@pytest.mark.parametrize(
    ("op", "arguments", "words"),
    [
        ("native_batch_norm", (X, torch.ones(2), None, None, None, True, 0.1, 1e-5), "for 3 features"),
        ("_native_batch_norm_legit", (X[0, 0], torch.ones(3), None, True, 0.1, 1e-5), "for 0 features"),
        ("_batch_norm_with_update", (X, None, None, torch.ones(3), torch.ones(4), 0.1, 1e-5), "for 3 features"),
        ("lu_unpack", (LU, PIVOTS[:2]), "pivots of shape"),
        ("lu_unpack", (LU[:2], PIVOTS[:2] + 2), "outside of the 2 rows"),
        ("lu_unpack", (LU, PIVOTS - PIVOTS), "outside of the 3 rows"),
        ("linalg.ldl_solve", (LD[:2], BLOCKS, X[0]), "pivots of shape"),
        ("linalg.ldl_solve", (LD, BLOCKS, torch.ones(2, 2)), "a right-hand side of shape"),
        ("linalg.ldl_solve", (LD[None], BLOCKS[None], torch.ones(2, 3, 2)), "a right-hand side of shape"),
        ("linalg.ldl_solve", (LD, BLOCKS + 3, torch.ones(3, 2)), "outside of the 3 rows"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_kernel_runs(op, arguments, words):
    with pytest.raises(ValueError, match=words):
        check_arguments(op, arguments)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    "name",
    ["native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "lu_unpack", "linalg.ldl_solve"],
)
def test_the_samples_of_the_database_fit(name):
    op = next(op for op in op_database() if full_name(op) == name)
    cases = list(cases_of(op))
    assert len(cases) > 4
    for case in cases:
        case.fn(*[value.clone() for value in case.values])


@pytest.mark.processes
def test_a_kernel_that_trusts_its_arguments_does_crash_without_the_check():
    def solve(batches: int) -> str:
        return str(torch.linalg.ldl_solve(LD[None], BLOCKS[None], torch.ones(batches, 3, 2)))

    assert list(run_apart(solve, [10**6], jobs=1, timeout_s=60)) == [GivenUp("crashes the process")]


def test_other_operators_and_tensors_of_other_classes_are_let_through():
    check_arguments("mm", (X, X))
    check_arguments("lu_unpack", (torch.nn.Parameter(LU), PIVOTS[:1]))
