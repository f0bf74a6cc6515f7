"""Whatever nodes and tasks do, the Ray engine does not wait for ever: on a cluster and a clock that are made up."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_engine import square, tasks

from albert_data.errors import WorkerError
from albert_data.jobs import ray_engine, ray_nodes
from albert_data.jobs.ray_worker import RESULT, RETRY, TaskAnswer, run_task

pytest.importorskip("ray")  # CI installs it: see the Makefile

A, B, C = (letter * 56 for letter in "abc")  # a host is called by the letter


@dataclass(eq=False)
class Handed:
    """What Ray was given: a task, or None for a node to get ready.

    node, begun: where and since when it runs; number: 1 for the first time that its task runs
    """

    task: Any
    settings: dict[str, Any]
    node: str = ""
    begun: float = 0.0
    number: int = 0

    def may_run_on(self, node: str) -> bool:
        selected = self.settings["label_selector"].get(ray_nodes.NODE_LABEL, "!in()")
        names = selected.removeprefix("!").removeprefix("in(").removesuffix(")").split(",")
        return (node in names) != selected.startswith("!")

    def takes_cpu(self) -> bool:
        return self.task is not None and self.settings["num_cpus"] > 0


Answer = TaskAnswer | Exception
Work = Callable[[Handed, float], Answer | None]


def end_well(handed: Handed, seconds: float = 0.0) -> TaskAnswer:
    return TaskAnswer(kind=RESULT, value=square(handed.task), node=handed.node)


def fail(handed: Handed) -> TaskAnswer:
    return TaskAnswer(kind=RETRY, value=WorkerError("no"), node=handed.node)


def hang_first(*numbers: int) -> Work:
    """These tasks never end when they run for the first time."""
    return lambda handed, seconds: None if handed.number == 1 and handed.task.number in numbers else end_well(handed)


class FakeRay:
    """Stands for the module ray. Only waiting moves its clock, by a second at a time.

    cpus: of each node
    work: what a task gives after so many seconds on its node, and None as long as it runs
    ready_seconds: that nodes take to get ready; 0 for those that are not named
    events: what happens at a second
    most: the most tasks that were handed out at a time; starts: how often each task ran
    """

    def __init__(self, cpus: dict[str, int], work: Work = end_well) -> None:
        self.cpus, self.work, self.now = cpus, work, 0.0
        self.ready_seconds: dict[str, float] = {}
        self.events: dict[float, Callable[[], None]] = {}
        self.most, self.starts, self.has_head = 0, Counter[int](), True
        self._handed = list[Handed]()
        self._answers: dict[Handed, Answer] = {}
        self._exceptions = import_module("ray.exceptions")

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="head:1", get_node_id=lambda: "")

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerHostname": name[0], "NodeManagerAddress": name[0]}
            | {"Alive": True, "Resources": {"CPU": float(count)}}
            for name, count in self.cpus.items()
        ]

    def put(self, shipment: Any) -> str:
        return "reference"

    def remote(self, **settings: Any) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            def hand(name: str, sent: Any, task: Any = None) -> Handed:
                handed = Handed(task, settings)
                if function is not run_task:
                    handed.node, handed.begun = settings["scheduling_strategy"].node_id, self.now
                self._handed.append(handed)
                self.most = max(self.most, sum(one.task is not None for one in self._handed))
                return handed

            return SimpleNamespace(remote=hand, options=lambda **more: self.remote(**settings | more)(function))

        return wrap

    def wait(self, refs: list[Handed], num_returns: int, timeout: float) -> tuple[list[Handed], list[Handed]]:
        end = self.now + timeout
        while sum(ref in self._answers for ref in refs) < num_returns and self.now < end:
            self._pass_second()
        done = [ref for ref in refs if ref in self._answers][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: Handed) -> TaskAnswer:
        answer = self._answers[ref]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, ref: Handed, force: bool) -> None:
        if ref in self._handed:
            self._end(ref, self._exceptions.TaskCancelledError())

    def lose(self, node: str) -> None:
        self.cpus.pop(node, None)
        for ref in [ref for ref in self._handed if ref.node == node]:
            self._end(ref, self._exceptions.NodeDiedError(f"{node} died"))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _end(self, ref: Handed, answer: Answer) -> None:
        self._handed.remove(ref)
        self._answers[ref] = answer

    def _pass_second(self) -> None:
        """Let what is due happen, end what has an answer, and then begin what finds a CPU."""
        self.now += 1
        assert self.now < 100_000, "it waits for ever"
        for moment in [moment for moment in self.events if moment <= self.now]:
            self.events.pop(moment)()
        for ref in [ref for ref in self._handed if ref.node]:
            if (answer := self._find_answer(ref)) is not None:
                self._end(ref, answer)
        for ref in [ref for ref in self._handed if not ref.node]:
            used = Counter(one.node for one in self._handed if one.takes_cpu())
            room = {name: count - used[name] for name, count in self.cpus.items() if ref.may_run_on(name)}
            if free := [name for name, count in room.items() if count > 0 or not ref.takes_cpu()]:
                self.starts[ref.task.number] += 1
                ref.node, ref.begun, ref.number = free[0], self.now, self.starts[ref.task.number]

    def _find_answer(self, ref: Handed) -> Answer | None:
        seconds = self.now - ref.begun
        if ref.task is not None:
            answer = self.work(ref, seconds)
            return replace(answer, seconds=seconds) if isinstance(answer, TaskAnswer) else answer
        is_ready = seconds >= self.ready_seconds.get(ref.node, 0.0)
        return TaskAnswer(kind=RESULT, value=None, node=ref.node) if is_ready else None


Make = Callable[..., ray_engine.RayEngine]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes an engine on a cluster that is made up. cap: --workers."""

    def make_engine(ray: FakeRay, cap: int | None = None) -> ray_engine.RayEngine:
        for module in (ray_engine, ray_nodes):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: ray.now, sleep=ray.sleep))
        monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
        monkeypatch.setattr(ray_engine, "_answers", lambda address: ray.has_head)
        monkeypatch.setattr(ray_engine.RayEngine, "_ask_for_cpus", lambda self, count: None)
        return ray_engine.RayEngine(num_workers=cap)

    return make_engine


