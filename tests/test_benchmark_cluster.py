"""The simulation of a cluster counts requests and seconds as the code and the store have them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from albert_data.pipeline.mapping import RUN_BYTES
from benchmarks import cluster
from benchmarks.cluster import find_step, main, measure_plan
from benchmarks.object_store import StepRequests, measure_cleaning, measure_publishing, measure_resuming


def test_a_store_answers_as_fast_as_the_slower_kind_of_requests():
    requests = StepRequests(gets=55_000, puts=70_000, gets_spread=True)
    assert requests.least_seconds(1) == requests.least_seconds(4) == 20
    assert StepRequests(gets=55_000, puts=0, gets_spread=True).least_seconds(4) == 2.5
    assert requests.dollars == pytest.approx(0.022 + 0.35)


def test_publishing_is_bounded_by_answers_or_by_the_rate_of_the_store():
    # 3 requests for each of 16,000 shards, 32 at once, in 0.1 s; then 16 pages of a listing.
    assert measure_publishing(16_000, 100, by_tasks=False) == pytest.approx(150 + 1.6)
    # 160 tasks on 10 CPUs: 16 times 4 rounds of HEAD and COPY and one DELETE. On 1,000 CPUs the rate of writes decides.
    assert measure_publishing(16_000, 10, by_tasks=True) == pytest.approx(16 * 0.9 + 1.6)
    assert measure_publishing(16_000, 1000, by_tasks=True) == pytest.approx(32_000 / 3500 + 1.6)


def test_cleaning_and_resuming_count_each_file():
    assert measure_cleaning(16_000, in_batches=False) == pytest.approx(50)
    assert measure_cleaning(16_000, in_batches=True) == pytest.approx(16_000 / 3500)
    pages, runs = (2 + 3 + 4 + 4) * 0.1, 2000
    assert measure_resuming(runs, 1000, 4000, 9, by_tasks=False) == pytest.approx(pages + runs * 0.3 + 12.5)
    assert measure_resuming(runs, 1000, 4000, 2, by_tasks=True) == pytest.approx(pages + 6.3 + 2 * 3.2)


def test_an_index_has_the_step_of_sorted_runs():
    assert find_step(cluster.ROW_BYTES * 4000, RUN_BYTES) == 1
    # 930,000 rows, as docs and code of sorted runs have it for a task of 20 TB, made of 39 parts.
    assert 228 <= find_step(cluster.ROW_BYTES * 930_000, RUN_BYTES) < 228 + 39


def test_cuts_of_files_are_counted():
    sizes = measure_plan(4 * 10**9, 2)
    assert sizes.num_cuts == len(sizes.tasks) - 2
    assert sizes.num_cuts > 200


def test_a_simulation_prints_what_a_build_asks_for():
    result = CliRunner().invoke(main, ["--terabytes", "0.1", "--cpus", "10"])
    assert result.exit_code == 0, result.output
    assert "0.1 TB in 100 files" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[0] for row in rows[3:10]] == ["map", "merge", "reduce", "find", "map", "merge", "reduce"]
    used = [float(part.rstrip("%")) for part in rows[-1] if part.endswith("%")]
    assert len(used) == 2
    assert 50 < used[0] <= used[1] <= 100
