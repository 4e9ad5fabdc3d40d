"""Attention: batch, heads, queries and the width of values are kept; keys and the width of heads are mixed.

``*b l e, *b s e, *b s f, mask *b l s -> *b l f``. Queries do not see each other, so shards of them are fine against all
keys, unless the causal mask counts them: then every shard would start at 0.

The result is linear in the values. Besides it the kernels return what the backward pass needs, and flex attention the
log-sum-exp, which do not depend on the values at all: those operators are linear in nothing as a whole.
"""

from __future__ import annotations

from ..propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, Shape, broadcast, numbered, singles
from ..schema import TORCHS, Arguments, Kind, OpRule

_WHY: dict[Label, str] = {
    "s": "the softmax runs over all keys: gather key and value, or combine the shards' results by their log-sum-exp",
    "e": "scores are sums over the whole width of a head, and the softmax is not linear in them",
    "l": "is_causal counts queries and keys from the start of each shard: give attn_mask for the global positions",
}
_MASKS = ("attn_mask", "attn_bias")
_QKV = {"query": ("l", "e"), "key": ("s", "e"), "value": ("s", "f")}


def _attended(*further: Dims) -> Labeller:
    """``further``: the dims behind the batch of the results after the first, which is the attention's output."""

    def label(call: Call) -> Labelling | None:
        named = {tensor.param: tensor for tensor in call.tensors}
        if not named.keys() <= {*_QKV, *_MASKS} or not _QKV.keys() <= named.keys():
            return None
        lead, batch = broadcast([tensor.shape[:-2] for tensor in call.tensors])
        sizes = {"l": named["query"].shape[-2], "s": named["key"].shape[-2]}
        rows = [
            (*row, *(_QKV.get(tensor.param) or _masked(tensor, sizes)))
            for row, tensor in zip(lead, call.tensors, strict=True)
        ]
        spread = frozenset(
            (at, one)
            for at, one in singles(rows, call.tensors)
            if one not in _QKV.get(call.tensors[at].param, ())  # what is behind the batch is not broadcast
        )
        if call.get("enable_gqa"):
            spread |= _single_heads(call, rows)
        return Labelling(
            tuple(rows), ((*batch, "l", "f"), *((*batch, *dims) for dims in further)), *_fates(call), spread=spread
        )

    return label


def _masked(mask: Shape, sizes: dict[Label, int]) -> Dims:
    """The last two dims of a mask; those of size 1 are broadcast over the scores."""
    dims = (("l", sizes["l"]), ("s", sizes["s"]))[-mask.ndim :] if mask.ndim else ()
    return tuple(
        None if extent == 1 and size != 1 else name for (name, size), extent in zip(dims, mask.shape[-2:], strict=True)
    )


def _single_heads(call: Call, rows: list[Dims]) -> frozenset[tuple[int, Label]]:
    """Grouped heads: shards of query heads go with shards of key heads; a single key head is one, or serves all."""
    heads = rows[next(at for at, tensor in enumerate(call.tensors) if tensor.param == "query")][-3]
    single = [
        at
        for at, tensor in enumerate(call.tensors)
        if tensor.param in ("key", "value") and tensor.ndim > 2 and tensor.shape[-3] == 1
    ]
    for at in single:
        rows[at] = (*rows[at][:-3], heads, *rows[at][-2:])
    return frozenset((at, heads) for at in single if heads is not None)


def _fates(call: Call) -> tuple[dict[Label, Fate], dict[Label, str]]:
    fates = {"s": Fate.OPAQUE, "e": Fate.OPAQUE}
    return (fates | {"l": Fate.POSITION} if call.get("is_causal") else fates), _WHY


