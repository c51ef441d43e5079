# SPDX-License-Identifier: Apache-2.0
"""Which settings are secret, by the documents of those that read them, and that no text shows one in any form."""

from __future__ import annotations

import base64
import html
import io
import json
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from airflow.sdk.exceptions import AirflowException
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cli.adopt import catalog_of
from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.exceptions import CatalogError, ConnectError, SourceError, SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.connections import kafka_settings
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.settings import for_client
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.kafka.config import LastError, unreachable
from airflow_provider_lakecommit.landing import Landing, LandingSpec, load_spec
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.redaction import is_secret, redacted, secrets_in, shown_as, without, yaml_trouble
from airflow_provider_lakecommit.spark.job import Secrets
from tests.fakes.connect_worker import serving
from tests.unit.hooks.test_spark import job

CANARY = "canary/4711+%20"

PYICEBERG = """
    credential token auth header.Authorization header.X-Api-Key header.Cookie header.x-tenant-password
    s3.access-key-id s3.secret-access-key s3.session-token client.access-key-id client.secret-access-key
    client.session-token glue.access-key-id glue.secret-access-key glue.session-token dynamodb.access-key-id
    dynamodb.secret-access-key dynamodb.session-token rest.access-key-id rest.secret-access-key rest.session-token
    adls.account-key adls.client-secret adls.connection-string adls.credential adls.sas-token adls.token
    adls.sas-token.lake.dfs.core.windows.net adls.account-key.cache adls.sas-token.type.dfs.core.windows.net
    adls.sas-token.maxdata gcs.oauth2.token gcp.bigquery.credentials-info
    hf.token s3.sse.key auth.basic.password auth.oauth2.client_secret auth.entra.client_secret
"""
LIBRDKAFKA = """
    sasl.password ssl.key.password ssl.key.pem ssl_key ssl.keystore.password sasl.oauthbearer.client.secret
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    basic.auth.user.info schema.registry.basic.auth.user.info bearer.auth.token
"""
SPARK = """
    spark.authenticate.secret spark.ssl.keyPassword spark.ssl.keyStorePassword spark.ssl.trustStorePassword
    spark.hadoop.fs.s3a.access.key spark.hadoop.fs.s3a.secret.key spark.hadoop.fs.s3a.session.token
    spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net spark.hadoop.fs.azure.sas.box.lake.blob.core.windows.net
    spark.hadoop.fs.azure.account.oauth2.client.secret spark.hadoop.fs.gs.auth.service.account.private.key
    spark.hadoop.fs.s3a.encryption.key spark.sql.catalog.lake.credential spark.sql.catalog.lake.header.X-Api-Key
    spark.sql.catalog.lake.token spark.sql.catalog.lake.s3.secret-access-key spark.my.accesskey SPARK.MY.ACCESS.KEY
    spark.executorEnv.AWS_SECRET_ACCESS_KEY spark.connect.authenticate.token
"""
KAFKA_CONNECT = """
    sasl.jaas.config consumer.override.sasl.jaas.config ssl.truststore.password ssl.keystore.key
    database.password connection.password aws.access.key.id aws.secret.access.key aws.secret.key aws_session_token
    iceberg.catalog.credential iceberg.catalog.token iceberg.catalog.header.X-Api-Key
    iceberg.catalog.s3.access-key-id iceberg.catalog.s3.secret-access-key iceberg.hadoop.fs.s3a.secret.key
    iceberg.kafka.sasl.jaas.config value.converter.basic.auth.user.info password.encoder.secret
    azure.storage.account.key gcs.credentials.json
    iceberg.hadoop.fs.azure.account.oauth2.client.secret.store.dfs.core.windows.net
    iceberg.hadoop.fs.azure.account.key.files.dfs.core.windows.net
"""
ELSEWHERE = """
    apiKey api_key privateKey sslKeyPem AWSAccessKeyId X-Auth-Token SharedAccessKey Proxy-Authorization pwd
    pass MYSQL_PASS passcode client_assertion
"""
SECRET = f"{PYICEBERG} {LIBRDKAFKA} {SPARK} {KAFKA_CONNECT} {ELSEWHERE}".split()

