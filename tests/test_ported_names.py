"""Names that programs written for PyTorch use beside the computation: they exist and do no harm."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid import nn, optim


def test_mixed_precision_that_is_switched_off_changes_nothing() -> None:
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="GradScaler: device of 'cuda' is not available"):
        scaler = lucid.cuda.amp.GradScaler()
    with lucid.autocast("cpu", enabled=False):
        loss = model(lucid.ones(1, 2)).sum()
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1.0
    assert (model.weight.detach() - before + 0.1).abs().max() < 1e-6
    with pytest.raises(ValueError, match="autocast: there are no shorter floats than float32"):
        lucid.amp.autocast("cpu")
    with pytest.raises(ValueError, match="GradScaler: there are no shorter floats than float32"):
        lucid.amp.GradScaler("cpu")
    with pytest.raises(TypeError, match="'enable'\nhint: did you mean enabled"):
        lucid.amp.GradScaler(enable=False)


def test_mixed_precision_is_where_older_programs_import_it_from() -> None:
    from lucid.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd

    class Exp(lucid.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=lucid.float32)
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        @custom_bwd
        def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
            (x,) = ctx.saved_tensors
            return grad * x.clamp(-15, 15).exp()

    with pytest.warns(UserWarning, match="'cuda' is not available") as caught:
        context = autocast()
    assert caught[0].filename == __file__
    x = lucid.zeros(2, requires_grad=True)
    with context, autocast(enabled=False):
        assert not lucid.is_autocast_enabled()
        GradScaler(2.0**16, enabled=False).scale(Exp.apply(x).sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0]


def test_a_method_is_called_on_each_tensor_of_a_list(prepared: Callable[..., Any]) -> None:
    ones: Any = [lucid.ones(2), lucid.ones(1)]

    def body(a: Any, b: Any) -> Any:
        lucid._foreach_mul_(a, 2.0)
        lucid._foreach_add_(a, b, alpha=-1)
        lucid._foreach_lerp_(a, b, 0.5)
        lucid._foreach_addcmul_(a, b, b, [1.0, 0.0])
        lucid._foreach_maximum_(a, lucid._foreach_neg(b))
        return [
            *lucid._foreach_norm(a),
            *lucid._foreach_norm(b, float("inf")),
            *lucid._foreach_div(a, lucid.tensor(2.0)),
            *lucid._foreach_clamp_max(b, 3),
        ]

    found = [x.tolist() for x in prepared(body)(ones, [lucid.tensor([3.0, 4.0]), lucid.ones(1)])]
    assert found == [pytest.approx(19.7231), 1.0, 4.0, 1.0, [5.0, 8.5], [0.5], [3.0, 3.0], [1.0]]
    assert [x.tolist() for x in ones] == [[10.0, 17.0], [1.0]]


def test_lists_of_tensors_that_dont_fit_are_refused() -> None:
    ones = [lucid.ones(2), lucid.ones(1)]
    with pytest.raises(RuntimeError, match=r"_foreach_add: .* tensors don't go together"):
        lucid._foreach_add(ones, ones[:1])
    with pytest.raises(RuntimeError, match="_foreach_sub_: Tensor list must have at least one"):
        lucid._foreach_sub_([], 1)
    with pytest.raises(AttributeError, match="no attribute '_foreach_bogus'"):
        lucid._foreach_bogus


def test_distances_take_the_way_they_are_computed() -> None:
    x = lucid.tensor([[0.0, 0.0], [3.0, 4.0]])
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", None):
        assert lucid.cdist(x, x, compute_mode=mode).tolist() == [[0.0, 5.0], [5.0, 0.0]]
    with pytest.raises(ValueError, match="cdist: 'fast' is not a valid value for compute_mode"):
        lucid.cdist(x, x, compute_mode="fast")


def test_a_checkpoint_computes_what_its_function_does() -> None:
    from lucid.utils.checkpoint import checkpoint, checkpoint_sequential

    layers = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = lucid.ones(1, 2)
    assert checkpoint(layers, x, use_reentrant=False).tolist() == layers(x).tolist()
    assert checkpoint_sequential(list(layers), 2, x).tolist() == layers(x).tolist()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("lucid.distributions.normal", "Normal"),
        ("lucid.distributions.categorical", "Categorical"),
        ("lucid.distributions.one_hot_categorical", "OneHotCategoricalStraightThrough"),
        ("lucid.distributions.kl", "kl_divergence"),
        ("lucid.optim.lr_scheduler", "_LRScheduler"),
        ("lucid.nn.init", "_calculate_fan_in_and_fan_out"),
        ("lucid.nn.utils", "clip_grad_norm"),
        ("lucid.nn", "DataParallel"),
        ("lucid.autograd.grad_mode", "set_grad_enabled"),
        ("lucid.autograd.anomaly_mode", "detect_anomaly"),
        ("lucid.utils.data.dataset", "TensorDataset"),
        ("lucid.utils.data.dataloader", "default_collate"),
        ("lucid.utils.data.sampler", "SubsetRandomSampler"),
        ("lucid.utils.data.distributed", "DistributedSampler"),
        ("lucid.nn.modules.activation", "MultiheadAttention"),
        ("lucid.nn.modules.sparse", "Embedding"),
        ("lucid.nn.modules.transformer", "_get_clones"),
        ("lucid.nn.modules.transformer", "_get_activation_fn"),
        ("lucid.nn.modules.upsampling", "Upsample"),
        ("lucid.version", "cuda"),
    ],
)
def test_a_name_is_where_programs_import_it_from(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it takes a fork for each")
def test_a_module_is_there_without_an_import_of_its_own() -> None:
    """Each in a process of its own, where nobody has imported it."""
    paths = [
        "autograd.profiler", "distributions.utils._standard_normal", "nn.attention.SDPBackend",
        "nn.common_types", "nn.modules.rnn.LSTM", "nn.parallel.DataParallel", "nn.utils.fusion",
        "nn.utils.stateless.functional_call", "serialization", "utils.dlpack", "utils.hooks",
        "version.cuda",
    ]  # fmt: skip
    code = """
