"""What the image is made of: packages, what of them stays out, and how it is run.

There is no shell and no package manager in it, and nothing that writes to its own files.
"""

from dataclasses import dataclass
from typing import Final

# Python of the distribution, what it needs, and certificates, protocol names and time zones.
PACKAGES: Final = (
    "ca-certificates", "gcc-12-base", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1",
    "liblzma5", "libncursesw6", "libpython3.11-minimal", "libpython3.11-stdlib", "libreadline8",
    "libsqlite3-0", "libssl3", "libstdc++6", "libtinfo6", "libuuid1", "media-types", "netbase",
    "python3.11-minimal", "tzdata", "zlib1g",
)  # fmt: skip
PYTHON: Final = (3, 11)
STDLIB: Final = "usr/lib/python3.11"
SITE: Final = "usr/local/lib/python3.11/dist-packages"
COMMAND: Final = "usr/bin/slicewise"
# The C library that containers are limited with, for the agent to put on its host.
NATIVE: Final = "usr/lib/slicewise"
USER: Final = 65532
# Patterns of paths below the root, as pathlib matches them; a folder takes all that is in it.
LEFT_OUT: Final = (
    "usr/share/doc", "usr/share/doc-base", "usr/share/man", "usr/share/locale", "usr/share/lintian",
    "usr/share/bug", "usr/share/info", "usr/share/gcc", "usr/share/binfmts", "usr/share/pixmaps",
    "usr/share/applications", "usr/share/zoneinfo/right", "usr/share/zoneinfo/posix", "usr/sbin",
    "usr/lib/*/gconv", "usr/lib/*/audit", "lib/*/gconv", "usr/lib/locale", "etc/cron*",
    f"{STDLIB}/ensurepip", f"{STDLIB}/lib2to3", f"{STDLIB}/pydoc_data", f"{STDLIB}/turtle.py",
    f"{STDLIB}/idlelib", f"{STDLIB}/distutils", f"{STDLIB}/test", f"{STDLIB}/unittest/test",
    f"{STDLIB}/tkinter", f"{STDLIB}/sitecustomize.py", f"{STDLIB}/venv",
    f"{SITE}/numpy/tests", f"{SITE}/numpy/*/tests", f"{SITE}/numpy/f2py", f"{SITE}/numpy/_core/lib",
    f"{SITE}/numpy/_core/include", f"{SITE}/numpy/random/lib", f"{SITE}/numpy/distutils",
    f"{SITE}/numpy/_pyinstaller", f"{SITE}/bin",
)  # fmt: skip
# Parts of the standard library that every start imports, and so are compiled beforehand.
COMPILED: Final = (
    "asyncio", "collections", "concurrent/futures", "ctypes", "email", "html", "http",
    "importlib", "importlib/metadata", "importlib/resources", "json", "logging", "re", "urllib",
    "zoneinfo",
)  # fmt: skip
# Packages that only some commands import, and that are compiled there.
RARELY_IMPORTED: Final = ("pygments", "markdown_it")
# Sources and headers of compiled modules, and types for checkers.
LEFT_OUT_SUFFIXES: Final = (".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".a")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One kind of machine, by the names that each tool has for it."""

    name: str
    """Debian's and the OCI's."""
    machine: str
    """The kernel's, which is in the names of wheels."""

    @property
    def platforms(self) -> tuple[str, ...]:
        """The wheels that the image's C library can load, newest first."""
        return tuple(
            f"{kind}_{self.machine}"
            for kind in ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
        )


ARCHITECTURES: Final = (Architecture("amd64", "x86_64"), Architecture("arm64", "aarch64"))


def write_configuration() -> dict[str, object]:
    """How the image runs: as nobody in particular, with Slicewise as its one command."""
    return {
        "User": f"{USER}:{USER}",
        "Env": [
            "PATH=/usr/bin",
            "LANG=C.UTF-8",
            "HOME=/tmp",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
        ],
        "Entrypoint": [f"/{COMMAND}"],
        "Cmd": ["--help"],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": "slicewise",
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }
