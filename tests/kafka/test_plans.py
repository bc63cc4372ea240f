"""What is known of topics without a broker: what a job may ask for, where it begins, what it has lost."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle

import pyarrow as pa
import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.compile.failures import explained
from penstock.compile.layout import Layout
from penstock.plan.errors import RunError
from penstock.plan.input import Input
from penstock.run.lag import Lags, reached
from penstock.run.places import check_places
from penstock.sinks.kafka_topic import producer
from penstock.sources import kafka_avro
from penstock.sources.kafka_broker import Topic
from penstock.sources.kafka_losses import LostDataError, check_topic_is_whole
from penstock.sources.kafka_start import check_start
from penstock.state.checkpoint import Checkpoint

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
    "an option that nobody reads": ({"format": "maxwell", "sep": ";"}, "there is no option 'sep'"),
    "an option that is mistyped": ({"maxOffsetPerTrigger": 5}, "Did you mean max_rows_per_batch=?"),
    "one of the connector": ({"minPartition": 5}, "Did you mean 'minPartitions'?"),
    "one of the reader": ({"timestampformat ": "y"}, "Did you mean 'timestampFormat'?"),
    "one of the clients": ({"kafkaConsumer.pollTimeout": 5}, "Did you mean 'kafkaConsumer.pollTimeoutMs'?"),
    "one of another reader": ({"sep": ";"}, "json has allowBackslashEscapingAnyCharacter, allowComments"),
    "what becomes of bad rows": ({"mode": "DROPMALFORMED"}, "there is no option 'mode'"),
    "the start in Spark's words, in small letters": ({"startingoffsets": "latest"}, "is what start= says"),
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
        ({"kafka.transactional.id": "t"}, "nothing begins a transaction"),
        ({"kafka.delivery.timeout.ms": 9_000}, "give at least 10005, or leave it out"),
        ({"kafka.delivery.timeout.ms": 20_000, "kafka.request.timeout.ms": 19_000, "kafka.linger.ms": 2_000}, "21000"),
        ({"kafka.delivery.timeout.ms": 20_000, "kafka.default.api.timeout.ms": 60_000}, "30005"),
        ({"retries": 3}, "begin with 'kafka.'"),
        ({"key": ("a", "a")}, "'a'"),
    ],
)
def test_a_sink_that_could_lose_rows_is_refused(given, message):
    with pytest.raises(PlanError) as refused:
        sinks.kafka("out", "h:1", **given)
    assert message in str(refused.value)


PRODUCERS = {
    "nothing told": ({}, 15_000),
    "a longer request": ({"kafka.request.timeout.ms": 40_000}, 40_005),
    "a linger": ({"kafka.request.timeout.ms": "14000", "kafka.linger.ms": 2_000}, 16_000),
    "Kafka's own request": ({"kafka.default.api.timeout.ms": 60_000}, 30_005),
    "a shorter request": ({"kafka.request.timeout.ms": 1_500}, 15_000),
    "all told": ({"kafka.request.timeout.ms": 1_500, "kafka.delivery.timeout.ms": 2_000}, 2_000),
}


@pytest.mark.parametrize("case", PRODUCERS)
def test_a_producer_has_time_for_what_it_is_told_to_wait_for(case):
    options, expected = PRODUCERS[case]
    told = producer(sinks.kafka("out", "h:1", **options).connection, "kafka")
    assert int(told["kafka.delivery.timeout.ms"]) == expected


def test_options_of_reader_and_connector_are_told_apart_whatever_their_case():
    source = topic(minPartitions=4, **{"timestampformat": "y", "fetchOffset.numRetries": 1, "kafka.client.id": "c"})
    assert dict(source.reading) == {"minPartitions": "4", "fetchOffset.numRetries": "1"}
    assert dict(source.parsing) == {"timestampformat": "y"}
    assert dict(topic(format="csv", sep=";", maxColumns=3).parsing) == {"sep": ";", "maxColumns": "3"}


def test_the_key_of_a_topic_and_of_the_table_that_goes_there_are_one():
    job = Job("shop")
    table = job.table("users", topic("users", schema="id long, part string, v int"), key=("id", "part"))
    with pytest.raises(PlanError, match=r"output 'out': sinks\.kafka\('out'\) has key=v, .* by id, part") as refused:
        table.to(sinks.kafka("out", "h:1", key="v"))
    assert "test_plans.py" in str(refused.value)
    table.to(sinks.kafka("out", "h:1", key=("part", "id")))
    clicks = job.stream("clicks", topic(), time="at", lateness="1 minute")
    clicks.to(sinks.kafka("clicks", "h:1", key="url"))
    with pytest.raises(PlanError, match="has key=url"):
        clicks.to(sinks.kafka("by_at", "h:1", key="url"), key="at")


@pytest.mark.parametrize("given", [topic(), topic(format="avro"), sinks.kafka("clicks", "h:1")])
def test_a_spark_without_a_connector_is_refused_by_name_when_the_job_needs_it(given, monkeypatch):
    monkeypatch.setattr("penstock.sources.kafka_connection.version", lambda package: "4.3.0")
    wanted = r"(sources|sinks)\.kafka\('clicks'\): there is no Kafka connector for PySpark 4\.3\.0\. Use PySpark 4\.0\."
    with pytest.raises(RunError, match=wanted):
        assert given.needs
    monkeypatch.setattr("penstock.sources.kafka_connection.version", lambda package: "4.1.2")
    assert given.needs[0].package == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"


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


def test_what_spark_says_of_a_failed_read_has_no_secret_in_it(monkeypatch):
    monkeypatch.setenv("JAAS", "PlainLoginModule required password='swordfish';")
    monkeypatch.delenv("GONE", raising=False)
    options = {"kafka.sasl.jaas.config": "env:JAAS", "kafka.client.id": "env:GONE"}
    pem = {"kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY----- planted"}
    job = Job("shop")
    rows = job.stream("clicks", topic(**options), time="at", lateness="1 minute")
    both = rows.union(job.stream("others", topic("others", **pem), time="at", lateness="1 minute"))
    stream = both.by("url").agg(n="count(*)")
    said = (
        f"Caused by: org.apache.kafka.common.KafkaException: Invalid value {os.environ['JAAS']} for {pem} of a client"
    )
    ours = RunError(f"clicks: {said}", java=said)
    for error in (RuntimeError(said), ours, LostDataError(f"lost, {said}")):
        found = explained(error, [stream.node])
        assert "swordfish" not in f"{found} {found.java}"
        assert "planted" not in f"{found} {found.java}"
        assert "of a client" in str(found)
        assert "Invalid value *** for" in str(found.java or found)
    assert explained(ours, [stream.node]) is ours


def test_where_a_place_was_planned_it_is_compared_also_when_nobody_noted_how_far_it_was_read(tmp_path, monkeypatch):
    checkpoint = Checkpoint.open(str(tmp_path / "checkpoint"))
    job = Job("shop")
    job.stream("clicks", topic(), time="at", lateness="1 minute").to(sinks.memory("out"))
    told = []
    monkeypatch.setattr(
        "penstock.sources.kafka_topic.Kafka.check", lambda self, spark, known, at: told.append((known, at)) or KNOWN
    )
    for _ in range(2):
        assert check_places(Layout(job), None, checkpoint) == {"clicks": KNOWN}
    checkpoint.files.store.replace("spark/offsets/0", log(None).encode())
    check_places(Layout(job), None, checkpoint)
    assert told == [({}, None), (KNOWN, None), (KNOWN, {})]


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
    monkeypatch.setattr("penstock.sources.kafka_topic.Kafka.watch", lambda self, known: ends[self.topic])
    now = Lags(inputs("a", "b"), {}).now(log({"a": {"0": 4, "1": 12}}, {"b": {"0": 2}}))
    # partition 1 was read to 12 after its end was told
    assert now["in0"]["partitions"]["0"] == {"offset": 4, "latest": 10, "lag": 6}
    assert now["in0"]["partitions"]["1"]["lag"] == 0
    assert now["in0"]["lag"] == 6
    assert now["in1"] == {"partitions": {"0": {"offset": 2, "latest": None, "lag": None}}, "lag": None}
    assert "files" not in now
    assert Lags(inputs("a"), {}).now(None) == {}


def test_a_place_that_became_another_stops_a_batch_and_no_status(monkeypatch):
    class Other(Ends):
        def ends(self, partitions):
            raise LostDataError("made anew")

    watch, offsets = Ends({0: 10}), log({"a": {"0": 4}})
    asked = []
    monkeypatch.setattr("penstock.sources.kafka_topic.Kafka.watch", lambda self, known: asked.append(known) or watch)
    lags = Lags(inputs("a"), {"in0": KNOWN})
    lags.check(offsets)
    watch.said = {0: 12}
    assert lags.told(offsets)["in0"]["lag"] == 6  # the answer that the batch got
    assert lags.now(offsets)["in0"]["lag"] == 8
    assert asked == [KNOWN]
    other = log({"a": {"0": 5}})
    assert lags.told(other)["in0"]["lag"] == 7  # nobody has asked for that batch
    watch.__class__ = Other
    assert lags.now(offsets)["in0"]["lag"] is None
    with pytest.raises(LostDataError):
        lags.check(offsets)


PARTLY = {
    "nothing is planned: it may be another": (None, {"topic_id": "id-0"}, None),
    "nothing is known": ({}, {}, None),
    "it is the same": ({}, KNOWN, None),
    "another": ({}, {"topic_id": "id-0"}, "was deleted and made anew"),
}


@pytest.mark.parametrize("case", PARTLY)
def test_a_topic_is_known_by_its_id_also_where_it_is_not_known_how_far_it_was_read(case):
    reached_to, known, message = PARTLY[case]
    if message is None:
        assert check_topic_is_whole("t", TOPIC, known, reached_to, "kafka") == KNOWN
        return
    with pytest.raises(LostDataError, match=message):
        check_topic_is_whole("t", TOPIC, known, reached_to, "kafka")


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
