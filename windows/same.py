"""The window that rows already have, from an earlier window step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Same:
    """Each row in the window that its columns ``window_start`` and ``window_end`` name."""

    def describe(self) -> str:
        """The window in words."""
        return "the same window"


def same() -> Same:
    """The window that the rows already have; it closes as the window did that made them.

    So the counts of a window can be ranked or added up once more, in the same window.

    >>> from penstock import Job, sources
    >>> from penstock.windows import same, tumbling
    >>> views = Job("shop").stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
    ...                            time="at", lateness="10 minutes")
    >>> counts = views.by("url").window(tumbling("1 hour")).agg(n="count(*)")
    >>> counts.window(same()).top(3, by="n desc").columns
    ('window_start', 'window_end', 'url', 'n', 'rank')
    """
    return Same()
