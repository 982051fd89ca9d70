"""Numba compiles a kernel with NVVM and launches it by cuLaunchKernelEx."""

import warnings

import numpy as np
from numba import cuda


@cuda.jit
def add_one(source, target):
    at = cuda.grid(1)
    if at < source.size:
        target[at] = source[at] + 1


warnings.simplefilter("ignore")
source = cuda.to_device(np.zeros(1024, np.float32))
target = cuda.device_array_like(source)
for _ in range(20):
    add_one[4, 256](source, target)
cuda.synchronize()
print("total", cuda.current_context().get_memory_info()[1])
try:
    cuda.device_array(200 << 20, np.uint8)
except Exception as error:  # whatever class the library wraps the driver's answer in
    print("refused", "CUDA_ERROR_OUT_OF_MEMORY" if "OUT_OF_MEMORY" in str(error) else error)
