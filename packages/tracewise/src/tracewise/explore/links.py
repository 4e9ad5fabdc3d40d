"""Links from a page to the next query: a view, an order, a group's rows, a page further down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from tracewise.explore.bind import Bound
from tracewise.explore.query import Filter, Order, Query, View
from tracewise.explore.text import equality
from tracewise.explore.url import query_string


def table_link(name: str) -> str:
    return f"/t/{quote(name, safe='')}"


def link_to(table: str, query: Query) -> str:
    return f"{table_link(table)}?{query_string(query)}"


class Links:
    """The links of the page of one query."""

    def __init__(self, bound: Bound) -> None:
        self.bound, self.query, self.table = bound, bound.query, bound.table
        self.zone = bound.clock.zone

    def link(self, **changes: Any) -> str:
        """The address of the query with these changes; a page of samples further down is left."""
        return link_to(self.table.name, replace(self.query, **{"after": "", **changes}))

    def view_link(self, view: View) -> str:
        return self.link(view=view)

    def order_link(self, key: str) -> str:
        """Sort by ``key``, the largest first; a second time turns the direction."""
        order = self.query.order
        return self.link(order=Order(key, not order.descending if order and order.key == key else True))

    def order_mark(self, key: str) -> str:
        order = self.bound.order
        if order is None and self.query.view is View.TABLE and key == str(self.bound.measures[0]):
            return "descending"
        if order is None or order.key != key:
            return "none"
        return "descending" if order.descending else "ascending"

    def group_link(self, key: Sequence[Any], view: View) -> str:
        """The rows of one group."""
        filters = [equality(group, value, self.zone) for group, value in zip(self.bound.groups, key, strict=True)]
        kept = [one for one in self.query.filters if one not in filters]
        return self.link(view=view, filters=(*kept, *filters))

    def without_filter(self, condition: Filter) -> str:
        return self.link(filters=tuple(one for one in self.query.filters if one is not condition))

    def grouped_by(self, name: str) -> str:
        return self.link(groups=(*self.query.groups, name), view=View.SERIES if self.bound.time else View.TABLE)

    def row_link(self, row_key: int) -> str:
        return f"{table_link(self.table.name)}/row/{row_key}"

    def export_link(self, extension: str) -> str:
        return f"{table_link(self.table.name)}/rows.{extension}?{query_string(self.query)}"
