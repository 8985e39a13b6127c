"""From timings to ratios, targets, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.ratios import Timings, fastest, paired_ratio
from harness.report import plain, rounded, show, table
from scoring.entries import AUTO, DTYPES, Entry, Race, Role
from setpoint.measure.stats import Repeats

# Of issue "Score", section Speed. Overhead and memory are to stay under a limit, so their ratio is limit ÷ measured.
MAX_OVERHEAD = 1.05  # seconds of the job by seconds of the bare runner
MAX_GROWTH = 1.10  # peak memory at a million rows by that at ten thousand
TARGETS: Mapping[str, float] = {
    "float32_vs_best_peer": 1.0,
    "bfloat16_vs_best_peer": 1.1,
    "int8_vs_best_peer": 1.05,
    "float32_vs_sentence_transformers_default": 1.5,
    "bfloat16_vs_sentence_transformers_default": 1.5,
    "auto_vs_pipeline_unsorted_32": 10.0,
    "auto_vs_pipeline_one_at_a_time": 3.0,
    "mfu_float32": 0.90,
    "mfu_bfloat16": 0.75,
    "machinery_overhead": 1.0,
    "memory_growth": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio with its interval (None where it could not be measured) and what it was measured against."""

    key: str
    found: Repeats | None
    against: str


def ratios_of(race: Race, peaks: Mapping[str, float | None]) -> list[Ratio]:
    """Every ratio that the targets name, for one workload."""
    found = [_against_best(race, dtype) for dtype in DTYPES]
    for dtype in ("float32", "bfloat16"):
        key = f"{dtype}_vs_sentence_transformers_default"
        found.append(_against(race, key, race.find(Role.JOB, dtype), race.find(Role.DEFAULT, dtype)))
    ours = race.find(Role.JOB, AUTO)
    found.append(_against(race, "auto_vs_pipeline_unsorted_32", ours, race.find(Role.UNSORTED, "float32")))
    found.append(_against(race, "auto_vs_pipeline_one_at_a_time", ours, race.find(Role.ONE, "float32")))
    found.extend(
        Ratio(key=f"mfu_{dtype}", found=mfu(race, dtype, peaks), against="the GEMM peak")
        for dtype in ("float32", "bfloat16")
    )
    found.append(_overhead(race))
    return found


def mfu(race: Race, dtype: str, peaks: Mapping[str, float | None], *, role: Role = Role.JOB) -> Repeats | None:
    """Useful FLOP/s of the whole job by the machine's fastest matrix product in the dtype."""
    entry, peak = race.find(role, dtype), peaks.get(dtype)
    rate = None if entry is None else entry.timings.rate()
    if rate is None or peak is None:
        return None
    return _scaled(rate, race.workload.flops / race.workload.num_texts / peak)


def best_peer(race: Race, dtype: str) -> Entry | None:
    """The fastest that counts."""
    peers = {entry.name: entry for entry in race.peers(dtype)}
    name = fastest({name: entry.timings for name, entry in peers.items()})
    return None if name is None else peers[name]


def overheads(race: Race) -> dict[str, Repeats]:
    """Seconds of the job by seconds of the bare runner, by dtype."""
    found = {}
    for dtype in (AUTO, *DTYPES):
        job, bare = race.find(Role.JOB, dtype), race.find(Role.RUNNER, dtype)
        if job is not None and bare is not None:
            ratio = paired_ratio(bare.timings, job.timings)
            if ratio is not None:
                found[dtype] = ratio
    return found


def _against_best(race: Race, dtype: str) -> Ratio:
    return _against(race, f"{dtype}_vs_best_peer", race.find(Role.JOB, dtype), best_peer(race, dtype))


def _against(race: Race, key: str, ours: Entry | None, theirs: Entry | None) -> Ratio:
    if ours is None or theirs is None:
        return Ratio(key=key, found=None, against="nothing that counts was measured")
    return Ratio(key=key, found=paired_ratio(ours.timings, theirs.timings), against=theirs.name)


