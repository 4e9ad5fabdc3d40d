"""What a PATH stands for: packed, rotated and tagged logs come out as plain ones."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
import zstandard

from tracewise.read.archive import InputError
from tracewise.read.health import Health
from tracewise.read.log import LogReader
from tracewise.read.source import open_sources

from .test_log import CLOCK, A, B, C

WHOLE = CLOCK + A + B + C
WHOLE_KINDS = ["chromium_event", "dump_file", "dump_file", "link"]
PACKINGS = {
    "gz": gzip.compress(WHOLE),
    "xz": lzma.compress(WHOLE),
    "zst": zstandard.ZstdCompressor().compress(WHOLE),
}


def zipped(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def kinds_of(path: Path) -> list[list[str]]:
    with open_sources([path]) as sources:
        return [[r.kind for r in LogReader(file.path, Health())] for file in sources.of_kind("trace")]


@pytest.mark.parametrize("packing", PACKINGS)
def test_packed_logs_are_read(tmp_path, packing):
    (tmp_path / "x").write_bytes(PACKINGS[packing])
    assert kinds_of(tmp_path / "x") == [WHOLE_KINDS]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archives_of_packed_logs_are_read(tmp_path, pack):
    (tmp_path / "x").write_bytes(pack({"a.log": WHOLE, "deep/b.log.gz": PACKINGS["gz"]}))
    assert kinds_of(tmp_path / "x") == [WHOLE_KINDS, WHOLE_KINDS]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_that_point_out_of_an_archive_are_left_out(tmp_path, pack):
    (tmp_path / "x").write_bytes(pack({"../a.log": WHOLE, "/b.log": WHOLE, "c.log": WHOLE}))
    with open_sources([tmp_path / "x"]) as sources:
        assert [Path(file.name).name for file in sources.files] == ["c.log"]
        assert sources.health.counts["archive_member"] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


def test_a_damaged_archive_is_read_up_to_the_damage(tmp_path):
    packed = gzip.compress(CLOCK + C + bytes(range(256)) * 4000)
    (tmp_path / "x").write_bytes(packed[: len(packed) - 20])
    with open_sources([tmp_path / "x"]) as sources:
        assert sources.health.counts["compressed"] == 1
        kinds = [r.kind for r in LogReader(sources.files[0].path, Health())]
    assert kinds[:2] == ["chromium_event", "link"]


def test_rotated_logs_are_one_file_oldest_first(tmp_path):
    (tmp_path / "x.log.2.gz").write_bytes(gzip.compress(CLOCK))
    (tmp_path / "x.log.1").write_bytes(A)
    (tmp_path / "x.log").write_bytes(B + C)
    assert kinds_of(tmp_path) == [WHOLE_KINDS]


def prefixed(data: bytes, tag: bytes) -> bytes:
    return b"".join(tag + line + b"\n" for line in data.removesuffix(b"\n").split(b"\n"))


@pytest.mark.parametrize("tag", [b"[trainer0]:", b"[rank3]: ", b"2026-11-22T04:00:00Z host "])
def test_launchers_tags_are_removed(tmp_path, tag):
    (tmp_path / "x.log").write_bytes(prefixed(WHOLE, tag))
    with open_sources([tmp_path / "x.log"]) as sources:
        health = Health()
        records = list(LogReader(sources.files[0].path, health))
        assert sources.health.counts["prefix"] == 1
    assert [r.kind for r in records] == WHOLE_KINDS
    assert health.is_clean


def test_tags_tell_ranks_apart(tmp_path):
    lines = WHOLE.split(b"\n")[:-1]
    (tmp_path / "x.log").write_bytes(b"".join(b"[rank0]:" + text + b"\n[rank1]:" + text + b"\n" for text in lines))
    with open_sources([tmp_path]) as sources:
        assert [file.rank for file in sources.files] == [0, 1]
        for file in sources.files:
            assert [r.kind for r in LogReader(file.path, Health())] == WHOLE_KINDS


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no such file or folder; give a log"):
        open_sources([tmp_path / "nowhere"])


def test_what_a_shell_hands_over_as_a_pipe_is_read_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(PACKINGS["gz"],))
    writer.start()
    with open_sources([tmp_path / "pipe"]) as sources:
        writer.join()
        assert [r.kind for r in LogReader(sources.files[0].path, Health())] == WHOLE_KINDS


@pytest.mark.parametrize(("target", "said"), [("loop", "a link that leads nowhere"), ("/dev/null", "neither a file")])
def test_a_path_that_leads_to_no_file_is_named(target, said, tmp_path):
    (tmp_path / "loop").symlink_to(target)
    with pytest.raises(InputError, match=f"loop: is {said}"):
        open_sources([tmp_path / "loop"])
    (tmp_path / "loop").unlink()


def test_a_report_inside_of_a_folder_of_traces_is_no_trace(tmp_path):
    (tmp_path / "report" / "data").mkdir(parents=True)
    (tmp_path / "report" / ".tracewise").write_text("made by tracewise\n")
    (tmp_path / "report" / "data" / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "notes.json").write_text('{"traceEvents": []}')
    with open_sources([tmp_path]) as sources:
        assert [file.path.name for file in sources.files] == ["notes.json"]
