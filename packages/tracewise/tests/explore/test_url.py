"""Links: every query has one, whatever its texts; a broken part is told and breaks nothing else."""

from __future__ import annotations

import re
from urllib.parse import quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import RedirectResponse

from tracewise.explore.query import (
    COMPARISONS,
    COUNT,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Aggregate,
    Derived,
    Fill,
    Filter,
    Having,
    Measure,
    Op,
    Order,
    Query,
    Scale,
    Shape,
    View,
)
from tracewise.explore.url import filter_text, parse_filter, parse_query, query_string

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = TEXT.filter(bool)
MEASURE = st.builds(Measure, st.sampled_from([one for one in Aggregate if one.takes_column]), TEXT) | st.builds(
    Measure, st.sampled_from([one for one in Aggregate if not one.takes_column])
)


@st.composite
def filters(draw):
    op = draw(st.sampled_from(Op))
    values = draw(st.lists(TEXT, min_size=1, max_size=3)) if op.takes_values else []
    return Filter(draw(TEXT), op, tuple(values), draw(st.booleans()))


@st.composite
def queries(draw):
    views = draw(st.lists(st.sampled_from(View), unique=True))
    view = draw(st.sampled_from(View))
    limits = [(one, draw(st.integers(1, MAX_LIMIT[one]).filter(DEFAULT_LIMIT[one].__ne__))) for one in views]
    stripped = NAME.map(str.strip).filter(bool)
    return Query(
        view=view,
        start=draw(TEXT),
        end=draw(TEXT),
        zone=draw(NAME),
        time_column=draw(TEXT),
        time_unit=draw(TEXT),
        compare=draw(TEXT),
        filters=tuple(draw(st.lists(filters(), max_size=3))),
        groups=tuple(draw(st.lists(NAME, max_size=3, unique=True))),
        measures=tuple(draw(st.lists(MEASURE, max_size=3, unique=True))),
        derived=tuple(
            draw(st.lists(st.builds(Derived, stripped.filter(lambda n: ":" not in n), stripped), max_size=2))
        ),
        order=draw(st.none() | st.builds(Order, TEXT, st.booleans())),
        having=tuple(
            draw(
                st.lists(
                    st.builds(Having, MEASURE, st.sampled_from(COMPARISONS), TEXT.filter(lambda t: ":" not in t)),
                    max_size=2,
                )
            )
        ),
        limits=tuple(limits),
        other=draw(st.booleans()),
        grain=draw(NAME),
        fill=draw(st.sampled_from(Fill)),
        shape=draw(st.sampled_from(Shape)),
        scale=draw(st.sampled_from(Scale)),
        value_column=draw(TEXT),
        weight=draw(TEXT),
        columns=tuple(draw(st.lists(NAME, max_size=3))),
        after=draw(TEXT),
    )


@given(queries())
def test_a_link_says_the_whole_query(query):
    again, issues = parse_query(query_string(query))
    assert issues == ()
    assert again == query


@given(queries())
def test_neither_a_browser_nor_a_server_spells_a_link_anew(query):
    link = query_string(query)
    assert not re.search(r"""[\s"'#<>`{}|\\^\[\]]""", link)
    assert str(RedirectResponse(f"/?{link}").headers["location"]) == f"/?{link}"


@given(filters())
def test_a_form_says_the_same_filter_as_a_link(condition):
    (from_form,) = parse_query(f"f={quote_plus(filter_text(condition))}")[0].filters
    assert from_form == condition == parse_filter(filter_text(condition))


@given(st.text(max_size=60))
def test_no_query_string_breaks_the_page(text):
    query, issues = parse_query(text)
    assert isinstance(query, Query)
    assert all(issue.message for issue in issues)


def test_a_link_can_be_read():
    query, issues = parse_query(
        "v=1&view=series&from=-1h&to=now&f=rank:eq:1,2&f=name:contains:all_reduce&g=kind&m=p99(dur_ms)&m=count&res=auto"
        "&cmp=-1d&d=ms:dur_us%2F1000"
    )
    assert issues == ()
    assert query == Query(
        view=View.SERIES, start="-1h", end="now", compare="-1d", groups=("kind",),
        filters=(Filter("rank", Op.EQ, ("1", "2")), Filter("name", Op.CONTAINS, ("all_reduce",))),
        measures=(Measure(Aggregate.P99, "dur_ms"), COUNT), derived=(Derived("ms", "dur_us/1000"),),
    )  # fmt: skip


def test_a_link_without_choices_is_short():
    assert query_string(Query()) == "v=1"


def test_an_escaped_comma_belongs_to_the_value():
    assert parse_query("f=name:eq:a%2Cb,c")[0].filters == (Filter("name", Op.EQ, ("a,b", "c")),)
    assert parse_query("f=a%3Ab:eq:1")[0].filters == (Filter("a:b", Op.EQ, ("1",)),)


def test_order_of_parameters_does_not_matter():
    assert parse_query("n=7&view=table&m=count")[0] == parse_query("m=count&view=table&n=7")[0]


def test_each_view_remembers_its_limit():
    query, _ = parse_query("view=table&n=7&n.samples=20")
    assert (query.limit, dict(query.limits)[View.SAMPLES]) == (7, 20)


def test_unknown_parameters_are_kept():
    query, issues = parse_query("colour=red%26blue")
    assert issues == ()
    assert query.unknown == (("colour", "red&blue"),)
    assert parse_query(query_string(query))[0] == query


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("v", "2", "version"),
        ("view", "pie", "none of samples, table"),
        ("f", "bogus", "column:op:values"),
        ("f", "a:near:1", "none of eq, ne"),
        ("m", "p98(x)", "none of count"),
        ("m", "sum", "needs a column"),
        ("m", "count(x)", "takes no column"),
        ("m", "sum(x", "does not close"),
        ("d", "nothing", "name:expression"),
        ("o", "name", "column:asc"),
        ("h", "count:about:3", "measure:op:number"),
        ("n", "0", "whole number from 1 to"),
        ("n", "1e3", "whole number from 1 to"),
        ("fill", "water", "none of zero"),
    ],
)
def test_a_broken_part_is_named_and_left_out(parameter, value, message):
    query, issues = parse_query(urlencode([(parameter, value), ("g", "kind")]))
    assert query == Query(groups=("kind",))
    (issue,) = issues
    assert (issue.parameter, issue.value) == (parameter, value)
    assert message in issue.message
