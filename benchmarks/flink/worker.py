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


def run(asked):
    """The seconds from the submission of the query to its end."""
    configuration = Configuration()
    for name, value in {**SETTINGS, **asked["settings"]}.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for statement in asked["create"]:
        tables.execute_sql(statement)
    began = time.monotonic()
    tables.execute_sql(asked["insert"]).wait()
    return time.monotonic() - began


for line in sys.stdin:
    print(REPLY + json.dumps(run(json.loads(line))), flush=True)
