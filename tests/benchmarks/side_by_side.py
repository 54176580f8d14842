"""Runs the side-by-side harness with Loopwright as one more contestant, and prints its tables.

    BENCH_DIR=../shared/bench python tests/benchmarks/side_by_side.py --repeat 5 --rounds 10,50,200
    BENCH_DIR=../shared/bench python tests/benchmarks/side_by_side.py --only all --measures packages,import,ready,step

`loopwright_react` is the contestant, `loopwright_streaming` the same with every run watched word by word; `all` are all
contestants of the harness and these two. Each gets a virtual environment of its own in BENCH_VENVS (default:
.bench-venv). Contestants run in turn within each repeat, so that the ratios of one repeat are what counts: the
machine's noise hits all alike.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = Path(os.environ.get("BENCH_VENVS") or ROOT / ".bench-venv").resolve()
OURS = {
    "loopwright_react": "contestant.py",
    "loopwright_streaming": "contestant_streaming.py",
}
PLAIN = ("raw_httpx", "raw_httpx_sniffio")


def own_environment() -> None:
    """A virtual environment with this checkout, made once."""
    folder = VENVS / "loopwright"
    if (folder / "installed").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--editable", str(ROOT)], check=True)
    (folder / "installed").touch()


def environments(bench: Path, only: str) -> list[str]:
    """The environments, by name, that the harness's own contestants need; none means all."""
    if only == "all":
        return []
    files = [
        bench / "contestants" / f"{name}.py"
        for name in only.split(",")
        if name not in OURS
    ]
    return sorted(
        {
            "server",
            *(
                re.findall(r'^VENV = "(\w+)"', path.read_text(), re.M)[0]
                for path in files
            ),
        }
    )


def main() -> None:
    """Copy the harness, add the contestant, run the measures, print the tables."""
    options = argparse.ArgumentParser(
        description="Loopwright beside a plain loop (and other libraries)"
    )
    options.add_argument("--repeat", default="5")
    options.add_argument("--rounds", default="10,50,200")
    options.add_argument(
        "--only", default=",".join([*PLAIN, *OURS]), help="names of contestants, or all"
    )
    options.add_argument("--measures", default="packages,import,ready,step")
    options.add_argument("--budget", default="0.6")
    options.add_argument("--skip", default="", help="names of contestants to leave out")
    options.add_argument(
        "--out",
        default="",
        help="file to which the measurements are added, one JSON line each",
    )
    given = options.parse_args()
    VENVS.mkdir(exist_ok=True)
    own_environment()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Path(scratch) / "bench"
        shutil.copytree(
            os.environ.get("BENCH_DIR", ROOT.parent / "shared" / "bench"), bench
        )
        bench.chmod(0o755)
        (bench / "contestants").chmod(0o755)
        for name, source in OURS.items():
            shutil.copy(
                Path(__file__).parent / source, bench / "contestants" / f"{name}.py"
            )
        environ = {**os.environ, "BENCH_VENVS": str(VENVS)}
        subprocess.run(
            ["bash", "setup.sh", *environments(bench, given.only)],
            cwd=bench,
            check=True,
            env=environ,
        )
        results = Path(given.out).resolve() if given.out else bench / "results.jsonl"
        run = [
            sys.executable,
            "run.py",
            given.measures,
            "--out",
            str(results),
            "--repeat",
            given.repeat,
        ]
        run += [
            "--rounds",
            given.rounds,
            "--budget",
            given.budget,
            "--skip",
            given.skip,
        ]
        run += [] if given.only == "all" else ["--only", given.only]
        subprocess.run(run, cwd=bench, check=True, env=environ)
        subprocess.run(
            [sys.executable, "summarize.py", str(results)], cwd=bench, check=True
        )


main()
