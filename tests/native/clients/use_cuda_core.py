"""NVIDIA's object layer above the bindings: a device, a stream, buffers of its pool, a kernel."""

from cuda.bindings import driver as cu
from cuda.core import Device, LaunchConfig, ObjectCode, launch

device = Device(0)
device.set_current()
stream = device.create_stream()
device.allocate(1 << 20, stream=stream).close(stream)
print("total", cu.cuMemGetInfo()[2])
try:
    device.allocate(200 << 20, stream=stream)
except Exception as error:  # whatever class the library wraps the driver's answer in
    print("refused", "CUDA_ERROR_OUT_OF_MEMORY" if "OUT_OF_MEMORY" in str(error) else error)
kernel = ObjectCode.from_cubin(b"x\0").get_kernel("k")
for _ in range(50):
    launch(stream, LaunchConfig(grid=1, block=32), kernel)
stream.sync()
