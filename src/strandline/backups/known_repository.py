"""What the catalog knows of the repository at a place, before anything in that place is believed.

A collection says whether its repository is encrypted, and remembers the id of the repository from the first
backup that was sent there, or from when it was attached. So a repository that somebody has put in the place
of another one is refused wherever it is opened.
"""

from __future__ import annotations

from strandline.backups.collection import Collection
from strandline.backups.record import backup_heads, collections
from strandline.catalog.connection import Catalog
from strandline.storage.marker import Expected


def known_repository(catalog: Catalog, root: str) -> Expected | None:
    """Return what the collections that keep their backups at ``root`` say of the repository there; None if
    there is no such collection. The id does not count before there are backups: a repository without any may
    be removed and created again."""
    with catalog.read() as conn:
        kept = [(path, path.record(Collection)) for path in collections(conn)]
        here = [(path, collection) for path, collection in kept if collection.settings.storage == root]
        if not here:
            return None
        ids = [
            collection.repository
            for path, collection in here
            if collection.repository and any(head.stored == root for _, head in backup_heads(conn, path))
        ]
    encrypted = any(collection.settings.encryption for _, collection in here)
    return Expected(encrypted, ids[0] if ids else None)
