"""A CUDA program of the demo: takes memory until the driver refuses, then keeps the GPU busy.

It is started by itself, with the stand-in of the driver and, before it, the limiter: what it is
told and refused is what any program in a container would be. It prints one line and runs on.
"""

import ctypes
import os
import sys

_MIB = 1 << 20
_KERNEL = b"demo"


def main(piece_mib: int, most_mib: int) -> None:
    """Take memory in pieces up to so much, say how far that went, and launch for ever."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel = (ctypes.c_void_p() for _ in range(3))
    free, total, pointer = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    _check(cuda.cuInit(0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(cuda.cuCtxSetCurrent(context))
    _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    held = answer = 0
    while answer == 0 and held < most_mib:
        answer = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(piece_mib * _MIB))
        held += 0 if answer else piece_mib
    # For the demo, which started it, and for nobody's terminal.
    os.write(1, f"{total.value // _MIB} {held} {answer}\n".encode())
    _check(cuda.cuModuleLoadData(ctypes.byref(module), b"demo"))
    _check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, _KERNEL))
    one, none = ctypes.c_uint(1), ctypes.c_void_p()
    while True:
        sizes = (one, one, one, one, one, one, ctypes.c_uint(0))
        _check(cuda.cuLaunchKernel(kernel, *sizes, none, none, none))
        _check(cuda.cuCtxSynchronize())


def _check(answer: int) -> None:
    if answer:
        sys.exit(f"the driver answered {answer}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
