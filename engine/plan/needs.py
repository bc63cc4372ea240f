"""What a source or a sink needs of the Spark that runs the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """A Maven package, a class by which it is known to be there, and the settings that it asks for.

    The settings are made where Penstock starts Spark itself; a Spark that is given or submitted brings them.
    """

    who: str
    package: str
    probe: str
    settings: tuple[tuple[str, str], ...] = ()


def submit(needs: Sequence[Need]) -> str:
    """How a user gives them to Spark.

    >>> submit([Need("Kafka", "org.example:kafka:1.0", "org.example.Kafka"),
    ...         Need("Delta", "io.example:delta:4.0", "io.example.Delta", (("spark.sql.extensions", "Delta"),))])
    'spark-submit --packages org.example:kafka:1.0,io.example:delta:4.0 --conf spark.sql.extensions=Delta'
    """
    packages = ",".join(dict.fromkeys(need.package for need in needs))
    settings = dict.fromkeys(setting for need in needs for setting in need.settings)
    return f"spark-submit --packages {packages}" + "".join(f" --conf {name}={value}" for name, value in settings)
