"""`model.fits` over arrays: which GPUs of every row can take one share of a group."""

from slicewise.placement.groups import Group
from slicewise.placement.tables import Bools, TableView


def fit_mask(view: TableView, group: Group) -> Bools:
    """The GPUs that can take one share of the group, of shape (nodes, gpus).

    The tables say -1 is free of a GPU that is not usable, so amounts cover health too.
    """
    if group.whole:
        mask: Bools = view.whole.copy()
        if group.memory:
            mask &= view.memory >= group.memory
        return mask
    mask = view.free_cores >= group.cores
    # Most shares name memory; for those that name none it matters only where too much is held.
    if group.memory or view.overcommitted.any():
        mask &= view.free_memory >= group.memory
    return mask
