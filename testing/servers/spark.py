"""A Spark cluster of one's own: a master and workers from the PySpark package, on loopback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from penstock.plan.errors import PenstockError
from penstock.run import java

READY_S = 120.0
POLL_S = 0.05
MASTER = re.compile(r"Starting Spark master at (spark://[\d.:]+)")
REGISTERED = re.compile(r"Successfully registered with master")


class Cluster:
    """A standalone master and ``workers`` of one core each; ``url`` is the master's address.

    Every process listens on 127.0.0.1 alone. ``kill_worker`` is the loss of a machine: the worker ends with all
    that it started. What the cluster wrote goes with the end of the ``with`` block.

    >>> with Cluster(workers=2) as cluster:  # doctest: +SKIP
    ...     job = cluster.submit("job.py", cwd=".")
    ...     cluster.kill_worker(0)
    ...     job.wait()
    """

    def __init__(self, workers: int = 2, memory: str = "1g") -> None:
        self.url = ""
        self._wanted = workers
        self._memory = memory
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def workers(self) -> tuple[int, ...]:
        """The process ids of the workers that live."""
        return tuple(worker.pid for worker in self._workers if worker.poll() is None)

    def __enter__(self) -> Cluster:
        try:
            # port 0: the system finds a free one, and the log says which
            self._master = self._begin("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = self._until("master", self._master, MASTER)
            for _ in range(self._wanted):
                self.start_worker(wait=False)
            for number in range(self._wanted):
                self._until(f"worker-{number}", self._workers[number], REGISTERED)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start_worker(self, *, wait: bool = True) -> None:
        """One worker more; it is there when this returns."""
        name = f"worker-{len(self._workers)}"
        what = ("org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", self._memory, "-d", str(self._folder / name))
        self._workers.append(self._begin(name, *what, self.url))
        if wait:
            self._until(name, self._workers[-1], REGISTERED)

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once; it is gone when this returns."""
        _end(self._workers[number])

    def submit(
        self,
        file: str | os.PathLike[str],
        *arguments: str,
        cwd: str | os.PathLike[str],
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        stderr: IO[str] | int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """``spark-submit`` of a file to this cluster; stdout and stderr are pipes of text.

        ``conf`` are settings of Spark's, ``env`` are variables of the driver's. Who does not read stderr gives
        a file for it: Spark says a lot, and waits when a pipe is full.
        """
        settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", **(conf or {})}
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(_spark() / "bin" / "spark-submit"), "--master", self.url, *given, os.fspath(file), *arguments]
        return subprocess.Popen(
            command, cwd=cwd, env={**environment(), **(env or {})}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip

    def close(self) -> None:
        """End every process and remove what they wrote."""
        for process in [*self._workers, *([self._master] if self._master is not None else [])]:
            _end(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, name: str, *what: str) -> subprocess.Popen[bytes]:
        command = [
            str(_spark() / "bin" / "spark-class"),
            what[0],
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *what[1:],
        ]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=self._folder, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # a group of its own, so that a worker ends with its executors
                start_new_session=True,
            )  # fmt: skip

    def _until(self, name: str, process: subprocess.Popen[bytes], said: re.Pattern[str]) -> str:
        """Wait until the log says it; what it says."""
        log = self._folder / f"{name}.log"
        end = time.monotonic() + READY_S
        while True:
            text = log.read_text(errors="replace")
            if found := said.search(text):
                return found[found.re.groups]
            if process.poll() is not None:
                raise PenstockError(f"Spark's {name} does not start: {text[-2000:].strip()}")
            if time.monotonic() > end:
                raise PenstockError(f"Spark's {name} is not ready after {READY_S:.0f} seconds: {text[-2000:].strip()}")
            time.sleep(POLL_S)


def environment() -> dict[str, str]:
    """The environment of a Spark process that belongs to this machine alone."""
    home = java.find()
    if home is None:
        raise PenstockError("a Spark cluster needs Java 17 or newer, and there is none.")
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    own = {"JAVA_HOME": str(home), "SPARK_HOME": str(_spark()), "SPARK_LOCAL_IP": "127.0.0.1", **python, **small}
    # a setting of the test's own Spark must not reach another one
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))} | own


def _spark() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise PenstockError("there is no Spark to start: pip install pyspark.")
    return Path(found.origin).parent


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
