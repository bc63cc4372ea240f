"""Running values: one for each key, over all its rows so far."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.plan.durations import END_US
from penstock.state.bucket import BucketState
from penstock.state.changelog import weighted
from penstock.state.samekeys import same_values
from penstock.windows.held import Together, Touched
from penstock.windows.pairs import stops
from penstock.windows.partials import Partials
from penstock.windows.shapes import begins


def running_changes(partials: Partials, state: BucketState, touched: Touched) -> pa.Table:
    """The values that readers lose and those that they get. What is held of a key is its rows so far, as one part.

    What readers have is what the part gave that was held: it need not be remembered besides.
    """
    table = state.table("parts", partials.keys)
    owner, held = table.find(touched.keys)
    both = Together.of(owner, held, touched, END_US)
    assert both is not None, "a key is only touched by rows"
    order = np.argsort(both.group, kind="stable")
    parts, group = both.parts.take(pa.array(order)), both.group[order]
    low = begins(group, group)
    parts = partials.fold(parts, low, stops(low, len(group)))
    table.put(touched.named(group[low], parts))
    now = _values(partials, parts)
    before = _values(partials, held) if len(owner) else now.slice(0, 0)
    # every touched key has a part now, in the order of keys
    same = same_values(before, now.take(pa.array(owner)))
    told = np.ones(len(low), np.bool_)
    told[owner[same]] = False
    lost = touched.named(owner[~same], before.filter(pa.array(~same)))
    gained = touched.named(np.flatnonzero(told), now.filter(pa.array(told)))
    return weighted(lost, gained)


def _values(partials: Partials, parts: pa.Table) -> pa.Table:
    low = np.arange(parts.num_rows)
    return pa.table(partials.results(parts, low, low + 1), names=partials.names())
