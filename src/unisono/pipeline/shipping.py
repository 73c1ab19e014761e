"""Our package as one file, for executors on other machines.

It is pure Python, so that a zip on their path is enough; what it needs (pyarrow, numpy, numba,
msgspec, ...) must be installed there, or come along in an archive (docs/cluster.md).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

_SUFFIXES = (".py", ".toml", ".properties", ".typed")


def package_zip() -> Path:
    """The zip, in the folder for temporary files; the same content is made once."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"unisono-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / "unisono.zip"
    if not target.exists():
        fresh = folder / f".{os.getpid()}.zip"
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in files:
                packed.write(path, Path("unisono") / path.relative_to(root))
        fresh.replace(target)
    return target
