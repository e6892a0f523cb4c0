"""Rotation with a new master key: what old keys still open, and crashes and concurrent rotations."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import records
from strandline.backups.repository.lease import take
from strandline.backups.repository.rotate_key import rotate_key
from strandline.clock import SystemClock
from strandline.errors import Conflict, Corrupted, PreconditionFailed, UnderOperation
from strandline.settings import Settings
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.files import Files, LocalFiles
from strandline.storage.keyring import (
    FirstWrapped,
    Ring,
    UserKey,
    Wrapped,
    WrongKey,
    create,
    open_ring,
    rotate,
)
from strandline.storage.repository_marker import MARKER, Marker, to_bytes
from tests.catalogs import Death
from tests.crash.mortal import Fate, MortalFiles
from tests.quick_files import QuickFiles
from tests.storage.test_sealed_format import SAMPLE as FIRST_SAMPLE
from tests.storage.test_sealed_format import USER, content_of, masters_of

SAMPLE = FIRST_SAMPLE.with_name("repository-new-master")
OLD, NEW, THIRD = (UserKey(os.urandom(32)) for _ in range(3))


@pytest.fixture
def folder(tmp_path: Path) -> LocalFiles:
    return QuickFiles(tmp_path / "repository")


def opener(files: Files, key: UserKey) -> EncryptedFiles:
    return EncryptedFiles(files, open_ring(files, key), lambda: open_ring(files, key))


def thief(files: Files, kept: bytes) -> Ring:
    """Return the keys that an attacker opens with the old user's key and a copy of the old keys file."""
    copy = QuickFiles(Path(files.location).with_name("stolen"))
    copy.write("keys/1.json", kept)
    return open_ring(copy, OLD)


def test_the_old_key_and_old_keys_do_not_open_what_comes_later(folder: LocalFiles) -> None:
    before = EncryptedFiles(folder, create(folder, OLD))
    before.write("objects/a", b"before")
    kept = folder.read("keys/1.json")
    assert rotate(folder, OLD, NEW, new_master=True).generation == 2
    after = opener(folder, NEW)
    after.write("objects/b", b"after")
    assert (after.read("objects/a"), after.read("objects/b")) == (b"before", b"after")
    stolen = EncryptedFiles(folder, thief(folder, kept))
    assert stolen.read("objects/a") == b"before"
    for read in (stolen.read, stolen.find, stolen.checksum, stolen.readable):
        with pytest.raises(Corrupted, match="the file objects/b is encrypted with a key that"):
            read("objects/b")
    assert next(after.names_of("xxh3-128:ff")) not in stolen.names_of("xxh3-128:ff")
    assert list(folder.names("keys")) == ["keys/2.json"]


def test_a_rotation_without_a_new_master_key_leaves_later_files_open_to_the_old_one(
    folder: LocalFiles,
) -> None:
    """The documentation on security says so."""
    create(folder, OLD)
    kept = folder.read("keys/1.json")
    rotate(folder, OLD, NEW)
    opener(folder, NEW).write("objects/b", b"after")
    assert Ring(2, thief(folder, kept).master).id == open_ring(folder, NEW).id


def test_many_rotations_leave_all_that_was_written_readable(folder: LocalFiles) -> None:
    create(folder, OLD)
    keys, written = [OLD, NEW, THIRD], {}
    for number in range(7):
        files = opener(folder, keys[number % 3])
        files.write(f"objects/{number}", b"%d" % number)
        written[f"objects/{number}"] = b"%d" % number
        done = rotate(folder, keys[number % 3], keys[(number + 1) % 3], new_master=number % 2 == 0)
        assert done.generation == number + 2
    files = opener(folder, keys[7 % 3])
    for each in (files, pickle.loads(pickle.dumps(files))):
        assert {name: each.read(name) for name in written} == written
    masters = masters_of(Path(folder.location), keys[7 % 3].secret)
    assert len(masters) == 5
    assert content_of(Path(folder.location), "objects/6", masters[1]) == (7, b"6"), "as the page says"


def test_a_death_at_any_write_leaves_one_key_that_opens_it(tmp_path: Path) -> None:
    seen = set[str]()
    for at in range(1, 60):
        root = tmp_path / str(at)
        calm = QuickFiles(root)
        EncryptedFiles(calm, create(calm, OLD)).write("objects/a", b"content")
        first = open_ring(calm, OLD).id
        fate = Fate(at)
        with contextlib.suppress(Death):
            rotate(MortalFiles(root, fate), OLD, NEW, new_master=True)
        opens = []
        for key in (OLD, NEW):
            with contextlib.suppress(WrongKey):
                opens.append((key, open_ring(calm, key)))
        ((key, ring),) = opens
        assert EncryptedFiles(calm, ring).read("objects/a") == b"content", fate.place
        assert (ring.id == first) == (key == OLD)
        seen.add("old" if key == OLD else "new")
        again = rotate(calm, OLD, NEW, new_master=True)
        assert (again.generation, again.left) == (2, ()), "a repeated rotation does not make another one"
        assert open_ring(calm, NEW).id != first
        if not fate.dead:
            break
    else:
        pytest.fail("it never came to an end")
    assert seen == {"old", "new"}


