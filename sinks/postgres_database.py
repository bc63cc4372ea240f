"""A connection to PostgreSQL: opened when it is needed, let go of when anything fails on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.rows import dict_row

from penstock.plan.errors import RunError, SinkError
from penstock.plan.secrets import is_reference, reveal
from penstock.sinks import refusals
from penstock.sinks.base import Target

NEXT_MOVE = "See that the server runs and takes connections, and that this user may make tables and write there."
TO_READ = "See that the server runs and takes connections, and that this user may read there."
OLDEST = 150000  # PostgreSQL 15: unique keys in which nulls are equal
# a server that has gone silent is noticed; what the address itself says goes first
PATIENCE = {"connect_timeout": 5, "tcp_user_timeout": 20_000, "keepalives_idle": 10, "keepalives_interval": 5}
SETTINGS = """
-- a driver that stands still in a transaction must not keep its successor out
SET idle_in_transaction_session_timeout = '15s';
SET lock_timeout = '10s';
-- the manifest must not say that a batch is there which a crash of the server could take back
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
# 08 connections, 40 serialization failures and deadlocks, 57P the server stops or starts
MAY_PASS = ("08", "40", "57P", "57014", "53300", "55P03", "25P03", "25006")
# what the server says of a connection that it refuses has no code of its own
FOR_GOOD = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")


class Database:
    """A database as one user sees it; ``place`` names it, without the password."""

    def __init__(self, settings: dict[str, Any]) -> None:
        usual = {o.keyword.decode(): o.val.decode() for o in Conninfo.get_defaults() if o.val is not None}
        known = {**usual, **settings}
        host = known.get("host") or known.get("hostaddr") or "localhost"
        user = known.get("user", "")
        self.place = f"postgresql://{user}@{host}:{known.get('port')}/{known.get('dbname') or user}"
        self._settings = {**PATIENCE, **settings, "client_encoding": "utf8"}
        self._password = str(known.get("password") or "")
        self._connection: psycopg.Connection | None = None

    @classmethod
    def of(cls, url: str, step: str) -> Database:
        """The database at an address, which is read now; nothing is opened."""
        try:
            return cls(dict(conninfo_to_dict(reveal(url, step))))
        except psycopg.ProgrammingError:
            # its own words repeat the part that it does not understand, which may be the password
            which = f"what {url!r} names" if is_reference(url) else "url"
            raise RunError(
                f"{step}: {which} is no address that PostgreSQL understands. "
                f"Write postgresql://user:password@host:5432/database, with percent signs for what is special."
            ) from None

    @contextmanager
    def session(self, targets: Sequence[Target], who: str) -> Iterator[psycopg.Connection]:
        """The open connection; after a failure of any kind the next session gets a new one."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._open(who)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            said = self._said(error)
            raise refusals.cannot_write(targets, self.place, said, NEXT_MOVE, passes=may_pass(error)) from error
        except BaseException:
            self.close()
            raise

    def rows(self, table: str, schema: str | None) -> list[dict[str, Any]]:
        """All rows of a table, for somebody who looks at it; none when there is no such table."""
        name = sql.Identifier(table) if schema is None else sql.Identifier(schema, table)
        try:
            with closing(self._open("look")) as connection:
                there = connection.execute("SELECT to_regclass(%s)", (name.as_string(connection),)).fetchone()
                if there == (None,):
                    return []
                cursor = connection.cursor(row_factory=dict_row)
                return cursor.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall()
        except psycopg.Error as error:
            raise SinkError(f"cannot read table {table!r} in {self.place}: {self._said(error)}. {TO_READ}") from error

    def close(self) -> None:
        """Close the connection; what was not committed is undone, and temporary tables end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _open(self, who: str) -> psycopg.Connection:
        settings = {"application_name": f"penstock {who}"[:63], **self._settings}
        connection = psycopg.connect(autocommit=True, prepare_threshold=None, **settings)
        try:
            if connection.info.server_version < OLDEST:
                version = connection.info.parameter_status("server_version")
                raise SinkError(f"{self.place} is PostgreSQL {version}; sinks.postgres needs 15 or newer.")
            connection.execute(SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _said(self, error: psycopg.Error) -> str:
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        return said.replace(self._password, "***") if self._password else said


def may_pass(error: psycopg.Error) -> bool:
    """True for what may be over soon: no connection, a server that stops or starts, a deadlock.

    >>> may_pass(psycopg.errors.DeadlockDetected()), may_pass(psycopg.errors.DiskFull())
    (True, False)
    """
    if error.sqlstate is not None:
        return error.sqlstate.startswith(MAY_PASS)
    gone = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return gone and not any(words in str(error) for words in FOR_GOOD)
