"""The Spark session: the one that is given, under settings of our own, or a local one."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.plan.errors import JavaNotFoundError, RunError
from penstock.plan.needs import Need, submit
from penstock.run import java
from penstock.run.jars import jars

# what each session of ours has
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250000",
    "spark.sql.streaming.metricsEnabled": "false",
    # Spark would put settings and the environment, with its secrets, in place of ${...} in the text of a job
    "spark.sql.variable.substitute": "false",
    # what a batch keeps for its own length is read once or twice: packing it small costs more than it saves
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Spark's pages show what a connector is told; of Kafka's clients any option may be a secret, whatever it is called
    "spark.sql.redaction.options.regex": r"(?i)url|^kafka\.|secret|password|token|access.?key",
}


def session(
    given: SparkSession | None = None, *, cores: str = "*", ui: bool = True, needs: Sequence[Need] = ()
) -> SparkSession:
    """A session to run a job in: of the same application as the one given, its settings left alone.

    What the job ``needs`` is fetched where Spark starts here; a Spark that runs already must have it.
    """
    if given is None:
        given = _own(cores, ui, needs)
    _check_there(given, needs)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j.clientserver"):
        # they print Spark's complaints with their Java trace before anybody can explain them
        logging.getLogger(name).setLevel(logging.CRITICAL)
    spark = given.newSession()
    for name, value in SESSION.items():
        spark.conf.set(name, value)
    # our state does not depend on it, so it may change from run to run
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return spark


def _check_there(spark: SparkSession, needs: Sequence[Need]) -> None:
    """Refuse a Spark that lacks packages, before anything is read or written; all of them at once."""
    missing = [need for need in needs if not _is_there(spark, need)]
    if not missing:
        return
    told = " and ".join(f"{need.who} needs the package {need.package}" for need in missing)
    raise RunError(
        f"{told}, and this Spark was started without {'them' if len(missing) > 1 else 'it'}. "
        f"Start it with: {submit(missing)}; or let Penstock start Spark itself, in a process of its own."
    )


def _is_there(spark: SparkSession, need: Need) -> bool:
    java_side = spark.sparkContext._jvm
    assert java_side is not None
    try:
        java_side.java.lang.Thread.currentThread().getContextClassLoader().loadClass(need.probe)
    except Py4JJavaError:
        return False
    return True


def _own(cores: str, ui: bool, needs: Sequence[Need]) -> SparkSession:
    builder = SparkSession.builder
    running = SparkContext._active_spark_context is not None
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java and knows the master
    if running or submitted:
        return builder.getOrCreate()
    home = java.find()
    if home is None:
        raise JavaNotFoundError(
            "Spark needs Java 17 or newer, and there is none: install one, or `pip install penstock[java]`."
        )
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nothing of a local run is for other machines
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    quiet = Path(__file__).with_name("log4j2.properties").resolve().as_uri()
    options: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(Path(os.environ.get("TMPDIR", "/tmp")) / f"penstock-warehouse-{os.getuid()}"),
    }
    if needs:
        # not spark.jars.packages: it reports at length, and two runs that fetch at once get in each other's way
        options["spark.jars"] = ",".join(str(jar) for jar in jars(*dict.fromkeys(need.package for need in needs)))
        options |= {name: value for need in needs for name, value in need.settings}
    with _left_alone():
        return builder.master(f"local[{cores}]").appName("penstock").config(map=options).getOrCreate()


@contextmanager
def _left_alone() -> Iterator[None]:
    """Start Java so that it ignores SIGTERM: a signal to the whole group must not end it before the batch at hand.

    It ends with this process all the same, when its standard input closes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