WHERE_OR_HOW = """
    type uri warehouse scope audience s3.region s3.endpoint s3.role-arn s3.sse-kms-key-id s3.signer.endpoint
    adls.blob-storage-authority adls.dfs-storage-authority adls.account-name adls.client-id adls.tenant-id
    gcs.project-id gcp.bigquery.credential-file oauth2-server-uri s3.session-token-expires-at-ms
    adls.sas-token-expires-at-ms.lake gcs.oauth2.token-expires-at client.refresh-credentials-endpoint
    gcs.oauth2.refresh-credentials-enabled token-refresh-enabled token-exchange-enabled token-expires-in-ms
    rest.sigv4-enabled rest.signing-name rest.auth.type header.X-Iceberg-Access-Delegation header.content-type
    bootstrap.servers security.protocol sasl.mechanism sasl.username sasl.kerberos.keytab sasl.oauthbearer.method
    sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.assertion.private.key.file ssl.key.location ssl.ca.location ssl.keystore.location key.converter
    value.converter header.converter key.converter.schemas.enable inter.worker.key.ttl.ms
    inter.worker.signature.algorithm delegation.token.max.lifetime.ms basic.auth.credentials.source
    config.providers.secrets.class sasl.oauthbearer.scope spark.hadoop.fs.s3a.aws.credentials.provider
    spark.executor.memory spark.authenticate partition.key monkey keyspace
"""
PUBLIC = WHERE_OR_HOW.split()


def shows(text: str) -> bool:
    return "canary" in text or "4711" in text


@pytest.mark.parametrize("key", SECRET)
def test_what_is_documented_as_secret_is_printed_nowhere(key: str) -> None:
    assert is_secret(key)
    assert redacted(f"refused {CANARY}!", {key: CANARY}) == "refused ***!"
    assert not shows(redacted(f"at {CANARY}", {"conn": [{"extra": json.dumps({"in": {key: [CANARY]}})}]}))


@pytest.mark.parametrize("key", PUBLIC)
def test_what_reports_where_or_how_is_printed(key: str) -> None:
    assert not is_secret(key)
    assert secrets_in({key: "some-value"}) == ()


def test_every_property_of_pyiceberg_that_sounds_secret_is_evaluated() -> None:
    """A new release of pyiceberg has to be checked: what sounds so is in one of the two lists above."""
    import pyiceberg.catalog as catalog
    import pyiceberg.catalog.rest as rest
    import pyiceberg.io as storage

    names = {v for m in (catalog, rest, storage) for k, v in vars(m).items() if k.isupper() and isinstance(v, str)}
    sounding = {n for n in names if any(w in n for w in ("key", "secret", "token", "credential", "auth", "password"))}
    properties = {n for n in sounding if "." in n} | {"credential", "token"}
    assert properties - {*SECRET, *PUBLIC, "auth.manager"} == set()


