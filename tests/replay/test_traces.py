"""Reading traces: what is there, what is missing, and what is wrong, with file and line."""

from __future__ import annotations

import numpy as np
import pytest

from zeus.errors import TraceError
from zeus.replay._table import job_table
from zeus.replay._traces import load_traces
from zeus.replay._workloads import WORKLOADS, workload_named

TRAINING = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"
POWER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"


@pytest.fixture
def folder(tmp_path):
    rows = [
        f"movielens-1m,ncf,{size},adam,1e-3,{run},{target},{epoch}"
        for size, epochs in {512: (4, 5), 1024: (4, "nan"), 4096: ("nan", "nan")}.items()
        for run, epoch in enumerate(epochs)
        for target in (0.4, 0.41)
    ]
    (tmp_path / "summary_train.csv").write_text("\n".join([TRAINING, *rows]) + "\n")
    rows = [
        f"movielens-1m,ncf,{size},adam,{limit},{10 if limit == 200 else 14},{0.8 * limit}"
        for size in (512, 1024, 2048)
        for limit in (100, 200)
    ]
    (tmp_path / "summary_power_x1.csv").write_text("\n".join([POWER, *rows, ""]))
    return tmp_path


def neumf(folder, **options):
    return job_table(load_traces(folder), "x1", workload_named("neumf"), **options)


def test_batch_sizes_that_were_never_trained_are_not_offered(folder):
    table = neumf(folder)
    # 4096 has no power trace: it does not fit. Nobody knows what becomes of 2048.
    assert table.batch_sizes == (512, 1024)
    assert table.runs.tolist() == [2, 2]
    assert table.recurrences == 2 * 2 * 2
    assert table.max_power == 200
    assert table.batch_sizes[table.default] == 1024


def test_a_default_that_was_never_trained_gives_way_to_the_next_smaller_one(folder):
    path = folder / "summary_train.csv"
    lines = [line for line in path.read_text().splitlines() if ",1024,adam," not in line]
    path.write_text("\n".join(lines) + "\n")
    table = neumf(folder)
    assert table.batch_sizes == (512,)
    assert table.batch_sizes[table.default] == 512
    table = neumf(folder, untrained="fail")
    assert table.batch_sizes[table.default] == 1024
    path.write_text("\n".join(line for line in lines if ",512,adam," not in line) + "\n")
    with pytest.raises(TraceError, match="no batch size of neumf with a power trace of x1 was"):
        neumf(folder)


def test_batch_sizes_that_were_never_trained_may_fail_instead(folder):
    table = neumf(folder, untrained="fail")
    assert table.batch_sizes == (512, 1024, 2048)
    assert table.runs.tolist() == [2, 2, 1]
    assert table.expected_epochs.tolist() == [4.5, 8.0, np.inf]
    assert table.max_power == 200
    assert table.batch_sizes[table.default] == 1024


def test_the_oracle_may_stop_a_run_and_try_again(folder):
    # One of two runs at 1024 converges in 4 epochs: 8 epochs on average, if runs are cut at 4.
    assert neumf(folder).expected_epochs[1] == 8.0


def test_the_optimum_weighs_energy_and_time(folder):
    assert neumf(folder, eta_knob=0.0).optimum.power == 1
    assert neumf(folder, eta_knob=1.0).optimum.power == 0
    best = neumf(folder).optimum
    assert best.cost == pytest.approx(4.5 * min(0.5 * 1600 + 0.5 * 2000, 0.5 * 1120 + 0.5 * 2800))


def test_another_target_must_be_recorded(folder):
    assert neumf(folder, target_metric=0.4).target_metric == 0.4
    with pytest.raises(TraceError, match=r"no target 0\.5; it has 0\.4, 0\.41"):
        neumf(folder, target_metric=0.5)


def test_a_target_that_nothing_reaches_has_no_optimum(folder):
    text = (folder / "summary_train.csv").read_text()
    (folder / "summary_train.csv").write_text(
        text.replace(",4\n", ",nan\n").replace(",5\n", ",nan\n")
    )
    with pytest.raises(TraceError, match="no batch size of neumf on x1 reaches"):
        _ = neumf(folder).optimum


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("movielens-1m,ncf,512,adam,1e-3,0,0.4,0", r"summary_train\.csv:2: `target_epoch >= 1`"),
        ("movielens-1m,ncf,x,adam,1e-3,0,0.4,3", r"summary_train\.csv:2: could not convert"),
        ("movielens-1m,ncf,1.5,adam,1e-3,0,0.4,3", r"summary_train\.csv:2: `batch_size` must be"),
        ("movielens-1m,ncf,512,adam,1e-3,0,0.4", r"summary_train\.csv:2: a line must have 8"),
        ("movielens-1m,ncf,512,adam,1e-3,0,0.4,3,9", r"summary_train\.csv:2: a line must have 8"),
        ("", "must have lines below its header"),
    ],
)
def test_a_bad_line_is_named(folder, line, message):
    (folder / "summary_train.csv").write_text(f"{TRAINING}\n{line}\n")
    with pytest.raises(TraceError, match=message):
        load_traces(folder)


def test_a_missing_column_is_named(folder):
    (folder / "summary_power_x1.csv").write_text("dataset,network,batch_size\na,b,3\n")
    with pytest.raises(TraceError, match=r"summary_power_x1\.csv:2: there is no column"):
        load_traces(folder)


def test_missing_files_and_gpus_are_named(folder, tmp_path_factory):
    with pytest.raises(TraceError, match="no power trace of y2; it has x1"):
        load_traces(folder, ["y2"])
    (folder / "summary_train.csv").unlink()
    with pytest.raises(TraceError, match=r"summary_train\.csv cannot be read: No such file"):
        load_traces(folder)
    with pytest.raises(TraceError, match="has none"):
        load_traces(tmp_path_factory.mktemp("empty"))
    with pytest.raises(TraceError, match="there is no such folder"):
        load_traces(folder / "nowhere")


def test_workloads_have_the_papers_order_and_several_names():
    assert [w.default_batch_size for w in WORKLOADS] == [192, 32, 128, 256, 1024, 1024]
    assert [w.max_epochs for w in WORKLOADS] == [16, 6, 10, 100, 100, 100]
    for name in ("NeuMF", "ncf", "movielens-1m", "neumf"):
        assert workload_named(name).dataset == "movielens-1m"
    assert workload_named("BERT (QA)").dataset == "squad"
    for wrong in ("bert_base_uncased", "gpt"):
        with pytest.raises(TraceError, match="there are deepspeech2, bert_qa"):
            workload_named(wrong)


def test_learning_rates_follow_the_batch_size_where_the_trace_has_several():
    sentiment = workload_named("bert_sa")
    assert sentiment.admits(128, 4e-7)
    assert sentiment.admits(8, 1e-7)
    assert not sentiment.admits(8, 4e-7)
    assert workload_named("shufflenetv2").admits(8, 0.1)
    assert not workload_named("shufflenetv2").admits(8, 1e-3)


def test_a_gap_in_the_power_trace_is_no_choice_of_the_oracle(folder):
    path = folder / "summary_power_x1.csv"
    lines = [line for line in path.read_text().splitlines() if ",512,adam,200," not in line]
    path.write_text("\n".join(lines) + "\n")
    table = neumf(folder, eta_knob=0.0)
    assert table.best_power.tolist() == [0, 1]
