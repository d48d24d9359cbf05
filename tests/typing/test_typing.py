"""The types of the public names, as mypy and pyright see them in user code, both strict (contract §12)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typing.pages import module_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAYMENTS = sorted((ROOT / "examples" / "csv_payments").glob("*.py"))
RIGHT = [HERE / "right.py", *EXAMPLES]
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "```python\n" in page.read_text("utf-8"))
PAGES = [ROOT / "README.md", *DOCS]


def mypy(files: list[Path], cache: Path) -> dict[tuple[str, int], str]:
    """The complaints, by file and line."""
    options = ["--strict", "--config-file", os.devnull, "--no-error-summary", "--cache-dir", str(cache)]
    done = run([sys.executable, "-m", "mypy", *options, *map(str, files)])
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert bool(found) == (done.returncode == 1), done.stdout
    return {(Path(path).name, int(line)): text for path, line, text in found}


def pyright(files: list[Path], folder: Path) -> dict[tuple[str, int], str]:
    settings = {
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],  # one example runs the brokers of the tests
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportPrivateUsage": False,
        "reportUnusedFunction": False,  # whoever decorates one uses it
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = run(
        [sys.executable, "-m", "pyright", "--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    )
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        why = f"pyright cannot run here, it may have to fetch its own parts first: {done.stderr[-200:]}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] >= len(files)
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"]
        for one in told["generalDiagnostics"]
        if one["severity"] == "error"
    }


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": f"{ROOT / 'src'}:{ROOT}", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT / "examples", env=environment, timeout=1200, check=False
    )


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_user_code_examples_and_pages_are_typed_and_wrong_arguments_are_refused(checker: str, tmp_path: Path) -> None:
    """One run for all, because the checkers take most of their time to begin."""
    copies = [Path(shutil.copy(path, tmp_path)) for path in RIGHT]  # as user code is: outside of this project
    for path in PAYMENTS:
        name = path.name if path.name != "demo.py" else "payments_demo.py"
        copies.append(Path(shutil.copy(path, tmp_path / name)))
    for page in PAGES:
        copies.append(tmp_path / f"{re.sub(r'[^a-z]', '_', str(page.relative_to(ROOT)).lower())}.py")
        copies[-1].write_text(module_of(page), encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    text = (HERE / "wrong.txt").read_text(encoding="utf-8")
    wrong.write_text(text, encoding="utf-8")
    expected = {("wrong.py", no) for no, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}
    found = CHECKERS[checker]([*copies, wrong], tmp_path)
    assert {at: said for at, said in found.items() if at not in expected} == {}
    assert set(found) == expected, "these are wrong, and were not refused"
