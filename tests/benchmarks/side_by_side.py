"""Runs the side-by-side harness with Loopwright as one more contestant, and prints its tables.

    BENCH_DIR=../shared/bench python tests/benchmarks/side_by_side.py --repeat 5 --rounds 10,50,200

Each contestant gets a virtual environment of its own in BENCH_VENVS (default: .bench-venv). Contestants run in turn
within each repeat, so that the ratios of one repeat are what counts: the machine's noise hits all alike.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = Path(os.environ.get("BENCH_VENVS") or ROOT / ".bench-venv").resolve()
PINNED = {
    "server": ["uvloop==0.23.0"],
    "raw_httpx": ["httpx==0.28.1"],
    "raw_httpx_sniffio": ["httpx==0.28.1", "sniffio"],
}


def environment(name: str, packages: list[str]) -> None:
    """A virtual environment with these packages, made once."""
    folder = VENVS / name
    if (folder / "installed").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)
    (folder / "installed").touch()


def main() -> None:
    """Copy the harness, add the contestant, run the measures, print the tables."""
    options = argparse.ArgumentParser(description="Loopwright beside a plain loop (and other libraries)")
    options.add_argument("--repeat", default="5")
    options.add_argument("--rounds", default="10,50,200")
    options.add_argument("--only", default="raw_httpx,raw_httpx_sniffio,loopwright")
    options.add_argument("--measures", default="packages,import,ready,step")
    options.add_argument("--budget", default="0.6")
    given = options.parse_args()
    VENVS.mkdir(exist_ok=True)
    for name, packages in PINNED.items():
        environment(name, packages)
    environment("loopwright", ["--editable", str(ROOT)])
    with tempfile.TemporaryDirectory() as scratch:
        bench = Path(scratch) / "bench"
        shutil.copytree(os.environ.get("BENCH_DIR", ROOT.parent / "shared" / "bench"), bench)
        bench.chmod(0o755)
        (bench / "contestants").chmod(0o755)
        shutil.copy(Path(__file__).parent / "contestant.py", bench / "contestants" / "loopwright_react.py")
        only = given.only.replace("loopwright", "loopwright_react")
        run = [sys.executable, "run.py", given.measures, "--only", only, "--out", "results.jsonl"]
        run += ["--repeat", given.repeat, "--rounds", given.rounds, "--budget", given.budget]
        subprocess.run(run, cwd=bench, check=True, env={**os.environ, "BENCH_VENVS": str(VENVS)})
        subprocess.run([sys.executable, "summarize.py", "results.jsonl"], cwd=bench, check=True)


main()
