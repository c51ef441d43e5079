# SPDX-License-Identifier: Apache-2.0
"""The declaration of many topics: what it refuses, all at once, and how it is distinguished from that of one
landing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSet, declares_set, load_set

PLAIN: dict[str, Any] = {"name": "shop", "topics_pattern": r"shop\.(?P<what>.*)", "table": "lake.{what}"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "a b"}, "name: 'a b' is not a name"),
        ({"topics_pattern": None}, "needs `topics` .* or `topics_pattern`"),
        ({"table": None}, "needs `table` .* or `rules`"),
        ({"topics_pattern": "(", "table": "lake.{topic}"}, r"topics_pattern: '\(' is not a regular expression"),
        ({"exclude": ["ok", "*"]}, r"exclude\[1\]: '\*' is not a regular expression"),
        ({"table": "lake.{wat}"}, "has the unknown field 'wat'; allowed are topic, what .did you mean 'what'"),
        ({"table": "{what}"}, "'a' is not a table name"),
        ({"table": "lake.{what"}, "is not a template"),
        ({"rules": [{"topics": ".*"}]}, r"rules\[0\]: None is not a table name"),
        (
            {"rules": [{"topics": ".*", "table": "a.{what}"}]},
            r"rules\[0\]: .* has the unknown field 'what'; allowed are topic",
        ),
        ({"rules": [{"topics": ".*", "table": "a.b", "merg": 1}]}, r"unknown key 'merg' \(did you mean 'merge'"),
        ({"rules": [{"topics": ".*", "table": "a.b", "merge": "yes"}]}, "merge: 'yes' is not true or false"),
        ({"dead_letter_table": "lake.dead"}, "each table has its own"),
        ({"unmatched": "drop"}, "unmatched: 'drop' is not one of fail, ignore"),
        ({"missing_table": "dead_letter"}, "missing_table: 'dead_letter' is not one of fail, create"),
        ({"defaults": {"window": {"groups": 0}}}, "defaults: window.groups: 0 is not a whole number"),
        ({"defaults": {"topics": "x"}}, "defaults: topics cannot be set there"),
        ({"overrides": [{"window": {"groups": 2}}]}, r"overrides\[0\]: table: None is not a regular expression"),
        (
            {"overrides": [{"table": ".*", "connections": {"control_topic": "x"}}]},
            r"overrides\[0\]: connections.control_topic cannot be set there",
        ),
        ({"defaults": {"groups": 2}}, "defaults: unknown key 'groups' .it is `window: groups`"),
        ({"overrides": [{"table": ".*", "groups": 2}]}, r"overrides\[0\]: unknown key 'groups' .it is `window:"),
        ({"defaults": {"window": {"format": "csv"}}}, "window: unknown key 'format' .it is `format`, outside"),
        ({"overrides": [{"table": ".*", "fromat": "json"}]}, "unknown key 'fromat' .did you mean 'format'"),
    ],
)
def test_a_mistake_is_named_with_its_position(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        LandingSet(**{**PLAIN, **changed})


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(SpecError) as e:
        LandingSet(**{**PLAIN, "table": "{x}", "unmatched": "?", "defaults": {"x": 1}})
    assert len(e.value.mistakes) == 3


def test_a_spec_of_a_set_is_distinguished_from_that_of_a_landing(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\ntopics: x\ntable: lake.orders\n")
    assert not declares_set(path)
    path.write_text("name: a\ntopics: x\ntable: lake.${SUFFIX}\n")
    assert not declares_set(path)
    path.write_text("name: a\ntopics: [x]\ntable: 'lake.{topic}'\n")
    assert declares_set(path)
    assert LandingSet.from_yaml(path).topic_names == ("x",)
    path.write_text("name: a\ntopics: [x]\nrules: []\ntable: lake.b\n")
    assert declares_set(path)


def test_an_unknown_key_of_a_spec_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\ntopic_pattern: x.*\ntable: 'lake.{topic}'\n")
    with pytest.raises(SpecError, match="LC1001"):
        load_set(path, connections=False)


@pytest.mark.parametrize(
    ("key", "place"),
    [("groups", "defaults: window: groups"), ("window", "defaults: window"), ("create", "defaults: create")],
)
def test_an_option_of_a_landing_is_named_with_its_position_in_a_set(tmp_path: Path, key: str, place: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"name: a\ntopics: [x]\ntable: 'lake.{{topic}}'\n{key}: 2\n")
    with pytest.raises(SpecError, match="LC1125"):
        load_set(path, connections=False)
