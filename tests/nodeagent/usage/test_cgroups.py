import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.usage.layouts import LAYOUTS, Layout
from slicewise.nodeagent.usage.cgroups import (
    CgroupRef,
    PodCgroups,
    ProcessTable,
    read_cgroup_refs,
    read_stat,
)

UID = "3f8c1b52-9d4e-4c0a-8f0e-5a7d2b6c1e90"
OTHER = "11111111-2222-3333-4444-555555555555"
HASH = "0123456789abcdef0123456789abcdef"
ONE, TWO = "a1" * 32, "b2" * 32

uids = st.uuids().map(str) | st.text("0123456789abcdef", min_size=32, max_size=32)
ids = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(layout=st.sampled_from(LAYOUTS), uid=uids, container=ids)
def test_a_process_is_traced_to_its_pod_and_container_in_every_layout(layout, uid, container):
    assert read_cgroup_refs(layout.text(uid, container)) == (CgroupRef(uid, container),)


@given(
    layout=st.sampled_from(LAYOUTS),
    below=st.lists(
        st.sampled_from(["init.scope", "container", "docker", ONE, f"pod{OTHER}", "..", "x:y"]),
        max_size=5,
    ),
)
def test_what_a_pod_makes_below_its_cgroup_never_comes_first(layout, below):
    text = layout.write("/".join([layout.path(UID, TWO), *below]))

    assert read_cgroup_refs(text)[0] == CgroupRef(UID, TWO)


@pytest.mark.parametrize(
    ("path", "refs"),
    [
        pytest.param(f"/k8s.io/{ONE}", (CgroupRef(None, ONE),), id="no-cgroups-per-qos"),
        pytest.param(f"/kubepods/pod{HASH}/{ONE}", (CgroupRef(HASH, ONE),), id="static-pod"),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{HASH}.slice/cri-containerd-{ONE}.scope",
            (CgroupRef(HASH, ONE),),
            id="static-pod-systemd",
        ),
        pytest.param(
            f"/docker/{TWO}/kubelet/kubepods/burstable/pod{UID}/{ONE}",
            (CgroupRef(None, TWO), CgroupRef(UID, ONE)),
            id="node-in-a-container",
        ),
        pytest.param(
            f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}"
            f".slice/cri-containerd-{ONE}.scope",
            (CgroupRef(UID, ONE),),
            id="own-cgroup-root",
        ),
        pytest.param(
            f"/../../pod{UID}/{ONE}", (CgroupRef(UID, ONE),), id="seen-from-another-namespace"
        ),
        pytest.param(f"/../{ONE}", (CgroupRef(None, ONE),), id="seen-from-the-same-pod"),
        pytest.param(f"/kubepods/pod{UID}", (CgroupRef(UID, None),), id="pod-alone"),
        pytest.param(
            f"/kubepods/pod{UID}/{ONE} (deleted)", (CgroupRef(UID, ONE),), id="removed-cgroup"
        ),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-conmon-{ONE}.scope",
            (CgroupRef(UID, None),),
            id="monitor-is-no-container",
        ),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ONE}.scope/container",
            (CgroupRef(UID, ONE),),
            id="crio-inner-cgroup",
        ),
        pytest.param(f"/kubepods/podnot-a-uid/{ONE}", (CgroupRef(None, ONE),), id="strange-uid"),
        pytest.param("/user.slice/user-1000.slice/session-2.scope", (), id="login-session"),
        pytest.param("/system.slice/sshd.service", (), id="host-service"),
        pytest.param("/", (), id="root"),
    ],
)
def test_paths_name_places_outermost_first(path, refs):
    assert read_cgroup_refs(f"0::{path}\n") == refs


def test_the_hierarchy_that_names_a_container_is_believed():
    text = f"3:cpu:/kubepods/pod{UID}\n2:memory:/kubepods/pod{UID}/{ONE}\n0::/\n"

    assert read_cgroup_refs(text) == (CgroupRef(UID, ONE),)


@given(text=st.text(max_size=400) | st.text("0123456789abcdef:/-_.pod slice\n", max_size=400))
def test_any_text_is_read_without_an_error(text):
    for place in read_cgroup_refs(text):
        assert place.pod or place.container
        assert "/" not in f"{place.pod}{place.container}"
        assert ".." not in f"{place.pod}{place.container}"


