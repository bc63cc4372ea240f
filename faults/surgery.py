"""Cases 15 to 17: checkpoints whose files are torn, gone, of another copy, flipped or cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from faults.case import case
from faults.process import CHECKPOINT, newest, penstock
from faults.room import Room

Surgery = Callable[[Path], object]


def empty(path: Path) -> None:
    """Nothing is left of the content."""
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """The second half is missing."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """One bit in the middle is another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def delete(path: Path) -> None:
    """The file is gone, with the checksum that Spark keeps beside it."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def without_crc(act: Surgery) -> Surgery:
    """As a copy tool leaves a torn file: without Spark's own checksum, which is a hidden file."""

    def acted(path: Path) -> None:
        act(path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    return acted


@case(15, "a torn offsets/N or commits/N (empty, cut)", passes="file named, repair offered; after repair equal")
def torn_logs(room: Room) -> None:
    """A run is killed after the sinks of batch 3; its last offsets, or its last commit, are emptied or cut. The start
    must be refused, `penstock doctor --repair` must mend it, and the job go on with the plan that the outputs hold."""
    folder = room.shop()
    room.killed(folder, "kill after_sink 3")
    whole = room.copy(folder, "killed")
    for name in ("offsets/3", "commits/2"):
        for act in (empty, cut):
            room.put_back(whole, folder)
            without_crc(act)(folder / CHECKPOINT / "spark" / name)
            room.note("surgery", f"{name}: {act.__name__}")
            room.refused(folder, name, "--repair")
            said = penstock(folder, "doctor", "job.py", "--checkpoint", CHECKPOINT, "--repair")
            room.note("doctor", f"exit {said.returncode}: {(said.stdout + said.stderr).strip()[:300]}")
            room.must(name in said.stdout + said.stderr, f"doctor does not name {name}")
            room.goes_on(folder)


@case(
    16,
    "checkpoint metadata gone, checkpoint half copied, Spark's part and ours of different batches",
    passes="refused; never a new query id on an old checkpoint",
)
def mixed_copies(room: Room) -> None:
    """A checkpoint after batch 1 and the same after batch 3 are taken apart and put together wrongly: without
    Spark's metadata, without spark/, manifest/, state/ or job.json, and with Spark's part older or newer than ours."""
    folder = room.shop()
    checkpoint = folder / CHECKPOINT
    room.killed(folder, "kill before_sink 2")
    older = room.copy(folder, "batch 1")
    room.killed(folder, "kill before_sink 4")
    newer = room.copy(folder, "batch 3")
    before = json.loads((checkpoint / "spark" / "metadata").read_text())["id"]

    def swapped(part: str) -> Surgery:
        def act(there: Path) -> None:
            shutil.rmtree(there / part)
            shutil.copytree(older / CHECKPOINT / part, there / part)

        return act

    surgeries: dict[str, Surgery] = {
        "metadata gone": lambda there: delete(there / "spark" / "metadata"),
        "spark/ not copied": lambda there: shutil.rmtree(there / "spark"),
        "manifest/ not copied": lambda there: shutil.rmtree(there / "manifest"),
        "state/ not copied": lambda there: shutil.rmtree(there / "state"),
        "job.json not copied": lambda there: (there / "job.json").unlink(),
        "Spark's part older": swapped("spark"),
        "our part older": swapped("manifest"),
    }
    for name, act in surgeries.items():
        room.put_back(newer, folder)
        act(checkpoint)
        room.note("surgery", name)
        room.refused(folder, CHECKPOINT)
        if (checkpoint / "spark" / "metadata").exists():
            after = json.loads((checkpoint / "spark" / "metadata").read_text())["id"]
            room.must(after == before, f"{name}: a new query id on an old checkpoint")
        else:
            room.must("metadata" in name or "spark/" in name, f"{name}: the metadata has gone")
    room.put_back(newer, folder)
    room.goes_on(folder)


@case(
    17,
    "a run or a manifest flipped, cut, deleted",
    passes="refused naming step, bucket, file; never a wrong number",
    fast=True,
)
def damaged_state(room: Room) -> None:
    """A run is killed before the sinks of batch 3; of its state one run, and then its newest manifest, is flipped,
    cut or deleted. Each start must be refused; with the file back the job goes on."""
    folder = room.shop()
    checkpoint = folder / CHECKPOINT
    room.killed(folder, "kill before_sink 3")
    whole = room.copy(folder, "killed")
    done = newest(checkpoint)
    run = max(checkpoint.glob(f"state/so_far/*/{done}-*.arrow"), key=lambda path: path.stat().st_size)
    manifest = checkpoint / "manifest" / f"{done}.json"
    acts = ({run: (flip,), manifest: (cut,)}) if room.lab.fast else dict.fromkeys((run, manifest), (flip, cut, delete))
    for path in (run, manifest):
        for act in acts[path]:
            room.put_back(whole, folder)
            act(path)
            room.note("surgery", f"{path.relative_to(checkpoint)}: {act.__name__}")
            if path == run:
                bucket = run.parent.name
                room.refused(folder, "step 'so_far'", f"bucket {int(bucket)}", run.name)
            else:
                room.refused(folder, f"manifest/{done}" if act is not delete else f"batch {done - 1}")
    room.put_back(whole, folder)
    room.goes_on(folder)
