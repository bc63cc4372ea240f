"""Flink as one of the ways to run a query."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType

from benchmarks.case import Case
from benchmarks.flink.environment import install, java_home
from benchmarks.flink.tables import created, into

HEAP = "3g"
REPLY = "flink run: "
BACKENDS = {"heap": "hashmap", "rocksdb": "rocksdb"}


class Flink:
    """A Flink in a process of its own, which stays for many runs and is warm after the first, as our Spark is."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "flink.log"
        environment = {**os.environ, "JAVA_HOME": str(java_home()), "JVM_ARGS": f"-Xmx{HEAP}"}
        worker = Path(__file__).with_name("worker.py")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [install(), worker],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=folder,
            )  # fmt: skip

    def run(self, query: Case, backend: str, source: Path, checkpoint: Path, output: Path | None) -> float:
        """All that is there, then stop; into parquet files, or into nothing. The seconds from submission to end."""
        asked = {
            "create": [created(given, source / given.name) for given in query.inputs],
            "insert": f"create table results with ({into(query, output)}) as {query.flink}",
            "settings": {
                "state.backend.type": BACKENDS[backend],
                "execution.checkpointing.dir": f"file://{checkpoint}",
                **dict(query.settings),
            },
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(REPLY):
                return float(json.loads(line.removeprefix(REPLY)))
        raise RuntimeError(f"{query.name} on {backend}: Flink ended\n{self._log.read_text()[-4000:]}")

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if error is not None:
            self._process.terminate()  # in the middle of a run; its Java ends with it
        self._process.wait(timeout=60)
