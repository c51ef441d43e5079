# SPDX-License-Identifier: Apache-2.0
"""Several partitions of a control topic, at one look.

Contract: what :meth:`ControlPartitions.read_together` gives of each partition is what
:meth:`~airflow_provider_lakecommit.control.control_topic.ControlTopic.read` would, for as many requests as one
partition costs: the topic is described before and after, and the borders of all are asked for at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_lakecommit.control.control_log import ControlLog
from airflow_provider_lakecommit.control.control_topic import ControlTopic


class ControlPartitions(ControlTopic):
    """A control topic that is read for many at once."""

    def read_together(self, starts: Mapping[int, int]) -> dict[int, ControlLog]:
        """The committed records of partitions, each from an offset to its last stable one.

        :raises ControlTopicError: the topic cannot be read, or has no such partition
        """
        with self._alone():
            return self._admin.steadily(f"reading {self.name}", lambda: self._read_together(starts))

    def _read_together(self, starts: Mapping[int, int]) -> dict[int, ControlLog]:
        info = self.describe()
        for partition in starts:
            self._check_partition(partition, info)
        borders = self._admin.borders([(self.name, partition) for partition in starts])
        found = {
            partition: self._log(partition, start, borders[self.name, partition], info)
            for partition, start in starts.items()
        }
        self._check_same(info)
        return found
