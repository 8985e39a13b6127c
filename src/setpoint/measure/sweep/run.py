"""Carry a plan out: visit after visit, a point a setting, until the answer is tight enough or the budget is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from setpoint.domain.curve import Finding, Point, Verdict
from setpoint.domain.slo import Slo
from setpoint.domain.units import format_duration
from setpoint.errors import JobStopped, OutOfMemory, SetpointError, UsageError
from setpoint.measure.clock import NS_PER_S, Clock
from setpoint.measure.subject import Subject, Visit
from setpoint.measure.sweep.plan import Plan, PlannedPoint, PointState, SweepState, next_setting
from setpoint.measure.sweep.point import make_point, visit_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The points that were measured, in the plan's order, and the visits they rest on, by `Point.key`.

    `is_complete` is False if it was stopped, or if the budget did not reach every planned point. `notes` say what was
    left out and why, in sentences.
    """

    points: tuple[Point, ...]
    visits: Mapping[str, tuple[Visit, ...]]
    spent_s: float
    is_complete: bool
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Record:
    """What was seen of one setting."""

    planned: PlannedPoint
    visits: list[Visit]
    point: Point | None = None
    failure: Finding | None = None


def run_sweep(
    subject: Subject,
    plan: Plan,
    *,
    clock: Clock,
    budget_s: float,
    slos: Sequence[Slo] = (),
    on_visit: Callable[[SweepState], None] = lambda state: None,
    save: Callable[[SweepResult], None] = lambda result: None,
    stop: Callable[[], bool] = lambda: False,
    resume_from: SweepResult | None = None,
) -> SweepResult:
    """Measure the plan's points on the subject within `budget_s` seconds of the clock, loading included.

    After every visit `on_visit` gets the state and `save` what there is so far; `stop` is asked before every visit.
    A setting that fails becomes a FAILED point and the rest goes on. `resume_from` is what `save` got of an earlier
    sweep of the same plan; its visits and its time count. Raises UsageError for a budget that no point fits in.
    """
    if budget_s <= 0:
        raise UsageError(f"budget: a sweep needs time, not {budget_s:g} s; give two minutes for a usual one")
    sweep = _Sweep(subject, plan, clock=clock, budget_s=budget_s, slos=tuple(slos), resume_from=resume_from)
    was_stopped = False
    last = None
    while (planned := next_setting(sweep.state(last))) is not None:
        was_stopped = stop()
        if was_stopped:
            break
        sweep.visit(planned)
        last = planned.key
        on_visit(sweep.state(last))
        save(sweep.result(is_complete=False))
    if not was_stopped and sweep.needs_last_anchor(last):
        sweep.visit(plan.anchor)
        on_visit(sweep.state(plan.anchor.key))
    sweep.update_all()
    result = sweep.result(is_complete=not was_stopped and sweep.has_all)
    save(result)
    if not was_stopped and not any(point.throughput for point in result.points):
        raise UsageError(sweep.why_nothing())
    return result


