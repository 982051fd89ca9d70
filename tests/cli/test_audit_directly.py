import asyncio
import json

import pytest
from click.testing import CliRunner

from nodeagent.audit.test_agent_audit import OWN, run_pod
from nodeagent.living import NODE, Scene, live
from slicewise.cli.audit import audit


async def run(scene: Scene, *more: str):
    """The command on the scene's node, while the scene lives on."""
    gpus = [
        {"model": gpu.model, "memory": gpu.memory, "uuid": gpu.uuid, "minor": gpu.minor}
        for gpu in scene.gpus
    ]
    (scene.root / "gpus.yaml").write_text(json.dumps({"gpus": gpus}))
    words = [
        "--direct",
        f"--node-name={NODE}",
        f"--kubeconfig={scene.playground.write_kubeconfig(scene.root / 'kubeconfig')}",
        f"--nvml=simulated:{scene.root / 'gpus.yaml'}",
        f"--pod-resources={scene.settings.paths.pod_resources}",
        f"--cdi={scene.cdi}",
    ]
    return await asyncio.to_thread(CliRunner().invoke, audit, [*words, "-o", "json", *more])


def test_a_node_is_audited_without_its_agent(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = await run_pod(scene, OWN, (0,))
        clean = await run(scene)
        scene.playground.delete("pods", pod.name, grace=0)
        return pod, clean, await run(scene)

    pod, clean, left = live(tmp_path, act)

    assert (clean.exit_code, json.loads(clean.output)["verdict"]) == (0, "clean")
    kinds = {each["kind"] for each in json.loads(left.output)["findings"]}
    assert (left.exit_code, kinds) == (1, {"KubeletLeak", "LeftoverSpec"})
    assert f"default/{pod.name}/c0" in left.output


def test_a_kubelet_that_is_away_leaves_it_untold(tmp_path):
    async def act(scene):
        return await run(scene, f"--pod-resources={tmp_path / 'nothing.sock'}")

    result = live(tmp_path, act)

    assert result.exit_code == 2
    assert json.loads(result.output)["gaps"][0].startswith("the kubelet: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["--nvml=simulated:/nonexistent.yaml"], "cannot read", id="no-driver"),
        pytest.param(["--nvml=magic"], "expected library or simulated", id="unknown-driver"),
    ],
)
def test_without_a_driver_nobody_can_tell(tmp_path, words, told):
    async def act(scene):
        return await run(scene, *words)

    result = live(tmp_path, act)

    assert result.exit_code == 2
    assert told in result.output
