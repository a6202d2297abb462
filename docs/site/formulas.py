"""Finds formulas in plain text, V f(l) V^T or 1 / sqrt(eps), and writes them in TeX. Docstrings, headers and the README
have them in this form, because help(), an editor and a package index show no other."""

from __future__ import annotations

import re
from typing import Iterator, Tuple

INSIDE = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
POWER = rf"\^(?:\({INSIDE}\)|-?\w+)"
WORDS = "input|left|right|eps|Cov|Vh|weight|bias|mean|center|values|variance|threshold|rtol"
FUNCTIONS = "sqrt|diag|norm|sym|det|min|max|log|exp|sum|f|O"
NUMBER = r"\d+(?:[.,]\d+)*(?:e-?\d+)?(?:/\d+)?"
PLAIN = rf"(?![^()]*\b(?!(?:{WORDS}|{FUNCTIONS})\b)[a-z]{{2,}}\d*\b(?!\^))"  # no words in what follows
ATOM = (
    rf"(?:(?:(?:{FUNCTIONS})\(|\({PLAIN}){INSIDE}\)|\|[^|]+\||dL[/_]d\w+|(?:{WORDS})(?:_\w+)?\b|[a-z]{{2,}}(?=\^)"
    rf"|(?:[b-zA-Z]|a(?=[\^_]))['’]*(?:_\w+)?(?![\w’'-]))(?:{POWER})*"
)
TERM = rf"(?:{NUMBER}(?:{POWER})?(?: ?(?!\(){ATOM})?|-?{ATOM})"
FORMULA = re.compile(rf"(?<![\w^.)'’-]){TERM}(?:(?:\s*(?:[=+*/~]|[<>]=?|(?<=\s)-(?=\s))\s*{TERM})|\s*{ATOM})*(?!\w)")
#: What plain words and numbers do not have. Otherwise (m, n) or n = 12 would be one.
CERTAIN = re.compile(
    r"\^|sqrt\(|dL/d|[<>]=|\beps\b.*[+*/]|[+*/].*\beps\b|= l\w* [A-Z]|[A-Z] = [A-Z] [A-Z]\b"
    r"|^[A-Z] [fa-z]*\(?[a-zA-Z]\)? [A-Z]\b.*[=^]"
)


def tex(formula: str) -> str:
    def power(match: re.Match[str]) -> str:
        inner = match[1].strip("()") if match[1].startswith("(") else match[1]
        return "^{" + (r"\top" if inner == "T" else tex(inner)) + "}"

    def word(match: re.Match[str]) -> str:
        name, _, index = match[0].partition("_")
        known = {"eps": r"\varepsilon", "l": r"\lambda"}.get(name)
        if known is None and len(name) > 1:
            known = rf"\operatorname{{{name}}}" if re.fullmatch(FUNCTIONS, name) else rf"\text{{{name}}}"
        return (known or name) + (f"_{{{index}}}" if index else "")

    formula = re.sub(r"\|([^|]+)\|", r"\\lvert \1 \\rvert ", formula.replace("’", "'").replace("…", r"\ldots "))
    root = re.search(rf"sqrt\(({INSIDE})\)", formula)
    if root:
        return f"{tex(formula[:root.start()])}\\sqrt{{{tex(root[1])}}}{tex(formula[root.end():])}"
    derivative = re.search(r"dL[/_]d(\w+)", formula)
    if derivative:
        of = tex(derivative[1].replace("_", " "))
        return f"{tex(formula[:derivative.start()])}\\partial L / \\partial {of}{tex(formula[derivative.end():])}"
    parts = re.split(rf"\^(\({INSIDE}\)|-?\w+)", formula)
    plain = [re.sub(r"(?<!\\)\b[A-Za-z]+(?:_\w+)?", word, part) for part in parts[::2]]
    for sign, name in (("<=", r"\le "), (">=", r"\ge "), ("*", r"\cdot "), ("~", r"\approx ")):
        plain = [part.replace(sign, name) for part in plain]
    powers = [power(re.match(r"(.*)", part, re.DOTALL)) for part in parts[1::2]]  # type: ignore[arg-type]
    return "".join(a + b for a, b in zip(plain, [*powers, ""]))


def pieces(text: str) -> Iterator[Tuple[bool, str]]:
    """(whether it is a formula, the text or its TeX), from the first to the last."""
    end = 0
    for match in FORMULA.finditer(text):
        found = match[0]
        if CERTAIN.search(found):
            yield False, text[end : match.start()]
            yield True, tex(" ".join(found.split()))
            end = match.end()
    yield False, text[end:]


#: How far a slanted letter leans over the next one, in 1/1000 em (Latin Modern Math). Browsers leave it out.
LEANS = {
    "C": 73, "E": 54, "F": 134, "H": 78, "I": 85, "J": 106, "K": 68, "M": 102, "N": 106, "P": 140, "S": 60, "T": 148,
    "U": 105, "V": 214, "W": 132, "X": 51, "Y": 209, "Z": 68, "f": 90, "γ": 53, "ζ": 64, "ν": 58, "τ": 102,
}  # fmt: skip


def mended(mathml: str) -> str:
    """What docutils and browsers get wrong: an accent with an index puts the index below, a root is as low as its
    letter, slanted letters touch what follows, and there is space around a slash."""
    accent = r"(<mo stretchy=\"false\">[ˉ˜^˙]</mo>)"
    accented = rf"<munderover>\s*(<mi>[^<]*</mi>)((?:(?!<munderover>).)*?){accent}\s*</munderover>"
    mathml = re.sub(accented, r"<msub><mover>\1\3</mover>\2</msub>", mathml, flags=re.DOTALL)
    mathml = mathml.replace("</msqrt>", '<mpadded height="0.7em" width="0"></mpadded></msqrt>')
    mathml = re.sub(r"<mo( class=\"math\w+\")?>([⟨⟩])</mo>", r'<mo\1 stretchy="false">\2</mo>', mathml)
    mathml = re.sub(r"<mo([^>]*)>/</mo>", r'<mo\1 lspace="0" rspace="0">/</mo>', mathml)

    def upright(found: re.Match[str]) -> str:
        lean = LEANS.get(found[2], 0) / 1000
        if found[1] or not lean:  # an index goes below the arm of a V, and an accent above its middle
            return found[0]
        return f'<mrow><mi>{found[2]}</mi><mspace width="{lean}em"></mspace></mrow>'

    return re.sub(r"(<(?:msub|msubsup|mover|munder)>\s*)?<mi>(.)</mi>", upright, mathml)
