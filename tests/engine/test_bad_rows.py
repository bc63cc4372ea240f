"""Bad rows as dead letters keep them: whole, in base64 when they are no text, cut when they are enormous."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest

from penstock.compile.failures import explained, worker_died
from penstock.compile.ingest import KEPT_BYTES, SHOWN_CHARACTERS, _shown
from penstock.compile.types import frame_of


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (b"{broken", "{broken"),
        ("{brök\u0000n".encode(), "{brök\u0000n"),
        (b"", ""),
        (b"{\xff\xfe", "base64:" + base64.b64encode(b"{\xff\xfe").decode()),
        (b"x" * KEPT_BYTES, "x" * KEPT_BYTES),
        (b"y" * (KEPT_BYTES + 1), "y" * SHOWN_CHARACTERS + f" ... ({KEPT_BYTES + 1} bytes)"),
    ],
    ids=["text", "with NUL", "nothing", "no UTF-8", "large", "enormous"],
)
def test_a_bad_row_is_kept_as_it_came(spark, row, kept):
    frame = frame_of(spark, pa.table({"raw": pa.array([row], pa.binary())}))
    found = frame.selectExpr(f"to_json(struct({_shown('cast(raw AS string)')} AS row)) AS letter").collect()
    assert json.loads(found[0].letter)["row"] == kept


CUT = """An exception occurred
org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/7.json.gz.  SQLSTATE: KD001
\tat org.apache.spark.sql.Something
Caused by: java.io.EOFException: Unexpected end of input stream
\tat org.apache.hadoop.Something
"""  # noqa: E501


def test_a_file_that_cannot_be_read_to_its_end_is_named_with_the_next_move():
    told = str(explained(RuntimeError(CUT), []))
    assert told.startswith("the input file file:///in/7.json.gz is cut or damaged: Unexpected end of input stream.")
    assert "Put the whole file in its place" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("text", "died"),
    [
        ("SparkException: Python worker exited unexpectedly (crashed).", True),
        ("SocketException: Connection reset\n\tat org.apache.spark.api.python.BasePythonRunner", True),
        ("SocketException: Connection reset\n\tat org.postgresql.Driver", False),
        ("ValueError: no such luck\n\tat org.apache.spark.api.python.BasePythonRunner", False),
    ],
)
def test_a_worker_that_died_is_told_from_one_that_raised(text, died):
    assert worker_died(RuntimeError(text)) is died
