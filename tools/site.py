"""Builds the documentation into a site of plain HTML: ``make docs``. No scripts, nothing fetched, readable
from a disk.

Every link between pages, and every picture, must lead somewhere: one that does not is an error.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ORDER = ("", "how-to", "reference")

STYLE = """
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: #1c2733; display: flex; flex-wrap: wrap; }
nav { flex: 0 0 15rem; padding: 1.5rem; background: #f2f5f8; } nav a { display: block; padding: .12rem 0; }
nav strong { display: block; margin-top: 1rem; }
main { flex: 1 1 30rem; max-width: 54rem; padding: 1.5rem 2.5rem; min-width: 0; }
a { color: #1a5fa0; text-decoration: none; } a:hover { text-decoration: underline; }
code, pre { font: 13.5px/1.45 ui-monospace, monospace; background: #f2f5f8; }
code { padding: .1rem .25rem; border-radius: 3px; }
pre { padding: .8rem 1rem; overflow-x: auto; border-radius: 5px; } pre code { padding: 0; background: none; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid #cfd8e1; padding: .3rem .6rem; text-align: left; }
img { max-width: 100%; }
"""


def title_of(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return found[1].strip("`") if found else page.stem


def pages() -> list[Path]:
    found = list(DOCS.rglob("*.md"))
    return sorted(
        found,
        key=lambda p: (
            ORDER.index(p.parent.relative_to(DOCS).as_posix().strip(".")),
            p.name != "index.md",
            p.name,
        ),
    )


def broken_links(page: Path, text: str) -> list[str]:
    """Links of a page, to files, that lead nowhere."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"``.+?``|`[^`\n]+`", "", prose)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose)
    return [t for t in targets if "://" not in t and not (page.parent / t).exists()]


def navigation(page: Path, depth: str) -> str:
    parts, section = [], ""
    for other in pages():
        place = other.parent.relative_to(DOCS).as_posix().strip(".")
        if place != section:
            section = place
            parts.append(f"<strong>{section.capitalize()}</strong>")
        link = depth + other.relative_to(DOCS).with_suffix(".html").as_posix()
        parts.append(f'<a href="{link}">{html.escape(title_of(other))}</a>')
    return "\n".join(parts)


def render(page: Path) -> str:
    depth = "../" * (len(page.relative_to(DOCS).parts) - 1)
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(page.read_text("utf-8"))
    body = re.sub(r'href="(?!https?:)([^"#]+)\.md(#[^"]*)?"', r'href="\1.html\2"', body)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{html.escape(title_of(page))}</title><link rel="stylesheet" href="{depth}style.css">'
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head>'
        f"<body><nav>{navigation(page, depth)}</nav><main>{body}</main></body></html>\n"
    )


def build(target: Path) -> list[str]:
    """Write the site; return links that lead nowhere."""
    shutil.rmtree(target, ignore_errors=True)
    broken = []
    for page in pages():
        broken += [
            f"{page.relative_to(ROOT)}: {link}" for link in broken_links(page, page.read_text("utf-8"))
        ]
        out = target / page.relative_to(DOCS).with_suffix(".html")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(page), "utf-8")
    shutil.copytree(DOCS / "pictures", target / "pictures")
    (target / "style.css").write_text(STYLE.strip() + "\n", "utf-8")
    return broken


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    wrong = build(where)
    print("\n".join(f"broken link: {link}" for link in wrong) or f"wrote {where / 'index.html'}")
    sys.exit(bool(wrong))
