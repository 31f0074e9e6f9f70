"""The Python of docs/embedding.md runs exactly as printed, from the first block to the last."""

import os
import re
import subprocess
import sys


def test_the_python_of_the_page_runs(root, tmp_path):
    """In a separate process, since it forks; each block continues where the last one ended."""
    text = (root / "docs" / "embedding.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python") == 10
    script = tmp_path / "page.py"
    script.write_text("\n".join([*blocks, "print('to the end')"]))
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "to the end\n"), ran.stderr