def check(engine: ray_engine.RayEngine, count: int) -> None:
    assert Counter(engine.run(square, tasks(count))) == Counter((task, square(task)) for task in tasks(count))


# ---- nodes that leave ----


@pytest.mark.parametrize("cap", [None, 1, 3])
def test_tasks_that_avoid_a_node_run_there_when_all_others_have_left(make, cap):
    """They failed on the one node, and wait for the other, which is busy and then lost."""
    ray = FakeRay({A: 1, B: 1})

    def work(handed: Handed, seconds: float) -> TaskAnswer | None:
        if handed.node == B:
            return None
        return fail(handed) if handed.number == 1 else end_well(handed)

    ray.work, ray.events = work, {50.0: lambda: ray.lose(B)}
    check(make(ray, cap), 6)
    assert ray.now < 200  # nobody waits for a task to count as hung


def test_a_task_that_may_still_run_somewhere_is_not_begun_anew_when_a_node_leaves(make):
    ray = FakeRay({A: 1, B: 1, C: 1}, lambda handed, seconds: end_well(handed) if seconds > 60 else None)
    ray.events = {30.0: lambda: ray.lose(C)}
    check(make(ray), 2)
    assert ray.starts == {0: 1, 1: 1}


def test_a_result_that_is_lost_with_its_node_costs_no_try(make, monkeypatch):
    """Ray keeps results of more than 100 kB on the node."""
    monkeypatch.setattr(ray_engine, "_TRIES", 1)
    lost = import_module("ray.exceptions").ObjectLostError("id", None, "")
    ray = FakeRay({A: 1}, lambda handed, seconds: lost if handed.number == 1 else end_well(handed))
    check(make(ray), 3)
    assert ray.starts == {0: 2, 1: 2, 2: 2}


# ---- tasks that hang ----


@pytest.mark.parametrize("cap", [1, 2, 3, None])
def test_tasks_that_hang_get_a_copy_whatever_the_cap_and_the_others_are_done(make, cap):
    """Three hang, so a cap of three or fewer has no room left, and there is more to hand out."""
    ray = FakeRay({A: 3, B: 3}, hang_first(0, 1, 2))
    check(make(ray, cap), 40)
    assert ray.starts == {number: 2 if number < 3 else 1 for number in range(40)}
    assert cap is None or ray.most <= cap + 1


def test_a_copy_that_hangs_too_is_followed_by_another_after_twice_the_time(make):
    ray = FakeRay({A: 4}, lambda handed, seconds: end_well(handed) if handed.number == 3 else None)
    check(make(ray, 1), 1)
    assert 1800 < ray.now < 1820


