# SPDX-License-Identifier: Apache-2.0
"""What happens on pages of the documentation between two commands: the reader's side of a play.

Contract: :func:`happen` finds the one happening that a comment names; a comment that names none is an error.
"""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyiceberg.catalog import Catalog, load_catalog

from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.locations import file_mark, file_name
from airflow_provider_lakecommit.landing.options import merged
from dev.servers.kafka import Broker
from dev.servers.server import free_port
from tests.fixtures.kafka import Sender, create_topic, delete_topic
from tests.rest.store import KeyedStore
from tests.support.coordinator import Coordinator
from tests.support.declared import nested
from tests.support.doc_play import Line, Stage
from tests.support.doc_texts import ROOT

__all__ = ["EXAMPLES", "Reader", "happen"]

EXAMPLES = ROOT / "docs" / "examples"


@dataclass(kw_only=True)
class Reader:
    """Whoever follows a page."""

    stage: Stage
    bootstrap: str
    topic: str
    control: str
    sent: int = 0
    made: list[str] = field(default_factory=list)
    ends: ExitStack = field(default_factory=ExitStack)

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.stage.folder / "orders.yaml").read_text())
        return found

    @property
    def sender(self) -> Sender:
        return Sender(self.bootstrap)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        loaded = load_catalog(**self.spec["catalog"])
        try:
            yield loaded
        finally:
            loaded.close()

    def change(self, file: str = "orders.yaml", /, **values: Any) -> None:
        """A spec as the reader edits it; a value of None takes its field out."""
        changed = {k: v for k, v in merged(self.spec, nested(**values)).items() if v is not None}
        (self.stage.folder / file).write_text(yaml.safe_dump(changed))

    def example(self, name: str) -> str:
        """A program of docs/examples, run as it stands but for addresses."""
        path = self.stage.write(name, (EXAMPLES / name).read_text())
        with redirect_stdout(io.StringIO()) as output:
            runpy.run_path(str(path))
        return output.getvalue()

    def orders(self, count: int, partition: int | None, bad: bool) -> None:
        ids = range(100_000 + self.sent, 100_000 + self.sent + count)
        self.sent += count
        records = [
            (str(n), json.dumps({"id": f"x{n}" if bad else n, "ts": 1767355200000 + n, "amount": "1.50"})) for n in ids
        ]
        self.sender.produce(self.topic, records, partition)

    def with_field(self, count: int, field: str) -> None:
        """Orders with a field that the table lacks, some in each partition."""
        for n in range(count):
            key = 200_000 + self.sent + n
            value = {"id": key, "ts": 1767355200000 + n, "amount": "1.50", field: "some"}
            self.sender.produce(self.topic, [(str(key), json.dumps(value))], n % 4)

    def begin_anew(self) -> None:
        """A second story of a page: with other topics, and an empty catalog."""
        known = set(AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=60).topics)
        for topic in known & {self.topic, self.control}:
            delete_topic(AdminClient({"bootstrap.servers": self.bootstrap}), topic)
        (self.stage.folder / "catalog.db").unlink(missing_ok=True)

    def end(self) -> None:
        self.ends.close()
        AdminClient({"bootstrap.servers": self.bootstrap}).delete_topics([self.topic, self.control, *self.made])


