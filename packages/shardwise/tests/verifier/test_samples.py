"""Which rows all ranks hold together, however they are dealt out, padded, and cut into micro-batches."""

from __future__ import annotations

import pytest
import torch

from shardwise.verifier.layouts.samples import padded_samples, same_samples

ROWS = [[5, 1, 2], [3, 4], [6], [7, 8]]


def padded(rows, fill):
    return torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=fill)


@pytest.mark.parametrize("dims", [(), (2,), (2, 3)])
def test_rows_may_be_dealt_out_in_any_order_and_in_pieces_of_any_size(dims):
    rows = torch.randn(6, 3, *dims)
    ranks = [[rows[[4, 0]], rows[3:4]], [rows[[1]], rows[[5, 2]]]]
    assert same_samples(ranks, [rows[:4], rows[4:]])
    assert same_samples([*ranks, *ranks], [rows]), "those along another axis are replicas"
    assert not same_samples([ranks[0], ranks[0]], [rows])
    assert not same_samples([[rows[:3]], [rows[:3] + 1]], [rows])


def test_calls_of_one_module_may_have_rows_of_several_lengths():
    queries, documents = torch.randn(4, 3), torch.randn(4, 5)
    alone = [queries[:2], queries[2:], documents[:2], documents[2:]]
    assert same_samples([[queries[:2], documents[:2]], [queries[2:], documents[2:]]], alone)
    assert not same_samples([[queries[:2], documents[:2]], [queries[2:], documents[:2]]], alone)


@pytest.mark.parametrize("fill", [0, 1, -100])
def test_each_rank_may_pad_its_rows_to_the_longest_of_its_own(fill):
    ranks = [[padded([ROWS[2], ROWS[1]], fill)], [padded([ROWS[0], ROWS[3]], fill)]]
    assert padded_samples(ranks, [padded(ROWS, fill)])
    assert same_samples(ranks, [padded(ROWS[:2], fill), padded(ROWS[2:], fill)]), "so may each micro-batch"
    assert not same_samples([ranks[0], ranks[0]], [padded(ROWS, fill)])


def test_what_is_fed_to_a_decoder_lacks_the_last_token_of_its_longest_row():
    def shifted(rows):
        return torch.cat([torch.full((len(rows), 1), 2), padded(rows, 1)[:, :-1]], 1)

    ranks = [[shifted([ROWS[2], ROWS[1]])], [shifted([ROWS[0], ROWS[3]])]]
    assert padded_samples(ranks, [shifted(ROWS)])


def test_what_all_ranks_cut_off_and_other_numbers_are_not_padding():
    whole = padded(ROWS, 0)
    assert not padded_samples([[whole[:2, :2]], [whole[2:, :2]]], [whole])
    assert not padded_samples([[whole[:2]], [whole[2:, :1] + 1]], [whole])
    masks = (whole != 0).long()
    assert not padded_samples([[masks[:2]], [masks[:2]]], [masks]), "masks of other rows, of which none is shorter"


def test_numbers_without_a_dim_and_large_inputs_are_left_alone():
    assert not same_samples([[torch.ones(())]], [torch.ones(())])
    assert not same_samples([[torch.zeros(2, 1 << 19)]], [torch.zeros(2, 1 << 19)])
