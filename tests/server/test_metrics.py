"""What the server reports to Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from tests.server.pages.world import Life, service, spec

from zeus.optimizer.batch_size.api._commands import SumJobs
from zeus.server import create_app
from zeus.server._metrics import Metrics
from zeus.store import Store

SAMPLES = {
    "zeus_jobs",
    "zeus_jobs_compared",
    "zeus_jobs_in_trouble",
    "zeus_jobs_predicted",
    "zeus_trials_energy_joules",
    "zeus_trials_running",
    "zeus_trials_seconds",
    "zeus_trials_unmeasured",
    "zeus_trials_wasted_joules",
    "zeus_commands_total",
    "zeus_transactions_total",
    "zeus_pipelines",
    "zeus_pipeline_ranks_heard",
    "zeus_services",
    "zeus_services_heard",
    "zeus_pipeline_plans_total",
    "zeus_pipeline_planning_seconds_total",
    "zeus_http_requests_total",
    "zeus_http_request_seconds_bucket",
    "zeus_http_request_seconds_count",
    "zeus_http_request_seconds_sum",
}


def samples(metrics: Metrics) -> list:
    text = bytes(metrics.response().body).decode()
    return [each for family in text_string_to_metric_families(text) for each in family.samples]


def test_each_application_has_metrics_of_its_own(tmp_path):
    stores = [Store(f"sqlite:///{tmp_path}/{number}.db") for number in range(2)]
    first, second = (create_app(store).state.metrics for store in stores)
    first.count("POST", "/api/jobs", 200, 0.003)
    first.count("BREW", "", 501, 3.0)
    found = samples(first)
    assert {each.name for each in found} == SAMPLES
    counted = [each for each in found if each.name == "zeus_http_requests_total"]
    assert [(each.labels, each.value) for each in counted] == [
        ({"method": "POST", "route": "/api/jobs", "status": "200"}, 1.0),
        ({"method": "other", "route": "", "status": "501"}, 1.0),
    ]
    buckets = [each for each in found if each.name == "zeus_http_request_seconds_bucket"]
    assert {each.labels["le"]: each.value for each in buckets}["0.005"] == 1.0
    assert {each.labels["le"]: each.value for each in buckets}["+Inf"] == 2.0
    assert not any(each.name == "zeus_http_requests_total" for each in samples(second))
    for store in stores:
        store.close()


def test_counters_keep_all_digits(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    app = create_app(store)
    app.state.writer.commands = 12_345_679
    assert [each.value for each in samples(app.state.metrics) if "commands" in each.name] == [
        12_345_679
    ]
    store.close()


def test_what_was_saved_is_there_once_it_is_known(storage):
    jobs, clock = service(storage)
    store = Store(storage)
    metrics = create_app(store).state.metrics
    Life(jobs, clock, spec()).recur(5)
    totals = jobs.do(SumJobs())
    found = {each.name: each.value for each in samples(metrics)}
    assert found["zeus_jobs_compared"] == 1
    assert found["zeus_saved_energy_joules"] == totals.saved_energy
    assert found["zeus_default_energy_joules"] == totals.default_energy
    assert found["zeus_saved_time_seconds"] == totals.saved_time
    assert found["zeus_saved_cost_joules"] == totals.saved_cost
    assert found["zeus_trials_wasted_joules"] == totals.wasted
    jobs.close()
    store.close()
