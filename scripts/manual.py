#!/usr/bin/env python3
"""Builds the manual, target/manual/html, from docs/SUMMARY.md with mdbook, and checks every link and anchor of the
built pages that stays on the site.

The pages keep their relative paths. A README becomes the index page of its folder; the RFCs are listed below the page
of all of them. Exit codes: 0 built, 1 failed or a link leads nowhere, 3 mdbook is missing.
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE, SITE = ROOT / "target/manual/src", ROOT / "target/manual/html"
# Files that pages link to besides pages.
FILES = (".svg", ".txt", ".evenkeel")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def pages_of(summary):
    """The pages of the summary, by their paths in the repository."""
    return [os.path.normpath(f"docs/{target}") for target, _ in LINK.findall(summary)]


def with_rfcs(summary):
    entries = []
    for path in sorted((ROOT / "docs/rfcs").glob("[0-9]*.md")):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        entries.append(f"    - [{title}](rfcs/{path.name})\n")
    entries.append("    - [Measurements](rfcs/measurements.md)\n")
    return summary + "".join(entries)


def as_index(target):
    folder, _, name = target.rpartition("/")
    return f"{folder}/index.md".lstrip("/") if name == "README.md" else target


def lay_out():
    shutil.rmtree(SOURCE, ignore_errors=True)
    summary = with_rfcs((ROOT / "docs/SUMMARY.md").read_text())
    pages = pages_of(summary)
    files = set()
    for page in pages:
        text = (ROOT / page).read_text()
        for target, _ in LINK.findall(text):
            linked = os.path.normpath(os.path.join(os.path.dirname(page), target))
            if target.endswith(FILES) and (ROOT / linked).is_file():
                files.add(linked)
        out = SOURCE / as_index(page)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(LINK.sub(lambda link: f"]({as_index(link[1])}{link[2] or ''})", text))
    for file in files:
        (SOURCE / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, SOURCE / file)
    summary = LINK.sub(lambda link: f"]({as_index(os.path.normpath('docs/' + link[1]))})", summary)
    (SOURCE / "SUMMARY.md").write_text(summary)
    return len(pages)


class Page(html.parser.HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.targets.append(value)


def broken_links():
    """Links of the site that lead nowhere on it, and how many were checked."""
    pages = {path: Page(path) for path in SITE.rglob("*.html") if path.name not in ("404.html", "print.html")}
    broken, count = [], 0
    for path, page in pages.items():
        for target in page.targets:
            if ":" in target.split("#")[0]:
                continue
            count += 1
            file, anchor = map(urllib.parse.unquote, urllib.parse.urldefrag(target))
            to = pathlib.Path(os.path.normpath(path.parent / file)) if file else path
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file() or (anchor and to in pages and anchor not in pages[to].anchors):
                broken.append(f"{path.relative_to(SITE)}: {target}")
    return broken, count


def main():
    if not shutil.which("mdbook"):
        print("manual: mdbook is missing: make deps-docs", file=sys.stderr)
        return 3
    count = lay_out()
    if subprocess.run(["mdbook", "build", ROOT]).returncode:
        return 1
    broken, checked = broken_links()
    for link in broken:
        print(f"manual: a link leads nowhere: {link}", file=sys.stderr)
    if broken or checked < 1000:
        return 1
    print(f"manual: {count} pages, {checked} links lead somewhere: {SITE / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
