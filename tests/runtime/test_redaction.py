"""Secrets are in no text that Penstock makes: errors, settings, `repr`."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Checkpointing, FileSink, FileSource, JobConfig, StorageError
from penstock.runtime.config.job_config import settings_as_text
from penstock.runtime.error_text import error_text, fit_text
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.io.storage import open_storage
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.redaction import has_password, redacted

SECRET = "wJalrXUtnFEMI"
TEXTS = [
    "s3://me:{}@bucket/path",
    "redis://:{}@host:6379/0 does not answer",
    "s3://me:ab/{}+cd@bucket/path",
    "s3://me:{}/ab@bucket/path",
    "postgres://me:p@{}@host/db",
    "kafka://me@corp.com:{}@host:9092/topic",
    "postgres://me:pa'{}@host/db",
    "https://host/file?X-Amz-Credential=me&X-Amz-Signature={}",
    "az://account/c?sv=2020&sig={}&se=1 is gone",
    "account.blob.core.windows.net/c/f?sv=2020&sig={}&se=1 is gone",
    "f?SIG={}, which",
    '{{"url": "f?sv=2020\\u0026sig={}\\u0026se=1"}}',
    "aws_secret_access_key={}",
    "AWS_SECRET_ACCESS_KEY={} and more",
    "{{'region': 'eu', 'secret_access_key': '{}'}}",
    "{{'account_key': '{}'}}",
    '{{"password": "{}"}}',
    '{{"password":"{}"}}',
    '{{"password": "a\\"{}"}}',
    "{{'password': b'{}'}}",
    "Server=host;Pwd={};",
    "connect(password='{}', user='me')",
    "RAY_AUTH_TOKEN={}",
    "AccountName=me;AccountKey={};EndpointSuffix=core",
    "Authorization: Bearer {}",
    "Authorization: token {} was refused",
    "authorization: {}",
    "Authorization: Other {}",
    "{{'Authorization': 'token {}', 'Accept': '*'}}",
    "[('Authorization', 'Basic {}')]",
    "Bearer eyJhbGciOi.{}.abc",
    "the token eyJhbGciOiJIUzI1NiJ9.{}.c2ln has expired",
    "spark-submit --password {} --name x",
    "spark-submit --auth-token '{} b'",
    "Command '['spark', '--password', '{}', 'z']' returned 1",
    "password: {}",
    "Password:{}",
    "password = {}",
    "X-Vault-Token: {}",
    "token: {}1 is unknown",
    "{{'password': {}}}",
    "connect(password='{} is cut off",
    "https://{}@host/path",
    "https://{}@host:8080",
    "git+https://{}@github.com/a/b.git",
    "http://a:{}@h,http://b:c@h2",
    "ghp_{}0123456789",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_taken_out_and_the_rest_stays(text: str) -> None:
    shown = redacted(text.format(SECRET))
    assert SECRET not in shown
    assert "***" in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "operator 'count' (subtask 1 of 2), defined at job.py:12 in main: KeyError: 'token'",
        "abfss://container@account.dfs.core.windows.net/path",
        "s3://bucket/part-?.csv and file:///data/a@b",
        "the token is unknown: give another one",
        "it has 12 keys; partition=3, key=5",
        "http://127.0.0.1:8275/ and user@host",
        "hdfs://nn:8020/data/a@b and http://[::1]:8275/a@b",
        "['http://h:x','b@c']",
        "def connect(password: str, token: str | None) -> None:",
        "unexpected token: identifier",
        "password: must be set",
        "ssh://git@github.com/x",
        "option --token is unknown; the arguments are --token, --password",
        "columns=['password', 'name']",
        "arn:aws:secretsmanager:eu:1:x",
        "it has token == other",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


HOSTILE = [
    "a://", "a://b:", "a://b:c/d", "a://b?", "http://a:b@", "://", "@", ".", "-", "token", ".token", "-token",
    "--token ", "--token", 'token="\\', "password=\"'", "password: ", "'a", "bearer ", "authorization: ",
    "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "secret" + " " * 8, "x", "\\",
]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_the_work_grows_with_the_length_of_a_text(part: str) -> None:
    # Were any pattern to read on from each position to the end, this would take 10 to the power of 10 steps.
    redacted((part * 200_000)[:200_000])


@given(st.text(), st.text())
def test_any_text_may_stand_around_a_secret(before: str, behind: str) -> None:
    assert SECRET not in redacted(f"{before} s3://me:{SECRET}@bucket {behind}")
    redacted(before + behind)


@pytest.mark.parametrize("secret", ["s3://me:{}@bucket", "password={} ", "password='{}'"])
@given(st.integers(0, 120))
def test_cutting_a_long_text_leaves_no_half_of_a_secret(secret: str, before: int) -> None:
    most = 100
    text = secret.format("S" * 40)
    for long in ("x" * before + " " + text + "y" * 9_000, "x" * 9_000 + " " + text + "y" * before):
        assert "S" not in fit_text(long, most)


@pytest.mark.parametrize("text", TEXTS)
def test_errors_reports_and_settings_show_no_secret(text: str) -> None:
    secret = text.format(SECRET)
    error = StorageError(f"{secret}: no answer")
    storage = settings_as_text(JobConfig(checkpointing=Checkpointing(every=1, storage=secret)))
    shown = (
        str(error),
        repr(error),
        str(pickle.loads(pickle.dumps(error))),
        error_text(ValueError(secret)),
        fit_text(secret, 1_000),
        str(FailureCause(secret, traceback=secret)),
        FailureCause("", traceback=secret).traceback,
        str(storage),
    )
    assert SECRET not in str(shown)


def test_options_of_stores_are_not_shown() -> None:
    options = {"secret_access_key": SECRET, "customer_key": SECRET}
    source = FileSource.text("s3://bucket/in", storage_options=options)
    sink = FileSink.json("s3://bucket/out", storage_options=options)
    assert SECRET not in f"{source} {sink} {source!r} {sink!r}"


def test_what_users_set_up_shows_no_secret() -> None:
    url = f"s3://me:{SECRET}@bucket/path"
    checkpointing = Checkpointing(every=1, storage=url)
    made = (FileSource.csv(url), FileSink.parquet(url), checkpointing, JobConfig(checkpointing=checkpointing))
    for each in made:
        assert SECRET not in f"{each} {each!r}"
        assert "s3://***@bucket/path" in repr(each)


def test_a_url_with_a_password_is_refused_where_it_is_opened() -> None:
    url = f"s3://me:{SECRET}@bucket/path"
    with pytest.raises(StorageError, match=r"contains a password or token.*environment") as refused:
        open_storage(url)
    with pytest.raises(
        ConfigurationError, match=r"contains a password or token.*storage_options"
    ) as refused_too:
        filesystem_for(url, {})
    assert SECRET not in f"{refused.value} {refused_too.value}"


@pytest.mark.parametrize(
    ("url", "has_secret"),
    [
        ("https://host/file?X-Amz-Signature=12ab&X-Amz-Date=5", True),
        ("https://host/file?x=1&X-Goog-Credential=12ab", True),
        ("https://account.blob.core.windows.net/c/f?sv=2022&sig=12ab", True),
        ("https://host/file?token=12ab", True),
        ("https://host/file?access_token=12ab", True),
        ("https://host/file?version=3&design=new", False),
        ("s3://bucket/sig=5/token=6/file", False),
        ("https://host/file?sig=", False),
    ],
)
def test_a_signed_url_has_a_secret(url: str, has_secret: bool) -> None:
    assert has_password(url) is has_secret


def test_a_signed_url_is_refused_as_a_place() -> None:
    with pytest.raises(ConfigurationError, match="a password or token"):
        filesystem_for("az://container/out?sig=12ab", {})
    with pytest.raises(StorageError):
        open_storage("az://container/out?sig=12ab")
