"""The einsum calculus: results and gradients per axis, and that the gradient is always the dual."""

from __future__ import annotations

import itertools

import pytest
import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.op_rules.propagation.einsum_calculus import Einsum, EinsumVerdict, Placing
from shardwise.types.placement import I, P, R, V


def placing(text: str) -> Placing:
    """``s`` is S(s); R, I and P are themselves."""
    return {"R": Placing(R), "I": Placing(I), "P": Placing(P)}.get(text) or Placing(V, text)


def judge(equation: str, *placements: str) -> EinsumVerdict:
    return Einsum(equation).judge("tp", [placing(text) for text in placements])


@pytest.mark.parametrize(
    ("equation", "placements", "result"),
    [
        ("sbi,io->sbo", "s R", "S(s)"),
        ("sbi,io->sbo", "R o", "S(o)"),
        ("sbi,io->sbo", "i i", "P"),
        ("sbi,io->sbo", "P R", "P"),
        ("sbi,io->sbo", "I I", "I"),
        ("sbi,io->sbo", "R R", "R"),
        ("bhqd,bhkd->bhqk", "h h", "S(h)"),
        ("bhqd,bhkd->bhqk", "q R", "S(q)"),
        ("bhqd,bhkd->bhqk", "d d", "P"),
        ("ij->", "j", "P"),
        (",i->i", "R i", "S(i)"),
        (",i->i", "P i", "SW110"),
        (",i->i", "I i", "SW101"),
        ("ij->ji", "i", "S(i)"),
        ("ij,jk,kl->il", "R j R", "SW402"),
        ("ij,jk,kl->il", "j j R", "P"),
        ("sbi,io->sbo", "i R", "SW402"),
        ("sbi,io->sbo", "s o", "SW401"),
        ("sbi,io->sbo", "P P", "SW111"),
        ("sbi,io->sbo", "P o", "SW110"),
        ("sbi,io->sbo", "I o", "SW101"),
    ],
)
def test_forward(equation: str, placements: str, result: str) -> None:
    verdict = judge(equation, *placements.split())
    if result.startswith("SW"):
        assert verdict.code == result
        assert verdict.refused
    else:
        assert verdict.code == ""
        assert str(verdict.forward[-1].placing) == result


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "bij,bjk->bik", "ij,jk->ijk", "i,i->", ",i->i", "i,,ij->j", "ab,bc,cd->ad"]
)
def test_every_legal_sharding_is_right_on_two_ranks_forward_and_backward(equation: str) -> None:
    product = Einsum(equation)
    terms = ["".join(term) for term in product.operands]
    generator = torch.Generator().manual_seed(0)
    legal = 0
    for chosen in itertools.product(*(["R", "P", *term] for term in terms)):
        verdict = product.judge("tp", [placing(text) for text in chosen])
        if verdict.refused:
            continue
        legal += 1
        whole = [torch.randn([2] * len(term), generator=generator, dtype=torch.float64) for term in terms]
        parts = [split(x, term, text) for x, term, text in zip(whole, terms, chosen, strict=True)]
        locals_ = [[part[rank].clone().requires_grad_() for part in parts] for rank in range(2)]
        results = [torch.einsum(equation, *operands) for operands in locals_]
        out = "".join(product.result)
        made = str(verdict.forward[-1].placing)
        assert torch.allclose(join(results, out, made), torch.einsum(equation, *whole)), chosen

        seed = torch.randn([2] * len(out), generator=generator, dtype=torch.float64)
        wanted = torch.autograd.grad(torch.einsum(equation, *(x.requires_grad_() for x in whole)), whole, seed)
        seeds = split(seed, out, str(verdict.backward[0].placing))
        gradients = [torch.autograd.grad(results[rank], locals_[rank], seeds[rank]) for rank in range(2)]
        for at, term in enumerate(terms):
            dual = str(verdict.backward[1 + at].placing)
            got = join([gradients[rank][at] for rank in range(2)], term, dual)
            assert torch.allclose(got, wanted[at]), (chosen, at)
    assert legal > len(terms)


def split(x: torch.Tensor, labels: str, text: str) -> list[torch.Tensor]:
    text = text.removeprefix("S(").removesuffix(")")
    if text == "R":
        return [x, x]
    if text == "P":
        return [x * 0.25, x * 0.75]
    return list(x.chunk(2, labels.index(text)))


def join(parts: list[torch.Tensor], labels: str, text: str) -> torch.Tensor:
    if text == "R":
        assert torch.equal(*parts)
        return parts[0]
    if text == "P":
        return parts[0] + parts[1]
    return torch.cat(parts, labels.index(text[2]))


@pytest.mark.parametrize("equation", ["ij,jk->il", "ii->i", "i..,j->ij", "", "i1,1->i"])
def test_an_equation_that_is_none_is_refused(equation: str) -> None:
    with pytest.raises(SpmdValueError, match=r"einsum equation|repeats a label|on no operand|not a label|has letters"):
        Einsum(equation)
