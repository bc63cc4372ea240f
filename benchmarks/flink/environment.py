"""Flink in an environment of its own, beside the repository's: its packages do not go together with ours."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from penstock.run import java

FLINK = "2.3.0"
PLACE = Path(__file__).parents[2] / ".bench"
ENVIRONMENT = PLACE / f"flink-{FLINK}"
PYTHON = ENVIRONMENT / "bin" / "python"
READY = ENVIRONMENT / "ready"


def java_home() -> Path:
    """The Java that Spark uses too."""
    home = java.find()
    if home is None:
        raise RuntimeError("no Java 17 or newer: install one, or `pip install penstock[java]`")
    return home


def install() -> Path:
    """The Python that has Flink; the first call takes two minutes and 900 MB."""
    if not READY.exists():
        print(f"installing Flink {FLINK} into {ENVIRONMENT}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"apache-flink=={FLINK}"], check=True)
        READY.touch()
    _add_parquet(_jars())
    return PYTHON


def _jars() -> Path:
    """The folder of jars that Flink starts with."""
    (found,) = ENVIRONMENT.glob("lib/python*/site-packages/pyflink/lib")
    return found


def _add_parquet(jars: Path) -> None:
    """Flink's reader of parquet, by the Ivy in PySpark; the Hadoop classes that it needs are in PySpark too."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    sparks = Path(spec.origin).parent / "jars"
    for jar in sparks.glob("hadoop-client-*.jar"):
        if not (jars / jar.name).exists():
            (jars / jar.name).unlink(missing_ok=True)  # it named an environment that is gone
            (jars / jar.name).symlink_to(jar)
    if not (jars / f"flink-sql-parquet-{FLINK}.jar").exists():
        (ivy,) = sparks.glob("ivy-*.jar")
        command = [java_home() / "bin" / "java", "-jar", ivy, "-cache", PLACE / "ivy", "-confs", "default"]
        command += ["-dependency", "org.apache.flink", "flink-sql-parquet", FLINK, "-notransitive"]
        command += ["-retrieve", jars / "[artifact]-[revision].[ext]"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