def stat(command: str, started: int, pid: int = 7) -> str:
    return f"{pid} ({command}) S {' '.join(['1'] * 18)} {started} 0 0\n"


@pytest.mark.parametrize("command", ["python3", "a) S 1 (b", "tmux: server", "", "((("])
def test_a_process_name_cannot_shift_its_start(command):
    assert read_stat(stat(command, 123456)) == (command, 123456)


def test_control_characters_in_a_process_name_are_masked():
    assert read_stat(stat("a\x1b[31mb", 5)) == ("a?[31mb", 5)


@given(st.text(max_size=200))
def test_any_stat_is_read_or_refused(text):
    told = read_stat(text)

    assert told is None or (told[1] >= 0 and told[0].isprintable())


def put(root: Path, pid: int, cgroup: str, *, command: str = "python3", started: int = 1) -> None:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(stat(command, started, pid))
    (folder / "cgroup").write_text(cgroup)


LAYOUT = Layout(2, "systemd", "containerd", "burstable")


def test_processes_are_found_under_any_root(tmp_path):
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    put(tmp_path, 8, "0::/system.slice/sshd.service\n", command="Xorg")

    seen = ProcessTable(tmp_path).look([7, 8, 9])

    assert seen[7].refs == (CgroupRef(UID, ONE),)
    assert (seen[8].command, seen[8].refs) == ("Xorg", ())
    assert 9 not in seen


def test_a_cgroup_is_read_once_while_its_process_lives(tmp_path):
    processes = ProcessTable(tmp_path)
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    processes.look([7])
    (tmp_path / "7" / "cgroup").unlink()

    assert processes.look([7])[7].refs == (CgroupRef(UID, ONE),)


def test_a_new_process_under_an_old_number_is_looked_up_again(tmp_path):
    processes = ProcessTable(tmp_path)
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    processes.look([7])
    put(tmp_path, 7, LAYOUT.text(OTHER, TWO), started=2)

    assert processes.look([7])[7].refs == (CgroupRef(OTHER, TWO),)


def test_a_process_on_its_way_into_a_container_is_followed(tmp_path):
    processes = ProcessTable(tmp_path)
    put(tmp_path, 7, "0::/system.slice/containerd.service\n")
    processes.look([7])
    put(tmp_path, 7, LAYOUT.text(UID, ONE))

    assert processes.look([7])[7].refs == (CgroupRef(UID, ONE),)


def test_a_process_not_asked_for_is_forgotten(tmp_path):
    processes = ProcessTable(tmp_path)
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    processes.look([7])
    processes.look([])
    put(tmp_path, 7, LAYOUT.text(OTHER, TWO))

    assert processes.look([7])[7].refs == (CgroupRef(OTHER, TWO),)


def test_broken_entries_hide_one_process_and_no_other(tmp_path):
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").mkdir()
    put(tmp_path, 9, "")
    (tmp_path / "9" / "stat").write_bytes(b"\xff\xfe\x00 garbage")

    assert set(ProcessTable(tmp_path).look([7, 8, 9])) == {7}


def test_this_very_process_is_found_under_the_real_proc():
    host_process = ProcessTable().look([os.getpid()])[os.getpid()]

    assert host_process.started > 0
    assert host_process.command


@pytest.mark.parametrize(
    "parent",
    [
        f"kubepods/burstable/pod{UID}/{ONE}",
        f"kubepods/pod{UID}/{ONE}",
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ONE}.scope",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{UID.replace('-', '_')}.slice/crio-{ONE}.scope",
    ],
)
def test_cgroups_of_a_pod_and_its_containers_are_found_in_the_tree(tmp_path, parent):
    container = tmp_path / parent
    container.mkdir(parents=True)
    (container.parent / f"crio-conmon-{ONE}.scope").mkdir()
    # What another pod makes below its own cgroup is not looked at.
    (tmp_path / f"kubepods/pod{OTHER}/pod{UID}").mkdir(parents=True)
    cgroups = PodCgroups(tmp_path)

    for _ in range(2):
        assert cgroups.find_pod(UID) == container.parent
    assert cgroups.find_containers(container.parent) == {ONE: container}
    assert cgroups.find_pod(HASH) is None
