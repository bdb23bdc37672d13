"""What `import papertoanything` costs, against an import of json, http.client and zlib in the same run.

Fresh interpreters, interleaved, least CPU time of each: what the machine does besides only adds.
"""

from __future__ import annotations

import resource
import subprocess
import sys

ROUNDS = 25
STATEMENTS = {
    "nothing": "pass",
    "json, http.client, zlib": "import json, http.client, zlib",
    "ptoa_core": "import ptoa_core",
    "papertoanything": "import papertoanything",
}


def cpu_seconds(statement: str) -> float:
    """User and system time of a fresh interpreter that runs one statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a row a statement, and the ratio that the project promises to hold."""
    least = dict.fromkeys(STATEMENTS, float("inf"))
    for _ in range(ROUNDS):
        for name, statement in STATEMENTS.items():
            least[name] = min(least[name], cpu_seconds(statement))
    for name, seconds in least.items():
        print(f"{1000 * seconds:7.1f} ms  {name}")
    ratio = least["papertoanything"] / least["json, http.client, zlib"]
    print(f"import papertoanything: {ratio:.2f} of the standard library's three (at most 1.5)")


if __name__ == "__main__":
    main()
