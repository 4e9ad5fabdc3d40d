"""Is every bug of examples/bugs proven in numbers, and does the checker say what the catalogue expects?"""

import re
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
def rows(request):
    """By name: the programs that are right, and the bugs that tests were chosen for."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    return {row.name: row for row in gather([bug for bug in BUGS if bug.id in chosen])}


PERCENTAGE = re.compile(r"\b(\d+) %")


def assert_same(written: str, measured: str) -> None:
    """The same text; percentages may differ by the rounding of another processor or library."""
    assert PERCENTAGE.sub("%", written) == PERCENTAGE.sub("%", measured)
    for one, other in zip(PERCENTAGE.findall(written), PERCENTAGE.findall(measured), strict=True):
        assert int(one) == pytest.approx(int(other), rel=0.05, abs=1)


UNCHANGED = [
    "unchanged program",
    "unchanged program --sequence-parallel",
    "unchanged program --dropout 0.1",
    "unchanged program training_step",
    "unchanged program expert_parallel",
    "unchanged program sharded_parameters",
]


@pytest.mark.processes
def test_programs_without_a_bug_are_right_and_accepted(rows):
    unchanged = {name: row.problems for name, row in rows.items() if name in UNCHANGED}
    assert unchanged
    assert unchanged == dict.fromkeys(unchanged, ())


@pytest.mark.processes
@pytest.mark.one_in(45)
@pytest.mark.parametrize("name", [bug.id for bug in BUGS])
def test_numbers_and_verdict_are_as_the_catalogue_has_them(name, rows):
    assert rows[name].problems == ()


@pytest.mark.processes
def test_rows_of_the_page_are_those_of_a_fresh_run(rows):
    written = PERCENTAGE.sub("%", (ROOT / "docs" / "bugs.md").read_text()).splitlines()
    measured = PERCENTAGE.sub("%", page(list(rows.values()))).splitlines()
    assert [line for line in measured if line.startswith("| ") and line not in written] == []


@pytest.mark.processes
@pytest.mark.nightly
def test_everything_that_ran_is_asked_about(rows):
    assert set(rows) == {*UNCHANGED, *(bug.id for bug in BUGS)}


@pytest.mark.processes
@pytest.mark.nightly
def test_the_page_of_the_docs_is_that_of_a_fresh_run(rows):
    assert_same((ROOT / "docs" / "bugs.md").read_text(), page(list(rows.values())))


@pytest.mark.processes
@pytest.mark.nightly
def test_the_table_of_the_readme_is_that_of_a_fresh_run(rows):
    readme = (ROOT / "README.md").read_text()
    assert_same(readme, between_markers(readme, short_table(list(rows.values()))))


def test_percentages_of_another_processor_are_the_same_and_other_numbers_are_not():
    assert_same("off by 82 % in `SW101`", "off by 81 % in `SW101`")
    for other in ("off by 50 % in `SW101`", "off by 82 % in `SW113`", "off by 82 times in `SW101`"):
        with pytest.raises(AssertionError):
            assert_same("off by 82 % in `SW101`", other)


def test_a_change_whose_old_text_is_gone_is_refused(tmp_path):
    gone = replace(BUGS[0], old="text that is nowhere in the program")
    with pytest.raises(ValueError, match=r"occurs 0 times in layers\.py, not once"):
        apply(gone, tmp_path / "program")


def test_a_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match="lacks the markers"):
        between_markers(f"text {BEGIN} text", "table")
    assert between_markers(f"a {BEGIN}old{END} b", "new") == f"a {BEGIN}\nnew\n{END} b"
