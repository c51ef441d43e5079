# SPDX-License-Identifier: Apache-2.0
"""The `[lakecommit]` section: defaults, what a landing takes from it, values that cannot be meant."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.settings import Settings
from airflow_provider_lakecommit.landing import Landing
from tests.support.declared import landing_of

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")


def test_the_defaults_are_those_of_the_provider_info() -> None:
    assert Settings.read() == Settings(
        deployment_id="airflow", control_topic="control-lakecommit", spark_grace=timedelta(seconds=20)
    )


def test_a_landing_that_names_no_control_topic_takes_the_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LAKECOMMIT__CONTROL_TOPIC", "our-control")
    own = landing_of(name="own", topics="orders", table="shop.orders", control_topic="my-control")
    settings = Settings.read()
    assert settings.complete(ORDERS).control_topic_name == "our-control"
    assert settings.complete(own).control_topic_name == "my-control"
    assert settings.complete(ORDERS).spec_version == ORDERS.spec_version


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("DEPLOYMENT_ID", " ", "must not be empty.*LC5309"),
        ("CONTROL_TOPIC", "", "must not be empty.*LC5309"),
        ("SPARK_GRACE_SECONDS", "-1", "spark_grace_seconds = -1.*LC5310"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"AIRFLOW__LAKECOMMIT__{option}", value)
    with pytest.raises(SpecError, match=message):
        Settings.read()
