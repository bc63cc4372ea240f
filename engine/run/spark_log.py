"""Spark's part of a checkpoint, read from outside: what it planned, what it has done, what its sources noted.

Spark writes ``offsets/N`` before batch N and ``commits/N`` after it; a source keeps a log of its own below
``sources``. A checksum stands beside each file where the file system keeps one.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from penstock.state.store import Store

FOLDER = "spark"
METADATA = f"{FOLDER}/metadata"
OFFSETS = f"{FOLDER}/offsets"
COMMITS = f"{FOLDER}/commits"
SOURCES = f"{FOLDER}/sources"
VERSION = re.compile(r"v\d+")


class TornError(Exception):
    """A file of Spark's that cannot be read; the text says how it looks."""


@dataclass(frozen=True)
class SparkLog:
    """The files below ``spark`` in a checkpoint's store."""

    store: Store

    def planned(self) -> list[int]:
        """The batches that Spark has planned, run or not, in order."""
        return self._numbers(OFFSETS)

    def committed(self) -> list[int]:
        """The batches that Spark knows to be done, in order."""
        return self._numbers(COMMITS)

    def offsets(self, batch: int) -> str:
        """The plan of a batch as its file has it; TornError, or FileNotFoundError."""
        text = self._text(f"{OFFSETS}/{batch}")
        lines = text.split("\n")
        _check_version(lines)
        if len(lines) < 3 or not isinstance(said := _json(lines[1]), dict) or "batchTimestampMs" not in said:
            raise TornError("is cut")
        for line in lines[2:] if lines[0] == "v1" else ():
            if line != "-":  # a source that has read nothing yet
                _json(line)
        return text

    def commit(self, batch: int) -> None:
        """See that a commit can be read; TornError, or FileNotFoundError."""
        lines = self._text(f"{COMMITS}/{batch}").split("\n")
        _check_version(lines)
        if len(lines) < 2:
            raise TornError("is cut")
        _json(lines[1])

    def query_id(self) -> str:
        """The id that Spark gave the query; TornError, or FileNotFoundError."""
        said = _json(self._text(METADATA))
        if not isinstance(said, dict) or not isinstance(said.get("id"), str):
            raise TornError("names no query")
        return str(said["id"])

    def source_files(self) -> list[str]:
        """The files of the sources' own logs."""
        return [n for n in self.store.names(SOURCES, recursive=True) if not n.rpartition("/")[2].startswith(".")]

    def source_lines(self, name: str) -> list[str]:
        """A file of a source's log, without its version; TornError when it is not as it was written."""
        lines = self._text(name).lstrip("\0").split("\n")  # Kafka's begins with a zero byte
        _check_version(lines)
        return [line for line in lines[1:] if line]

    def _numbers(self, folder: str) -> list[int]:
        names = (name.rpartition("/")[2] for name in self.store.names(folder))
        return sorted(int(name) for name in names if name.isdecimal())

    def _text(self, name: str) -> str:
        content = self.store.read(name)
        if not content:
            raise TornError("is empty")
        if (sums := self._checksums(name)) is not None and not agrees(content, sums):
            raise TornError("does not have the checksum that it was written with")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise TornError("is no text") from None

    def _checksums(self, name: str) -> bytes | None:
        try:
            return self.store.read(beside(name))
        except FileNotFoundError:
            return None


def beside(name: str) -> str:
    """The file that holds the checksums of another.

    >>> beside("spark/offsets/7")
    'spark/offsets/.7.crc'
    """
    folder, _, file = name.rpartition("/")
    return f"{folder}/.{file}.crc"


def agrees(content: bytes, sums: bytes) -> bool:
    """True when a file is what its checksums say: a head, the length of a piece, and the sum of each piece.

    >>> agrees(b"v1", b"crc\\0" + (512).to_bytes(4, "big") + zlib.crc32(b"v1").to_bytes(4, "big"))
    True
    """
    piece = int.from_bytes(sums[4:8], "big")
    if sums[:4] != b"crc\0" or not piece:
        return not sums  # Hadoop passes over an empty one
    found = (zlib.crc32(content[at : at + piece]) for at in range(0, len(content), piece))
    return sums[8:] == b"".join(value.to_bytes(4, "big") for value in found)


def wall_us(offsets: str) -> int:
    """A batch's wall time as its plan has it: the same when the batch is run again.

    >>> wall_us('v1\\n{"batchTimestampMs":12}\\n{"logOffset":0}')
    12000
    """
    return int(json.loads(offsets.split("\n")[1])["batchTimestampMs"]) * 1000


def _check_version(lines: list[str]) -> None:
    if not VERSION.fullmatch(lines[0]):
        raise TornError("does not begin with a version")


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise TornError("is cut") from None
