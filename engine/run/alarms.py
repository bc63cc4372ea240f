"""Says when a job falls behind, in sentences that stay until it has caught up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

STRETCH = 5  # batches: what is true of so many in a row, and was not of as many before them, is no accident


class Alarms:
    """Watches the lag of each input and the length of the batches, batch by batch.

    >>> alarms = Alarms()
    >>> for waiting in range(1, 11):
    ...     said = alarms.after(1.0, {"views": {"files": waiting, "lag": waiting}})
    >>> said
    ("the input 'views' falls behind: 10 files wait, and more with every batch",)
    """

    def __init__(self, trigger_s: float | None = None) -> None:
        self._trigger_s = trigger_s
        self._lags: dict[str, _Lag] = {}
        self._slow = 0  # batches in a row that took longer than the trigger, or negative: that did not
        self._too_slow = False

    def after(self, seconds: float, inputs: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """What is to be said after a batch that took so long and left so much."""
        said = []
        for name, told in inputs.items():
            if told.get("lag") is None:
                continue
            lag = self._lags.setdefault(name, _Lag())
            if lag.grows(told["lag"]):
                unit = "files" if "files" in told else "messages"
                said.append(f"the input '{name}' falls behind: {told['lag']:,} {unit} wait, and more with every batch")
        if self._trigger_s is not None and self._is_slow(seconds, self._trigger_s):
            said.append(f"batches take longer than the trigger of {self._trigger_s:g} s: the last one {seconds:.1f} s")
        return tuple(said)

    def _is_slow(self, seconds: float, trigger_s: float) -> bool:
        way = 1 if seconds > trigger_s else -1
        self._slow = self._slow + way if self._slow * way > 0 else way
        if abs(self._slow) >= STRETCH:
            self._too_slow = way > 0
        return self._too_slow


class _Lag:
    """One input's lag: it grows when the newest few are all above those before them."""

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=2 * STRETCH)
        self._peak: int | None = None  # while the alarm stands

    def grows(self, lag: int) -> bool:
        """True from the moment that the lag has grown for a while until it is half of what it was at most."""
        if self._peak is not None:
            self._peak = max(self._peak, lag)
            if lag > self._peak // 2:
                return True
            self._peak = None
            self._seen.clear()
        if not self._seen or lag != self._seen[-1]:  # folders are not looked at in every batch
            self._seen.append(lag)
        newest = list(self._seen)[STRETCH:]
        if len(newest) == STRETCH and min(newest) > max(list(self._seen)[:STRETCH]):
            self._peak = lag
        return self._peak is not None
