"""Launchers' tags before every line: found, removed, and used to tell ranks apart.

[trainer0]:V1122 03:52:58.843000 11100 torch/...        [trainer0]:<TAB>payload line
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LINES_LOOKED_AT = 1000
HEAD_START = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [^:\n]+:\d+\] \{")
MAX_PREFIX_BYTES = 200
RANK_TAG = re.compile(rb"(?:rank|trainer|worker|proc|^\[)[-_ ]?(\d+)", re.I)
DIGITS = re.compile(rb"\d+")


def find_prefix(path: Path) -> re.Pattern[bytes] | None:
    """The pattern of the tag before the heads of a log; ``None`` if most heads begin their lines."""
    shapes: Counter[bytes] = Counter()
    plain = 0
    with path.open("rb") as log:
        for _ in range(LINES_LOOKED_AT):
            text = log.readline(1 << 20)
            if not text:
                break
            match = HEAD_START.search(text, 0, MAX_PREFIX_BYTES + 200)
            if match is None:
                continue
            prefix = text[: match.start()]
            if not prefix:
                plain += 1
            elif b"\t" not in prefix and b"\0" not in prefix and len(prefix) <= MAX_PREFIX_BYTES:
                shapes[DIGITS.sub(b"0", prefix)] += 1
    if not shapes or shapes.most_common(1)[0][1] <= plain:
        return None
    shape = shapes.most_common(1)[0][0]
    return re.compile(rb"\d+".join(re.escape(part) for part in shape.split(b"0")))


def without_prefix(path: Path, pattern: re.Pattern[bytes], folder: Path) -> Iterator[tuple[int | None, Path]]:
    """Writes the log without its tags into ``folder``: a file a rank where the tags tell ranks.

    A line without a tag goes to the file of the line above it.
    """
    outputs: dict[int | None, Path] = {}
    writers = {}
    rank: int | None = None
    try:
        with path.open("rb") as log:
            for text in log:
                match = pattern.match(text)
                if match:
                    tag = RANK_TAG.search(match[0])
                    rank = int(tag[1]) if tag and len(tag[1]) < 10 else None
                    text = text[match.end() :]
                if rank not in writers:
                    outputs[rank] = folder / f"{len(outputs)}.log"
                    writers[rank] = outputs[rank].open("xb")
                writers[rank].write(text)
    finally:
        for writer in writers.values():
            writer.close()
    yield from outputs.items()
