"""Windows: pieces of event time over which rows are aggregated."""

from penstock.windows.shapes import hopping, tumbling

__all__ = ["tumbling", "hopping"]
