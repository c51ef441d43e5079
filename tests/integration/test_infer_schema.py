# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema` on a real topic: what it samples, and that what it prints lands the records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import sample as sampling
from airflow_provider_lakecommit.kafka.sample import sample, shares, sizes, starts
from airflow_provider_lakecommit.landing import Landing, load_spec
from dev.servers.server import free_port
from tests.support.cli import run
from tests.support.declared import landing_of, nested
from tests.support.world import World, catalog_in

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]


def test_the_sample_is_from_the_begin_the_middle_and_the_end_of_each_partition(
    bootstrap: str, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(3)
    produce(topic, [{"n": n} for n in range(90)], partition=0)
    produce(topic, [{"n": n} for n in range(4)], partition=2, transactional=True)
    taken = sample({"bootstrap.servers": bootstrap}, [topic], 18)
    places = [place for place, _ in taken]
    assert places == [*dict.fromkeys(places)], "no record twice"
    # What the short one has no use for is read of the long one.
    taken_of_long = {int(p.partition("@")[2]) for p in places if p.startswith(f"{topic}[0]")}
    assert taken_of_long == {*range(5), *range(45, 50), *range(85, 90)}
    assert sum(p.startswith(f"{topic}[2]") for p in places) == 4
    assert taken[0][1] is not None


def test_short_partitions_are_read_once() -> None:
    p = SourcePartition("t", 0)
    assert starts({p: Watermark(start=5, stable=7, high=9)}, {p: 10}) == [{p: 5}, {}, {}]
    assert starts({p: Watermark(start=0, stable=25, high=25)}, {p: 10}) == [{p: 0}, {p: 10}, {p: 20}]
    assert starts({p: Watermark(start=0, stable=45, high=45)}, {p: 10}) == [{p: 0}, {p: 22}, {p: 35}]


@pytest.mark.parametrize(
    "lengths", [(2_600,), (2_990, 10), (725, 725, 725, 725), (1, 1_400, 1_599), (3_000,), (1,) * 40]
)
def test_a_sample_that_could_hold_all_has_all(lengths: tuple[int, ...]) -> None:
    marks = {SourcePartition("t", n): Watermark(start=7, stable=7 + m, high=7 + m) for n, m in enumerate(lengths)}
    each = shares(marks, 3_000)
    read = {(p, o) for some in starts(marks, each) for p, first in some.items() for o in range(first, first + each[p])}
    assert read >= {(p, o) for p, mark in marks.items() for o in range(mark.start, mark.stable)}


def test_of_one_partition_with_most_a_sample_has_most() -> None:
    marks = {SourcePartition("t", n): Watermark(start=0, stable=m, high=m) for n, m in enumerate((9_000, 12, 0))}
    assert list(shares(marks, 3_000).values()) == [1, 4, 996]


def test_sizes_are_those_of_the_partitions_that_have_the_most(
    bootstrap: str, make_topic: Callable[..., str], produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(12)
    for partition in range(12):
        produce(topic, ["x" * (partition + 1) * 100] * (20 + partition), partition=partition)
    there = {SourcePartition(topic, p): RangeSet.of((0, 20 + p)) for p in range(12)}
    found = sizes({"bootstrap.servers": bootstrap}, Coverage(there))
    assert {p.partition: size for p, size in found.items()} == {p: (p + 1) * 100 for p in range(4, 12)}
    monkeypatch.setattr(sampling, "SIZES_SECONDS", 0.1)
    assert sizes({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, Coverage(there)) == {}


@pytest.mark.heavy
def test_topics_that_are_missing_and_brokers_that_are_away_are_named(bootstrap: str) -> None:
    with pytest.raises(SourceError, match=r"nobody-made-this.*LC2006"):
        sample({"bootstrap.servers": bootstrap}, ["nobody-made-this"], 5)
    servers = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceUnavailableError, match=servers):
        sample({"bootstrap.servers": servers}, ["t"], 5)


def test_what_is_printed_lands_the_records(
    tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], control_topic: str, produce: Produce
) -> None:
    topic = make_topic(2)
    values = [{"id": n, "at": "2026-01-01T10:00:00Z", "who": {"name": f"n{n}"}, "sum": n / 4} for n in range(40)]
    produce(topic, [(str(v["id"]), v) for v in values])
    answer = run("infer-schema", topic, "--bootstrap", bootstrap, "--records", "12")
    assert answer.code == 0, answer.err
    assert "n1" not in answer.out.replace(topic, "")
    printed = yaml.safe_load(answer.out)
    assert [c["name"] for c in printed["create"]["schema"]] == ["id", "at", "who", "sum"]
    assert printed["kafka"] == {"bootstrap.servers": bootstrap}
    assert printed["dead_letter_table"].endswith("_dead")
    assert '    # - {name: sum, type: "decimal(18, 2)"}' in answer.out.splitlines()
    runnable = tmp_path / "printed.yaml"
    runnable.write_text(answer.out)
    assert load_spec(runnable).catalog["type"] == "sql"
    fields = {key: value for key, value in printed.items() if key not in ("kafka", "catalog", "spark")}
    landing = landing_of(**fields, control_topic=control_topic)
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == list(range(40))
    spec = tmp_path / "spec.yaml"
    kafka, catalog = {"bootstrap.servers": bootstrap}, {"type": "sql"}
    spec.write_text(json.dumps({"name": "mine", "topics": topic, "table": "a.b", "kafka": kafka, "catalog": catalog}))
    answer = run("infer-schema", str(spec), "--json")
    assert answer.value["sampled"] == 40
    assert answer.value["create"]["schema"][1]["type"] == "timestamptz"
    assert yaml.safe_load(run("infer-schema", str(spec)).out)["name"] == "mine"


def test_a_proposed_upsert_of_a_compacted_topic_keeps_one_row_per_key(
    tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], control_topic: str, produce: Produce
) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    changes = [(json.dumps({"id": n % 10}), {"n": n} if n < 35 else None) for n in range(40)]
    produce(topic, changes)
    answer = run("infer-schema", topic, "--bootstrap", bootstrap)
    assert answer.code == 0, answer.err
    assert "the topic is compacted" in answer.out
    proposed = re.sub(r"^( *)# (upsert:|columns:|- )", r"\1\2", answer.out, flags=re.MULTILINE)
    fields = {k: v for k, v in yaml.safe_load(proposed).items() if k not in ("kafka", "catalog", "spark")}
    assert fields["create"]["schema"][-1] == {"name": "id", "type": "long"}
    landing = Landing(**fields, connections={"control_topic": control_topic})
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    world.settle()
    assert sorted((row["id"], row["n"]) for row in world.rows()) == [(n % 10, n) for n in range(30, 35)]
    assert "# upsert" not in run("infer-schema", topic, "--bootstrap", bootstrap, "--json").out


