"""What kind of file system holds a database file, and whether the file at a path is still the one that was opened."""

from __future__ import annotations

import os
from pathlib import Path

# SQLite's WAL needs shared memory between all its users, which these do not give across machines.
NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
MOUNTS = Path("/proc/self/mountinfo")


def kind(path: str, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that holds ``path``; None where the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best, found = "", None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode().decode("unicode_escape", errors="replace")  # Spaces are written as \\040.
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, right.split(" ")[0]
    return found


def identity(path: str) -> tuple[int, int] | None:
    """What names the file at ``path`` for good: device and inode; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
