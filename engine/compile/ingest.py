"""The first step of every input: its time, its order of arrival, and whether the row can be used at all."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from penstock.compile.failures import BAD_ROW, root_cause
from penstock.compile.layout import Layout
from penstock.compile.rows import visible
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.input import CAME, Input
from penstock.plan.text import where_written
from penstock.sources.base import DELETED, IGNORED, MALFORMED, MESSAGE, PARTITION, PLACE, SAID
from penstock.sources.cdc.changelog import Subject
from penstock.state.edge import BAD, INPUT, KEEP, TIME

#: The reason of a message that is of no row: it is counted, and no dead letter.
OF_NO_ROW = "ignored"

#: A bad row of more bytes is not kept whole: a dead letter must not need more memory than a good row.
KEPT_BYTES = 1_000_000
SHOWN_CHARACTERS = 1000


def ingest(layout: Layout, node: Input, frame: DataFrame, wall: str) -> DataFrame:
    """The source's rows with their hidden columns; a bad row says why, where it came from and what it held.

    ``wall`` is the batch's wall time in microseconds, as Spark SQL text. Where the plan corrects the input's
    clock, the row's time is the corrected one from here on. The messages of a changelog become rows first.
    """
    changelog, schema = node.source.changelog, node.source.schema
    if changelog is not None and schema is not None:
        frame = changelog.rows(frame, Subject(schema, node.never_null, f"table {where_written(node)}"))
    present, number = frame.columns, layout.numbers[node]
    time = wall
    reasons = [f"WHEN {IGNORED} THEN '{OF_NO_ROW}'"] if IGNORED in present else []
    reasons += [f"WHEN {MALFORMED} IS NOT NULL THEN 'malformed'"] if MALFORMED in present else []
    reasons += [f"WHEN {quoted(column)} IS NULL THEN 'malformed'" for column in _required(node)]
    if node.never_null:
        missing = " OR ".join(f"{quoted(c)} IS NULL" for c in node.never_null)
        reasons.append(f"WHEN {missing} THEN 'null_key'")
    if node.time_column is not None:
        time = _micros(node.time_column)
        if node in layout.corrected:
            sent, received = layout.corrected[node]
            time = f"({time} + {_micros(received)} - {_micros(sent)})"
        if SAID in present:
            time = f"CASE WHEN {DELETED} THEN {SAID} ELSE {time} END"
        ahead = micros(node.max_ahead)
        reasons.append(f"WHEN {time} IS NULL OR {time} > {wall} + {ahead}L THEN 'bad_time'")
        if node.ends_us is not None:
            # the wall clock of a replay is no judge: it stands long after
            then = f"greatest({node.ends_us}L, unix_micros({CAME}))" if CAME in present else f"{node.ends_us}L"
            frame = frame.where(f"coalesce({time} <= {then} + {ahead}L, true)")
    columns = {c: quoted(c) for c in present if c not in (MALFORMED, MESSAGE, SAID, IGNORED, CAME)}
    if node.time_column is not None and node in layout.corrected:
        columns[node.time_column] = f"cast(timestamp_micros({time}) AS {_type(frame, node.time_column)})"
    columns |= {TIME: time, INPUT: str(number)}
    if PARTITION in present and len(layout.inputs) > 1:
        # in a union rows of two topics do not stand at one place; the first is for rows without a place of their own
        columns[PARTITION] = f"{PARTITION} * {len(layout.inputs) + 1} + {number + 1}"
    columns.setdefault(PLACE, "cast(null AS string)")
    columns[BAD] = _bad(node.name, reasons, columns[PLACE], visible(frame), present)
    try:
        return frame.selectExpr(*(f"{text} AS {quoted(name)}" for name, text in columns.items()))
    except AnalysisException as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


def _micros(column: str) -> str:
    return f"unix_micros(cast({quoted(column)} AS timestamp))"


def _type(frame: DataFrame, column: str) -> str:
    return frame.schema[column].dataType.simpleString()


def _bad(name: str, reasons: list[str], place: str, shown: list[str], present: list[str]) -> str:
    """Input, reason, place and row of a bad row as JSON, else null: one column, and empty for good rows."""
    if not reasons:
        return "cast(null AS string)"
    row = f"to_json(struct({', '.join(map(quoted, shown))}), map('ignoreNullFields', 'false'))"
    if MESSAGE in present:
        row = f"coalesce({MESSAGE}, 'null')"
    elif MALFORMED in present:
        row = f"coalesce({MALFORMED}, {row})"
    row = _shown(row)
    reason = f"CASE {' '.join(reasons)} END"
    told = f"to_json(struct('{name}' AS input, {reason} AS reason, {place} AS place, {row} AS row))"
    return f"CASE WHEN ({reason}) IS NOT NULL THEN {told} END"


def _shown(row: str) -> str:
    """A bad row as it is kept: of an enormous one the beginning and its size, one that is no UTF-8 in base64."""
    size = "octet_length(r)"
    cut = f"concat(left(r, {SHOWN_CHARACTERS}), ' ... (', {size}, ' bytes)')"
    cases = f"WHEN {size} > {KEPT_BYTES} THEN {cut} WHEN NOT is_valid_utf8(r) THEN concat('base64:', base64(r))"
    return f"element_at(transform(array({row}), r -> CASE {cases} ELSE r END), 1)"


def _required(node: Input) -> list[str]:
    schema = node.source.schema
    # the row of a delete may have no more than its key: a changelog has judged its rows itself
    return [] if schema is None or node.source.changelog is not None else [f.name for f in schema if not f.nullable]


def flagged(frame: DataFrame) -> DataFrame:
    """All rows, the bad ones flagged as dropped: on the way to a stateful step."""
    return frame.selectExpr("*", f"{BAD} IS NULL AS {KEEP}")


def usable(frame: DataFrame) -> DataFrame:
    """The rows that can be used."""
    return frame.where(f"{BAD} IS NULL").drop(BAD)


def usable_or_stop(frame: DataFrame) -> DataFrame:
    """The rows; a bad one stops the job and is named, because nobody takes its dead letters."""
    stop = f"cast(raise_error(concat('{BAD_ROW}', {BAD})) AS boolean)"
    return frame.where(f"CASE WHEN {BAD} IS NOT NULL THEN {stop} ELSE true END").drop(BAD)