@pytest.mark.heavy
def test_rows_in_envelopes_for_several_tables_are_inferred_and_land(
    tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], control_topic: str, produce: Produce
) -> None:
    topic = make_topic(1)
    values: list[dict[str, object]] = []
    for n in range(30):
        order = {"id": n, "cents": n * 100}
        visitor = {"id": n, "name": f"n{n}", "seen": "2026-01-01T10:00:00"}
        values += [
            {"before": None, "after": order, "op": "c", "source": {"table": "orders", "ts_ms": 1767323045006}},
            {"payload": {"before": visitor, "after": None, "op": "d", "source": {"table": "people", "ts_ms": 1}}},
            {"payload": {"before": None, "after": {"id": n}, "op": "c", "source": {"table": "other"}}},
        ]
    produce(topic, [(str(n), value) for n, value in enumerate(values)])
    spec = tmp_path / "spec.yaml"
    route = {"field": "source.table", "tables": {"orders": "shop.orders", "people": "shop.people"}}
    stated = {"name": "mine", "topics": topic, "table": "shop.orders", "unwrap": "debezium", "route": route}
    places = {"kafka": {"bootstrap.servers": bootstrap}, "catalog": {"type": "sql"}}
    spec.write_text(json.dumps(nested(**stated, **places)))
    answer = run("infer-schema", str(spec))
    assert answer.code == 0, answer.err
    assert "# 30 records are REJECTED by this schema: not routed: no table is named for them" in answer.out
    printed = yaml.safe_load(answer.out)
    columns = ["_op", "_is_deleted", "_source_time"]
    assert [c["name"] for c in printed["create"]["schema"]] == ["id", "cents", *columns]
    people = printed["route"]["create"]["shop.people"]["schema"]
    assert [(c["name"], c["type"]) for c in people[:3]] == [("id", "long"), ("name", "string"), ("seen", "timestamp")]
    as_json = run("infer-schema", str(spec), "--json").value
    assert as_json["route"]["create"]["shop.people"]["schema"] == people
    fields = {key: value for key, value in printed.items() if key not in ("kafka", "catalog", "spark")}
    landing = landing_of(**fields, control_topic=control_topic, dead_letter_max_ratio=1.0)
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    world.settle()
    assert sorted(row["cents"] for row in world.rows()) == [n * 100 for n in range(30)]
    assert {(row["_op"], row["_is_deleted"]) for row in world.rows("shop.people")} == {("d", True)}
    assert len(world.rows("shop.people")) == 30