import operator, os, sys
import lucid
for path in sys.argv[1:]:
    if os.fork() == 0:
        operator.attrgetter(path)(lucid)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(path)
"""
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = lucid.distributions.nothing


def test_functions_that_are_marked_for_torchscript_stay_what_they_are(
    prepared: Callable[..., Any],
) -> None:
    @lucid.jit.script
    def swish(x: Any) -> Any:
        return x * x.sigmoid()

    class Gate(nn.Module):
        size: lucid.jit.Final[int] = 1

        @lucid.jit.ignore
        def kept(self, x: Any) -> Any:
            return x if lucid.jit.is_scripting() else swish(x)

        @lucid.jit.ignore(drop=True)
        def forward(self, x: Any) -> Any:
            return self.kept(x)

    gate = lucid.jit.script(Gate())
    assert lucid.jit.trace(gate, lucid.ones(2)) is lucid.jit.freeze(gate) is gate
    assert lucid.jit.annotate(list[int], [3]) == [3]
    assert prepared(lambda x: gate(x))(lucid.zeros(2)).tolist() == [0.0, 0.0]
    with pytest.raises(lucid.ArgumentError, match=r"jit.trace: check_trace must be True or False"):
        lucid.jit.trace(gate, None, check_trace="no")


def test_a_device_is_a_block_in_which_tensors_are_made(run: Callable[[Any], Any]) -> None:
    def made() -> lucid.Tensor:
        with lucid.device("cpu"):
            return lucid.ones(2)

    assert run(made).tolist() == [1.0, 1.0]


def test_a_step_knows_whether_it_is_compiled() -> None:
    def step(x: Any) -> Any:
        return x + 1 if lucid.compiler.is_compiling() else x

    assert step(lucid.zeros(1)).item() == 0.0
    assert lucid.compile(step)(lucid.zeros(1)).item() == 1.0


def test_memory_formats_change_nothing() -> None:
    x = lucid.empty(2, 3, memory_format=lucid.contiguous_format)
    assert lucid.rand_like(x, memory_format=lucid.preserve_format).shape == (2, 3)
    assert lucid.randn_like(x, memory_format=lucid.channels_last).shape == (2, 3)
    with pytest.raises(TypeError, match="empty: memory_format must be a lucid"):
        lucid.empty(2, memory_format="contiguous")


def test_defaults_are_set_as_older_programs_do() -> None:
    assert lucid.get_default_device() == lucid.device("cpu")
    lucid.set_default_device("cpu")
    with pytest.raises(ValueError, match="device 'cuda' does not exist"):
        lucid.set_default_device("cuda")
    try:
        lucid.set_default_tensor_type("torch.DoubleTensor")
        assert lucid.zeros(1).dtype is lucid.float64
    finally:
        lucid.set_default_tensor_type(lucid.FloatTensor)
    assert lucid.zeros(1).dtype is lucid.float32


def test_dirac_weights_pass_the_channels_on() -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight)
    x = lucid.randn(1, 2, 4, 4)
    assert (layer(x).detach() - x).abs().max() < 1e-6


def test_random_numbers_of_further_families() -> None:
    lucid.manual_seed(0)
    x: Any = lucid.empty(20_000)
    assert abs(x.geometric_(0.25).mean().item() - 4.0) < 0.15
    assert abs(x.log_normal_(0.0, 0.5).log().std().item() - 0.5) < 0.02
    assert abs(x.cauchy_(1.0, 2.0).median().item() - 1.0) < 0.1


def test_a_wrapper_for_devices_that_are_not_there_runs_its_module() -> None:
    model = nn.DataParallel(nn.Linear(2, 1))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert model(lucid.ones(3, 2)).shape == (3, 1)


@pytest.mark.parametrize(
    "name",
    ["init_process_group", "destroy_process_group", "get_rank", "get_world_size"],
)
def test_a_program_that_forms_a_group_of_processes_is_told_that_there_is_none(name: str) -> None:
    message = "distributed: lucid runs in one process, which belongs to no group\nhint: ask lucid"
    with pytest.raises(lucid.LucidError, match=message):
        getattr(lucid.distributed, name)()
    model = nn.Linear(2, 1)
    assert not isinstance(model, nn.parallel.DistributedDataParallel)
    with pytest.raises(lucid.LucidError, match=message):
        nn.parallel.DistributedDataParallel(model, device_ids=[0])


def test_fans_are_those_of_the_initializations() -> None:
    fan = nn.init._calculate_correct_fan
    assert (fan(lucid.empty(2, 3, 5), "fan_in"), fan(lucid.empty(2, 3, 5), "fan_out")) == (15, 10)
    with pytest.raises(ValueError, match=r"nn.init: mode must be one of 'fan_in', 'fan_out'"):
        fan(lucid.empty(2, 3), "fan_avg")


def test_options_of_pytorchs_compiler_are_taken() -> None:
    @lucid.compile(fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune")
    def double(x: lucid.Tensor) -> lucid.Tensor:
        return 2 * x

    assert double(lucid.ones(2)).tolist() == [2.0, 2.0]
    assert double.stats.traces == 1
    with pytest.raises(TypeError, match="'fullgrap'\nhint: did you mean fullgraph"):
        lucid.compile(fullgrap=True)
    with pytest.raises(ValueError, match="backend must be one of 'native'"):
        lucid.compile(backend="tvm")


def test_a_tensor_is_made_of_any_sequence() -> None:
    assert lucid.tensor(deque([1.5, 2.0])).tolist() == [1.5, 2.0]
    assert lucid.tensor([range(2), range(2, 4)]).tolist() == [[0, 1], [2, 3]]
    assert lucid.LongTensor(range(3)).tolist() == [0, 1, 2]
    with pytest.raises(lucid.ArgumentError, match="data must be numbers, not str"):
        lucid.tensor("abc")


PLACES = """
    lucid.autograd.profiler: profile record_function
    lucid.backends.cudnn: benchmark deterministic
    lucid.backends.cuda: matmul
    lucid.multiprocessing: Process Queue get_context
    lucid.distributed: init_process_group destroy_process_group get_rank get_world_size
    lucid.distributions.distribution: Distribution
    lucid.distributions.half_cauchy: HalfCauchy
    lucid.distributions.lkj_cholesky: LKJCholesky
    lucid.distributions.studentT: StudentT
    lucid.distributions.utils: broadcast_all lazy_property
    lucid.nn.attention: SDPBackend sdpa_kernel
    lucid.nn.common_types: _size_2_t _ratio_3_t
    lucid.nn.modules: Module Linear
    lucid.nn.modules.rnn: LSTM RNNBase
    lucid.nn.init: _calculate_correct_fan
    lucid.nn.parallel: DataParallel DistributedDataParallel
    lucid.nn.utils.stateless: functional_call
    lucid.optim.adamw: AdamW
    lucid.optim.optimizer: Optimizer required
    lucid.utils._pytree: tree_map tree_flatten
    lucid.utils.dlpack: from_dlpack
    lucid.utils.hooks: RemovableHandle
    lucid.utils.tensorboard: SummaryWriter
