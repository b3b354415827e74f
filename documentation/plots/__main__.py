"""Draws every picture that has changed."""

from __future__ import annotations

import sys
from pathlib import Path

from documentation.plots.pictures import FOLDER, PICTURES, draw

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
folder.mkdir(parents=True, exist_ok=True)
for name in PICTURES:
    path = folder / name
    data = draw(name)
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)
        print(f"drew {path} ({len(data) / 1000:.1f} kB)")
