"""AdamW of PyTorch, LAMB as in Google's code, and Muon.

Biases and LayerNorms have no decay.
AdamW corrects the bias of its means, which Google's code for BERT does not.
LAMB (You et al. 2020; ALBERT, section 4.1), as the released code has it: Adam without bias correction, the decay is
added to the update, and each matrix's update is multiplied by |matrix| / |update|, or by 1 if one of the norms is 0.
Biases and LayerNorms are not scaled. Query, key and value are three matrices in Google's code and one parameter here,
so each third has its own ratio.
Muon (Jordan et al. 2024): the update of a matrix is its momentum made orthogonal, so that all directions change alike.
Its elements are scaled to a root mean square of 0.2, about that of Adam (Liu et al. 2025, section 2.2), so both share a
rate. Only the layers' matrices are updated so; embeddings, heads, biases and LayerNorms follow Adam.

Settings of a group of parameters, beside those of AdamW:
num_blocks: the matrices in each of its parameters, one after another in the first dimension; 0 for vectors, and for
what Muon updates as Adam does.
dtype: of Muon's products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.train.config import TrainConfig

PACKED = {"qkv.weight": 3}  # suffix of a parameter's name -> number of matrices in it
MUON_MOMENTUM = 0.95
MUON_RMS = 0.2


class _ByParameter(torch.optim.Optimizer):
    """An optimiser whose update of a parameter depends on no other parameter."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # it returns no loss
        """Make one step. closure: a parameter that PyTorch's optimisers have; it must be None."""
        if closure is not None:
            raise TypeError(f"{type(self).__name__} takes no closure")
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_parameter(group, p, p.grad)

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        """Update one parameter in place. Each optimiser has its own rule."""
        raise NotImplementedError


def _average(state: dict[str, Tensor], group: dict[str, Any], gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Adam's means of the gradient and of its square, with this gradient."""
    beta1, beta2 = group["betas"]
    mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
    return mean, state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)


class Lamb(_ByParameter):
    """LAMB."""

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        state = self.state[p]
        if not state:
            state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        mean, square = _average(state, group, gradient)
        update = mean / square.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(p, alpha=group["weight_decay"])
        if blocks := group["num_blocks"]:
            for block, weights in zip(update.chunk(blocks), p.chunk(blocks), strict=True):
                norm, update_norm = torch.linalg.vector_norm(weights), torch.linalg.vector_norm(block)
                # On the device: reading the norms on the CPU would wait for the GPU.
                block.mul_(torch.where((norm > 0) & (update_norm > 0), norm / update_norm, 1.0))
        p.add_(update, alpha=-group["lr"])


class Muon(_ByParameter):
    """Muon, and Adam for groups without blocks."""

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2), blocks = self.state[p], group["betas"], group["num_blocks"]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p))
            if not blocks:
                state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        p.mul_(1 - group["lr"] * group["weight_decay"])
        if blocks:
            mean = state["exp_avg"].lerp_(gradient, 1 - MUON_MOMENTUM)
            ahead = gradient.lerp(mean, MUON_MOMENTUM)  # Nesterov's
            update = torch.cat([make_orthogonal(block, group["dtype"]) for block in ahead.chunk(blocks)])
        else:
            steps = int(state["step"])
            mean, square = _average(state, group, gradient)
            update = mean / (1 - beta1**steps) / (square / (1 - beta2**steps)).sqrt().add_(group["eps"])
        p.add_(update, alpha=-group["lr"])


def make_orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Bring the singular values of a matrix near 1 by five steps of Newton and Schulz, then scale it to an RMS of 0.2.

    The coefficients (Jordan et al. 2024) are for speed: the values end between 0.7 and 1.2. dtype: of the products.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if is_tall else matrix).to(dtype)
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    # An orthogonal matrix has an RMS of 1 / sqrt(its longer side).
    scaled: Tensor = (x.T if is_tall else x).to(matrix.dtype) * (MUON_RMS * max(matrix.shape) ** 0.5)
    return scaled


def make_optimizer(model: nn.Module, config: TrainConfig, *, is_bf16: bool = False) -> torch.optim.Optimizer:
    """Make the optimiser of the settings. Biases and LayerNorms are the vectors among the parameters.

    is_bf16: whether the device multiplies bfloat16 fast; Muon then does so. Elsewhere that can be forty times as slow.
    """
    matrices: dict[int, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            blocks = next((count for end, count in PACKED.items() if name.endswith(end)), 1)
            if config.optimizer == "adamw" or (config.optimizer == "muon" and not name.startswith("encoder.")):
                blocks = 0
            matrices.setdefault(blocks, []).append(parameter)
    groups = [{"params": p, "num_blocks": n, "weight_decay": config.weight_decay} for n, p in sorted(matrices.items())]
    groups.append({"params": [p for p in model.parameters() if p.ndim <= 1], "num_blocks": 0, "weight_decay": 0.0})
    settings: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **settings, fused=True)
    if config.optimizer == "muon":
        return Muon(groups, {**settings, "dtype": torch.bfloat16 if is_bf16 else torch.float32})
    return Lamb(groups, settings)


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser, by "optimizer.PARAMETER.NAME"."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{name}": tensor for i, tensors in state.items() for name, tensor in tensors.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of `pack_optimizer`: none before the first step; after it, all tensors of every parameter.

    Raises ValueError for anything else: PyTorch's fused AdamW does not check shapes and would read other memory.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        owner, _, rest = key.partition(".")
        if owner == "optimizer":
            number, _, name = rest.partition(".")
            state.setdefault(int(number), {})[name] = tensor
    parameters = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    if state and set(state) != set(range(len(parameters))):
        raise ValueError("the optimiser's state is not that of its parameters")
    for index, found in state.items():
        parameter, group = parameters[index]
        shapes = dict.fromkeys(("exp_avg", "exp_avg_sq"), parameter.shape)
        if isinstance(optimizer, Muon) and group["num_blocks"]:
            del shapes["exp_avg_sq"]
        if not isinstance(optimizer, Lamb):
            shapes["step"] = torch.Size()
        kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()}
        if kinds != {name: (shape, torch.float32) for name, shape in shapes.items()}:
            raise ValueError(f"the optimiser's state of parameter {index} has other shapes")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
