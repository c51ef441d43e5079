# SPDX-License-Identifier: Apache-2.0
"""Which files of the page are served."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_lakecommit.page.app import INDEX, built


def test_a_checkout_without_a_build_reports_how_to_make_one(tmp_path: Path) -> None:
    files = built(tmp_path / "absent")
    assert set(files) == {INDEX}
    assert b"make ui" in files[INDEX][0]


def test_only_files_of_known_kinds_are_served_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    for name in (INDEX, "assets/page.js", "assets/page.css", "assets/secret.py", ".env"):
        (tmp_path / name).write_text("x")
    files = built(tmp_path)
    assert set(files) == {INDEX, "assets/page.js", "assets/page.css"}
    assert files["assets/page.js"][1].startswith("text/javascript")
