"""Is every bug of examples/bugs proven in numbers, and does the checker say what the catalogue expects?"""

from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import apply, load
from evidence import gather
from table import BEGIN, END, between_markers, page, short_table

# All cases read one run of all programs, so they belong to one worker (--dist loadgroup).
pytestmark = pytest.mark.xdist_group("bugs")

ROOT = Path(__file__).resolve().parents[4]
BUGS = load()


@pytest.fixture(scope="module")
def rows():
    return {row.name: row for row in gather(BUGS)}


UNCHANGED = [
    "unchanged program",
    "unchanged program --sequence-parallel",
    "unchanged program --dropout 0.1",
    "unchanged program training_step",
    "unchanged program expert_parallel",
    "unchanged program sharded_parameters",
]


@pytest.mark.processes
@pytest.mark.parametrize("name", [*UNCHANGED, *(bug.id for bug in BUGS)])
def test_numbers_and_verdict_are_as_the_catalogue_has_them(name, rows):
    assert rows[name].problems == ()


@pytest.mark.processes
def test_everything_that_ran_is_asked_about(rows):
    assert set(rows) == {*UNCHANGED, *(bug.id for bug in BUGS)}


@pytest.mark.processes
def test_the_page_of_the_docs_is_that_of_a_fresh_run(rows):
    assert (ROOT / "docs" / "bugs.md").read_text() == page(list(rows.values()))


@pytest.mark.processes
def test_the_table_of_the_readme_is_that_of_a_fresh_run(rows):
    readme = (ROOT / "README.md").read_text()
    assert readme == between_markers(readme, short_table(list(rows.values())))


def test_a_change_whose_old_text_is_gone_is_refused(tmp_path):
    gone = replace(BUGS[0], old="text that is nowhere in the program")
    with pytest.raises(ValueError, match=r"occurs 0 times in layers\.py, not once"):
        apply(gone, tmp_path / "program")


def test_a_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match="lacks the markers"):
        between_markers(f"text {BEGIN} text", "table")
    assert between_markers(f"a {BEGIN}old{END} b", "new") == f"a {BEGIN}\nnew\n{END} b"
