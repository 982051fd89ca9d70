"""Claims and their pods on a real node, and what came of them."""

import subprocess
import sys
from pathlib import Path

from e2e.gpu_cluster import pod
from e2e.reports import COMMAND
from slicewise.model.claim import DRIVER
from slicewise_testbed.testbed import wait_until

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = "claims"
OURS = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]


def share(cores=None, memory=None, name="gpu", **more):
    """One request of a claim."""
    asked = {"cores": cores, "memory": memory}
    requests = {key: str(value) for key, value in asked.items() if value is not None}
    capacity = {"capacity": {"requests": requests}} if requests else {}
    return {"name": name, "exactly": {"deviceClassName": DRIVER, **capacity, **more}}


def template(name, *requests, **more):
    devices = {"requests": list(requests), **more}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


def device_class(name=DRIVER, **spec):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": OURS, **spec},
    }


def speaking(name, limits=None):
    """A pod whose container says what it was given."""
    made = pod(name, limits)
    made["spec"]["containers"][0]["command"] = COMMAND
    return made


def claiming(name, claim):
    """One whose container uses all of one claim made from a template."""
    made = speaking(name)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


class ClaimNode:
    """The agent's node, whose GPUs are given out by claims, or by both."""

    def __init__(self, node, mode="all"):
        self.node = node
        self.cluster = node.cluster
        self.cluster.make_namespace(CLAIMS)
        self._mode = mode
        self.start_agent()
        self.cluster.apply(device_class())

    def start_agent(self, *flags):
        self._pid = self.node.start_agent(f"--dra={self._mode}", *flags)

    def signal_agent(self, word):
        """The agent has got a signal that it survives, such as STOP."""
        self.node.bed.run(f"signal-{word}", ["kill", f"-{word}", str(self._pid)])

    def ask(self, *words, code=0):
        """What `slicewise` prints with these words, as an administrator."""
        environment = self.node.plane.kubectl_environment()
        command = [Path(sys.executable).with_name("slicewise"), *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def apply(self, *documents):
        self.cluster.apply(*documents, namespace=CLAIMS)

    def run(self, name, *requests, **more):
        """A pod that runs with these requests: what it was allocated, and what it reports."""
        self.apply(template(name, *requests, **more), claiming(name, name))
        return self.wait(name)

    def wait(self, name, seconds=60):
        def complain():
            events = self.node.plane.kubectl("get", "events", "-n", CLAIMS).splitlines()[-8:]
            tails = (self.node.agent_tail(), self.cluster.bed.tail("extender"))
            return f"{self.find(name)['status']} {events} {tails}"

        wait_until(lambda: self.find(name)["status"]["phase"] == "Running", seconds, complain)
        found = self.find(name)
        wait_until(lambda: self.node.reports(found).get("main"), 20, self.node.agent_tail)
        return self.results(name), self.node.reports(found)["main"][-1]

    def find(self, name):
        with self.node.plane.api() as api:
            return api.get(f"/api/v1/namespaces/{CLAIMS}/pods/{name}")

    def results(self, name):
        """The devices of the pod's claims, as the scheduler allocated them."""
        status = self.find(name)["status"]
        listed = status.get("resourceClaimStatuses", [])
        names = [each["resourceClaimName"] for each in listed]
        if "extendedResourceClaimStatus" in status:
            names.append(status["extendedResourceClaimStatus"]["resourceClaimName"])
        with self.node.plane.api() as api:
            claims = [
                api.get(f"{GROUP}/namespaces/{CLAIMS}/resourceclaims/{each}") for each in names
            ]
        return [
            result
            for each in claims
            for result in each["status"]["allocation"]["devices"]["results"]
        ]

    def slices(self):
        with self.node.plane.api() as api:
            return api.get(f"{GROUP}/resourceslices")["items"]

    def delete(self, name):
        with self.node.plane.api() as api:
            api.delete(f"/api/v1/namespaces/{CLAIMS}/pods/{name}", gracePeriodSeconds=0)

    def gpus_of(self, results):
        """The GPUs of these devices, in the order of their indexes."""
        names = {each["device"] for each in results}
        return [gpu for gpu in self.node.gpus if gpu.uuid.lower() in names]

    def check(self, results, report):
        """The container found exactly the GPUs of its claim, and their amounts."""
        gpus = self.gpus_of(results)
        found = {path for path in report.devices if path.removeprefix("/dev/nvidia").isdecimal()}
        assert found == {f"/dev/nvidia{gpu.minor}" for gpu in gpus}
        assert report.variables["NVIDIA_VISIBLE_DEVICES"] == "void"
        told = [
            part.split(":")
            for name, value in report.variables.items()
            if name.startswith("SLICEWISE_SHARE_")
            for part in value.split(",")
        ]
        assert {uuid for uuid, _, _ in told} == {gpu.uuid for gpu in gpus}
        return sorted((int(cores), int(memory)) for _, cores, memory in told)

    def clear(self):
        """No pods, no agent, no templates, no classes and no slices."""
        self.node.clear()
        with self.node.plane.api() as api:
            api.delete(f"{GROUP}/namespaces/{CLAIMS}/resourceclaimtemplates")
            for kind in ("deviceclasses", "resourceslices"):
                for found in api.get(f"{GROUP}/{kind}")["items"]:
                    api.delete(f"{GROUP}/{kind}/{found['metadata']['name']}")
