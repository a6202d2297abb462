"""The documentation site. scripts/docs runs Sphinx with the root of the repository as its source folder, so that the
relative links of the Markdown pages lead to the same places here and on a code host."""

from __future__ import annotations

import inspect
import posixpath
import re
import shutil
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs" / "site")]

import keel  # noqa: E402  (the page of the Python interface is made from it)
from formulas import mended, pieces  # noqa: E402
from header_filter import backends_of, group  # noqa: E402

project = "keel"
author = "the keel authors"
project_copyright = f"2026, {author}"
version = release = keel.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "breathe",
]
root_doc = "README"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "bench/NOTES.md",
    "docs/**.md",
    "docs/**.rst",
    "lab/experiments/**.md",
]
exclude_patterns = ["build", "build-*", "dist", ".*"]

# As on GitHub: every heading has an anchor.
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # lists of options may begin at the second level

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True

breathe_projects = {"keel": str(ROOT / "build" / "doxygen" / "xml")}
breathe_default_project = "keel"
breathe_show_include = False
cpp_index_common_prefix = ["keel::"]

# Formulas, as on GitHub: $inline$ and ```math. The site has them as MathML, which browsers show by themselves.
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"

html_theme = "furo"
html_title = f"keel {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "github-dark"  # its comments have twice the contrast of monokai's
html_theme_options = {"navigation_with_keys": True}

# Tables of contents that the sidebar shows, below pages that do not show them.
CONTENTS = {
    root_doc: (ROOT / "docs" / "site" / "contents.txt").read_text(),
    "docs/layers/README": """
```{toctree}
:hidden:

zca_whitening
pca_denoising
pca_whitening
```
""",
    "lab/experiments/README": """
```{toctree}
:hidden:
:glob:

*/README
```
""",
}
NOT_OF_INTEREST = ["keel/torch/keel.h", "keel/torch/nn.h", "keel/version.h", "keel/term.h"]
FOLDERS = {"include/keel": "docs/site/core", "libtorch/include/keel/torch": "docs/site/cpp"}


def headers(folder):
    """A section for each header, in reStructuredText: its contract, what it declares, and that for each backend."""
    for header in sorted((ROOT / folder).rglob("*.h")):
        name = header.relative_to(next(part for part in header.parents if part.name == "include")).as_posix()
        if name in NOT_OF_INTEREST:
            continue
        yield f"{name}\n{'-' * len(name)}\n\n.. doxygengroup:: {group(header)}\n   :desc-only:\n"
        yield members(group(header))
        for backend in backends_of(header.read_text()):
            yield f"keel::{backend}\n{'^' * 20}\n\n{members(f'{group(header)}_{backend}')}"


def members(name):
    return f".. doxygengroup:: {name}\n   :content-only:\n   :members:\n"


def fill_in(app, name, source):
    """Pages of the C++ interface have every header there is."""
    source[0] += CONTENTS.get(name, "")
    source[0] = re.sub(r"^```math$", "```{math}", source[0], flags=re.M)
    source[0] = re.sub(r"^\.\. headers:: (\S+)$", lambda m: "\n".join(headers(m[1])), source[0], flags=re.M)


def formulas(app, tree):
    """What is written in plain text."""
    kept = (nodes.title, nodes.math, nodes.FixedTextElement, nodes.literal, nodes.raw, addnodes.desc_signature)
    for text in list(tree.findall(nodes.Text)):
        parents, node = [], text
        while node.parent is not None:
            parents.append(node := node.parent)
        if any(isinstance(parent, kept) for parent in parents):
            continue
        found = list(pieces(text.astext()))
        if len(found) > 1:
            parts = [nodes.math(part, part) if is_one else nodes.Text(part) for is_one, part in found]
            text.parent.replace(text, parts)
    for formula in tree.findall(nodes.math):  # no line begins with the full stop after a formula
        after = formula.next_node(nodes.Text, descend=False, siblings=True)
        place = formula.parent.index(formula) + 1
        mark = after is not None and formula.parent[place] is after and re.match(r"[.,;:)?]+", after.astext())
        if mark:
            formula["mark"] = mark[0]
            formula.parent[place] = nodes.Text(after.astext()[mark.end() :])


def folders(app, tree):
    """A link to a folder leads to the page about it, or nowhere: then its words are left."""
    for link in list(tree.findall(addnodes.pending_xref)):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(app.env.docname), link.get("reftarget", "")))
        if link.get("reftype") != "myst" or not (ROOT / target).is_dir():
            continue
        if target in FOLDERS:
            link["refdomain"], link["reftype"], link["reftarget"] = "std", "doc", f"/{FOLDERS[target]}"
            link["refexplicit"] = True
        else:
            link.replace_self(link.children)