@pytest.mark.parametrize(
    "settings",
    [
        {"uri": "postgresql+psycopg2://user:canary-4711@db/iceberg"},
        {"uri": "postgresql://user:canary@4711@db/iceberg"},
        {"uri": "https://canary-4711@catalog/x"},
        {"uri": "https://catalog/x?token=canary-4711&a=1"},
        {"endpoint": "https://lake/x?sv=1&sig=canary-4711"},
        {"endpoint": "https://s3/x?X-Amz-Credential=canary-4711&X-Amz-Signature=4711-canary"},
        {"remote": "sc://spark:15002/;user_id=me;token=canary-4711"},
        {"sasl.jaas.config": 'x.PlainLoginModule required username="u" password="canary-4711";'},
        {"adls.connection-string": "AccountName=a;AccountKey=canary-4711;EndpointSuffix=x"},
        {"credential": "client:canary-4711"},
        {"header.Authorization": "Bearer canary-4711"},
        {"auth": {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": "canary-4711"}}},
        {"auth": '{"type": "basic", "basic": {"username": "me", "password": "canary-4711"}}'},
        {"extra": b'{"sasl.password": "canary-4711"}'},
        {"sasl.password": ["canary-4711"]},
    ],
    ids=str,
)
def test_secrets_inside_of_values_are_found(settings: dict[str, Any]) -> None:
    for echoed in ("canary-4711", "canary@4711", "4711-canary"):
        if echoed in str(settings):
            assert redacted(f"no {echoed}.", settings) == "no ***."


def test_of_a_login_all_but_its_secret_is_printed() -> None:
    settings = {"auth": {"type": "oauth2", "oauth2": {"client_id": "jane", "client_secret": CANARY}}, "pool": 4711}
    assert secrets_in(settings) == (CANARY,)


@pytest.mark.parametrize("value", ["${file:/run/x:password}", True, "true", None, "", "ab", object()])
def test_what_is_no_secret_of_ours_or_in_every_text_is_left(value: object) -> None:
    assert secrets_in({"sasl.password": value}) == ()
    assert secrets_in({"sasl.password": 4711}) == ("4711",)


def test_a_driver_may_show_it_in_another_form() -> None:
    secret = 'p@ss "wörd"\n/4711'
    forms = [secret, quote(secret), quote(secret, safe=""), json.dumps(secret), repr(secret), " ".join(secret.split())]
    for form in forms:
        assert "4711" not in redacted(f"cannot log in with {form} at host", {"sasl.password": secret})
    assert redacted("p@ss refused", {"uri": "postgresql://u:p%40ss@db"}) == "*** refused"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://me:canary@db/x failed", "at postgresql://***@db/x failed"),
        ("GET https://canary@host/y", "GET https://***@host/y"),
        ("GET https://s3/b?X-Amz-Signature=canary&part=3", "GET https://s3/b?X-Amz-Signature=***&part=3"),
        ("sc://spark:15002/;token=canary;user_id=me", "sc://spark:15002/;token=***;user_id=me"),
        ("{'Authorization': 'Bearer canary'}", "{'Authorization': 'Bearer ***'}"),
        ("abfss://box@lake.dfs.core.windows.net/a", "abfss://box@lake.dfs.core.windows.net/a"),
        ("thrift://hive:9083, SASL_SSL://kafka:9092 and sqlite:////x.db", None),
        ("orders[0]@17..20; offset=5; key=a", None),
    ],
)
def test_unknown_credentials_are_redacted_too(text: str, shown: str | None) -> None:
    assert without(text, ()) == (text if shown is None else shown)


def test_of_values_that_overlap_nothing_is_left() -> None:
    assert without("abcdef abc xabc bcdefg", ("abc", "abcdef", "defg")) == "*** *** x*** bc***"
    assert without("abcdefg", ("abcdef", "defg")) == "***"


PEM = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n".format(
    "\n".join(
        base64.b64encode(f"canary line {n} of a key, forty-eight bytes long..".encode()).decode() for n in range(3)
    )
)
HARD = "p&ss=\"w'\\(ö)+/%41 .*[4711"
"""What a password may hold: characters of addresses, pages, quotes and regular expressions."""

ECHOES = {
    "in a text of JSON": json.dumps,
    "in JSON within JSON": lambda s: json.dumps({"extra": json.dumps({"a": s})}),
    "in JSON that a driver shows": lambda s: repr(json.dumps({"a": s})),
    "in a mapping that Python shows": lambda s: repr({"a": s}),
    "percent-encoded, in small letters": lambda s: quote(s, safe="").lower(),
    "in a form": quote_plus,
    "in a page": html.escape,
    "in a page, quotes as they are": lambda s: html.escape(s, quote=False),
    "with slashes escaped": lambda s: json.dumps(s, ensure_ascii=False).replace("/", "\\/"),
    "as Google's library writes JSON": lambda s: (
        json.dumps(s, ensure_ascii=False).replace("=", "\\u003d").replace("&", "\\u0026").replace("'", "\\u0027")
    ),
}


