# SPDX-License-Identifier: Apache-2.0
"""How a command ends that brings something here: `make test-all` goes on without what it does not bring."""

from __future__ import annotations

import sys

import pytest

from dev.processes import ChildError, run_out


@pytest.mark.parametrize(
    ("program", "seconds", "message"),
    [
        ("import time; time.sleep(600)", 0.1, "`bring it` did not end in 0 s"),
        ("import sys; print('said'); sys.exit('no way')", 60, "`bring it` ended with 1: said\nno way"),
    ],
)
def test_what_fails_or_takes_too_long_is_reported_as_the_callers_error(
    program: str, seconds: float, message: str
) -> None:
    with pytest.raises(ChildError) as raised:
        run_out([sys.executable, "-c", program], name="bring it", seconds=seconds, error=ChildError)
    assert str(raised.value).strip() == message
