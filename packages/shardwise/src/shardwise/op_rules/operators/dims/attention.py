"""Attention: batch, heads, queries and the width of values are kept; keys and the width of heads are mixed.

``*b l e, *b s e, *b s f, mask *b l s -> *b l f``. Queries do not see each other, so shards of them are fine against all
keys, unless the causal mask counts them: then every shard would start at 0.
"""

from __future__ import annotations

from ...propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, Shape, broadcast, numbered, singles

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


LABELS: dict[str, Labeller] = {
    "scaled_dot_product_attention": _attended(),
    "_scaled_dot_product_attention_math": _attended(("l", "s")),
    "_scaled_dot_product_flash_attention": _attended(("l",)),
    "_scaled_dot_product_flash_attention_for_cpu": _attended(("l",)),
    "_scaled_dot_product_efficient_attention": _attended((None,)),  # padded along the queries
    "_scaled_dot_product_cudnn_attention": _attended((None, None)),
    "multi_head_attention_forward": _layer,
    "flex_attention": _flexible,
}
