import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slicewise_testbed.errors import TestbedError
from slicewise_testbed.testbed import Testbed, living, sweep, wait_until


def exists(pid):
    return Path(f"/proc/{pid}").exists()


def outside_pid(bed, name):
    """The id the machine gives a process that sleeps for as many seconds as its name says."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            environment = (path.parent / "environ").read_bytes()
        except OSError:
            continue
        if words[:2] == [b"sleep", name.encode()] and os.fsencode(bed) in environment:
            return int(path.parent.name)
    return None


@pytest.fixture
def bed():
    with Testbed.start() as started:
        yield started


def test_processes_and_folder_are_gone_after_close():
    bed = Testbed.start()
    bed.spawn("sleeper", ["sleep", "1001"])
    wait_until(lambda: outside_pid(bed.folder, "1001"), 5, lambda: "no sleeper")
    pid = outside_pid(bed.folder, "1001")

    bed.close()

    assert not exists(pid)
    assert not bed.folder.exists()


def test_stopped_process_is_no_longer_alive_and_may_start_again(bed):
    bed.spawn("sleeper", ["sleep", "1002"])
    bed.stop("sleeper")
    stopped = bed.alive("sleeper")
    bed.spawn("sleeper", ["sleep", "1002"])

    assert (stopped, bed.alive("sleeper")) == (False, True)


def test_process_that_ignores_the_first_signal_is_killed_in_the_end(bed):
    bed.spawn("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    wait_until(lambda: "ready" in bed.log("deaf").read_text(), 5, lambda: "not ready")

    bed.stop("deaf", patience_seconds=0.1)

    assert not bed.alive("deaf")


def test_name_in_use_is_refused(bed):
    bed.spawn("sleeper", ["sleep", "1003"])

    with pytest.raises(TestbedError, match="sleeper runs already"):
        bed.spawn("sleeper", ["sleep", "1003"])


def test_failed_program_is_reported_with_its_output(bed):
    with pytest.raises(TestbedError, match="ended with 3: out of luck"):
        bed.run("luckless", ["sh", "-c", "echo out of luck; exit 3"])


def test_missing_program_is_reported_by_name(bed):
    with pytest.raises(TestbedError, match="cannot start no-such-program"):
        bed.run("missing", ["no-such-program"])


def test_killed_owner_takes_its_testbed_along(tmp_path):
    script = """
        import signal, sys
        from pathlib import Path
        from slicewise_testbed.testbed import Testbed

        bed = Testbed.start()
        bed.spawn("sleeper", ["sh", "-c", "sleep 1004 & sleep 1004"])
        Path(sys.argv[1]).write_text(str(bed.folder))
        signal.pause()
    """
    told = tmp_path / "told"
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(told)])
    wait_until(lambda: told.exists() and told.read_text(), 10, lambda: "no testbed")
    folder = Path(told.read_text())
    wait_until(lambda: outside_pid(folder, "1004"), 5, lambda: "no sleeper")

    owner.send_signal(signal.SIGKILL)
    owner.wait()

    wait_until(lambda: not folder.exists(), 10, lambda: f"{folder} is still there")
    wait_until(lambda: not outside_pid(folder, "1004"), 5, lambda: "the sleeper lives")


def test_living_testbed_is_listed_and_not_swept(bed):
    sweep(older_than_seconds=0)

    assert bed.folder in {found.folder for found in living()}
    assert bed.alive("nothing") is False


def test_lasting_testbed_outlives_the_handle_that_started_it():
    started = Testbed.start(lasting=True)
    found = next(bed for bed in living() if bed.folder == started.folder)

    assert found.lasting
    found.close()
    assert not found.folder.exists()
    started.close()
