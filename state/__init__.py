"""State as files: sorted Arrow runs, versions that are committed once, and a reader for people.

``penstock.state.open(checkpoint)`` shows what a job remembers.
"""

from penstock.state.reader import StateReader
from penstock.state.reader import open_state as open  # noqa: A004  the call reads penstock.state.open(...)

__all__ = ["open", "StateReader"]
