"""A Node behind the interface that publishing uses, with a count of what was asked of it."""

from slicewise.kube.errors import LostError
from slicewise.model import NodeNotice


class FakeDoor:
    """Keeps one Node; `failures` answers are lost, the writes carried out or not."""

    def __init__(self, notice: NodeNotice | None) -> None:
        self.notice = notice
        self.reads = 0
        self.patches = []
        self.failures = 0
        self.carried_out = False

    async def read(self):
        self.reads += 1
        return self.notice

    async def patch(self, patch):
        self.patches.append(patch)
        if self.failures == 0 or self.carried_out:
            self.notice = NodeNotice(
                self.notice.name,
                _merge(self.notice.labels, patch.labels),
                _merge(self.notice.annotations, patch.annotations),
                _merge(self.notice.capacity, patch.amounts),
                _merge(self.notice.allocatable, patch.amounts),
                version=self.notice.version + 1,
            )
        if self.failures:
            self.failures -= 1
            raise LostError("no answer")
        return self.notice


def _merge(before, changes):
    merged = {**before, **changes}
    return {key: value for key, value in merged.items() if value is not None}