def a_topic(reader: Reader, count: str, has_spec: str) -> None:
    """The spec of the quick start, and as many records as a page needs; nothing is left of another story."""
    if not has_spec:
        reader.begin_anew()
        a_file(reader, "orders.yaml", "")
    create_topic(AdminClient({"bootstrap.servers": reader.bootstrap}), reader.topic, 4)
    for partition in range(4):
        reader.orders(int(count) // 4, partition, False)


def a_file(reader: Reader, name: str, saved_as: str) -> None:
    text = (EXAMPLES / name).read_text() + "connections: {control_topic: control-lakecommit}\n"
    reader.stage.write(saved_as or name, text)


def again(reader: Reader) -> None:
    own = {"name": "orders_again", "table": "shop.orders_again", "dead_letter_table": "shop.orders_again_dead"}
    reader.change("again.yaml", **own)


def s3_store(reader: Reader) -> None:
    """Its keys are in the environment, as the page says."""
    store = reader.ends.enter_context(KeyedStore())
    keys, patch = store.give("lake/warehouse"), reader.ends.enter_context(pytest.MonkeyPatch.context())
    place = store.properties
    values = {"ENDPOINT": place["s3.endpoint"], "REGION": place["s3.region"]}
    values |= {"KEY": keys.access_key, "SECRET": keys.secret_key, "TOKEN": keys.token}
    for name, value in values.items():
        patch.setenv(f"S3_{name}", value)


def secured_brokers(reader: Reader) -> None:
    """SCRAM over TLS, with a certificate that no other knows. The reader's own way there is a plain listener."""
    folder = reader.stage.folder
    plain, secure, controller = free_port(), free_port(), free_port()
    certificate, key = self_signed()
    (folder / "ca.pem").write_text(certificate)
    listeners = {"PLAINTEXT": plain, "SECURE": secure}
    reach = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "listeners": f"{reach},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": reach,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
    }
    (folder / "broker.pem").write_text(key + certificate)
    broker = reader.ends.enter_context(Broker(folder / "brokers", port=plain, properties=settings))
    reader.bootstrap = broker.bootstrap
    user = UserScramCredentialUpsertion(
        "lakecommit", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"a secret"
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.alter_user_scram_credentials([user])["lakecommit"].result(60)
    reader.ends.enter_context(pytest.MonkeyPatch.context()).setenv("KAFKA_PASSWORD", "a secret")
    reader.stage.names[r"127\.0\.0\.1:9092"] = f"127.0.0.1:{secure}"


def self_signed() -> tuple[str, str]:
    """A certificate for 127.0.0.1, and its key, in PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return built.public_bytes(encoding).decode(), private.decode()


def other_brokers(reader: Reader, count: str) -> None:
    broker = reader.ends.enter_context(Broker(reader.stage.folder / "other-brokers"))
    reader.bootstrap = broker.bootstrap
    reader.change(kafka={"bootstrap.servers": broker.bootstrap})
    a_topic(reader, count, "yes")


def other_topic(reader: Reader) -> None:
    admin, other = AdminClient({"bootstrap.servers": reader.bootstrap}), f"{reader.topic}-other"
    delete_topic(admin, reader.topic)
    create_topic(admin, other)
    reader.made.append(other)
    reader.change(topics=other)


def some_orders(reader: Reader, count: str, kind: str, partition: str) -> None:
    reader.orders(int(count), int(partition) if partition else None, kind == "bad")


def a_run(reader: Reader, code: str) -> None:
    reader.stage.run(Line(kind="command", text="lakecommit land orders.yaml", code=int(code or 0)))


def killed_tasks(reader: Reader, count: str, days: str) -> None:
    """Their files, of which nothing tells."""
    with reader.catalog() as catalog:
        table = catalog.load_table("shop.orders")
    mark = file_mark(table.metadata.table_uuid, reader.spec["name"], "live")
    folder = Path(table.location().removeprefix("file://")) / "data"
    then = time.time() - int(days) * 24 * 3600
    for _ in range(int(count)):
        path = folder / file_name(attempt_id(uuid4(), uuid4()), mark, 0)
        path.write_bytes(b"PAR1" * 12_000)
        os.utime(path, (then, then))


def forgotten(reader: Reader, partition: str, below: str) -> None:
    place = TopicPartition(reader.topic, int(partition), int(below))
    admin = AdminClient({"bootstrap.servers": reader.bootstrap})
    admin.delete_records([place])[place].result(60)


def made_anew(reader: Reader) -> None:
    admin = AdminClient({"bootstrap.servers": reader.bootstrap})
    delete_topic(admin, reader.topic)
    create_topic(admin, reader.topic, 4)
    reader.orders(40, None, False)


def control_topic_lost(reader: Reader) -> None:
    delete_topic(AdminClient({"bootstrap.servers": reader.bootstrap}), reader.control)


def rolled_back(reader: Reader) -> None:
    with reader.catalog() as catalog:
        table = catalog.load_table("shop.orders")
        parent = table.current_snapshot().parent_snapshot_id  # type: ignore[union-attr]
        table.manage_snapshots().rollback_to_snapshot(parent).commit()


def stalled_sink(reader: Reader, still: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": reader.bootstrap}), f"{reader.control}-iceberg")
    reader.made.append(f"{reader.control}-iceberg")
    sink = Coordinator(reader.bootstrap, f"{reader.control}-iceberg")
    sink.stall()
    if not still:
        sink.complete(sink.start())


def stated(reader: Reader, text: str) -> None:
    reader.change(**yaml.safe_load(text))


HAPPENINGS: Mapping[str, Callable[..., None]] = {
    r"a topic of (\d+) orders(, for the spec that is there)?": a_topic,
    r"the reader runs (\w+\.py)": Reader.example,
    r"the reader has (\w+\.yaml)(?: as (\w+\.yaml))?": a_file,
    r"the reader has again\.yaml, which is orders\.yaml with another name and table": again,
    r"an S3 store": s3_store,
    r"brokers with SCRAM and TLS": secured_brokers,
    r"the reader's brokers are others, with a topic of (\d+) orders": other_brokers,
    r"the topic is deleted, and orders\.yaml reads another one": other_topic,
    r"a run(?: that ends with (\d))?": a_run,
    r"(\d+) (bad |)orders(?: in orders:(\d+))?": some_orders,
    r"(\d+) orders that have a (\w+)": lambda reader, count, field: reader.with_field(int(count), field),
    r"tasks were killed, and left (\d+) files, (\d+) days ago": killed_tasks,
    r"the source forgets orders:(\d+) below (\d+)": forgotten,
    r"the topic is made anew": made_anew,
    r"the control topic is deleted": control_topic_lost,
    r"the table is rolled back": rolled_back,
    r"a sink whose commits stall(, and go on to)?": stalled_sink,
    r"orders\.yaml says (\{.*\})": stated,
}


def happen(reader: Reader, text: str) -> None:
    """:raises AssertionError: nothing of that name can happen"""
    for pattern, act in HAPPENINGS.items():
        if found := re.fullmatch(pattern, text):
            act(reader, *(group.strip() if group else "" for group in found.groups()))
            return
    raise AssertionError(f"nobody knows how this happens: {text}")
