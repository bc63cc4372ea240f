"""Cases 25 to 27: broken, enormous and moving input."""

from __future__ import annotations

import base64
import gzip
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import shop
from faults.arrivals import ran
from faults.case import case
from faults.outputs import tables
from faults.process import CHECKPOINT, Driver, newest
from faults.room import Room

MEGABYTE = 2**20
CAP = 4096  # megabytes of the driver, its Java and its workers together


def put(folder: Path, number: int, content: bytes, ending: str = "json") -> Path:
    """A file of the inbox with these bytes."""
    path = folder / "in" / f"{number:03}.{ending}"
    path.write_bytes(content)
    os.utime(path, (1_790_000_000 + number, 1_790_000_000 + number))
    return path


def kept_bytes(row: str) -> bytes:
    """The bytes that a dead letter holds: text as it is, what is no text in base64."""
    return base64.b64decode(row.removeprefix("base64:")) if row.startswith("base64:") else row.encode()


@case(
    25,
    "broken JSON, wrong types, NUL, bad UTF-8, a cut gzip, an empty file",
    passes="good rows all there; bad ones in dead letters with reason, place and raw bytes; counts add up",
    fast=True,
)
def broken_input(room: Room) -> None:
    """Bad lines of every kind stand among good ones, one file is empty, one is whole and compressed. In another run
    a compressed file is cut: no row of it is believed, the run stops and names it; the whole file is put in its
    place and the job goes on."""
    rows = shop.orders(room.random, files=5, late=0)
    files = [[json.dumps(row).encode() for row in here] for here in rows]
    bad = {
        1: [
            b"{broken",
            b'["no object"]',
            b"17",
            b'{"id": "t", "amount": "many", "at": "2026-01-01T10:00:00Z"}',
            b'{"id": "w", "amount": 1, "at": "yesterday"}',
            b'{"id": "x", "amount": 1.5, "at": "2026-01-01T10:00:00Z"}',
        ],
        2: [b"\x00\x00\x00", b'{"id": "n\x00l", "amount": 1, "at": "2026-01-01T10:00:00Z"}'],
        3: [b'{"id": "b\xff\xfed", "amount": 1, "at": "2026-01-01T10:00:00Z"}', b"\xff\xfe{"],
    }
    folder = shop.prepare(room.folder / "dirty", [])
    for number, lines in enumerate(files):
        here = list(lines)
        for line in bad.get(number, []):
            here.insert(room.random.randrange(len(here)), line)
        content = b"\n".join(here) + b"\n"
        put(folder, number, gzip.compress(content) if number == 4 else content, "json.gz" if number == 4 else "json")
    put(folder, 5, b"")
    cut = gzip.compress(json.dumps(shop.order("cut", "s1", 1, shop.BEGIN + 5 * shop.SPAN)).encode() * 50)
    put(folder, 6, cut[: len(cut) // 2], "json.gz")
    with Driver(folder) as driver:
        ended = driver.wait()
    room.failed(ended, "006.json.gz", "cut or damaged")
    rows.append([shop.order("whole", "s1", 1, shop.BEGIN + 5 * shop.SPAN)])
    put(folder, 6, gzip.compress(json.dumps(rows[-1][0]).encode()), "json.gz")
    with Driver(folder) as driver:
        ended = driver.wait()
    room.must(ended.code == 0, f"with the whole file in its place: {ended.error}")
    found = tables(folder)
    letters = [(row[1], Path(row[4]).name, kept_bytes(row[5])) for row in found["out.dead"]]
    wanted = [("malformed", f"{n:03}.json", line) for n, lines in bad.items() for line in lines]
    missing, more = [x for x in wanted if x not in letters], [x for x in letters if x not in wanted]
    room.must(not missing and not more, f"dead letters missing: {missing}, too many: {more}")
    came = sum(json.loads((folder / CHECKPOINT / "manifest" / f"{newest(folder / CHECKPOINT)}.json").read_text())[
        "document"]["body"]["counters"]["rows"].values())  # fmt: skip
    good = sum(map(len, rows))
    room.note("rows", f"{good} good + {len(letters)} dead letters = {came} that came")
    room.must(good + len(letters) == came, f"{good} + {len(letters)} is not {came}")
    room.equals(shop.judged({**found, "out.dead": []}), shop.expected(rows), "oracle over the good rows")


@contextmanager
def watched_memory(driver: Driver) -> Iterator[list[float]]:
    """The megabytes that a driver and all its children hold, looked at all the time."""
    seen, enough = [0.0], threading.Event()

    def look() -> None:
        while not enough.wait(0.05):
            seen.append(sum(map(resident, family(driver.process.pid))))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        enough.set()
        thread.join()


def family(process: int) -> list[int]:
    """A process and all that it has started."""
    found = [process]
    for one in found:
        try:
            tasks = os.listdir(f"/proc/{one}/task")
            for task in tasks:
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:
            continue
    return found


def resident(process: int) -> float:
    """Megabytes that a process has in memory."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
    except OSError:
        return 0.0


@case(
    26,
    "a 64 MB string, 100,000 fields, nesting of 1,000, a million rows of one key in a batch",
    passes="memory under its cap, the row a dead letter with its size, job alive",
)
def enormous_input(room: Room) -> None:
    """The three rows stand among good ones, each in its own file; then comes a file of a million rows of one shop.
    The heap is Spark's default of one gigabyte; the memory of all processes is watched."""
    rows = shop.orders(room.random, files=4, late=0)
    at = rows[1][0]["at"]
    fields = {**shop.order("wide", "s1", 1, shop.BEGIN + shop.SPAN), **{f"f{i}": i for i in range(100_000)}}
    huge = '{"id": "huge", "shop": "' + "x" * (64 * MEGABYTE) + f'", "amount": 1, "at": "{at}"}}'
    deep = f'{{"id": "deep", "shop": "s1", "amount": 1, "at": "{at}", "more": {"[" * 1000}{"]" * 1000}}}'
    files = shop.lines_of(rows)
    files[1][5:5] = [huge]
    files[2][5:5] = [json.dumps(fields)]
    files[3][5:5] = [deep]
    rows[2].insert(5, {name: fields[name] for name in ("id", "shop", "amount", "at")})
    million = shop.orders(room.random, files=1, rows=1_000_000, shops=1, late=0, begin=shop.BEGIN + 4 * shop.SPAN)
    folder = shop.prepare(room.folder / "enormous", [*files, *shop.lines_of(million)])
    with Driver(folder, quick=False) as driver, watched_memory(driver) as seen:
        ended = driver.wait()
    room.must(ended.code == 0, f"the job died: {ended.error}")
    room.note("most memory", f"{max(seen):.0f} MB of driver, Java and workers, under {CAP} MB")
    room.must(max(seen) < CAP, f"{max(seen):.0f} MB is above {CAP}")
    room.note("batches", [f"{line['batch']}: {line['rows']} rows in {line['seconds']} s" for line in ended.lines])
    found = tables(folder)
    letters = {row[5][:13]: row for row in found["out.dead"]}
    room.must(len(found["out.dead"]) == 2, f"there are {len(found['out.dead'])} dead letters, not 2")
    told = next(row[5] for name, row in letters.items() if "huge" in name)
    room.must(str(len(huge)) in told and len(told) < 10_000, f"the size is not told: {told[-100:]}")
    room.note(
        "dead letters", [f"{row[1]} {Path(row[4]).name} {row[5][:30]} ... {row[5][-40:]}" for row in found["out.dead"]]
    )
    room.equals(shop.judged({**found, "out.dead": []}), shop.expected([*rows, *million]), "oracle in plain Python")


@case(
    27,
    "the input file rewritten, shortened or deleted after it was planned; a column added, dropped, retyped",
    passes="refused by name, or the declared rule applied; never a mix in one batch",
    fast=True,
)
def moving_input(room: Room) -> None:
    """A run is killed when an output has batch 3; its file is rewritten, shortened or deleted, and each time the start
    must be refused; with the file back the job goes on. In another run no output has the batch yet: a corrected file
    counts as it is, whole. Then come a file with another column, one without a column and one with another type: the
    schema that the job declares decides."""
    folder = room.shop()
    room.killed(folder, "kill after_sink 3")
    path = folder / "in" / "003.json"
    content, times = path.read_bytes(), path.stat()
    lines = content.splitlines(keepends=True)
    acts = {"rewritten": b"".join(reversed(lines)), "shortened": b"".join(lines[:-5]), "deleted": None}
    for name, now in acts.items():
        if room.lab.fast and name == "shortened":
            continue
        path.write_bytes(now) if now is not None else path.unlink()
        room.note("file", f"003.json {name}")
        room.refused(folder, "003.json", "batch 3")
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    room.goes_on(folder)
    if not room.lab.fast:
        corrected(room)
    columns(room)


def corrected(room: Room) -> None:
    """A file that is corrected before any output has its batch counts as it is, and whole."""
    rows = shop.orders(room.random)
    folder = shop.prepare(room.folder / "corrected", shop.lines_of(rows))
    room.killed(folder, "kill before_sink 3")
    rows[3] = rows[3][::2]
    (folder / "in" / "003.json").write_text("".join(f"{line}\n" for line in shop.lines_of(rows)[3]))
    with Driver(folder) as driver:
        ended = driver.wait()
    room.must(ended.code == 0, f"with a corrected file: {ended.error}")
    room.note("corrected in time", f"batches {ended.batches}")
    room.equals(shop.judged(tables(folder)), shop.expected(rows), "oracle over the corrected file")


def columns(room: Room) -> None:
    """Columns come, go and change their type from file to file."""
    rows = shop.orders(room.random, late=0)
    files = [[dict(row) for row in here] for here in rows]
    for row in files[1]:
        row["colour"] = "green"
    for row in files[2]:
        del row["amount"]
    retyped = files[3][7]
    retyped["amount"] = "seven"
    folder, ended = ran(room, "columns", shop.lines_of(files))
    found = tables(folder)
    total = sum(row[2] or 0 for row in found["out.so_far"])
    without = sum(row["amount"] for number in (0, 1, 3, 4, 5) for row in files[number] if row is not retyped)
    room.must(total == without, f"the sum of amounts is {total}, declared rules give {without}")
    letters = [(row[1], json.loads(row[5])["id"]) for row in found["out.dead"]]
    room.must(letters == [("malformed", retyped["id"])], f"the dead letters are {letters}")
    counted = sum(row[1] for row in found["out.so_far"])
    room.must(counted == sum(map(len, files)) - 1, f"{counted} rows were counted")
    room.note("columns", f"added: ignored; dropped: null; retyped: dead letter {letters}; batches {ended.batches}")
