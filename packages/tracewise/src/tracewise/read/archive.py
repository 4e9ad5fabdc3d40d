"""Compressed files and archives to plain files in a folder of ours, within limits.

Only regular members are taken, under names of ours: nothing in an archive decides where a byte is written.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from tracewise.read.health import Health

TOTAL_BYTES = 20 << 30
MEMBERS = 100_000
BLOCK_BYTES = 1 << 20
STEP_BYTES = 1 << 16
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)


class InputError(Exception):
    """Input that cannot be read at all; the message says what, why and what to do."""


class Unpacker:
    """Writes plain files into ``folder``; ``written_bytes`` is held to the limit over all of them."""

    def __init__(self, folder: Path, health: Health, limit_bytes: int = TOTAL_BYTES) -> None:
        self.folder = folder
        self.health = health
        self.limit_bytes = limit_bytes
        self.written_bytes = 0
        self._count = 0

    def plain(self, path: Path, name: str) -> Iterator[tuple[str, Path]]:
        """The plain files in ``path`` with the names they are shown by: itself if it is not packed."""
        with path.open("rb") as packed:
            magic = packed.read(8)
        if magic.startswith(b"PK\x03\x04"):
            yield from self._zip(path, name)
        elif _is_tar(path):
            yield from self._tar(path, name)
        elif (blocks := _blocks(path, magic)) is not None:
            copy = self.copy(blocks, name)
            inner = name.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst")
            if _is_tar(copy):
                yield from self._tar(copy, inner)
            else:
                yield inner, copy
        else:
            yield name, path

    def copy(self, blocks: Iterator[bytes], name: str) -> Path:
        """The blocks as a file; a damaged tail and what is over the limit are noted and left out."""
        self._count += 1
        target = self.folder / f"{self._count}.plain"
        with target.open("xb") as plain:
            try:
                for block in blocks:
                    self.written_bytes += len(block)
                    if self.written_bytes > self.limit_bytes:
                        self.health.note("huge", name, 0, b"more unpacked bytes than the limit")
                        break
                    plain.write(block)
            except DAMAGE as error:
                self.health.note("compressed", name, 0, str(error).encode())
        return target

    def _zip(self, path: Path, name: str) -> Iterator[tuple[str, Path]]:
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise InputError(f"{name}: not a readable zip archive ({error}); copy it again") from error
        with archive:
            for info in archive.infolist()[:MEMBERS]:
                if info.is_dir():
                    continue
                if not _is_safe(info.filename) or (info.external_attr >> 16) & 0o170000 == 0o120000:
                    self.health.note("archive_member", name, 0, info.filename.encode("utf-8", "replace"))
                    continue
                try:
                    with archive.open(info) as member:
                        yield from self._member(member, f"{name}/{info.filename}")
                except (
                    zipfile.BadZipFile,
                    RuntimeError,
                ) as error:  # encrypted, or packed in a way unknown here
                    self.health.note("compressed", f"{name}/{info.filename}", 0, str(error).encode())

    def _tar(self, path: Path, name: str) -> Iterator[tuple[str, Path]]:
        with tarfile.open(path) as archive:
            count = 0
            while count < MEMBERS:
                try:
                    info = archive.next()
                except (tarfile.TarError, *DAMAGE) as error:
                    self.health.note("compressed", name, 0, str(error).encode())
                    break
                if info is None:
                    break
                count += 1
                if info.isdir():
                    continue
                if not info.isreg() or not _is_safe(info.name):
                    self.health.note("archive_member", name, 0, info.name.encode("utf-8", "replace"))
                    continue
                member = archive.extractfile(info)
                if member is not None:
                    with member:
                        yield from self._member(member, f"{name}/{info.name}")

    def _member(self, member: IO[bytes], name: str) -> Iterator[tuple[str, Path]]:
        copy = self.copy(iter(lambda: member.read(BLOCK_BYTES), b""), name)
        with copy.open("rb") as plain:
            blocks = _blocks(copy, plain.read(8))
        yield name, copy if blocks is None else self.copy(blocks, name)


def _is_tar(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(257)
        return file.read(5) == b"ustar"


def _is_safe(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return not name.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0]


def _blocks(path: Path, magic: bytes) -> Iterator[bytes] | None:
    """The unpacked bytes if the file is compressed. Ends with one of ``DAMAGE`` where the file is damaged."""
    if magic.startswith(b"\x1f\x8b"):
        return _unpacked(path, lambda: zlib.decompressobj(31))
    if magic.startswith(b"\xfd7zXZ\0"):
        return _unpacked(path, lzma.LZMADecompressor)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        try:
            import zstandard
        except ImportError as error:
            raise InputError(
                f"{path.name}: reading zstd needs zstandard; pip install 'tracewise[zstd]' or unpack it"
            ) from error
        return _unpacked(path, lambda: zstandard.ZstdDecompressor().decompressobj())
    return None


def _unpacked(path: Path, new: Callable[[], Any]) -> Iterator[bytes]:
    """Feeds the file to a decompressor in small steps, so that all that lies before a damage comes out."""
    decompressor = new()
    is_begun = False
    with path.open("rb") as packed:
        while data := packed.read(STEP_BYTES):
            while data:
                try:
                    yield decompressor.decompress(data)
                except Exception as error:
                    raise EOFError(f"damaged: {error}") from error
                data = decompressor.unused_data if decompressor.eof else b""
                if decompressor.eof:
                    # One file may hold several compressed streams, one after the other; zeros may fill its end.
                    data = data.lstrip(b"\0")
                    decompressor = new()
                    is_begun = False
                else:
                    is_begun = True
    if is_begun:
        raise EOFError("the compressed file is cut short")


def spool(stream: BinaryIO, target: Path) -> Path:
    """Standard input as a file."""
    with target.open("xb") as plain:
        shutil.copyfileobj(stream, plain, BLOCK_BYTES)
    return target
