"""Exchange two files or folders atomically, so that neither name is ever missing."""

from __future__ import annotations

import ctypes
import errno
import os

__all__ = ["exchange"]

_HERE = -100  # AT_FDCWD: names are relative to the current folder.
_SWAP = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
_CANNOT = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM))


def exchange(path: str, name: str) -> bool:
    """Exchange two files or folders; return False and change nothing if the system does not support it."""
    system = ctypes.CDLL(None, use_errno=True)
    one, other = os.fsencode(path), os.fsencode(name)
    if hasattr(system, "renameat2"):
        failed = system.renameat2(_HERE, one, _HERE, other, _SWAP)
    elif hasattr(system, "renamex_np"):
        failed = system.renamex_np(one, other, _SWAP)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), path)
