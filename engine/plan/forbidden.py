"""What SQL text may not call: Java, files, and functions under names that are made up when the job runs."""

from __future__ import annotations

import re

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at

# The text of a job is code, but not that much code.
CALLS = {
    "reflect": "it runs any Java method",
    "java_method": "it runs any Java method",
    "try_reflect": "it runs any Java method",
    "from_protobuf": "it reads a file, or loads a Java class, that the text names",
    "to_protobuf": "it reads a file, or loads a Java class, that the text names",
    "identifier": "a name is written out, and not computed",
}
OPTIONS = {
    "avroSchemaUrl": "it reads a file that the text names; give the schema itself",
    "rowValidationXSDPath": "it reads a file that the text names",
}

# Of the text itself and not of its syntax tree: where another parser ends a string or a comment, Spark may not.
_SPACE = r"(?:\s|--[^\r\n]*[\r\n])*"
_CALL = re.compile(rf"(?is)(?<!\w)({'|'.join(CALLS)})`?{_SPACE}(?:/\*.*\*/{_SPACE})?\(")
_OPTION = re.compile(rf"(?i)\b({'|'.join(OPTIONS)})\b")


def refuse_forbidden(text: str, step: str) -> None:
    """Refuse text that calls what no job may call, however it is quoted, cased or spaced.

    A string that holds such a call is refused too: who needs one writes it in two parts.

    >>> refuse_forbidden("`Reflect` ('java.lang.System', 'exit', 0)", "where(...)")
    Traceback (most recent call last):
    penstock.plan.errors.PlanError: where(...): reflect is refused: it runs any Java method. ...
    """
    for pattern, causes in ((_CALL, CALLS), (_OPTION, OPTIONS)):
        if found := pattern.search(text):
            name = next(known for known in causes if known.lower() == found[1].lower())
            raise PlanError(f"{step}: {name} is refused: {causes[name]}. ({written_at()})")
