"""Options of PyTorch's that few programs use: each is done as PyTorch does it, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.distributions import (
    ComposeTransform,
    ExpTransform,
    Normal,
    TanhTransform,
    TransformedDistribution,
)
from lucid.nn import functional as F
from lucid.nn.utils import rnn
from lucid.utils import data

Mode = Callable[[Callable[..., Any]], Callable[..., Any]]


@pytest.fixture(params=["eager", "compiled"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return lucid.compile if request.param == "compiled" else lambda function: function


def refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, lucid.LucidError)


# -------------------------------------------------------------------- pools and tables


def greatest_of_bins(x: np.ndarray, sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The first maximum of each bin by rows, and where it is in the flattened image."""
    (h, w), (rows, columns) = x.shape[-2:], sizes
    values = np.empty((*x.shape[:-2], rows, columns), x.dtype)
    places = np.empty(values.shape, np.int64)
    for *at, i, j in np.ndindex(*values.shape):
        top, left = i * h // rows, j * w // columns
        part = x[
            (*at, slice(top, -(-(i + 1) * h // rows)), slice(left, -(-(j + 1) * w // columns)))
        ]
        row, column = np.unravel_index(part.argmax(), part.shape)
        values[(*at, i, j)] = part.max()
        places[(*at, i, j)] = (top + row) * w + left + column
    return values, places


@pytest.mark.parametrize("sizes", [(3, 2), (2, 5), (4, 6)])
def test_adaptive_pools_return_the_places_of_the_greatest(
    mode: Mode, sizes: tuple[int, int]
) -> None:
    image = np.random.RandomState(0).randint(0, 4, (2, 3, 4, 6)).astype(np.float32)
    x = lucid.tensor(image, requires_grad=True)

    @mode
    def pooled(x: lucid.Tensor) -> Any:
        y, places = F.adaptive_max_pool2d(x, sizes, return_indices=True)
        (y * y).sum().backward()
        return y, places

    y, places = pooled(x)
    values, expected = greatest_of_bins(image, sizes)
    np.testing.assert_array_equal(y.detach().numpy(), values)
    np.testing.assert_array_equal(places.numpy(), expected)
    gradient = np.zeros((6, 24), np.float32)
    for row, at in enumerate(expected.reshape(6, -1)):
        np.add.at(gradient[row], at, 2 * values.reshape(6, -1)[row])
    np.testing.assert_array_equal(x.grad.numpy(), gradient.reshape(image.shape))


def test_adaptive_pools_as_modules_return_places_too() -> None:
    for rank, module in enumerate(
        (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
    ):
        x = lucid.arange(float(5 ** (rank + 1))).reshape(1, *[5] * (rank + 1))
        y, places = module(2, return_indices=True)(x)
        assert y.tolist() == places.to(y.dtype).tolist()


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_an_embedding_shortens_the_rows_that_are_looked_up(mode: Mode, order: float) -> None:
    table = np.random.RandomState(1).standard_normal((5, 4)).astype(np.float32)
    weight = lucid.tensor(table, requires_grad=True)

    @mode
    def looked_up(index: lucid.Tensor) -> lucid.Tensor:
        y = F.embedding(index, weight, max_norm=1.0, norm_type=order)
        y.sum().backward()
        return y

    y = looked_up(lucid.tensor([[0, 2], [2, 3]]))
    norms = np.linalg.norm(table, order, 1)
    factors = np.where(np.isin(np.arange(5), [0, 2, 3]) & (norms > 1), 1 / (norms + 1e-7), 1)
    expected = table * factors[:, None].astype(np.float32)
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(y.detach().numpy(), expected[[[0, 2], [2, 3]]], rtol=1e-6)
    assert weight.grad[:, 0].tolist() == [1.0, 0.0, 2.0, 1.0, 0.0]


def test_modules_of_tables_take_the_norm_and_refuse_other_gradients() -> None:
    for module in (nn.Embedding(4, 3, max_norm=0.5), nn.EmbeddingBag(4, 3, max_norm=0.5)):
        module(lucid.tensor([[0, 1]]))
        norms = module.weight.detach().norm(dim=1)
        assert bool((norms[:2] <= 0.5 + 1e-6).all())
    refused(lambda: nn.Embedding(4, 3, sparse=True), ValueError, "sparse=True")
    refused(lambda: nn.EmbeddingBag(4, 3, sparse=True), ValueError, "sparse=True")


def test_gradients_of_rows_are_divided_by_how_often_they_are_looked_up(mode: Mode) -> None:
    def gradients(x: lucid.Tensor, bags: lucid.Tensor) -> list[lucid.Tensor]:
        table = lucid.arange(10.0).reshape(5, 2).requires_grad_()
        weights = lucid.arange(1.0, 13.0).reshape(2, 3, 2)
        loss = (F.embedding(x, table, padding_idx=3, scale_grad_by_freq=True) * weights).sum()
        (first,) = lucid.autograd.grad(loss, table)
        bag = F.embedding_bag(bags, table, mode="sum", scale_grad_by_freq=True)
        (second,) = lucid.autograd.grad((bag * weights[0, :2]).sum(), table)
        return [first, second]

    x = lucid.tensor([[1, 1, 2], [1, 3, 0]])
    first, second = mode(gradients)(x, lucid.tensor([[0, 1], [1, 1]]))
    expected = [[11, 12], [11 / 3, 14 / 3], [5, 6], [0, 0], [0, 0]]
    np.testing.assert_allclose(first.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(second.numpy(), [[1, 2], [7 / 3, 10 / 3], *[[0, 0]] * 3], rtol=1e-6)
    shown = repr(nn.Embedding(4, 3, scale_grad_by_freq=True))
    assert shown == "Embedding(4, 3, scale_grad_by_freq=True)"
    bag = nn.EmbeddingBag(4, 3, mode="max", scale_grad_by_freq=True)
    refused(lambda: bag(x), ValueError, "max mode does not support scaling")


# -------------------------------------------------------------------- matrices


def test_ex_functions_raise_where_errors_are_checked(mode: Mode) -> None:
    bad = lucid.tensor([[1.0, 2.0], [2.0, 1.0]])
    singular = lucid.ones(2, 2)
    assert int(lucid.linalg.cholesky_ex(bad).info) != 0
    for call in (
        mode(lambda: lucid.linalg.cholesky_ex(bad, check_errors=True)),
        mode(lambda: lucid.linalg.inv_ex(singular, check_errors=True)),
    ):
        with pytest.raises(lucid.linalg.LinAlgError):
            call()
    found = lucid.linalg.inv_ex(2 * lucid.eye(2), check_errors=True)
    assert found.inverse.tolist() == [[0.5, 0.0], [0.0, 0.5]] and int(found.info) == 0


def test_of_a_hermitian_matrix_the_lower_triangle_is_looked_at(mode: Mode) -> None:
    lower = np.array([[2.0, 99.0], [1.0, 2.0]])
    whole = np.array([[2.0, 1.0], [1.0, 2.0]])
    a = lucid.tensor(lower)
    inverse = mode(lambda a: lucid.linalg.pinv(a, hermitian=True))(a)
    np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(whole), rtol=1e-12)
    flat = lucid.tensor([[1.0, 7.0], [1.0, 1.0]])
    assert int(lucid.linalg.matrix_rank(flat, hermitian=True)) == 1
    assert int(lucid.linalg.matrix_rank(flat)) == 2
    np.testing.assert_allclose(
        lucid.linalg.pinv(flat, hermitian=True).numpy(), np.linalg.pinv(np.ones((2, 2))), rtol=1e-5
    )


def test_least_squares_return_what_their_driver_finds() -> None:
    a = lucid.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    b = lucid.ones(3, 1)
    assert int(lucid.linalg.lstsq(a, b).rank) == 2
    assert lucid.linalg.lstsq(a, b, driver="gels").rank.shape == (0,)
    assert lucid.linalg.lstsq(a, b, driver="gelsd").singular_values.tolist() == [2.0, 1.0]
    refused(lambda: lucid.linalg.lstsq(a, b, driver="bogus"), ValueError, "one of None, 'gels'")
    refused(lambda: lucid.linalg.svd(a, driver="gesvd"), ValueError, "on a GPU")
    refused(lambda: lucid.linalg.eigh(lucid.eye(2), "X"), ValueError, "UPLO must be one of")
    refused(lambda: lucid.linalg.solve(a[:2], 3), TypeError, "argument 'B'")


# -------------------------------------------------------------------- sequences


def test_packing_wants_sorted_lengths_unless_it_is_told(mode: Mode) -> None:
    x = lucid.ones(3, 2, 1)

    @mode
    def packed(lengths: lucid.Tensor) -> lucid.Tensor:
        return rnn.pack_padded_sequence(x, lengths).lengths

    assert packed(lucid.tensor([3, 2])).tolist() == [3, 2]
    refused(lambda: packed(lucid.tensor([2, 3])), ValueError, "sorted in decreasing order")
    parts = [lucid.ones(1), lucid.ones(2)]
    refused(lambda: rnn.pack_sequence(parts), ValueError, "enforce_sorted=False takes any order")
    assert rnn.pack_sequence(parts, enforce_sorted=False).lengths.tolist() == [1, 2]


def test_a_transformer_takes_the_arguments_that_pytorchs_takes() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    stack = nn.TransformerEncoder(encoder_layer=layer, num_layers=1, enable_nested_tensor=False)
    assert stack(lucid.ones(5, 1, 8)).shape == (5, 1, 8)
    refused(lambda: nn.TransformerEncoder(layer, 1, nrom=None), TypeError, "did you mean norm")
    refused(lambda: nn.TransformerEncoder(layer, 1, mask_check=3), TypeError, "True or False")
    model = nn.Transformer(
        8, 2, 1, 1, 16, 0.0, "gelu", stack, None, 1e-5, True, dtype=lucid.float64
    )
    assert model.encoder is stack and model.batch_first
    assert model.decoder.norm.weight.dtype is lucid.float64
    x = lucid.randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    told = model(x, x, tgt_mask=causal, src_is_causal=False, tgt_is_causal=True)
    lucid.testing.assert_close(told, model(x, x, tgt_mask=causal), rtol=1e-5, atol=1e-6)


def test_the_matrices_of_a_transformer_start_as_xavier_draws_them() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert bound / 2 < float(parameter.detach().abs().max()) <= bound


# -------------------------------------------------------------------- loading


def test_the_only_worker_is_prepared_before_it_loads() -> None:
    told: list[Any] = []

    class Count(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            info = data.get_worker_info()
            told.append(info and (info.id, info.num_workers))
            return iter(range(3))

    def prepare(number: int) -> None:
        info = data.get_worker_info()
        told.append((number, info is not None and info.dataset is dataset))

    dataset = Count()
    loader = data.DataLoader(dataset, 2, num_workers=4, worker_init_fn=prepare)
    for _ in loader:
        assert data.get_worker_info() is None
    assert told == [(0, True), (0, 1)]
    list(loader)
    assert told[2:] == [(0, True), (0, 1)]
    told.clear()
    list(data.DataLoader(dataset, 2, worker_init_fn=prepare))
    assert told == [None], "without workers nothing is prepared"
    kept = data.DataLoader(
        dataset, 2, num_workers=1, worker_init_fn=prepare, persistent_workers=True
    )
    told.clear()
    assert list(kept) and list(kept)
    assert told == [(0, True), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option needs num_workers > 0"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "spawn"}, "multiprocessing_context option needs num_workers"),
        ({"num_workers": 1, "multiprocessing_context": "x"}, "must be one of"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, "excludes drop_last"),
        ({"worker_init_fn": 3}, "worker_init_fn must be a function"),
        ({"pin_memory": "yes"}, "pin_memory must be True or False"),
        ({"in_order": 1}, "in_order must be True or False"),
    ],
)
def test_a_loader_refuses_what_it_cant_do(options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        data.DataLoader(range(3), **options)


def test_an_order_of_an_iterable_dataset_is_refused() -> None:
    class Count(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(ValueError, match="expected unspecified"):
            data.DataLoader(Count(), **options)


def test_single_samples_are_converted_too() -> None:
    rows = [np.ones(2), np.zeros(2)]
    first, _ = data.DataLoader(rows, batch_size=None)
    assert isinstance(first, lucid.Tensor)
    doubled = data.DataLoader([1, 2], batch_size=None, collate_fn=lambda x: 2 * x)
    assert list(doubled) == [2, 4]


# -------------------------------------------------------------------- transforms


def test_a_cache_gives_back_the_very_value(mode: Mode) -> None:
    @mode
    def back(x: lucid.Tensor, cache_size: int) -> lucid.Tensor:
        transform = TanhTransform(cache_size=cache_size)
        x = x * 1.0
        result: lucid.Tensor = transform.inv(transform(x))
        return result

    x = lucid.tensor([20.0, 1.0])
    assert back(x, 0)[0].item() == math.inf
    assert back(x, 1).tolist() == [20.0, 1.0]


def test_a_cache_outlives_neither_its_trace_nor_a_copy() -> None:
    transform = ComposeTransform([ExpTransform(), TanhTransform()], cache_size=1)
    step = lucid.compile(lambda x: transform.inv(transform(2 * x)))
    for x in (10.0, 11.0):
        assert step(lucid.tensor(x)).item() == 2 * x
    assert step.stats.traces == 1
    x = lucid.tensor([5.0])
    y = transform(x)
    assert transform.inv(y) is x and transform(x) is y
    assert ComposeTransform([ExpTransform(), TanhTransform()]).inv(y).item() == math.inf
    assert TanhTransform(cache_size=1).with_cache(1).inv(lucid.ones(1)).item() == math.inf
    distribution = TransformedDistribution(Normal(10.0, 1.0), [TanhTransform(cache_size=1)])
    assert math.isfinite(distribution.log_prob(distribution.rsample()).item())
    refused(lambda: ExpTransform(cache_size=2), ValueError, "cache_size must be one of 0, 1")


# -------------------------------------------------------------------- what changes nothing


def test_inference_mode_can_be_switched_off() -> None:
    with lucid.inference_mode():
        assert not lucid.is_grad_enabled()
        with lucid.inference_mode(False):
            assert lucid.is_grad_enabled()
    assert lucid.inference_mode(lambda: lucid.is_grad_enabled())() is False
    assert lucid.inference_mode(mode=False)(lambda: lucid.is_grad_enabled())() is True


def test_a_name_of_a_group_is_nobodys_but_the_programs() -> None:
    w = lucid.ones(1, requires_grad=True)
    group = {"params": [w], "name": "head", "lr_scale": 0.5}
    opt = optim.AdamW([group], lr=0.1)
    assert opt.param_groups[0]["lr_scale"] == 0.5
    refused(
        lambda: opt.add_param_group({"params": [lucid.ones(1)], "beta": 0.9}),
        TypeError,
        "a group has no 'beta'\nhint: did you mean betas",
    )


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop"])
def test_an_optimizer_updates_the_same_by_each_implementation(name: str) -> None:
    def updated(**options: Any) -> list[float]:
        w = lucid.tensor([1.0, -2.0], requires_grad=True)
        opt = getattr(optim, name)([w], lr=0.1, **options)
        (w * w).sum().backward()
        opt.step()
        values: list[float] = w.tolist()
        return values

    assert updated(foreach=True) == updated(foreach=False) == updated()
    refused(lambda: updated(differentiable=True), ValueError, "has no history")
    refused(lambda: updated(foreach="yes"), TypeError, "foreach must be True or False")


def test_a_group_chooses_no_implementation_that_there_isnt() -> None:
    w = lucid.ones(1, requires_grad=True)
    group = {"params": [w], "differentiable": True}
    refused(lambda: optim.Adam([group], lr=0.1), ValueError, "has no history")
    refused(lambda: optim.AdamW([w], fused=True, foreach=True), ValueError, "cannot be `True`")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: lucid.zeros_like(x, memory_format="rows"),
        lambda x: x.clone(memory_format=3),
        lambda x: x.sort(stable="yes"),
        lambda x: x.topk(1, sorted=1),
        lambda x: lucid.unique(x, sorted="no"),
        lambda x: lucid.tril_indices(2, 2, device="cuda"),
        lambda x: lucid.triu_indices(2, 2, layout="strided"),
        lambda x: x.to(lucid.float32, lucid.float64),
        lambda x: x.to("cpu", non_blocking=1),
        lambda x: x.copy_(x, non_blocking="yes"),
        lambda x: x.pin_memory("cuda"),
        lambda x: nn.Linear(1, 1).to(dtpe=lucid.float64),
        lambda x: nn.utils.clip_grad_norm_([x], 1.0, foreach=2),
        lambda x: lucid.autograd.grad(x.sum(), x, only_inputs=False),
        lambda x: lucid.autograd.forward_ad.unpack_dual(x, level=1),
        lambda x: lucid.jit.script(lambda: x, optimise=True),
        lambda x: lucid.compile(lambda: x, backend="tvm"),
        lambda x: lucid.amp.autocast("cuda", dtype="half"),
        lambda x: lucid.no_grad(3),
        lambda x: lucid.inference_mode("off"),
        lambda x: lucid.set_printoptions(precision="two"),
        lambda x: lucid.is_nonzero("no"),
        lambda x: F.cross_entropy(x.reshape(1, 2), lucid.tensor([0]), None, True),
        lambda x: optim.SGD([{"params": [x], "weight_deacy": 0.1}], lr=0.1),
        lambda x: lucid.cuda.manual_seed("zero"),
        lambda x: nn.Transformer.generate_square_subsequent_mask(2, device="cuda"),
        lambda x: nn.DataParallel(nn.Identity(), device_ids=0),
        lambda x: optim.swa_utils.update_bn([], nn.Identity(), device="cuda"),
    ],
)
def test_a_value_without_a_meaning_is_refused(call: Callable[[lucid.Tensor], Any]) -> None:
    x = lucid.ones(2, requires_grad=True)
    with pytest.raises((ValueError, TypeError)) as caught:
        call(x)
    assert isinstance(caught.value, lucid.LucidError)


# -------------------------------------------------------------------- shapes, orders, weights


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss])
def test_a_weighted_mean_divides_by_the_weights(mode: Mode, loss: Any) -> None:
    x, y = lucid.tensor([1.0, 3.0, -2.0]), lucid.zeros(3)
    weight = lucid.tensor([1.0, 0.5, 2.0])
    apart = loss(x, y, reduction="none").numpy() * weight.numpy()
    weighted = mode(lambda x, kind: loss(x, y, reduction=kind, weight=weight))
    np.testing.assert_allclose(weighted(x, "none").numpy(), apart)
    assert weighted(x, "sum").item() == apart.sum()
    assert weighted(x, "mean").item() == pytest.approx(apart.sum() / 3.5)
    refused(lambda: loss(x, y, weight=weight[:1]), ValueError, "must have the same size")


def test_distances_count_what_differs_and_broadcast(mode: Mode) -> None:
    x, y = lucid.tensor([[1.0, 2.0, 3.0]]), lucid.tensor([[1.0, 0.0, 0.0]])
    count = mode(lambda x, y: F.pairwise_distance(x, y, p=0.0, eps=0.0))
    assert count(x, y).tolist() == [2.0]
    rows = lucid.eye(3)
    cosines = mode(lambda a, b: F.cosine_similarity(a[:, None], b, dim=2))(rows, rows)
    lucid.testing.assert_close(cosines, rows)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_transposed_convolution_grows_by_as_much_as_its_dilation(
    mode: Mode, padding: int
) -> None:
    x = lucid.randn(1, 1, 4, requires_grad=True)
    weight = lucid.tensor([[[1.0, 10.0, 100.0]]])

    @mode
    def spread(x: lucid.Tensor) -> lucid.Tensor:
        y = F.conv_transpose1d(x, weight, padding=padding, output_padding=1, dilation=2)
        (y * lucid.arange(float(y.shape[-1]))).sum().backward()
        return y

    whole, places = np.zeros(9), np.arange(9.0)
    for i, value in enumerate(x.detach().numpy()[0, 0]):
        whole[i : i + 5 : 2] += value * np.array([1.0, 10.0, 100.0])
    inside = slice(padding, 9 - padding)
    np.testing.assert_allclose(spread(x).detach().numpy()[0, 0], whole[inside], rtol=1e-5)
    slopes = np.where((places >= padding) & (places < 9 - padding), places - padding, 0)
    expected = [slopes[i : i + 5 : 2] @ [1.0, 10.0, 100.0] for i in range(4)]
    np.testing.assert_allclose(x.grad.numpy()[0, 0], expected, rtol=1e-5)


def test_a_transposed_convolution_makes_the_size_that_is_asked_for(mode: Mode) -> None:
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
    called = mode(lambda x, size: layer(x, output_size=size))
    x = lucid.ones(1, 1, 4, 5)
    assert called(x, (8, 9)).shape == called(x, [1, 1, 8, 9]).shape == (1, 1, 8, 9)
    np.testing.assert_allclose(
        called(x, (8, 9)).detach().numpy()[..., :7, :], layer(x).detach().numpy(), rtol=1e-5
    )
    refused(lambda: called(x, (9, 9)), ValueError, r"from \[7, 9\] to \[8, 10\]: \[9, 9\]")
    refused(lambda: called(x, (9,)), ValueError, "must be 2 sizes")


def test_rows_in_any_order_are_searched_through_their_sorter(mode: Mode) -> None:
    rows, values = np.array([[3.0, 1.0, 2.0], [5.0, 9.0, 7.0]]), np.array([[1.5], [9.0]])
    order = rows.argsort(1)
    found = mode(lambda r, v, s: lucid.searchsorted(r, v, sorter=s))(
        *map(lucid.tensor, (rows, values, order))
    )
    expected = [
        np.searchsorted(r, v, sorter=s) for r, v, s in zip(rows, values, order, strict=True)
    ]
    assert found.tolist() == np.array(expected).tolist()
    refused(
        lambda: lucid.searchsorted(lucid.ones(3), lucid.ones(1), sorter=lucid.tensor([0])),
        ValueError,
        "sorter must have the shape",
    )


@pytest.mark.parametrize("right", [False, True])
def test_a_nan_belongs_behind_all_else_of_a_sorted_row(mode: Mode, right: bool) -> None:
    row = np.array([-np.inf, -1.0, 0.0, 0.0, 2.0, np.inf, np.nan, np.nan])
    values = np.array([[np.nan, -0.0, 2.0], [np.inf, -np.inf, 0.5]])
    search = mode(lambda r, v: lucid.searchsorted(r, v, right=right))
    expected = np.searchsorted(row, values, "right" if right else "left")
    assert search(lucid.tensor(row), lucid.tensor(values)).tolist() == expected.tolist()
    rows = np.stack([row, np.arange(8.0)])
    found = search(lucid.tensor(rows), lucid.tensor(values)).tolist()
    assert found[0] == expected[0].tolist() and found[1] == [8, 0, 1]
    assert search(lucid.zeros(0), lucid.tensor(values)).tolist() == [[0] * 3] * 2
    assert search(lucid.tensor(rows[:, ::2]), lucid.ones(2, 0)).shape == (2, 0)


def test_diagonals_are_embedded_along_any_two_axes(mode: Mode) -> None:
    x = lucid.arange(1.0, 7.0).reshape(2, 3)
    for first, second in ((0, 2), (2, 0), (-2, -1), (1, 0)):
        made = mode(lambda x, a=first, b=second: lucid.diag_embed(x, 1, a, b))(x)
        back = np.diagonal(made.numpy(), 1, first, second)
        np.testing.assert_array_equal(back, x.numpy())
        assert made.numpy().sum() == 21 and sorted(made.shape) == [2, 4, 4]
    refused(lambda: lucid.diag_embed(x, 0, 1, 1), ValueError, "multiple times")


def test_counts_alone_are_repeated_positions(mode: Mode) -> None:
    counts = lucid.tensor([2, 0, 1])
    assert mode(lambda counts: lucid.repeat_interleave(counts))(counts).tolist() == [0, 0, 2]
    assert lucid.repeat_interleave(counts, output_size=3).dtype is lucid.int64
    refused(lambda: lucid.repeat_interleave(counts, output_size=4), ValueError, "output_size is")
    refused(lambda: lucid.repeat_interleave(counts.reshape(1, 3)), ValueError, "repeats must be")


@pytest.mark.parametrize("split", [lucid.hsplit, lucid.vsplit, lucid.dsplit])
def test_named_splits_take_equal_parts(split: Any) -> None:
    x = lucid.arange(27).reshape(3, 3, 3)
    assert len(split(x, 3)) == 3 and len(split(x, [1])) == 2
    refused(lambda: split(x, 2), ValueError, "3, is not divisible by 2")


def test_the_length_of_a_repetition_may_be_told() -> None:
    counts = lucid.tensor([1, 2])
    assert lucid.repeat_interleave(lucid.eye(2), counts, dim=0, output_size=3).shape == (3, 2)
    for call in (
        lambda: lucid.repeat_interleave(lucid.eye(2), counts, dim=0, output_size=4),
        lambda: lucid.eye(2).repeat_interleave(2, dim=0, output_size=3),
    ):
        refused(call, ValueError, "output_size is")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_projects_its_output_at_each_step(mode: Mode, bidirectional: bool) -> None:
    layer = nn.LSTM(3, 4, proj_size=2, bidirectional=bidirectional)
    x = lucid.randn(5, 2, 3)
    y, (h, c) = mode(lambda x: layer(x))(x)
    directions = 1 + bidirectional
    assert y.shape == (5, 2, 2 * directions)
    assert h.shape == (directions, 2, 2) and c.shape == (directions, 2, 4)
    weights = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    state, cell = np.zeros((2, 2)), np.zeros((2, 4))
    for row in x.numpy():
        gates = row @ weights["weight_ih_l0"].T + state @ weights["weight_hh_l0"].T
        i, f, g, o = np.split(gates + weights["bias_ih_l0"] + weights["bias_hh_l0"], 4, -1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        state = (o * np.tanh(cell)) @ weights["weight_hr_l0"].T
    np.testing.assert_allclose(h.detach().numpy()[0], state, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c.detach().numpy()[0], cell, rtol=1e-4, atol=1e-5)
    refused(
        lambda: nn.LSTM(3, 4, proj_size=4),
        ValueError,
        "proj_size must be from 0 to below hidden_size=4",
    )
    refused(lambda: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size is only for LSTM")


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_adds_a_trained_key_and_one_of_zeros(mode: Mode, need_weights: bool) -> None:
    attention = nn.MultiheadAttention(2, 1, add_bias_kv=True, add_zero_attn=True)
    x = lucid.randn(3, 1, 2)
    causal = nn.Transformer.generate_square_subsequent_mask(3)

    @mode
    def attended(x: lucid.Tensor) -> Any:
        return attention(x, x, x, attn_mask=causal, is_causal=True, need_weights=need_weights)

    result, weights = attended(x)
    named = {name: p.detach().numpy() for name, p in attention.named_parameters()}
    q, k, v = np.split(x.numpy()[:, 0] @ named["in_proj_weight"].T + named["in_proj_bias"], 3, -1)
    k = np.concatenate([k, named["bias_k"][0], np.zeros((1, 2))])
    v = np.concatenate([v, named["bias_v"][0], np.zeros((1, 2))])
    scores = q @ k.T / np.sqrt(2) + np.pad(causal.numpy(), ((0, 0), (0, 2)))
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    if need_weights:
        np.testing.assert_allclose(weights.detach().numpy()[0], expected, rtol=1e-4, atol=1e-6)
    joined = expected @ v @ named["out_proj.weight"].T + named["out_proj.bias"]
    np.testing.assert_allclose(result.detach().numpy()[:, 0], joined, rtol=1e-4, atol=1e-5)
