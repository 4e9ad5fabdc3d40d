"""What moves send beside DTensor's, and that the page shows the figures of today."""

from __future__ import annotations

import re

import pytest

from shardwise_devtools.moved_bytes import BEGIN, CASES, END, PAGE, count, written


def rows() -> list[list[int]]:
    """Pairs, fewer, as many and more bytes of every row of the page."""
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    return [
        [int(re.match(r"\s*(\d+)", cell)[0]) for cell in line.split("|")[3:7]] for line in shown.strip().split("\n")[2:]
    ]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("at", range(len(CASES) - 1), ids=lambda at: f"{CASES[at][0]} {CASES[at][1]}")
def test_the_page_has_the_counts_of_today(at):
    found = count(*CASES[at])
    assert rows()[at] == [found.pairs, found.less, found.equal, found.more]


@pytest.mark.slow
def test_no_pair_of_types_over_three_axes_sends_more_than_dtensor():
    found = count(*CASES[-1], step=7)
    assert found.more == 0
    assert found.less > found.pairs / 3
    assert rows()[-1][3] == 0


def test_a_table_is_replaced_where_it_stands():
    assert written(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"
