"""A real job with planted secrets, failed once by force: nobody can read them anywhere, and nobody else can call it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import jobfile
from penstock.testing.servers.kafka import Kafka
from penstock.testing.servers.postgres import Postgres

PASSWORD, TRUST = "planted-in-a-file-7f3a", "planted-in-the-environment-c91e"
PEM = "planted-under-a-name-that-says-nothing-of-it-52d0"

JOB = """
import os
from penstock import Job, sinks, sources
from penstock.windows import tumbling

job = Job("secretive")
source = sources.kafka("views", os.environ["SERVERS"], format="json", schema="url string, n int, at timestamp",
                       **{"kafka.ssl.truststore.password": "env:TRUST", "kafka.ssl.keystore.key": "env:PEM"})
views = job.stream("views", source, time="at", lateness="0 seconds")
job.dead_letters(sinks.postgres("dead", "file:database.url"))
if "FORCE" in os.environ:
    views = views.where("if(n = 3, raise_error('by force') is null, true)")
hourly = views.by("url").window(tumbling("1 hour")).agg(n="count(*)")
hourly.to(sinks.postgres("hourly", "file:database.url"))
hourly.to(sinks.kafka("copy", os.environ["SERVERS"], **{"kafka.ssl.keystore.key": "env:PEM"}))

if __name__ == "__main__":
    job.run()
"""


def family(pid: int) -> set[int]:
    """A process and all that it started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """The addresses at which processes take connections, by TCP or UDP."""
    inodes = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(handle)))
    found = set()
    for table, kind in (
        ("tcp", socket.AF_INET),
        ("tcp6", socket.AF_INET6),
        ("udp", socket.AF_INET),
        ("udp6", socket.AF_INET6),
    ):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[9] in inodes and parts[3] in ("0A", "07"):  # listening; a UDP socket without a peer
                address, port = parts[1].split(":")
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                found.add((socket.inet_ntop(kind, b"".join(words)), int(port, 16)))
    return found


def pages(port: int) -> Iterator[tuple[str, str]]:
    """What Spark's own pages show of the job."""

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    (application,) = json.loads(page("/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    queries = [f"/SQL/execution/?id={one['id']}" for one in json.loads(page(f"{api}/sql?length=100"))]
    for path in ("/jobs/", "/stages/", "/environment/", "/executors/", "/SQL/", f"{api}/environment", *queries):
        yield f"page {path}", page(path)
    yield "all queries", page(f"{api}/sql?details=true&planDescription=true&length=100")


class Seen:
    """All that somebody beside the job can read, by where it was."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.listening: set[tuple[str, int]] = set()
        self.rows: list[tuple[object, ...]] = []
        self.folder = Path()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secretive")
    seen = Seen()
    seen.folder = folder
    (folder / "job.py").write_text(JOB)
    with Kafka() as broker, Postgres() as database:
        (folder / "database.url").write_text(database.url.replace("postgres@", f"postgres:{PASSWORD}@"))
        broker.create_topic("views")
        broker.create_topic("copy")
        broker.send(
            "views", [json.dumps({"url": f"/{n}", "n": n, "at": f"2026-01-01 {10 + n}:00:00"}) for n in range(5)]
        )
        environment = {**os.environ, "SERVERS": broker.servers, "TRUST": TRUST, "PEM": PEM}
        penstock = [str(Path(sys.executable).with_name("penstock"))]

        def ask(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
            told = subprocess.run(
                [*penstock, *command],
                cwd=folder,
                env={**environment, **more},
                capture_output=True,
                text=True,
                timeout=300,
            )
            seen.texts[f"{' '.join(command)} {more}"] = told.stdout + told.stderr
            return told

        failed = ask("--trace", "run", "job.py", "--once", FORCE="yes")
        assert failed.returncode == 1
        assert "by force" in failed.stderr
        alive = subprocess.Popen(
            [*penstock, "run", "job.py"], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert alive.stdout is not None
            first = alive.stdout.readline()
            assert first, alive.communicate()[1]
            processes = family(alive.pid)
            seen.listening = listening(processes)
            for pid in processes:
                with contextlib.suppress(OSError):
                    seen.texts[f"command of {pid}"] = Path(f"/proc/{pid}/cmdline").read_text()
            (shown,) = {port for _, port in seen.listening if 4040 <= port < 4060}
            seen.texts |= dict(pages(shown))
            alive.send_signal(signal.SIGTERM)
            rest, complained = alive.communicate(timeout=120)
            seen.texts["the run"] = first + rest + complained
            assert alive.returncode == 0, complained
        finally:
            alive.kill()
        for command in ("explain", "graph", "check", "doctor", "state"):
            ask(command, "job.py")
        with psycopg.connect(database.url) as connection:
            seen.rows = connection.execute("select url, n from hourly order by url").fetchall()
            for (table,) in connection.execute(
                "select tablename from pg_tables where schemaname = 'public'"
            ).fetchall():
                seen.texts[f"table {table}"] = str(connection.execute(f'select * from "{table}"').fetchall())
    for path in (folder / "checkpoints").rglob("*"):
        if path.is_file():
            seen.texts[f"file {path}"] = path.read_bytes().decode(errors="replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVERS", "127.0.0.1:1")
        job = jobfile.load(str(folder / "job.py"))
        parts = [*job.inputs, *job.outputs, *(node.source for node in job.inputs), *(o.sink for o in job.outputs)]
        seen.texts["repr"] = repr([job, *parts])
    return seen


def test_the_secrets_were_used(seen):
    assert seen.rows == [("/0", 1), ("/1", 1), ("/2", 1), ("/3", 1)]


def test_a_planted_secret_is_found_nowhere(seen):
    assert len(seen.texts) > 40
    assert any("manifest/0.json" in place for place in seen.texts)
    assert any("_penstock_ledger" in place for place in seen.texts)
    assert "SaveIntoDataSourceCommand" in seen.texts["all queries"]  # how Spark shows a batch that goes to Kafka
    planted = (PASSWORD, TRUST, PEM)
    assert [place for place, text in seen.texts.items() if any(secret in text for secret in planted)] == []


def test_every_port_of_a_running_job_is_on_loopback(seen):
    assert len(seen.listening) >= 3  # Spark's page, its blocks, and its link to Python at the least
    strangers = {a for a, _ in seen.listening if not a.startswith(("127.", "::ffff:127.")) and a != "::1"}
    assert strangers == set()


def test_the_checkpoint_is_private_down_to_each_file(seen):
    root = seen.folder / "checkpoints" / "secretive"
    ours = [path for path in (root, *root.rglob("*")) if "spark" not in path.relative_to(root).parts[:-1]]
    assert len(ours) > 10
    open_to_others = [str(p) for p in ours if p.stat().st_mode & 0o777 != (0o700 if p.is_dir() else 0o600)]
    assert open_to_others == []
