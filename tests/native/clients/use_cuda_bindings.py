"""NVIDIA's bindings of the driver: memory, stream-ordered memory, a module, launches."""

from cuda.bindings import driver as cu


def call(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


call(cu.cuInit(0))
call(cu.cuCtxSetCurrent(call(cu.cuDevicePrimaryCtxRetain(call(cu.cuDeviceGet(0))))))
print("total", call(cu.cuMemGetInfo())[1])
call(cu.cuMemFree(call(cu.cuMemAlloc(1 << 20))))
print("refused", cu.cuMemAlloc(200 << 20)[0].name)
stream = call(cu.cuStreamCreate(0))
call(cu.cuMemFreeAsync(call(cu.cuMemAllocAsync(1 << 20, stream)), stream))
kernel = call(cu.cuModuleGetFunction(call(cu.cuModuleLoadData(b"x\0")), b"k"))
for _ in range(50):
    call(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0))
call(cu.cuStreamSynchronize(stream))
