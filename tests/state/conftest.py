"""A checkpoint to work on, and a step's bucket that is carried from batch to batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(tmp_path / "checkpoint")
