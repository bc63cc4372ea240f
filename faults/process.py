"""A job as a process of its own: started, watched, stopped and killed by its id."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.case import CaseFailed

DRIVE = Path(__file__).with_name("drive.py")
CHECKPOINT = "checkpoint"
# a run of seconds is over before Java's best compiler has paid for itself
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE = 240.0  # a machine that is busy is slow, not wrong
POLL = 0.002


@dataclass(frozen=True)
class Ended:
    """A process that has ended: its exit code, the batches that it told of, and what it said on stderr."""

    code: int
    lines: list[dict[str, Any]]
    said: str
    seconds: float
    first_commit: float | None

    @property
    def batches(self) -> list[int]:
        """The batches that it told of, in order."""
        return [line["batch"] for line in self.lines]

    @property
    def error(self) -> str:
        """Its last words, in one line."""
        found = re.findall(r"^(?:error: |\S*(?:Error|Exception): )(.*)$", self.said, re.MULTILINE)
        return str(found[-1]) if found else self.said.strip()[-400:]


class Driver:
    """A running ``penstock``; ``with`` ends it, however the case ends."""

    def __init__(
        self,
        folder: Path,
        *,
        file: str = "job.py",
        once: bool = True,
        fault: str = "",
        env: Mapping[str, str] | None = None,
        quick: bool = True,
    ) -> None:
        self.folder = folder
        self.checkpoint = folder / CHECKPOINT
        if not (folder / DRIVE.name).exists():
            shutil.copy(DRIVE, folder)
        told = len(list(folder.glob("said-*.txt")))
        self._out, self._err = folder / f"told-{told}.jsonl", folder / f"said-{told}.txt"
        command = [sys.executable, DRIVE.name, "run", file, "--checkpoint", CHECKPOINT]
        command += ["--once"] if once else []
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JAVA if quick else ''}"
        self._before = newest(self.checkpoint)
        self._epoch = max(numbers(self.checkpoint / "epochs"), default=0)
        self._began = time.monotonic()
        self._first_commit: float | None = None
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=err, start_new_session=True,
                env={**os.environ, "JDK_JAVA_OPTIONS": java.strip(), "FAULT": fault, **(env or {})},
            )  # fmt: skip

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def alive(self) -> bool:
        """True until it has ended."""
        return self.process.poll() is None

    @property
    def begun(self) -> bool:
        """True from the moment at which it has taken its epoch: from then on it ends when it is asked to."""
        return max(numbers(self.checkpoint / "epochs"), default=0) > self._epoch

    @property
    def first_commit(self) -> float | None:
        """Seconds from its start to the first batch that it committed, None while there is none."""
        self._look()
        return self._first_commit

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    def lines(self) -> list[dict[str, Any]]:
        """What it has told of its batches so far; a line that is being written is left out."""
        whole = self._out.read_text(errors="replace").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def until(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        """Wait for a moment; the process ending before it is a failure."""
        end = time.monotonic() + patience
        while not (found := condition()):
            self._look()
            if not self.alive:
                if found := condition():
                    return found
                raise CaseFailed(f"the run ended before {what}: {self.ended().error}")
            if time.monotonic() > end:
                raise CaseFailed(f"no {what} within {patience:.0f} s")
            time.sleep(POLL)
        return found

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Wait until it ends of itself."""
        end = time.monotonic() + patience
        while self.alive:
            self._look()
            if time.monotonic() > end:
                raise CaseFailed(f"the run did not end within {patience:.0f} s")
            time.sleep(POLL)
        return self.ended()

    def ended(self) -> Ended:
        """What there is to say of it now that it has ended."""
        code = self.process.wait()
        said = self._err.read_text(errors="replace")
        return Ended(code, self.lines(), said, self.age, self.first_commit)

    def signal(self, number: int, group: bool = False) -> None:
        """Send it a signal, or its whole group, as a terminal does."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def kill(self, group: bool = True) -> None:
        """SIGKILL, to the driver and its Java; or to the driver alone, whose Java then finds out."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL, group)
        self.process.wait()
        if group:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL, group)

    def _look(self) -> None:
        if self._first_commit is None and newest(self.checkpoint) > self._before:
            self._first_commit = self.age


def newest(checkpoint: Path) -> int:
    """The newest committed batch, -1 for none; by the names alone."""
    return max(numbers(checkpoint / "manifest"), default=-1)


def numbers(folder: Path) -> list[int]:
    """The numbers that are names of files in a folder, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(stem) for name in names if (stem := name.removesuffix(".json")).isdecimal())


def penstock(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Another command of the program, in a job's folder."""
    command = [sys.executable, "-c", "from penstock.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
