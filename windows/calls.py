"""Taking the text of an aggregate apart: the calls in it, and the expression around them.

The pieces are cut out of the user's own text by its tokens and never written anew, so Spark reads
exactly what the user wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # sqlglot does not say what it exports

from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.expressions import names_in, parse, split_tokens, tokenize
from penstock.plan.written import written_at
from penstock.windows.aggregates.registry import KERNEL_AGGREGATES

#: Every other aggregate that Spark SQL knows; Spark finishes them over the rows of a closed window.
# fmt: off
SPARK_ONLY = frozenset({
    "approx_count_distinct", "approx_percentile", "percentile_approx", "approx_top_k", "hll_sketch_agg",
    "hll_union_agg", "bit_and", "bit_or", "bit_xor", "bitmap_construct_agg", "bitmap_or_agg", "corr", "count_if",
    "count_min_sketch", "covar_pop", "covar_samp", "histogram_numeric", "kurtosis", "listagg", "string_agg", "mode",
    "percentile_disc", "product", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope",
    "regr_sxx", "regr_sxy", "regr_syy", "skewness", "try_avg", "try_sum", "approx_top_k_accumulate",
    "approx_top_k_combine", "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float",
    "theta_sketch_agg", "theta_union_agg",
})
# fmt: on


@dataclass(frozen=True)
class Call:
    """One aggregate call: ``sum(price) filter (where ok)`` is sum of ``price`` where ``ok``."""

    name: str
    arguments: tuple[str, ...]
    distinct: bool = False
    where: str | None = None
    ignore_nulls: bool = False
    within_group: str | None = None

    @property
    def text(self) -> str:
        """The call as SQL: two that differ have different texts.

        >>> Call("count", ("x",), distinct=True, where="ok").text
        'count(distinct x) filter (where ok)'
        """
        text = f"{self.name}({'distinct ' if self.distinct else ''}{', '.join(self.arguments)})"
        text += " ignore nulls" if self.ignore_nulls else ""
        text += f" within group ({self.within_group})" if self.within_group is not None else ""
        return text + (f" filter (where {self.where})" if self.where is not None else "")

    @property
    def ours(self) -> bool:
        """True when a kernel can do it; the types decide the rest when the job is compiled."""
        return self.name in KERNEL_AGGREGATES


@dataclass(frozen=True)
class Aggregate:
    """A named result: the text as written, the calls in it, and the text around them with a place for each."""

    name: str
    text: str
    calls: tuple[Call, ...]
    around: tuple[str, ...]

    @property
    def ours(self) -> bool:
        """True when every call in it has a kernel."""
        return bool(self.calls) and all(c.ours for c in self.calls)

    @property
    def foreign(self) -> str:
        """What in it has no kernel, by name."""
        return ", ".join(c.name for c in self.calls if not c.ours) or self.text

    def rebuilt(self, places: tuple[str, ...]) -> str:
        """The expression with each call replaced by the column that holds its result."""
        text = self.around[0]
        for place, after in zip(places, self.around[1:], strict=True):
            text += place + after
        return text


def read_aggregate(name: str, text: str, columns: Columns, grouped: tuple[str, ...], step: str) -> Aggregate:
    """Take the text apart and check each name in it; ``grouped`` are the keys and the window's columns.

    >>> a = read_aggregate("rate", "sum(x) / count(*)", Columns(("x",)), (), "agg(rate=...)")
    >>> [c.name for c in a.calls], a.rebuilt(("s", "n"))
    (['sum', 'count'], 's / n')
    """
    tree = parse(text, step)
    if isinstance(tree, exp.Alias):
        raise PlanError(f"{step}: the name stands before the '='; leave 'as {tree.alias}' out. ({written_at()})")
    for used in names_in(tree):
        if used not in grouped:
            columns.require(used, step, any_case=True)
    tokens = tokenize(text)
    calls: list[Call] = []
    around: list[str] = []
    begin, i = 0, 0
    while i < len(tokens):
        word = tokens[i].text.lower()
        known = word in KERNEL_AGGREGATES or word in SPARK_ONLY
        if known and i + 1 < len(tokens) and tokens[i + 1].token_type == TokenType.L_PAREN:
            call, after = _read_call(text, tokens, i)
            around.append(text[begin : tokens[i].start])
            calls.append(call)
            begin = tokens[after - 1].end + 1
            i = after
        else:
            i += 1
    around.append(text[begin:])
    for call in calls:
        _check_fractions(call, step)
        _check_inside(call, step)
    found = Aggregate(name, text, tuple(calls), tuple(around))
    _check_around(found, tree, grouped, step)
    return found


def _check_inside(call: Call, step: str) -> None:
    for text in (*call.arguments, *([call.where] if call.where else [])):
        tokens = tokenize(text)
        for word, after in pairwise(tokens):
            known = word.text.lower() in KERNEL_AGGREGATES or word.text.lower() in SPARK_ONLY
            if known and after.token_type == TokenType.L_PAREN:
                raise PlanError(
                    f"{step}: {word.text} stands inside {call.name}; an aggregate of aggregates takes two steps, the "
                    f"second with .window(same()) or another window. ({written_at()})"
                )


def _check_fractions(call: Call, step: str) -> None:
    if call.name in ("percentile", "percentile_cont", "percentile_disc") and call.arguments:
        given = parse(call.arguments[-1 if call.name == "percentile" else 0], step)
        for number in given.find_all(exp.Literal) if isinstance(given, exp.Literal | exp.Array) else ():
            if number.is_number and float(number.name) > 1:
                raise PlanError(f"{step}: {number.name} is no fraction; the 95th percentile is 0.95. ({written_at()})")


def _check_around(aggregate: Aggregate, tree: exp.Expr, grouped: tuple[str, ...], step: str) -> None:
    registered = tree.find(exp.Anonymous) is not None
    if not aggregate.calls and not registered:
        raise PlanError(f"{step}: there is no aggregate in {aggregate.text!r}. ({written_at()})")
    outside = parse(aggregate.rebuilt(("NULL",) * len(aggregate.calls)), step)
    fixed = {name.casefold() for name in grouped}
    for used in names_in(outside):
        # inside a function that we do not know, a column may be the argument of a registered aggregate
        if used.casefold() not in fixed and outside.find(exp.Anonymous) is None:
            raise PlanError(
                f"{step}: {used!r} is neither a key nor inside an aggregate; "
                f"write first({used}), or group by it. ({written_at()})"
            )


def _read_call(text: str, tokens: list[Token], i: int) -> tuple[Call, int]:
    """The call that begins at token ``i``, and the token after it."""
    name = tokens[i].text.lower()
    close = _closing(tokens, i + 1)
    distinct = tokens[i + 2].token_type == TokenType.DISTINCT
    arguments = split_tokens(text, tokens, i + (3 if distinct else 2), close)
    after = close + 1
    ignore_nulls, where, within_group = False, None, None
    while after < len(tokens):
        words = [t.text.lower() for t in tokens[after : after + 2]]
        if words in (["ignore", "nulls"], ["respect", "nulls"]):
            ignore_nulls = words[0] == "ignore"
            after += 2
        elif words == ["filter", "("]:
            end = _closing(tokens, after + 1)
            where = text[tokens[after + 2].end + 1 : tokens[end].start].strip()
            after = end + 1
        elif words[0] == "within" and len(words) == 2 and words[1] == "group":
            end = _closing(tokens, after + 2)
            within_group = text[tokens[after + 2].end + 1 : tokens[end].start].strip()
            after = end + 1
        else:
            break
    if name in ("first", "last", "first_value", "last_value", "any_value") and len(arguments) == 2:
        ignore_nulls = arguments[1].lower() == "true"
        arguments = arguments[:1]
    return Call(name, arguments, distinct, where, ignore_nulls, within_group), after


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        if tokens[i].token_type == TokenType.L_PAREN:
            depth += 1
        elif tokens[i].token_type == TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                return i
    raise AssertionError("the parser let an open bracket through")
