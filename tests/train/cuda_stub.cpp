// Lets PyTorch's CPU build make and free fake CUDA tensors: device 0 is there, and all that is done to it does nothing.
#include <ATen/detail/CUDAHooksInterface.h>
#include <Python.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

const Device kDevice(DeviceType::CUDA, 0);
const Stream kStream(Stream::DEFAULT, kDevice);

struct Guard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  Stream getStream(Device) const noexcept override { return kStream; }
  Stream getDefaultStream(Device) const override { return kStream; }
  Stream getNewStream(Device, int) const override { return kStream; }
  Stream exchangeStream(Stream) const noexcept override { return kStream; }
};

struct CUDAHooks : at::CUDAHooksInterface {  // PyTorch looks it up by this name
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
};

c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, new Guard());
PyModuleDef module = {PyModuleDef_HEAD_INIT, "cuda_stub", nullptr, -1, nullptr};

}  // namespace

namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

PyMODINIT_FUNC PyInit_cuda_stub(void) { return PyModule_Create(&module); }
