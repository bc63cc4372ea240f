"""What is known of topics without a broker: what a job may ask for, where it begins, what it has lost."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pyarrow as pa
import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.plan.errors import RunError
from penstock.plan.input import Input
from penstock.run.lag import Lags, reached
from penstock.sources import kafka_avro
from penstock.sources.kafka_broker import Topic
from penstock.sources.kafka_losses import LostDataError, check_topic_is_whole
from penstock.sources.kafka_start import check_start

SCHEMA = "url string, at timestamp"


def topic(name="clicks", **more):
    return sources.kafka(name, "localhost:9092", **{"format": "json", "schema": SCHEMA, **more})


REFUSED = {
    "a format that there is not": ({"format": "xml"}, "there is json, csv, avro, debezium"),
    "a name that no topic has": ({"name": "a,b"}, "is no name of a topic"),
    "no servers": ({"servers": ""}, "give host:port"),
    "servers twice": ({"kafka.bootstrap.servers": "x:1"}, "is what servers= says"),
    "the start in Spark's words": ({"startingOffsets": "latest"}, "is what start= says"),
    "to pass over lost records": ({"failOnDataLoss": False}, "never skipped"),
    "a start that is no time": ({"start": "yesterday"}, "a time such as"),
    "a start before the first offset": ({"start": {0: -1}}, "offsets by partition"),
    "a column that messages do not have": ({"columns": ["lag"]}, "there is key, headers, partition"),
    "a column that the rows have": ({"columns": {"key": "url"}}, "columns={'key': 'message_key'}"),
    "columns of a changelog": ({"format": "upsert", "columns": ["key"]}, "leave columns= out"),
    "batches of nothing": ({"max_rows_per_batch": 0}, "give a number of rows"),
    "an option that nobody reads": ({"format": "maxwell", "sep": ";"}, "begin with 'kafka.'"),
    "an Avro schema of JSON": ({"avro_schema": "{}"}, "is for format='avro'"),
    "an Avro schema that is none": ({"format": "avro", "avro_schema": "[]"}, "the JSON of an Avro record"),
    "an Avro schema without a column": (
        {"format": "avro", "avro_schema": {"type": "record", "name": "r", "fields": [{"name": "url", "type": "int"}]}},
        "has no field 'at'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_topic_that_makes_no_sense_is_refused_on_the_line_that_wrote_it(case):
    given, message = REFUSED[case]
    given = {"topic": given.get("name", "clicks"), "servers": "h:1", "format": "json", "schema": SCHEMA} | given
    given.pop("name", None)
    with pytest.raises(PlanError, match=r"test_plans\.py") as refused:
        sources.kafka(**given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.acks": "0"}, "could lose or mix up rows"),
        ({"kafka.enable.idempotence": False}, "could lose or mix up rows"),
        ({"retries": 3}, "begin with 'kafka.'"),
        ({"key": ("a", "a")}, "'a'"),
    ],
)
def test_a_sink_that_could_lose_rows_is_refused(given, message):
    with pytest.raises(PlanError) as refused:
        sinks.kafka("out", "h:1", **given)
    assert message in str(refused.value)


def test_a_job_over_kafka_says_so_and_needs_the_connector_once():
    job = Job("shop")
    clicks = job.stream("clicks", topic(start={1: 4}), time="at", lateness="1 minute")
    clicks.to(sinks.kafka("out", "localhost:9092"))
    told = job.explain()
    assert "json in Kafka topic clicks at localhost:9092, from offset 4 of partition 1" in told
    assert "rows may come again after a crash" in told
    assert len([n for n in job.needs if "kafka" in n.package]) == 1
    assert [n.who for n in topic(format="avro").needs] == ["Kafka", "Avro"]


def test_a_secret_is_in_no_description():
    secret = "swordfish"
    source = topic(**{"kafka.sasl.jaas.config": f"password='{secret}'"})
    sink = sinks.kafka("out", "h:1", **{"kafka.ssl.key.password": secret})
    for one in (source, sink):
        assert secret not in repr(one) + one.describe() + one.place
    assert source.without_secrets(f"Invalid value password='{secret}' for") == "Invalid value *** for"


def test_sources_are_values():
    assert topic() == topic()
    assert hash(topic()) == hash(topic())
    assert topic() != topic(start="latest")
    assert pickle.loads(pickle.dumps(topic())) == topic()
    assert dataclasses.replace(topic(), start=2000) == topic(start="1970-01-01T00:00:02Z")


TOPIC = Topic("id-1", {0: 5, 1: 0}, {0: 9, 1: 3})
KNOWN = {"topic_id": "id-1"}


@pytest.mark.parametrize("wanted", [5, 7, 9])
def test_a_topic_that_has_what_comes_next_is_whole(wanted):
    assert check_topic_is_whole("t", TOPIC, KNOWN, {"0": wanted}, "kafka") == KNOWN


LOST = {
    "records that were deleted": ({"0": 4}, KNOWN, "partition 0 has lost 1 records that were not read: offset 4"),
    "records that are not there any more": ({"1": 4}, KNOWN, "offset 4 comes next, and it ends at 3"),
    "a partition": ({"2": 0}, KNOWN, "partition 2 has gone"),
    "all of them": ({"0": 7}, {"topic_id": "id-0"}, "was deleted and made anew"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_topic_that_lost_what_comes_next_is_refused_by_name(case):
    wanted, known, message = LOST[case]
    with pytest.raises(LostDataError) as refused:
        check_topic_is_whole("t", TOPIC, known, wanted, "kafka")
    assert message in str(refused.value)
    assert "new checkpoint" in str(refused.value)


def test_offsets_that_the_topic_does_not_have_are_no_start():
    check_start(((0, 5), (1, 3)), "t", TOPIC, "kafka")
    for start, message in (((0, 4),), "5 to 9"), (((0, 10),), "5 to 9"), (((7, 0),), "partitions 0 to 1"):
        with pytest.raises(RunError, match=message):
            check_start(start, "t", TOPIC, "kafka")


def log(*lines):
    return "\n".join(["v1", '{"batchTimestampMs":1}', *(json.dumps(x) if x is not None else "-" for x in lines)])


class Ends:
    """A watch that knows the ends."""

    def __init__(self, ends):
        self.said = ends

    def ends(self, partitions):
        return {p: self.said[p] for p in partitions if p in self.said}

    def close(self):
        pass


def inputs(*topics):
    job = Job("shop")
    streams = [job.stream(f"in{i}", topic(t), time="at", lateness="1 minute") for i, t in enumerate(topics)]
    files = job.stream("files", sources.files("in", "json", SCHEMA), time="at", lateness="1 minute")
    nodes = [s.node for s in (*streams, files)]
    assert all(isinstance(n, Input) for n in nodes)
    return nodes


def test_each_input_has_its_line_in_the_log_also_when_two_read_one_topic():
    lines = log({"logOffset": 3}, {"a": {"0": 1}}, {"b": {"0": 2}}, {"a": {"0": 3}}, None, 17)
    assert reached(inputs("a", "b", "a"), lines) == {"in0": {"0": 1}, "in1": {"0": 2}, "in2": {"0": 3}}


def test_lag_is_what_is_there_less_what_was_read_and_unknown_when_nobody_says(monkeypatch):
    ends = {"a": Ends({0: 10, 1: 10}), "b": Ends({})}
    monkeypatch.setattr("penstock.sources.kafka_topic.Kafka.watch", lambda self: ends[self.topic])
    now = Lags(inputs("a", "b")).now(log({"a": {"0": 4, "1": 12}}, {"b": {"0": 2}}))
    # partition 1 was read to 12 after its end was told
    assert now["in0"]["partitions"]["0"] == {"offset": 4, "latest": 10, "lag": 6}
    assert now["in0"]["partitions"]["1"]["lag"] == 0
    assert now["in0"]["lag"] == 6
    assert now["in1"] == {"partitions": {"0": {"offset": 2, "latest": None, "lag": None}}, "lag": None}
    assert "files" not in now
    assert Lags(inputs("a")).now(None) == {}


def test_an_avro_schema_follows_from_the_rows():
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("who", pa.struct([("name", pa.string())])),
    ]
    made = {f["name"]: f["type"] for f in json.loads(kafka_avro.derived(pa.schema(fields), "kafka"))["fields"]}
    assert made["id"] == "long"
    assert made["at"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    assert made["price"][1]["logicalType"] == "decimal"
    assert made["tags"][1] == {"type": "array", "items": ["null", "string"]}
    assert made["who"][1]["fields"] == [{"name": "name", "type": ["null", "string"]}]
    with pytest.raises(PlanError, match="Avro does not have"):
        kafka_avro.derived(pa.schema([("m", pa.map_(pa.int32(), pa.string()))]), "kafka")
