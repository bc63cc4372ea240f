"""Where inputs come from."""

from penstock.sources.base import Source
from penstock.sources.files import files
from penstock.sources.kafka_topic import kafka
from penstock.sources.rate import rate
from penstock.sources.spark import spark

__all__ = ["Source", "files", "kafka", "rate", "spark"]
