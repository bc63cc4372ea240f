"""Is a checkpoint whole? One look, by a run before it begins and by ``penstock doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.errors import CheckpointError
from penstock.run import begun
from penstock.run.findings import Fault, Repair
from penstock.run.spark_log import SparkLog, TornError
from penstock.run.spark_part import SparkPart
from penstock.state.checkpoint import IDENTITY, Checkpoint
from penstock.state.manifest import Manifest, name_of

JOB = "job.json"
DAMAGED = "it does not have the checksum that it was written with"


def check_whole(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that is not whole, before anything is written; reads no run."""
    found = list(faults(checkpoint))
    if found:
        raise CheckpointError("\n".join(fault.told(checkpoint.path) for fault in found))


def faults(checkpoint: Checkpoint, *, each_run: bool = False) -> Iterator[Fault]:
    """All that is wrong, our part before Spark's; ``each_run`` reads the runs for their checksums."""
    batches = checkpoint.batches()
    yield from _documents(checkpoint, bool(batches))
    manifests: dict[int, Manifest] = {}
    for batch in batches:
        try:
            manifests[batch] = checkpoint.read(batch)
        except CheckpointError as error:
            yield _of_manifest(batch, batches[-1], str(error))
    if batches and batches[-1] in manifests:
        yield from _newest(checkpoint, manifests[batches[-1]], each_run)
    known = {batch: made for batch, manifest in manifests.items() if (made := begun.kept(manifest))}
    log, latest, state = SparkLog(checkpoint.files.store), None, max(batches, default=-1)
    try:
        latest = begun.begun(checkpoint)
    except CheckpointError:
        yield _begun_is_damaged(log, state)
    if latest is not None:
        known[latest.batch] = latest
    yield from SparkPart(log, state, latest, known).faults()


def _documents(checkpoint: Checkpoint, ran: bool) -> Iterator[Fault]:
    names = [name for name in checkpoint.files.store.names("") if name.endswith(".json")]
    for name in names:
        if name in (IDENTITY, begun.DOCUMENT):
            continue  # read when the checkpoint was opened; looked at below
        try:
            checkpoint.read_json(name)
        except CheckpointError:
            yield Fault(name, "is damaged", DAMAGED)
    if ran and JOB not in names:
        yield Fault(JOB, "is missing", "nobody knows what the state was made for")


def _of_manifest(batch: int, newest: int, said: str) -> Fault:
    name, told = name_of(batch), said.rstrip(".")
    if batch == newest:
        return Fault(name, "cannot be read", f"it names the newest state ({told})")
    moved = Repair("moves it aside: the newest state does not need it", (name,))
    return Fault(name, "cannot be read", f"an older version of the state is lost ({told})", moved)


def _newest(checkpoint: Checkpoint, manifest: Manifest, each_run: bool) -> Iterator[Fault]:
    """The runs of the newest state, and the run of the job that committed it."""
    for run in manifest.runs():
        size = checkpoint.files.store.size(run.path)
        wrong = None
        if size is None:
            wrong = "is missing"
        elif size != run.bytes:
            wrong = f"is damaged: {size} bytes, written were {run.bytes}"
        elif each_run:
            try:
                checkpoint.files.open(run)
            except CheckpointError:
                wrong = "is damaged"
        if wrong is not None:
            yield Fault(run.place, wrong, "results that need it would be wrong")
    if checkpoint.newest_epoch() < manifest.epoch:
        yield Fault("epochs", f"has lost run {manifest.epoch}", "a run that was thought dead could write again")


def _begun_is_damaged(log: SparkLog, state: int) -> Fault:
    """It repeats Spark's newest plan, which is enough where that is whole; who began the batch it alone says."""
    repair = None
    try:
        for batch in log.planned()[-1:]:
            log.offsets(batch)
            told = "moves it aside: Spark's own plan says the same"
            if batch > state:
                told += f". Then start the job as it was: outputs may hold batch {batch}"
            repair = Repair(told, (begun.DOCUMENT,))
    except TornError:
        pass
    return Fault(begun.DOCUMENT, "is damaged", DAMAGED, repair)
