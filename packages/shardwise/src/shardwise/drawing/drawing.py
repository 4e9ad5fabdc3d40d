"""A drawing: a picture that is made as large as there is room, in whichever medium is asked for."""

from __future__ import annotations

from collections.abc import Callable

from .fitting import fitted
from .layout import PIXELS, TEXT, Metrics, size_of
from .model import Picture
from .svg import MARGIN, html_of, page_of, svg_of
from .text import text_of

TEXT_WIDTH = 100
SVG_WIDTH = 960
LEAST = 3


class Drawing:
    """What ``draw`` returns. ``str`` is the text; a notebook shows the SVG.

    Example:
        >>> svg = draw("f32[8, 16@tp]", mesh={"tp": 2}).svg()
        >>> svg.startswith("<svg"), "<title" in svg
        (True, True)
    """

    def __init__(self, make: Callable[[int], Picture], limit: int) -> None:
        self._make = make
        self._limit = limit
        make(limit)  # what cannot be drawn is said here, not when it is printed

    def picture(self, width: float | None = None, metrics: Metrics = TEXT) -> Picture:
        """The picture with as many indices as fit, folded only where the fewest do not fit."""
        picture = self._make(self._limit)
        if width is None:
            return picture
        for folds in (False, True):
            if _fits(picture, width, metrics, folds):
                return picture
            fewest, most = LEAST, self._limit  # a smaller limit makes no picture wider, so halves are looked at
            best: Picture | None = None
            while fewest < most:
                limit = (fewest + most) // 2
                smaller = self._make(limit)
                if _fits(smaller, width, metrics, folds):
                    best, fewest = smaller, limit + 1
                else:
                    most = limit
            if best is not None:
                return best
        return self._make(LEAST)

    def text(self, width: int = TEXT_WIDTH, *, color: bool = False) -> str:
        """Line-drawing characters in ``width`` columns."""
        return text_of(self.picture(width), width, color=color)

    def svg(self, width: float = SVG_WIDTH) -> str:
        """One ``<svg>`` element in ``width`` pixels, for light and dark pages; it needs nothing else."""
        return svg_of(self.picture(width - 2 * MARGIN, PIXELS), width)

    def html(self, width: float = SVG_WIDTH) -> str:
        """A page of its own, with the text of the drawing below it."""
        return page_of(self.picture(width - 2 * MARGIN, PIXELS), width)

    def _repr_html_(self) -> str:
        return html_of(self.picture(SVG_WIDTH - 2 * MARGIN, PIXELS), SVG_WIDTH)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Drawing of {self._make(LEAST).title}>"


def _fits(picture: Picture, width: float, metrics: Metrics, folds: bool) -> bool:
    return size_of(fitted(picture, width, metrics, folds=folds).block, metrics).width <= width
