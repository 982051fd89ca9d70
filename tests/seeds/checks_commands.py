"""Programs of the originals, under their own names and flags."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus

from seeds.bed import SeedBed
from seeds.statement import clear_error, works
from slicewise_testbed.ports import free_port
from slicewise_testbed.testbed import wait_until


def _start(bed: SeedBed, *flags: str) -> tuple[str, str]:
    """The address and the log of a second extender that never decides."""
    return run_extender(bed, "gpu-admission", *flags)


def run_extender(
    bed: SeedBed,
    name: str,
    *flags: str,
    route: str = "",
    environment: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """The address and the log of the program, which answered on its route and was stopped."""
    port = free_port()
    words = {"port": port, "kubeconfig": bed.cluster._user.path}
    given = [flag.format(**words) for flag in flags]
    variables = {key: text.format(**words) for key, text in (environment or {}).items()}
    program = bed.type(f"command -v {name}", check=True).stdout.strip()
    bed.cluster.bed.spawn(name, [program, *given], variables)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert bed.cluster.bed.alive(name), bed.cluster.bed.tail(name)
        try:
            return urllib.request.urlopen(f"{url}/version", timeout=2).status == 200
        except OSError:
            return False

    try:
        wait_until(answers, 30, lambda: bed.cluster.bed.tail(name))
        if route:
            assert _post(f"{url}{route}") != HTTPStatus.NOT_FOUND
        return url, bed.cluster.bed.log(name).read_text()
    finally:
        bed.cluster.bed.stop(name)


def _post(url: str) -> int:
    """The status of an empty question; one that does not decide answers that another does."""
    body, kind = b'{"Pod": {}, "NodeNames": []}', {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


BASE = ("--address=127.0.0.1:{port}", "--kubeconfig={kubeconfig}")


@works
def gpu_admission_runs(bed: SeedBed) -> None:
    """The document's command line, with a kubeconfig in the place of its placeholder."""
    _, log = _start(bed, "--address=127.0.0.1:{port}", "--v=4", "--kubeconfig", "{kubeconfig}",
                    "--logtostderr=true")  # fmt: skip
    assert '"level":"debug"' in log or "listening" in log


@works
def flag_address(bed: SeedBed) -> None:
    url, _ = _start(bed, *BASE)
    assert url.startswith("http://127.0.0.1:")
    assert "127.0.0.1:3456" in bed.type("gpu-admission --help", check=True).stdout


def _accepted(bed: SeedBed, flag: str) -> None:
    """The flag is taken, and one line says that it changes nothing."""
    done = bed.type(f"gpu-admission {flag} --version=false -priority=none")
    said = [line for line in done.stderr.splitlines() if line.startswith("accepted without effect")]
    assert len(said) == 1, done.stderr
    assert flag.partition("=")[0] in said[0]
    assert "No such option" not in done.stderr


@works
def flag_alsologtostderr(bed: SeedBed) -> None:
    _accepted(bed, "--alsologtostderr")


@works
def flag_kubeconfig(bed: SeedBed) -> None:
    _start(bed, *BASE)
    told = bed.type("gpu-admission --kubeconfig '<your kubeconfig>'")
    assert "'<your kubeconfig>' does not exist" in told.stderr


@works
def flag_log_backtrace_at(bed: SeedBed) -> None:
    _accepted(bed, "--log-backtrace-at=:0")


@works
def flag_log_dir(bed: SeedBed) -> None:
    _accepted(bed, "--log-dir=/tmp")


@works
def flag_log_flush_frequency(bed: SeedBed) -> None:
    _accepted(bed, "--log-flush-frequency=5s")


@works
def flag_logtostderr(bed: SeedBed) -> None:
    _accepted(bed, "--logtostderr=true")


@works
def flag_master(bed: SeedBed) -> None:
    _start(bed, *BASE, f"--master={bed.plane.server}")


@works
def flag_pprof_address(bed: SeedBed) -> None:
    _accepted(bed, "--pprofAddress=127.0.0.1:3457")


@works
def flag_stderrthreshold(bed: SeedBed) -> None:
    _accepted(bed, "--stderrthreshold=2")


@works
def flag_v(bed: SeedBed) -> None:
    _start(bed, *BASE, "-v=4")


@works
def flag_version(bed: SeedBed) -> None:
    for flag in ("--version", "--version=true"):
        assert "version 0." in bed.type(f"gpu-admission {flag}", check=True).stdout


@works
def flag_vmodule(bed: SeedBed) -> None:
    _accepted(bed, "--vmodule=a=1")


@clear_error
def legacy_scheduler_flags(bed: SeedBed) -> None:
    """doctor names the flags on a scheduler that runs with them, and how to get rid of them."""
    for flags in (
        ["--policy-config-file=XXX", "--use-legacy-policy-config=true"],
        ["--policy-configmap=policy"],
    ):
        findings = diagnose_scheduler(bed, flags)
        assert any(
            f"is started with {flags[0].partition('=')[0]}" in line and "up to 1.22" in line
            for line in findings
        ), findings
        assert any("slicewise scheduler-config --from" in line for line in findings)


def diagnose_scheduler(bed: SeedBed, flags: list[str]) -> list[str]:
    """What doctor says of a scheduler in kube-system that is started with these flags."""
    container = {
        "name": "kube-scheduler",
        "image": "busybox:local",
        "command": ["kube-scheduler", *flags],
    }
    # A pod that no scheduler places: only its flags are of interest.
    spec = {"schedulerName": "nobody", "containers": [container]}
    path = "/api/v1/namespaces/kube-system/pods"
    with bed.plane.api() as api:
        api.create(path, {"metadata": {"name": "kube-scheduler-old"}, "spec": spec})
        try:
            return bed.type("kubectl slicewise doctor").stdout.splitlines()
        finally:
            api.delete(f"{path}/kube-scheduler-old", gracePeriodSeconds=0)
