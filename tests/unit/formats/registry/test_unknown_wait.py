# SPDX-License-Identifier: Apache-2.0
"""What a registry has not heard of yet is waited for, once and not for long."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry import unknown_wait as module
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from airflow_provider_lakecommit.formats.registry.schema_source import AbsentKindError, UnknownSchemaError
from airflow_provider_lakecommit.formats.registry.unknown_wait import MOST_WAITS, WITHIN, UnknownWait
from airflow_provider_lakecommit.landing.registry import unknown_wait
from tests.fakes.registry import FakeRegistry


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Follower:
    """A registry that hears of what is registered at some time."""

    def __init__(self, clock: Clock, at: float) -> None:
        self._clock, self._at = clock, clock.now + at
        self.requests = 0

    def request(self) -> str:
        self.requests += 1
        if self._clock.now < self._at:
            raise UnknownSchemaError("no schema id 7")
        return "schema"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_what_it_hears_of_soon_is_known(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    began, follower = clock.now, Follower(clock, at=1.5)
    with caplog.at_level(logging.WARNING):
        assert UnknownWait(5).asked(7, follower.request) == "schema"
    assert clock.now - began < 2.5
    assert "no schema id 7; retrying for 5 s" in caplog.text
    assert "has schema id 7 after" in caplog.text


def test_what_it_never_hears_of_is_waited_for_once(clock: Clock) -> None:
    began, never, waits = clock.now, Follower(clock, at=1e9), UnknownWait(5)
    with pytest.raises(UnknownSchemaError):
        waits.asked(7, never.request)
    assert clock.now - began == pytest.approx(5)
    requests = never.requests
    assert requests <= 9
    with pytest.raises(UnknownSchemaError):
        waits.asked(7, never.request)
    assert (never.requests, clock.now - began) == (requests + 1, pytest.approx(5))


def test_a_topic_full_of_unknown_keys_is_not_waited_for_without_end(clock: Clock) -> None:
    began, never, waits = clock.now, Follower(clock, at=1e9), UnknownWait(5)
    for key in range(1000):
        with pytest.raises(UnknownSchemaError):
            waits.asked(key, never.request)
    assert clock.now - began == pytest.approx(5 * MOST_WAITS)
    clock.now += WITHIN
    assert waits.asked(UUID(int=9), Follower(clock, at=1).request) == "schema"


def test_what_is_met_late_in_a_wait_has_its_own_time(clock: Clock) -> None:
    waits = UnknownWait(5)
    assert waits.asked(1, Follower(clock, at=4).request) == "schema"
    assert waits.asked(2, Follower(clock, at=4).request) == "schema"


def test_what_it_can_never_hear_of_is_not_waited_for(clock: Clock) -> None:
    def request() -> None:
        raise AbsentKindError("none by UUID")

    began = clock.now
    with pytest.raises(AbsentKindError):
        UnknownWait(5).asked(UUID(int=7), request)
    assert clock.now == began


def test_another_error_while_it_is_waited_for_is_its_own(clock: Clock) -> None:
    answers = [UnknownSchemaError("no"), RegistryError("LC9999", "away")]

    def request() -> None:
        raise answers.pop(0)

    with pytest.raises(RegistryError, match="LC9999"):
        UnknownWait(5).asked(7, request)


def test_by_a_registry(clock: Clock) -> None:
    with FakeRegistry().running() as fake:

        def hears(_path: str) -> None:
            if clock.now > 1001 and not fake.ids:
                fake.register("orders-value", "long")

        fake.before = hears
        assert SchemaRegistry({"url": fake.url}).schema(1).text == "long"
        fake.forget(1)
        fake.requests.clear()
        with pytest.raises(UnknownSchemaError):
            SchemaRegistry({"url": fake.url, "unknown.wait.seconds": 0}).schema(2)
        assert fake.requests == ["/schemas/ids/2"]


@pytest.mark.parametrize("stated", ["soon", -1, True, None, 301, float("nan")])
def test_a_wait_that_is_none(stated: object) -> None:
    with pytest.raises(SpecError, match="LC1009"):
        unknown_wait({"unknown.wait.seconds": stated})


def test_a_wait_may_be_a_text() -> None:
    assert unknown_wait({"unknown.wait.seconds": "1.5"}) == 1.5
