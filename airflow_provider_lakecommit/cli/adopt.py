# SPDX-License-Identifier: Apache-2.0
"""`lakecommit connect adopt`: take over the table of a Kafka Connect sink, or hand it back with `--back`.

Nothing is stopped or written before `--yes`. Ends with 1 if there are objections, or if `verify` finds problems
afterwards.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.cli.from_airflow import connect_connection, load
from airflow_provider_lakecommit.cli.rescue import connect_of
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import CONNECT_ADOPT, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import (
    By,
    ConnectRest,
    adoption_preview,
    hand_back,
    hand_back_preview,
    known_connector,
)
from airflow_provider_lakecommit.operations import adopt as take_over


def adopt(options: Namespace, output: Output) -> int:
    spec = load(options, output)
    connect = connect_connection(options, output) or connect_of(options.connect)
    output.keep({"connect": connect or {}})
    if connect is None and not options.connector_is_gone:
        raise SpecError(
            "LC8001", "name its Kafka Connect (--connect URL), or state that it does not exist (--connector-is-gone)"
        )
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        connector = known_connector(
            spec.kafka,
            options.connector,
            None if connect is None else ConnectRest(**connect),
            control_topic=options.control_topic,
            group=options.group,
            by=By(options.by or "both"),
            wait=float(options.wait),
        )
        return (_hand_back if options.back else _adopt)(session, connector, options, output)


def _adopt(session: LandingSession, connector: Any, options: Namespace, output: Output) -> int:
    preview = adoption_preview(session, connector, doubled_stay=options.doubled_stay)
    if preview.against:
        for line in preview.lines():
            output.log(line)
        output.answer({"written": False, **preview.to_dict()})
        return Exit.REFUSED
    # An adoption in progress was approved already.
    lines = () if preview.done else preview.lines()
    code = ends_with_preview(options, output, preview.to_dict(), lines, gives_up=not preview.done)
    if code is not None:
        return code
    command = f"{spoken(CONNECT_ADOPT)} --connector {connector.name}"
    decision = decision_of(command, session.landing.name, options.reason)
    done = take_over(session, connector, decision=decision, doubled_stay=options.doubled_stay)
    return _end(output, done.to_dict(), done.wrong)


def _hand_back(session: LandingSession, connector: Any, options: Namespace, output: Output) -> int:
    preview = hand_back_preview(session, connector)
    if (code := ends_with_preview(options, output, preview.to_dict(), preview.lines())) is not None:
        return code
    command = f"{spoken(CONNECT_ADOPT)} --connector {connector.name} --back"
    decision = decision_of(command, session.landing.name, options.reason)
    done = hand_back(session, connector, decision=decision, doubled_stay=options.doubled_stay)
    return _end(output, done.to_dict(), done.wrong)


def _end(output: Output, values: Mapping[str, Any], wrong: tuple[str, ...]) -> int:
    output.answer({"written": True, **values})
    for text in wrong:
        output.log(text)
    output.log(f"verify: found {len(wrong)} problems" if wrong else "verify: found no problem")
    return Exit.REFUSED if wrong else Exit.DONE
