"""Install the tools that Setpoint is compared with, each in a virtual environment of its own under .peers/.

Usage: python tools/peers.py [NAME ...]      (all of them without a name; --list prints the names)

Each peer gets what it needs at its newest versions that go with the torch in constraints.txt. One that does not
install is reported and left out: the benchmarks say which peers are missing. An environment that is there already and
was made from the same requirements is kept.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".peers"
STAMP = "requirements.txt"  # written last: an environment without it was not finished
TIMEOUT_S = 1800

PEERS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime", "onnx", "onnxscript", "transformers>=5,<6"),
    "ctranslate2": ("ctranslate2", "transformers>=5,<6"),
    "sentence-transformers-onnx": ("sentence-transformers[onnx]",),
    "sentence-transformers-openvino": ("sentence-transformers[openvino]",),
}


def main() -> int:
    """Install the peers that were asked for; 0 even if some are missing, 2 for a name that is not a peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args()
    if options.list:
        print(*PEERS, sep="\n")
        return 0
    unknown = [name for name in options.names if name not in PEERS]
    if unknown:
        print(f"no such peer: {', '.join(unknown)}; known: {', '.join(PEERS)}", file=sys.stderr)
        return 2
    outcomes = {name: install(name) for name in options.names or PEERS}
    for name, problem in outcomes.items():
        print(f"{name:<32} {'ready' if problem is None else 'MISSING: ' + problem}")
    return 0


def install(name: str) -> str | None:
    """Make one peer's environment; returns what went wrong, or None."""
    folder = FOLDER / name
    wanted = "\n".join(sorted({torch_pin(), *PEERS[name]})) + "\n"
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    if folder.exists():
        shutil.rmtree(folder)
    print(f"installing {name} into {folder.relative_to(ROOT)} ...", flush=True)
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted.split()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not installed within {TIMEOUT_S // 60} minutes"
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return lines[-1] if lines else f"pip ended with {done.returncode}"
    stamp.write_text(wanted)
    return None


def torch_pin() -> str:
    """The line of constraints.txt that pins torch."""
    found = re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("constraints.txt does not pin torch")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