def _overhead(race: Race) -> Ratio:
    """Of the dtype in which it is largest."""
    found = overheads(race)
    if not found:
        return Ratio(key="machinery_overhead", found=None, against="not measured")
    dtype = max(found, key=lambda name: found[name].median)
    share = found[dtype]
    turned = Repeats(
        median=MAX_OVERHEAD / share.median,
        low=None if share.high is None else MAX_OVERHEAD / share.high,
        high=None if share.low is None else MAX_OVERHEAD / share.low,
        num_repeats=share.num_repeats,
    )
    return Ratio(key="machinery_overhead", found=turned, against=f"bare runner {dtype} + {MAX_OVERHEAD - 1:.0%}")


def _scaled(rate: Repeats, factor: float) -> Repeats:
    return Repeats(
        median=rate.median * factor,
        low=None if rate.low is None else rate.low * factor,
        high=None if rate.high is None else rate.high * factor,
        num_repeats=rate.num_repeats,
    )


# For people and for JSON ----------------------------------------------------------------------------------------------


def entry_figures(race: Race, peaks: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """One object an entry."""
    return [
        {
            "name": entry.name,
            "role": str(entry.role),
            "dtype": entry.dtype,
            "setting": dict(entry.job.setting),
            "items_per_s": plain(entry.timings.rate()),
            "seconds": {str(number): rounded(seconds) for number, seconds in sorted(entry.timings.seconds.items())},
            "timed_texts": entry.timings.num_texts,
            "padding_waste": rounded(_waste(race, entry)),
            "min_cosine": rounded(entry.min_cosine),
            "mfu": rounded(_mfu_of(race, entry, peaks)),
            "counts_as_peer": entry.counts,
            "problem": entry.problem,
        }
        for entry in race.entries
    ]


def race_table(race: Race, peaks: Mapping[str, float | None]) -> str:
    """The entries by dtype, fastest first."""
    rows = []
    for dtype in (*DTYPES, AUTO):
        chosen = [entry for entry in race.entries if entry.dtype == dtype]
        for entry in sorted(chosen, key=_speed, reverse=True):
            waste, share = _waste(race, entry), _mfu_of(race, entry, peaks)
            rows.append(
                (
                    entry.name + (f" [{entry.timings.num_texts} texts]" if entry.is_sampled else ""),
                    show(entry.timings.rate()) if entry.problem is None else f"not timed: {entry.problem[:40]}",
                    "–" if waste is None else f"{waste:.1%}",
                    "–" if share is None else f"{share:.0%}",
                    "–" if entry.min_cosine is None else f"{entry.min_cosine:.5f}",
                )
            )
    return table(("", "texts/s (95%)", "padding", "of peak", "min cosine"), rows)


def ratio_table(ratios: Sequence[Ratio]) -> str:
    """Each ratio beside its target."""
    rows = []
    for ratio in ratios:
        target = TARGETS[ratio.key.split("@")[0]]
        verdict = "not measured" if ratio.found is None else "met" if ratio.found.median >= target else "missed"
        rows.append((ratio.key, show(ratio.found, digits=2), f"{target:g}", verdict, ratio.against))
    return table(("", "ratio (95%)", "target", "", "against"), rows)


def _speed(entry: Entry) -> float:
    rate = entry.timings.rate()
    return 0.0 if rate is None else rate.median


def _waste(race: Race, entry: Entry) -> float | None:
    if entry.processed_tokens is None or entry.is_sampled:
        return None
    return 1.0 - race.workload.useful_tokens / entry.processed_tokens


def _mfu_of(race: Race, entry: Entry, peaks: Mapping[str, float | None]) -> float | None:
    peak, rate = peaks.get(entry.stands_for or entry.dtype), entry.timings.rate()
    if rate is None or peak is None or entry.is_sampled:
        return None
    return rate.median * race.workload.flops / race.workload.num_texts / peak


def new_timings(num_texts: int) -> Timings:
    """Timings of a pass over so many texts."""
    return Timings(num_texts=num_texts)