def test_a_task_that_failed_on_one_node_and_hangs_on_the_only_cpu_of_the_other_runs_on_the_first_again(make):
    """Its first copy waits for that CPU too."""
    ray = FakeRay({A: 1, B: 1})

    def work(handed: Handed, seconds: float) -> TaskAnswer | None:
        if handed.number == 1:
            return fail(handed)
        return None if handed.node == B else end_well(handed)

    ray.work = work
    check(make(ray), 2)
    assert ray.starts == {0: 3, 1: 2}  # the second never got that CPU


def test_when_a_copy_ends_what_hangs_is_ended_and_its_cpu_is_free(make):
    """One after another hangs, more than there are CPUs."""
    ray = FakeRay({A: 2}, hang_first(*range(0, 20, 4)))
    check(make(ray, 1), 20)
    assert ray.now < 5 * 620  # and a task that hung does not make the engine wait longer for the next


def test_a_long_task_takes_no_cpu_from_others_that_are_still_to_be_done(make):
    ray = FakeRay({A: 2}, lambda handed, seconds: end_well(handed) if handed.task.number or seconds > 1500 else None)
    check(make(ray, 2), 1000)
    assert ray.starts[0] == 1


def test_two_copies_that_end_at_once_give_one_result(make):
    ray = FakeRay({A: 2}, lambda handed, seconds: end_well(handed) if handed.begun + seconds >= 650 else None)
    check(make(ray, 2), 1)
    assert ray.starts == {0: 2}


def test_a_task_is_not_tried_again_while_a_copy_of_it_runs(make):
    """The copies fail, as on a full disk, and the first try ends well after an hour."""

    def work(handed: Handed, seconds: float) -> TaskAnswer | None:
        if handed.number > 1:
            return fail(handed)
        return end_well(handed) if seconds >= 3600 else None

    ray = FakeRay({A: 4, B: 1}, work)
    check(make(ray, 1), 1)
    assert ray.starts == {0: 3}  # after 10 and 30 minutes


@pytest.mark.parametrize("cpus", [{A: 1}, {A: 2, B: 1}, {C: 0, A: 2}])
@pytest.mark.parametrize("count", [3, 40])
def test_when_tasks_that_hang_hold_all_cpus_a_copy_runs_beside_them(make, cpus, count):
    """But not on a node without a CPU, as the head often is."""
    ray, copies = FakeRay(cpus, hang_first(0, 1, 2)), list[Handed]()
    hang = ray.work
    ray.work = lambda handed, seconds: (copies.append(handed) if handed.number > 1 else None, hang(handed, seconds))[1]
    check(make(ray), count)
    assert ray.starts == {number: 2 if number < 3 else 1 for number in range(count)}
    assert ray.now < 3 * 620
    assert {copy.node for copy in copies} <= {A, B}
    assert sum(copy.takes_cpu() for copy in copies) < len(copies)


def test_where_copies_hang_too_all_tasks_get_one_in_turn_and_one_at_a_time(make):
    """Only the second copy of the last task ends, and with it the hang."""
    ray = FakeRay({A: 3})
    ray.work = lambda handed, seconds: end_well(handed) if ray.starts[2] == 2 else None
    check(make(ray, 3), 3)
    assert ray.most == 3 + 3
    assert 600 + 1200 + 1200 < ray.now < 3100


def test_tasks_that_take_long_on_all_cpus_are_not_ended_and_few_run_twice(make):
    ray = FakeRay({A: 20}, lambda handed, seconds: end_well(handed) if seconds >= 5 * 3600 else None)
    check(make(ray), 20)
    assert ray.now < 5 * 3600 + 60
    assert sum(ray.starts.values()) <= 20 + 15


def test_a_day_in_which_no_task_ends_ends_the_run_with_one_line_after_one_for_each_round_of_copies(
    make, monkeypatch, caplog
):
    monkeypatch.setattr(ray_engine, "_END_SECONDS", 3 * 3600.0)
    ray = FakeRay({A: 1, B: 2}, lambda handed, seconds: None)
    says = (
        "^no task has ended for 3 hours, such as file.txt, bytes 0 to 1; see whether a disk or a store hangs, and give"
    )
    with pytest.raises(WorkerError, match=says):
        check(make(ray), 30)
    assert ray.now < 3 * 3600 + 10
    assert caplog.messages[0] == "file.txt, bytes 0 to 1 has not ended after 10 minutes; another CPU does it too"
    assert len(caplog.messages) <= 3
    assert not ray._handed


