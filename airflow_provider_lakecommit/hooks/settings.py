# SPDX-License-Identifier: Apache-2.0
"""The `[lakecommit]` section of this Airflow as one typed value.

Contract: read when a task runs, never when a DAG is parsed. Defaults and descriptions are defined only in
:mod:`~airflow_provider_lakecommit.get_provider_info`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing

SECTION = "lakecommit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one Airflow deployment for all its landings."""

    deployment_id: str
    control_topic: str
    spark_grace: timedelta
    location_providers: tuple[str, ...] = ()

    @classmethod
    def read(cls) -> Settings:
        """Return the current settings; an invalid option raises :class:`SpecError`."""
        from airflow.sdk.configuration import conf

        deployment = conf.get(SECTION, "deployment_id").strip()
        topic = conf.get(SECTION, "control_topic").strip()
        grace = conf.getint(SECTION, "spark_grace_seconds")
        providers = tuple(conf.get(SECTION, "location_providers").replace(",", " ").split())
        if not deployment or not topic:
            raise SpecError(
                "LC5309", f"[{SECTION}] deployment_id and control_topic must not be empty: set them or remove them"
            )
        if grace < 0:
            raise SpecError(
                "LC5310", f"[{SECTION}] spark_grace_seconds = {grace}: it must be a number of seconds, 0 or more"
            )
        return cls(
            deployment_id=deployment,
            control_topic=topic,
            spark_grace=timedelta(seconds=grace),
            location_providers=providers,
        )

    def complete(self, landing: Landing) -> Landing:
        """Return the landing with this deployment's control topic if it has none, and with the allowed location
        providers.
        """
        allowed = tuple(dict.fromkeys((*landing.connections.location_providers, *self.location_providers)))
        topic = landing.connections.control_topic or self.control_topic
        return landing.changed(connections={"control_topic": topic, "location_providers": allowed})
