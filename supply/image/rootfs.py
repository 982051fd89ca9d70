"""The image's file system as two folders: the distribution's part, and ours."""

import fnmatch
import py_compile
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from image import recipe
from image.debian import DebianPackage, unpack
from image.wheels import Wheel, unpack_wheel

_CERTIFICATES = "usr/share/ca-certificates"
# What the Dockerfile installs as well.
_LEFT_OUT = re.compile("|".join(map(fnmatch.translate, recipe.LEFT_OUT)))
_SCRIPT = Path(__file__).with_name("slicewise")


def make_base(packages: tuple[DebianPackage, ...], root: Path) -> None:
    """The packages, and what their maintainers' scripts would have set up."""
    unpack(packages, root)
    _leave_out(root)
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    authorities = sorted((root / _CERTIFICATES).rglob("*.crt"))
    bundle.write_text("".join(each.read_text() for each in authorities))
    shutil.rmtree(root / _CERTIFICATES)
    (root / "usr" / "bin" / "python3").symlink_to("python3.11")
    user = recipe.USER
    _write(root / "etc" / "passwd", f"root:x:0:0::/:\nslicewise:x:{user}:{user}::/tmp:\n")
    _write(root / "etc" / "group", f"root:x:0:\nslicewise:x:{user}:\n")
    (root / "tmp").mkdir()
    library = root / recipe.STDLIB
    compile_modules(library.glob("*.py"), root)
    for name in recipe.COMPILED:
        compile_modules((library / name).glob("*.py"), root)


def make_application(wheels: tuple[Wheel, ...], native: Path | None, root: Path) -> None:
    """The product with what it runs with, its command, and the limiter where it was built."""
    site = root / recipe.SITE
    site.mkdir(parents=True)
    for wheel in wheels:
        unpack_wheel(wheel.file, site)
    _leave_out(root)
    command = root / recipe.COMMAND
    _write(command, _SCRIPT.read_text())
    command.chmod(0o755)
    if native is not None:
        (root / recipe.NATIVE).mkdir(parents=True)
        shutil.copyfile(native, root / recipe.NATIVE / native.name)
    wanted = (each for each in site.rglob("*.py") if not _is_rare(each.relative_to(site)))
    compile_modules(wanted, root)


def compile_modules(modules: Iterable[Path], root: Path) -> None:
    """Bytecode beside each module, for a start without compiling; the same every time."""
    if sys.version_info[:2] != recipe.PYTHON:
        return
    for module in sorted(modules):
        py_compile.compile(
            str(module),
            dfile=f"/{module.relative_to(root)}",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            doraise=True,
        )


def is_left_out(name: str) -> bool:
    """Whether the recipe keeps this path out of the image."""
    path = PurePosixPath(name)
    if path.suffix in recipe.LEFT_OUT_SUFFIXES:
        return True
    chain = (str(path), *(str(each) for each in path.parents))
    return any(map(_LEFT_OUT.match, chain))


def list_files(root: Path) -> Iterator[Path]:
    """Everything below the root in a fixed order, folders before what is in them."""
    yield from sorted(root.rglob("*"), key=lambda each: each.relative_to(root).parts)


def _leave_out(root: Path) -> None:
    for path in list_files(root):
        if not path.exists() and not path.is_symlink():
            continue
        if is_left_out(path.relative_to(root).as_posix()):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _is_rare(module: Path) -> bool:
    return module.parts[0] in recipe.RARELY_IMPORTED


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
