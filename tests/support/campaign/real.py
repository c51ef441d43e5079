# SPDX-License-Identifier: Apache-2.0
"""The campaign's topic on real brokers, and next to it in memory: there the model reads what the source holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.fakes.broker import MemoryBroker
from tests.fixtures.kafka import ANSWER_SECONDS, Sender, add_partitions, create_topic, delete_topic, unique
from tests.support.campaign.console import console
from tests.support.campaign.landing import PARTITIONS, CampaignLanding, spec_of
from tests.support.campaign.model import Model
from tests.support.campaign.play import Player
from tests.support.campaign.reader import TableReader

__all__ = ["RealCluster", "real_player"]


@dataclass(slots=True)
class RealCluster:
    """Does everything twice: on brokers, and in ``logs``."""

    admin: AdminClient
    sender: Sender
    logs: MemoryBroker

    def create(self, topic: str, partitions: int) -> None:
        if topic in self.logs.topics:
            delete_topic(self.admin, topic)
        create_topic(self.admin, topic, partitions)
        self._meet_anew()
        self.logs.create(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        add_partitions(self.admin, topic, partitions)
        self._meet_anew()
        self.logs.grow(topic, partitions)

    def _meet_anew(self) -> None:
        """A producer that has known a topic refuses partitions that are new for minutes."""
        self.sender.close()

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        for answer in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            answer.result(ANSWER_SECONDS)
        self.logs.remove_before(topic, partition, offset)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError("a broker that runs loses no records: operations that need it are not `real`")

    def produce(self, topic: str, values: Sequence[tuple[str, str]], partition: int, *, aborted: bool = False) -> None:
        outcome = "abort" if aborted else "commit"
        places = self.sender.produce(topic, values, partition, transactional=aborted, outcome=outcome)
        first = self.logs.topics[topic].partitions[partition].end
        if [offset for _, offset in places] != list(range(first, first + len(values))):
            raise AssertionError(f"{topic}[{partition}] has the records at {places}, and not from {first} on")
        self.logs.produce(topic, values, partition, aborted=aborted)


@contextmanager
def real_player(folder: Path, bootstrap: str, control: str) -> Iterator[Player]:
    """A landing of a topic of its own on real brokers into a catalog in a folder."""
    logs, topic = MemoryBroker(), unique("campaign")
    admin, sender = AdminClient({"bootstrap.servers": bootstrap}), Sender(bootstrap)
    cluster = RealCluster(admin, sender, logs)
    cluster.create(topic, PARTITIONS)
    with console(folder / "spec.json", spec_of(folder, bootstrap, topic, control)) as commands:
        yield Player(CampaignLanding(cluster, logs, commands, Model(logs), topic), TableReader(folder / "c.db"))
    sender.close()
    admin.delete_topics([topic])
