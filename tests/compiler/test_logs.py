"""Lists, deques and sets that a step only writes: each call leaves in them what eager would."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import pytest

import lucid
from lucid import nn
from lucid.autograd import Function

X = [0.5, -1.0, 2.0]
Logs = namedtuple("Logs", "losses notes")


class Holder:
    """An object of the user's, with the attributes that it is given."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def calls(compile, step, count=4):
    """Results of `count` calls."""
    step = compile(step)
    return [step(lucid.tensor(X) * (i + 1)) for i in range(count)]


def test_constants_and_tensors_that_each_call_appends(agree):
    def scenario(compile):
        log, holder, table = [], Holder(log=[1]), {"a": [], "b": [[]]}
        epoch = 0

        def step(x):
            nonlocal epoch
            epoch += 1
            loss = x.square().sum()
            log.append("forward")
            log.append(loss)
            holder.log += [loss * 2, epoch]
            holder.log.extend(i for i in range(2))
            table["a"].append((epoch, {"loss": loss, "x": x}))
            table["b"][0].insert(0, x * 2)
            return loss

        return [calls(compile, step), log, holder.log, table]

    agree(scenario, traces=1)


def test_what_is_returned_and_appended_is_one_tensor():
    log = []

    @lucid.compile
    def step(x):
        y = x * 2
        log.append(y)
        return y

    results = [step(lucid.ones(2)) for _ in range(3)]
    assert all(a is b for a, b in zip(results, log, strict=True))
    assert len({id(result) for result in results}) == 3


def test_the_order_of_hooks_forward_and_backward(agree):
    def scenario(compile):
        order = []

        class Noted(Function):
            @staticmethod
            def forward(ctx, x):
                order.append("forward")
                return x * 2

            @staticmethod
            def backward(ctx, g):
                order.append("backward")
                return g * 2

        def noting(gradient, order=order, name="default"):
            order.append((name, gradient.sum()))

        w = nn.Parameter(lucid.ones(3))
        w.register_hook(lambda gradient: order.append("leaf"))
        w.register_post_accumulate_grad_hook(lambda leaf: order.append("accumulated"))

        def step(x):
            w.grad = None
            y = Noted.apply(w * x)
            y.register_hook(noting)
            y.grad_fn.register_prehook(lambda gradients: order.append("before"))
            y.grad_fn.register_hook(lambda inputs, outputs: order.append("after"))
            y.sum().backward()
            return y

        return [calls(compile, step), order, w]

    agree(scenario, traces=1)


def test_deques_and_sets_and_counts(agree):
    def scenario(compile):
        recent, names, count, groups = deque(maxlen=5), {"x"}, Counter(), defaultdict(list)

        def step(x):
            recent.append(x.sum())
            recent.appendleft(3)
            names.add("a")
            names.discard("x")
            names.update(["b"], ("c",))
            count["calls"] += 1
            count.update(["more", "calls"])
            groups["sums"].append(x.sum())
            return x * 2

        return [calls(compile, step), list(recent), sorted(names), dict(count), dict(groups)]

    agree(scenario)


def test_entries_of_a_dict_by_a_number_that_moves(agree):
    def scenario(compile):
        state, found = Holder(losses={}, best=OrderedDict(), epoch=0), []

        @compile
        def step(x):
            state.epoch += 1
            state.losses[state.epoch] = x.sum().item()
            state.losses[f"at/{state.epoch}", 0] = record = {"mean": x.mean(), "x": x}
            state.best[x.argmax().item()] = Logs([x * 2], deque())
            return record, state.losses

        for i in range(6):
            record, losses = step(lucid.ones(2) * i)
            assert losses is state.losses and losses[f"at/{i % 4 + 1}", 0] is record
            logs = [[key, *made.losses] for key, made in state.best.items()]
            found += [list(losses.values()), list(map(str, losses)), logs]
            if i == 3:
                state.losses, state.epoch = {}, 0
        return found

    (step,) = agree(scenario)
    assert step.stats.traces <= 2 and not step.stats.eager_reasons


@pytest.mark.parametrize(
    "look",
    [
        lambda losses, epoch: len(losses),
        lambda losses, epoch: losses[epoch],
        lambda losses, epoch: max(losses.values()),
        lambda losses, epoch: str(losses),
        lambda losses, epoch: losses.pop(epoch),
        lambda losses, epoch: losses.update(last=epoch),
        lambda losses, epoch: epoch in losses,
        lambda losses, epoch: 3 in losses,
        lambda losses, epoch: losses.get(3),
    ],
)
def test_a_step_that_looks_at_such_entries_finds_them(agree, look):
    def scenario(compile):
        losses, counted = {}, [0]

        @compile
        def step(x):
            counted[0] += 1
            losses[counted[0]] = x.sum().item()
            return look(losses, counted[0])

        return [[step(lucid.ones(2) * i), dict(losses)] for i in range(6)]

    agree(scenario)


