"""``show-backup``: list the backups of a collection, or show one with its chain, size and verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.completion import COLLECTIONS
from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import moment, size
from strandline.errors import PathNotFound
from strandline.names import count, did_you_mean

if TYPE_CHECKING:
    from strandline.api import Database


def register(app: typer.Typer) -> None:
    command(app, "show-backup", BACK_UP_AND_RESTORE, example="strandline show-backup nightly last")(
        show_backup
    )


def show_backup(
    cli: Cli,
    collection: CollectionArgument,
    backup: Annotated[
        str | None, typer.Argument(help="A backup; 'last' is the newest (default: list all).")
    ] = None,
) -> None:
    """List the backups of a collection, or show one of them.

    For one backup: its root, parent and children, size of the chain, percent saved, digests and versions."""
    with cli.database() as db:
        found = backups_of(db, collection)
    if backup is None:
        cli.output.result(found, lambda: _tell_all(cli, found))
        return
    names = [b["name"] for b in found]
    if backup == "last" and names:
        backup = names[-1]
    if backup not in names:
        hint = did_you_mean(backup, names) or f"List them with: strandline show-backup {collection}"
        raise PathNotFound(f"the collection {collection} has no backup {backup}", hint)
    chosen = found[names.index(backup)]
    cli.output.result(chosen, lambda: _tell_one(cli, chosen))


def backups_of(db: Database, collection: str) -> list[dict[str, Any]]:
    """Return all finished backups of a collection, oldest first, with their chains and verification."""
    from strandline.backups.collection import CLUSTER
    from strandline.backups.health import find_sent_chains, is_restorable
    from strandline.backups.record import require_collection

    folder = f"{COLLECTIONS}/{collection}"
    try:
        entries = [entry for entry in db.ls(folder) if entry.type == "backup"]
    except PathNotFound:
        with db._guard(), db._runtime.catalog.read() as conn:
            require_collection(conn, collection)  # Its error says what to do.
        raise
    records = {}
    for entry in entries:
        described = db.describe(entry.path)
        if described.get("tables") is not None and described["state"] != "creating":
            records[entry.name] = described
    verified = db.verified(collection) if records else {}
    storage = db.describe(folder)["settings"]["STORAGE"]
    sent = find_sent_chains(
        ((name, described["parent"], described.get("stored")) for name, described in records.items()), storage
    )
    here = {
        name
        for name in records
        if is_restorable((r["time"], r["level"], r["restorable"]) for r in verified.get(name, ()))
    }
    return [
        {
            **_summarize(name, records),
            "restorable_elsewhere": name in here & sent,
            "restorable_here": name in here,
            "stored": described.get("stored"),
            "waiting": storage != CLUSTER and described.get("stored") != storage,
            "verified": _verification_results(verified.get(name, ())),
        }
        for name, described in records.items()
    ]


def _verification_results(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest verification result of each level."""
    return [
        {
            "level": report["level"],
            "time": moment(report["time"]),
            "restorable": report["restorable"],
            "because": report["because"],
            "problems": report["problems"],
            "verified_at": moment(report["verified_at"]),
        }
        for report in reports
    ]


