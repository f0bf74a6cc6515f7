"""Counts the bytes that the code of torch.compile for an H100 moves, on a machine without a GPU. Prints JSON.

Fake CUDA tensors, a stub of the device (cuda_stub.cpp) and a stub of Triton's driver let PyTorch's CPU build trace,
divide and generate the code for sm_90; nothing of it runs. Bytes are those that generated kernels read and write;
products of matrices and attention are calls of libraries, whose bytes no change here can save.
It uses private parts of torch 2.13, so it is a script of its own, for a test that is skipped elsewhere.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

STUB = Path(__file__).with_name("cuda_stub.cpp")
ROWS, LENGTH, HIDDEN, MASKED, VOCAB = 128, 512, 768, 10_048, 30_000


def load_stub(folder: Path) -> None:
    """Compile the stub and load it. It has to be there before torch is imported."""
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    libraries = torch_folder / "lib"
    own = torch_folder / "include"
    headers = [own, own / "torch/csrc/api/include", sysconfig.get_paths()["include"]]
    command = ["c++", "-O0", "-std=c++20", "-shared", "-fPIC", *(f"-I{path}" for path in headers), str(STUB)]
    subprocess.run([*command, "-o", folder / "cuda_stub.so", f"-L{libraries}", "-lc10", "-ltorch_cpu"], check=True)
    ctypes.CDLL(str(libraries / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(folder))
    importlib.import_module("cuda_stub")


def pretend_gpu() -> None:
    """Make torch and Triton believe in an H100."""
    import torch
    import torch._dynamo.device_interface as device_interface
    import torch.utils._triton as triton_checks
    import triton
    from triton.backends.compiler import GPUTarget

    properties = types.SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, warp_size=32,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20, shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10,
        shared_memory_per_multiprocessor=228 << 10, gcnArchName="", clock_rate=1980000, memory_clock_rate=2619000,
        memory_bus_width=5120, is_integrated=False,
    )  # fmt: skip
    values = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": properties,
        "get_device_capability": (9, 0), "get_device_name": properties.name, "is_initialized": False,
        "is_bf16_supported": True, "synchronize": None, "_lazy_init": None, "set_device": None, "_exchange_device": 0,
        "_maybe_exchange_device": 0,
    }  # fmt: skip
    for name, value in values.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    state = torch.zeros(16, dtype=torch.uint8)
    for module in (torch.cuda, torch.cuda.random):
        module.get_rng_state, module.set_rng_state = (lambda *_, **__: state), (lambda *_, **__: None)
    torch.version.cuda = "13.0"
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    interface = device_interface.CudaInterface
    for name, value in {**values, "get_compute_capability": 90, "raise_if_triton_unavailable": None}.items():
        setattr(interface, name, staticmethod(lambda *_, value=value, **__: value))
    interface.Worker.get_device_properties = staticmethod(lambda *_: properties)
    interface.Worker.current_device = staticmethod(lambda: 0)
    triton_checks.has_triton = lambda *_, **__: True
    triton.runtime.driver.set_active(
        types.SimpleNamespace(
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            get_current_device=lambda: 0,
            get_device_capability=lambda *_: (9, 0),
            get_active_torch_device=lambda: torch.device("cuda", 0),
        )
    )


class Counted(Exception):
    """The code is generated, and is not to be compiled."""


def count_bytes(module, *inputs) -> int:
    """The bytes that generated kernels of forward and backward move, under bf16 autocast."""
    import torch
    from torch._functorch.aot_autograd import aot_function, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering

    config.compile_threads, config.force_disable_caches = 1, True
    total = 0

    def count(graph):
        nonlocal total
        graph.codegen()
        kinds = ("ExternKernelSchedulerNode", "NopKernelSchedulerNode")  # calls of libraries, and nothing at all
        kernels = [node for node in graph.scheduler.nodes if type(node).__name__ not in kinds]
        total += sum(node.get_read_write_buffers_sizes() for node in kernels)
        raise Counted

    GraphLowering.compile_to_module = GraphLowering._compile_to_module = count

    def compiler(*, is_backward):
        def generate(graph, examples):
            try:
                compile_fx_inner(graph, examples, is_backward=is_backward)
            except Exception as error:  # Inductor wraps it
                if Counted.__name__ not in repr(error):
                    raise
            return make_boxed_func(graph.forward)

        return generate

    weights = dict(module.named_parameters())

    def run(values, *given):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return torch.func.functional_call(module, dict(zip(weights, values, strict=True)), given)

    traced = aot_function(
        run,
        fw_compiler=compiler(is_backward=False),
        bw_compiler=compiler(is_backward=True),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    traced(list(weights.values()), *inputs).float().sum().backward()
    return total


def main(folder: Path) -> None:
    load_stub(folder)
    import torch
    import torch.nn.functional as F

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    pretend_gpu()
    from torch._subclasses.fake_tensor import FakeTensorMode

    import albert_data.train.model.model as model
    from albert_data.train.config import AlbertConfig

    def flash(q, k, v, mask=None, dropout_p=0.0):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, False, False)[0]

    model._init_weights = lambda module: None  # it would draw numbers on the device
    names = {name: getattr(F, name) for name in dir(F) if not name.startswith("__")}
    model.F = types.SimpleNamespace(**{**names, "scaled_dot_product_attention": flash})
    torch.compiler.is_compiling = lambda: True

    class Layer(torch.nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.encoder = encoder

        def forward(self, x_BTH):
            return self.encoder.run_inner_layer(0, 0, x_BTH, None)

    class Head(torch.nn.Module):
        def __init__(self, head):
            super().__init__()
            self.head = head

        def forward(self, x_NH, table_VE, labels_N):
            return self.head.measure(x_NH, table_VE, labels_N)[1]

    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda"):
            albert = model.Albert(AlbertConfig(vocab_size=VOCAB, hidden_size=HIDDEN, num_layers=1, num_heads=12))
            x_BTH = torch.empty(ROWS, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
            x_NH = torch.empty(MASKED, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
            table_VE = torch.empty(VOCAB, 128, requires_grad=True)
            labels_N = torch.empty(MASKED, dtype=torch.int64)
        layer = count_bytes(Layer(albert.encoder), x_BTH)
        head = count_bytes(Head(albert.mlm_head), x_NH, table_VE, labels_N)
    print(json.dumps({"bytes_per_element": layer / (ROWS * LENGTH * HIDDEN), "head_gb": head / 1e9}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
