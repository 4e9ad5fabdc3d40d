"""The page of the ranks in a report says what `tracewise ranks` says."""

from __future__ import annotations

import pytest

from tracewise.ranks.parity import collective_calls

from ..reports import rank_logs, report_of


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("none", "All 2 ranks agree: 6 compilations each."),
        ("shape", "at position 3 compiled g (gen_ranks.py:22) again, rank 0 did not"),
        ("order", "at position 1 compiled g (gen_ranks.py:22) where rank 0 compiled f"),
    ],
)
def test_page_and_overview_have_the_first_difference(tmp_path, variant, said):
    folder, _ = report_of(rank_logs(variant), tmp_path)
    assert said in (folder / "ranks.html").read_text()
    assert said in (folder / "index.html").read_text()


def test_the_matrix_marks_what_only_one_rank_has(tmp_path):
    folder, _ = report_of(rank_logs("shape"), tmp_path)
    page = (folder / "ranks.html").read_text()
    assert "Compilations beside each other" in page
    assert "the code issues what was scheduled, and waits for each" in page


def test_calls_in_comments_and_texts_are_none():
    code = '''
# torch.ops._c10d_functional.all_reduce_.default(a)
kernel = """torch.ops._c10d_functional.all_reduce_.default(a)"""
torch.ops._c10d_functional.all_reduce_.default(buf0, 'sum', '0')
torch.ops._c10d_functional.wait_tensor.default(buf0)
'''
    assert collective_calls(code) == {"all_reduce_": 1, "wait_tensor": 1}
