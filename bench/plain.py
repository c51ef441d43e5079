# SPDX-License-Identifier: Apache-2.0
"""The measure of all others: one plain process that reads, decodes and writes the same slices, and appends the files.

Contract: no Spark, no plan, no control topic, no protection against a second run: the least that the same rows in the
same files can cost with the same reader, decoder and writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile

from airflow_provider_lakecommit.core.model import Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.job import Secrets
from airflow_provider_lakecommit.spark.slices import run_slice
from tests.support.jobs import plan_of, slice_job

__all__ = ["run_plain"]


def run_plain(landing: Landing, kafka: Mapping[str, Any], catalog: Mapping[str, str]) -> None:
    """Land everything that the topics hold now.

    :param catalog: properties of the catalog
    """
    table = load_catalog("lakecommit", **catalog).load_table(landing.table)
    target = target_of(landing.table, table, uuid4())
    files: list[DataFile] = []
    for spans in _packed(_spans(landing, kafka), landing.window.slice_records):
        work = Slice(slice_id=uuid4(), group=0, spans=spans, tables=(landing.table,))
        job = slice_job(landing, plan_of(landing, [work], [target]))
        secrets = Secrets(kafka=kafka, io=catalog)
        outcome = run_slice(job, secrets, work, uuid4())
        if outcome.report.blocked:
            raise RuntimeError(outcome.report.blocked)
        files += outcome.files[landing.table]
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def _spans(landing: Landing, kafka: Mapping[str, Any]) -> list[Span]:
    """All offsets of the topics, cut as the landing cuts its slices."""
    consumer = Consumer({**kafka, "group.id": "bench", "isolation.level": "read_committed"})
    spans = []
    for topic in landing.topic_names:
        for partition in sorted(consumer.list_topics(topic, 30).topics[topic].partitions):
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
            for start in range(low, end, landing.window.slice_records):
                cut = OffsetRange(start, min(start + landing.window.slice_records, end))
                spans.append(Span(SourcePartition(topic, partition), cut))
    consumer.close()
    return spans


def _packed(spans: Iterable[Span], records: int) -> Iterator[tuple[Span, ...]]:
    """Spans together as long as they are no more than a slice: a thousand partitions are not a thousand slices."""
    together: list[Span] = []
    for span in spans:
        if together and sum(map(len, together)) + len(span) > records:
            yield tuple(together)
            together = []
        together.append(span)
    if together:
        yield tuple(together)
