"""A machine with GPUs that are not there: the CUDA stand-in, the limiter, and programs on both.

The files of a container are written here by hand, byte by byte, so that the library is held to the
layouts and not to the code that the agent writes them with.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from slicewise_testbed.errors import TestbedError

ROOT = Path(__file__).parents[4]
PROGRAMS = ROOT / "tests" / "native" / "programs"
OUT = ROOT / "out" / "native"
MIB = 1 << 20
UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_UUID = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
USAGE_BYTES = 122_880
SUCCESS, OUT_OF_MEMORY, NOT_PERMITTED = 0, 2, 800


@cache
def build(name: str) -> Path:
    """The folder of a built library of `native`, as make brings it up to date."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["make", "-C", str(ROOT / "native" / name), f"OUT={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"make -C native/{name} failed:\n{done.stdout}{done.stderr}")
    return folder


@cache
def limiter() -> Path:
    """The library that is preloaded."""
    return build("limiter") / "libslicewise-limit.so"


@cache
def compile_program(name: str, *flags: str, compiler: str = "") -> Path:
    """A program of `tests/native/programs`, compiled when its source is newer."""
    compiler = compiler or os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise TestbedError(f"{compiler} is not on PATH: install a C compiler and make, or set CC")
    folder = OUT / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    source = PROGRAMS / f"{name}.c"
    target = folder / "-".join([name, Path(compiler).name, f"{zlib.crc32(repr(flags).encode()):x}"])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        given = [Path(each) for each in flags if each.endswith((".c", ".S"))]
        headers = (ROOT / "native" / "cuda" / "include").iterdir()
        newest = max(each.stat().st_mtime for each in [*PROGRAMS.iterdir(), *headers, *given])
        if not target.exists() or target.stat().st_mtime < newest:
            strict = ["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread", "-D_GNU_SOURCE"]
            header = f"-I{ROOT / 'native' / 'cuda' / 'include'}"
            command = [compiler, *strict, header, "-o", str(target), str(source), *flags, "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise TestbedError(f"{' '.join(command)} failed:\n{done.stderr}")
    return target


@cache
def compile_state_reader() -> Path:
    """The program that prints what a machine's processes did."""
    sources = [str(ROOT / "native" / "cuda" / "src" / f"{each}.c") for each in ("state", "engine")]
    return compile_program("machine_state", *sources)


@cache
def compile_hosted(name: str, *flags: str) -> Path:
    """A program with the limiter's sources inside, for sanitizers and for calling its parts."""
    limiter_folder = ROOT / "native" / "limiter"
    machine = os.uname().machine
    sources = [*sorted(limiter_folder.glob("src/*.c")), limiter_folder / f"src/stubs_{machine}.S"]
    folders = [f"-I{limiter_folder / each}" for each in ("include", "src")]
    linking = ["-DSLICEWISE_HOSTED", "-rdynamic", "-Wno-unused-function"]
    return compile_program(name, *linking, *folders, *map(str, sources), *flags)


@dataclass(frozen=True, slots=True)
class GrantedGpu:
    """One device record of a grant."""

    uuid: str = UUID
    memory: int = 100 * MIB
    cores: int = 0
    ceiling: int = -1
    limit: int = -1
    scale: int = 65536
    overhead: int = 0
    context: int = 0
    burst_ns: int = 20_000_000

    def pack(self) -> bytes:
        """Its 240 bytes."""
        ceiling = self.cores if self.ceiling < 0 else self.ceiling
        limit = self.cores if self.limit < 0 else self.limit
        raw = bytes.fromhex(self.uuid.removeprefix("GPU-").replace("-", ""))
        numbers = (self.memory, self.cores, ceiling, limit, self.scale, self.overhead)
        return struct.pack(
            "<48s16sQIIIIQQQQiII108x",
            self.uuid.encode(),
            raw,
            *numbers,
            self.context,
            16384 * MIB,
            self.burst_ns,
            0,
            1,
            0,
        )


FLAGS = 1 | 2 | 4 | 8 | 16


def pack_grant(
    gpus: Sequence[GrantedGpu], flags: int = FLAGS, sequence: int = 2, written_ns: int | None = None
) -> bytes:
    """The 4,096 bytes of a grant."""
    body = b"".join(gpu.pack() for gpu in gpus).ljust(3840, b"\0")
    body += struct.pack("<48s64s80x", b"pod-uid", b"container")
    head = struct.pack(
        "<8sIIQQIII20x",
        b"SWGRANT1",
        1,
        4096,
        sequence,
        # An hour ahead: a test that is slow must not look like an agent that fell silent.
        time.monotonic_ns() + 3600 * 10**9 if written_ns is None else written_ns,
        zlib.crc32(body),
        len(gpus),
        flags,
    )
    return head + body


def pack_usage() -> bytes:
    """An empty usage file."""
    head = struct.pack("<8sIIIIQ", b"SWUSAGE1", 1, USAGE_BYTES, 256, 16, time.monotonic_ns())
    return head.ljust(USAGE_BYTES, b"\0")


@dataclass(slots=True)
class Container:
    """The folder that a container sees at /etc/slicewise/limit, under another name."""

    folder: Path
    gpus: tuple[GrantedGpu, ...] = (GrantedGpu(),)
    flags: int = FLAGS
    sequence: int = 2

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "usage").write_bytes(pack_usage())
        (self.folder / "grant").write_bytes(self.pack())

    def pack(self) -> bytes:
        """Its grant as it stands."""
        return pack_grant(self.gpus, self.flags, self.sequence)

    def feed(self, *gpus: GrantedGpu) -> None:
        """Write the grant again in place, as the agent does."""
        self.gpus = gpus or self.gpus
        self.sequence += 2
        with (self.folder / "grant").open("r+b") as file:
            file.write(self.pack())

    def usage(self) -> bytes:
        """The usage file."""
        return (self.folder / "usage").read_bytes()

    def number(self, at: int, form: str = "<q") -> int:
        """One number of the usage file."""
        value: int = struct.unpack_from(form, self.usage(), at)[0]
        return value

    def device(self, offset: int, device: int = 0) -> int:
        """One number of a device block."""
        return self.number(4096 + 256 * device + offset)

    def slot(self, offset: int, slot: int = 0) -> int:
        """One number of a slot."""
        return self.number(8192 + 448 * slot + offset)

    def active(self) -> int:
        """How many slots are in use."""
        return sum(bin(self.number(32 + 8 * word, "<Q")).count("1") for word in range(4))


