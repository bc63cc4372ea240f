"""Secrets by reference: ``env:NAME`` and ``file:PATH`` stand in the plan, what they name is read when the job runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.plan.errors import RunError

_PASSWORD = re.compile(r"(?P<before>//[^:/@\s]*:)[^@/\s]*(?=@)")
_PARAMETER = re.compile(r"(?i)(?P<before>\b(?:password|passwd|secret|token|sslpassword)\s*=\s*)(?:'[^']*'|[^\s&;]+)")


def is_reference(text: str) -> bool:
    """True for text that names a secret instead of being one.

    >>> is_reference("env:DATABASE_URL"), is_reference("postgresql://localhost/shop")
    (True, False)
    """
    return text.startswith(("env:", "file:"))


def reveal(text: str, step: str) -> str:
    """What a reference names, read now; other text is itself. Keep it out of messages and of what is stored."""
    kind, colon, name = text.partition(":")
    if not colon or not is_reference(text):
        return text
    if kind == "env":
        if name not in os.environ:
            raise RunError(f"{step}: the environment has no variable {name!r}, which {text!r} asks for. Set it.")
        return os.environ[name]
    try:
        return Path(name).read_text().strip()
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"{step}: cannot read the file that {text!r} names: {reason}. Put the secret there.") from None


def shown(text: str) -> str:
    """Text that may hold a password as people may see it.

    >>> shown("postgresql://ann:hush@db/shop?sslpassword=hush")
    'postgresql://ann:***@db/shop?sslpassword=***'
    >>> shown("env:DATABASE_URL")
    'env:DATABASE_URL'
    """
    return _PARAMETER.sub(r"\g<before>***", _PASSWORD.sub(r"\g<before>***", text))
