"""Where the user wrote a step: the first line up the stack that is not ours."""

from __future__ import annotations

import os
import sys


def written_at() -> str:
    """``file:line`` of the user's own line, relative to the working directory where that is shorter.

    Ready jobs in ``penstock.jobs`` count as the user's: they are read as examples.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        ours = module == "penstock" or (module.startswith("penstock.") and not module.startswith("penstock.jobs"))
        if not ours and frame.f_code.co_filename != "<string>":
            break
        frame = frame.f_back
    path = frame.f_code.co_filename
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return f"{path if near.startswith('..') else near}:{frame.f_lineno}"