def _summarize(name: str, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    backup = records[name]
    chain = [name]
    while (parent := records[chain[-1]]["parent"]) in records:
        chain.append(parent)
    chain.reverse()
    parts = list(_parts(backup["tables"]))
    own, root = _bytes(backup), _bytes(records[chain[0]])
    return {
        "name": name,
        "kind": backup["kind"],
        "root": chain[0],
        "parent": backup["parent"],
        "children": [other for other, record in records.items() if record["parent"] == name],
        "chain": chain,
        "chain_bytes": sum(_bytes(records[link]) for link in chain),
        "bytes": own,
        "percent_saved": round(100 * (1 - own / root), 1) if root else 0.0,
        "after_step": backup["after_step"],
        "step": backup["step"],
        "time": moment(backup["time"]),
        "state": backup["state"],
        "pinned": backup.get("pinned", False),
        "merged": backup.get("merged", []),
        "rows": sum(part["rows"] for part in parts if part["type"] == "table"),
        "tombstones": sum(part["tombstones"] for part in parts if part["type"] == "table"),
        "parts": parts,
        "changefeeds": [
            {**feed, "path": f"{path}/{feed['name']}"}
            for path, table in backup["tables"].items()
            for feed in table.get("changefeeds", ())
        ],
    }


def _parts(tables: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, table in tables.items():
        yield {
            "path": path,
            "type": "table",
            "holds": "data",
            **_slice(table["slice"]),
            "version": table["slice"]["version"],
        }
        for index in table["indexes"]:
            slice_ = _slice(index["slice"])
            place = f"{path}/{index['definition']['name']}"
            yield {
                "path": place,
                "type": "index",
                "holds": index["holds"],
                **slice_,
                "version": index["version"],
            }


def _slice(held: dict[str, Any] | None) -> dict[str, Any]:
    if held is None:
        return {"rows": 0, "tombstones": 0, "bytes": 0, "rows_after": None, "digest": None}
    rows, digest = held["after"]
    return {
        "rows": held["rows"],
        "tombstones": held["tombstones"],
        "bytes": held["bytes"],
        "rows_after": rows,
        "digest": digest,
    }


def _bytes(record: dict[str, Any]) -> int:
    return sum(part["bytes"] for part in _parts(record["tables"]))


def _tell_all(cli: Cli, found: list[dict[str, Any]]) -> None:
    columns = ("name", "restore", "step", "rows", "deleted", "size", "saved", "chain")
    rows = [
        (
            b["name"],
            _restorable(b),
            b["step"],
            b["rows"],
            b["tombstones"],
            size(b["bytes"]),
            f"{max(0.0, b['percent_saved']):.1f} %",
            count(len(b["chain"]), "backup")
            + (", pinned" if b["pinned"] else "")
            + (", not uploaded yet" if b["waiting"] else ""),
        )
        for b in found
    ]
    cli.output.table(columns, rows)


def _restorable(b: dict[str, Any]) -> str:
    """Return where a backup can be restored: here and elsewhere, here only, or nowhere."""
    if b["restorable_elsewhere"]:
        return "here and elsewhere"
    return "here only" if b["restorable_here"] else "not possible"


def _size(b: dict[str, Any]) -> str:
    if b["parent"] is None:
        return size(b["bytes"])
    saved = b["percent_saved"]
    against = f"{saved:.1f} % smaller than" if saved > 0 else "not smaller than"
    return f"{size(b['bytes'])}, {against} the full backup"


def _format_report(report: dict[str, Any]) -> str:
    if not report["restorable"]:
        found = f"cannot be restored: {report['because']}"
    elif report["verified_at"]:
        found = f"can be restored, fully verified since {report['verified_at']}"
    else:
        # Only a sample was checked, or only the last backup of the chain was restored.
        left = (
            "it was not restored itself" if report["level"] == "restore" else "not all objects were checked"
        )
        found = f"no problem is known, but {left}"
    return f"{report['level']}, {report['time']}: {found}"


def _tell_one(cli: Cli, b: dict[str, Any]) -> None:
    cli.output.fields(
        (
            ("backup", b["name"]),
            ("taken", b["time"]),
            ("restore", _restorable(b)),
            ("root", b["root"]),
            ("parent", b["parent"] or "none"),
            ("children", ", ".join(b["children"]) or "none"),
            ("chain", f"{count(len(b['chain']), 'backup')}, {size(b['chain_bytes'])}"),
            ("size", _size(b)),
            ("steps", f"({b['after_step']}, {b['step']}]"),
            ("where", f"{b['stored'] or 'the warehouse'}{', not uploaded yet' if b['waiting'] else ''}"),
            *(("verified", _format_report(report)) for report in b["verified"]),
            *([("pinned", "yes")] if b["pinned"] else []),
            *([("merged", ", ".join(b["merged"]))] if b["merged"] else []),
        )
    )
    cli.output.line()
    columns = ("path", "holds", "rows", "deleted", "size", "version", "rows then", "digest")
    rows = [
        (
            p["path"],
            p["holds"],
            p["rows"],
            p["tombstones"],
            size(p["bytes"]),
            p["version"],
            p["rows_after"],
            p["digest"],
        )
        for p in b["parts"]
    ]
    cli.output.table(columns, rows, count=False)
    if b["changefeeds"]:
        cli.output.line()
        feeds = [(feed["path"], feed["mode"], feed["format"]) for feed in b["changefeeds"]]
        cli.output.table(("changefeed", "mode", "format"), feeds, count=False)
