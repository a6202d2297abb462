"""scripts/check_comments.py finds formulas that were torn apart in comments, and nothing in comments that are whole."""

import subprocess
import sys

import pytest


@pytest.fixture
def check(root, tmp_path):
    def run(text, name="a.h"):
        (tmp_path / name).write_text(text)
        command = [sys.executable, root / "scripts" / "check_comments.py", tmp_path / name]
        return subprocess.run(command, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(
    "text",
    [
        "// |E|_F <= sqrt(n) |E|, and |f'| is monotone.\n//\n// A new paragraph, up to K\n// vectors.\n",
        "/// - an item\n///\n/// The square is K^2, and here\n/// n.\n",
        "/// __shfl_xor_sync\nint a;\n/// a^T b\nint b = a | 1;  // E\n",
        "// One: sum |left\n// right| in all.\n",
        "int a = 1;\n// E\nint b = 2;\n",
    ],
)
def test_whole_comments(check, text):
    done = check(text)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("// moves M by some E with\n// E\n//  <= eta\n", '2: a lone symbol, "E"'),
        ("  // differentiates\n  // dL/dx\n  // ^2.\n", '2: a lone symbol, "dL/dx"'),
        ("/// V x - x\n///  /\n/// l is small\n", '2: a lone symbol, "/"'),
        ("// The norm is sqrt(2)\n// . Two passes give it.\n", "2: \". Two passes"),
        ("/// h_k| <= |a|^k\n", "1: a | without its partner"),
    ],
)
def test_torn_comments(check, text, said):
    done = check(text)
    assert done.returncode == 1 and said in done.stderr


def test_torn_comments_in_python(check):
    assert "2: a lone symbol" in check("# the largest\n# W_ij\n# of all\n", "a.py").stderr
