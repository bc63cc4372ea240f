"""One tree of errors: catch ``PenstockError`` for all, or the part that you can do something about."""

from __future__ import annotations


class PenstockError(Exception):
    """Anything that Penstock itself refuses or reports."""


class PlanError(PenstockError, ValueError):
    """A job that makes no sense as written; raised on the line that wrote it."""


class UnknownColumnError(PlanError):
    """A name that the input does not have.

    ``column`` is the name, ``columns`` what there is.
    """

    def __init__(self, message: str, column: str, columns: tuple[str, ...]) -> None:
        super().__init__(message)
        self.column = column
        self.columns = columns


class UnsupportedPlanError(PlanError):
    """A plan that is right but that this version cannot run."""


class JobFileError(PenstockError):
    """A job file that cannot be found, imported, or that holds no job."""


class RunError(PenstockError):
    """A run that failed; ``step`` and ``written_at`` say where, ``java`` holds Spark's own trace."""

    def __init__(
        self, message: str, step: str | None = None, written_at: str | None = None, java: str | None = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.written_at = written_at
        self.java = java


class BadRowError(RunError):
    """A row that cannot be used came to a job that has no dead letters."""


class JavaNotFoundError(PenstockError):
    """There is no Java runtime of version 17 or newer."""


class CheckpointError(PenstockError):
    """A checkpoint that is damaged, is no checkpoint, or belongs to something else."""


class CheckpointInUseError(CheckpointError):
    """Another live run works on this checkpoint."""


class PlanChangedError(CheckpointError):
    """The job no longer fits the state in its checkpoint."""


class FencedError(PenstockError):
    """A newer run of the same job has taken over; this one may not write any more."""


class SinkError(PenstockError):
    """An output that cannot be written, or that somebody else owns."""


class TransientSinkError(SinkError):
    """An output that cannot be written now, and perhaps can soon: the batch is tried again before the job fails.

    A function of ``sinks.call`` raises it to be called again with the same batch.
    """
