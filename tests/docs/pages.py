"""The pages of the documentation, as the tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ROOT", "Page", "pages"]

ROOT = Path(__file__).resolve().parent.parent.parent


class Page:
    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self.text = path.read_text(encoding="utf-8")

    def examples(self) -> list[str]:
        """The blocks of Python, in order."""
        return re.findall(r"^```python\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    def links(self) -> list[str]:
        return [link for link in re.findall(r"\]\(([^)\s]+)\)", self.text) if not link.startswith("http")]

    def anchors(self) -> set[str]:
        """Of its headings, as they are made of them where Markdown is shown."""
        headings = re.findall(r"^#+ (.*)$", self.text, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def rows(self, heading: str) -> Iterator[list[str]]:
        """The rows of the tables below a heading, without their titles."""
        section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        assert section is not None, heading
        for line in re.findall(r"^\|(.*)\|$", section[1], re.MULTILINE):
            cells = [cell.strip() for cell in line.split("|")]
            if not set(cells[0]) <= {"-"} and "`" in line:
                yield cells

    def names(self, heading: str, column: int = 0) -> list[str]:
        """What stands in backticks in one column."""
        return [name for row in self.rows(heading) for name in in_backticks(row[column])]


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def page(name: str) -> Page:
    return Page(ROOT / "docs" / f"{name}.md")


def pages() -> list[Page]:
    """Those below docs, and those beside the code."""
    return [Page(path) for path in (*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md")))]
