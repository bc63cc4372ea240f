"""What a case is: a fault with a number, done to real processes, and the evidence of what came of it."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faults.room import Room

#: All cases by their numbers; a module of cases fills it when it is imported.
CASES: dict[int, Case] = {}


class CaseFailed(AssertionError):
    """What was promised did not come true."""


class CannotRun(Exception):
    """A case that this machine cannot show; it counts as failed, with the reason."""


@dataclass(frozen=True)
class Case:
    """One fault: what it is, what is done (the docstring of ``act``), and when it passes."""

    number: int
    fault: str
    passes: str
    act: Callable[[Room], None]
    fast: bool

    @property
    def done(self) -> str:
        """What is done, in a sentence or two."""
        return inspect.cleandoc(self.act.__doc__ or "").replace("\n", " ")


@dataclass(frozen=True)
class Result:
    """A case that has been tried."""

    case: Case
    seconds: float
    evidence: tuple[tuple[str, str], ...]
    failure: str | None
    trace: str = ""

    @property
    def passed(self) -> bool:
        """True when all that was promised came true."""
        return self.failure is None


def case(number: int, fault: str, *, passes: str, fast: bool = False) -> Callable[[Callable[[Room], None]], Case]:
    """Make a function the case of that number; ``fast`` ones are in ``make test`` too."""

    def made(act: Callable[[Room], None]) -> Case:
        if number in CASES:
            raise ValueError(f"case {number} is there already: {CASES[number].fault}")
        CASES[number] = Case(number, fault, passes, act, fast)
        return CASES[number]

    return made


def tried(chosen: Case, room: Room) -> Result:
    """Run a case; what it raises is its failure, and nothing else ends with it."""
    began = time.monotonic()
    failure, trace = None, ""
    try:
        chosen.act(room)
    except (CaseFailed, CannotRun) as error:
        failure = f"{'cannot run here: ' if isinstance(error, CannotRun) else ''}{error}"
    except Exception as error:
        failure, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    finally:
        room.close()
    return Result(chosen, time.monotonic() - began, tuple(room.evidence), failure, trace)
