"""The process that runs Flink: a line of JSON for each query in, the seconds of its run out.

It is run by the Python of Flink's environment, so it imports nothing of the repository.
"""

import json
import sys
import time

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

REPLY = "flink run: "
SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "1g",  # RocksDB's caches and buffers
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.bind-port": "0",
}
EVENTS = """
create table events (
  key bigint, price bigint, `at` timestamp_ltz(3), bidder bigint,
  watermark for `at` as `at` - interval '{lateness}' second
) with ('connector' = 'filesystem', 'path' = 'file://{source}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')
"""
NOWHERE = "'connector' = 'blackhole'"
FILES = "'connector' = 'filesystem', 'path' = 'file://{}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"


def run(asked):
    """The seconds from the submission of the query to its end."""
    configuration = Configuration()
    own = {
        "state.backend.type": asked["backend"],
        "execution.checkpointing.dir": f"file://{asked['checkpoint']}",
    }
    for name, value in {**SETTINGS, **own}.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(EVENTS.format(source=asked["source"], lateness=asked["lateness"]))
    sink = FILES.format(asked["output"]) if asked["output"] else NOWHERE
    began = time.monotonic()
    tables.execute_sql(f"create table results with ({sink}) as {asked['query']}").wait()
    return time.monotonic() - began


for line in sys.stdin:
    print(REPLY + json.dumps(run(json.loads(line))), flush=True)