def test_the_end_of_a_run_ends_the_copies_too(make):
    def interrupt() -> None:
        raise KeyboardInterrupt

    ray = FakeRay({A: 4}, lambda handed, seconds: None)
    ray.events = {700.0: interrupt}
    with pytest.raises(KeyboardInterrupt):
        check(make(ray, 1), 1)
    assert ray.most == 2
    assert not ray._handed


# ---- nodes that do not get ready ----


def test_a_node_that_was_late_is_waited_for_only_shortly_in_the_next_runs_and_joins_when_it_answers(make, caplog):
    ray = FakeRay({A: 1, B: 1})
    ray.ready_seconds = {B: 3600.0}
    engine, used = make(ray), list[float]()
    for _ in range(3):
        began = ray.now
        check(engine, 4)
        used.append(ray.now - began)
    assert used[0] > 600
    assert max(used[1:]) < 60
    told = [float(seconds) for seconds in re.findall(r"get ready in (\d+) seconds", caplog.text)]
    assert told == [pytest.approx(seconds, abs=5) for seconds in used]
    ray.ready_seconds, nodes = {}, set[str]()
    ray.work = lambda handed, seconds: nodes.add(handed.node) or end_well(handed)
    check(engine, 4)
    assert nodes == {A, B}


def test_the_only_node_has_its_whole_time_again_after_it_was_late(make):
    ray = FakeRay({A: 1})
    ray.ready_seconds = {A: 3600.0}
    engine = make(ray)
    with pytest.raises(WorkerError, match=r"^node a did not get ready in 6\d\d seconds; remove it from the cluster$"):
        check(engine, 1)
    ray.ready_seconds = {A: 300.0}
    check(engine, 1)


def test_a_head_that_is_lost_while_nodes_get_ready_is_told(make):
    ray = FakeRay({A: 1})
    ray.ready_seconds, ray.events = {A: 500.0}, {10.0: lambda: setattr(ray, "has_head", False)}
    with pytest.raises(WorkerError, match="^the head of the Ray cluster at head:1 does not answer any more"):
        check(make(ray), 1)
    assert ray.now < 60


def test_a_head_that_is_lost_while_it_is_asked_is_told(make):
    class LostRay(FakeRay):
        def put(self, shipment: Any) -> str:
            self.has_head = False
            return "reference"

        def nodes(self) -> list[dict[str, Any]]:
            while not self.has_head:  # Ray returns from no call then
                time.sleep(0.01)
            return super().nodes()

    ray = LostRay({A: 1})
    with pytest.raises(WorkerError, match="^the head of the Ray cluster at head:1 does not answer any more"):
        check(make(ray), 1)
    ray.has_head = True


def test_a_head_that_is_lost_after_all_work_is_no_error(make, monkeypatch):
    asked = list[dict[str, Any]]()
    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", lambda **wanted: asked.append(wanted))
    ray = FakeRay({A: 1})
    for ray.has_head in (True, False):
        engine = make(ray)
        engine._has_asked = True
        engine.close()
    assert asked == [{}]  # of the head that answers


# ---- all of that at once ----


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fates=st.lists(st.lists(st.sampled_from(["well", "fail", "hang", "long"]), max_size=3), min_size=1, max_size=8),
    moments=st.tuples(*[st.floats(1, 2000)] * 3),
    cap=st.sampled_from([None, 1, 2, 5]),
    cpus=st.sampled_from([1, 3, 25]),
)
def test_every_task_comes_back_once_whatever_happens(make, monkeypatch, fates, moments, cap, cpus):
    """fates: how each task ends, the first times that it runs; cpus: of the node that stays."""
    monkeypatch.setattr(ray_nodes, "_FAILURES", 100)

    def work(handed: Handed, seconds: float) -> TaskAnswer | None:
        fate = [*fates[handed.task.number], *["well"] * handed.number][handed.number - 1]
        if fate == "hang" or (fate == "long" and seconds < 1000):
            return None
        return fail(handed) if fate == "fail" else end_well(handed)

    ray = FakeRay({A: cpus, B: 1}, work)
    first, second, third = sorted(moments)
    ray.events = {
        first: lambda: ray.lose(B),
        second + 1: lambda: ray.cpus.update({C: 2}),
        third + 2: lambda: ray.lose(C),
    }
    check(make(ray, cap), len(fates))
    assert not ray._handed
