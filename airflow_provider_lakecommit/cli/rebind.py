# SPDX-License-Identifier: Apache-2.0
"""`lakecommit rebind`: a landing whose topics moved to another Kafka cluster goes on there.

Contract: shows first where each partition goes on, and what is skipped or read twice as far as that can be known;
nothing is written before `--yes`, or the word of a person at a terminal.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.cli.arguments import Command, add_confirmation
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.confirm import agreed, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["RebindCommand"]


class RebindCommand(Command):
    says = "go on with topics that were copied to another Kafka cluster"
    examples = (
        "rebind orders.yaml --old old-broker:9092",
        "rebind orders.yaml --from same --yes",
        'rebind orders.yaml --from orders:0=1500,orders:1=0 --reason "moved to the new brokers"',
        "rebind --dag land_orders --from 2026-03-01T12:00 --topic orders=east.orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        places = "same|earliest|latest|TIME|TOPIC:PARTITION=OFFSET,…"
        add("--from", dest="start", metavar=places, help="where it goes on; `same` where the copy keeps offsets")
        old = "brokers of the old cluster, if they answer still: records are compared, and tell the place by themselves"
        add("--old", metavar="HOST:PORT", help=old)
        add(
            "--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings for --old, on top of the spec's"
        )
        renamed = "the new name of a topic (default: the same, or with a prefix, as MirrorMaker makes them)"
        add("--topic", action="append", default=[], metavar="OLD=NEW", help=renamed)
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.repair.rebind import rebind, rebind_preview
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        word = _word(options, output, spec.kafka)
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            preview = rebind_preview(session, word)
            done = agreed(output, preview.lines(), yes=options.yes)
            told = decision_of("rebind", spec.landing.name, options.reason)
            values = rebind(session, preview, decision=told) if done else preview.to_dict()
        if output.as_json:
            output.result({"written": done, **values})
        return Exit.DONE if done else Exit.UNCONFIRMED


def _word(options: Namespace, output: Output, kafka: Mapping[str, Any]) -> Any:
    """:raises SpecError: it is none"""
    from airflow_provider_lakecommit.exceptions import SpecError
    from airflow_provider_lakecommit.repair.rebind import SAME, Word
    from airflow_provider_lakecommit.repair.stated import parse_start

    old = _old(options, output, kafka)
    if old is None and options.start is None:
        raise SpecError("say where it goes on: --old HOST:PORT, --from same, --from TOPIC:0=OFFSET,… or --from TIME")
    start = options.start if options.start in (None, SAME) else parse_start(options.start)
    if wrong := [text for text in options.topic if not all(text.partition("=")[::2])]:
        raise SpecError(f"--topic {wrong[0]!r}: say OLD=NEW")
    return Word(
        start=start,
        old=old,
        topics=dict(text.split("=", 1) for text in options.topic),
    )


def _old(options: Namespace, output: Output, kafka: Mapping[str, Any]) -> dict[str, Any] | None:
    """Settings of the old cluster: its own, or those of the new one with other brokers."""
    if options.old is None:
        return None
    from airflow_provider_lakecommit.cli.control_log import source_of

    found, _ = source_of(None, bootstrap=options.old, topic=None, config_file=options.kafka_config, connection=kafka)
    output.keep(found)
    return found
