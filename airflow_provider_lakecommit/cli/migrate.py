# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset migrate`: a landing whose topics moved to another Kafka cluster continues there.

Contract: first shows where each partition continues, and which records are skipped or read twice, as far as known;
writes only with ``--yes``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import RESET_MIGRATE, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import SAME, Word, parse_start, rebind, rebind_preview


def migrate(session: LandingSession, options: Namespace, output: Output) -> int:
    """Continue on the cluster of the spec.

    :raises SpecError: where it continues is ambiguous
    :raises LakecommitError: a required part is unreachable, or refuses
    """
    preview = rebind_preview(session, _word(options, output, session.kafka))
    if (code := ends_with_preview(options, output, preview.to_dict(), preview.lines())) is not None:
        return code
    decision = decision_of(spoken(RESET_MIGRATE), session.landing.name, options.reason)
    output.answer({"written": True, **rebind(session, preview, decision=decision)})
    return Exit.DONE


def _word(options: Namespace, output: Output, kafka: Mapping[str, Any]) -> Word:
    old = None
    if options.old is not None:
        # The old cluster's own settings, or those of the new one with other brokers.
        old, _ = source_of(None, bootstrap=options.old, topic=None, config_file=options.kafka_config, connection=kafka)
        output.keep(old)
    elif options.start is None:
        raise SpecError("LC8018", "give a start: --old HOST:PORT, --from same, --from TOPIC:0=OFFSET,… or --from TIME")
    start = options.start if options.start in (None, SAME) else parse_start(options.start)
    if wrong := [text for text in options.topic if not all(text.partition("=")[::2])]:
        raise SpecError("LC8019", f"--topic {wrong[0]!r}: use OLD=NEW")
    return Word(start=start, old=old, topics=dict(text.split("=", 1) for text in options.topic))