@pytest.mark.parametrize("way", ECHOES)
def test_a_password_of_all_characters_is_struck_out_however_it_is_echoed(way: str) -> None:
    assert "4711" not in redacted(f"cannot log in: {ECHOES[way](HARD)} at host", {"sasl.password": HARD})


@pytest.mark.parametrize("login", ["", "u", "me", "you", "somebody"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_login_that_was_encoded_is_struck_out(login: str, encode: Callable[[bytes], bytes]) -> None:
    secret = "canary?~ÿ>4711 and more"
    echoed = encode(f"{login}:{secret}".encode()).decode()
    shown = redacted(f"headers were x={echoed}!", {"password": secret})
    assert "***" in shown
    assert max(map(len, shown.removeprefix("headers were x=").split("***"))) <= len(login) * 2 + 5


@pytest.mark.parametrize(
    "text",
    [
        "input_value='canary-of-a-driver-wit...that-shows-parts-4711', input_type=str",
        "value: canary-of-a-dri…",
        "the line ends in canary-of-a-driver",
        "shows-parts-4711 begins the next line",
        "canary-of-... and canary-of-a-drive...parts-4711",
    ],
)
def test_a_part_of_a_long_value_is_struck_out_where_a_text_was_cut(text: str) -> None:
    assert not shows(redacted(text, {"token": "canary-of-a-driver-with-a-limit-that-shows-parts-4711"}))


def test_a_key_of_several_lines_is_struck_out_line_by_line() -> None:
    for line in PEM.splitlines()[1:-1]:
        assert redacted(f"stderr: {line}", {"ssl.key.pem": PEM}) == "stderr: ***"
    assert redacted(f"{PEM!r} and {json.dumps(PEM)}", {"ssl.key.pem": PEM}) == "'***' and \"***\""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"loaded {PEM}and more", "loaded -----BEGIN PRIVATE KEY-----***\nand more"),
        (f"loaded {PEM!r}", "loaded '-----BEGIN PRIVATE KEY-----***\\n'"),
        ("headers {Authorization=[Basic canary], x=[y]}", "headers {Authorization=[Basic ***], x=[y]}"),
        ("{b'authorization': b'Basic canary'}", "{b'authorization': b'Basic ***'}"),
        ("sent Bearer canary.0123456789.canary", "sent Bearer ***"),
        ("a Bearer token is missing, Basic authentication", None),
        ("{'s3.secret-access-key': 'canary', 's3.region': 'x'}", "{'s3.secret-access-key': '***', 's3.region': 'x'}"),
        ("input_value={'s3.session-token': 'cana...", "input_value={'s3.session-token': '***"),
        ('{"client_secret":"canary","a":1}', '{"client_secret":"***","a":1}'),
        (r'"{\"client_secret\": \"canary\"}"', r'"{\"client_secret\": \"***\"}"'),
        ("[('password', 'canary'), ('x', 'y')]", "[('password', '***'), ('x', 'y')]"),
        ("unknown key 'token'; allowed are 'a', 'password', 'b'", None),
        ("{sasl.password=canary, acks=all}", "{sasl.password=***, acks=all}"),
        ("--conf spark.hadoop.fs.s3a.secret.key=canary --name x", "--conf spark.hadoop.fs.s3a.secret.key=*** --name x"),
        ('value x required username="u" password="canary";', 'value x required username="u" password="***";'),
        ("set sasl.password=${file:/run/x:y}, ssl.key.location=/a", None),
        ("{'token': None, 'password': True}", None),
        ("jdbc:oracle:thin:me/canary@//db:1521/x", "jdbc:oracle:thin:me/***@//db:1521/x"),
        ("jdbc:sqlserver://db:1433;user=me;password=canary;a=1", "jdbc:sqlserver://db:1433;user=me;password=***;a=1"),
        ("jdbc:postgresql://db/x?user=me&password=canary", "jdbc:postgresql://db/x?user=me&password=***"),
        ("me:canary@a:9092,you:canary@b:9092", "***@a:9092,***@b:9092"),
        ("https://host/cb#access_token=canary&state=1", "https://host/cb#access_token=***&state=1"),
        ("https://host/cb?%61ccess_token=canary", "https://host/cb?%61ccess_token=***"),
    ],
)
def test_unknown_logins_are_redacted_too(text: str, shown: str | None) -> None:
    assert without(text, ()) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "settings",
    [
        {"brokers": "me:canary-4711@a:9092,you:4711-canary@b:9092"},
        {"uri": "mongodb://me:canary-4711@a:1,you:4711-canary@b:2/x"},
        {"url": "jdbc:oracle:thin:me/canary-4711@//db:1521/x"},
        {"url": "jdbc:sqlserver://db:1433;user=me;password=canary-4711;encrypt=true"},
        {"config": [{"name": "sasl.password", "value": "canary-4711"}, {"key": "a", "value": "b"}]},
        {"AIRFLOW_CONN_K": "kafka://?__extra__=%7B%22sasl.password%22%3A%20%22canary-4711%22%7D"},
        {"AIRFLOW_CONN_K": "kafka://me:canary-4711@host:9092/?a=b"},
        {"headers": {"Authorization": f"Basic {base64.b64encode(b'me:canary-4711').decode()}"}},
        {"redirect": "https://host/#access_token=canary-4711&x=1"},
    ],
    ids=str,
)
def test_secrets_inside_of_values_of_other_kinds_are_found(settings: dict[str, Any]) -> None:
    found = secrets_in(settings)
    assert "canary-4711" in found
    assert "4711-canary" in found or "4711-canary" not in str(settings)


