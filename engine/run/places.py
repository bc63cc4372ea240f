"""The places that a job reads: are they there, and do they still have what comes next?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from penstock.compile.layout import Layout
from penstock.plan.errors import PenstockError, RunError
from penstock.run.begun import kept
from penstock.run.lag import reached
from penstock.run.spark_log import SOURCES, SparkLog, TornError
from penstock.state.checkpoint import Checkpoint

DOCUMENT = "places.json"
# of what Spark's connector says when a topic has lost records, has gone, or nobody answers
SIGNS = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "UnknownTopicOrPartition", "TimeoutException", "KafkaException")


def check_places(layout: Layout, spark: SparkSession, checkpoint: Checkpoint) -> Mapping[str, Mapping[str, Any]]:
    """Refuse a run whose inputs cannot go on from where the newest batch left them, before anything is written.

    What is known of the places, by input, is kept in the checkpoint, and given.
    """
    before = checkpoint.read_json(DOCUMENT) or {}
    latest = checkpoint.latest()
    made_from = kept(latest) if latest is not None else None
    log = SparkLog(checkpoint.files.store)
    comes_next = _began(layout, log) if made_from is None else reached(layout.inputs, made_from.offsets)
    if log.planned():
        # where no offsets tell how far a place was read, it is still the one that was planned
        comes_next = {**{name: {} for name in before}, **comes_next}
    now = {
        node.name: node.source.check(spark, before.get(node.name, {}), comes_next.get(node.name))
        for node in layout.inputs
    }
    told = {**before, **{name: said for name, said in now.items() if said}}
    if told != before:
        checkpoint.write_json(DOCUMENT, told)
    return told


def _began(layout: Layout, log: SparkLog) -> Mapping[str, Mapping[str, int]]:
    """What came first by input and partition, as the sources noted it: no batch has been done yet."""
    found: dict[str, Mapping[str, int]] = {}
    nodes = {node.name: node for node in layout.inputs}
    for number, name in enumerate(layout.sources):
        with contextlib.suppress(FileNotFoundError, TornError):  # nothing is noted yet; wholeness is asked elsewhere
            first = json.loads(log.source_lines(f"{SOURCES}/{number}/0")[0])
            said = nodes[name].source.reached(first) if name in nodes else None
            found |= {} if said is None else {name: said}
    return found


def lost(layout: Layout, spark: SparkSession, checkpoint: Checkpoint, error: PenstockError) -> PenstockError | None:
    """Why a run could not go on reading, as the places themselves tell; None when they are as they should be."""
    said = getattr(error, "java", None) or ""
    if not any(sign in said for sign in SIGNS):
        return None
    try:
        check_places(layout, spark, checkpoint)
    except RunError as found:
        found.java = said
        return found
    return None
