"""One rule says whether a share fits a GPU: by value in the model, by arrays in the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.model import WHOLE_GPU, NodeState, fits
from slicewise.placement import NodeTables, fit_mask
from slicewise.placement.groups import split


@st.composite
def gpus(draw):
    return [
        builders.gpu(
            index,
            memory=draw(st.sampled_from([8192, 16384])),
            healthy=draw(st.integers(0, 5)) > 0,
            cordoned=draw(st.integers(0, 5)) == 0,
            mig=draw(st.integers(0, 5)) == 0,
        )
        for index in range(draw(st.integers(1, 4)))
    ]


@st.composite
def states(draw, name):
    """A node with anything held on its GPUs, more than they have included."""
    node = builders.node(name, gpus=draw(gpus()))
    state = NodeState.empty(node)
    for gpu in node.gpus:
        if draw(st.booleans()):
            cores = draw(st.sampled_from([0, 30, 100, 130]))
            memory = draw(st.sampled_from([0, 1, 4096, 8192, 16384, 20000]))
            piece = builders.piece(gpu.index, cores, memory)
            state = state.hold(builders.holding(f"{name}-{gpu.index}", piece))
    return state


shares = st.one_of(
    st.just(WHOLE_GPU),
    st.builds(
        builders.share, st.sampled_from([1, 30, 70, 100]), st.sampled_from([0, 1, 4096, 8192, 9000])
    ),
    st.builds(builders.share, st.just(0), st.sampled_from([1, 4096, 8192, 9000])),
)


@given(states("a"), states("b"), shares)
def test_arrays_and_values_agree_on_what_fits(one, other, share):
    view = NodeTables().sync(builders.snapshot(one, other))
    (group,) = split(builders.request([share]))

    mask = fit_mask(view, group)

    for row, state in enumerate((one, other)):
        told = [state.fits(at, share) for at in range(len(state.node.gpus))]
        assert mask[row, : len(told)].tolist() == told
        assert not mask[row, len(told) :].any()


@pytest.mark.parametrize(
    ("share", "free_cores", "free_memory", "fitting"),
    [
        pytest.param(builders.share(30, 4096), 30, 4096, True, id="just-enough"),
        pytest.param(builders.share(30, 4096), 29, 4096, False, id="too-little-compute"),
        pytest.param(builders.share(30, 4096), 30, 4095, False, id="too-little-memory"),
        pytest.param(builders.share(30, 0), 30, -1, False, id="memory-is-overcommitted"),
        pytest.param(WHOLE_GPU, 100, 8192, True, id="nobody-else"),
        pytest.param(WHOLE_GPU, 100, 8191, False, id="somebody-holds-memory"),
        pytest.param(builders.share(100, 9000), 100, 8192, False, id="whole-but-too-small"),
    ],
)
def test_share_fits_what_is_free(share, free_cores, free_memory, fitting):
    assert fits(share, builders.gpu(memory=8192), free_cores, free_memory) is fitting


@pytest.mark.parametrize("state", [{"healthy": False}, {"cordoned": True}, {"mig": True}])
def test_nothing_fits_a_gpu_that_cannot_be_used(state):
    assert not fits(WHOLE_GPU, builders.gpu(memory=8192, **state), 100, 8192)
