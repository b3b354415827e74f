"""Writes the reference pages that have changed."""

from __future__ import annotations

from documentation.reference.pages import FOLDER, pages

FOLDER.mkdir(exist_ok=True)
made = pages()
for name, text in made.items():
    path = FOLDER / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"wrote docs/reference/{name}")
for path in FOLDER.glob("*.md"):
    if path.name not in made:
        path.unlink()
        print(f"removed docs/reference/{path.name}")
