"""An object store of one's own that speaks S3: moto's server, on loopback, gone when it is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from penstock.plan.errors import PenstockError

BUCKET = "penstock"
REGION = "us-east-1"


class S3:
    """A store with one empty bucket; ``url`` is its address, ``environment`` what a client must have set.

    It holds all in memory: what was put goes with the end of its process. A put on condition is honest, also
    when two come at once.

    >>> with S3() as store:  # doctest: +SKIP
    ...     subprocess.run(["penstock", "run", "job.py", "--checkpoint", f"{store.url}/job"], env=store.environment)
    """

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """The address of the bucket."""
        return f"s3://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """The variables by which a client finds the store and is let in."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "penstock",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        }

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with them."""
        return {**os.environ, **self.settings}

    def __enter__(self) -> S3:
        command = [sys.executable, "-m", "penstock.testing.servers.s3"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # a Ctrl-C on the terminal is for the program that uses the server
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            complained = self._process.communicate()[1]
            raise PenstockError(f"the S3 server does not start: {complained[-2000:].strip()}")
        self.port = int(said)
        # its log is not read, and a full pipe would stop it
        assert self._process.stderr is not None
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def pause(self) -> None:
        """Answer nobody from now on."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def one_at_a_time(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Let requests in one by one: moto looks for an object and then puts it, and another might come between."""
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start_response))

    return serve


def main() -> None:
    """Serve until killed; the first line on stdout is the port."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, REGION)
    application = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
