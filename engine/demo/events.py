"""An hour of a small web shop, made from a seed: what happened, and what arrived when."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random

SEED = 7
MINUTE = timedelta(minutes=1)
START = datetime(2026, 3, 13, 20, tzinfo=timezone.utc)  # a Friday evening
END = START + timedelta(hours=1)
# the shop does not close: events after the hour move time on until the hour's last window closes
PLAYED_UNTIL = END + 14 * MINUTE
DOWN, UP = START + 25 * MINUTE, START + 35 * MINUTE  # the phone network
WRONG_CLOCK = datetime(2099, 12, 31, 23, 58, tzinfo=timezone.utc)

# path: how often, and how long the page takes to load
PATHS = {
    "/": (22, 180),
    "/p/lamp": (20, 260),
    "/p/chair": (17, 270),
    "/p/desk": (12, 290),
    "/search": (12, 420),
    "/cart": (9, 230),
    "/checkout": (5, 610),
    "/help": (3, 150),
}
PHONES = 0.5
STRAGGLERS = 6
WRONG_CLOCK_VIEWS = 3


@dataclass(frozen=True)
class Arrival:
    """A line as it reaches the shop's server; ``at`` is None where no event time can be read from it."""

    received: datetime
    at: datetime | None
    line: str


def arrivals(seed: int = SEED) -> list[Arrival]:
    """All that arrives, in order of arrival: the same for the same seed."""
    random = Random(seed)
    found = []
    for minute in range((PLAYED_UNTIL - START) // MINUTE):
        for _ in range(_views_in(minute, random)):
            at = START + (minute + random.random()) * MINUTE
            found.append(_view(at, random))
    found += [_straggler(number, random) for number in range(STRAGGLERS)]
    found += [_from_wrong_clock(number, random) for number in range(WRONG_CLOCK_VIEWS)]
    found.append(Arrival(START + 17.4 * MINUTE, None, '{"visitor": "v0042", "device": "phone", "path": "/ca'))
    return sorted((a for a in found if a.received < PLAYED_UNTIL), key=lambda a: a.received)


def _views_in(minute: int, random: Random) -> int:
    """An evening's rise and fall, a little uneven."""
    rate = 62 + 66 * math.exp(-(((minute - 33) / 21) ** 2))
    return round(random.gauss(rate, 0.4 * math.sqrt(rate)))


def _view(at: datetime, random: Random) -> Arrival:
    if random.random() >= PHONES:
        return _arrival(at, at + timedelta(seconds=0.2 + 2 * random.random()), "desktop", random)
    received = at + timedelta(seconds=0.5 + random.expovariate(1 / 12))
    if DOWN <= at < UP:
        # a phone keeps what it cannot send, and sends it all once the network is back
        received = UP + timedelta(seconds=100 * random.random())
    return _arrival(at, received, "phone", random)


def _straggler(number: int, random: Random) -> Arrival:
    """A phone that was out of reach for half an hour: later than the job waits."""
    at = START + (3 + 2 * number + random.random()) * MINUTE
    return _arrival(at, at + (31 + 5 * random.random()) * MINUTE, "phone", random)


def _from_wrong_clock(number: int, random: Random) -> Arrival:
    """A phone whose clock is generations ahead; taken at its word it would close every window."""
    at = WRONG_CLOCK + number * MINUTE
    return _arrival(at, START + (21 + number + random.random()) * MINUTE, "phone", random)


def _arrival(at: datetime, received: datetime, device: str, random: Random) -> Arrival:
    path = random.choices(list(PATHS), [often for often, _ in PATHS.values()])[0]
    slower = 1.6 if device == "phone" else 1.0
    event = {
        "visitor": f"v{random.randrange(900):04}",
        "device": device,
        "path": path,
        "load_ms": round(PATHS[path][1] * slower * random.lognormvariate(0, 0.35)),
        "at": _told(at),
        "received": _told(received),
    }
    return Arrival(_milliseconds(received), _milliseconds(at), json.dumps(event))


def _milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _told(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def by_minute_received(found: Iterable[Arrival]) -> list[list[Arrival]]:
    """The arrivals cut into the minutes in which the server received them."""
    minutes: list[list[Arrival]] = [[] for _ in range((PLAYED_UNTIL - START) // MINUTE)]
    for arrival in found:
        minutes[(arrival.received - START) // MINUTE].append(arrival)
    return minutes


def received_per_minute(found: Iterable[Arrival]) -> Mapping[datetime, int]:
    """What a count by processing time would show: lines by the minute in which they arrived."""
    return Counter(START + (a.received - START) // MINUTE * MINUTE for a in found if a.received < END)
