"""Does a topic still have what a job has yet to read?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.plan.errors import RunError

if TYPE_CHECKING:
    from penstock.sources.kafka_broker import Topic

ANEW = "Start the job with a new checkpoint and new outputs to compute from what is there"


class LostDataError(RunError):
    """A topic that no longer has what comes next."""


def check_topic_is_whole(
    topic: str, there: Topic, known: Mapping[str, Any], reached: Mapping[str, int] | None, step: str
) -> Mapping[str, Any]:
    """Refuse a topic that was made anew, or whose partitions lost or lack what was or comes next; its id, to be kept.

    ``reached`` are the offsets that come next by partition, as far as they are known; None when nothing was planned.
    """
    now = {"topic_id": there.id}
    if reached is None:
        return now
    check_topic_is_the_same(topic, there.id, known, step)
    for partition, wanted in sorted((int(p), int(o)) for p, o in reached.items()):
        where = f"{step}: topic {topic!r}, partition {partition}"
        if partition not in there.latest:
            raise LostDataError(
                f"{where} has gone: offset {wanted} comes next, and the topic has partitions 0 to "
                f"{max(there.latest)}. {ANEW}."
            )
        earliest, latest = there.earliest[partition], there.latest[partition]
        if wanted < earliest:
            raise LostDataError(
                f"{where} has lost {earliest - wanted} records that were not read: offset {wanted} comes next, and the "
                f"earliest there is {earliest}. Nothing is skipped. Bring them back, or: {ANEW[0].lower()}{ANEW[1:]}; "
                "a longer retention of the topic keeps it from happening again."
            )
        if wanted > latest:
            raise LostDataError(
                f"{where} has fewer records than were read: offset {wanted} comes next, and it ends at {latest} "
                f"(the earliest there is {earliest}). It was made anew or cut off. {ANEW}."
            )
    return now


def check_topic_is_the_same(topic: str, now: str, known: Mapping[str, Any], step: str) -> None:
    """Refuse a topic by its id when it has come in the place of the one that was read."""
    was = known.get("topic_id", now)
    if was != now:
        raise LostDataError(
            f"{step}: topic {topic!r} is not the one that this checkpoint has read: it was deleted and made anew "
            f"(its id was {was} and is {now}), so offsets mean other records. {ANEW}."
        )


def topic_has_gone(topic: str, servers: str, step: str) -> LostDataError:
    """A topic that was read is no longer there at all."""
    return LostDataError(
        f"{step}: topic {topic!r} has gone from {servers}, with what was not read of it. A topic made anew would have "
        f"other records at its offsets. Bring it back, or: {ANEW[0].lower()}{ANEW[1:]}."
    )
