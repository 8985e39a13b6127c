"""A batch job: rows from a source, through a runner, into an output that is complete and in order, or resumable.

source ─ blocks ─▶ pipeline ─ windows ─▶ shards ─ merge ─▶ output and ledger
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import pyarrow as pa

from setpoint.domain.row import Reason
from setpoint.domain.truncation import Truncation
from setpoint.domain.units import format_count
from setpoint.errors import InputError, Interrupted, JobStopped, SetpointError
from setpoint.measure.clock import Clock, MonotonicClock
from setpoint.runners.base import Runner
from setpoint.score.columns import result_arrays
from setpoint.score.control import FatalRow, Hung, StopToken, Watchdog
from setpoint.score.durable import explain
from setpoint.score.fingerprint import as_json
from setpoint.score.forecast import Forecaster, TimeLeft, TotalRows
from setpoint.score.ledger import Ledger
from setpoint.score.merge import merge
from setpoint.score.meter import Activity, Meter
from setpoint.score.operating import RateBand
from setpoint.score.pipeline import Pipeline
from setpoint.score.plan import JobPlan, default_window
from setpoint.score.progress import QuietReporter, Reporter, Snapshot
from setpoint.score.rows import RESULT_MARK, JobInput, assemble, count_window
from setpoint.score.sources.base import Source
from setpoint.score.state import FinishedJob
from setpoint.score.store import JobStore, open_store
from setpoint.score.summary import JobReport, measure_performance
from setpoint.score.window import Quarantine, WindowLimits

# The runner's own names for batch limits: here the shape says what became of them.
_BATCH_OPTIONS = ("batch_size", "max_batch_tokens")
_CONTENT_KEYS = frozenset({"blake2b", "digest"})
_MIN_FRACTION = 0.02  # of the input read before its share tells the number of rows better than a first guess
_TOO_LONG_ADVICE = "shorten it, or start over with --restart and --truncation truncate, window or skip"


def run_job(
    source: Source | JobInput,
    runner: Runner,
    plan: JobPlan,
    *,
    reporter: Reporter | None = None,
    stop: StopToken | None = None,
    clock: Clock | None = None,
    rate: RateBand | None = None,
) -> JobReport:
    """Score every row of `source` and write the output of `plan`, going on where an earlier run stopped.

    Rows that fail are rows with nulls and a reason, counted in the report's ledger. Raises a SetpointError for what
    ends the whole job; what was finished by then is kept, and the same call goes on from there. `stop` ends it early
    with Interrupted. `rate` tells the reporter where the batches drift from a profile.
    """
    rows = source if isinstance(source, JobInput) else JobInput(source, plan, runner.task)
    window = plan.window or default_window(runner.shape, runner.fields)
    opened = open_store(
        plan.target,
        fingerprint=job_fingerprint(rows, runner, plan),
        choices=as_json({**choices_of(runner), "window": asdict(window)}),
        restart=plan.restart,
        overwrite=plan.overwrite,
    )
    if isinstance(opened, FinishedJob):
        return _finished_before(opened, rows, plan)
    job = _Job(
        *(rows, runner, plan, opened, reporter or QuietReporter(), stop or StopToken(), clock or MonotonicClock()), rate
    )
    try:
        return job.run()
    finally:
        job.close()


def job_fingerprint(rows: JobInput, runner: Runner, plan: JobPlan) -> dict[str, Any]:
    """What the output depends on: the runner, the input, the columns, the batches. JSON."""
    shape = runner.shape
    described = {key: value for key, value in runner.fingerprint.items() if key not in _BATCH_OPTIONS}
    found: dict[str, Any] = as_json(
        {
            **described,
            "batches": {
                "max_tokens": shape.max_batch_tokens,
                "max_size": shape.max_batch_size,
                "cost": str(shape.cost),
            },
            "rows": {**rows.describe(), "labels": plan.labels},
            "input": rows.source.identity(),
            "output": {"format": plan.target.output_format, "prefix": plan.prefix},
        }
    )
    return found


def choices_of(runner: Runner) -> dict[str, Any]:
    """What `auto` became, in the words of the options that would choose it again."""
    shape, fingerprint = runner.shape, runner.fingerprint
    backend = fingerprint.get("backend")
    return {
        "dtype": fingerprint.get("dtype"),
        "backend": backend.split("-")[0] if isinstance(backend, str) else None,
        "max_batch_tokens": shape.max_batch_tokens,
        "batch_size": shape.max_batch_size,
        "streams": shape.num_streams,
    }


class _Job:
    """One run of a job whose store is open."""

    def __init__(
        self,
        rows: JobInput,
        runner: Runner,
        plan: JobPlan,
        store: JobStore,
        reporter: Reporter,
        stop: StopToken,
        clock: Clock,
        rate: RateBand | None,
    ) -> None:
        self._rate = rate
        self._rows = rows
        self._runner = runner
        self._plan = plan
        self._store = store
        self._reporter = reporter
        self._stop = stop
        # The windows of the run that began the job: its shards end where they do.
        self._limits = WindowLimits(**store.manifest.choices["window"])
        self._meter = Meter(clock)
        self._watchdog = Watchdog(clock)
        estimate = rows.source.estimate()
        self._num_expected = estimate.num_rows if plan.limit_rows is None else None
        self._guess = estimate.rows
        self._forecaster = Forecaster(
            num_streams=runner.shape.num_streams,
            rows_before=store.num_rows_resumed,
            timeout_s=plan.batch_timeout_s,
        )
        self._forecast: TimeLeft | None = None
        self._ledger = store.ledger
        self._phase = "scoring"

    def run(self) -> JobReport:
        """Score, write, and report."""
        self._say_how_it_begins()
        with self._explaining():
            self._score()
            self._check_counts()
            with self._meter.during(Activity.WRITING):
                self._phase = "writing the output"
                columns = merge(self._store, self._runner.fields, prefix=self._plan.prefix, tick=self._tick_merging)
            self._reporter.close()
            return self._complete(columns)

    def close(self) -> None:
        """Take the progress away and let go of the output's lock."""
        self._reporter.close()
        self._store.close()

    def _score(self) -> None:
        pipeline = Pipeline(
            self._runner,
            limits=self._limits,
            meter=self._meter,
            watchdog=self._watchdog,
            patience=self._forecaster.patience_s,
            stop=self._stop,
            max_batch_tokens=self._store.max_batch_tokens,
            quarantine=_quarantine(self._store),
            fatal={Reason.TOO_LONG} if self._plan.truncation is Truncation.ERROR else (),
        )
        stream = pipeline.run(self._rows.blocks(self._store), tick=self._tick)
        with contextlib.closing(stream):
            for window in stream:
                with self._meter.during(Activity.WRITING):
                    table, digests = assemble(window, self._runner.fields)
                    ledger = Ledger()
                    labels = self._plan.labels
                    count_window(
                        window,
                        ledger,
                        num_labels=len(labels) if labels else None,
                        windows_rows=self._plan.truncation is Truncation.WINDOW,
                    )
                    self._store.add(table, first_row=window.first_row, digests=digests, ledger=ledger)
                self._ledger.add(ledger)
                self._meter.rows_done(window.num_rows)
                limit = pipeline.limit_tokens
                if limit is not None and limit != self._store.max_batch_tokens:
                    self._store.remember_limit(limit)
                    self._reporter.note(f"a batch ran out of memory: from now on at most {limit:,} tokens a batch")
        if not self._store.shards:
            self._store.add(self._empty_table(), first_row=0, digests=self._rows.no_digests(), ledger=Ledger())

    def _empty_table(self) -> pa.Table:
        """A shard without rows, so that an output without rows still has its columns."""
        originals = {name: pa.array([], type=pa.string()) for name in self._rows.known_columns}
        results = {RESULT_MARK + name: array for name, array in result_arrays(self._runner.fields, []).items()}
        return pa.table({**originals, **results})

    def _check_counts(self) -> None:
        """Rows in are rows out, or the job has failed."""
        num_read, num_done = self._rows.rows_read, self._store.num_rows_done
        if num_read != num_done or self._ledger.num_rows != num_done:
            raise JobStopped(
                f"{num_read} rows were read, {num_done} written and {self._ledger.num_rows} counted: "
                "a bug of setpoint, please report it"
            )
        if self._num_expected is not None and num_read != self._num_expected:
            raise InputError(
                f"{self._rows.source.name} has {self._num_expected} rows, but only {num_read} could be read; "
                "it may have changed or be damaged"
            )

    def _complete(self, columns: Mapping[str, str]) -> JobReport:
        performance = measure_performance(
            self._meter.read(),
            num_streams=self._runner.shape.num_streams,
            rows=self._store.num_rows_done - self._store.num_rows_resumed,
            forecast=self._forecast,
            cost=self._forecaster.fit,
        )
        report = JobReport(
            output=_shown_path(self._plan),
            ledger=self._ledger,
            rows_resumed=self._store.num_rows_resumed,
            already_complete=False,
            columns=columns,
            choices=self._store.manifest.choices,
            performance=performance,
            facts=self._plan.facts,
        )
        self._store.complete({"input_digest": self._store.input_digest(), **report.saved()})
        return report

    # Progress --------------------------------------------------------------------------------------------------------

    def _say_how_it_begins(self) -> None:
        for note in (*self._rows.source.notes(), *self._store.notes):
            self._reporter.note(note)
        if self._store.num_rows_resumed:
            self._reporter.note(
                f"going on: {format_count(self._store.num_rows_resumed)} rows are done, checking that they are the same"
            )
        if self._store.hangs:
            self._reporter.note("rows that did not come back in an earlier run are computed one by one")

    def _total(self) -> TotalRows | None:
        rows, limit = self._rows, self._plan.limit_rows
        if rows.is_exhausted:
            return TotalRows(num_rows=rows.rows_read, is_exact=True)
        if self._num_expected is not None:
            return TotalRows(num_rows=self._num_expected, is_exact=True)
        guess = self._guess
        if rows.fraction_read is not None and rows.fraction_read >= _MIN_FRACTION:
            guess = round(rows.rows_read / rows.fraction_read)
        if guess is not None and limit is not None:
            return TotalRows(num_rows=min(guess, limit), is_exact=False)
        return None if guess is None else TotalRows(num_rows=guess, is_exact=False)

    def _tick(self) -> None:
        reading = self._meter.read()
        total = self._total()
        left = self._forecaster.time_left(reading, total)
        if left is not None and self._forecast is None:
            self._forecast = left.after(reading.elapsed_s)
            rows = (
                "" if total is None else f" for {'' if total.is_exact else 'about '}{format_count(total.num_rows)} rows"
            )
            self._reporter.note(f"forecast: about {self._forecast}{rows}")
        drift = None if self._rate is None else self._rate.check(reading.samples, reading.num_samples)
        if drift is not None:
            self._reporter.note(str(drift))
        computing_s = reading.elapsed_s - (reading.first_batch_s or 0.0)
        is_moving = reading.first_batch_s is not None and computing_s > 0
        self._reporter.show(
            Snapshot(
                phase="scoring" if is_moving else "reading",
                rows_done=self._store.num_rows_resumed + reading.rows_computed,
                total_rows=None if total is None else total.num_rows,
                is_total_exact=total is not None and total.is_exact,
                rows_failed=self._ledger.num_failed,
                rows_per_s=reading.rows_computed / computing_s if is_moving and reading.rows_computed else None,
                tokens_per_s=reading.useful_tokens / computing_s if is_moving and reading.useful_tokens else None,
                left_s=None if left is None else left.mid_s,
            )
        )

    def _tick_merging(self) -> None:
        if self._stop.requested:
            raise Interrupted(f"stopped by {self._stop.why}")
        self._reporter.show(
            Snapshot(
                phase=self._phase,
                rows_done=self._store.num_rows_done,
                total_rows=self._store.num_rows_done,
                is_total_exact=True,
                rows_failed=self._ledger.num_failed,
                rows_per_s=None,
                tokens_per_s=None,
                left_s=None,
            )
        )

    # Ending early ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Add to whatever ends the job what was kept and how to go on."""
        try:
            yield
        except Hung as error:
            self._store.remember_hang(error.rows)
            raise JobStopped(f"{error}\n{self._how_to_go_on()}") from error
        except Interrupted as error:
            raise Interrupted(f"{error}; {self._how_to_go_on()}") from None
        except FatalRow as error:
            raise JobStopped(f"{error}; {_TOO_LONG_ADVICE}") from error
        except JobStopped as error:
            raise JobStopped(f"{error}\n{self._how_to_go_on()}") from error
        except InputError as error:
            raise InputError(f"{error}\n{self._how_to_go_on()}") from error
        except OSError as error:
            self._stop_for_disk(error)

    def _stop_for_disk(self, error: OSError) -> NoReturn:
        raise JobStopped(f"{explain(error, self._plan.target.parts)}\n{self._how_to_go_on()}") from error

    def _how_to_go_on(self) -> str:
        done = self._store.num_rows_done
        if not done:
            return "nothing was finished yet; run the same command again to start"
        return (
            f"{format_count(done)} rows are finished and kept in {self._plan.target.parts}; "
            "run the same command again to go on"
        )


