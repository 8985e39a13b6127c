"""How fast Setpoint scores texts, beside the tools that people use, each at its best setting, in one run.

    python bench/score.py --quick        under three minutes: one model, 200 texts, what is installed
    python bench/score.py                both models, 200 and 5,000 texts; hours on two cores
    python bench/score.py --models minilm --texts 200 --dtypes bfloat16

A worker process a contender, warm, loading not counted. Everybody gets the same texts and gives all vectors in input
order; tokenizing is timed for everybody, and for Setpoint files, manifest, ledger and all. Peers are tuned first
(batch size, streams), then all take turns in rounds whose order changes; ratios are taken within rounds. A table for
people, then one JSON line. Peers with an environment of their own come with `make peers`; those that are missing are
named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH)] if str(BENCH) not in sys.path else []

from scoring.crew import HOME_PEERS, VENV_PEERS  # noqa: E402 - found through the line above
from scoring.run import MODELS, Plan, run  # noqa: E402

QUICK_S = 155.0  # until the last round; what is left of three minutes is for memory and the report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 even where a target is missed: the figures say so."""
    plan = parse(arguments)
    begin = time.monotonic()

    def say(message: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {message}", file=sys.stderr, flush=True)

    run(plan, say=say, show=show)
    return 0


def show(text: str) -> None:
    """Print for people."""
    print(text, flush=True)


def parse(arguments: Sequence[str] | None) -> Plan:
    """Options to a plan; argparse ends the process with 2 for a wrong one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="MiniLM, 200 texts, fewer rounds and settings; ends within three minutes"
    )
    parser.add_argument("--models", type=_names(MODELS), default=None, help=f"of {', '.join(MODELS)}; default: both")
    parser.add_argument("--texts", type=_counts, default=None, help="sizes of the set, such as 200,5000 (the default)")
    parser.add_argument(
        "--dtypes",
        type=_names(("float32", "bfloat16", "int8", "auto")),
        default=None,
        help="of float32, bfloat16, int8, auto; default: all that the machine has",
    )
    parser.add_argument(
        "--peers",
        type=_names((*HOME_PEERS, *VENV_PEERS)),
        default=None,
        help=f"of {', '.join((*HOME_PEERS, *VENV_PEERS))}; default: all",
    )
    parser.add_argument(
        "--rounds", type=_positive, default=None, help="timed passes each; default 5 for 200 texts, 2 for more; quick 3"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the texts and of the order in rounds; default 0")
    parser.add_argument("--cores", type=_positive, default=_cores(), help="threads each may use; default: all")
    parser.add_argument("--no-memory", action="store_true", help="leave out the million rows (a minute)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=BENCH.parent / "build" / "bench",
        help="converted models, measured choices, logs; default build/bench",
    )
    told = parser.parse_args(arguments)
    if told.quick:
        ignored = [name for name in ("models", "texts") if getattr(told, name) is not None]
        if ignored:
            parser.error(f"--quick chooses {' and '.join(ignored)} itself; leave out one of the two")
    return Plan(
        models=("minilm",) if told.quick else told.models or tuple(MODELS),
        sizes=(200,) if told.quick else told.texts or (200, 5000),
        dtypes=told.dtypes or ("float32", "bfloat16", "int8", "auto"),
        peers=told.peers or (*HOME_PEERS, *VENV_PEERS),
        rounds=told.rounds,
        seed=told.seed,
        cores=told.cores,
        cache=told.cache.resolve(),
        is_quick=told.quick,
        with_memory=not told.no_memory,
        deadline=time.monotonic() + QUICK_S if told.quick else None,
    )


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        if not names:
            raise argparse.ArgumentTypeError("no name given")
        return names

    return read


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_positive(part) for part in text.split(",")))


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
