import gzip

import pytest

from slicewise.sim.batch import ReplayJob, run_job, run_jobs

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,4,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(
    f"p{at},1000,1024,1,{600 if at % 2 else 1000}\n" for at in range(8)
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_tiny.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    return tmp_path


def outcome(done):
    return done.job, str(done.summary.allocation), done.summary.refused


def test_processes_give_the_same_answers_as_one(folder):
    jobs = [ReplayJob(folder, "tiny", seed, "best-fit") for seed in (1, 2, 3)]

    apart = sorted(map(outcome, run_jobs(jobs, 2)), key=lambda each: each[0].seed)

    assert apart == [outcome(run_job(job)) for job in jobs]


def test_learned_policy_keeps_its_full_name(folder):
    assert run_job(ReplayJob(folder, "tiny", 1, "fgd:learned")).summary.policy == "fgd:learned"


def test_departures_give_means_over_time(folder):
    summary = run_job(ReplayJob(folder, "tiny", 1, "best-fit", departures=0.5)).summary

    assert 0.0 < summary.allocated < 100.0
