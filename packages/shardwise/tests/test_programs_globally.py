"""What do global types say about the right programs? Nothing, or something that their local types need not know.

Each program of ``programs/right`` is clean locally. Globally it is clean too, or listed here with the codes that it
gets and the reason: it leaves open which dim is cut, or a rank does something of its own that has no counterpart on one
device and belongs into a local region. A code that is not listed is a false alarm; a listed one that does not come is
a bug that is not seen any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwise.cli.runs.run import check_program
from shardwise.host.program import Program

from .test_programs import _UNSEEN, RIGHT, WRONG, options_of

OPEN = "SW408", "an input is annotated V, and nothing says which of its dims is cut"
NUMBER = "SW408", "positions are offset by a number per rank, which one device does not have"
GRADIENT = "SW408", "a gradient that is not summed yet is looked at per rank"
FUSED = "SW405", "a projection is laid out as every rank's own q, k and v: cutting these apart cuts every shard"
STATISTICS = "SW405", "normalised by the statistics of a rank's own samples, or features"
OWN_ROWS = "SW405", "a rank sorts, counts, indexes or measures its own rows"
OWN_BUFFER = "SW402", "a rank writes its own rows into a buffer of its own"
OWN_FLAGS = "SW112", "a rank's own flags are put together by bits before the ranks' are"
OWN_CANDIDATES = "SW201", "the ranks' largest elements are gathered as they are, and compared afterwards"
GUIDED = "SW405", "a batch is doubled and halved again: the doubled one is laid out per rank"
FUNCTION = "SW411", "an autograd function says what it does to types, and nothing of dims"
SLICED = "SW402", "a whole operand is cut by hand, alike on every rank, for a weight that is a piece"
PENDING = "SW115", "the printed loss is a sum that global types know to be pending"
UNEVEN = "SW403", "the mean of what a mask leaves: ranks have different numbers of it"
IGNORED = "SW403", "the mean over the samples that a rank does not ignore, which are not as many on every rank"
BALANCE = "SW111", "a rank balances its own tokens: the product of two means over its tokens is no term of a global one"

SHARED_OUT = ("SW152", "a sum of the rows of all ranks is divided by their number, which on one device is 1")
FINDINGS: dict[str, list[tuple[str, str]]] = {
    "context_parallel": [NUMBER],
    "ddp_wrapper": [STATISTICS],
    "differentiable_raw_functions": [FUNCTION],
    "diffusion_transformer": [OPEN, FUSED, GUIDED],
    "dlrm": [OPEN],
    "dtensor_layers": [OPEN, SLICED],
    "expert_mesh": [OPEN],
    "hooks": [PENDING],
    "kv_cache": [FUSED],
    "largest_of_shards": [OPEN],
    "lengths_decided_by_values": [OWN_ROWS, OWN_BUFFER, UNEVEN],
    "losses": [NUMBER, PENDING, IGNORED],
    "many_names": [OPEN],
    "metrics": [OWN_ROWS],
    "mixed_precision_master": [GRADIENT, OWN_FLAGS],
    "moe_all_to_all": [OWN_ROWS, BALANCE],
    "rank_of_the_environment": [NUMBER, OWN_ROWS, SHARED_OUT],
    "rank_slices": [NUMBER],
    "regions": [OPEN],
    "running_sums": [OPEN],
    "saving_and_loading": [STATISTICS],
    "sequence_parallel": [FUSED],
    "torch_distributed_nn": [NUMBER],
    "torch_modules": [OPEN],
    "typed_outputs": [OWN_ROWS],
    "vocab_parallel": [NUMBER, OWN_CANDIDATES],
}
BLIND = {"same_seed_for_pieces"}
"""Bugs in plain numbers, whose value is a rank's own or should be: no type sees them."""
UNASKED = {
    **dict.fromkeys(
        ["gradient_penalty", "megatron_mlp", "shared_out_updates", "raw_sums_without_gradient"],
        "SW407",
    ),
    **dict.fromkeys(
        ["distilled_vocabulary", "online_softmax", "smoothed_labels", "straight_through", "vocabulary_softmax"],
        "SW404 SW407",
    ),
    **dict.fromkeys(
        [
            "averaged_shards",
            "clipped_mixture",
            "decayed_groups",
            "entropy_of_counts",
            "equal_shares",
            "factored_moments",
            "few_key_heads",
            "latent_attention",
            "logged_norms",
            "masked_by_seed",
            "norm_over_shards",
            "normed_sequence",
            "parallel_block",
            "penalised_logits",
            "router_losses",
            "row_statistics",
            "several_tokens_ahead",
            "statistics_of_batches",
            "token_weights",
            "trust_ratios",
            "width_of_embedding",
        ],
        "SW407",
    ),
    "raw_collectives": "SW404 SW407",
    "gradient_buckets": "SW407 SW616",  # of what a refused sum leaves, no scale is known in all of its buckets
    **dict.fromkeys(["ddp_comm_hooks", "fsdp", "fsdp_wrapper", "hooks_on_nodes", "optimizers"], "SW403"),
    **dict.fromkeys(
        ["checkpointing", "convnet_sync_bn", "functional_transforms", "policy_gradient", "zero_optimizer"],
        "SW403 SW407",
    ),
}
"""Clean programs that reduce over a sharded dim without asking for a pending reduction by name, and what they get."""


def codes(path: Any, partials: str) -> set[str]:
    """The codes that the program gets with global types; it must end as it should."""
    options = replace(options_of(path), local=False, partials=partials)
    result = check_program(Program(path=str(path)), options)
    assert result.ending is None, result.ending
    assert result.checked_ops
    return {finding.code for finding in result.findings}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_gets_the_global_findings_that_are_meant(path):
    assert codes(path, "infer") == {code for code, _ in FINDINGS.get(path.stem, [])}, "list its reason"


CLEAN = [path for path in RIGHT if path.stem not in FINDINGS]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.stem)
def test_a_clean_program_stays_so_where_sums_must_be_asked_for(path):
    assert codes(path, "explicit") == set(UNASKED.get(path.stem, "").split())


UNSEEN = [path for path in WRONG if _UNSEEN.search(path.read_text())]


@pytest.mark.parametrize("path", UNSEEN, ids=lambda path: path.stem)
def test_what_local_types_cannot_see_global_ones_do(path):
    assert bool(codes(path, "infer")) == (path.stem not in BLIND)


def test_what_is_listed_exists():
    assert FINDINGS.keys() | UNASKED <= {path.stem for path in RIGHT}
    assert {path.stem for path in UNSEEN} >= BLIND
