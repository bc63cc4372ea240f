"""Where inputs come from."""

from penstock.sources.base import Source
from penstock.sources.files import files
from penstock.sources.rate import rate
from penstock.sources.spark import spark

__all__ = ["Source", "files", "rate", "spark"]
