#!/usr/bin/env python3
"""Checks a built site: every link and every picture inside it leads to a file, and to a place in it where it names one;
no page fetches a script, a style, a font or a picture from the network or from the root of a web server; and every SVG
is well-formed, since a browser shows nothing of one that is not.

    scripts/check_site.py build/docs
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as xml
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
FETCHED_BY_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:/)?/[^\s\"')]+")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: Set[str] = set()
        self.links: List[Tuple[str, str]] = []
        self.loaded: List[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        has: Dict[str, str] = {name: value or "" for name, value in attributes}
        self.places.update(has[name] for name in ("id", "name") if name in has)
        if tag == "a" and "href" in has:
            self.links.append((tag, has["href"]))
        elif has.get(LOADED.get(tag, ""), ""):
            self.links.append((tag, has[LOADED[tag]]))
            self.loaded.append(has[LOADED[tag]])


@lru_cache(maxsize=None)
def read(file: Path) -> Page:
    return Page(file.read_text(encoding="utf-8"))


def defects(root: Path, file: Path) -> Iterator[str]:
    page = read(file)
    for link in page.loaded:
        if urlsplit(link).netloc:
            yield f"fetches {link}"
    for tag, link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link in ("", "#"):
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if not target.is_file():
            yield f"the link to {link} leads nowhere"
        elif target.suffix == ".html" and parts.fragment and unquote(parts.fragment) not in read(target).places:
            yield f"the link to {link} names no place of that page"


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    pages = sorted(root.rglob("*.html"))
    found = [f"{page.relative_to(root)}: {defect}" for page in pages for defect in defects(root, page)]
    for style in sorted(root.rglob("*.css")):
        for fetched in FETCHED_BY_STYLES.findall(style.read_text(encoding="utf-8")):
            found.append(f"{style.relative_to(root)}: fetches {fetched}")
    for picture in sorted(root.rglob("*.svg")):
        try:
            xml.parse(picture)
        except xml.ParseError as error:
            found.append(f"{picture.relative_to(root)}: not well-formed: {error}")
    if not pages:
        found.append(f"no page in {root}")
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    print(f"docs: {len(pages)} pages, {len(found)} defects")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
