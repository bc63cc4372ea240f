"""Does the job still fit its checkpoint? Asked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.compile.layout import Layout
from penstock.plan.errors import CheckpointError, PlanChangedError
from penstock.state.checkpoint import Checkpoint

DOCUMENT = "job.json"
LAYOUT_VERSION = 3


def signature(layout: Layout, buckets: int) -> dict[str, Any]:
    """What the state in a checkpoint depends on: a job with another signature cannot go on from it."""
    steps = {step.name: {"kind": type(step).__name__, **step.state_depends_on()} for step in layout.stages}
    return {
        "version": LAYOUT_VERSION,
        "job": layout.job.name,
        "buckets": buckets,
        "inputs": list(layout.sources),
        "steps": steps,
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is not as it was, a line each; an empty list when the state can be kept."""
    found = []
    if before["version"] != now["version"]:
        found.append(f"the state's layout is of version {before['version']}, this Penstock writes {now['version']}")
    if before["inputs"] != now["inputs"]:
        found.append(f"the inputs were {', '.join(before['inputs'])} and are {', '.join(now['inputs'])}")
    for name in sorted({*before["steps"], *now["steps"]}):
        was, is_now = before["steps"].get(name), now["steps"].get(name)
        if was is None:
            found.append(f"the step {name!r} is new")
        elif is_now is None:
            found.append(f"the step {name!r} is gone")
        else:
            found += [
                f"step {name!r}: {part} was {_told(was.get(part))} and is {_told(is_now.get(part))}"
                for part in {**was, **is_now}
                if was.get(part) != is_now.get(part)
            ]
    return found


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v}" for k, v in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _never_ran(before: dict[str, Any], checkpoint: Checkpoint, layout: Layout) -> bool:
    """True when nothing has been committed: a first try that failed must not pin its plan."""
    if checkpoint.batches() or before["job"] != layout.job.name:
        return False
    read = (Path(checkpoint.path) / "spark" / "offsets").is_dir()
    return not read or before["inputs"] == list(layout.sources)


def fit(layout: Layout, checkpoint: Checkpoint, buckets: int, *, write: bool = True) -> int:
    """Hold the job against its checkpoint; the number of buckets, which is pinned when the checkpoint begins."""
    before = checkpoint.read_json(DOCUMENT)
    if before is None and checkpoint.batches():
        raise CheckpointError(f"checkpoint {checkpoint.path} has lost its {DOCUMENT}. Restore it from a copy.")
    if before is None or _never_ran(before, checkpoint, layout):
        if write:
            checkpoint.write_json(DOCUMENT, signature(layout, buckets))
        return buckets
    if before["job"] != layout.job.name:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} belongs to the job {before['job']!r}, not to {layout.job.name!r}. "
            "Give this job a checkpoint of its own."
        )
    found = differences(before, signature(layout, before["buckets"]))
    if found:
        raise PlanChangedError(
            f"the job {layout.job.name!r} no longer fits the state in {checkpoint.path}:\n  "
            + "\n  ".join(found)
            + "\nGo back to the job as it was, give changed steps another name with .named(...) and start with a new "
            "checkpoint and new outputs, or delete this checkpoint and its outputs to compute all anew."
        )
    return int(before["buckets"])
