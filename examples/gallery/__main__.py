"""``python -m examples.gallery``: run all rewrites, and write ``docs/gallery.md`` and its pictures."""

from __future__ import annotations

from examples.gallery.page import PAGE, PICTURES, TAIL, name_of, section, table
from examples.rewrites.__main__ import FILES


def main() -> None:
    """Write the page."""
    PICTURES.mkdir(exist_ok=True)
    text = table()
    for file in FILES:
        said, picture = section(file, file.REWRITING.run())
        (PICTURES / f"{name_of(file)}.svg").write_text(picture, encoding="utf-8")
        text += said
    PAGE.write_text(text + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
