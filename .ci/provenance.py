"""Write the provenance of a release: `provenance.py VERSION FOLDER`.

An in-toto statement with SLSA's predicate: the digest of each artifact in the folder, the commit
and whether the checkout had changes, and the machine.  It is a claim of the machine that built; a
signature (.ci/release) says who claims it.
"""

import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path


def git(*arguments: str) -> str:
    """Git's answer about this checkout."""
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def statement(folder: Path, commit: str, changed: bool) -> dict[str, object]:
    """`changed`: the checkout had changes that are not in the commit."""
    subject = [
        {"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
        for path in sorted(folder.iterdir())
        if path.suffix in (".whl", ".gz")
    ]
    build = {
        "buildType": "make release",
        "externalParameters": {"changed": changed},
        "internalParameters": {
            "machine": platform.platform(),
            "python": platform.python_version(),
        },
        "resolvedDependencies": [{"name": "kafkalog", "digest": {"gitCommit": commit}}],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": build, "runDetails": {"builder": {"id": "local"}}},
    }


def main(version: str, folder: Path) -> None:
    """Write kafkalog-VERSION.intoto.json into the folder."""
    changed = bool(git("status", "--porcelain", "--untracked-files=no"))
    found = statement(folder, git("rev-parse", "HEAD"), changed)
    text = json.dumps(found, indent=2) + "\n"
    (folder / f"kafkalog-{version}.intoto.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
