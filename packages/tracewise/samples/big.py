"""A big log out of small real ones: python big.py [--distinct] OUT.log SIZE_MB IN.log [IN.log ...]

The logs are repeated with shifted frame ids and text ids, so each repetition is a program part of its own. With
``--distinct`` every payload gets a last line of its own and a new checksum, so that keeping
equal ones once wins nothing.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

FRAME_ID = re.compile(rb'"frame_id": (\d+)')
STRING_ID = re.compile(rb"(?<=, )(\d+)(?=\]\}$)")
FILE_ID = re.compile(rb'"filename": (\d+)')
CHECKSUM = re.compile(rb'"has_payload": "[0-9a-f]{32}"')


def records_of(path: Path) -> list[tuple[bytes, bytes]]:
    """Head and payload lines of each record, without the last LF."""
    texts = re.split(rb"\n(?=V\d{4} )", path.read_bytes().removesuffix(b"\n"))
    return [(head, body) for head, _, body in (text.partition(b"\n") for text in texts)]


def shifted(head: bytes, frames: int, strings: int) -> bytes:
    """The head with other frame and text ids."""
    if b'] {"str": ' in head:
        return STRING_ID.sub(lambda match: b"%d" % (int(match[1]) + strings), head)
    head = FRAME_ID.sub(lambda match: b'"frame_id": %d' % (int(match[1]) + frames), head, count=1)
    return FILE_ID.sub(lambda match: b'"filename": %d' % (int(match[1]) + strings), head)


def with_own_payload(head: bytes, body: bytes, repetition: int) -> tuple[bytes, bytes]:
    """The record with a last payload line that no other repetition has."""
    body += b"\n\t" + b" " * repetition
    digest = hashlib.md5(body[1:].replace(b"\n\t", b"\n"), usedforsecurity=False).hexdigest().encode()
    return CHECKSUM.sub(b'"has_payload": "' + digest + b'"', head), body


def highest(pattern: re.Pattern[bytes], heads: list[bytes]) -> int:
    return max((int(match[1]) for head in heads for match in pattern.finditer(head)), default=-1)


def main(arguments: list[str]) -> None:
    is_distinct = "--distinct" in arguments
    target, size_mb, *sources = [argument for argument in arguments if argument != "--distinct"]
    logs = [records_of(Path(source)) for source in sources]
    written = frames = strings = repetition = 0
    with open(target, "wb") as out:
        while written < float(size_mb) * 1e6:
            for log in logs:
                for head, body in log:
                    head = shifted(head, frames, strings)
                    if body and is_distinct and repetition:
                        head, body = with_own_payload(head, body, repetition)
                    written += out.write(head + b"\n" + (body + b"\n" if body else b""))
                heads = [head for head, _ in log]
                frames += highest(FRAME_ID, heads) + 1
                strings += highest(STRING_ID, [head for head in heads if b'] {"str": ' in head]) + 1
                if written >= float(size_mb) * 1e6:
                    break
            repetition += 1
    print(f"{written} bytes, {frames} frames")


if __name__ == "__main__":
    main(sys.argv[1:])
