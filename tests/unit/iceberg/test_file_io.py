# SPDX-License-Identifier: Apache-2.0
"""Local files through the light file access: there or not, however their location is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.iceberg.file_io import LightFileIO


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
def test_a_local_file_is_there_until_it_is_removed(tmp_path: Path, scheme: str) -> None:
    location, files = (
        f"{scheme}{tmp_path / 'folder' / 'one file.bin'}",
        LightFileIO({"warehouse": f"file://{tmp_path}"}),
    )
    assert not files.new_input(location).exists()
    with files.new_output(location).create() as out:
        out.write(b"abc")
    assert files.new_input(location).exists()
    assert files.new_output(location).exists()
    assert len(files.new_input(location)) == 3
    files.delete(location)
    assert not files.new_input(location).exists()
