"""CPU and main memory beside the GPUs: what a pod asks for and what a node has."""

from slicewise.model import (
    BYTES_PER_MIB,
    Container,
    Host,
    MiB,
    MilliCpu,
    NodeNotice,
    Pod,
    phases,
    read_bytes,
    read_milli_cpu,
)


def read_pod_host(pod: Pod) -> Host:
    """The pod's effective request: the phase that peaks, for CPU and for memory."""
    if not pod.containers:
        return Host()
    cpu = [_read_cpu(container) for container in pod.containers]
    memory = [_read_memory(container) for container in pod.containers]
    peaks = list(phases(pod.containers))
    return Host(
        MilliCpu(max(sum(cpu[at] for at in phase) for phase in peaks)),
        MiB(-(-max(sum(memory[at] for at in phase) for phase in peaks) // BYTES_PER_MIB)),
    )


def read_node_host(notice: NodeNotice) -> Host | None:
    """What the node offers to pods; None when it does not say both."""
    cpu, memory = notice.allocatable.get("cpu"), notice.allocatable.get("memory")
    if cpu is None or memory is None:
        return None
    field = f"node {notice.name}: allocatable"
    return Host(
        read_milli_cpu(f"{field} cpu", cpu),
        MiB(read_bytes(f"{field} memory", memory) // BYTES_PER_MIB),
    )


def _read_cpu(container: Container) -> int:
    value = container.requests.get("cpu", container.limits.get("cpu"))
    return 0 if value is None else read_milli_cpu(f"container {container.name}: cpu", value)


def _read_memory(container: Container) -> int:
    value = container.requests.get("memory", container.limits.get("memory"))
    return 0 if value is None else read_bytes(f"container {container.name}: memory", value)
