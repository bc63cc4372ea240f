"""What Spark complained of, in one line that a person can use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.plan.errors import BadRowError, PenstockError, RunError
from penstock.plan.input import Input
from penstock.plan.node import Node, step_name, walk
from penstock.sources.base import STOP

BAD_ROW = "PENSTOCK_BAD_ROW "


def root_cause(error: BaseException) -> str:
    """The cause in one line, without class names, ids and query plans.

    Of a chain of causes it is the innermost that is one of Spark's named conditions (``[DIVIDE_BY_ZERO] ...``):
    they are written for people, what lies below them is not. Else it is the innermost of all.
    """
    text = str(error)
    python = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.*)$", text, re.MULTILINE)
    if "Traceback (most recent call last)" in text and python:
        return ": ".join(python[-1]).strip()
    causes = re.findall(r"^(?:Caused by: |: )?(?:[\w.$]+(?:Exception|Error): )+(.+)$", text, re.MULTILINE)
    causes = [c for c in causes if c.strip() and not c.startswith("Exception thrown in")]
    named = [c for c in causes if c.startswith("[")]
    for line in (named or causes)[-1:] or text.split("\n"):
        line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line.strip())
        if line:
            return line
    return type(error).__name__


def explained(error: BaseException, nodes: Iterable[Node]) -> PenstockError:
    """The error as ours: which step, the user's line, the root cause; the Java trace only on request.

    Spark quotes what it was told: of all of it no secret of a source is left.
    """
    roots = tuple(nodes)
    found = _explained(error, roots)
    for source in (node.source for node in walk(*roots) if isinstance(node, Input)):
        found.args = tuple(source.without_secrets(said) if isinstance(said, str) else said for said in found.args)
        if isinstance(found, RunError) and found.java is not None:
            found.java = source.without_secrets(found.java)
    return found


def _explained(error: BaseException, nodes: Iterable[Node]) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    text = _everything(error)
    if letter := carried(text, BAD_ROW):
        return BadRowError(refusal(letter), java=text)
    if stop := carried(text, STOP):
        return RunError(stop["told"], java=text)
    if unreadable := _unreadable(text):
        return RunError(unreadable, java=text)
    found = _step(text, nodes)
    cause = root_cause(error)
    if cause.startswith("RunError: "):
        return RunError(cause.removeprefix("RunError: "), java=text)  # ours, from a task: it says where
    if not isinstance(error, SPARK_ERRORS):
        cause = f"{type(error).__name__}: {cause}"
    if found is None:
        return RunError(f"the run failed: {cause}", java=text)
    name = step_name(found) or found.describe()
    return RunError(f"{name} ({found.written_at}): {cause}", step=name, written_at=found.written_at, java=text)


def carried(text: str, mark: str) -> dict[str, Any] | None:
    """What ``raise_error`` carried out of Spark behind a mark, None for nothing.

    Spark also quotes its plan, in which the mark stands before the expression that would make the rest.
    """
    at = text.find(mark + "{")
    return None if at < 0 else dict(json.JSONDecoder().raw_decode(text, at + len(mark))[0])


def refusal(letter: Mapping[str, Any], more: int = 0) -> str:
    """What is said of a bad row when nobody takes dead letters."""
    where = f"the step {letter['step']!r}" if letter.get("step") else f"the input {letter['input']!r}"
    others = f" ({more} more in this batch)" if more else ""
    return (
        f"{where} has a row that cannot be used ({letter['reason']}), "
        f"from {letter.get('place') or 'an unknown place'}: {letter.get('row')}{others}. "
        "Correct it, or send such rows somewhere with job.dead_letters(...)."
    )


def worker_died(error: BaseException) -> bool:
    """True when a Python process that ran tasks is gone: Spark says so, or finds its end of the line cut."""
    text = _everything(error)
    cut = "Connection reset" in text or "Broken pipe" in text
    return "Python worker exited unexpectedly" in text or (cut and "spark.api.python" in text)


def _unreadable(text: str) -> str | None:
    """What is said of a file that Spark began to read and could not read to its end."""
    file = re.search(r"\[FAILED_READ_FILE\.NO_HINT\] Encountered error while reading file (\S+)\.(?:\s|$)", text)
    causes = re.findall(r"^Caused by: [\w.$]+(?:Exception|Error): (.+)$", text, re.MULTILINE)
    if file is None or not causes:
        return None
    return (
        f"the input file {file[1]} is cut or damaged: {causes[-1].strip()}. Put the whole file in its place, or an "
        "empty one to go on without its rows, and start the job again."
    )


def _everything(error: BaseException) -> str:
    parts, seen = [str(error)], {id(error)}
    if isinstance(error, Py4JJavaError):
        parts.append(str(error.java_exception))
    while (error.__cause__ or error.__context__) and id(error.__cause__ or error.__context__) not in seen:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
        seen.add(id(error))
        parts.append(str(error))
    return "\n".join(parts)


def _step(text: str, nodes: Iterable[Node]) -> Node | None:
    """The step whose own words Spark quotes: its errors underline the SQL that failed."""
    quotes = []
    for line, marks in re.findall(r"== SQL[^\n]*==\n([^\n]+)\n([ ]*\^+)", text):
        quotes.append(line[marks.index("^") : len(marks)].strip())
    for node in walk(*nodes):
        said = node.describe()
        if any(quote and quote in said for quote in quotes):
            return node
    return None


SPARK_ERRORS = (PySparkException, Py4JJavaError)