def _count(counts, scores, step):
    counts[int(scores.mean(0).argmax())] += 1


def _count_each(counts, scores, step):
    for label in scores.argmax(1):
        counts[label.item()] += 1


def _sum_up(counts, scores, step):
    counts[scores.mean(0).argmax().item()] += scores.mean().item()


def _by_two(counts, scores, step):
    counts[step, scores.mean(0).argmax().item()] -= 1
    counts[f"class {scores[0].argmax().item()}"] += step


def _scale(counts, scores, step):
    counts[scores.mean(0).argmax().item()] += 1
    counts[scores.mean(0).argmax().item()] *= 2


def _count_a_list(counts, scores, step):
    for label, _ in zip(scores.argmax(1).tolist(), range(6), strict=True):
        counts[label] += 1


FILLED = [_count, _count_each, _sum_up, _by_two, _scale, _count_a_list]


@pytest.mark.parametrize("make", [Counter, lambda: defaultdict(int), lambda: defaultdict(float)])
@pytest.mark.parametrize("fill", FILLED)
def test_what_is_predicted_is_counted_in_one_program(agree, fill, make):
    def scenario(compile):
        lucid.manual_seed(3)
        counts, state = make(), Holder(step=0)

        @compile
        def step(scores):
            state.step += 1
            fill(counts, scores, state.step)
            return scores * 2

        found = [(step(lucid.randn(6, 9)), list(counts.items())) for _ in range(12)]
        return found, [*map(type, counts)], [*map(type, counts.values())]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


@pytest.mark.parametrize("name", ["update", "subtract"])
def test_a_list_of_predictions_is_counted_in_one_program(agree, name):
    def scenario(compile):
        lucid.manual_seed(3)
        counts = Counter(start=4)

        @compile
        def step(scores):
            labels = scores.argmax(1)
            getattr(counts, name)(labels.tolist())
            getattr(counts, name)(labels[labels > 3].tolist())
            counts.update([labels[0].item(), "calls"])
            return scores * 2

        return [(step(lucid.randn(12, 9)), list(counts.items())) for _ in range(12)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


@pytest.mark.parametrize(
    "look",
    [
        lambda counts, label, x: counts[label],
        lambda counts, label, x: len(counts),
        lambda counts, label, x: sum(counts.values()),
        lambda counts, label, x: x * counts[label],
        lambda counts, label, x: counts.most_common(1),
        lambda counts, label, x: counts.update({label: 3}),
        lambda counts, label, x: counts.__setitem__(2, counts[2] + 1),
    ],
)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_step_that_looks_at_counts_finds_them(agree, look, is_before):
    def scenario(compile):
        lucid.manual_seed(3)
        counts = Counter()

        @compile
        def step(x):
            label = x.argmax().item()
            found = [look(counts, label, x)] if is_before else []
            counts[label] += 1
            return found or look(counts, label, x)

        return [(step(lucid.randn(4)), dict(counts)) for _ in range(12)]

    agree(scenario)


def test_counts_of_tensors_and_of_the_users_classes_are_looked_at(agree):
    class Sevens(dict):
        def __missing__(self, key):
            return 7

    def scenario(compile):
        lucid.manual_seed(3)
        shared = lucid.ones(1)
        sums, sevens = defaultdict(float, {2: lucid.ones(1)}), Sevens()
        weights = defaultdict(int, dict.fromkeys(range(4), shared))

        @compile
        def step(x):
            label = x.argmax().item()
            sums[label] += x.max()
            sevens[label] += 1
            weights[label] += 1
            return x * shared

        return [(step(lucid.randn(4)), list(sums.items()), dict(sevens)) for _ in range(8)]

    agree(scenario)


def test_a_step_finds_such_entries_in_a_view_that_it_had_before(agree):
    def scenario(compile):
        losses, counted = {}, [0]

        @compile
        def step(x):
            counted[0] += 1
            keys = losses.keys()
            losses[counted[0]] = x.sum().item()
            return len(keys)

        return [[step(lucid.ones(2) * i), dict(losses)] for i in range(6)]

    agree(scenario)


def test_wherever_python_finds_the_list(agree):
    def scenario(compile):
        logs, add, cleared = Logs([], deque()), (kept := []).append, [7, 8]

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.sums = nn.Linear(3, 2), []

            def forward(self, x):
                self.sums.append(self.linear(x).sum().detach())
                return self.linear(x)

        net = Net()

        def step(x):
            logs.losses.append(x.sum())
            logs.notes.append("step")
            add(x[0])
            cleared.clear()
            cleared.append(x)
            return net(x).sum()

        return [calls(compile, step), list(logs.losses), list(logs.notes), kept, cleared, net.sums]

    agree(scenario, traces=1)


def test_logs_that_are_long_already(agree):
    def scenario(compile):
        losses, recent, seen = [0.5] * 1000, deque([1] * 900), set(range(800))

        def step(x):
            losses.append(x.sum())
            recent.append("new")
            seen.add("a")
            return x * 2

        results = calls(compile, step)
        return [results, losses[995:], list(recent)[895:], len(seen)]

    agree(scenario, traces=1)


def test_a_failed_trace_leaves_long_logs_as_they_were():
    losses, recent, seen = [0.5] * 1000, deque([1] * 900), set(range(800))

    @lucid.compile
    def step(x):
        losses.append(1)
        recent.append("new")
        seen.add("a")
        raise KeyError("late")

    with pytest.raises(KeyError):
        step(lucid.ones(2))
    assert losses == [0.5] * 1000 and recent == deque([1] * 900) and seen == set(range(800))


def test_a_list_of_an_argument_of_plain_data(agree):
    def scenario(compile):
        state = Holder(losses=[], scale=2.0)

        @compile
        def step(x, state):
            state.losses.append(x.sum())
            return x * state.scale

        return [[step(lucid.tensor(X) * i, state) for i in range(3)], state.losses]

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    "look",
    [
        len,
        lambda log: log[-1] if len(log) else 0,
        lambda log: sum(log),
        lambda log: 1 if log else 2,
        lambda log: len([*log]),
        lambda log: len(list(log)) + len([0] + log),
        lambda log: int(3 in log),
        lambda log: log.count(3),
        lambda log: int(log == [3]),
        lambda log: len(repr(log)),
        lambda log: log.pop() if len(log) > 2 else 1,
        lambda log: log.index(3) if log else 5,
    ],
)
def test_what_depends_on_a_list_is_never_frozen(agree, look):
    def scenario(compile):
        log = []

        def step(x):
            log.append(3)
            return x * look(log)

        return [calls(compile, step), log]

    agree(scenario)


