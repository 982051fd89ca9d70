"""What gpushare's memory resource is made of, and what its containers receive."""

from slicewise.dialects.gpushare.division import measure_peak
from slicewise.dialects.gpushare.node import CGPU_DISABLED
from slicewise.dialects.gpushare.pods import GIB, MIB, GpushareNames
from slicewise.dialects.shared.dialect import AgentPart
from slicewise.dialects.shared.injection import VISIBLE, ContainerGpus, Injection, gpu_nodes
from slicewise.dialects.shared.limits import read_amount
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, one, units
from slicewise.model import HOOKED, PodRecord


def inject(held: ContainerGpus) -> Injection:
    """The GPUs, and gpushare's account of the memory in its units."""
    names = _find_names(held)
    used = -(-measure_peak(held.request, held.allocation) // names.memory_unit)
    env = {
        # The original's number was read as an NVML index, which need not be the minor number.
        VISIBLE: held.uuids,
        names.index: held.minors,
        names.pod_units: held.pod.annotations.get(names.pod_units, str(used)),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(read_amount(held.container, names.memory)),
        names.gpu_units: str(held.gpus[0].memory // names.memory_unit),
    }
    label, value = CGPU_DISABLED
    if held.labels.get(label) == value:
        env["CGPU_DISABLE"] = "true"
    return Injection(env=env, devices=gpu_nodes(held))


def flag(_: ContainerGpus, now_ns: int) -> PodRecord:
    return PodRecord({GIB.assigned: "true", GIB.assume_time: str(now_ns)})


def build_agent(names: GpushareNames) -> AgentPart:
    """The agent's part where memory is counted in this unit."""
    memory = OfferedResource(names.memory, "aliyungpushare.sock", units(names.memory_unit))
    # The number of GPUs stands on the node alone.
    edition = OfferedEdition("gpushare", (memory,), counts=((names.count, one),))
    return AgentPart(
        editions=(edition,),
        inject=inject,
        isolation=HOOKED,
        flag=flag,
        flag_times=frozenset((names.assume_time,)),
    )


def _find_names(held: ContainerGpus) -> GpushareNames:
    """The unit in which the pod was counted, told by what its container was allocated."""
    asked = read_amount(held.container, GIB.memory)
    allocated = sum(piece.memory for piece in held.slices)
    return MIB if allocated == asked else GIB
