"""Does Spark's part of a checkpoint belong to the state beside it, and can Spark go on from it?

After batch M Spark's newest plan is that of batch M or of M + 1, and what it knows to be done is at most M.
Plans that are torn or gone are written again as they were, from what was kept of them before outputs were given the
batch. One of which no output was given anything may be made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.run.begun import Begun
from penstock.run.findings import Fault, Repair
from penstock.run.source_logs import source_faults
from penstock.run.spark_log import COMMITS, METADATA, OFFSETS, SparkLog, TornError, beside

COPIES = "they belong to different copies"
AS_IT_WAS = "writes it again as it was"


@dataclass(frozen=True)
class SparkPart:
    """Spark's log beside what we know of it.

    ``state`` is the batch of the newest state, -1 before the first; ``begun`` the newest batch that outputs may hold,
    None where nobody said; ``known`` what batches were made from.
    """

    log: SparkLog
    state: int
    begun: Begun | None
    known: Mapping[int, Begun]

    def faults(self) -> Iterator[Fault]:
        """All that is wrong."""
        planned, done = self.log.planned(), self.log.committed()
        if not planned and (self.state >= 0 or self.begun is not None):
            yield Fault(OFFSETS, "is empty or gone", "it says what has been read")
            return
        yield from self._identity(bool(planned))
        if not planned:
            return
        last = planned[-1]
        must = max(self.state, self.begun.batch if self.begun else -1, *done[-1:])
        if must > last:
            yield self._gone(must, last)
            return
        plans = [fault for batch in (last - 1, last) if batch >= 0 and (fault := self._plan(batch, last))]
        yield from plans
        if self.state not in (last - 1, last):
            state = "there is no state" if self.state < 0 else f"the state is of batch {self.state}"
            yield Fault(f"{OFFSETS}/{last}", f"is of batch {last}, and {state}", COPIES)
        elif not plans:
            yield from source_faults(self.log, self.log.offsets(last))
            yield from self._commits(done, last)

    def _identity(self, planned: bool) -> Iterator[Fault]:
        """Spark's own name for the query."""
        query = self.known[max(self.known)].query if self.known else None
        means = "Spark would begin a new query on an old checkpoint"
        again = (((METADATA, f'{{"id":"{query}"}}'),)) if query is not None else ()
        try:
            found = self.log.query_id()
        except FileNotFoundError:
            if planned or self.known:
                yield Fault(METADATA, "is missing", means, Repair(AS_IT_WAS, (), again) if again else None)
        except TornError as torn:
            repair = Repair(AS_IT_WAS, _both(METADATA), again) if again else None
            if not planned and not self.known:
                repair = Repair("moves it aside: nothing has been read yet", _both(METADATA))
            yield Fault(METADATA, str(torn), means, repair)
        else:
            if query not in (None, found):
                yield Fault(METADATA, f"is of query {found}, and the state of query {query}", COPIES)

    def _gone(self, must: int, last: int) -> Fault:
        """A plan that was there: the state, an output or Spark itself has its batch."""
        name, wrong = f"{OFFSETS}/{must}", f"is missing; Spark's part ends with batch {last}"
        if must == last + 1 and must in self.known:
            again = Repair(AS_IT_WAS, (beside(name),), ((name, self.known[must].offsets),))
            return Fault(name, wrong, f"it says what batch {must} has read", again)
        return Fault(name, wrong, f"ours with batch {must}, so {COPIES}")

    def _plan(self, batch: int, last: int) -> Fault | None:
        """What is wrong with one of the two plans that Spark goes on from."""
        name, means = f"{OFFSETS}/{batch}", f"it says what batch {batch} has read"
        known = self.known.get(batch)
        try:
            text = self.log.offsets(batch)
            # a plan that was cut between two sources looks whole
            cut = any(text.count("\n") != other.offsets.count("\n") for other in self.known.values())
            wrong = "is cut" if cut else None
            if wrong is None and known is not None and known.offsets != text:
                return Fault(name, "is not the plan that the batch was made by", COPIES)
        except FileNotFoundError:
            wrong = "is missing"
        except TornError as torn:
            wrong = str(torn)
        if wrong is None:
            return None
        if known is not None:
            return Fault(name, wrong, means, Repair(AS_IT_WAS, _both(name), ((name, known.offsets),)))
        never_begun = self.begun.batch < batch if self.begun is not None else self.state < 0 == batch
        if batch == last and never_begun:
            # nobody has written it, so that Spark may plan it anew
            said = f"moves it aside: batch {batch} had not come to its outputs"
            return Fault(name, wrong, means, Repair(said, _both(name)))
        return Fault(name, wrong, means)

    def _commits(self, done: list[int], last: int) -> Iterator[Fault]:
        if not done:
            return
        batch = done[-1]
        name, means = f"{COMMITS}/{batch}", f"it says that batch {batch} is done"
        # Spark then runs its newest plan again: the state is as it was before it, or the batch is skipped
        again = Repair("moves it aside: the batch is run again, and what is written already is skipped", _both(name))
        try:
            self.log.commit(batch)
        except TornError as torn:
            yield Fault(name, str(torn), means, again)
        else:
            if batch > self.state:
                state = "has none yet" if self.state < 0 else f"is of batch {self.state}"
                means = f"the state {state}, so they are of different moments or different copies"
                yield Fault(name, f"says that batch {batch} is done", means, again if batch == last else None)


def _both(name: str) -> tuple[str, ...]:
    return name, beside(name)
