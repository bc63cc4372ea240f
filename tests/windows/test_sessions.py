"""The arithmetic of sessions and of pairs, against plain Python; what the shapes say and refuse."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.errors import PlanError
from penstock.windows.firing import Panes, panes
from penstock.windows.pairs import first_pair, pair_order, running_greatest
from penstock.windows.sessions import Session, chain_begins, cut_begins, session
from penstock.windows.sliding import Sliding, sliding

FAR = st.sampled_from([1, 10**15, 10**17])  # with the last, groups and times do not fit one number
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(-12, 12)), max_size=30)
GROUPS = st.sampled_from([1, 10**6])


def columns(pairs, far, groups):
    pairs = sorted((g * groups, t * far) for g, t in pairs)
    return pairs, np.array([g for g, _ in pairs], np.int64), np.array([t for _, t in pairs], np.int64)


@given(PAIRS, PAIRS, FAR, GROUPS)
def test_a_pair_is_found_where_it_would_stand(pairs, wanted, far, groups):
    pairs, group, time = columns(pairs, far, groups)
    wanted, wanted_group, wanted_time = columns(wanted, far, groups)
    got = first_pair(group, time, wanted_group, wanted_time + 1)
    assert got.tolist() == [sum(p < (g, t + 1) for p in pairs) for g, t in wanted]


@given(PAIRS, FAR, GROUPS, st.randoms(use_true_random=False))
def test_pairs_are_sorted_by_group_then_by_time(pairs, far, groups, random):
    pairs, _, _ = columns(pairs, far, groups)
    mixed = random.sample(pairs, len(pairs))
    order = pair_order(*(np.array([p[i] for p in mixed], np.int64) for i in (0, 1)))
    assert [mixed[i] for i in order] == pairs


@given(PAIRS, FAR, GROUPS, st.randoms(use_true_random=False))
def test_the_greatest_time_so_far_is_that_of_the_group(pairs, far, groups, random):
    _, group, time = columns(pairs, far, groups)
    time = np.array(random.sample(time.tolist(), len(time)), np.int64)
    expected = [max(t for g, t in zip(group[: i + 1], time, strict=False) if g == group[i]) for i in range(len(group))]
    assert running_greatest(group, time).tolist() == expected


@given(PAIRS, st.lists(st.integers(0, 6), min_size=30, max_size=30), st.integers(1, 5))
def test_chains_begin_beyond_the_gap_after_all_pieces_before(pairs, lengths, gap):
    pairs, group, first = columns(pairs, 1, 1)
    last = first + np.array(lengths[: len(first)], np.int64)
    expected = [
        not any(g == pairs[i][0] and e + gap >= pairs[i][1] for (g, _), e in zip(pairs[:i], last, strict=False))
        for i in range(len(pairs))
    ]
    assert chain_begins(group, first, last, gap).tolist() == expected


@given(PAIRS, st.integers(1, 5), st.integers(1, 12))
def test_a_session_begins_with_its_chain_and_past_each_cut(pairs, gap, most):
    pairs, group, time = columns(pairs, 1, 1)
    begins = chain_begins(group, time, time, gap)
    expected, first = [], None
    for at, (_, t) in enumerate(pairs):
        expected.append(bool(begins[at]) or t >= first + most)
        first = t if expected[-1] else first
    assert cut_begins(begins, time, most).tolist() == expected


def test_shapes_and_firings_say_what_they_are():
    second = timedelta(seconds=1)
    assert session("10 seconds") == Session(10 * second)
    assert session("10 seconds").describe() == "session with a gap of 10 seconds"
    assert session("10 seconds", "1 hour").describe() == "session with a gap of 10 seconds, at most 1 hour"
    assert sliding("5 minutes") == Sliding(300 * second)
    assert panes() == Panes(None, timedelta(0))
    assert panes(early=second, allowed_lateness="1 minute") == Panes(second, 60 * second)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: session("0 seconds"), "session: gap='0 seconds': may not be zero or negative"),
        (lambda: session("1 second", "0 seconds"), "session: max_duration='0 seconds': may not be zero"),
        (lambda: sliding("-1 second"), "sliding: size='-1 second': may not be zero or negative"),
        (lambda: sliding("1 month"), "sliding: size='1 month': a month has no fixed length"),
        (lambda: panes(early="0 seconds"), "panes: early='0 seconds': may not be zero or negative"),
        (lambda: panes(allowed_lateness="-1 second"), "panes: allowed_lateness='-1 second': may not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(PlanError) as refused:
        make()
    assert said in str(refused.value)
