"""The demo's picture: one hour drawn twice, by event time and by the time of arrival. SVG by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from html import escape
from math import ceil

WIDTH, HEIGHT = 1000, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 970, 150, 490
MINUTE = timedelta(minutes=1)

INK, SOFT, GRID, BAND = "#1f2933", "#616e7c", "#e4e7eb", "#f1f3f5"
EVENT, ARRIVAL = "#0b7285", "#e8590c"


class Picture:
    """Views per minute from ``start`` on, by event time and by arrival, with the outage marked."""

    def __init__(
        self,
        by_event: Mapping[datetime, int],
        by_arrival: Mapping[datetime, int],
        start: datetime,
        end: datetime,
        outage: tuple[datetime, datetime],
    ) -> None:
        minutes = [start + i * MINUTE for i in range((end - start) // MINUTE)]
        self.start, self.end = start, end
        self.down, self.up = outage
        self.by_event = [(m, by_event.get(m, 0)) for m in minutes]
        self.by_arrival = [(m, by_arrival.get(m, 0)) for m in minutes]
        self.top = 50 * ceil(1.06 * max(n for _, n in self.by_event + self.by_arrival) / 50)

    def svg(self) -> str:
        """The whole file."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif">',
            "<title>The same page views, counted two ways</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *self._head(),
            *self._outage(),
            *self._axes(),
            self._area(),
            self._line("by-arrival", self.by_arrival, ARRIVAL),
            self._line("by-event", self.by_event, EVENT),
            *self._labels(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def x(self, moment: datetime) -> float:
        """Where a moment stands."""
        return LEFT + (RIGHT - LEFT) * ((moment - self.start) / (self.end - self.start))

    def y(self, views: float) -> float:
        """Where a count stands."""
        return BOTTOM - (BOTTOM - TOP) * views / self.top

    def _head(self) -> Iterator[str]:
        yield text(LEFT - 40, 42, "The same page views, counted two ways", size=24, weight=700)
        down, up = f"{self.down:%H:%M}", f"{self.up:%H:%M}"
        yield text(
            LEFT - 40, 68, f"Views per minute of a small web shop. The phone network was down from {down} to {up}; "
            "phones sent those views later.", size=15, fill=SOFT,
        )  # fmt: skip
        for left, colour, label in (
            (LEFT - 40, EVENT, "by event time: when the page was viewed"),
            (LEFT + 310, ARRIVAL, "by processing time: when the row arrived"),
        ):
            yield f'<rect x="{left}" y="90" width="26" height="5" rx="2.5" fill="{colour}"/>'
            yield text(left + 34, 98, label, size=14)

    def _outage(self) -> Iterator[str]:
        left, right = self.x(self.down), self.x(self.up)
        yield f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{BOTTOM - TOP}" fill="{BAND}"/>'
        yield text((left + right) / 2, TOP + 22, "phone network down", size=13, fill=SOFT, anchor="middle")

    def _axes(self) -> Iterator[str]:
        for views in range(0, self.top + 1, 50 if self.top <= 400 else 100):
            y = self.y(views)
            colour = INK if views == 0 else GRID
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{colour}"/>'
            yield text(LEFT - 10, y + 4.5, str(views), size=13, fill=SOFT, anchor="end")
        moment = self.start
        while moment <= self.end:
            x = self.x(moment)
            yield f'<line x1="{x:.1f}" y1="{BOTTOM}" x2="{x:.1f}" y2="{BOTTOM + 6}" stroke="{INK}"/>'
            yield text(x, BOTTOM + 24, f"{moment:%H:%M}", size=13, fill=SOFT, anchor="middle")
            moment += 10 * MINUTE
        yield text(LEFT - 40, TOP - 16, "views per minute", size=13, fill=SOFT)
        yield text((LEFT + RIGHT) / 2, BOTTOM + 50, f"time of day (UTC), {self.start:%A %d %B %Y}", size=13,
                   fill=SOFT, anchor="middle")  # fmt: skip

    def _points(self, curve: list[tuple[datetime, int]]) -> list[str]:
        return [f"{self.x(m + MINUTE / 2):.1f},{self.y(n):.1f}" for m, n in curve]

    def _area(self) -> str:
        points = self._points(self.by_event)
        first, last = points[0].split(",")[0], points[-1].split(",")[0]
        outline = " ".join([f"{first},{BOTTOM}", *points, f"{last},{BOTTOM}"])
        return f'<polygon points="{outline}" fill="{EVENT}" fill-opacity="0.13"/>'

    def _line(self, name: str, curve: list[tuple[datetime, int]], colour: str) -> str:
        # the numbers themselves, for whoever wants to check the picture
        numbers = " ".join(str(n) for _, n in curve)
        return (
            f'<polyline id="{name}" data-views="{numbers}" points="{" ".join(self._points(curve))}" fill="none" '
            f'stroke="{colour}" stroke-width="2.6" stroke-linejoin="round" stroke-linecap="round"/>'
        )

    def _labels(self) -> Iterator[str]:
        spike, most = max(self.by_arrival, key=lambda point: point[1])
        x, y = self.x(spike + MINUTE / 2), self.y(most)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{ARRIVAL}"/>'
        yield text(x + 14, y + 5, f"A spike that never happened: {most} a minute.", size=14, weight=700, fill=ARRIVAL)
        yield text(x + 14, y + 24, "The views of ten minutes, delivered at once.", size=13, fill=SOFT)

        dip, least = min(
            (point for point in self.by_arrival if self.down <= point[0] < self.up), key=lambda point: point[1]
        )
        x, y = self.x(dip + MINUTE / 2), self.y(least)
        middle, under = self.x(self.down + (self.up - self.down) / 2), TOP + 146
        yield f'<line x1="{x:.1f}" y1="{under + 12}" x2="{x:.1f}" y2="{y - 8:.1f}" stroke="{ARRIVAL}"/>'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{ARRIVAL}"/>'
        yield text(middle, under - 36, "A dip that", size=14, weight=700, fill=ARRIVAL, anchor="middle")
        yield text(middle, under - 18, "never happened.", size=14, weight=700, fill=ARRIVAL, anchor="middle")
        yield text(middle, under, "Nobody stayed away.", size=13, fill=SOFT, anchor="middle")

        peak = max(n for m, n in self.by_event if m < self.down)
        x, y = self.x(self.down) - 14, self.y(peak) - 40
        yield text(x, y, "The evening as it was.", size=14, weight=700, fill=EVENT, anchor="end")
        yield text(x, y + 18, "Each view in its own minute.", size=13, fill=SOFT, anchor="end")


def text(
    x: float, y: float, words: str, *, size: int, fill: str = INK, weight: int = 400, anchor: str = "start"
) -> str:
    """A line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
