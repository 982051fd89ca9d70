from click.testing import CliRunner

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.main import main
from slicewise.extender.routes import build_handler
from slicewise.extender.service import Extender
from slicewise.httpd import ThreadedServer


def ask(*arguments, limits):
    pod = builders.pod(limits=limits)
    extender = Extender(FakeState(builders.node("a", 1)), FakeWriter(pod))
    with ThreadedServer(build_handler(extender)) as server:
        return CliRunner().invoke(main, ["why", *arguments, "--url", server.url])


def test_refused_pod_is_told_what_would_fit():
    result = ask("p0", limits={"slicewise.io/cores": 50, "slicewise.io/memory": 50000})

    assert result.exit_code == 0
    assert "0 of 1 nodes can take it; 1: No GPU is large enough" in result.output
    assert "smallest change: ask for 40960 MiB of each GPU instead of 50000 (node a)" in (
        result.output
    )
    assert "gpu 0 (NVIDIA A100-SXM4-40GB): lacks 9040 MiB" in result.output


def test_fitting_pod_is_told_its_best_place():
    result = ask("default/p0", limits={"slicewise.io/gpu": 1})

    assert "best now: node a, c0: all of gpu 0 (NVIDIA A100-SXM4-40GB)" in result.output


def test_unknown_pod_is_an_error():
    result = ask("nobody", limits={})

    assert result.exit_code == 1
    assert "pod 'default/nobody': not found" in result.output


def test_unreachable_extender_is_an_error():
    result = CliRunner().invoke(main, ["why", "p", "--url", "http://127.0.0.1:1"])

    assert result.exit_code == 1
    assert "pass --url" in result.output