def test_what_depends_on_a_set_is_never_frozen(agree):
    def scenario(compile):
        seen, others = set(), set()

        def step(x):
            if "a" not in seen:
                seen.add("a")
                return x * 5
            others.add("b")
            return x * len({"c"} | others)

        return [calls(compile, step), sorted(seen), sorted(others)]

    agree(scenario)


def test_code_in_c_that_wants_a_real_list(agree):
    def scenario(compile):
        heap = [4]

        def step(x):
            heapq.heappush(heap, 3)
            return x * 2

        return [calls(compile, step, 3), heap]

    agree(scenario)


def test_looking_at_the_log_after_some_calls(agree):
    def scenario(compile):
        log = []

        @compile
        def step(x, report):
            log.append(x.sum())
            return sum(log) / len(log) if report else x.sum()

        xs = [lucid.tensor(X) * i for i in range(6)]
        return [[step(x, i % 3 == 2) for i, x in enumerate(xs)], log]

    agree(scenario)


def test_losses_with_a_history(agree):
    def scenario(compile):
        w, losses = nn.Parameter(lucid.tensor(X)), []

        def step(x):
            loss = (w * x).square().sum()
            losses.append(loss)
            return loss * 2

        calls(compile, step)
        sum(losses).backward()
        return w.grad

    agree(scenario, traces=1)


def test_a_failed_call_or_trace_writes_nothing():
    log, names = [], set()

    @lucid.compile
    def step(x, i, fails=False):
        log.append(x[i])
        names.add(len("ab") + int(fails))
        if fails:
            raise KeyError("late")
        return x[i]

    x = lucid.arange(4.0)
    step(x, lucid.tensor([1]))
    with pytest.raises(lucid.LucidError):
        step(x, lucid.tensor([9]))
    with pytest.raises(KeyError):
        step(x, lucid.tensor([1]), True)
    assert [y.tolist() for y in log] == [[1.0]] and names == {2}
    step(x, lucid.tensor([2]))
    assert [y.tolist() for y in log] == [[1.0], [2.0]] and step.stats.traces == 1


