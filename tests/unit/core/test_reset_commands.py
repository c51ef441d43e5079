# SPDX-License-Identifier: Apache-2.0
"""Commands in texts about one landing of a set."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.commands import for_landing


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`lakecommit reset offsets SPEC --from 3`", "`lakecommit reset offsets SPEC --landing shop.orders --from 3`"),
        ("`lakecommit land SPEC` says it", "`lakecommit land SPEC` says it"),
        ("`lakecommit verify SPEC --landing x`", "`lakecommit verify SPEC --landing x`"),
        (
            "SPEC has no table; `lakecommit plan SPEC`",
            "SPEC has no table; `lakecommit plan SPEC --landing shop.orders`",
        ),
    ],
)
def test_commands_report_which_landing_of_a_set_they_are_about(text: str, found: str) -> None:
    assert for_landing(text, "shop.orders") == found