def test_a_password_that_is_a_word_leaves_the_message_to_be_read() -> None:
    settings = {"sasl.password": "kafka", "password": "the", "pin.secret": 4711}
    text = "the login to kafka-broker fails: Kafka, other, kafkas, offset 14711 of 47110"
    assert redacted(text, settings) == "*** login to ***-broker fails: Kafka, other, kafkas, offset 14711 of 47110"
    assert redacted("pin 4711 at host:4711", settings) == "pin *** at host:***"
    assert shown_as(settings) == ()


def test_forms_for_a_filter_of_plain_texts_hold_every_line_and_no_word() -> None:
    forms = shown_as({"ssl.key.pem": PEM, "sasl.password": HARD, "password": "kafka"})
    assert set(PEM.splitlines()[1:-1]) < set(forms)
    assert {HARD, quote(HARD, safe=""), json.dumps(HARD)[1:-1], html.escape(HARD)} < set(forms)
    assert "kafka" not in forms
    assert list(forms) == sorted(forms, key=lambda form: (-len(form), form))


LONG = {
    **{
        f"{word!r} again and again": word * 9000
        for word in ("'", "'a'", "\\", "{'a': ", "a.b=", "bearer ", "a:b@c,", "…")
    },
    **{
        f"{word!r} again and again": word * 3000 for word in ('token="', "authorization", "-----BEGIN PRIVATE KEY-----")
    },
    "an address without end": "://" + "a:" * 20000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    redacted(text, {"token": HARD})
    assert time.process_time() - began < 2


def test_a_value_that_is_long_and_replaces_no_text_costs_little() -> None:
    began = time.process_time()
    for n in range(20):
        without(f"an ordinary line {n}", secrets_in({"ssl.key.pem": PEM * 20, "token": HARD}))
    assert time.process_time() - began < 5


LEAVES = st.text("abcxyz0123456789", min_size=8, max_size=12)
OTHERS = st.text("KLMN-._ ", max_size=6)


@st.composite
def hidden(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A secret somewhere in nested settings, JSON texts among them; no two of its letters stand anywhere else."""
    secret = draw(LEAVES)
    value: Any = {draw(st.sampled_from(SECRET)): secret}
    for step in draw(st.lists(st.sampled_from(("mapping", "list", "json", "tuple")), max_size=5)):
        match step:
            case "mapping":
                value = {draw(st.sampled_from(PUBLIC)): value, "also": draw(OTHERS)}
            case "list" | "tuple":
                value = [draw(OTHERS), value] if step == "list" else (value, draw(OTHERS))
            case "json":
                value = json.dumps(value)
    return {"conn": value}, secret


@given(hidden(), OTHERS, OTHERS)
def test_a_secret_is_found_however_deep(found: tuple[dict[str, Any], str], before: str, behind: str) -> None:
    settings, secret = found
    assert secret in secrets_in(settings)
    assert secret not in redacted(f"{before}{secret}{behind}{secret}", settings)


@given(st.lists(st.text("ab@:/ %\"'\\\n", min_size=3), min_size=1, max_size=4), st.text("ab@:/ %\"'\\\nX", max_size=40))
def test_no_value_survives_in_any_text(secrets: list[str], text: str) -> None:
    shown = without(text + secrets[0] + text, secrets)
    assert [secret for secret in secrets if secret in shown] == []


@pytest.mark.parametrize(
    "text",
    [
        'kafka:\n  sasl.password: "canary-4711\n  x: 1\n',
        "kafka:\n  sasl.password: *canary-4711\n",
        "kafka:\n  sasl.password: !canary-4711 x\n",
        "kafka:\n  sasl.password: @canary-4711\n",
        "kafka: {sasl.password: canary-4711\n",
    ],
)
def test_a_broken_yaml_file_is_reported_by_its_line_and_not_by_what_is_there(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load(text)
    assert yaml_trouble(caught.value).startswith("line ")
    assert not shows(yaml_trouble(caught.value))


def test_a_tab_and_another_encoding_are_named_in_a_yaml_file() -> None:
    with pytest.raises(yaml.YAMLError) as tab:
        yaml.safe_load("name: orders\n\tgroups: 2\n")
    assert yaml_trouble(tab.value) == "line 2, column 1: a tab; YAML is indented by spaces"
    with pytest.raises(UnicodeDecodeError) as encoding:
        "name: Zürich".encode("latin-1").decode()
    assert yaml_trouble(encoding.value) == "byte 7 is not UTF-8: save it with that encoding"


# -- the faces ---------------------------------------------------------------------------------------------------------

OF_KAFKA = {"bootstrap.servers": "127.0.0.1:1", "ssl_key": "canary-4711", "basic.auth.user.info": "me:of-4711"}
OF_CATALOG = {
    "uri": "https://catalog/x?sig=url-4711",
    "header.X-Api-Key": "canary-4711",
    "adls.sas-token.lake": "of-4711",
    "adls.connection-string": "AccountName=a;AccountKey=part-4711",
    "auth": '{"type": "custom", "custom": {"api-key": "deep-4711"}}',
}
OF_SPARK = {"conf": {"spark.hadoop.fs.s3a.access.key": "canary-4711"}, "remote": "sc://s:1/;token=of-4711"}
ECHO = "canary-4711 of-4711 url-4711 part-4711 deep-4711 me%3Aof-4711"


def test_the_command_line_shows_none() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(as_json=True, out=out, err=err)
    output.keep(OF_KAFKA, OF_CATALOG, OF_SPARK)
    output.error(CatalogError("LC9999", ECHO))
    output.lines([ECHO])
    output.result({"a": [{"b": ECHO}]})
    assert not shows(out.getvalue() + err.getvalue())
    assert not shows(
        repr(
            LandingSpec(
                landing=Landing(name="o", topics="o", table="a.b"), kafka=OF_KAFKA, catalog=OF_CATALOG, spark=OF_SPARK
            )
        )
    )


def test_an_error_of_kafka_shows_none() -> None:
    trouble = LastError()
    trouble(KafkaError(KafkaError._AUTHENTICATION, "no canary-4711 or of-4711"))
    assert "no *** or ***;" in str(unreachable(SourceError, "asking", OF_KAFKA, trouble, 1.0))


def test_an_error_of_the_catalog_or_a_task_shows_none() -> None:
    text = Tables(OF_CATALOG).describe(OSError(f"{ECHO}\nor twice: canary-4711"))
    assert not shows(text)
    assert text.startswith("OSError: *** *** *** *** ***")
    tables = {"a.b": TableStorage(properties={"adls.connection-string": OF_CATALOG["adls.connection-string"]})}
    secrets = Secrets(kafka=OF_KAFKA, io=OF_CATALOG, tables=tables)
    assert not shows(secrets.without(ECHO) + repr(secrets) + repr(tables))


def test_an_error_of_kafka_connect_shows_none() -> None:
    with serving() as worker:
        worker.answers = [(500, {"message": "no: canary-4711, of-4711"})]
        rest = ConnectRest(url=worker.url, password="of-4711", headers={"X-Tenant-Pass": "canary-4711"})
        with pytest.raises(ConnectError, match="LC7521") as caught:
            rest.connectors()
    assert not shows(str(caught.value) + repr(rest))


def test_an_error_of_spark_submit_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AirflowException("Cannot execute: spark-submit --conf spark.hadoop.fs.s3a.access.key=canary-4711 main.py")

    monkeypatch.setenv("AIRFLOW_CONN_SP", '{"conn_type": "spark", "host": "local[1]"}')
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", refused)
    engine = SparkSubmit("sp", conf=OF_SPARK["conf"], grace=timedelta(seconds=1))  # type: ignore[arg-type]
    with pytest.raises(SparkJobError, match="LC5315") as caught:
        engine.run(job(), Secrets(kafka={}, io={}))
    assert not shows("".join(traceback.format_exception(caught.value)))


def test_an_unusable_connection_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ValueError("no such thing as canary-4711")

    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps({"conn_type": "kafka", "extra": {"ssl_key": "canary-4711"}}))
    monkeypatch.setattr("airflow.providers.apache.kafka.hooks.base.KafkaBaseHook.get_conn", property(refused))
    with pytest.raises(SpecError, match="LC5302") as caught:
        kafka_settings("k")
    assert not shows("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    "read", [load_spec, catalog_of, lambda p: source_of(None, bootstrap=None, topic="t", config_file=p)], ids=range(3)
)
def test_a_file_that_is_no_yaml_shows_none(read: Callable[[str], object], tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text('kafka:\n  sasl.password: "canary-4711" x\n')
    with pytest.raises(SpecError, match=r"line 2, column 32.*(LC1012|LC8005)") as caught:
        read(str(path))
    assert not shows("".join(traceback.format_exception(caught.value)))


def test_a_login_that_is_a_mapping_reaches_the_rescue_and_is_known_to_be_secret(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text("catalog:\n  uri: http://x\n  auth: {type: basic, basic: {username: me, password: canary-4711}}\n")
    found = catalog_of(str(path))
    assert for_client(found)["auth"]["basic"]["username"] == "me"
    assert secrets_in(found) == ("canary-4711",)


def _seconds(text: str) -> float:
    began = time.process_time()
    redacted(text, {"password": "a-secret-that-is-not-there"})
    return time.process_time() - began


@pytest.mark.parametrize(
    "part",
    [
        *("jdbc:oracle:thin:", "jdbc:oracle:thin:x/y", "://a:", "a:b", "'a':", "a='", '\\"a\\":\\"', "authorization["),
        *("-----BEGIN PRIVATE KEY-----", "bearer ", "&a=", "('password','", "password='", "..."),
    ],
)
def test_the_time_for_a_text_grows_as_the_text_does(part: str) -> None:
    short, long = (part * (size // len(part)) for size in (5_000, 80_000))
    _seconds(short)
    # Sixteen times as long; by its square it would be 256 times as much.
    assert _seconds(long) < 64 * max(_seconds(short), 0.002)


def test_a_login_of_oracle_as_long_as_it_may_be_is_struck_out() -> None:
    assert (
        redacted(f"jdbc:oracle:thin:{'u' * 128}/{'p' * 1024}@//host:1521/x")
        == f"jdbc:oracle:thin:{'u' * 128}/***@//host:1521/x"
    )
