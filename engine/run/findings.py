"""What can be wrong with a checkpoint, and how it is mended."""

from __future__ import annotations

from dataclasses import dataclass

FROM_A_COPY = "Restore the whole checkpoint from one copy"


@dataclass(frozen=True)
class Repair:
    """How a fault is mended: the files that are moved aside, and those that are written as they were."""

    told: str
    aside: tuple[str, ...] = ()
    restored: tuple[tuple[str, str], ...] = ()  # name and content


@dataclass(frozen=True)
class Fault:
    """A file that is not as it must be: what is wrong with it and what that means; a repair where one is safe.

    >>> fault = Fault("spark/commits/7", "is empty", "it says that batch 7 is done", Repair("moves it aside"))
    >>> fault.told("checkpoints/shop")  # doctest: +ELLIPSIS
    'checkpoint checkpoints/shop: spark/commits/7 is empty: it says ... `penstock doctor FILE --repair` moves it aside.'
    """

    file: str
    wrong: str
    means: str
    repair: Repair | None = None

    @property
    def said(self) -> str:
        """The fault in one line, with the next move."""
        move = f"`penstock doctor FILE --repair` {self.repair.told}" if self.repair else FROM_A_COPY
        return f"{self.file} {self.wrong}: {self.means}. {move}."

    def told(self, path: str) -> str:
        """The same, with the checkpoint."""
        return f"checkpoint {path}: {self.said}"
