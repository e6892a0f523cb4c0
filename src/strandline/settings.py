"""The settings of a process, and those of a warehouse with their defaults.

Pass them as ``connect(..., settings=Settings(...))``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from strandline.errors import InvalidArgument
from strandline.records import later

_LEAST: dict[str, float] = {
    "bulk_rows": -1,
    "scan_rows": -1,
    "merge_segments": 2,
    "workers": 1,
    "shard_bytes": 1,
    "parts_together": 1,
    "commit_tries": 1,
    "session_seconds": 0.01,
    "process_seconds": 0.01,
    "storage_timeout_seconds": 0.01,
}
"""Minimum values of settings where the minimum is not 0."""
SHARED: Mapping[str, float] = {
    "history_seconds": 24 * 3600.0,
    "version_history_seconds": 30 * 24 * 3600.0,
    "operation_history_seconds": 30 * 24 * 3600.0,
    "grace_seconds": 60.0,
    "bin_seconds": 24 * 3600.0,
    "repository_grace_seconds": 24 * 3600.0,
    "audit_seconds": 90 * 24 * 3600.0,
}
"""Settings that all processes of a warehouse rely on, with their defaults.

They are stored in the catalog (``catalog/warehouse_settings.py``).
"""
ENGINES = ("auto", "process", "spark")
"""Values of the setting ``engine``."""
_TEXTS = {"spark": "spark.some.option", "storage_options": "region"}
"""Settings that are dictionaries of texts, each with an example of a key."""


COPIES = 8
"""Number of files that a process copies at the same time if the setting ``copies`` is 0."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits for the copies of one operation.

    Attributes:
        bytes_per_second: Maximum total throughput. 0: no limit.
        copies: Maximum number of files at a time.
        spread: True: ``copies`` limits only this process, and the cluster decides how many tasks copy on
            executors. If a throughput is set, ``copies`` limits the executors as well, because they must
            share it.
    """

    bytes_per_second: float = 0.0
    copies: int = COPIES
    spread: bool = later(False)

    def seconds_for(self, size: int) -> float:
        """Return the minimum time for copying ``size`` bytes at the limited throughput."""
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a process. The defaults suit a laptop and a cluster; measure before you change one."""

    bulk_rows: int = 100_000
    """Maximum number of rows that a statement changes in the process, with Arrow; above it, Spark is used."""
    bulk_bytes: int = 48 * 1024 * 1024
    """Maximum memory for the rows that a statement changes in the process, in bytes; above it, Spark is used.

    It also limits the size of the files that the process copies, checks and describes; above it, Spark's
    executors do this. For some work the limit is a multiple of this setting: for checks, and for restores and
    compactions of backups that would need Spark only for these files.
    """
    scan_rows: int = 200_000
    """Maximum number of rows that a statement reads in the process; above it, Spark is used.

    Rows of one table that are returned as Arrow data, or one by one, have no limit: the process streams them.
    If the query has a condition, the process searches up to a multiple of this number of rows.
    """
    engine: str = "auto"
    """Where queries run: ``auto``, ``process`` or ``spark``.

    - ``auto``: in the process, if it gives the same result as Spark; otherwise on Spark.
    - ``process``: in the process. A query that needs Spark is refused.
    - ``spark``: on Spark.
    """
    process_seconds: float = 60.0
    """Maximum time for which DuckDB works on a query in the process; then the query runs on Spark."""
    inline_rows: int = 2_000
    """Maximum number of rows per commit and table that the catalog stores; a merge moves them to files."""
    inline_bytes: int = 262_144
    """Maximum size in bytes of the rows per commit and table that the catalog stores."""
    merge_segments: int = 128
    """When a table has this number of small commits, the process that adds the last one merges them."""
    compact_log_rows: float = 0.10
    """A table is compacted when its log has more rows than this fraction of its base."""
    compact_log_segments: int = 64
    """``maintain()`` compacts a table when its log has more segments than this."""
    compaction_share: float = 0.25
    """Maximum share of the time that a process spends on merging and compacting tables by itself.

    A background thread does this after commits, without Spark, and never delays a commit. 0: only
    ``maintain()`` does it. 1 or more: no limit, and each commit waits for the merge and the compaction that
    it makes due.
    """
    target_file_bytes: int = 128 * 1024 * 1024
    """Approximate size of the files that bulk writes and compactions make; larger files are split.

    Compaction joins files smaller than a quarter of this size, and splits files larger than four times this
    size.
    """
    history_seconds: float | None = None
    """Time for which past steps stay readable by ``df(at=step)``; pins keep older ones.

    Default: a day. Stored in the warehouse. None: the stored value applies. A larger value raises the stored
    value for all processes; a smaller value has no effect.
    """
    version_history_seconds: float | None = None
    """Time for which the history of versions is kept for SHOW VERSIONS.

    Default: 30 days. Stored in the warehouse.
    """
    operation_history_seconds: float | None = None
    """Time for which ended operations are kept with their parts; then ``maintain()`` deletes them.

    Default: 30 days. Stored in the warehouse.
    """
    bin_seconds: float | None = None
    """Time for which UNDROP can bring back a dropped table or backup collection; 0: delete it at once.

    Default: a day. Stored in the warehouse.
    """
    session_seconds: float = 60.0
    """A process that has not renewed its session for this time counts as dead."""
    grace_seconds: float | None = None
    """Time for which files that leave a table are kept for its present readers.

    Make it at least twice as long as the clocks of the machines may differ. Default: a minute. Stored in the
    warehouse.
    """
    read_seconds: float = 3600.0
    """Time for which a DataFrame may use the files that it was planned with."""
    shard_bytes: int = 256 * 1024 * 1024
    """Approximate size of a shard of a table or an index.

    Shards are backed up, restored and verified one by one. The number of shards per table is limited, so the
    shards of a very large table are larger. PARTITION_AT_KEYS adds further shards.
    """
    shard_seconds: float = 3600.0
    """Time limit for one shard, and for any other part of an operation that works on files.

    After it, the part is interrupted and retried.
    """
    part_retries: int = 4
    """Maximum number of retries of a part that works on files, after a temporary failure or a timeout."""
    part_retry_seconds: float = 0.1
    """Pause before the first retry of a part; later pauses grow exponentially."""
    carry_on_seconds: float = 10.0
    """Interval at which a process that has written looks for operations of dead processes; 0: never.

    The process continues these operations in the background.
    """
    workers: int = 4
    """Maximum number of parts of an operation that run at the same time."""
    parts_together: int = 500
    """Maximum number of parts without work on files that advance in one transaction."""
    commit_tries: int = 40
    """Maximum number of attempts of a statement that conflicts with others; then it ends with CONFLICT."""
    catalog_wait_seconds: float = 120.0
    """Maximum time to wait for the catalog while other writers lock it."""
    schema_retries: int = 3
    """Maximum number of times that a query is planned again because a table and its index do not match."""
    schema_retry_seconds: float = 0.1
    """Pause before a query is planned again."""
    spark: dict[str, str] = field(default_factory=dict, repr=False)
    """Extra Spark configuration for a session that Strandline starts."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """Options for access to an object store. They take precedence over environment variables.

    For example ``endpoint``, ``region``, ``access_key_id`` and ``secret_access_key``; all options of
    ``obstore`` are accepted. They are not stored anywhere.
    """
    storage_retries: int = 10
    """Maximum number of retries of a request to an object store after a temporary failure."""
    storage_retry_seconds: float = 180.0
    """Maximum time for the retries of a request to an object store, from the first attempt on."""
    storage_timeout_seconds: float = 60.0
    """Time limit for one request to an object store."""

    channels: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    """Channels on which alarms are sent, by name: webhooks, Slack-compatible receivers and mail.

    Each has the settings of its type, such as ``{"ops": {"type": "slack", "url_env": "OPS_WEBHOOK"}}``.
    """
    alarm_repeat_seconds: float = 4 * 3600.0
    """Interval at which an alarm is sent again until it is acknowledged or its condition ends; 0: never."""

    scratch_tables: str | None = None
    """Tables that need no backup: comma-separated patterns of paths, such as ``/scratch/*, /tmp_*``.

    ``status`` warns of all other tables that are in no backup collection.
    """

    copy_bytes_per_second: float = 0.0
    """Maximum throughput of an operation that uploads, downloads or copies files; 0: unlimited.

    In bytes per second, for a repository or within the warehouse. A statement can set it by
    MAX_BYTES_PER_SECOND.
    """
    copies: int = 0
    """Maximum number of files that an operation copies at the same time, also on executors.

    0: the default. A process copies eight files at a time. Executors copy two files for each task that the
    cluster runs at once, or eight files altogether if a maximum throughput is set. A statement can set it by
    COPIES.
    """
    repository_grace_seconds: float | None = None
    """Time for which a repository keeps files that no backup needs any more.

    Default: a day. Stored in the warehouse.
    """
    audit_seconds: float | None = None
    """Time for which entries of the audit log are kept; then ``maintain()`` deletes them.

    Default: 90 days. Stored in the warehouse.
    """
    repository_key_file: str | None = None
    """File with the key of an encrypted backup repository, in base64 or hex."""
    repository_key_env: str | None = None
    """Name of an environment variable with the key of an encrypted backup repository."""
    repository_key_command: str | None = field(default=None, repr=False)
    """Command that prints the key of an encrypted backup repository. It is run without a shell.

    The key itself is not stored anywhere.
    """

    @property
    def has_repository_key(self) -> bool:
        """Whether a key for encrypted repositories is configured."""
        return bool(self.repository_key_file or self.repository_key_env or self.repository_key_command)

    @property
    def shared(self) -> dict[str, float]:
        """The values of ``SHARED`` settings that this process requests."""
        given = {name: getattr(self, name) for name in SHARED}
        return {name: float(value) for name, value in given.items() if value is not None}

    @property
    def pauses(self) -> tuple[float, ...]:
        """The pauses before the first, second and further retries of a part."""
        return tuple(self.part_retry_seconds * 4**n for n in range(self.part_retries))

    @property
    def limits(self) -> Limits:
        """The limits of an operation whose statement does not set its own."""
        return Limits(
            bytes_per_second=float(self.copy_bytes_per_second),
            copies=self.copies or COPIES,
            spread=not self.copies,
        )

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
            if name == "channels":
                _check_channels(value)
                continue
            if name == "engine":
                if value not in ENGINES:
                    raise InvalidArgument(
                        f"the setting engine cannot be {value!r}", f"Give one of {', '.join(ENGINES)}."
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


def _check_channels(value: object) -> None:
    groups = value.values() if isinstance(value, dict) else (None,)
    if not all(
        isinstance(group, dict) and all(isinstance(text, str) for pair in group.items() for text in pair)
        for group in groups
    ):
        raise InvalidArgument(
            "the setting channels is not a dict of dicts of texts",
            "Pass {'ops': {'type': 'webhook', 'url_env': 'OPS_WEBHOOK'}}.",
        )


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuse a value that is not a number, or is below the setting's minimum."""
    least, what = _LEAST.get(name, 0), "a whole number" if whole else "a number"
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:
        raise InvalidArgument(
            f"the setting {name} cannot be {value!r}", f"Give {what} that is at least {least:g}."
        )
