"""scripts/check_site.py finds what is wrong with a site, and nothing in one that is right."""

import subprocess
import sys

import pytest

PAGE = '<html><body><h1 id="top">{}</h1><a href="other.html#top">other</a></body></html>'


@pytest.fixture
def check(root, tmp_path):
    (tmp_path / "style.css").write_text("h1 { color: red; }")
    (tmp_path / "other.html").write_text(PAGE.format("<a href='https://example.org'>out</a>"))

    def run(inside):
        (tmp_path / "index.html").write_text(PAGE.format(inside))
        return subprocess.run(
            [sys.executable, root / "scripts" / "check_site.py", tmp_path], capture_output=True, text=True
        )

    return run


def test_a_right_site(check):
    done = check('<img src="style.css"><link rel="stylesheet" href="style.css"><a href="#top">up</a>')
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "inside, said",
    [
        ('<a href="missing.html">x</a>', "leads nowhere"),
        ('<a href="other.html#missing">x</a>', "names no place"),
        ('<img src="missing.svg">', "leads nowhere"),
        ('<script src="https://example.org/x.js"></script>', "fetches"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "fetches"),
    ],
)
def test_a_wrong_site(check, inside, said):
    done = check(inside)
    assert done.returncode == 1 and said in done.stderr


def test_a_style_that_fetches(check, tmp_path):
    (tmp_path / "style.css").write_text('@import "https://example.org/font.css";')
    assert "fetches" in check("").stderr


def test_a_picture_that_no_browser_shows(check, tmp_path):
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><!-- by a --b --></svg>')
    done = check('<img src="a.svg">')
    assert done.returncode == 1 and "a.svg: not well-formed" in done.stderr
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    assert check('<img src="a.svg">').returncode == 0


@pytest.mark.parametrize("plain, written", [
    ("of V f(l) V^T, and", [r"V f(\lambda) V^{\top}"]),
    ("by up to 1 / sqrt(eps). For n <= 8 it", [r"1 / \sqrt{\varepsilon}", r"n \le  8"]),
    ("A x = l B x with x^T B x = 1, as", [r"A x = \lambda B x", r"x^{\top} B x = 1"]),
    ("U f(S) V^T of (..., m, n) matrices", [r"U f(S) V^{\top}"]),
    ("blocks of n <= 128 (float64: 64) on", [r"n \le  128"]),
    ("a matrix (m, n) with n = 12, and A is 2 x 3 (from A^T A)", [r"A^{\top} A"]),
])  # fmt: skip
def test_formulas_in_plain_text(root, monkeypatch, plain, written):
    monkeypatch.syspath_prepend(root / "docs" / "site")
    from formulas import pieces

    assert [part for is_formula, part in pieces(plain) if is_formula] == written
    assert plain.startswith(next(pieces(plain))[1])


def test_formulas_are_mended(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "docs" / "site")
    from formulas import mended

    bar, index = '<mo stretchy="false">ˉ</mo>', "<mrow><mi>i</mi><mi>j</mi></mrow>"
    sum_, u_bar = "<munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover>", f"<mover><mi>u</mi>{bar}</mover>"
    assert mended(f"<munderover><mi>u</mi>{index}{bar}</munderover>") == f"<msub>{u_bar}{index}</msub>"
    assert mended(sum_) == sum_
    leaning = '<mrow><mi>V</mi><mspace width="0.214em"></mspace></mrow>'
    assert mended("<msup><mi>V</mi><mi>i</mi></msup>") == f"<msup>{leaning}<mi>i</mi></msup>"
    assert mended("<mfrac><mi>a</mi><mi>V</mi></mfrac>") == f"<mfrac><mi>a</mi>{leaning}</mfrac>"
    for whole in ("<msub><mi>V</mi><mi>i</mi></msub>", f"<mover><mi>V</mi>{bar}</mover>", "<mi>log</mi>"):
        assert mended(whole) == whole
