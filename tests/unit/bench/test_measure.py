# SPDX-License-Identifier: Apache-2.0
"""What a measurement counts: the work, and not the looking at it."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.measure import measured

SECONDS = 0.5
WORK = f"import time\nwhile time.process_time() < {SECONDS}: pass"


def test_looking_is_not_counted() -> None:
    with measured() as cost:
        time.sleep(1)

    assert cost.wall >= 1
    assert cost.cpu < 0.1
    assert cost.peak_mb > 1


def test_the_work_of_a_process_that_ends_in_between_is_counted() -> None:
    with measured() as cost:
        subprocess.run([sys.executable, "-S", "-c", WORK], check=True)

    assert SECONDS * 0.9 <= cost.cpu < SECONDS + 0.3


def test_the_work_of_those_that_are_left_out_is_not() -> None:
    endless = "while True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", endless]) as other:
        with measured(without={other.pid}) as cost:
            time.sleep(1)
        other.kill()

    assert cost.cpu < 0.1
