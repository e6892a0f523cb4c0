"""``README.txt`` of a repository: what the folder is and how to restore from it.

The text is for people who find the folder and know nothing else. No program reads it: anyone who can write to
the repository may have changed it.
"""

from __future__ import annotations

from strandline.storage.files import Files
from strandline.storage.repository_marker import Marker

README = "README.txt"

_TEXT = """\
This folder is a backup repository of Strandline (keyed tables on Spark). It holds the backups of one backup
collection, and everything that is needed to restore them{but}.

Do not edit, rename or remove anything in it, and do not add files: manual changes can make backups
unreadable. It may be copied as a whole to another place (cp -r, aws s3 sync); restoring from the copy
works in the same way.

To restore, on any machine that reaches this folder or bucket:

    pip install strandline        (for a bucket: 'strandline[s3]'{extra})
{key}    strandline -w NEW_FOLDER init
    strandline -w NEW_FOLDER attach PLACE {options}
    strandline -w NEW_FOLDER show-backup COLLECTION
    strandline -w NEW_FOLDER restore COLLECTION

NEW_FOLDER is a folder for a new warehouse. PLACE is the full path of this folder, or its URL. COLLECTION is
the name that attach prints. If the warehouse that took these backups is lost, and the new one should
continue them, add --take-over to attach.

The id of this repository is {id}. Compare it with the id that you wrote down when the
repository was created ("strandline describe .backups/collections/COLLECTION" shows it): anyone who can write
here could have replaced this text and everything else.
"""
_KEY = """\
    export STRANDLINE_REPOSITORY_KEY_FILE=FILE        (the file with the key; _ENV and _COMMAND work as well)
"""


def write_readme(files: Files, marker: Marker) -> None:
    """Write the text if the file is missing.

    Args:
        files: The repository's files without encryption.
    """
    if files.exists(README):
        return
    text = _TEXT.format(
        but=",\nexcept the key: its content is encrypted" if marker.encrypted else "",
        extra=", and 'strandline[encryption]'" if marker.encrypted else "",
        key=_KEY if marker.encrypted else "",
        options=f"--repository {marker.id} --{'' if marker.encrypted else 'no-'}encryption",
        id=marker.id,
    )
    files.write_if_absent(README, text.encode())
