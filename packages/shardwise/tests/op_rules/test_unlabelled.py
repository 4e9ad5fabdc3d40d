"""Op rules without labels: each has its reason here, so that none is forgotten.

Kinds that need no labels (constants, metadata, values handed to Python, optimizer kernels) are left out.
"""

from __future__ import annotations

from shardwise.op_rules.registry import all_rules, families
from shardwise.op_rules.schema import Kind

REASONS: dict[str, str] = {
    "draws into a new tensor or a destination, and has no operand": """
        rand randn randint randperm normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ bernoulli_
        rand_like randn_like randint_like
    """,
    "initialises by the sizes that it sees, which are a shard's": """
        kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_
    """,
    "starts from a matrix that every rank draws for itself": "pca_lowrank svd_lowrank lobpcg",
    "replaces the memory of its operand": "set_",
    "kernel behind a labelled function, called by compiled code": "_chunk_cat",
    "part of synchronised batch norm, which communicates": """
        batch_norm_stats batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_update_stats batch_norm_backward_elemt batch_norm_backward_reduce
    """,
    "writes to an operand besides its result": "embedding_renorm_",
    "hands back index tensors beside its result": "torch.embedding_bag",
    "packs sequences into a layout that no dim names": "_pack_padded_sequence _pad_packed_sequence to_padded_tensor",
}
"""Why rules outside of ``sparse_quantised`` have no labels."""


def test_every_rule_has_labels_or_a_reason() -> None:
    needed = [rule for rule in all_rules() if rule.kind in (Kind.PURE, Kind.RANDOM)]
    apart = {rule.op for rule in families()["sparse_quantised"]}
    without = {rule.op for rule in needed if rule.labels is None} - apart
    explained = [name for names in REASONS.values() for name in names.split()]
    assert len(explained) == len(set(explained)), "a rule has two reasons"
    assert without - set(explained) == set(), "rules without labels and without a reason"
    assert set(explained) - without == set(), "rules that have labels by now, or do not exist"
