"""Spark SQL text, read without a JVM: which names it uses, what it may not hold, what it is called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # sqlglot does not say what it exports

from penstock.plan.columns import Columns, check_name
from penstock.plan.errors import PlanError
from penstock.plan.forbidden import refuse_forbidden
from penstock.plan.schemas import first_line
from penstock.plan.written import written_at

# As sqlglot calls them, or passes them on: another value each time.
UNREPEATABLE = (
    "current_timestamp", "current_date", "current_time", "localtimestamp", "now", "rand", "randn", "uuid", "shuffle",
    "monotonically_increasing_id", "spark_partition_id",
)  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """One named expression of Spark SQL, as the user wrote it."""

    name: str
    text: str

    @property
    def is_plain(self) -> bool:
        """True for the bare column of the same name."""
        return column_of(self.text) == self.name


@lru_cache(maxsize=4096)
def _parse(text: str) -> exp.Expr:
    parsed = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    if len(parsed) != 1:
        raise SqlglotError("it must be one expression")
    return parsed[0]


def parse(text: str, step: str) -> exp.Expr:
    """The syntax tree of one expression, refused when it is none or holds what a row step cannot do."""
    if not isinstance(text, str):
        raise PlanError(f"{step}: an expression is Spark SQL text, not {text!r}. ({written_at()})")
    refuse_forbidden(text, step)
    try:
        tree = _parse(text)
    except SqlglotError as error:
        raise PlanError(f"{step}: {text!r} is not Spark SQL: {first_line(error)}. ({written_at()})") from None
    if isinstance(tree, exp.Query | exp.DDL | exp.Command) or _holds_query(tree):
        raise PlanError(f"{step}: {text!r} holds a query; join or look up another input instead. ({written_at()})")
    if tree.find(exp.Window):
        raise PlanError(
            f"{step}: {text!r} holds OVER, which has no end on a stream; use .window(...). ({written_at()})"
        )
    return tree


def _holds_query(tree: exp.Expr) -> bool:
    # sqlglot takes the query `(table t)` for a column `table` that is called t
    named = (inner for inner in tree.find_all(exp.Paren) if isinstance(inner.this, exp.Alias))
    return tree.find(exp.Subquery, exp.Select, exp.Describe) is not None or any(named)


def names_in(tree: exp.Expr) -> list[str]:
    """The columns that an expression reads; a field of a struct counts as its column."""
    return [column.parts[0].name for column in tree.find_all(exp.Column) if not isinstance(column.this, exp.Star)]


def check(text: str, columns: Columns, step: str) -> str:
    """The text itself, when each name in it is a column."""
    tree = parse(text, step)
    _refuse_aggregates(tree, text, step)
    for name in names_in(tree):
        columns.require(name, step, any_case=True)
    return text


def check_repeatable(texts: Iterable[str], mode: str, step: str) -> None:
    """Over a table refuse what may give another value when a row is taken back than when it came."""
    if mode == "append":
        return
    for text in texts:
        for function in parse(text, step).find_all(exp.Func):
            name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
            if name in UNREPEATABLE:
                raise PlanError(
                    f"{step}: {function.sql(dialect='spark')} gives another value each time, and a table's row that "
                    f"goes is recognised by the values that it came with; have the value in a column. ({written_at()})"
                )


def _refuse_aggregates(tree: exp.Expr, text: str, step: str) -> None:
    # `first` and `any` have scalar uses, and sqlglot counts some scalar functions among the aggregates
    plain = {
        exp.Count,
        exp.Sum,
        exp.Avg,
        exp.Min,
        exp.Max,
        exp.ArrayAgg,
        exp.Stddev,
        exp.Variance,
        exp.Median,
    }
    for function in tree.find_all(*plain):
        raise PlanError(
            f"{step}: {function.sql(dialect='spark')} is an aggregate; it needs .window(...).agg(...). ({written_at()})"
        )


def column_of(text: str) -> str | None:
    """The column when the text is nothing else, else None.

    >>> column_of("`page url`"), column_of("a + 1")
    ('page url', None)
    """
    tree = _parse(text)
    if isinstance(tree, exp.Column) and len(tree.parts) == 1 and not isinstance(tree.this, exp.Star):
        return tree.name
    return None


def selected(text: str, columns: Columns, step: str) -> tuple[Expression, ...]:
    """The columns that one argument of ``select`` gives: a name, ``*``, or an expression ``as`` a name."""
    tree = parse(text, step)
    if isinstance(tree, exp.Star):
        if columns.open:
            raise PlanError(f"{step}: '*' needs a source with a schema; name the columns. ({written_at()})")
        return tuple(Expression(name, quoted(name)) for name in columns.names)
    if isinstance(tree, exp.Alias):
        body = text[: _alias_at(text)].rstrip()
        return (Expression(check_name(tree.alias, step), check(body, columns, step)),)
    if isinstance(tree, exp.Column):
        check(text, columns, step)
        return (Expression(tree.name, text),)
    raise PlanError(f"{step}: {text!r} needs a name: '{text} as ...'. ({written_at()})")


def _alias_at(text: str) -> int:
    tokens = tokenize(text)
    alias = tokens[-2] if tokens[-2].token_type == TokenType.ALIAS else tokens[-1]
    return alias.start


def tokenize(text: str) -> list[Token]:
    """The tokens of Spark SQL text, with their places in it."""
    return list(Spark().tokenize(text))


def quoted(name: str) -> str:
    """A column name as Spark SQL text, whatever stands in it.

    >>> quoted("page url")
    '`page url`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Any text as a string of Spark SQL.

    >>> print(literal("op = 'd'"))
    'op = \\'d\\''
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def split_text(text: str) -> tuple[str, ...]:
    """The parts of a text between the commas that stand in no bracket.

    >>> split_text("greatest(a, b) desc, id")
    ('greatest(a, b) desc', 'id')
    """
    tokens = tokenize(text)
    return split_tokens(text, tokens, 0, len(tokens))


def split_tokens(text: str, tokens: list[Token], start: int, stop: int) -> tuple[str, ...]:
    """The same for a range of its tokens."""
    if start >= stop:
        return ()
    opens = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
    closes = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
    parts, depth, begin = [], 0, tokens[start].start
    for token in tokens[start:stop]:
        if token.token_type in opens:
            depth += 1
        elif token.token_type in closes:
            depth -= 1
        elif token.token_type == TokenType.COMMA and depth == 0:
            parts.append(text[begin : token.start].strip())
            begin = token.end + 1
    end = tokens[stop].start if stop < len(tokens) else len(text)
    parts.append(text[begin:end].strip())
    return tuple(parts)
