"""Where on this machine a sink's path leads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from penstock.plan.errors import PlanError, SinkError
from penstock.plan.written import written_at

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # one letter is a Windows drive


def checked_path(step: str, path: str | os.PathLike[str]) -> str:
    """The path as text, once it is sure to mean a place on this machine.

    >>> checked_path("sinks.parquet", "out/ctr")
    'out/ctr'
    >>> checked_path("parquet", "s3://b/ctr")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.plan.errors.SinkError: parquet('s3://b/ctr'): s3 is not supported yet. Give a local path. (...)
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise PlanError(f"{step}({text!r}): the path must be text that is not empty. ({written_at()})")
    scheme = SCHEME.match(text)
    if scheme and scheme[1].lower() != "file":
        raise SinkError(f"{step}({text!r}): {scheme[1]} is not supported yet. Give a local path. ({written_at()})")
    if scheme and urlsplit(text).netloc not in ("", "localhost"):
        raise SinkError(f"{step}({text!r}): files elsewhere are not supported yet. Give a local path. ({written_at()})")
    return text


def local_path(path: str) -> Path:
    """The absolute path that a plain path or a ``file:`` address means, links resolved.

    >>> local_path("file:///srv/penstock%20out").name
    'penstock out'
    """
    if SCHEME.match(path):
        path = url2pathname(urlsplit(path).path)
    return Path(os.path.realpath(path))
