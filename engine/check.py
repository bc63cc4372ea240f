"""``penstock check``: what a job is, and whether it can go on from its checkpoint."""

from __future__ import annotations

from penstock.compile.layout import Layout
from penstock.job import Job
from penstock.plan.errors import PlanChangedError, PlanError
from penstock.run.fit import compared, pinned, refusal
from penstock.state.checkpoint import Checkpoint


def summary(job: Job) -> str:
    """What a job reads, keeps and writes, a line each."""
    if not job.outputs:
        raise PlanError(f"the job {job.name!r} has no output; add one with .to(...).")
    lines = [f"job '{job.name}'"]
    lines += [f"  reads   {node.describe()}" for node in job.inputs]
    lines += [f"  keeps   {step.describe()}" for step in Layout(job).stages]
    lines += [f"  writes  output '{o.name}' to {o.drawn().target}" for o in job.outputs]
    dead = job.dead_letter_sink
    lines.append(f"  writes  dead letters to {dead.describe()}" if dead else "  a bad row stops it: no dead letters")
    return "\n".join(lines)


def held_against(job: Job, folder: str, buckets: int | None = None) -> str:
    """What a job finds in its checkpoint; ``buckets`` is the number that it would be run with."""
    layout, checkpoint = Layout(job), Checkpoint.find(folder)
    if checkpoint is None:
        return f"checkpoint {folder}: none yet, the first run makes it"
    found = compared(layout, checkpoint, 0, buckets)
    if found is not None and found.rebuild:
        raise PlanChangedError(refusal(layout, checkpoint, found))
    checkpoint.verify()
    latest = checkpoint.latest()
    if latest is None or found is None:
        return f"checkpoint {folder}: empty, no batch is done yet"
    changes = [f"  {change}" for change in found.changes]
    state = f"the state in its {pinned(checkpoint, latest)} buckets after batch {latest.batch} can be kept"
    return "\n".join([f"checkpoint {folder}: fits, {state}", *changes])
