"""Stores of files: a directory, and a bucket of a server that speaks S3 and checks signatures."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from queueops.core.stores import s3
from queueops.core.stores.choose import store_at
from queueops.core.stores.store import Store, StoreError
from queueops.core.values import parse
from tests.support.s3_server import BUCKET, S3Server, s3_server, shared_server, use_server  # noqa: F401 - fixtures

LARGE = os.urandom(3 * s3.PART_BYTES)
PLACES = ["directory", "bucket"]


@pytest.fixture
def place(request, server: S3Server, use, tmp_path: Path) -> str:
    use(server)
    return str(tmp_path) if request.param == "directory" else f"s3://{BUCKET}/{tmp_path.name}"


def put(store: Store, name: str, content: bytes) -> None:
    with store.write(name) as file:
        file.write(content)


def break_off(store: Store, name: str) -> None:
    with store.write(name) as file:
        file.write(LARGE)
        raise ZeroDivisionError


def content_of(store: Store, name: str) -> bytes:
    with store.read(name) as file:
        return file.read()


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_what_was_written_is_read_listed_replaced_and_removed(place: str):
    store = store_at(place)
    store.check(writing=True)
    store.check(writing=False)
    names = ["acme/2026-01-02/b+1.gz", "acme/2026-01-01/a.gz", "globex/a.json"]
    for name in names:
        put(store, name, name.encode())
    assert list(store.names(".gz")) == ["acme/2026-01-01/a.gz", "acme/2026-01-02/b+1.gz"]
    assert [content_of(store, name) for name in names] == [name.encode() for name in names]
    put(store, names[0], LARGE)
    assert content_of(store, names[0]) == LARGE
    put(store, names[0], b"")
    assert content_of(store, names[0]) == b""
    for _ in range(2):
        store.remove(names[0])
    assert list(store.names("")) == [names[1], names[2]]
    with pytest.raises(FileNotFoundError):
        content_of(store, names[0])
    assert list(store_at(f"{place}/acme").names("")) == ["2026-01-01/a.gz"]


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_folders_files_come_in_an_order_in_which_one_can_go_on(place: str):
    store, begun = store_at(place), datetime.now(UTC) - timedelta(seconds=2)
    names = [f"acme/2026-01-0{day}/{file}" for day in (1, 2) for file in ("a", "b-c", "b")]
    for name in [*names, "acme-2/2026-01-01/a", "globex/2026-01-01/a"]:
        put(store, name, b"1")
    found = list(store.files("acme"))
    assert sorted(file.name for file in found) == sorted(names)
    assert all(begun < file.written_at < datetime.now(UTC) + timedelta(seconds=2) for file in found)
    for place_of, file in enumerate(found):
        assert list(store.files("acme", after=file.name)) == found[place_of + 1 :]
    assert list(store.files("nobody")) == []


def test_a_folder_goes_with_its_last_file_and_is_there_again_for_who_writes_meanwhile(tmp_path: Path):
    store = store_at(str(tmp_path))
    put(store, "acme/2026-01-01/a", b"1")
    with store.write("acme/2026-01-01/b") as file:
        store.remove("acme/2026-01-01/a")
        file.write(b"2")
    assert content_of(store, "acme/2026-01-01/b") == b"2"
    store.remove("acme/2026-01-01/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_write_that_is_broken_off_leaves_what_was_there(place: str):
    store = store_at(place)
    put(store, "a.gz", b"before")
    for name in ("a.gz", "b.gz"):
        with pytest.raises(ZeroDivisionError):
            break_off(store, name)
    assert list(store.names(".gz")) == ["a.gz"]
    assert content_of(store, "a.gz") == b"before"


@pytest.mark.parametrize("place", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    ("variable", "value", "place_is", "words"),
    [
        ("AWS_SECRET_ACCESS_KEY", "hush", None, "the secret key is another one's"),
        ("AWS_ACCESS_KEY_ID", "AKIANOBODY", None, "nobody has this access key"),
        ("AWS_REGION", "eu-west-1", "s3://no-such-bucket/a", "there is no such bucket"),
    ],
)
def test_what_a_server_refuses_is_said_in_a_sentence(
    place: str, *, monkeypatch, variable: str, value: str, place_is: str | None, words: str
):
    monkeypatch.setenv(variable, value)
    store = store_at(place_is or place)
    for ask in (
        lambda: store.check(writing=True),
        lambda: store.check(writing=False),
        lambda: put(store, "a", b"1"),
        lambda: content_of(store, "a"),
        lambda: list(store.names("")),
        lambda: store.remove("a"),
    ):
        with pytest.raises(StoreError, match=words) as caught:
            ask()
        assert "\n" not in caught.value.message
        assert value not in caught.value.message


def test_a_server_that_goes_away_fails_what_was_under_way_and_what_follows(use):
    with s3_server() as mortal:
        use(mortal)
        store = store_at(f"s3://{BUCKET}/acme")
        put(store, "a.gz", LARGE)
        with store.read("a.gz") as file:
            assert file.read(10) == LARGE[:10]
            mortal.kill()
            with pytest.raises(StoreError, match="does not do what is asked of it"):
                file.read()
        for ask in (
            lambda: put(store, "b.gz", LARGE),
            lambda: list(store.names("")),
            lambda: store.check(writing=True),
        ):
            with pytest.raises(StoreError, match="does not do what is asked of it"):
                ask()


def test_an_upload_that_arrives_short_is_no_upload(server: S3Server, use, monkeypatch):
    use(server)
    store = store_at(f"s3://{BUCKET}/short")
    assert isinstance(store, s3.S3Store)
    monkeypatch.setattr(store, "_files", SimpleNamespace(**vars(store._files) | {"head": lambda *_: {"size": 2}}))
    with pytest.raises(StoreError, match="has 2 bytes after 3 were written"):
        put(store, "a.gz", b"abc")


def test_a_bucket_that_cannot_be_stops_the_start():
    for place in ("s3://UPPER/a", "s3://", "s3://ab", "s3://bucket//a", "s3://bucket/a b"):
        with pytest.raises(ValueError, match=place):
            parse.STORE.parse(place)


def test_a_place_is_a_path_or_a_bucket():
    assert parse.STORE.parse("archive") == str(Path("archive").absolute())
    assert parse.STORE.parse("s3://bucket/a/b") == "s3://bucket/a/b"
    assert str(store_at("s3://bucket/")) == "s3://bucket"
