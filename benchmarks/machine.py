"""The machine that the figures are from, and the one Spark in which everything is measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version

from pyspark.sql import SparkSession

from penstock.plan.needs import Need
from penstock.run.session import session

HEAP = "4g"


def open_spark(needs: Sequence[Need] = ()) -> SparkSession:
    """A local Spark with a heap that also Spark's own state in memory fits in."""
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-memory {HEAP} pyspark-shell")
    spark = session(ui=False, needs=needs)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def described() -> str:
    """Cores, memory, versions, and how busy the machine is already."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    return (
        f"{len(os.sched_getaffinity(0))} cores, {gigabytes:.0f} GB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {packages}, heap {HEAP}; load {os.getloadavg()[0]:.1f} at the start"
    )