def test_a_new_master_key_can_follow_a_rotation_to_the_same_key(folder: LocalFiles) -> None:
    first = create(folder, OLD).id
    rotate(folder, OLD, NEW)
    assert open_ring(folder, NEW).id == first
    assert rotate(folder, OLD, NEW, new_master=True).generation == 3
    assert open_ring(folder, NEW).id != first


def test_who_rotates_at_the_same_moment_is_told(tmp_path: Path) -> None:
    class Slow(QuickFiles):
        def write_if_absent(self, name: str, data: bytes) -> bool:
            rotate(QuickFiles(tmp_path), OLD, NEW)  # The same user's key, with the same master key.
            return super().write_if_absent(name, data)

    create(QuickFiles(tmp_path), OLD)
    with pytest.raises(Conflict, match="another process changed the key of the repository"):
        rotate(Slow(tmp_path), OLD, NEW, new_master=True)


def test_older_versions_open_what_has_one_master_key_and_refuse_what_has_more(folder: LocalFiles) -> None:
    create(folder, OLD)
    rotate(folder, OLD, NEW)
    records.from_text(FirstWrapped, folder.read("keys/2.json").decode(), "it")
    rotate(folder, NEW, OLD, new_master=True)
    with pytest.raises(PreconditionFailed, match="it was written by a newer version: it has format 2"):
        records.from_text(FirstWrapped, folder.read("keys/3.json").decode(), "it")


def test_master_keys_that_were_left_out_or_exchanged_are_noticed(folder: LocalFiles) -> None:
    """An attacker without the key can change nothing, nor move it to another format or generation."""
    create(folder, OLD)
    rotate(folder, OLD, NEW, new_master=True)
    record = records.from_text(Wrapped, folder.read("keys/2.json").decode(), "it")
    body = json.loads(records.to_text(record))
    for changed in (
        {"since": 1},
        {"since": 0},
        {"wrapped": record.wrapped[:-64]},
        {"generation": 3},
        {"record_format": 1, "since": 0},
    ):
        made = {**body, **changed}
        number = made.pop("record_format")
        made = {name: value for name, value in made.items() if name != "since" or value}
        fake = records.from_text(Wrapped, json.dumps({"record_format": number, **made}), "it")
        name = f"keys/{fake.generation}.json"
        folder.remove("keys/2.json")
        folder.write(name, records.to_text(fake.with_checksum()).encode())
        with pytest.raises(Corrupted, match=r"was changed: the right key does not open it"):
            open_ring(folder, NEW)
        folder.remove(name)
        folder.write("keys/2.json", records.to_text(record).encode())
    assert open_ring(folder, NEW).generation == 2


def test_a_repository_of_this_format_stays_readable() -> None:
    files = opener(QuickFiles(SAMPLE), UserKey(USER))
    assert files.read("objects/before") == b"sealed with the first master key"
    assert files.read("objects/after") == b"sealed with the second master key"
    newest, first = masters_of(SAMPLE, USER)
    assert content_of(SAMPLE, "objects/before", first) == (1, b"sealed with the first master key")
    assert content_of(SAMPLE, "objects/after", newest) == (2, b"sealed with the second master key")


def test_a_process_that_opened_it_before_reads_what_came_later_if_its_key_opens_it(
    folder: LocalFiles,
) -> None:
    create(folder, OLD)
    key = [OLD]
    early = EncryptedFiles(folder, open_ring(folder, OLD), lambda: open_ring(folder, key[0]))
    early.write("objects/a", b"before")
    rotate(folder, OLD, NEW, new_master=True)
    opener(folder, NEW).write("objects/b", b"after")
    with pytest.raises(WrongKey, match="the key does not open the repository"):
        early.read("objects/b")
    assert early.read("objects/a") == b"before"
    key[0] = NEW
    assert early.read("objects/b") == b"after"
    with early.readable("objects/b") as file:
        assert file.read() == b"after"


# --- command line -------------------------------------------------------------------------------------------


@pytest.fixture
def key_of(tmp_path: Path) -> Callable[[UserKey], Settings]:
    def made(key: UserKey) -> Settings:
        file = tmp_path / key.fingerprint
        file.write_text(key.secret.hex())
        return Settings(repository_key_file=str(file))

    return made


def test_a_writer_and_a_new_master_key_keep_off_each_other(
    folder: LocalFiles, key_of: Callable[[UserKey], Settings]
) -> None:
    create(folder, OLD)
    folder.write(MARKER, to_bytes(Marker(id="a", created=1.0, engine="1", encrypted=True)))
    lease = take(folder, SystemClock(), "somebody", "sending", 60.0)
    old, new = key_of(OLD), key_of(NEW)
    with pytest.raises(UnderOperation, match="somebody"):
        rotate_key(folder.location, old, new, new_master=True)
    assert open_ring(folder, OLD).generation == 1
    lease.release()
    assert rotate_key(folder.location, old, new, new_master=True).generation == 2
    take(folder, SystemClock(), "somebody", "sending", 60.0)  # The lease is free again.
    assert rotate_key(folder.location, new, old).generation == 3, (
        "a rotation without a new master key needs no lease"
    )
