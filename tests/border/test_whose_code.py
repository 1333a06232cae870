"""Code of installed packages changes its values like the user's own: nothing there is constant."""

from __future__ import annotations

import numpy as np
import pytest
from border.harness import X, calls, fresh, same_as_eager

import lucid
from lucid import nn
from lucid.nn import functional as F

# ------------------------------------------------------------------ objects of configuration


@same_as_eager
def test_an_attribute_of_an_installed_config(compile):
    cfg = fresh("hublike").PretrainedConfig()
    step = compile(lambda x: x * cfg.scale)
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_an_attribute_that_an_installed_config_gets_only_later(compile):
    cfg = fresh("hublike").PretrainedConfig()
    step = compile(lambda x: x * getattr(cfg, "rope_theta", 1.0))
    return calls(step, lambda: setattr(cfg, "rope_theta", 3.0))


@same_as_eager
def test_an_alias_that_getattribute_resolves(compile):
    cfg = fresh("hublike").PretrainedConfig()
    step = compile(lambda x: x.sum() * cfg.width)
    return calls(step, lambda: setattr(cfg, "hidden_size", 5))


@same_as_eager
def test_a_property_of_an_installed_config(compile):
    cfg = fresh("hublike").PretrainedConfig()
    step = compile(lambda x: x * 2 if cfg.is_deep else x)
    return calls(step, lambda: setattr(cfg, "num_layers", 1))


@same_as_eager
def test_to_dict_of_an_installed_config(compile):
    cfg = fresh("hublike").PretrainedConfig()
    step = compile(lambda x: x * cfg.to_dict()["scale"])
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_a_class_that_attrs_made(compile):
    conflike = fresh("conflike")

    @conflike.define
    class Optim:
        lr = conflike.Attribute(0.1)
        nesterov = conflike.Attribute(False)

    cfg = Optim(lr=0.5)
    step = compile(lambda x: x * cfg.lr if cfg.nesterov else x + cfg.lr)
    return calls(step, lambda: setattr(cfg, "lr", 2.0), lambda: setattr(cfg, "nesterov", True))


@same_as_eager
def test_an_evolved_copy_of_an_attrs_object(compile):
    conflike = fresh("conflike")

    @conflike.define
    class Optim:
        lr = conflike.Attribute(0.1)

    holder = {"cfg": Optim()}
    step = compile(lambda x: x * holder["cfg"].lr)
    return calls(step, lambda: holder.update(cfg=conflike.evolve(holder["cfg"], lr=0.7)))


@same_as_eager
def test_fields_of_a_pydantic_model(compile):
    class Config(fresh("conflike").BaseModel):
        lr: float = 0.1
        depth: int = 2

    cfg = Config(lr=0.5)
    step = compile(lambda x: x * cfg.lr + cfg.depth)
    return calls(step, lambda: setattr(cfg, "lr", 2.0), lambda: setattr(cfg, "depth", 3))


@same_as_eager
def test_extra_and_set_fields_of_a_pydantic_model(compile):
    class Config(fresh("conflike").BaseModel):
        lr: float = 0.1

    cfg = Config(extra=0.5)
    step = compile(lambda x: x * (2 if "lr" in cfg.__pydantic_fields_set__ else 1) + cfg.extra)
    return calls(step, lambda: setattr(cfg, "extra", 2.0), lambda: setattr(cfg, "lr", 0.1))


@same_as_eager
def test_model_dump(compile):
    class Config(fresh("conflike").BaseModel):
        lr: float = 0.1

    cfg = Config()
    step = compile(lambda x: x * sum(cfg.model_dump().values()))
    return calls(step, lambda: setattr(cfg, "lr", 2.0), lambda: setattr(cfg, "more", 1.0))


@same_as_eager
def test_a_dict_config_by_attributes(compile):
    cfg = fresh("conflike").DictConfig({"model": {"scale": 1.0}})
    step = compile(lambda x: x * cfg.model.scale)
    return calls(step, lambda: setattr(cfg.model, "scale", 2.0))


@same_as_eager
def test_a_dict_config_by_items_and_get(compile):
    cfg = fresh("conflike").DictConfig({"model": {"scale": 1.0}})
    step = compile(lambda x: x * cfg["model"]["scale"] + cfg.get("shift", 0.0))
    return calls(
        step,
        lambda: cfg["model"].__setitem__("scale", 2.0),
        lambda: cfg.__setitem__("shift", 1.0),
    )


@same_as_eager
def test_an_interpolation_of_a_dict_config(compile):
    cfg = fresh("conflike").DictConfig({"base": {"lr": 0.1}, "lr": "${base.lr}"})
    step = compile(lambda x: x * cfg.lr)
    return calls(step, lambda: setattr(cfg.base, "lr", 0.4), lambda: setattr(cfg, "lr", 0.9))


