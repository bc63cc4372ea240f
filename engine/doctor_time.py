"""Why nothing comes out: how far each input's time has come, who holds it back, and what would come next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from penstock.compile.layout import Layout
from penstock.plan.durations import micros, spoken
from penstock.plan.input import Input
from penstock.run.clock import Clock, InputTime, StepTime, loading
from penstock.state.manifest import Manifest

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
PATIENCE_US = 60_000_000  # an input that is silent for less, while others speak, is only slow


def instant(us: int | None) -> str:
    """A time as people read it.

    >>> instant(1_767_225_600_000_000)
    '2026-01-01 00:00:00Z'
    """
    if us is None:
        return "no time"
    try:
        moment = EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return "the end of time" if us > 0 else "the beginning of time"
    return moment.replace(tzinfo=None).isoformat(" ", "auto") + "Z"


def length(us: int) -> str:
    """A length of time in its two largest units.

    >>> length(3_723_000_001)
    '1 hour 2 minutes'
    """
    words = spoken(timedelta(microseconds=max(us, 0))).split()
    return " ".join(words[:4])


@dataclass(frozen=True)
class Times:
    """The clock of a job after its newest batch, seen from the wall."""

    layout: Layout
    manifest: Manifest
    now_us: int

    @property
    def clock(self) -> Clock:
        """As the manifest has it."""
        return Clock.from_json(self.manifest.body["clock"])

    @property
    def steps(self) -> Mapping[str, StepTime]:
        """By which inputs each step of the plan goes."""
        return {step.name: StepTime.of(step) for step in self.layout.stages}

    def inputs(self) -> Iterator[str]:
        """Each input, and how far it has come."""
        for node in self._timed():
            time = self.clock.inputs.get(node.name)
            if time is None or not time.spoke_us:
                yield f"'{node.name}' has brought no row yet{self._idle(node, time)}"
                continue
            newest = min(time.newest_us.values())
            slow = "" if len(time.newest_us) == 1 else f"{self._slowest(time)}; "
            yield (
                f"'{node.name}' has come to {instant(time.watermark_us)}: {slow}newest event {instant(newest)}, less "
                f"its lateness of {spoken(node.lateness)}; its last row came {self._ago(max(time.spoke_us.values()))}"
                f"{self._idle(node, time)}"
            )

    def stuck(self) -> Iterator[tuple[bool, str]]:
        """Who holds time back, and whether that needs a hand; nobody where all inputs go on together."""
        steps: dict[str, list[str]] = {}
        for step, time in self.steps.items():
            if (name := self._holder(time)) is not None:
                steps.setdefault(name, []).append(step)
        for name, held in steps.items():
            told = ", ".join(f"'{step}'" for step in held)
            if (node := self._node(name)) is not None:
                yield self._told(node, told)
            else:
                loaded = next((i.name for i in self.layout.inputs if loading(i.name) == name), name)
                yield False, f"{told} waits until the input '{loaded}' has been read to its end once"

    def next(self) -> Iterator[str]:
        """What each step waits for."""
        for step in self.steps:
            wakes = [w for w in self.manifest.body["wakes"].get(step, {}).values() if w is not None]
            rows = sum(r.live for sets in self.manifest.steps.get(step, {}).values() for s in sets.values() for r in s)
            kept = f"'{step}' keeps {rows:,} row{'' if rows == 1 else 's'}"
            mark = self.clock.steps.get(step)
            if not wakes:
                yield f"{kept} and waits for no time"
            elif mark is None:
                yield f"{kept}; the next is due at {instant(min(wakes))}, and its time has not begun"
            else:
                due = min(wakes)
                events = [f"'{name}' at {instant(us)}" for name, us in self.wanted(step, due).items()]
                brought = f", with an event of {' and one of '.join(events)} or later" if events else ""
                yield (
                    f"{kept}; the next is due at {instant(due)}, its time is {instant(mark)}: "
                    f"{length(due - mark)} to go{brought}"
                )

    def wanted(self, step: str, due_us: int) -> dict[str, int]:
        """The event times of its inputs that would bring a step that far; none for those that are there already."""
        time, wanted = self.steps[step], {}
        for name in time.inputs:
            node, own = self._node(name), self.clock.inputs.get(name)
            if node is None or (own is not None and own.idle):
                continue
            needs = due_us + time.lag_us
            if own is None or own.watermark_us is None or own.watermark_us < needs:
                wanted[name] = needs + micros(node.lateness)
        return wanted

    def _told(self, node: Input, steps: str) -> tuple[bool, str]:
        time = self.clock.inputs.get(node.name)
        others = [(n, t) for n in self._beside(node.name) if (t := self.clock.inputs.get(n)) and not t.idle]
        if time is None or time.watermark_us is None:
            said = f"the input '{node.name}' holds time back in {steps}: it has brought no row yet"
            silent = True
        else:
            ahead = max(((t.watermark_us or time.watermark_us) - time.watermark_us for _, t in others), default=0)
            further = [f"'{n}' to {instant(t.watermark_us)}" for n, t in others]
            against = f", {' and '.join(further)}: {length(ahead)} apart" if ahead else ""
            spoke = self._slow_spoke(time)
            # of what came since the newest batch nobody knows, and where all are silent nobody is waited for
            heard = max(us for t in (time, *(t for _, t in others)) for us in t.spoke_us.values())
            silent = heard - spoke >= PATIENCE_US
            said = (
                f"the input '{node.name}' holds time back in {steps}: it has come to {instant(time.watermark_us)}"
                f"{against}, {length(self.now_us - time.watermark_us)} behind the wall clock; {self._who(time)}"
                f"its last row came {self._ago(spoke)}"
            )
        if node.idle_after is not None:
            return False, f"{said}. After {spoken(node.idle_after)} of silence time goes on without it"
        return silent, f"{said}. Time waits for it: give it rows, or idle_after=... in job.stream('{node.name}', ...)"

    def _holder(self, time: StepTime) -> str | None:
        """The input by which a step's time goes, where others are further on; None when it is the only one."""
        known = {n: self.clock.inputs.get(n) for n in time.inputs}
        awake = {n: t for n, t in known.items() if t is None or not t.idle}
        silent = [n for n, t in awake.items() if t is None or t.watermark_us is None]
        if silent:
            return silent[0]
        if not awake:
            return None
        marks = {n: t.watermark_us for n, t in awake.items() if t is not None and t.watermark_us is not None}
        slowest = min(marks, key=marks.__getitem__)
        return slowest if len(set(marks.values())) > 1 or self._spread(awake[slowest]) else None

    @staticmethod
    def _spread(time: InputTime | None) -> bool:
        """True when an input's partitions stand at different times."""
        return time is not None and len(set(time.newest_us.values())) > 1

    def _who(self, time: InputTime) -> str:
        return f"{self._slowest(time)}; " if self._spread(time) else ""

    @staticmethod
    def _slowest(time: InputTime) -> str:
        slow, fast = (pick(time.newest_us, key=time.newest_us.__getitem__) for pick in (min, max))
        apart = time.newest_us[fast] - time.newest_us[slow]
        return f"of its {len(time.newest_us)} partitions {slow} is the slowest, {length(apart)} behind {fast}"

    @staticmethod
    def _slow_spoke(time: InputTime) -> int:
        """When the partition spoke last by which the input goes."""
        return time.spoke_us[min(time.newest_us, key=time.newest_us.__getitem__)]

    def _idle(self, node: Input, time: InputTime | None) -> str:
        if time is not None and time.idle:
            return "; it is idle, and time goes on without it"
        return "" if node.idle_after is None else f"; idle after {spoken(node.idle_after)} of silence"

    def _ago(self, us: int) -> str:
        return f"{length(self.now_us - us)} ago ({instant(us // 1_000_000 * 1_000_000)})"

    def _timed(self) -> list[Input]:
        return [i for i in self.layout.inputs if i.timed and not i.processing]

    def _node(self, name: str) -> Input | None:
        return next((i for i in self._timed() if i.name == name), None)

    def _beside(self, name: str) -> list[str]:
        """The other inputs of the steps that an input reaches."""
        met = (n for time in self.steps.values() if name in time.inputs for n in time.inputs)
        return [n for n in dict.fromkeys(met) if n != name]
