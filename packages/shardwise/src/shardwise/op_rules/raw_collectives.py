"""The functions of ``torch.distributed`` and the functional collectives: what each takes and gives, and its reductions.

``pieces`` names the row of ``transitions`` that a call is for the pieces of a sharded tensor.
Source: docs/semantics.md sections 5 and 9; functions as documented by torch.distributed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reducer:
    """One ``ReduceOp``.

    ``admits``  the placements that what it reduces may have, as they are printed.
    ``divides`` the result is divided by the number of ranks.
    ``known``   what it makes of a sum's scale is known.
    """

    name: str
    admits: tuple[str, ...]
    law: str
    divides: bool = False
    known: bool = True


# Of equal values a sum, a product and an exclusive or are another value: only what is idempotent takes R and I.
# fmt: off
REDUCERS: dict[str, Reducer] = {one.name: one for one in (
    Reducer("sum", ("P", "V"), "the sum of the addends"),
    Reducer("avg", ("P", "V", "R", "I"), "the sum of the addends, divided by their number", divides=True),
    Reducer("premul_sum", ("P", "V"), "the sum of the addends, times a factor", known=False),
    Reducer("max", ("P(max)", "V", "R", "I"), "the largest of all"),
    Reducer("min", ("P(min)", "V", "R", "I"), "the smallest of all"),
    Reducer("product", ("V",), "the product of all"),
    Reducer("band", ("V", "R", "I"), "the bits that all have"),
    Reducer("bor", ("V", "R", "I"), "the bits that any has"),
    Reducer("bxor", ("V",), "the bits that an odd number has"),
)}
# fmt: on


@dataclass(frozen=True, slots=True)
class RawCollective:
    """One function of ``torch.distributed``, or one functional collective, which returns its result (``functional``).

    ``params``    its positional parameters in order.
    ``sent``      the parameter whose tensor is sent; ``received`` the one that receives: the same one for in-place
                  collectives, none for functional ones.
    ``admits``    the placements that the sent tensor may have, if it is not for the reduction to say (``reduces``);
                  ``gives`` is what the result is afterwards.
    ``pieces``    the op above that does the same to the pieces of a sharded tensor, along dim 0; empty if they are
                  handed on one by one, which no partition spec could tell.
    """

    name: str
    params: str
    sent: str
    received: str
    admits: str
    gives: str
    law: str
    pieces: str = ""
    functional: bool = False
    reduces: bool = False

    def admitted(self, reducer: Reducer | None) -> tuple[str, ...]:
        """The placements that may be sent; ``reducer`` is the call's reduction."""
        return reducer.admits if self.reduces and reducer is not None else tuple(self.admits)


_ONE_RANKS = ("VRI", "R", "one rank's value, on every rank", "all_reduce")
_GATHERED = ("VRI", "R", "all pieces, on every rank", "all_gather")
_EXCHANGED = ("VRI", "V", "pieces exchanged", "all_to_all")


def _reduces(
    name: str, params: str, sent: str, received: str, gives: str, *, functional: bool = False
) -> RawCollective:
    """A collective that reduces: everywhere, to pieces, or to one rank."""
    law, pieces = {
        "R": ("the reduction of all, on every rank", "all_reduce"),
        "V": ("a piece of the reduction", "reduce_scatter"),
        "one": ("only one rank has the reduction", "all_reduce"),
    }[gives]
    pieces = "" if sent == "input_list" else pieces
    place = "V" if gives == "one" else gives
    return RawCollective(name, params, sent, received, "", place, law, pieces, functional, reduces=True)


# fmt: off
RAW: dict[str, RawCollective] = {row.name: row for row in (
    _reduces("all_reduce", "tensor op group", "tensor", "tensor", "R"),
    _reduces("all_reduce_coalesced", "tensors op group", "tensors", "tensors", "R"),
    RawCollective("all_gather", "tensor_list tensor group", "tensor", "tensor_list", *_GATHERED[:3]),
    RawCollective("all_gather_into_tensor", "output_tensor input_tensor group", "input_tensor", "output_tensor",
                  *_GATHERED),
    RawCollective("all_gather_single", "output_tensor input_tensor group", "input_tensor", "output_tensor", *_GATHERED),
    RawCollective("all_gather_coalesced", "output_tensor_lists input_tensor_list group", "input_tensor_list",
                  "output_tensor_lists", *_GATHERED[:3]),
    _reduces("reduce_scatter", "output input_list op group", "input_list", "output", "V"),
    _reduces("reduce_scatter_tensor", "output input op group", "input", "output", "V"),
    _reduces("reduce_scatter_single", "output input op group", "input", "output", "V"),
    RawCollective("all_to_all", "output_tensor_list input_tensor_list group", "input_tensor_list", "output_tensor_list",
                  *_EXCHANGED[:3]),
    RawCollective("all_to_all_single", "output input output_split_sizes input_split_sizes group", "input", "output",
                  *_EXCHANGED),
    RawCollective("broadcast", "tensor src group", "tensor", "tensor", *_ONE_RANKS),
    _reduces("reduce", "tensor dst op group", "tensor", "tensor", "one"),
    RawCollective("gather", "tensor gather_list dst group", "tensor", "gather_list", "VRI", "V",
                  "one rank has the pieces"),
    RawCollective("scatter", "tensor scatter_list src group", "scatter_list", "tensor", "VRI", "V", "one piece each"),
    RawCollective("send", "tensor dst group", "tensor", "", "VRI", "", "nothing is received here"),
    RawCollective("isend", "tensor dst group", "tensor", "", "VRI", "", "nothing is received here"),
    RawCollective("recv", "tensor src group", "", "tensor", "", "V", "what one other rank sent"),
    RawCollective("irecv", "tensor src group", "", "tensor", "", "V", "what one other rank sent"),
)}

FUNCTIONAL: dict[str, RawCollective] = {row.name: row for row in (
    _reduces("all_reduce", "input op group", "input", "", "R", functional=True),
    _reduces("all_reduce_", "input op group", "input", "input", "R"),
    _reduces("all_reduce_coalesced", "inputs op group", "inputs", "", "R", functional=True),
    _reduces("all_reduce_coalesced_", "inputs op group", "inputs", "inputs", "R"),
    RawCollective("all_gather_into_tensor", "input size group", "input", "", *_GATHERED, functional=True),
    RawCollective("all_gather_into_tensor_coalesced", "inputs size group", "inputs", "", *_GATHERED, functional=True),
    _reduces("reduce_scatter_tensor", "input op size group", "input", "", "V", functional=True),
    _reduces("reduce_scatter_tensor_coalesced", "inputs op size group", "inputs", "", "V", functional=True),
    RawCollective("all_to_all_single", "input out_splits in_splits group", "input", "", *_EXCHANGED, functional=True),
    RawCollective("broadcast", "input src group", "input", "", *_ONE_RANKS, functional=True),
    RawCollective("broadcast_", "input src group", "input", "input", *_ONE_RANKS),
)}
# fmt: on