def _finished_before(finished: FinishedJob, rows: JobInput, plan: JobPlan) -> JobReport:
    """The report of a job that was finished before. Rows that come without an identity are read and compared."""
    document = finished.document
    ledger = _saved_ledger(document, plan)
    if not _names_content(rows.source.identity()):
        digest = rows.digest()
        if digest.hex() != document.get("input_digest"):
            raise InputError(
                f"{plan.target.path} was made from other rows: {ledger.num_rows} then, {digest.num_rows} now, "
                "or with other content; pass --overwrite to replace it, or choose another output"
            )
    return JobReport(
        output=_shown_path(plan),
        ledger=ledger,
        rows_resumed=ledger.num_rows,
        already_complete=True,
        columns=document.get("columns", {}),
        choices=document.get("choices", {}),
        performance=None,
        facts=document.get("facts", {}),
    )


def _saved_ledger(document: Mapping[str, Any], plan: JobPlan) -> Ledger:
    try:
        return Ledger.from_json(document["ledger"])
    except (KeyError, ValueError) as error:
        raise SetpointError(f"{plan.target.ledger} is damaged ({error}); pass --overwrite to make it anew") from error


def _names_content(identity: Any) -> bool:
    """Whether a source's identity changes with its content, or only says what kind of source it is."""
    if isinstance(identity, Mapping):
        return any(key in _CONTENT_KEYS or _names_content(value) for key, value in identity.items())
    return isinstance(identity, list | tuple) and any(map(_names_content, identity))


def _quarantine(store: JobStore) -> Quarantine:
    suspects = {row for hang in store.hangs for row in hang.rows}
    guilty = {hang.rows[0] for hang in store.hangs if len(hang.rows) == 1}
    return Quarantine(suspects=suspects - guilty, guilty=guilty)


def _shown_path(plan: JobPlan) -> str:
    return f"{plan.target.path}/" if plan.target.is_folder else str(plan.target.path)
