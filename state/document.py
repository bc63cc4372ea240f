"""Small JSON documents that know when they are damaged."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from penstock.plan.errors import CheckpointError

SEALED = re.compile(rb'\{"crc32": (\d+), "document": (.*)\}\n', re.DOTALL)


def seal(value: Any) -> bytes:
    """The bytes of a document: the value as JSON, and the checksum of exactly these bytes.

    >>> seal({"batch": 7})
    b'{"crc32": 3128778744, "document": {"batch": 7}}\\n'
    """
    body = json.dumps(value, allow_nan=False).encode()
    return b'{"crc32": %d, "document": %s}\n' % (zlib.crc32(body), body)


def unseal(content: bytes, name: str) -> Any:
    """The value of a document; one that was flipped, cut or edited is refused by name.

    >>> unseal(seal([1, 2]), "some.json")
    [1, 2]
    """
    found = SEALED.fullmatch(content)
    if found is None or zlib.crc32(found[2]) != int(found[1]):
        raise CheckpointError(
            f"{name} is damaged: it does not have the checksum that it was written with. "
            "Restore the file, or the whole checkpoint, from a copy."
        )
    return json.loads(found[2])
