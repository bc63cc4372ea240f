"""What an aggregate is to a kernel, and which ones there are.

The rows of a bucket are sorted by group and slice of time, and each result is a range of them. An
aggregate begins a state row for each input row, merges ranges of state rows, as often as one likes and
cut as one likes, and finishes a state row as a value. Results and types are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.windows.aggregates.averages import make_average
from penstock.windows.aggregates.collected import make_collect, make_collect_distinct
from penstock.windows.aggregates.counts import make_count
from penstock.windows.aggregates.distinct import make_count_distinct
from penstock.windows.aggregates.extremes import make_extreme
from penstock.windows.aggregates.moments import make_deviation
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.percentiles import make_percentile
from penstock.windows.aggregates.picks import make_pick, make_pick_by
from penstock.windows.aggregates.reduction import Bounds
from penstock.windows.aggregates.sums import make_sum

__all__ = ["Aggregate", "Order", "make", "KERNEL_AGGREGATES"]


class Aggregate(Protocol):
    """A function of many rows, in its three forms; a small value that can be pickled and compared."""

    @property
    def result_type(self) -> pa.DataType:
        """The Arrow type of the result."""

    @property
    def needs_order(self) -> bool:
        """True when the result depends on where the rows stand in time."""

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The Arrow types of the state columns."""

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """A state row for each of ``rows`` input rows; one where ``mask`` is false or null takes no part."""

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """A state row for each range ``[lo, hi)`` of state rows; ranges may overlap and are never empty."""

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The result for each state row, of type ``result_type``."""


Maker = Callable[[str, Sequence[pa.DataType], Mapping[str, Any]], "Aggregate | None"]

# for each maker: the names, how many arguments they take (None: any number), and the options they know
MAKERS: dict[str, tuple[Maker, int | None, frozenset[str]]] = {
    name: (maker, arity, frozenset(options.split()))
    for names, maker, arity, options in (
        ("count", make_count, None, ""),
        ("sum", make_sum, 1, ""),
        ("avg mean", make_average, 1, ""),
        ("min max bool_and every bool_or any some", make_extreme, 1, ""),
        ("min_by max_by", make_pick_by, 2, ""),
        ("first first_value any_value last last_value", make_pick, 1, "ignore_nulls"),
        ("std stddev stddev_samp stddev_pop variance var_samp var_pop", make_deviation, 1, ""),
        ("collect_list array_agg collect_set", make_collect, 1, ""),
        ("percentile percentile_cont median", make_percentile, 1, "percentages array"),
    )
    for name in names.split()
}

#: The names of the aggregates that kernels do; their types decide the rest.
KERNEL_AGGREGATES = frozenset(MAKERS)

# an extreme of the distinct values is the extreme of all
DISTINCT: dict[Maker, Maker] = {
    make_count: make_count_distinct,
    make_extreme: make_extreme,
    make_collect: make_collect_distinct,
}


def make(name: str, arg_types: Sequence[pa.DataType], distinct: bool, options: Mapping[str, Any]) -> Aggregate | None:
    """The aggregate of this name for arguments of these types, or None: then Spark has to do it.

    ``options`` are ``ignore_nulls`` for first and last, and ``percentages`` and ``array`` for percentiles;
    an option that is not known, or a count of arguments that does not fit, gives None too.

    >>> make("max", [pa.int32()], False, {})
    Extreme(result_type=DataType(int32), greatest=True, needs_order=False)
    >>> make("max", [pa.list_(pa.int32())], False, {}) is None
    True
    """
    if name not in MAKERS:
        return None
    maker, arity, known = MAKERS[name]
    if distinct:
        if maker not in DISTINCT:
            return None
        maker, arity = DISTINCT[maker], 1
    set_options = {option for option, value in options.items() if value}
    if not set_options <= known or (arity is not None and len(arg_types) != arity):
        return None
    return maker(name, arg_types, options)