def _layer(call: Call) -> Labelling | None:
    """multi_head_attention_forward: ``l [n] e``, ``s [n] k``, ``s [n] v`` and projections, which mix all features."""
    names = {tensor.param for tensor in call.tensors}
    if names & {"static_k", "static_v"}:
        return None
    batch: Dims = ("n",) if call.first.ndim == 3 else ()
    known: dict[str, Dims] = {"query": ("l", *batch, "e"), "key": ("s", *batch, "k"), "value": ("s", *batch, "v")}
    known["key_padding_mask"] = (*batch, "s")
    rows: list[Dims] = []
    for at, tensor in enumerate(call.tensors):
        flat_mask = tensor.param == "attn_mask" and tensor.ndim == 2
        rows.append(("l", "s") if flat_mask else known.get(tensor.param, numbered(tensor.ndim, f"{tensor.param}{at}.")))
    if any(len(row) != tensor.ndim for row, tensor in zip(rows, call.tensors, strict=True)):
        return None
    mixed: dict[Label, str] = {
        label: "projections mix all features" for row in rows for label in row if label and label not in "lsn"
    }
    if "attn_mask" in names and ("l", "s") not in rows:
        mixed["n"] = "a mask for each sample and head has both in one dim"
    fates: dict[Label, Fate] = {**dict.fromkeys(mixed, Fate.OPAQUE), **_fates(call)[0]}
    heads: Dims = () if call.get("average_attn_weights", True) else (None,)
    return Labelling(tuple(rows), (("l", *batch, None), (*batch, *heads, "l", None)), fates, {**_WHY, **mixed})


def _flexible(call: Call) -> Labelling:
    """Batch and heads are kept; the block mask and the score function count positions, so no sequence is a shard."""
    known = {param: ("b", "h", *dims) for param, dims in _QKV.items()}
    rows = [known.get(one.param, numbered(one.ndim, f"{one.param}{at}.")) for at, one in enumerate(call.tensors)]
    mixed = {label for row in rows for label in row if label is not None and label not in "bhf"}
    why = dict.fromkeys(mixed, "the block mask and the score function count positions")
    return Labelling(
        tuple(rows), (("b", "h", "l", "f"), ("b", "h", "l"), ("b", "h", "l")), dict.fromkeys(mixed, Fate.OPAQUE), why
    )


def _attention_draws(static: Arguments) -> bool:
    return static.get("dropout_p", 0.0) != 0.0 and bool(static.get("training", True))


def _attends(
    op: str, law: str, labels: Labeller, params: str = TORCHS, linear: str = "", static: str = "dropout_p"
) -> OpRule:
    return OpRule(
        op,
        params,
        linear,
        law=law,
        source="torch.nn.functional.scaled_dot_product_attention" if linear else "",
        kind=Kind.RANDOM,
        static=tuple(static.split()),
        draws=_attention_draws,
        labels=labels,
    )


def _kernel(name: str, rest: str, *further: Dims) -> OpRule:
    law = "weights from query and key; returns their normaliser too"
    return _attends(f"_scaled_dot_product_{name}", law, _attended(*further), f"query key value {rest}")


_PADDED: Dims = (None,)

RULES = (
    _attends(
        "scaled_dot_product_attention",
        "weights from query and key, a weighted sum of value",
        _attended(),
        linear="value",
    ),
    _kernel("attention_math", "attn_mask dropout_p is_causal dropout_mask", ("l", "s")),
    _kernel("flash_attention", "dropout_p is_causal return_debug_mask", ("l",)),
    _kernel("flash_attention_for_cpu", "dropout_p is_causal", ("l",)),
    _kernel("efficient_attention", "attn_bias compute_log_sumexp dropout_p is_causal", _PADDED),
    _kernel("cudnn_attention", "attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask", (None, None)),
    _attends(
        "multi_head_attention_forward",
        "projections with biases around attention",
        _layer,
        "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p"
        " out_proj_weight out_proj_bias training",
        static="dropout_p training",
    ),
    OpRule(
        "flex_attention",
        "query key value score_mod block_mask scale kernel_options score_mod_other_buffers mask_mod_other_buffers",
        law="weights from query and key by any score function, a weighted sum of value, and their normaliser",
        source="torch.nn.attention.flex_attention; the tensors that its functions capture are operands",
        labels=_flexible,
    ),
)
