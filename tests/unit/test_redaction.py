# SPDX-License-Identifier: Apache-2.0
"""Which settings are secret, by the documents of those that read them, and that no text shows one in any form."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from airflow.sdk.exceptions import AirflowException
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.cli.output import Output
from airflow_provider_lakecommit.cli.rescue import catalog_of
from airflow_provider_lakecommit.connector.rest import ConnectRest
from airflow_provider_lakecommit.exceptions import CatalogError, ConnectError, SourceError, SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.connections import kafka_settings
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.settings import for_client
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.kafka.config import LastError, unreachable
from airflow_provider_lakecommit.landing import Landing, LandingSpec, load_spec
from airflow_provider_lakecommit.redaction import is_secret, redacted, secrets_in, without, yaml_trouble
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
"""
ELSEWHERE = "apiKey api_key privateKey sslKeyPem AWSAccessKeyId X-Auth-Token SharedAccessKey Proxy-Authorization pwd"
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
def test_what_is_documented_as_secret_is_shown_nowhere(key: str) -> None:
    assert is_secret(key)
    assert redacted(f"refused {CANARY}!", {key: CANARY}) == "refused ***!"
    assert not shows(redacted(f"at {CANARY}", {"conn": [{"extra": json.dumps({"in": {key: [CANARY]}})}]}))


@pytest.mark.parametrize("key", PUBLIC)
def test_what_says_where_or_how_is_shown(key: str) -> None:
    assert not is_secret(key)
    assert secrets_in({key: "some-value"}) == ()


def test_every_property_of_pyiceberg_that_sounds_secret_is_judged() -> None:
    """A new release of pyiceberg has to be looked at: what sounds so is in one of the two lists above."""
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


def test_of_a_login_all_but_its_secret_is_shown() -> None:
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
def test_credentials_of_nobody_we_know_go_too(text: str, shown: str | None) -> None:
    assert without(text, ()) == (text if shown is None else shown)


def test_of_values_that_overlap_nothing_is_left() -> None:
    assert without("abcdef abc xabc bcdefg", ("abc", "abcdef", "defg")) == "*** *** x*** bc***"
    assert without("abcdefg", ("abcdef", "defg")) == "***"


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
def test_a_broken_yaml_file_is_told_by_its_line_and_not_by_what_stands_there(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load(text)
    assert yaml_trouble(caught.value).startswith("line ")
    assert not shows(yaml_trouble(caught.value))


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
    output.error(CatalogError(ECHO))
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
        with pytest.raises(ConnectError, match=r"500 no: \*\*\*, \*\*\*;") as caught:
            rest.connectors()
    assert not shows(str(caught.value) + repr(rest))


def test_an_error_of_spark_submit_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AirflowException("Cannot execute: spark-submit --conf spark.hadoop.fs.s3a.access.key=canary-4711 main.py")

    monkeypatch.setenv("AIRFLOW_CONN_SP", '{"conn_type": "spark", "host": "local[1]"}')
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", refused)
    engine = SparkSubmit("sp", conf=OF_SPARK["conf"], grace=timedelta(seconds=1))  # type: ignore[arg-type]
    with pytest.raises(SparkJobError, match="ended early: Cannot execute: spark-submit") as caught:
        engine.run(job(), Secrets(kafka={}, io={}))
    assert not shows("".join(traceback.format_exception(caught.value)))


def test_an_unusable_connection_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ValueError("no such thing as canary-4711")

    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps({"conn_type": "kafka", "extra": {"ssl_key": "canary-4711"}}))
    monkeypatch.setattr("airflow.providers.apache.kafka.hooks.base.KafkaBaseHook.get_conn", property(refused))
    with pytest.raises(SpecError, match=r"cannot be used: no such thing as \*\*\*") as caught:
        kafka_settings("k")
    assert not shows("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    "read", [load_spec, catalog_of, lambda p: source_of(None, bootstrap=None, topic="t", config_file=p)], ids=range(3)
)
def test_a_file_that_is_no_yaml_shows_none(read: Callable[[str], object], tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text('kafka:\n  sasl.password: "canary-4711" x\n')
    with pytest.raises(SpecError, match="line 2, column 32") as caught:
        read(str(path))
    assert not shows("".join(traceback.format_exception(caught.value)))


def test_a_login_that_is_a_mapping_reaches_the_rescue_and_is_known_to_be_secret(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text("catalog:\n  uri: http://x\n  auth: {type: basic, basic: {username: me, password: canary-4711}}\n")
    found = catalog_of(str(path))
    assert for_client(found)["auth"]["basic"]["username"] == "me"
    assert secrets_in(found) == ("canary-4711",)