def contracts(app, tree):
    """Breathe heads the description of a group with the group's name, which means nothing to a reader."""
    for described in list(tree.findall(addnodes.desc)):
        if described[0].astext().startswith("group keel_"):
            described.replace_self(described[-1].children)


def front_page(folder):
    """index.html is the README's page."""
    shutil.copy(folder / f"{root_doc}.html", folder / "index.html")


def formula_font(folder):
    """Not every system has a font for formulas. Debian's (fonts-lmodern) goes into the site."""
    font = Path("/usr/share/texmf/fonts/opentype/public/lm-math/latinmodern-math.otf")
    if font.is_file():
        shutil.copy(font, folder)
        with (folder / "site.css").open("a") as style:
            style.write(f'@font-face {{ font-family: "Latin Modern Math"; src: url("{font.name}"); }}\n')


def mend_theme(folder):
    """Debian 12's furo has its script in two files that do not find each other as plain scripts. Its style
    imports another one from the root of a web server of Debian's, and has lost the rule for readers whose
    system is dark."""
    script = folder / "scripts" / "furo.js"
    line, _, rest = script.read_text().partition("\n")
    if line == 'import Gumshoe from "./gumshoe-patched.js";':
        script.write_text(script.with_name("gumshoe-patched.js").read_text() + rest)
    style = folder / "styles" / "furo.css"
    text = style.read_text()
    for imported in re.findall(r"@import url\((/javascript/[^)]*)\);", text):
        file = Path("/usr/share", imported[1:])
        text = text.replace(f"@import url({imported});", file.read_text() if file.is_file() else "")
        style.write_text(text)
    dark = re.search(r'body\[data-theme="dark"\] \{(\s*--.*?)\}', text, re.DOTALL)
    if dark and "prefers-color-scheme" not in text:
        rule = f'body:not([data-theme="light"]) {{{dark[1]}}}'
        style.write_text(f"{text}\n@media not print {{ @media (prefers-color-scheme: dark) {{ {rule} }} }}\n")


def finish(app, error):
    if error is None and app.builder.name == "html":
        front_page(Path(app.outdir))
        formula_font(Path(app.outdir, "_static"))
        mend_theme(Path(app.outdir, "_static"))


def mathml(formula, display):
    """By docutils, which has no aligned, and lines up a formula with & without being told. It leaves out the space
    around functions such as diag and log, and browsers would stretch its bars."""
    formula = re.sub(r"\\(begin|end)\{aligned\}", "", formula)
    function = r"\\(?:(?:operatorname|text)\{\w+\}|(?:log|ln|det|exp|min|max)(?![a-z]))"
    formula = re.sub(rf"(?<=[\w}})\]])(?<!\\partial)\s*(?={function})", r"\\,", formula)
    formula = re.sub(rf"({function}(?:_\w)?)\s*(?=\w|\\(?:lambda|bar|frac|sqrt)\b|{function})", r"\1\\,", formula)
    old = "inline" in inspect.signature(tex2mathml).parameters
    made = tex2mathml(formula, inline=not display) if old else tex2mathml(formula, as_block=display)
    made = re.sub(r'<mo class="mathopen">([|‖])', r'<mo form="prefix" stretchy="false">\1', made)
    return mended(re.sub(r"<mo>([|‖])", r'<mo form="postfix" stretchy="false">\1', made))


def visit_math(writer, node):
    made = mathml(node.astext(), False)  # a formula is not broken, so a long one scrolls where the page is narrow
    long, mark = made.count("<m") > 24, node.get("mark", "")
    kind = "wide" if long else "held" if mark else ""
    writer.body.append((f'<span class="{kind}">{made}{mark}</span>' if kind else made))
    raise nodes.SkipNode


def visit_display(writer, node):
    """With its \\tag{number}, if it has one, at the right."""
    formula, _, number = node.astext().partition(r"\tag{")
    number = f'<span class="eqno">({number.rstrip().rstrip("}")})</span>' if number else ""
    writer.body.append(f'<div class="math">{mathml(formula.strip(), True)}{number}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_display, None))
    app.connect("source-read", fill_in)
    app.connect("doctree-read", contracts)
    app.connect("doctree-read", folders)
    app.connect("doctree-read", formulas)
    app.connect("build-finished", finish)