"""


@pytest.mark.parametrize("place", PLACES.strip().splitlines())
def test_programs_import_from_where_pytorch_has_it(place: str) -> None:
    module, names = place.strip().split(": ")
    found: dict[str, Any] = {}
    exec(f"from {module} import {', '.join(names.split())}\nimport {module} as it", found)
    assert all(found[name] is getattr(found["it"], name) for name in names.split())
    with pytest.raises(ImportError, match="nothing_of_this_name"):
        exec(f"from {module} import nothing_of_this_name")


def test_the_import_of_what_is_not_built_says_what_to_use() -> None:
    for name, hint in (("fft", "no complex numbers"), ("utils.benchmark", "`step.profile`")):
        with pytest.raises(
            ModuleNotFoundError, match=f"No module named 'lucid.{name}'\nhint.*{hint}"
        ):
            importlib.import_module(f"lucid.{name}")
    with pytest.raises(AttributeError, match="has no attribute 'benchmark'\nhint: `timeit`"):
        _ = lucid.utils.benchmark
    with pytest.raises(AttributeError, match="has no attribute 'onnx'\nhint: `step"):
        _ = lucid.onnx


def test_tensors_are_written_for_tensorboard_as_eager_mode_writes_them(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    from lucid.utils.tensorboard import SummaryWriter

    def run(folder: Path, wrap: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
        lucid.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = optim.SGD(model.parameters(), 0.1)
        with SummaryWriter(str(folder)) as writer:

            def body(x: Any, number: int) -> None:
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                writer.add_scalar("loss", loss, number)
                if number % 3 == 0:
                    writer.add_histogram("weight", model.weight, number)
                    writer.add_scalars("losses", {"one": loss, "two": (loss * 2).item()}, number)

            step = wrap(body)
            for number in range(9):
                step(lucid.randn(4, 3), number)
        return step, [entry for file in sorted(folder.rglob("events*")) for entry in entries(file)]

    def entries(file: Path) -> Iterator[Any]:
        data = file.read_bytes()
        while data:  # length, checksum, event, checksum
            end = 12 + int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12:end])
            for value in event.summary.value:
                yield event.step, value.tag, pytest.approx(value.simple_value + value.histo.sum)
            data = data[end + 4 :]

    _, eager = run(tmp_path / "eager", lambda body: body)
    step, compiled = run(tmp_path / "compiled", lucid.compile)
    assert len(eager) == 9 + 3 + 6
    assert [(*place, value.expected) for *place, value in compiled] == eager
    assert not step.stats.eager_reasons


def test_a_hook_is_removed_by_a_handle_of_the_class_that_programs_name() -> None:
    from lucid.utils.hooks import RemovableHandle

    layer = nn.Linear(2, 1)
    handles: list[RemovableHandle] = [layer.register_forward_hook(lambda *_: None)]
    handles += [lucid.ones(1, requires_grad=True).register_hook(lambda _: None)]
    assert all(isinstance(handle, RemovableHandle) for handle in handles)


def test_a_hyper_parameter_may_be_required_of_each_group() -> None:
    from lucid.optim.optimizer import required

    class Plain(optim.Optimizer):
        def __init__(self, params: Any, lr: Any = required) -> None:
            super().__init__(params, {"lr": lr})

    weight = lucid.ones(2, requires_grad=True)
    assert Plain([{"params": [weight], "lr": 0.5}]).param_groups[0]["lr"] == 0.5
    with pytest.raises(ValueError, match="Plain: a parameter group didn't specify 'lr'"):
        Plain([weight])


def test_trees_are_mapped_as_pytorchs_are(run: Callable[[Any], Any]) -> None:
    from lucid.utils import _pytree as pytree

    Point = namedtuple("Point", "x y")
    shared = [lucid.ones(2)]
    tree = {"b": Point(lucid.zeros(1), (shared, shared)), "a": deque([None, 2], maxlen=3)}

    def step() -> Any:
        return pytree.tree_map_only(lucid.Tensor, lambda x: x + 1, tree)

    assert lucid.utils.__getattr__("_pytree") is pytree  # before anybody has imported it
    found = run(step)
    assert list(found) == ["b", "a"] and found["b"].x.tolist() == [1.0]
    assert [x.tolist() for (x,) in found["b"].y] == [[2.0, 2.0]] * 2
    assert found["a"] == deque([None, 2]) and found["a"].maxlen == 3
    leaves, spec = pytree.tree_flatten(tree)
    assert len(leaves) == spec.num_leaves == 5 and spec == pytree.tree_structure(found)
    assert pytree.tree_leaves((1, [2]), is_leaf=lambda x: isinstance(x, list)) == [1, [2]]
    assert pytree.tree_map(lambda x, y: (x, y), [1, 2], [(3, 4), 5]) == [(1, (3, 4)), (2, 5)]
    with pytest.raises(ValueError, match="the tree has 5 leaves, and 1 are given"):
        pytree.tree_unflatten([1], spec)
    with pytest.raises(ValueError, match="a tuple where trees before have TreeSpec"):
        pytree.tree_map(lambda x, y: x, [1, 2], (1, 2))
