"""Pack the text of Debian documentation packages for the language models of `model-pairs` at the paper's scale.

    apt-get download linux-doc-6.1 python3.11-doc ...
    python benchmarks/pack_documents.py *.deb --out "$CONGRUENCE_DATA/documents"

Each package becomes one file NAME_VERSION.txt.xz with its pages in English, one after the other, separated by form
feeds; pages that were seen before are left out. Nothing of a package is executed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import lzma
import re
import subprocess
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

HIDDEN = {"script", "style", "nav", "head", "footer", "svg"}
BLOCKS = {"p", "div", "li", "tr", "pre", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "br", "table", "section"}
VOID = {"br", "link", "meta", "img", "hr", "input"}
SMALLEST, LARGEST = 1500, 400_000  # characters of a page
OTHER_LANGUAGE = re.compile(r"/(translations|po|[a-z]{2,3}[-_][A-Za-z]{2,4}|de|es|fr|it|ja|ko|pl|pt|ru|zh|sv|nl|tr)/")
ENGLISH = re.compile(r"/en[-_](US|GB)/")
SOURCES = re.compile(r"/_sources/|/_static/|genindex|/searchindex|general-index|/rust/.*/(fn|trait|macro|constant)\.")


class Text(HTMLParser):
    """Collects the text of a page without its scripts and navigation."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag in HIDDEN:
            self.hidden += 1
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in HIDDEN and self.hidden:
            self.hidden -= 1
        if tag in BLOCKS - VOID:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def read_page(path: Path) -> str:
    """The text of an HTML page, a manual page or a plain text; empty for other files."""
    name = path.name.removesuffix(".gz")
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    text = content.decode("utf-8", errors="replace")
    if name.endswith((".html", ".htm", ".xhtml")):
        page = Text()
        page.feed(text)
        text = "".join(page.parts)
    elif re.search(r"\.[1-8]\w*$", name):  # roff: without its macros and font changes
        text = re.sub(r"\\f[A-Z]|\\&", "", re.sub(r'(?m)^\.\\".*$|^\.[A-Za-z]+ ?', "", text)).replace("\\-", "-")
    elif not name.endswith((".txt", ".pod", ".texi")):
        return ""
    text = re.sub(r"[ \t\f\r]+\n|\f|\r", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def pages(package: Path) -> Iterator[str]:
    """The pages of a package in the order of their names."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", str(package), folder], check=True)
        for path in sorted(Path(folder).rglob("*")):
            inside = path.relative_to(folder).as_posix()
            foreign = OTHER_LANGUAGE.search(f"/{inside}") and not ENGLISH.search(f"/{inside}")
            if not path.is_symlink() and path.is_file() and not foreign and not SOURCES.search(f"/{inside}"):
                text = read_page(path)
                if SMALLEST <= len(text) <= LARGEST:
                    yield text


def main() -> None:
    """Pack the packages given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    seen: set[bytes] = set()
    for package in options.packages:
        kept = []
        for text in pages(package):
            digest = hashlib.sha256(text.encode()).digest()
            if digest not in seen:
                seen.add(digest)
                kept.append(text)
        target = options.out / f"{package.name.removesuffix('_all.deb').replace('%3a', '-')}.txt.xz"
        content = "\f".join(kept).encode()
        target.write_bytes(lzma.compress(content, preset=6))
        sizes = f"{len(content) / 1e6:.1f} MB, {target.stat().st_size / 1e6:.1f} MB packed"
        print(f"{target.name}: {len(kept)} pages, {sizes}", flush=True)


if __name__ == "__main__":
    main()
