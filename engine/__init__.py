"""Penstock: stream processing for Python teams, on Spark.

A job is a value; the engine turns it into one Structured Streaming query.

>>> from penstock import Job, sinks, sources
>>> from penstock.windows import tumbling
>>> job = Job("shop")
"""

from penstock import sinks, sources
from penstock.job import Job
from penstock.plan.errors import (
    BadRowError,
    CheckpointError,
    CheckpointInUseError,
    FencedError,
    JavaNotFoundError,
    JobFileError,
    PenstockError,
    PlanChangedError,
    PlanError,
    RunError,
    SinkError,
    TransientSinkError,
    UnknownColumnError,
    UnsupportedPlanError,
)
from penstock.stream import Stream
from penstock.table import Table

__version__ = "0.1.0"

__all__ = [
    "Job",
    "Stream",
    "Table",
    "sinks",
    "sources",
    "PenstockError",
    "PlanError",
    "UnknownColumnError",
    "UnsupportedPlanError",
    "JobFileError",
    "RunError",
    "BadRowError",
    "JavaNotFoundError",
    "CheckpointError",
    "CheckpointInUseError",
    "PlanChangedError",
    "FencedError",
    "SinkError",
    "TransientSinkError",
    "__version__",
]
