"""Time is data: how far each input has come, kept in the manifest and moved by what a batch brings.

Nothing here looks at a real clock: the wall time is the batch's own, from the log, so that a batch that
is run again sees the same time again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.plan.durations import BEGINNING_US, END_US, micros
from penstock.plan.input import Input
from penstock.plan.node import Node, step_name, walk
from penstock.plan.step import Step

Newest = Mapping[str, Mapping[int, int]]  # input -> source partition -> newest event time seen


@dataclass(frozen=True)
class Rules:
    """How an input's time moves; ``processing`` time is the wall's.

    ``loads`` is the time of an input that is being loaded: there is none until a batch brings no row of it, and
    then it is idle: it holds nobody back, and moves nobody.
    """

    lateness_us: int = 0
    idle_after_us: int | None = None
    processing: bool = False
    loads: bool = False

    @classmethod
    def of(cls, node: Input) -> Rules:
        """The rules that ``job.stream`` gave."""
        idle = None if node.idle_after is None else micros(node.idle_after)
        return cls(micros(node.lateness), idle, node.processing)


@dataclass(frozen=True)
class InputTime:
    """How far one input has come: per source partition the newest event, and when it last spoke."""

    since_us: int  # wall time of the first batch
    newest_us: Mapping[int, int] = field(default_factory=dict)
    spoke_us: Mapping[int, int] = field(default_factory=dict)
    watermark_us: int | None = None
    idle: bool = False

    def moved(self, rules: Rules, newest: Mapping[int, int], wall_us: int) -> InputTime:
        """After a batch that brought these newest times; the watermark never goes back."""
        if rules.loads:
            return self if newest else replace(self, watermark_us=END_US, idle=True)
        if rules.processing:
            newest = {0: max([wall_us, *newest.values()])}
        furthest = {p: max(t, self.newest_us.get(p, t)) for p, t in newest.items()}
        times = {**self.newest_us, **furthest}
        spoke = {**self.spoke_us, **dict.fromkeys(newest, wall_us)}
        awake = [p for p in times if rules.idle_after_us is None or wall_us - spoke[p] < rules.idle_after_us]
        silent_us = wall_us - max(spoke.values(), default=self.since_us)
        idle = rules.idle_after_us is not None and silent_us >= rules.idle_after_us
        mark = self.watermark_us
        if awake:
            now = min(times[p] for p in awake) - rules.lateness_us
            mark = now if mark is None else max(mark, now)
        return replace(self, newest_us=times, spoke_us=spoke, watermark_us=mark, idle=idle)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "since_us": self.since_us,
            "newest_us": {str(p): t for p, t in self.newest_us.items()},
            "spoke_us": {str(p): t for p, t in self.spoke_us.items()},
            "watermark_us": self.watermark_us,
            "idle": self.idle,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InputTime:
        """From the manifest."""
        return cls(
            value["since_us"],
            {int(p): t for p, t in value["newest_us"].items()},
            {int(p): t for p, t in value["spoke_us"].items()},
            value["watermark_us"],
            value["idle"],
        )


@dataclass(frozen=True)
class StepTime:
    """Which inputs reach a step, and how far behind the clock its rows may come."""

    inputs: tuple[str, ...]
    lag_us: int
    after: tuple[str, ...] = ()  # the steps before it
    loads: tuple[str, ...] = ()  # the inputs for whose end it waits once

    @classmethod
    def of(cls, node: Node) -> StepTime:
        """From the plan: a step works with the lag of what feeds it."""
        lag = max((micros(upstream.lag) for upstream in node.inputs), default=0)
        # what no time reaches holds nobody back
        before = tuple(name for n in walk(*node.inputs) if n.stateful and _inputs(n) and (name := step_name(n)))
        loads = node.loads if isinstance(node, Step) else ()
        return cls(_inputs(node), lag, before, tuple(map(loading, loads)))


def loading(name: str) -> str:
    """The name under which a clock has the time of an input that is being loaded.

    >>> loading("countries")
    'countries (loading)'
    """
    return f"{name} (loading)"


def _inputs(node: Node) -> tuple[str, ...]:
    under = list(walk(node))
    timed = (n.name for n in under if isinstance(n, Input) and n.timed)
    return (*timed, *dict.fromkeys(loading(name) for n in under if isinstance(n, Step) for name in n.loads))


@dataclass(frozen=True)
class Clock:
    """The time of every input and of every step, after one batch."""

    inputs: Mapping[str, InputTime] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)  # step -> its watermark, absent before the first
    watermark_us: int | None = None  # the job's: the smallest of its inputs

    def moved(
        self,
        rules: Mapping[str, Rules],
        steps: Mapping[str, StepTime],
        newest: Newest,
        wall_us: int,
        used: Mapping[str, int | None] | None = None,
    ) -> Clock:
        """The clock after a batch: inputs move by what it brought, steps by the inputs that reach them.

        A step whose inputs are all idle goes on with the others, and no step is ahead of one before it: what
        a step holds back is never late further on. ``steps`` has each step after those before it; ``used`` are
        the marks by which steps have run in this batch already, when not all was known of it yet.
        """
        inputs = {
            name: self.inputs.get(name, InputTime(wall_us)).moved(rule, newest.get(name, {}), wall_us)
            for name, rule in rules.items()
        }
        everyone = watermark(inputs.values())
        marks: dict[str, int] = {}
        for step, time in steps.items():
            if used is not None and step in used:
                mark = used[step]
                marks |= {} if mark is None else {step: mark}
                continue
            now = _mark(time, inputs, everyone, marks)
            if now is not None:
                marks[step] = max(now, self.steps.get(step, BEGINNING_US))
            elif step in self.steps:
                marks[step] = self.steps[step]
        marked = [m for m in (everyone, self.watermark_us) if m is not None]
        return Clock(inputs, marks, max(marked, default=None))

    def with_new(self, steps: Mapping[str, StepTime]) -> Clock:
        """The same with steps that a changed job has besides: they begin at the time of what feeds them.

        Without it time would begin anew for them, and no row would be too late. One whose inputs are not all
        known has no time yet, as in a new job.
        """
        everyone, marks = watermark(self.inputs.values()), dict(self.steps)
        for step, time in steps.items():
            if all(name in self.inputs for name in time.inputs):
                now = _mark(time, self.inputs, everyone, marks)
                marks |= {} if now is None else {step: now}
        return replace(self, steps=marks)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        inputs = {n: t.to_json() for n, t in self.inputs.items()}
        return {"inputs": inputs, "steps": dict(self.steps), "watermark_us": self.watermark_us}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Clock:
        """From the manifest."""
        inputs = {n: InputTime.from_json(t) for n, t in value["inputs"].items()}
        return cls(inputs, dict(value["steps"]), value["watermark_us"])


def _mark(
    time: StepTime, inputs: Mapping[str, InputTime], everyone: int | None, marks: Mapping[str, int]
) -> int | None:
    """A step's watermark by that of its inputs and the marks of the steps before it; None when one has none yet."""
    own = [inputs[name] for name in time.inputs]
    now = everyone if all(i.idle for i in own) else watermark(own)
    before = [marks.get(name) for name in time.after]
    known = [m for m in before if m is not None]
    return None if now is None or len(known) < len(before) else min([now - time.lag_us, *known])


def watermark(inputs: Iterable[InputTime]) -> int | None:
    """The smallest time of those inputs that are not idle; None while one of them has said nothing, or all are idle."""
    marks = [i.watermark_us for i in inputs if not i.idle]
    known = [m for m in marks if m is not None]
    return min(known) if known and len(known) == len(marks) else None
