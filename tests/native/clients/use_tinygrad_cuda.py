"""tinygrad finds the driver by ctypes alone, and compiles with NVRTC."""

import ctypes

from tinygrad import Device, Tensor

for _ in range(5):
    (Tensor([1.0, 2.0, 3.0], device="CUDA") + 1).realize()
Device["CUDA"].synchronize()
unused, total = ctypes.c_size_t(), ctypes.c_size_t()
ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(unused), ctypes.byref(total))
print("total", total.value)
try:
    Tensor.ones(200 << 20, device="CUDA", dtype="uint8").contiguous().realize()
except MemoryError:
    print("refused", "CUDA_ERROR_OUT_OF_MEMORY")
