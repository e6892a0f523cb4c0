"""Files in a bucket: network errors, error messages, and protection of secrets."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage.files import LocalFiles
from strandline.storage.location import files_at
from strandline.storage.objects import ObjectFiles
from tests.effort import EVERY
from tests.processes import environment
from tests.s3 import S3, Answer, Line, cut, reset, says, slow, unheard

HASTY: dict[str, Any] = {"storage_retries": 2, "storage_retry_seconds": 20.0, "storage_timeout_seconds": 5.0}
LARGE = os.urandom(20 << 20)


@pytest.fixture
def line(s3: S3) -> Iterator[Line]:
    made = Line(s3)
    yield made
    made.close()


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.new_bucket()


@pytest.fixture
def files(line: Line, bucket: str) -> ObjectFiles:
    return ObjectFiles(f"s3://{bucket}/w", line.s3.settings(**HASTY))


PASSING = {
    "cut": cut,
    "reset": reset,
    "500": says("500 Internal Server Error"),
    "503": says("503 Slow Down"),
    "the answer is not heard": unheard(0),
    "half of the answer is not heard": unheard(40),
    "slow": slow(0.3),
}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING)
def test_what_passes_is_not_noticed(
    files: ObjectFiles, line: Line, bucket: str, s3: S3, answer: Answer
) -> None:
    line.fail(answer, times=1)
    files.write("a", b"some bytes")
    line.fail(answer, times=1)
    assert files.read("a") == b"some bytes"
    line.fail(answer, times=1)
    assert files.size("a") == 10
    line.fail(answer, times=1)
    assert files.exists("a")
    line.fail(answer, times=1)
    assert list(files.names()) == ["a"]
    line.fail(answer, times=1)
    assert files.checksum("a").startswith("xxh3-128:")
    line.fail(answer, times=1)
    files.remove("a")
    assert s3.objects(bucket) == {}


REQUESTS = ("uploads", "partNumber=2", "POST")


@pytest.mark.parametrize(
    ("of", "answer"),
    [
        pytest.param(of, answer, id=f"{of}-{name}")
        for number, (name, answer) in enumerate(PASSING.items())
        for other, of in enumerate(REQUESTS)
        if EVERY or number == 0 or other == number % len(REQUESTS)
    ],
)
def test_what_passes_while_parts_are_sent(
    files: ObjectFiles, line: Line, bucket: str, s3: S3, answer: Answer, of: str
) -> None:
    """A sample of failures and requests; all combinations in the exhaustive run."""
    line.fail(answer, times=1, of=of)
    try:
        files.write("a", LARGE)
    except Unavailable:
        # The client cannot repeat all of these requests; but then no object exists.
        assert s3.objects(bucket) == {}
        line.heal()
        files.write("a", LARGE)
    assert files.read("a") == LARGE


STAYING = {
    "cut": (cut, "the connection failed"),
    "500": (says("500 Internal Server Error"), "the store answers 500 Internal Server Error"),
    "503": (says("503 Slow Down"), "the store answers 503"),
    "403": (says("403 Forbidden"), "denies access"),
    "401": (says("401 Unauthorized"), "denies access"),
    "the answer is not heard": (unheard(0), "the connection failed"),
}


@pytest.mark.parametrize(("answer", "said"), STAYING.values(), ids=STAYING)
def test_what_stays_is_told_and_leaves_nothing(
    files: ObjectFiles, line: Line, bucket: str, s3: S3, answer: Answer, said: str
) -> None:
    files.write("b", b"there")
    acts = (
        lambda: files.write("a", b"some bytes"),
        lambda: files.write("a", LARGE),
        lambda: files.write_if_absent("a", b"some bytes"),
        lambda: files.read("b"),
        lambda: files.size("b"),
        lambda: files.exists("b"),
        lambda: list(files.names()),
    )
    for act in acts:
        line.fail(answer)
        with pytest.raises(Unavailable) as caught:
            act()
        assert said in caught.value.message or "connection" in caught.value.message
        assert caught.value.hint
        line.heal()
        if said != "the connection failed" or answer is cut:
            assert s3.objects(bucket) == {"w/b": 5}
        files.remove("a")  # A write that succeeded without a response leaves an orphan.
    files.write("a", b"some bytes")
    assert s3.objects(bucket) == {"w/a": 10, "w/b": 5}


def test_what_another_has_made_is_not_taken_back(files: ObjectFiles, line: Line, bucket: str, s3: S3) -> None:
    """Another writer may create the object meanwhile."""
    ObjectFiles(files.location, s3.settings()).write("marker", b"theirs")
    line.fail(says("500 Internal Server Error"), of="PUT")
    with pytest.raises(Unavailable, match="500"):
        files.write_if_absent("marker", b"ours")
    assert s3.objects(bucket) == {"w/marker": 6}


def test_content_that_another_has_sent_as_well_is_not_taken_back(
    files: ObjectFiles, line: Line, bucket: str, s3: S3
) -> None:
    """An upload may fail after another writer stored the same object and relies on it."""
    other = ObjectFiles(files.location, s3.settings())

    def held_up(name: str, data: bytes) -> Iterator[bytes]:
        yield data
        other.write(name, data)
        line.fail(says("500 Internal Server Error"), of="PUT" if len(data) < len(LARGE) else "uploadId")

    for name, data in {"little": b"the same", "large": LARGE}.items():
        with pytest.raises(Unavailable, match="500"):
            files.store_if_absent(name, held_up(name, data))
        line.heal()
    assert s3.objects(bucket) == {"w/little": 8, "w/large": len(LARGE)}


def test_parts_that_fail_are_given_up(files: ObjectFiles, line: Line, bucket: str, s3: S3) -> None:
    line.fail(says("500 Internal Server Error"), of="partNumber=2")
    with pytest.raises(Unavailable, match="500"):
        files.write("a", LARGE)
    assert s3.objects(bucket) == {}
    # Older versions leave invisible parts, which a lifecycle rule of the bucket removes.
    if version("obstore") >= "0.12":
        assert s3.unfinished(bucket) == 0


def test_a_server_that_is_not_there(bucket: str, s3: S3) -> None:
    settings = Settings(storage_options={**s3.options, "endpoint": "http://127.0.0.1:1"}, **HASTY)
    with pytest.raises(Unavailable, match=r"cannot write the file a at s3://.*: it refuses connections"):
        ObjectFiles(f"s3://{bucket}", settings).write("a", b"1")


def test_a_server_that_does_not_answer(files: ObjectFiles, line: Line) -> None:
    hasty = ObjectFiles(
        files.location, replace(line.s3.settings(), storage_timeout_seconds=0.2, storage_retries=1)
    )
    line.fail(slow(2.0))
    with pytest.raises(Unavailable, match="did not answer in time"):
        hasty.write("a", b"1")


def test_a_bucket_that_is_not_there(s3: S3) -> None:
    files = files_at("s3://no-such-bucket/w", s3.settings(**HASTY))
    acts = (
        lambda: files.find("a"),
        lambda: files.read("a"),
        lambda: files.size("a"),
        lambda: files.write("a", b"1"),
        lambda: files.write("a", LARGE),
        lambda: files.remove("a"),
        lambda: list(files.names()),
    )
    for act in acts:
        with pytest.raises(Unavailable, match="there is no bucket no-such-bucket") as caught:
            act()
        assert "Create the bucket" in caught.value.hint


def test_an_object_that_is_cut_short_is_damage_and_not_read_for_another(
    files: ObjectFiles, s3: S3, bucket: str
) -> None:
    files.write("a", b"0123456789")
    reader = files.readable("a")
    s3.client.put_object(Bucket=bucket, Key="w/a", Body=b"")
    with pytest.raises((Corrupted, Unavailable)):
        reader.read(10)


def test_a_folder_that_hadoop_marked_is_no_file(files: ObjectFiles, s3: S3, bucket: str) -> None:
    s3.client.put_object(Bucket=bucket, Key="w/data/7/job/", Body=b"")
    s3.client.put_object(Bucket=bucket, Key="w/data/7/job/part.parquet", Body=b"1")
    assert list(files.names("data")) == ["data/7/job/part.parquet"]


def test_nothing_outside_of_the_prefix_is_touched(files: ObjectFiles, s3: S3, bucket: str) -> None:
    for key in ("other/a", "w2/a", "a"):
        s3.client.put_object(Bucket=bucket, Key=key, Body=b"1")
    files.write("x/a", b"1")
    assert list(files.names()) == ["x/a"]
    files.remove_tree("x")
    assert set(s3.objects(bucket)) == {"other/a", "w2/a", "a"}


# --- settings for Spark -----------------------------------------------------------------------------------


def test_spark_knows_an_object_by_the_scheme_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    account = Settings(storage_options={"account_name": "acc"})
    assert files_at("s3://b/p/q").path("a/b") == "s3a://b/p/q/a/b"
    assert files_at("s3://b").path("a") == "s3a://b/a"
    assert files_at("gs://b/p").path("a") == "gs://b/p/a"
    assert files_at("az://b/p", account).path("a") == "abfss://b@acc.dfs.core.windows.net/p/a"
    with pytest.raises(PreconditionFailed, match="storage account"):
        files_at("az://b/p").path("a")


def test_a_session_of_ours_is_told_what_the_client_knows(monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    at = "spark.hadoop.fs.s3a.bucket.b."
    told = files_at("s3://b/p", s3.settings()).spark_options()
    assert told[at + "endpoint"] == s3.endpoint
    assert told[at + "secret.key"] == s3.secret
    assert told[at + "path.style.access"] == "true"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://elsewhere")
    told = files_at("s3://b/p").spark_options()
    assert (told[at + "access.key"], told[at + "secret.key"], told[at + "session.token"]) == ("k", "s", "t")
    assert told[at + "endpoint"] == "https://elsewhere"
    assert "Temporary" in told[at + "aws.credentials.provider"]
    assert LocalFiles("/").spark_options() == {}


# --- secrets ----------------------------------------------------------------------------------------------


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, s3: S3, bucket: str) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    files = files_at(f"s3://{bucket}/w")
    files.write("a", b"1")
    assert s3.objects(bucket) == {"w/a": 1}


def test_a_profile_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, s3: S3, bucket: str) -> None:
    (tmp_path / "credentials").write_text(
        f"[mine]\naws_access_key_id = {s3.key}\naws_secret_access_key = {s3.secret.removesuffix('ä')}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(PreconditionFailed, match="the AWS profile none cannot be used"):
        files_at(f"s3://{bucket}/w").write("a", b"1")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    options = {"endpoint": s3.endpoint, "region": "us-east-1"}
    files_at(f"s3://{bucket}/w", Settings(storage_options=options)).write("a", b"1")
    monkeypatch.delenv("AWS_PROFILE")
    assert s3.objects(bucket) == {"w/a": 1}


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:word-of-mine@bucket/x",
        "s3://bucket/x?token=word-of-mine",
        "s3://bucket/x#word-of-mine",
        "ftp://u:word-of-mine@h/x",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        files_at(url)
    assert "word-of-mine" not in str(caught.value) + repr(caught.value)
    assert "Settings.storage_options" in caught.value.hint


def test_nobody_sees_a_secret(line: Line, bucket: str, caplog: pytest.LogCaptureFixture) -> None:
    secret = line.s3.secret
    settings = line.s3.settings(**HASTY)
    files = ObjectFiles(f"s3://{bucket}/w", settings)
    seen = [repr(settings), str(settings), repr(files), str(files), files.location]
    with caplog.at_level(logging.DEBUG):
        for answer, _ in STAYING.values():
            line.fail(answer)
            with pytest.raises(StrandlineError) as caught:
                files.write("a", b"1")
            seen += [str(caught.value), repr(caught.value), caught.value.hint]
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__
    for bad in ({"no_such_option": secret}, {"endpoint": secret}, {"region": f"{secret}\n"}):
        try:
            files_at(f"s3://{bucket}/w", Settings(storage_options={**line.s3.options, **bad}, **HASTY)).read(
                "a"
            )
        except StrandlineError as error:
            seen += [str(error), repr(error)]
    with pytest.raises(InvalidArgument) as refused:
        Settings(storage_options={"secret_access_key": secret, "x": 5})  # type: ignore[dict-item]
    seen.append(str(refused.value))
    assert not [text for text in [*seen, caplog.text] if secret in text or secret[:12] in text]


def test_the_client_is_loaded_only_for_a_url() -> None:
    script = (
        "import sys, strandline; strandline.connect(sys.argv[1]).close(); print('obstore' in sys.modules)"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run(
            [sys.executable, "-c", script, folder],
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ),
        )
    assert said.stdout.strip() == "False"


def test_a_fork_is_refused(files: ObjectFiles) -> None:
    files.write("a", b"1")
    child = os.fork()
    if child == 0:
        try:
            files.read("a")
        except PreconditionFailed as error:
            os._exit(0 if "forked" in error.message else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


_FORKS = """
import os, pickle, sys
import obstore.store
from strandline.storage.objects import ObjectFiles

files = pickle.load(sys.stdin.buffer)
for _ in range(2):
    child = os.fork()
    if child == 0:
        files.write(str(os.getpid()), b"1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(len(list(files.names())))
"""


def test_who_was_forked_of_one_that_has_only_loaded_it_may_use_it(s3: S3) -> None:
    """Like a server that loads its program once and forks for each worker."""
    files = ObjectFiles(f"s3://{s3.new_bucket()}/w", s3.settings())
    command = [sys.executable, "-c", _FORKS]
    said = subprocess.run(command, input=pickle.dumps(files), capture_output=True, env=environment())
    assert (said.stdout.decode().strip(), said.returncode) == ("2", 0), said.stderr.decode()


def test_a_pickle_is_a_location_and_settings(files: ObjectFiles) -> None:
    files.write("a", b"1")
    assert pickle.loads(pickle.dumps(files)).read("a") == b"1"
    assert isinstance(pickle.loads(pickle.dumps(type("Sub", (LocalFiles,), {})("/x"))), LocalFiles)


def test_a_url_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "obstore"] + ["obstore"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PreconditionFailed, match="needs the package obstore") as caught:
        files_at("s3://bucket/w", Settings()).exists("a")
    assert "strandline[s3]" in str(caught.value.hint)