@same_as_eager
def test_a_merged_subtree_of_a_dict_config(compile):
    cfg = fresh("conflike").DictConfig({"loss": {"a": 1.0, "b": 2.0}})
    step = compile(lambda x: sum((x * cfg.loss[key] for key in cfg.loss), x))
    return calls(
        step,
        lambda: cfg.__setitem__("loss", {"a": 4.0}),
        lambda: setattr(cfg.loss, "c", 8.0),
    )


@same_as_eager
def test_a_trait(compile):
    conflike = fresh("conflike")

    class App(conflike.HasTraits):
        scale = conflike.Field(1.0)

    app = App()
    step = compile(lambda x: x * app.scale)
    return calls(step, lambda: setattr(app, "scale", 2.0), lambda: setattr(app, "scale", 3.0))


@same_as_eager
def test_a_flag_of_the_command_line(compile):
    flags = fresh("conflike").AppConfig()
    flags.define_float("lr", 0.1)
    step = compile(lambda x: x * flags.lr)
    return calls(step, lambda: setattr(flags, "lr", 0.3))


# ------------------------------------------------------------------ models of a hub


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", 2.0),
        ("hidden_act", "tanh"),
        ("num_layers", 1),
        ("output_hidden_states", True),
    ],
)
@same_as_eager
def test_the_config_of_a_hubs_model(compile, name, value):
    hub = fresh("hublike")
    model = hub.Model(hub.PretrainedConfig())

    @compile
    def step(x):
        found = model(x)
        return found[1] + 100 if isinstance(found, tuple) else found

    return calls(step, lambda: setattr(model.config, name, value))


@same_as_eager
def test_an_activation_in_a_hubs_registry(compile):
    hub = fresh("hublike")
    model = hub.Model(hub.PretrainedConfig())
    step = compile(model)
    return calls(step, lambda: hub.ACT2FN.update(relu=F.gelu))


# ------------------------------------------------------------------ a module's names


@same_as_eager
def test_a_global_that_an_installed_function_reads(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: trainlib.scaled(x))
    return calls(step, lambda: setattr(trainlib, "SCALE", 2.0))


@same_as_eager
def test_a_global_of_an_installed_module_that_the_step_reads(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: x * trainlib.SCALE if not trainlib.VERBOSE else -x)
    return calls(
        step,
        lambda: setattr(trainlib, "SCALE", 2.0),
        lambda: setattr(trainlib, "VERBOSE", True),
    )


@same_as_eager
def test_a_constant_of_a_packages_module(compile):
    packlike = fresh("packlike")
    step = compile(lambda x: packlike.shifted(packlike.softened(x)))
    return calls(
        step,
        lambda: setattr(packlike.constants, "SHIFT", 2.0),
        lambda: setattr(packlike, "EPSILON", 3.0),
    )


@same_as_eager
def test_a_default_of_an_installed_function(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: trainlib.powered(x))
    return calls(step, lambda: setattr(trainlib.powered, "__defaults__", (3.0,)))


@same_as_eager
def test_an_installed_function_that_is_patched(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: trainlib.scaled(x))
    return calls(step, lambda: setattr(trainlib, "scaled", lambda x: x * 9))


@same_as_eager
def test_an_installed_registry(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: trainlib.activated(x))
    return calls(step, lambda: trainlib.REGISTRY.update(act=lucid.exp))


@same_as_eager
def test_an_installed_singledispatch(compile):
    trainlib = fresh("trainlib")

    class Sample:
        pass

    sample = Sample()
    step = compile(lambda x: x * trainlib.weight_of(sample))
    return calls(step, lambda: trainlib.weight_of.register(Sample)(lambda thing: 4.0))


@same_as_eager
def test_an_attribute_of_an_installed_decorators_wrapper(compile):
    trainlib = fresh("trainlib")
    double = trainlib.counted(lambda x: x * 2)
    step = compile(lambda x: double(x))
    return calls(step, lambda: setattr(double, "factor", 5.0))


@same_as_eager
def test_a_call_within_an_installed_context_manager(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: trainlib.scaled(x))
    results = [step(X), step(X)]
    with trainlib.scale_of(4.0):
        results += [step(X), step(X)]
    return [*results, step(X)]


@same_as_eager
def test_state_of_an_installed_metaclass(compile):
    trainlib = fresh("trainlib")
    step = compile(lambda x: x * trainlib.Global.current)
    return calls(
        step,
        lambda: setattr(trainlib.Switch, "level", 2.0),
        lambda: setattr(trainlib.Global, "level", 3.0),
    )


