"""What listens to a run on one rank beside its recorder, by what is asked for, and what it has heard."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from shardwise.interop.running.recording import Recorder
from shardwise.mesh.entry import CurrentMesh

from ..records.annotation_sites import SiteRecorder
from ..records.draws import KeptDraws
from ..records.options import VerifyOptions
from ..records.record import RankRun
from .given_draws import GivenDraws
from .kept_buffers import KeptBuffers
from .loading import Loading
from .random_draws import RandomDraws
from .used_data import UsedData
from .watch import watching


class Listeners:
    """``loading`` looks after DataLoaders; the others hear what the function mode sees."""

    def __init__(self, options: VerifyOptions, rank: int, size: int, entry: CurrentMesh | None) -> None:
        """``rank`` of ``size``; ``entry`` is the mesh of the command line, if there is one."""
        changed, several = options.changed, size > 1
        keeps = options.feed or options.kept_bytes > 0
        batches = None if several or changed is None else changed.batches
        self.loading = Loading(batches, keeps=bool(keeps), kept_bytes=options.kept_bytes)
        self._options, self._alone = options, not several
        self._given = None if batches is None or changed is None else GivenDraws(changed.draws)
        self._kept = KeptDraws(options.kept_bytes or math.inf) if keeps and several else None
        pieces = changed.pieces if changed is not None and several else {}
        self._used = UsedData(rank, pieces) if options.data else None
        self._buffers = None if options.layouts else KeptBuffers()
        self._sites = None if entry is None or options.project is None else SiteRecorder(options.project, entry)

    def listening(self, recorder: Recorder) -> AbstractContextManager[None]:
        """All of them listen inside the ``with`` block, which is inside a check."""
        return watching(
            recorder,
            every=self._options.every,
            alone=self._alone,
            modules=self._options.modules,
            layouts=self._options.layouts,
            sites=self._sites,
            changed=self._options.changed,
            used=self._used,
            draws=RandomDraws(recorder, self._kept, self._given),
            buffers=self._buffers,
        )

    def tell(self, came: RankRun) -> None:
        """What they have heard."""
        came.batches = self.loading.batches
        if self._sites is not None:
            came.sites = self._sites.sites
        if self._kept is not None:
            came.draws = self._kept.draws
        if self._given is not None:
            came.drawn_together = self._given.count
        if self._used is not None:
            came.data = self._used.records
        if self._buffers is not None:
            came.buffers = self._buffers.ends()