def test_what_can_not_be_made_again_is_appended_op_by_op():
    log = []

    @lucid.compile
    def step(x):
        log.append(object())
        return x

    step(lucid.ones(2))
    step(lucid.ones(2))
    line = step.__wrapped__.__code__.co_firstlineno + 2
    assert step.stats.eager_reasons[0] == (
        "it keeps in log an object of object that it made, a object, which no call can make again\n"
        f"  at test_logs.py:{line}   log.append(object())"
    )
    assert len({*log}) == 2


def test_a_host_call_and_a_recorded_backward_write_the_same_log(agree):
    """The backward becomes a host call as well: what is noted in which order is eager's."""

    def scenario(compile):
        order = []

        class OnHost(Function):
            @staticmethod
            def forward(ctx, x):
                order.append("forward")
                return lucid.tensor(x.numpy() * 2)

            @staticmethod
            def backward(ctx, g):
                order.append("backward")
                return g * 2

        w = nn.Parameter(lucid.ones(3))

        def step(x):
            w.grad = None
            OnHost.apply(w * x).sum().backward()
            return x

        return [calls(compile, step), order, w]

    agree(scenario, traces=1)


GIVEN: list[object] = []


class Noting(Function):
    """Leaves lucid, and notes that in the list that it is given."""

    @staticmethod
    def forward(ctx, x, log):
        log.append(("forward", float(x.numpy()[0])))
        ctx.log = log
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, g):
        ctx.log.append(("backward", len(ctx.log), float(g.numpy()[0])))
        return g * 2, None


def test_a_list_that_is_given_to_a_host_function(agree):
    def scenario(compile):
        GIVEN.clear()
        w, holder, own = nn.Parameter(lucid.ones(3)), Holder(seen=set()), deque(maxlen=3)

        def step(x):
            w.grad = None
            Noting.apply(w * x, GIVEN).sum().backward()
            own.append("step")
            return x

        return [calls(compile, step), [*GIVEN], w, [*own], holder.seen]

    agree(scenario, traces=1)


def test_a_hosts_log_that_is_named_like_something_that_the_step_uses(agree):
    def scenario(compile):
        holder = Holder(sum=[], scale=2.0)

        class OnHost(Function):
            @staticmethod
            def forward(ctx, x):
                holder.sum.append(float(x.numpy()[0]))
                return lucid.from_numpy(x.numpy() * 2)

        def step(x):
            return OnHost.apply(x).sum() * holder.scale

        return [calls(compile, step), holder.sum]

    agree(scenario, traces=1)


def test_a_hosts_log_that_the_step_looks_at_is_guarded(agree):
    def scenario(compile):
        def step(x):
            return Noting.apply(x, GIVEN) * (len(GIVEN) + 1)

        GIVEN.clear()
        return [calls(compile, step, 3), [*GIVEN]]

    agree(scenario)


def test_a_host_call_and_the_step_write_the_same_log():
    """That runs op by op: host calls write in the midst of a call, the step at its end."""
    log = []

    def forward(ctx, x):
        log.append("host")
        return lucid.from_numpy(x.numpy() * 2)

    fn = type(Function)("OnHost", (Function,), {"forward": staticmethod(forward)})

    @lucid.compile
    def step(x):
        if len(x) == 3:
            log.append("before")
            return x
        y = fn.apply(x)
        if len(x) == 2:
            log.append("step")
        return y

    step(lucid.ones(2))
    assert log == ["host", "step"]
    step(lucid.ones(3))  # from now on it is known to be a log
    step(lucid.ones(4))
    step(lucid.ones(2))
    assert log == ["host", "step", "before", "host", "host", "step"]
    reason = "it reads or changes log, which OnHost.forward, a host call, changes"
    assert [text.splitlines()[0] for text in step.stats.eager_reasons] == [reason] * 2
    step(lucid.ones(4))
    assert log[6:] == ["host"]


def test_another_threads_notes_are_its_own():
    """While a step is traced, what another thread appends stays where it is, once."""
    log, in_trace, noted = [], threading.Event(), threading.Event()

    def note():
        in_trace.wait()
        log.append("other")
        noted.set()

    @lucid.compile
    def step(x):
        log.append("step")
        if len(x) == 3:
            in_trace.set()
            noted.wait()
        return x * 2

    other = threading.Thread(target=note)
    other.start()
    for size in (2, 3, 3):
        step(lucid.ones(size))
    other.join()
    assert log == ["step", "step", "other", "step"]
