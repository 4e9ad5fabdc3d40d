"""The result of a query, by its view."""

from __future__ import annotations

from tracewise.explore.answers.distribution import distribution
from tracewise.explore.answers.groups import table
from tracewise.explore.answers.samples import samples
from tracewise.explore.answers.series import series
from tracewise.explore.bind import Bound
from tracewise.explore.engine import Session
from tracewise.explore.query import View
from tracewise.explore.results import Result


def compute(bound: Bound, session: Session) -> Result:
    """The result of the query's view. QueryError and NothingToShow say why there is none."""
    match bound.query.view:
        case View.SAMPLES:
            return samples(bound, session)
        case View.TABLE:
            return table(bound, session)
        case View.SERIES:
            return series(bound, session)
        case View.DISTRIBUTION:
            return distribution(bound, session)