@dataclass(slots=True)
class CudaMachine:
    """A machine's facts and what programs on it are started with."""

    folder: Path
    facts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        lines = self.facts or [f"gpu {UUID} 16384"]
        (self.folder / "cuda").write_text("\n".join([*lines, "end", ""]))

    @property
    def state(self) -> Path:
        """The file that the machine's processes share."""
        return self.folder / "cuda.state"

    def environment(self, container: Container | None = None) -> dict[str, str]:
        """What a program is started with; limited when it is in a container."""
        found = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(build("cuda")),
            "SLICEWISE_CUDA_FILE": str(self.folder / "cuda"),
        }
        if container is not None:
            found["SLICEWISE_LIMIT_DIR"] = str(container.folder)
            found["LD_PRELOAD"] = str(limiter())
        return found


class CudaClient:
    """A CUDA program that does one thing after the other, as it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def call(self, *words: object) -> list[int]:
        """The result of one command and the numbers behind it."""
        self.send(*words)
        return self.receive()

    def send(self, *words: object) -> None:
        """A command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self) -> list[int]:
        """The answer to the oldest command that has none yet."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended: {self.process.wait()}"
        return [int(each) for each in line.split()]

    def result(self, *words: object) -> int:
        """The result alone."""
        return self.call(*words)[0]

    def start(self) -> "CudaClient":
        """Initialise CUDA and make device 0 current."""
        assert self.result("init") == SUCCESS
        assert self.result("device", 0) == SUCCESS
        return self

    def kill(self) -> None:
        """End it without warning and collect it."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def run_client(
    environment: Mapping[str, str], how: str = "dlsym", program: Path | None = None
) -> Iterator[CudaClient]:
    """A client of this machine, which is gone afterwards."""
    with subprocess.Popen(
        [program or compile_program("client"), how],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield CudaClient(process)
        finally:
            process.kill()
