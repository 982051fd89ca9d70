"""Four units per GPU, and a container that is told how many of them it has."""

from slicewise.dialects.shared.dialect import AgentPart
from slicewise.dialects.shared.injection import VISIBLE, ContainerGpus, Injection, gpu_nodes
from slicewise.dialects.shared.limits import read_amount
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.model import PodRecord
from toy.pods import PER_GPU, SLICES

STARTED = "toy.example.com/started"


def inject(given: ContainerGpus) -> Injection:
    slices = str(read_amount(given.container, SLICES))
    return Injection(env={VISIBLE: given.uuids, "TOY_SLICES": slices}, devices=gpu_nodes(given))


def flag(given: ContainerGpus, now_ns: int) -> PodRecord:
    return PodRecord({STARTED: "true"})


AGENT = AgentPart(
    editions=(OfferedEdition("toy", (OfferedResource(SLICES, "toy.sock", lambda _: PER_GPU),)),),
    inject=inject,
    flag=flag,
)
