"""What a source or a sink needs of the Spark that runs the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """A Maven package, a class by which it is known to be there, and the settings that it asks for.

    The settings are made where Penstock starts Spark itself; a Spark that is given or submitted brings them.

    >>> Need("kafka", "org.example:kafka:1.0", "org.example.Kafka").submit()
    'spark-submit --packages org.example:kafka:1.0'
    """

    who: str
    package: str
    probe: str
    settings: tuple[tuple[str, str], ...] = ()

    def submit(self) -> str:
        """How a user gives it to Spark."""
        settings = "".join(f" --conf {name}={value}" for name, value in self.settings)
        return f"spark-submit --packages {self.package}{settings}"
