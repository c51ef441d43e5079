# SPDX-License-Identifier: Apache-2.0
"""Settings of Spark in a file instead of the arguments of its process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_provider_lakecommit.spark.launch.scratch import beside_the_arguments, save_properties


def test_values_are_written_as_java_reads_properties(tmp_path: Path) -> None:
    path = tmp_path / "p"
    save_properties(path, {"a b=c:d#e": " x=y:z#\\n\nö😀", "plain": 7})
    assert path.read_text() == ("a\\ b\\=c\\:d\\#e=\\ x=y:z#\\\\n\\n\\u00f6\\ud83d\\ude00\nplain=7\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("before", [None, "--name mine pyspark-shell"])
def test_a_process_that_is_started_meanwhile_reads_the_file_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", before)
    path = tmp_path / "with space"
    observed: list[str] = []

    def java_does_not_start() -> None:
        observed.extend((os.environ["PYSPARK_SUBMIT_ARGS"], path.read_text()))
        raise RuntimeError

    with pytest.raises(RuntimeError), beside_the_arguments(path, {"k.secret": "canary"}):
        java_does_not_start()
    arguments = f"--properties-file '{path}' --load-spark-defaults {before or 'pyspark-shell'}"
    assert observed == [arguments, "k.secret=canary\n"]
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before
    assert not path.exists()
    with beside_the_arguments(path, {}):
        assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before
