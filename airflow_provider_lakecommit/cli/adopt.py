# SPDX-License-Identifier: Apache-2.0
"""`lakecommit adopt`: a landing goes on in the table of a Kafka Connect sink, and hands it back with `--back`.

Contract: shows first what it would come to, and asks; nothing is stopped or written before `--yes`, or the word of a
person at a terminal. What speaks against it ends with 1 before anybody is asked.

Ends with 1 too if `verify` finds something off afterwards.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.cli.arguments import Command, add_confirmation, positive
from airflow_provider_lakecommit.cli.from_airflow import connect_connection, load
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.terminal.confirm import agreed, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["AdoptCommand"]

WAIT = 300


class AdoptCommand(Command):
    says = "go on for a Kafka Connect sink in its table, from exactly where it has committed; or hand it back"
    examples = (
        "adopt orders.yaml --connector orders-sink --connect http://localhost:8083",
        "adopt orders.yaml --connector orders-sink --connect http://localhost:8083 --yes",
        "adopt orders.yaml --connector orders-sink --connect http://localhost:8083 --back --yes",
        "adopt --dag land_orders --connector orders-sink --kafka-connect-conn-id kafka_connect_default",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--connector", required=True, metavar="NAME", help="of the sink")
        add("--back", action="store_true", help="hand the table back to it: it goes on where the landing ends")
        by = "whose word holds where its consumer group and its events differ (default: neither's, it is refused)"
        add("--by", choices=["offsets", "announced"], help=by)
        add("--doubled-stay", action="store_true", help="what both have landed stays in the table twice")
        add("--wait", type=positive, default=WAIT, metavar="SECONDS", help=f"for it to stop (default {WAIT})")
        add_confirmation(parser)
        connect_help = "YAML mapping of url, login, password, headers, verify: a login on a command line is seen by all"
        add("--connect-config", metavar="FILE", help=connect_help)
        add = parser.add_mutually_exclusive_group().add_argument
        add("--connect", metavar="URL", help="Kafka Connect, by any of its workers")
        add("--connector-is-gone", action="store_true", help="your word for it, where Connect is gone too")
        add("--kafka-connect-conn-id", metavar="ID", help="Kafka Connect by this Airflow connection of type http")
        group = parser.add_argument_group("of a connector that is gone, which says nothing of itself")
        group.add_argument("--control-topic", metavar="TOPIC", help="its control topic (default control-iceberg)")
        group.add_argument("--group", metavar="GROUP_ID", help="in its events (default connect-NAME)")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.rescue import connect_of
        from airflow_provider_lakecommit.exceptions import SpecError

        connect = connect_connection(options, output) or connect_of(options.connect, options.connect_config)
        output.keep({"connect": connect or {}})
        if connect is None and not options.connector_is_gone:
            raise SpecError("name its Kafka Connect (--connect URL), or state that it is gone (--connector-is-gone)")
        return _hand_back(spec, output, options, connect) if options.back else _adopt(spec, output, options, connect)


def _adopt(spec: LandingSpec, output: Output, options: Namespace, connect: Mapping[str, Any] | None) -> int:
    from airflow_provider_lakecommit.adopt.look import adoption_preview
    from airflow_provider_lakecommit.adopt.take_over import adopt
    from airflow_provider_lakecommit.session.landing_session import LandingSession

    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        connector = _known(spec, options, connect)
        preview = adoption_preview(session, connector, doubled_stay=options.doubled_stay)
        if preview.against:
            _show(output, preview.to_dict(), preview.lines())
            return Exit.REFUSED
        if not preview.done and not agreed(output, preview.lines(), yes=options.yes):
            _result(output, {"written": False, **preview.to_dict()})
            return Exit.UNCONFIRMED
        decision = decision_of(f"adopt --connector {connector.name}", spec.landing.name, options.reason)
        done = adopt(session, connector, decision=decision, doubled_stay=options.doubled_stay)
    return _end(output, done.to_dict(), done.wrong)


def _hand_back(spec: LandingSpec, output: Output, options: Namespace, connect: Mapping[str, Any] | None) -> int:
    from airflow_provider_lakecommit.adopt.hand_back import hand_back, hand_back_preview
    from airflow_provider_lakecommit.session.landing_session import LandingSession

    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        connector = _known(spec, options, connect)
        preview = hand_back_preview(session, connector)
        if not agreed(output, preview.lines(), yes=options.yes):
            _result(output, {"written": False, **preview.to_dict()})
            return Exit.UNCONFIRMED
        decision = decision_of(f"adopt --connector {connector.name} --back", spec.landing.name, options.reason)
        done = hand_back(session, connector, decision=decision, doubled_stay=options.doubled_stay)
    return _end(output, done.to_dict(), done.wrong)


def _known(spec: LandingSpec, options: Namespace, connect: Mapping[str, Any] | None) -> Any:
    from airflow_provider_lakecommit.adopt.connector import known_connector
    from airflow_provider_lakecommit.adopt.sink_offsets import By
    from airflow_provider_lakecommit.connector.rest import ConnectRest

    return known_connector(
        spec.kafka,
        options.connector,
        None if connect is None else ConnectRest(**connect),
        control_topic=options.control_topic,
        group=options.group,
        by=By(options.by or "both"),
        wait=float(options.wait),
    )


def _end(output: Output, values: Mapping[str, Any], wrong: tuple[str, ...]) -> int:
    _result(output, {"written": True, **values})
    for text in wrong:
        output.log(text)
    output.log(f"verify: {len(wrong)} things are off" if wrong else "verify: nothing is off")
    return Exit.REFUSED if wrong else Exit.DONE


def _show(output: Output, values: Mapping[str, Any], lines: Any) -> None:
    for line in lines:
        output.log(line)
    _result(output, {"written": False, **values})


def _result(output: Output, values: Mapping[str, Any]) -> None:
    """For people, the progress has said it all."""
    if output.as_json:
        output.result(dict(values))
