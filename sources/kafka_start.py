"""Where a topic is read from when a job has no checkpoint yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from penstock.plan.errors import PlanError, RunError
from penstock.plan.written import written_at

if TYPE_CHECKING:
    from penstock.sources.kafka_broker import Topic

#: A word, a time in milliseconds since 1970, or the offsets of partitions.
Start = str | int | tuple[tuple[int, int], ...]

EARLIEST = -2  # as Spark's connector writes it
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def read_start(value: Any, step: str) -> Start:
    """The start that a job describes, refused when it is none.

    >>> read_start("1970-01-01 00:00:02", "kafka")
    2000
    >>> read_start({1: 17}, "kafka")
    ((1, 17),)
    """
    if value in ("earliest", "latest"):
        return str(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError:
            raise _no_start(value, step) from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return (aware - EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, Mapping) and value:
        pairs = tuple(sorted((p, o) for p, o in value.items() if _is_count(p) and _is_count(o)))
        if len(pairs) == len(value):
            return pairs
    raise _no_start(value, step)


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _no_start(value: Any, step: str) -> PlanError:
    return PlanError(
        f"{step}: start={value!r}; there is 'earliest', 'latest', a time such as '2026-01-01 10:00:00', "
        f"and offsets by partition such as {{0: 17, 1: 4}}. ({written_at()})"
    )


def check_start(start: Start, topic: str, there: Topic, step: str) -> None:
    """Refuse offsets that the topic does not have."""
    for partition, offset in start if isinstance(start, tuple) else ():
        if partition not in there.latest:
            raise RunError(
                f"{step}: start= names partition {partition}; topic {topic!r} has partitions 0 to {max(there.latest)}."
            )
        if not there.earliest[partition] <= offset <= there.latest[partition]:
            raise RunError(
                f"{step}: start= names offset {offset} of topic {topic!r}, partition {partition}, "
                f"which has {there.earliest[partition]} to {there.latest[partition]}. Name one of those."
            )


def starting(start: Start, topic: str, partitions: list[int]) -> dict[str, str]:
    """The start as options of Spark's connector, which wants every partition named; ours are then the earliest.

    >>> starting(((1, 17),), "clicks", [0, 1])
    {'startingOffsets': '{"clicks": {"0": -2, "1": 17}}'}
    """
    if isinstance(start, str):
        return {"startingOffsets": start}
    if isinstance(start, int):
        # a partition without a record of that time begins with its next one
        return {"startingTimestamp": str(start), "startingOffsetsByTimestampStrategy": "latest"}
    offsets = {**dict.fromkeys(partitions, EARLIEST), **dict(start)}
    return {"startingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(offsets.items())}})}


def told_start(start: Start) -> str:
    """The start in words.

    >>> told_start(2000), told_start(((1, 17),))
    ('1970-01-01T00:00:02+00:00', 'offset 17 of partition 1')
    """
    if isinstance(start, str):
        return f"the {start}"
    if isinstance(start, int):
        return (EPOCH + timedelta(milliseconds=start)).isoformat()
    return ", ".join(f"offset {offset} of partition {partition}" for partition, offset in start)
