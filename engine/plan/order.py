"""``ORDER BY`` text, read without a JVM: ``"n desc, id"``."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.tokens import TokenType  # type: ignore[attr-defined]  # sqlglot does not say what it exports

from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.expressions import check, split_text, tokenize
from penstock.plan.written import written_at


@dataclass(frozen=True)
class OrderBy:
    """One part of an order: an expression, its direction, and where nulls stand."""

    text: str
    descending: bool
    nulls_first: bool

    def describe(self) -> str:
        """The part as Spark SQL."""
        nulls = "" if self.nulls_first != self.descending else f" nulls {'first' if self.nulls_first else 'last'}"
        return self.text + (" desc" if self.descending else "") + nulls


def read_order(text: str, columns: Columns, step: str) -> tuple[OrderBy, ...]:
    """The parts of an order, each name in it checked; nulls stand first going up and last going down, as in Spark.

    >>> [o.describe() for o in read_order("n desc, lower(id) asc nulls last", Columns(("n", "id")), "top")]
    ['n desc', 'lower(id) nulls last']
    """
    if not isinstance(text, str) or not text.strip():
        raise PlanError(f"{step}: by= is Spark SQL text such as 'n desc, id', not {text!r}. ({written_at()})")
    found = []
    for part in split_text(text):
        tokens = tokenize(part)
        words = [t.text.lower() for t in tokens]
        nulls_first = None
        end = len(tokens)
        if end > 2 and words[end - 2] == "nulls" and words[end - 1] in ("first", "last"):
            nulls_first, end = words[end - 1] == "first", end - 2
        descending = end > 1 and tokens[end - 1].token_type == TokenType.DESC
        if end > 1 and tokens[end - 1].token_type in (TokenType.DESC, TokenType.ASC):
            end -= 1
        body = part[: tokens[end - 1].end + 1].strip() if end else ""
        check(body, columns, step)
        found.append(OrderBy(body, descending, not descending if nulls_first is None else nulls_first))
    return tuple(found)