SQL = """select id, unnest(items).sku as sku, cents * 0.01 as price, seen::timestamp as seen
from record where id > 0"""


@pytest.mark.heavy
@pytest.mark.parametrize(("sql", "wrong"), [(SQL, ""), ("select nobody from record", '"nobody" not found')])
def test_of_sql_the_columns_of_records_and_of_the_table_are_distinguished(
    tmp_path: Path,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Produce,
    sql: str,
    wrong: str,
) -> None:
    topic = make_topic(1)
    values: list[dict[str, object]] = [
        {"id": n, "cents": n * 100, "seen": "2026-01-01T10:00:00", "items": [{"sku": f"s{n}"}, {"sku": "x"}]}
        for n in range(30)
    ]
    produce(topic, [(str(n), value) for n, value in enumerate(values)])
    spec = tmp_path / "spec.yaml"
    stated = {"name": "mine", "topics": topic, "table": "shop.items", "transform": sql}
    places = {"kafka": {"bootstrap.servers": bootstrap}, "catalog": {"type": "sql"}}
    spec.write_text(json.dumps(nested(**stated, record_schema=[{"name": "id", "type": "long"}], **places)))
    answer = run("infer-schema", str(spec))
    assert answer.code == 0, answer.err
    printed = yaml.safe_load(answer.out)
    assert printed["transform"]["sql"] == f"{sql}\n"
    assert [c["name"] for c in printed["transform"]["record_schema"]] == ["id", "cents", "seen", "items"]
    as_json = run("infer-schema", str(spec), "--json").value
    assert as_json["transform"]["record_schema"] == printed["transform"]["record_schema"]
    if wrong:
        assert f"# transform: Binder Error: Referenced column {wrong}" in answer.out
        assert "create" not in printed
        return
    assert as_json["create"] == printed["create"]
    assert [(c["name"], c["type"]) for c in printed["create"]["schema"]] == [
        ("id", "long"),
        ("sku", "string"),
        ("price", "decimal(22, 2)"),
        ("seen", "timestamp"),
    ]
    fields = {key: value for key, value in printed.items() if key not in ("kafka", "catalog", "spark")}
    landing = landing_of(**fields, control_topic=control_topic)
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    world.settle()
    assert sorted(row["sku"] for row in world.rows()) == sorted([f"s{n}" for n in range(1, 30)] + ["x"] * 29)


@pytest.mark.parametrize("wrapped", [False, True])
def test_envelopes_are_recognized_where_the_spec_does_not_name_them(
    bootstrap: str, make_topic: Callable[..., str], produce: Produce, wrapped: bool
) -> None:
    changes, rows = make_topic(1), make_topic(1)
    change = {"before": None, "after": {"id": 1}, "op": "c", "source": {"ts_ms": 1}}
    for topic, value in ((changes, change), (rows, {"id": 1})):
        produce(topic, [("1", {"schema": {"type": "struct"}, "payload": value} if wrapped else value)])
    assert (
        "# the records are change envelopes: add `transform: {unwrap: debezium}`"
        in run("infer-schema", changes, "--bootstrap", bootstrap).out
    )
    plain = run("infer-schema", rows, "--bootstrap", bootstrap).out
    assert "change envelopes" not in plain
    assert ("value.converter.schemas.enable=false" in plain) == wrapped


def test_a_topic_without_records_is_refused(bootstrap: str, make_topic: Callable[..., str]) -> None:
    answer = run("infer-schema", make_topic(1), "--bootstrap", bootstrap)
    assert answer.code == 1
    assert "no column could be found in 0 records" in answer.err


def test_a_topic_of_something_else_is_refused_and_reports_why(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (b"\xff\x00", b"{", b"[1]"):
        producer.produce(topic, value, partition=0)
    producer.flush()
    answer = run("infer-schema", topic, "--bootstrap", bootstrap)
    assert answer.code == 1
    assert (
        f"in 3 records; is not JSON: 2 ({topic}[0]@0, {topic}[0]@1); is not a JSON object: 1 ({topic}[0]@2)"
        in answer.err
    )
