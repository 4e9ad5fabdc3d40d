"""What a page says of a dim of the example that is not simply kept."""

from __future__ import annotations

from shardwise.op_rules.propagation.dim_labels import Fate

FATES = {
    Fate.SUM: "summed, so shards give a pending sum",
    Fate.TOTAL: "the result is a sum over it, so shards give a pending sum",
    Fate.MEAN: "averaged, and a shard has the mean of its own elements only",
    Fate.MAXIMUM: "reduced to its largest element, so shards give a pending maximum",
    Fate.MINIMUM: "reduced to its smallest element, so shards give a pending minimum",
    Fate.NORM: "the root of the sum of its squares, so shards give a pending norm",
    Fate.EXTREMUM: "reduced as a whole, which no shard can do alone",
    Fate.OPAQUE: "needed whole: no shard can do its part alone",
    Fate.POSITION: "kept, but values depend on the position along it, which a shard does not know",
}