class _Sweep:
    """The records of a running sweep."""

    def __init__(
        self,
        subject: Subject,
        plan: Plan,
        *,
        clock: Clock,
        budget_s: float,
        slos: tuple[Slo, ...],
        resume_from: SweepResult | None,
    ) -> None:
        self._subject = subject
        self._plan = plan
        self._clock = clock
        self._budget_s = budget_s
        self._slos = slos
        self._records = {planned.key: _Record(planned=planned, visits=[]) for planned in plan.points}
        self._anchor_rates: list[float] = []
        self._spent_before_s = 0.0
        if resume_from is not None:
            self._resume(resume_from)
        self._start_ns = clock.now_ns()

    @property
    def has_all(self) -> bool:
        """Whether every planned point was measured or failed."""
        return all(record.point is not None for record in self._records.values())

    @property
    def _spent_s(self) -> float:
        return self._spent_before_s + (self._clock.now_ns() - self._start_ns) / NS_PER_S

    def state(self, current: str | None) -> SweepState:
        """Where it stands."""
        anchor = self._records[self._plan.anchor.key]
        return SweepState(
            plan=self._plan,
            points=tuple(
                PointState(
                    planned=record.planned,
                    num_visits=len(record.visits),
                    point=record.point,
                    is_failed=record.failure is not None,
                )
                for record in self._records.values()
            ),
            spent_s=self._spent_s,
            budget_s=self._budget_s,
            visit_s=max((visit.duration_s for visit in anchor.visits[1:]), default=0.0),
            current=current,
            slos=self._slos,
        )

    def visit(self, planned: PlannedPoint) -> None:
        """One visit, and the setting's point anew."""
        record = self._records.setdefault(planned.key, _Record(planned=planned, visits=[]))
        try:
            trial = self._subject.open(planned.setting)
            try:
                record.visits.append(trial.visit())
            finally:
                trial.close()
        except JobStopped:
            raise
        except (SetpointError, RuntimeError, MemoryError) as error:  # RuntimeError: what torch raises
            record.failure = _failure(error)
        self._update(record)

    def needs_last_anchor(self, last: str | None) -> bool:
        """Whether the sweep did not end with the anchor yet."""
        anchor = self._records[self._plan.anchor.key]
        return last is not None and last != self._plan.anchor.key and anchor.failure is None

    def result(self, *, is_complete: bool) -> SweepResult:
        """What there is so far."""
        records = [record for record in self._records.values() if record.point is not None]
        missing = [record.planned.key for record in self._records.values() if record.point is None]
        notes = list(self._plan.notes)
        if missing:
            notes.append(f"not measured, as time was up: {', '.join(missing)}; a larger budget reaches them")
        return SweepResult(
            points=tuple(record.point for record in records if record.point is not None),
            visits={record.planned.key: tuple(record.visits) for record in records},
            spent_s=self._spent_s,
            is_complete=is_complete,
            notes=tuple(notes),
        )

    def update_all(self) -> None:
        """Every point anew: drift of the anchor, which shows late, concerns all of them."""
        for record in self._records.values():
            self._update(record)

    def why_nothing(self) -> str:
        """The message for a sweep without a single measured point."""
        failures = [record.failure for record in self._records.values() if record.failure is not None]
        if failures:
            return f"no setting could be measured; the first failed with: {failures[0].evidence}"
        spent = format_duration(self._spent_s)
        return (
            f"budget: {format_duration(self._budget_s)} is too little for one point, {spent} went into warming up; "
            f"give at least {format_duration(max(10 * self._spent_s, 2 * self._budget_s))}"
        )

    def _update(self, record: _Record) -> None:
        if not record.visits and record.failure is None:
            return
        if record.planned.key == self._plan.anchor.key:
            self._anchor_rates = visit_rates(record.visits)
        workload = self._subject.workload
        record.point = make_point(
            record.planned,
            record.visits,
            anchor_rates=self._anchor_rates,
            slos=self._slos,
            items_per_token=workload.num_items / workload.num_tokens if workload.num_tokens else None,
            failure=record.failure,
        )

    def _resume(self, earlier: SweepResult) -> None:
        self._spent_before_s = earlier.spent_s
        for point in earlier.points:
            planned = PlannedPoint(
                setting=point.setting,
                load_name=point.load_name,
                load=int(point.load),
                series=point.series,
                role="refinement",
            )
            record = self._records.setdefault(point.key, _Record(planned=planned, visits=[]))
            record.visits = list(earlier.visits.get(point.key, ()))
            if point.verdict is Verdict.FAILED:
                record.failure = point.findings[0]
        self.update_all()


def _failure(error: BaseException) -> Finding:
    text = str(error) or type(error).__name__
    memory = isinstance(error, (OutOfMemory, MemoryError))
    advice = "use a smaller load, or free memory" if memory else "see the message; other settings were measured"
    return Finding(verdict=Verdict.FAILED, evidence=f"{type(error).__name__}: {text}", advice=advice)