# ------------------------------------------------------------------ training code of one's own


def a_trainer():
    trainlib = fresh("trainlib")
    return trainlib, trainlib.Trainer(trainlib.Net())


@pytest.mark.parametrize(
    ("name", "value"), [("weight", 3.0), ("_decay", 0.5), ("clip", 1e-3), ("lr", 2.0)]
)
@same_as_eager
def test_a_number_of_an_installed_trainer(compile, name, value):
    _, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    results = [step(X), step(X)]
    if name == "lr":
        trainer.optimizer.param_groups[0]["lr"] = value
    else:
        setattr(trainer, name, value)
    return [*results, step(X), step(X), trainer.net.first.weight]


@same_as_eager
def test_a_method_of_an_installed_trainer_as_the_step(compile):
    _, trainer = a_trainer()
    step = compile(trainer.step)
    results = [step(X), step(X)]
    trainer.weight = 3.0
    return [*results, step(X), step(X), trainer.t]


@same_as_eager
def test_the_phase_of_an_installed_trainer(compile):
    trainlib, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    return calls(step, lambda: setattr(trainer, "phase", trainlib.Phase.MAIN))


@same_as_eager
def test_the_counter_of_an_installed_trainer(compile):
    _, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    results = [step(X), trainer.t, step(X), trainer.t, step(X), trainer.t]
    trainer.t = 100
    return [*results, step(X), trainer.t]


@same_as_eager
def test_a_callback_that_is_added_to_an_installed_trainer(compile):
    _, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    return calls(step, lambda: trainer.callbacks.append(lambda loss: loss * 4))


@same_as_eager
def test_an_installed_trainer_gets_another_net_and_optimizer(compile):
    trainlib, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))

    def replace():
        trainer.net = trainlib.Net()
        trainer.optimizer = lucid.optim.Adam(trainer.net.parameters(), lr=0.3)

    return [*calls(step, replace), trainer.net.first.weight]


@same_as_eager
def test_an_installed_trainer_gets_another_optimizer(compile):
    _, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    results = [step(X), step(X)]
    trainer.optimizer = lucid.optim.SGD(trainer.net.parameters(), lr=1.0, momentum=0.9)
    return [*results, step(X), step(X), trainer.net.first.weight]


@pytest.mark.parametrize("where", ["object", "class"])
@same_as_eager
def test_a_class_attribute_of_an_installed_module(compile, where):
    trainlib = fresh("trainlib")
    net = trainlib.Net()
    step = compile(lambda x: net(x))
    return calls(step, lambda: setattr(net if where == "object" else trainlib.Net, "gain", 2.0))


@same_as_eager
def test_a_number_of_an_installed_module(compile):
    net = fresh("trainlib").Net()
    step = compile(net)
    return calls(step, lambda: setattr(net, "temperature", 4.0))


@same_as_eager
def test_the_margin_of_an_installed_loss(compile):
    loss = fresh("trainlib").WeightedLoss()
    step = compile(lambda x: loss(x))
    return calls(step, lambda: setattr(loss, "margin", 2.0))


@same_as_eager
def test_layers_of_an_installed_net_are_frozen(compile):
    _, trainer = a_trainer()
    step = compile(lambda x: trainer.step(x))
    results = [step(X), step(X)]
    trainer.net.first.requires_grad_(False)
    trainer.optimizer.param_groups[0]["lr"] = 1.0
    weights = [p.detach().clone() for p in trainer.net.parameters()]
    results += [step(X), step(X)]
    moved = [not lucid.equal(a, b) for a, b in zip(weights, trainer.net.parameters(), strict=True)]
    return [*results, *moved]


@same_as_eager
def test_an_installed_schedule(compile):
    trainlib, trainer = a_trainer()
    schedule = trainlib.WarmupSchedule(trainer.optimizer, 3)
    step = compile(lambda x: trainer.step(x))
    results = []
    for _ in range(5):
        schedule.step()
        results += [step(X), trainer.net.first.weight.detach().clone()]
    return results


@same_as_eager
def test_the_factor_of_an_installed_schedule(compile):
    trainlib, trainer = a_trainer()
    schedule = trainlib.WarmupSchedule(trainer.optimizer, 3)
    step = compile(lambda x: x * schedule.factor())
    return calls(step, schedule.step, schedule.step)


@same_as_eager
def test_an_installed_schedule_that_steps_within_the_step(compile):
    trainlib, trainer = a_trainer()
    schedule = trainlib.WarmupSchedule(trainer.optimizer, 3)

    @compile
    def step(x):
        schedule.step()
        return trainer.step(x)

    return [step(X) for _ in range(5)] + [schedule.count, trainer.optimizer.param_groups[0]["lr"]]


