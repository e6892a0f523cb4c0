"""Expected properties of the repository at a location, known before its content is trusted.

A collection records whether its repository is encrypted. The first upload, or ATTACH, also records the
repository's id. If the repository is replaced by another one, each attempt to open it is refused.
"""

from __future__ import annotations

from strandline.backups.collection import CollectionRecord
from strandline.backups.record import backup_heads, collections
from strandline.catalog.connection import Catalog
from strandline.storage.repository_marker import Expected


def find_known_repository(catalog: Catalog, root: str) -> Expected | None:
    """Return the recorded encryption and id of the repository at ``root``.

    None: no collection stores its backups there. The id is None while the repository holds no backup: an
    empty repository may be deleted and created again with a new id.
    """
    with catalog.read() as conn:
        kept = [(path, path.record(CollectionRecord)) for path in collections(conn)]
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
