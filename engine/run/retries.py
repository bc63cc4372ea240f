"""Trying again what may pass, with growing pauses, for as long as a failing job may take to say so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.plan.errors import SinkError, TransientSinkError

FIRST_PAUSE_S = 0.5
# with what the last try itself takes, a job that cannot write ends within a minute
PATIENCE_S = 40.0
LOG = logging.getLogger("penstock")
Done = TypeVar("Done")


class Retries:
    """How a run goes on after a ``TransientSinkError``: pauses that double, and then a ``SinkError``.

    ``leaving`` ends a pause at once: a run that is being stopped tries no more. ``clock`` is for tests.
    """

    def __init__(self, leaving: threading.Event | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._leaving = leaving or threading.Event()
        self._clock = clock

    def run(self, attempt: Callable[[], Done], failed: Callable[[], None]) -> Done:
        """What ``attempt`` gives, once it does; ``failed`` is told of each try that is followed by another."""
        pause, tries, began = FIRST_PAUSE_S, 0, 0.0
        while True:
            try:
                return attempt()
            except TransientSinkError as error:
                tries += 1
                began = self._clock() if tries == 1 else began
                waited = self._clock() - began
                if waited >= PATIENCE_S:
                    raise SinkError(
                        f"{error} It was tried {tries} times in {waited:.0f} seconds. "
                        f"Once that is mended, start the job again: it goes on with this batch."
                    ) from error
                pause = min(pause, PATIENCE_S - waited)
                LOG.warning("%s Trying again in %.1f seconds.", error, pause)
                if self._leaving.wait(pause):
                    raise
            failed()
            pause *= 2
