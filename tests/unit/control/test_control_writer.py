# SPDX-License-Identifier: Apache-2.0
"""A writer of the control topic whose brokers are away."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.exceptions import ControlTopicError
from tests.support.leftovers import running


@pytest.mark.parametrize("sends", [True, False])
def test_an_error_that_is_kept_keeps_no_client(sends: bool) -> None:
    """A run remembers why a table fails, for as long as it fails."""
    before = running()
    settings = {"bootstrap.servers": "127.0.0.1:1"}
    with ControlWriter("control", settings, "writer", 0, timeout=0.2) as writer:
        kept: ControlTopicError | None = None
        try:
            writer.send([Outgoing(b"key", b"value", [])]) if sends else writer.open()
        except ControlTopicError as e:
            kept = e
    assert kept is not None
    assert kept.code == "LC2011"
    assert not running().keys() - before.keys()