@same_as_eager
def test_an_installed_meter(compile):
    meter = fresh("trainlib").Meter()
    step = compile(lambda x: x - meter.average)
    return calls(step, lambda: meter.update(2.0), lambda: meter.update(5.0))


@same_as_eager
def test_an_installed_meter_that_the_step_updates(compile):
    meter = fresh("trainlib").Meter()

    @compile
    def step(x):
        meter.update(2.0)
        return x * meter.count

    results = [step(X), step(X), meter.average]
    meter.count = 10
    return [*results, step(X), meter.sum, meter.count]


@same_as_eager
def test_the_decay_of_an_installed_average(compile):
    trainlib = fresh("trainlib")
    net = trainlib.Net()
    average = trainlib.Averaged(net)

    @compile
    def step(x):
        average.update(net)
        return net(x)

    step(X)
    results = []
    for decay in (0.9, 0.5, 0.0):
        average.decay = decay
        net.first.weight.data = net.first.weight.data + 1.0
        results += [step(X), average.shadow[0].clone()]
    return results


# ------------------------------------------------------------------ numpy, scipy, sklearn


@same_as_eager
def test_an_estimator_that_is_fitted_again(compile):
    scaler = fresh("statlike").StandardScaler().fit(np.arange(6.0, dtype="f4").reshape(2, 3))
    step = compile(lambda x: (x - lucid.from_numpy(scaler.mean_)) / lucid.from_numpy(scaler.scale_))
    return calls(step, lambda: scaler.fit(np.arange(12.0, dtype="f4").reshape(4, 3) ** 2))


@same_as_eager
def test_elements_of_an_estimator_that_changes_in_place(compile):
    scaler = fresh("statlike").StandardScaler().fit(np.arange(6.0).reshape(2, 3))
    step = compile(lambda x: x - scaler.mean_[1] * scaler.n_samples_seen_)
    return calls(step, lambda: scaler.partial_fit(np.full((2, 3), 9.0)))


@same_as_eager
def test_the_edges_of_an_installed_quantizer(compile):
    quantizer = fresh("statlike").Quantizer([0.5, 1.5])
    step = compile(lambda x: x * quantizer.level(2.0))
    return calls(step, lambda: quantizer.edges.append(1.8), lambda: quantizer.edges.clear())


@same_as_eager
def test_a_polynomial_of_numpy(compile):
    curve = np.poly1d([1.0, 2.0])
    step = compile(lambda x: x * float(curve(2.0)))
    return calls(step, lambda: curve.coeffs.__setitem__(0, 5.0), lambda: curve.__setitem__(0, 9.0))


@same_as_eager
def test_coefficients_of_numpys_polynomial(compile):
    curve = np.polynomial.Polynomial([1.0, 2.0])
    step = compile(lambda x: x * float(curve(2.0)))
    return calls(step, lambda: setattr(curve, "coef", np.array([5.0, 2.0])))


@same_as_eager(or_said=True)
def test_a_spline_of_scipy(compile):
    interpolate = pytest.importorskip("scipy.interpolate")
    holder = {"spline": interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0])}
    step = compile(lambda x: x * float(holder["spline"](1.5)))
    return calls(
        step,
        lambda: holder["spline"].c.__setitem__((3, 1), 7.0),
        lambda: holder.update(spline=interpolate.CubicSpline([0.0, 1.0, 2.0], [3.0, 1.0, 4.0])),
    )


@same_as_eager
def test_a_scaler_of_sklearn(compile):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    scaler = preprocessing.StandardScaler().fit([[0.0], [2.0]])
    step = compile(lambda x: (x - float(scaler.mean_[0])) / float(scaler.scale_[0]))
    return calls(step, lambda: scaler.fit([[0.0], [8.0]]))


@same_as_eager(or_said=True)
def test_a_prediction_of_sklearn(compile):
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    step = compile(lambda x: x * float(model.predict([[2.0]])[0]))
    return calls(step, lambda: model.fit([[0.0], [1.0]], [0.0, 5.0]))


@same_as_eager
def test_an_installed_network_in_the_users_sequential(compile):
    trainlib = fresh("trainlib")
    inner = trainlib.Net()
    model = nn.Sequential(nn.Linear(3, 3), inner, nn.Tanh())
    step = compile(model)
    return calls(
        step,
        lambda: setattr(inner, "temperature", 3.0),
        lambda: setattr(trainlib.Net, "forward", lambda self, x: self.first(x)[:3]),
    )
