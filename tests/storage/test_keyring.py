"""The keys of a repository: opening, rotation, crashes, and attacks with older keys."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import (
    Conflict,
    Corrupted,
    InvalidArgument,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from strandline.settings import Settings
from strandline.storage import keyring
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.files import Files, LocalFiles
from strandline.storage.keyring import Ring, UserKey, WrongKey, create, open_ring, rotate
from strandline.storage.location import files_at
from strandline.storage.user_key import user_key
from tests.catalogs import Death
from tests.crash.mortal import Fate, MortalFiles
from tests.quick_files import QuickFiles
from tests.s3 import S3

OLD, NEW, OTHER = (UserKey(os.urandom(32)) for _ in range(3))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "folder":
        return QuickFiles(tmp_path / "repository")
    s3: S3 = request.getfixturevalue("s3")
    return files_at(f"s3://{s3.new_bucket()}/repository", s3.settings())


@pytest.fixture
def folder(tmp_path: Path) -> LocalFiles:
    return QuickFiles(tmp_path / "repository")


def test_a_repository_opens_with_the_key_that_it_was_made_with(files: Files) -> None:
    ring = create(files, OLD)
    assert open_ring(files, OLD) == create(files, OLD) == ring
    assert ring.generation == 1
    assert list(files.names()) == ["keys/1.json"]
    kept = files.read("keys/1.json")
    assert not [
        secret for secret in (ring.master, OLD.secret) if secret in kept or secret.hex().encode() in kept
    ]


def test_another_key_does_not_open_it_and_that_is_no_damage(files: Files) -> None:
    create(files, OLD)
    for act in (open_ring, create):
        with pytest.raises(WrongKey, match="the key does not open the repository at") as caught:
            act(files, OTHER)
        assert OLD.fingerprint in caught.value.message
        assert OTHER.fingerprint in caught.value.message
        assert caught.value.code == "PRECONDITION_FAILED"


def test_no_two_repositories_have_the_same_keys(tmp_path: Path) -> None:
    one, two = (create(QuickFiles(tmp_path / name), OLD) for name in ("one", "two"))
    assert one.master != two.master
    assert one.id != two.id


def test_a_name_tells_the_content_only_to_who_has_the_key(folder: LocalFiles) -> None:
    ring = create(folder, OLD)
    checksum = "xxh3-128:" + "0" * 32
    assert (
        next(ring.names_of(checksum))
        == next(open_ring(folder, OLD).names_of(checksum))
        == next(pickle.loads(pickle.dumps(ring)).names_of(checksum))
    )
    assert len(bytes.fromhex(next(ring.names_of(checksum)))) == 32
    assert next(ring.names_of(checksum)) != next(ring.names_of(checksum[:-1] + "1"))
    assert next(ring.names_of(checksum)) != next(Ring(1, os.urandom(32)).names_of(checksum))


def test_keys_for_different_purposes_differ() -> None:
    ring = Ring(1, OLD.secret)
    assert len({ring.id, ring._names[0][:16], ring.master[:16], bytes.fromhex(OLD.fingerprint) * 2}) == 4


def test_what_was_sealed_stays_readable_when_the_key_is_changed(files: Files) -> None:
    ring = create(files, OLD)
    EncryptedFiles(files, ring).write("objects/a", b"before")
    before = files.read("objects/a")
    done = rotate(files, OLD, NEW)
    assert (done.generation, done.left) == (2, ())
    assert files.read("objects/a") == before
    assert sorted(files.names()) == ["keys/2.json", "objects/a"]
    changed = open_ring(files, NEW)
    assert (changed.master, changed.generation) == (ring.master, 2)
    assert EncryptedFiles(files, changed).read("objects/a") == b"before"
    with pytest.raises(WrongKey):
        open_ring(files, OLD)
    with pytest.raises(WrongKey):
        rotate(files, OLD, OTHER)
    assert rotate(files, NEW, OLD).generation == 3
    assert open_ring(files, OLD).master == ring.master


def test_a_change_to_the_same_key_is_refused(folder: LocalFiles) -> None:
    create(folder, OLD)
    with pytest.raises(InvalidArgument, match="the new key of the repository is the old one"):
        rotate(folder, OLD, UserKey(OLD.secret))


def test_who_opened_it_before_the_change_goes_on(files: Files) -> None:
    early = EncryptedFiles(files, create(files, OLD))
    rotate(files, OLD, NEW)
    EncryptedFiles(files, open_ring(files, NEW)).write("objects/a", b"after")
    assert early.read("objects/a") == b"after"
    with early.readable("objects/a") as file:
        assert file.read() == b"after"


def deaths() -> Iterator[int]:
    return iter(range(1, 60))


def test_a_death_at_any_write_of_a_change_leaves_one_key_that_opens_it(tmp_path: Path) -> None:
    seen = set[str]()
    for at in deaths():
        root = tmp_path / str(at)
        calm = QuickFiles(root)
        ring = create(calm, OLD)
        EncryptedFiles(calm, ring).write("objects/a", b"content")
        fate = Fate(at)
        with contextlib.suppress(Death):
            rotate(MortalFiles(root, fate), OLD, NEW)
        opens = [key for key in (OLD, NEW) if _opens(calm, key)]
        assert len(opens) == 1, fate.place
        assert EncryptedFiles(calm, open_ring(calm, opens[0])).read("objects/a") == b"content"
        seen.add("old" if opens == [OLD] else "new")
        # Rotation can be repeated, and then removes all older keys.
        assert rotate(calm, OLD, NEW).left == ()
        assert not _opens(calm, OLD)
        assert open_ring(calm, NEW).master == ring.master
        assert [name for name in calm.names("keys") if not name.startswith("keys/2.json")] == []
        assert len(list(calm.names("keys"))) == 1
        if not fate.dead:
            break
    else:
        pytest.fail("it never came to an end")
    assert seen == {"old", "new"}


def test_a_death_while_a_repository_is_made_can_be_repeated(tmp_path: Path) -> None:
    for at in deaths():
        fate = Fate(at)
        with contextlib.suppress(Death):
            create(MortalFiles(tmp_path / str(at), fate), OLD)
        calm = QuickFiles(tmp_path / str(at))
        ring = create(calm, OLD)
        assert open_ring(calm, OLD) == ring
        if not fate.dead:
            return
    pytest.fail("it never came to an end")


def _opens(files: Files, key: UserKey) -> bool:
    try:
        open_ring(files, key)
    except WrongKey:
        return False
    return True


def test_older_keys_beside_the_new_ones_open_nothing(files: Files) -> None:
    create(files, OLD)
    old = files.read("keys/1.json")
    rotate(files, OLD, NEW)
    files.write("keys/1.json", old)
    with pytest.raises(WrongKey):
        open_ring(files, OLD)
    assert open_ring(files, NEW).generation == 2
    assert rotate(files, OLD, NEW).left == ()  # Repeating it removes them.
    assert list(files.names("keys")) == ["keys/2.json"]


def test_older_keys_in_place_of_the_new_ones_are_noticed_by_what_came_later(files: Files) -> None:
    create(files, OLD)
    old = files.read("keys/1.json")
    rotate(files, OLD, NEW)
    after = EncryptedFiles(files, open_ring(files, NEW))
    after.write("backups/a.json", b"a manifest")
    files.remove("keys/2.json")
    files.write("keys/1.json", old)
    rolled_back = EncryptedFiles(files, open_ring(files, OLD))
    for read in (rolled_back.read, rolled_back.find, rolled_back.checksum, rolled_back.readable):
        with pytest.raises(
            Corrupted, match=r"the newest has generation 1, the file has generation 2"
        ) as caught:
            read("backups/a.json")
        assert "keys/2.json" in caught.value.hint


def test_older_keys_under_a_newer_name_are_damage(folder: LocalFiles) -> None:
    create(folder, OLD)
    old = folder.read("keys/1.json")
    rotate(folder, OLD, NEW)
    folder.write("keys/3.json", old)
    for key in (OLD, NEW):
        with pytest.raises(Corrupted, match=r"keys/3.json was renamed: it has generation 1"):
            open_ring(folder, key)


def test_any_flipped_bit_of_the_keys_is_damage(folder: LocalFiles) -> None:
    create(folder, OLD)
    whole = folder.read("keys/1.json")
    for at in range(len(whole)):
        for bit in (0x01, 0x04, 0x20):
            folder.remove("keys/1.json")
            folder.write("keys/1.json", whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            for key in (OLD, OTHER):
                try:
                    open_ring(folder, key)
                except Corrupted as error:
                    assert "keys/1.json" in error.message
                    assert "folder keys" in error.hint
                except PreconditionFailed as error:
                    # The digit of the format version: a later version is not damage.
                    assert "written by a newer version" in error.message
                    assert b'"record_format": ' in whole[: at + 1] and at < 20
                else:
                    pytest.fail(f"byte {at} of the keys may be anything")


def test_keys_that_were_changed_by_who_can_count_are_noticed(folder: LocalFiles) -> None:
    """An attacker who also corrects the checksum."""
    from dataclasses import replace

    from strandline import records

    create(folder, OLD)
    record = records.from_text(keyring.Wrapped, folder.read("keys/1.json").decode(), "it")
    for changed in (
        replace(record, wrapped=f"{int(record.wrapped[:2], 16) ^ 1:02x}{record.wrapped[2:]}"),
        replace(record, key_id="00" * 16),
        replace(record, nonce=record.nonce[:-2]),
        replace(record, wrapped="no hex"),
    ):
        folder.remove("keys/1.json")
        folder.write("keys/1.json", records.to_text(changed.with_checksum()).encode())
        with pytest.raises(Corrupted, match=r"keys/1.json was changed: the right key does not open it"):
            open_ring(folder, OLD)


def test_no_keys_are_damage(folder: LocalFiles) -> None:
    with pytest.raises(Corrupted, match="has no keys"):
        open_ring(folder, OLD)
    with pytest.raises(Corrupted, match="has no keys"):
        rotate(folder, OLD, NEW)


def test_who_changes_the_key_too_late_is_told(tmp_path: Path) -> None:
    """Two concurrent rotations in both orders of their writes, and one that was suspended meanwhile."""

    class Slow(QuickFiles):
        def write_if_absent(self, name: str, data: bytes) -> bool:
            meanwhile()
            return super().write_if_absent(name, data)

    def once() -> None:
        rotate(QuickFiles(root), OLD, NEW)

    def twice() -> None:
        rotate(QuickFiles(root), OLD, OTHER)
        rotate(QuickFiles(root), OTHER, NEW)

    for meanwhile in (once, twice):
        root = tmp_path / meanwhile.__name__
        ring = create(QuickFiles(root), OLD)
        with pytest.raises(Conflict, match="another process changed the key of the repository"):
            rotate(Slow(root), OLD, UserKey(os.urandom(32)))
        assert open_ring(QuickFiles(root), NEW).master == ring.master


def test_a_bucket_that_keeps_what_it_has_does_not_stop_the_change(tmp_path: Path) -> None:
    class Immutable(QuickFiles):
        def remove(self, name: str) -> None:
            if name.endswith(".json"):
                raise Unavailable("it is kept until 2036")
            super().remove(name)

    files = Immutable(tmp_path)
    create(files, OLD)
    assert rotate(files, OLD, NEW).left == ("keys/1.json",)
    assert open_ring(files, NEW).generation == 2
    assert not _opens(files, OLD)


# --- where the user's key comes from -----------------------------------------------------------------------


KEY = bytes(range(200, 232))
FORMS = {
    "base64": base64.b64encode(KEY),
    "base64 and a line end": base64.b64encode(KEY) + b"\n",
    "hex": KEY.hex().encode(),
    "upper case": b"  " + KEY.hex().upper().encode() + b"\r\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_key_comes_from_a_file_a_variable_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: bytes
) -> None:
    file = tmp_path / "the key's file"
    file.write_bytes(form)
    monkeypatch.setenv("THE_KEY", form.decode())
    show = f"{sys.executable} -c 'import sys; sys.stdout.write(open(sys.argv[1]).read())' \"{file}\""
    for settings in (
        Settings(repository_key_file=str(file)),
        Settings(repository_key_env="THE_KEY"),
        Settings(repository_key_command=show),
    ):
        assert user_key(settings) == UserKey(KEY)


SECRET = "correct horse battery staple"
BAD = {
    "a passphrase": SECRET,
    "too short": base64.b64encode(KEY[:31]).decode() + SECRET,
    "too long": base64.b64encode(KEY + KEY).decode(),
    "short hex": KEY[:16].hex(),
    "nothing": " ",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_key_is_refused_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "key"
    file.write_text(text)
    monkeypatch.setenv("THE_KEY", text)
    for settings in (
        Settings(repository_key_file=str(file)),
        Settings(repository_key_env="THE_KEY"),
        Settings(repository_key_command=f"echo '{text}'"),
    ):
        with pytest.raises(InvalidArgument, match="does not give 32 bytes in base64 or hex") as caught:
            user_key(settings)
        assert "openssl rand -base64 32" in caught.value.hint
        assert "passphrase" in caught.value.hint
        if text.strip():
            assert text not in str(caught.value) + repr(caught.value) + repr(settings) + caplog.text


REFUSED = {
    "no place": (Settings(), PreconditionFailed, "no key is configured"),
    "two places": (
        Settings(repository_key_env="A", repository_key_file="b"),
        PreconditionFailed,
        "more than one key is configured",
    ),
    "no such file": (
        Settings(repository_key_file="/no/such"),
        PreconditionFailed,
        "from the file /no/such: No such",
    ),
    "no such variable": (
        Settings(repository_key_env="NO_SUCH"),
        PreconditionFailed,
        "NO_SUCH, .* is not set",
    ),
    "no such command": (
        Settings(repository_key_command="/no/such -x"),
        PreconditionFailed,
        "cannot be run: No such",
    ),
    "no command": (
        Settings(repository_key_command="'"),
        PreconditionFailed,
        "cannot be run: it is not a command",
    ),
    "a command that fails": (
        Settings(repository_key_command=f"sh -c 'echo {SECRET}; echo {SECRET} >&2; exit 3'"),
        Unavailable,
        "failed with exit code 3",
    ),
}


@pytest.mark.parametrize(("settings", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_a_place_that_gives_no_key_is_named(
    settings: Settings, kind: type[StrandlineError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        user_key(settings)
    assert caught.value.hint != kind.default_hint
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_key_is_not_shown() -> None:
    shown = repr(UserKey(KEY)) + repr(Ring(1, KEY)) + repr(Settings(repository_key_command=f"echo {SECRET}"))
    assert not [text for text in (repr(KEY), KEY.hex(), SECRET) if text in shown]
    with pytest.raises(InvalidArgument, match="a repository's key has 32 bytes, and this one has 31"):
        UserKey(KEY[:31])


@pytest.mark.parametrize("value", [5, "", " ", b"key", True])
def test_a_setting_that_is_no_place_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="the setting repository_key_file is not a text"):
        Settings(repository_key_file=value)  # type: ignore[arg-type]
