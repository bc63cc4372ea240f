"""Timelines follow what is posted, deleted, followed and unfollowed."""

from __future__ import annotations

import pytest

from penstock.jobs.timeline import job
from penstock.testing import JobCrashed


def post(name: str, author: str = "ann", minute: int = 0, version: int = 1) -> dict[str, object]:
    return {"post": name, "author": author, "text": f"{name}!", "at": f"2026-03-13T10:{minute:02}:00Z",
            "version": version, "deleted": False}  # fmt: skip


def deleted(name: str, version: int) -> dict[str, object]:
    return {"post": name, "version": version, "deleted": True}


def follow(reader: str, author: str = "ann", version: int = 1, ended: bool = False) -> dict[str, object]:
    return {"reader": reader, "follows": author, "version": version, "ended": ended}


def shown(t, reader: str) -> list[str]:
    """A reader's timeline from top to bottom."""
    return [r["post"] for r in sorted(t.read("timelines"), key=lambda r: r["rank"]) if r["reader"] == reader]


def test_posts_come_and_go_with_follows_and_deletes(tester):
    t = tester(job)
    t.push("posts", post("p1", minute=1), post("p2", minute=2), post("q1", "eve", minute=3))
    t.push("follows", follow("bob"), follow("cy"), follow("cy", "eve"))
    assert (shown(t, "bob"), shown(t, "cy")) == (["p2", "p1"], ["q1", "p2", "p1"])
    t.push("posts", deleted("p2", 2), post("p3", minute=4))
    assert (shown(t, "bob"), shown(t, "cy")) == (["p3", "p1"], ["p3", "q1", "p1"])
    t.push("follows", follow("cy", version=2, ended=True))
    assert (shown(t, "bob"), shown(t, "cy")) == (["p3", "p1"], ["q1"])
    assert {r["follows"]: r["followers"] for r in t.read("popular")} == {"ann": 1, "eve": 1}
    # an older version of what is deleted, and of what is ended, brings nothing back
    t.push("posts", post("p2", minute=2))
    t.push("follows", follow("cy"))
    assert (shown(t, "bob"), shown(t, "cy")) == (["p3", "p1"], ["q1"])


@pytest.mark.parametrize("point", ["before_sink", "after_sink"])
def test_the_eleventh_moves_up_when_one_of_ten_is_deleted_also_after_a_crash(tester, point):
    t = tester(job)
    t.push("follows", follow("bob"))
    t.push("posts", [post(f"p{n:02}", minute=n) for n in range(12)])
    assert shown(t, "bob") == [f"p{n:02}" for n in range(11, 1, -1)]
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("posts", deleted("p05", 2))
    t.restart()
    assert shown(t, "bob") == [f"p{n:02}" for n in range(11, 0, -1) if n != 5]
