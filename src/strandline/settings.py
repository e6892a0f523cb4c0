"""The few numbers that can be set, with what they mean. ``connect(..., settings=Settings(...))`` takes
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from strandline.errors import InvalidArgument

_LEAST: dict[str, float] = {
    "bulk_rows": -1,
    "scan_rows": -1,
    "merge_segments": 2,
    "workers": 1,
    "shard_bytes": 1,
    "parts_together": 1,
    "copies": 1,
    "commit_tries": 1,
    "session_seconds": 0.01,
    "storage_timeout_seconds": 0.01,
}
"""The least value of a setting where it is not 0."""
SHARED: Mapping[str, float] = {
    "history_seconds": 24 * 3600.0,
    "version_history_seconds": 30 * 24 * 3600.0,
    "operation_history_seconds": 30 * 24 * 3600.0,
    "grace_seconds": 60.0,
    "bin_seconds": 24 * 3600.0,
    "repository_grace_seconds": 24 * 3600.0,
}
"""Settings that all processes of a warehouse rely on, with their defaults. They are stored in the catalog
(``catalog/warehouse_settings.py``)."""
_TEXTS = {"spark": "spark.some.option", "storage_options": "region"}
"""Settings that are texts by name, with an example of a name."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the copies of one operation may take: so many bytes in a second altogether (0: no limit), and so
    many files at a time."""

    bytes_per_second: float = 0.0
    copies: int = 8

    def seconds_for(self, size: int) -> float:
        """Return how long so many bytes take because of the rate alone."""
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Defaults suit a laptop and a cluster alike; change one only for a reason you can measure."""

    bulk_rows: int = 100_000
    """A statement that changes more rows than this is carried out on Spark; up to it, in the process with
    Arrow."""
    bulk_bytes: int = 48 * 1024 * 1024
    """... and so is work on rows that take more memory than this, however few they are. More bytes of files
    than this are copied, checked and described by executors; fewer in the process, and up to eight times as
    many if a restore, or the compaction of a chain of backups, has no more to do."""
    scan_rows: int = 200_000
    """A statement that must look at more rows than this is evaluated on Spark. Rows of one table that leave
    as Arrow data, or one by one, pass through the process however many they are; with a condition it looks
    through forty times as many."""
    inline_rows: int = 2_000
    """A commit of at most this many rows to a table is kept in the catalog until it is merged into a file."""
    inline_bytes: int = 262_144
    """... unless its rows take more bytes than this."""
    merge_segments: int = 128
    """So many small log segments of a table are merged into one by the writer that adds the last of them."""
    compact_log_rows: float = 0.10
    """``maintain()`` compacts a table when its log holds more rows than this part of its base ..."""
    compact_log_segments: int = 64
    """... or more segments than this."""
    target_file_bytes: int = 128 * 1024 * 1024
    """About how large a file of a base is made; more rows than fit go into several files."""
    history_seconds: float | None = None
    """Steps younger than this stay readable by ``df(at=step)``; older ones only while something pins them.
    Default: a day. Stored in the warehouse: None takes the stored value, a larger value raises it for all
    processes, a smaller value has no effect."""
    version_history_seconds: float | None = None
    """What happened to the versions of paths, as SHOW VERSIONS tells it, is kept for this long. Default: 30
    days. Stored in the warehouse."""
    operation_history_seconds: float | None = None
    """Operations that have ended are kept for this long, with their parts; then ``maintain()`` deletes them.
    Default: 30 days. Stored in the warehouse."""
    bin_seconds: float | None = None
    """A dropped backup collection can be brought back by UNDROP for this long. Default: a day; 0: it is
    deleted at once. Stored in the warehouse."""
    session_seconds: float = 60.0
    """A process that has not renewed its session for this long counts as dead."""
    grace_seconds: float | None = None
    """What is no longer part of a table stays for this long, for those who read it already. Make it at least
    twice as long as the clocks of the machines may differ. Default: a minute. Stored in the warehouse."""
    read_seconds: float = 3600.0
    """A data frame may use the files it was planned with for this long."""
    shard_bytes: int = 256 * 1024 * 1024
    """About how much of a table or an index is one shard, which is backed up, restored and verified by
    itself; a table is cut into a thousand of them at most, beside its PARTITION_AT_KEYS."""
    shard_seconds: float = 3600.0
    """A shard that has not answered after this long is interrupted and tried again, and so is any other part
    of an operation that works on files."""
    part_retries: int = 4
    """How often a part of an operation that works on files is tried again after a failure that may pass, or
    because it did not answer in time ..."""
    part_retry_seconds: float = 0.1
    """... and the pause before the first of these tries; each later one is four times as long."""
    carry_on_seconds: float = 10.0
    """How often a process that has changed something looks for operations whose process died, to carry them
    on in the background; 0: never."""
    workers: int = 4
    """How many parts of an operation run at the same time."""
    parts_together: int = 500
    """How many parts of an operation go on in one transaction, of those that have nothing to do on files."""
    commit_tries: int = 40
    """How often a statement starts again because others were faster, before it ends with CONFLICT."""
    catalog_wait_seconds: float = 120.0
    """How long to wait for the catalog while other writers hold it."""
    schema_retries: int = 3
    """How often a query is planned again because versions of descriptions did not fit."""
    schema_retry_seconds: float = 0.1
    """How long to wait before each of these."""
    spark: dict[str, str] = field(default_factory=dict, repr=False)
    """Extra Spark configuration for a session that Strandline starts."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """How to reach an object store, where the environment does not say it: ``endpoint``, ``region``,
    ``access_key_id``, ``secret_access_key`` and what else ``obstore`` knows. They are kept nowhere."""
    storage_retries: int = 10
    """How often a request to an object store is repeated that failed in a way that may pass ..."""
    storage_retry_seconds: float = 180.0
    """... unless so much time has passed since the first one."""
    storage_timeout_seconds: float = 60.0
    """How long a request to an object store may take."""

    scratch_tables: str | None = None
    """Tables that need no backup: patterns of their paths with commas between them, such as ``/scratch/*,
    /tmp_*``. ``status`` warns of all other tables that no collection backs up."""

    copy_bytes_per_second: float = 0.0
    """How many bytes in a second an operation sends to a repository, or copies from one or within the
    warehouse; 0: as many as it can. A statement may say it for itself: MAX_BYTES_PER_SECOND."""
    copies: int = 8
    """How many files it copies at the same time, also on executors: a large cluster can do more. A statement
    may say it for itself: COPIES."""
    repository_grace_seconds: float | None = None
    """What no backup in a repository needs any more stays there for this long. Default: a day. Stored in the
    warehouse."""
    repository_key_file: str | None = None
    """Where the key of an encrypted backup repository is: a file with 32 bytes in base64 or hex ..."""
    repository_key_env: str | None = None
    """... or the name of a variable of the environment that holds them ..."""
    repository_key_command: str | None = field(default=None, repr=False)
    """... or a command that prints them, which is run without a shell. The key itself is kept nowhere."""

    @property
    def has_repository_key(self) -> bool:
        """Whether a key for encrypted repositories is configured."""
        return bool(self.repository_key_file or self.repository_key_env or self.repository_key_command)

    @property
    def shared(self) -> dict[str, float]:
        """Those of ``SHARED`` that this process asks for itself."""
        given = {name: getattr(self, name) for name in SHARED}
        return {name: float(value) for name, value in given.items() if value is not None}

    @property
    def pauses(self) -> tuple[float, ...]:
        """Those before a part is tried for the second time, the third time and so on."""
        return tuple(self.part_retry_seconds * 4**n for n in range(self.part_retries))

    @property
    def limits(self) -> Limits:
        """Those of an operation whose statement says nothing else."""
        return Limits(bytes_per_second=float(self.copy_bytes_per_second), copies=self.copies)

    def __post_init__(self) -> None:
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if name in _TEXTS:
                if not isinstance(value, dict) or not all(
                    isinstance(text, str) for pair in value.items() for text in pair
                ):
                    raise InvalidArgument(
                        f"the setting {name} is not a dict of texts", f"Pass {{'{_TEXTS[name]}': 'value'}}."
                    )
                continue
            if setting.type == "str | None":
                if value is not None and (not isinstance(value, str) or not value.strip()):
                    raise InvalidArgument(
                        f"the setting {name} is not a text", "Leave it out, or give a text."
                    )
                continue
            if name in SHARED and value is None:
                continue
            check_number(name, value, whole=setting.type == "int")


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuse a value of a setting that is not a number, or is too small."""
    least, what = _LEAST.get(name, 0), "a whole number" if whole else "a number"
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:
        raise InvalidArgument(
            f"the setting {name} cannot be {value!r}", f"Give {what} that is at least {least:g}."
        )
