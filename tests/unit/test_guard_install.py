# SPDX-License-Identifier: Apache-2.0
"""The documented way to install for guards alone is a part of what the package declares."""

from __future__ import annotations

import configparser
import re

from dev.paths import CHECKOUT

DOCUMENTED = CHECKOUT / "docs" / "guides" / "kafka_connect.rst"


def test_the_documented_requirements_are_declared_ones_in_the_same_ranges() -> None:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    declared = {line for line in setup["options"]["install_requires"].splitlines() if line and line[0] != "#"}
    documented = set(re.findall(r"^ +'([^']+)'", DOCUMENTED.read_text(), re.MULTILINE))
    assert {re.split(r"[><=[]", name)[0] for name in documented} == {
        "apache-airflow",
        "apache-airflow-providers-apache-kafka",
        "confluent-kafka",
        "fastavro",
        "PyYAML",
    }
    assert documented <= declared
