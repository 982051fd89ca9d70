import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.started_gpus import (
    STARTED_GPUS,
    confirm_allocation,
    read_started_gpus,
    write_started_gpus,
)
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    Role,
)

NAMES = st.text(max_size=8)
GIVEN = st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3)
STARTED = st.dictionaries(NAMES, GIVEN, max_size=3)


@given(STARTED)
def test_what_is_written_is_read_back(started):
    assert read_started_gpus(write_started_gpus(started)) == started


@pytest.mark.parametrize("text", ["", "[]", '{"u":[]}', '{"u":{"c":"GPU-0"}}', '{"u":{"c":[0]}}'])
def test_other_forms_are_refused_with_the_annotation_named(text):
    with pytest.raises(DialectError, match=r"slicewise\.io/started-gpus"):
        read_started_gpus(text)


def test_the_annotation_is_kept_of_nodes():
    assert STARTED_GPUS.startswith(DEFAULT.keys)


NODE = builders.node("n", 4)
SHARE = builders.share(30, 4096)
PLAIN = builders.request([SHARE])


def marked(*gpus, cores=30, memory=4096, name="c0"):
    pieces = tuple(builders.piece(gpu, cores, memory) for gpu in gpus)
    return Allocation("n", (ContainerAllocation(name, pieces),))


def test_marks_that_agree_with_the_node_are_confirmed():
    assert confirm_allocation(PLAIN, marked(1), {"c0": ("GPU-n-1",)}, NODE) == marked(1)


def test_marks_never_make_a_pod_cheaper_than_its_limits():
    lowered = marked(1, cores=1, memory=1)

    assert confirm_allocation(PLAIN, lowered, {"c0": ("GPU-n-1",)}, NODE) == marked(1)


def test_larger_marks_stand():
    larger = marked(1, cores=60, memory=8192)

    assert confirm_allocation(PLAIN, larger, {"c0": ("GPU-n-1",)}, NODE) == larger


def test_pod_without_marks_has_what_it_was_given():
    whole = builders.whole(2)
    found = confirm_allocation(whole, None, {"c0": ("GPU-n-3", "GPU-n-0")}, NODE)

    assert found.gpus == (0, 3)
    assert [piece.cores for piece in found.slices_of("c0")] == [100, 100]


@pytest.mark.parametrize(
    ("marks", "given"),
    [
        pytest.param(marked(1), {"c0": ("GPU-n-2",)}, id="another-gpu"),
        pytest.param(marked(1), {"c0": ("GPU-n-1", "GPU-n-2")}, id="more-than-marked"),
        pytest.param(marked(1, 2), {"c0": ("GPU-n-1", "GPU-n-2")}, id="more-than-asked-for"),
        pytest.param(marked(9), {"c0": ("GPU-n-1",)}, id="no-such-gpu"),
        pytest.param(marked(1), {}, id="nothing-runs"),
        pytest.param(None, {"c0": ("GPU-other",)}, id="unknown-gpu"),
        pytest.param(None, {}, id="neither"),
    ],
)
def test_marks_that_disagree_are_refused_with_both_named(marks, given):
    with pytest.raises(DialectError, match=r"container c0 is marked for .*, and was given"):
        confirm_allocation(PLAIN, marks, given, NODE)


@pytest.mark.parametrize(("gpu", "fits"), [(1, True), (2, False)])
def test_ended_init_container_must_have_been_on_gpus_of_its_pod(gpu, fits):
    init = ContainerRequest("i", (SHARE,), Role.INIT)
    request = builders.request(init, ContainerRequest("c0", (SHARE,)))
    both = Allocation("n", (*marked(gpu, name="i").containers, *marked(1).containers))

    if fits:
        assert confirm_allocation(request, both, {"c0": ("GPU-n-1",)}, NODE) == both
        return
    with pytest.raises(DialectError, match="container i is marked for GPU-n-2"):
        confirm_allocation(request, both, {"c0": ("GPU-n-1",)}, NODE)
