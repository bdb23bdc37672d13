"""A watch leaves training as it is: its numbers, its model, its exceptions."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ptoa_bridge import Bridge
from ptoa_core.errors import PtoaWarning, SettingError
from ptoa_core.runs import RunFile
from ptoa_torch import probe as probe_module
from ptoa_torch.from_module import from_module
from ptoa_torch.live_trace import LivePass
from ptoa_torch.watch import Watch, watch


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test writes beside the sources or opens a browser."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")


class Net(nn.Module):
    """Has everything that a forward can leave behind: batch statistics, dropout, a counter."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop, self.out = (
            nn.Linear(8, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.3),
            nn.Linear(8, 1),
        )
        self.register_buffer("calls", torch.zeros(()))
        self.history = []

    def forward(self, x):
        self.calls += 1
        self.history.append(x.shape[0])
        return self.out(self.drop(F.relu(self.norm(self.fc(x)))))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = 2
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        return self.proj(y.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm, self.attn = nn.LayerNorm(8), Heads()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.table(tokens)
        x = x + self.attn(self.norm(x))
        return self.head(x + self.mlp(x))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.act(self.norm(self.conv(x))).mean((2, 3)))


def net_loss(model):
    return model(torch.randn(6, 8)).pow(2).mean()


MODELS = {
    "net": (Net, net_loss),
    "transformer": (
        Transformer,
        lambda model: F.cross_entropy(
            model(torch.randint(0, 11, (3, 5))).flatten(0, 1), torch.randint(0, 11, (15,))
        ),
    ),
    "convolutions": (Convolutions, lambda model: model(torch.randn(4, 1, 8, 8)).pow(2).mean()),
    "encoder-layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda model: model(torch.randn(2, 5, 8)).pow(2).mean(),
    ),
}


def quiet(model, optimizer=None, every=1, **options):
    return watch(model, optimizer, every, open=False, **{"run_file": False, **options})


def train(model, optimizer, watching=None, steps=1, loss_of=net_loss):
    losses = []
    for _ in range(steps):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
        losses.append(loss.detach().clone())
    return losses


def pair(make=Net):
    torch.manual_seed(0)
    model = make()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def on_the_model(model):
    """Everything that could be left on it."""
    hooks = sum(
        len(getattr(module, name))
        for module in model.modules()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )
    return hooks + sum("forward" in vars(module) for module in model.modules())


# ── what is trained stays what it was ────────────────────────────────────────


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("every", [1, 7])
def test_watched_and_unwatched_runs_are_bit_equal(name, every):
    make, loss_of = MODELS[name]
    runs = []
    for watched in (False, True):
        model, optimizer = pair(make)
        watching = (
            quiet(model, optimizer, every, val_loss=lambda: torch.rand(1), val_every=9) if watched else None
        )
        losses = train(model, optimizer, watching, 50, loss_of)
        runs.append((losses, model.state_dict(), optimizer.state_dict()["state"], torch.get_rng_state()))
        if watching is not None:
            assert len(watching.frames) == -(-50 // every)
            watching.close()
    (losses, weights, states, random), (losses2, weights2, states2, random2) = runs
    assert all(torch.equal(a, b) for a, b in zip(losses, losses2, strict=True))
    assert all(torch.equal(weights[key], weights2[key]) for key in weights)
    assert all(torch.equal(states[key][part], states2[key][part]) for key in states for part in states[key])
    assert torch.equal(random, random2)


def test_the_model_is_read_at_its_first_forward_without_another_one():
    calls = []

    class Seen(Net):
        def forward(self, x):
            calls.append(torch.is_grad_enabled())
            return super().forward(x)

    model, optimizer = pair(Seen)
    with quiet(model, optimizer, every=2) as watching:
        train(model, optimizer, watching, 3)
        rows = watching.frames[0].blocks
        assert all(row.act is not None and row.grad is not None for row in rows)
    assert calls == [True] * 3


def test_the_first_frame_has_what_a_frame_of_a_model_read_before_has():
    frames = []
    for example in (None, torch.zeros(2, 5, dtype=torch.long)):
        make, loss_of = MODELS["transformer"]
        model, optimizer = pair(make)
        with quiet(model, optimizer, example_input=example) as watching:
            torch.manual_seed(1)
            train(model, optimizer, watching, 1, loss_of)
            frames.append(watching.frames[0])
    live, known = frames
    assert [row.id for row in live.blocks] == [row.id for row in known.blocks]
    for row, other in zip(live.blocks, known.blocks, strict=True):
        assert row.act == other.act
        assert row.grad == other.grad
        assert row.hidden == other.hidden
        assert row.weightGradNorm == other.weightGradNorm
        assert row.headEntropy == other.headEntropy
        assert row.headPattern == other.headPattern
        assert row.extra == other.extra


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Linear(8, 1), lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 1)))],
    ids=["layer", "script"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_is_one_block_is_measured_in_every_frame(make):
    model, optimizer = pair(make)
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching, 3)
        assert [len(frame.blocks) for frame in watching.frames] == [1] * 3
        assert all(frame.blocks[0].act is not None for frame in watching.frames)
        assert all(frame.blocks[0].grad is not None for frame in watching.frames)


def gradient_of_a_function(model):
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    loss_of = lambda given: torch.func.functional_call(model, given, (torch.ones(2, 8),)).sum()  # noqa: E731
    torch.func.grad(loss_of)(parameters)


def mapped(model):
    torch.vmap(model)(torch.ones(3, 2, 8))


def traced(model):
    torch.jit.trace(model, torch.ones(2, 8))


def symbolically_traced(model):
    torch.fx.symbolic_trace(model)


def exported(model):
    if not hasattr(torch, "export"):
        pytest.skip("this torch exports nothing")
    assert len(torch.export.export(model, (torch.ones(2, 8),)).graph.nodes) < 12


def faked(model):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model(mode.from_tensor(torch.ones(2, 8)))


@pytest.mark.parametrize(
    "use",
    [gradient_of_a_function, mapped, traced, symbolically_traced, exported, faked],
    ids=lambda use: use.__name__,
)
@pytest.mark.parametrize("frames", [0, 1], ids=["first-frame", "later-frame"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_has_no_numbers_to_look_at_is_left_alone_on_a_frame_step(use, frames):
    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching, frames)
        use(model)
        train(model, optimizer, watching, 1)
        frame = watching.frames[frames]
        assert all(row.act is not None and row.grad is not None for row in frame.blocks)
        assert "forwards" not in frame.extra


def test_what_holds_a_watch_can_be_copied_and_pickled():
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        model.watching = watching
        train(model, optimizer, watching)
        assert copy.deepcopy(model).watching is watching
        assert pickle.loads(pickle.dumps(model)).watching is None
        del model.watching


class Sharpness(torch.optim.Optimizer):
    """An optimizer by its class that leaves the step to another, as SAM does."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    def second_step(self):
        self.base.step()

    def step(self, closure=None):
        raise NotImplementedError


def test_an_optimizer_that_leaves_its_step_to_another_is_counted_by_that_one():
    model, _ = pair()
    optimizer = Sharpness(list(model.parameters()))
    with quiet(model, optimizer) as watching:
        for _ in range(3):
            net_loss(model).backward()
            optimizer.second_step()
            optimizer.zero_grad()
            watching.step(1.0)
        assert watching.step_count == 3
        assert all(frame.gradNorm is not None for frame in watching.frames)


def test_a_module_that_is_replaced_is_seen_from_the_frame_after_the_next():
    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        model[1] = nn.Linear(8, 1)
        optimizer.add_param_group({"params": list(model[1].parameters())})
        train(model, optimizer, watching, 2)
        first, second = (frame.blocks[1] for frame in watching.frames[1:])
        assert first.extra["missing"]["act"] == "did not run in this step"
        assert second.act is not None
        assert second.weightGradNorm is not None


def test_reading_that_fails_leaves_the_first_forward_alone(monkeypatch):
    def broken(self, *given):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(LivePass, "_end", broken)
    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 1)))
    with quiet(model, optimizer) as watching:
        with pytest.warns(PtoaWarning, match="recording is left out.*no"):
            train(model, optimizer, watching, 1)
        train(model, optimizer, watching, 1)
        first, second = watching.frames
        assert first.blocks[0].weightGradNorm is not None
        assert second.blocks[0].act is not None
    assert on_the_model(model) == 0


def test_reading_the_model_leaves_attributes_as_they_were():
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
    assert model.history == [6]
    assert model.calls.item() == 1


class Counted(TorchDispatchMode):
    """Counts operations and reads of a value by the host."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_between_frames_no_operation_is_added_and_no_value_is_read():
    counts = []
    for watched in (False, True):
        model, _ = pair()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # reads no value itself
        watching = quiet(model, optimizer, every=10) if watched else None
        train(model, optimizer, watching, 2)
        with Counted() as counted:
            train(model, optimizer, watching, 3)
        counts.append(counted.names)
        if watching is not None:
            assert on_the_model(model) == 0
            watching.close()
    assert counts[0] == counts[1]
    assert not any("_local_scalar_dense" in name for name in counts[1])


def test_a_frame_reads_no_value_while_the_step_runs():
    model, _ = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching, 2)
        with Counted() as counted:
            train(model, optimizer, watching, 1)
        assert len(watching.frames) == 3
    assert not any("_local_scalar_dense" in name for name in counted.names)


# ── copies and pickles ───────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
def test_a_copy_made_on_a_frame_step_is_not_watched(how):
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        assert on_the_model(model) > 0
        if how == "deepcopy":
            made = copy.deepcopy(model)
        elif how == "pickle":
            made = pickle.loads(pickle.dumps(model))
        else:
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            made = torch.load(file, weights_only=False)
        train(made, torch.optim.SGD(made.parameters(), lr=0.1), None, 2)
        assert len(watching.frames) == 1
        assert made.calls.item() == 3
        assert model.calls.item() == 1
        assert watching._session._probe.frame.forwards == 0


def test_a_copy_made_inside_a_forward_has_hooks_that_do_nothing():
    class Snapshot(Net):
        def forward(self, x):
            if not hasattr(self, "made"):
                object.__setattr__(self, "made", None)
                object.__setattr__(self, "made", copy.deepcopy(self.fc))
            return super().forward(x)

    model, optimizer = pair(Snapshot)
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        before = len(watching.frames)
        model.made(torch.randn(3, 8)).sum().backward()
        assert len(watching.frames) == before
        assert pickle.loads(pickle.dumps(model.made))(torch.randn(3, 8)).shape == (3, 8)


def test_state_dicts_have_no_foreign_keys():
    model, optimizer = pair()
    keys, parts = set(model.state_dict()), set(optimizer.state_dict())
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        assert set(model.state_dict()) == keys
        assert set(optimizer.state_dict()) == parts
        assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"] == 0.01


def test_a_forward_that_was_replaced_before_is_put_back():
    model, optimizer = pair()
    own = model.forward
    model.forward = lambda x: own(x) * 1.0
    replaced = model.forward
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching, 2)
        assert watching.frames[0].blocks
    assert model.forward is replaced


def test_a_forward_that_is_replaced_meanwhile_stays():
    model, optimizer = pair()
    watching = quiet(model, optimizer)
    inner = model.forward
    model.forward = lambda x: inner(x) + 0.0
    replaced = model.forward
    train(model, optimizer, watching, 2)
    watching.close()
    assert model.forward is replaced
    train(model, optimizer, None, 2)


# ── ends ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt], ids=["exception", "ctrl-c"])
@pytest.mark.parametrize("place", ["forward", "backward", "step"])
def test_an_exception_leaves_nothing_on_the_model(error, place, monkeypatch):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise error("stop")

    class Stops(nn.Module):
        def forward(self, x):
            if place == "forward":
                raise error("stop")
            return Breaks.apply(x) if place == "backward" else x

    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1)))
    watching = quiet(model, optimizer, every=10, example_input=torch.randn(2, 8))
    model.append(Stops())
    if place == "step":
        optimizer.register_step_pre_hook(lambda *_: (_ for _ in ()).throw(error("stop")))
    with pytest.raises(error):
        train(model, optimizer, watching)
    assert sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()) == 0
    if place == "forward":
        assert on_the_model(model) == 0
    watching.close()
    assert on_the_model(model) == 0
    assert len(optimizer._optimizer_step_post_hooks) == 0


def test_closing_during_a_frame_is_fine():
    model, optimizer = pair()
    watching = quiet(model, optimizer)
    loss = net_loss(model)
    watching.close()
    loss.backward()
    optimizer.step()
    assert on_the_model(model) == 0
    assert watching.step(loss) is None
    train(model, optimizer)


def test_close_may_be_called_twice_and_says_one_line(capsys):
    model, optimizer = pair()
    watching = quiet(model, optimizer)
    train(model, optimizer, watching)
    watching.close()
    watching.close()
    assert capsys.readouterr().out.count("watched 1 step, 1 frame") == 1


def test_a_second_watch_on_a_model_takes_the_place_of_the_first(capsys):
    model, optimizer = pair()
    first = quiet(model, optimizer)
    train(model, optimizer, first)
    second = quiet(model, optimizer)
    assert first.closed
    assert "takes its place" in capsys.readouterr().out
    train(model, optimizer, second)
    assert len(second.frames) == 1
    assert len(optimizer._optimizer_step_post_hooks) == 1
    second.close()


def test_two_models_are_watched_side_by_side():
    pairs = [pair(), pair(lambda: nn.Sequential(nn.Linear(8, 1)))]
    watches = [quiet(*item) for item in pairs]
    for _ in range(2):
        for (model, optimizer), watching in zip(pairs, watches, strict=True):
            train(model, optimizer, watching)
    assert [len(watching.frames) for watching in watches] == [2, 2]
    assert [row.id for row in watches[1].frames[0].blocks] == ["l0"]
    for watching in watches:
        watching.close()


@pytest.mark.parametrize("run_file", [True, "mine/run.pta"], ids=["default", "named"])
def test_a_run_file_holds_every_frame(run_file, tmp_path):
    model, optimizer = pair()
    with quiet(model, optimizer, run_file=run_file) as watching:
        train(model, optimizer, watching, 3)
        path = watching.run_file.path
    assert path == run_file or Path(path).match("pta-runs/Net-*.pta")
    spec, frames = RunFile.read(path)
    assert spec["name"] == "Net"
    assert [frame.step for frame in frames] == [0, 1, 2]


def test_a_run_is_continued_with_an_attempt():
    for _ in range(2):
        model, optimizer = pair()
        with quiet(model, optimizer, run_file="run.pta") as watching:
            train(model, optimizer, watching, 2)
    assert [frame.attempt for frame in RunFile.read("run.pta")[1]] == [2, 2]


def test_a_resumed_run_counts_on_from_its_first_step(capsys):
    for start, steps in ((0, 4), (2, 3)):
        model, optimizer = pair()
        with quiet(model, optimizer, run_file="run.pta", every=2, start_step=start) as watching:
            train(model, optimizer, watching, steps)
    assert watching.step_count == 5
    assert "watched 3 steps" in capsys.readouterr().out
    frames = RunFile.read("run.pta")[1]
    assert [(frame.step, frame.attempt or 1) for frame in frames] == [(0, 1), (2, 2), (4, 2)]


def test_a_folder_that_cannot_be_made_is_named_once_and_training_goes_on(tmp_path):
    (tmp_path / "pta-runs").write_text("in the way")
    model, optimizer = pair()
    with quiet(model, optimizer, run_file=True) as watching:
        with pytest.warns(PtoaWarning, match="no run file is written") as caught:
            train(model, optimizer, watching, 3)
        assert len(caught) == 1
        assert len(watching.frames) == 3
        assert watching.run_file is None


def test_a_sink_is_given_each_frame():
    model, optimizer = pair()
    seen = []
    with quiet(model, optimizer, sinks=[seen.append]) as watching:
        train(model, optimizer, watching, 3)
    assert [frame.step for frame in seen] == [0, 1, 2]


def test_a_broken_sink_is_named_once_and_training_goes_on():
    model, optimizer = pair()

    def broken(frame):
        raise OSError("disk full")

    with quiet(model, optimizer, sinks=[broken]) as watching:
        train(model, optimizer, watching)
        assert len(watching.frames) == 1  # waits until the sink has failed
        with pytest.warns(PtoaWarning, match=r"broken.*disk full"):
            train(model, optimizer, watching)
        train(model, optimizer, watching, 2)
        assert len(watching.frames) == 4


def test_a_frame_that_is_kept_keeps_no_model_alive():
    model, optimizer = pair(Net)
    kept = []
    with quiet(model, optimizer) as watching:
        for _ in range(2):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(watching.step(loss))
    gone = weakref.ref(model)
    del model, optimizer, watching, loss
    for _ in range(3):  # a graph's own nodes are let go one collection after what holds them
        gc.collect()
    assert gone() is None
    assert all(frame.blocks[0].act.hist for frame in kept)


def test_a_hook_that_fails_is_named_once_and_stands_aside(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(probe_module.Probe, "_put_reading", broken)
    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 1)))
    with quiet(model, optimizer, example_input=torch.ones(1, 8)) as watching:
        with pytest.warns(PtoaWarning, match="block l0 is left out") as caught:
            train(model, optimizer, watching, 3)
        assert len(caught) == 1
        assert [frame.blocks[0].act for frame in watching.frames] == [None] * 3
        assert watching.frames[0].blocks[0].weightNorm is not None


def test_a_model_that_cannot_be_read_is_still_watched():
    class Picky(Net):
        def forward(self, x):
            if not self.training:
                raise RuntimeError("only trains")
            return super().forward(x)

    model, optimizer = pair(Picky)
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        assert watching.frames[0].loss is not None
        assert watching.frames[0].gradNorm is not None


def test_warnings_as_errors_do_not_end_training(capsys):
    import warnings

    model, optimizer = pair()
    with quiet(model, optimizer) as watching, warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, watching, loss_of=lambda m: net_loss(m) * float("nan"))
    assert "NaN" in capsys.readouterr().err


@pytest.mark.parametrize("gives", [True, False])
def test_a_run_without_any_loss_says_how_to_give_it_when_it_ends(gives, capsys):
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        optimizer.zero_grad()
        loss = net_loss(model)
        loss.backward()
        optimizer.step()
        if gives:
            watching.step(loss * float("nan"))
    assert ("w.step(loss)" in capsys.readouterr().out) is not gives


# ── arguments and the bridge ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("model",), "torch.nn.Module, found str"),
        ((None,), "found NoneType"),
        ((nn.Linear(1, 1), "adam"), "optimizer must be .* found str"),
        ((nn.Linear(1, 1), torch.optim.Adam), "found the class Adam"),
        ((nn.Linear(1, 1), nn.Linear(1, 1)), "found Linear"),
        ((nn.Linear(1, 1), [None]), "found NoneType"),
        ((nn.Linear(1, 1), 10), "found int"),
        ((nn.Linear(1, 1), None, 0), "every must be .* found 0"),
        ((nn.Linear(1, 1), None, 1.5), "found 1.5"),
        ((nn.Linear(1, 1), None, True), "found True"),
        ((nn.Linear(1, 1), None, 1, "low"), "val_loss must be .* 'low'"),
    ],
    ids=["text", "none", "name", "class", "module", "list", "number", "zero", "fraction", "bool", "val-loss"],
)
def test_an_argument_that_cannot_be_used_is_refused(arguments, text):
    with pytest.raises(SettingError, match=text):
        Watch(*arguments, open=False)


@pytest.mark.parametrize(
    "options",
    [{"val_every": 0}, {"sinks": [3]}, {"lab_url": "ftp://x"}, {"start_step": -1}, {"start_step": 2.0}],
    ids=str,
)
def test_an_option_that_cannot_be_used_is_refused_and_leaves_nothing(options):
    model = nn.Linear(1, 1)
    with pytest.raises(SettingError):
        quiet(model, **options)
    assert on_the_model(model) == 0


def test_the_addresses_are_printed_and_the_bridge_serves(capsys):
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        out = capsys.readouterr().out
        assert watching.url in out
        assert watching.server.local_url in out
        train(model, optimizer, watching)
        assert watching.frames
        assert watching.server.spec.name == "Net"
        assert len(watching.server.health_since(-1)) == 1


def test_a_bridge_that_was_given_is_not_closed():
    model, optimizer = pair()
    with Bridge() as bridge:
        with quiet(model, optimizer, server=bridge) as watching:
            train(model, optimizer, watching)
        assert watching.server is bridge
        assert len(bridge.health_since(-1)) == 1
        bridge.push_health(watching.frames[0])
        assert len(bridge.health_since(-1)) == 2


def test_a_spec_that_was_given_is_used():
    model, optimizer = pair()
    spec = from_module(model, torch.randn(2, 8), name="Mine")
    with quiet(model, optimizer, spec=spec) as watching:
        train(model, optimizer, watching)
        assert watching.spec is spec
        assert {row.id for row in watching.frames[0].blocks} <= set(spec.bindings)


def test_an_example_input_reads_the_model_at_once():
    model, optimizer = pair()
    with quiet(model, optimizer, example_input=torch.randn(2, 8)) as watching:
        assert watching.spec.name == "Net"
    assert model.calls.item() == 0


def test_push_delivers_a_frame_of_ones_own():
    model, optimizer = pair()
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching)
        frame = watching.frames[0]
        frame.step = 77
        watching.push(frame)
        assert [item.step for item in watching.frames] == [0, 77]


def test_a_wrapped_model_is_looked_through():
    class Wrapper(nn.parallel.DistributedDataParallel):
        def __init__(self, module):
            nn.Module.__init__(self)
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    model, optimizer = pair()
    with quiet(Wrapper(model), optimizer) as watching:
        train(Wrapper(model), optimizer, watching)
        assert watching.frames[0].blocks[0].act is not None


# ── processes ────────────────────────────────────────────────────────────────


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((8,), float(index))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_loader_workers_are_left_alone():
    model, optimizer = pair()
    with quiet(model, optimizer, run_file="run.pta") as watching:
        loader = torch.utils.data.DataLoader(Items(), 2, num_workers=2, multiprocessing_context="fork")
        for x in loader:
            train(model, optimizer, watching, loss_of=lambda m, x=x: m(x).pow(2).mean())
    assert len(RunFile.read("run.pta")[1]) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_closes_the_watch_closes_nothing_of_its_parents():
    model, optimizer = pair()
    with quiet(model, optimizer, run_file="run.pta") as watching:
        train(model, optimizer, watching)
        child = multiprocessing.get_context("fork").Process(target=watching.close)
        child.start()
        child.join(20)
        assert child.exitcode == 0
        train(model, optimizer, watching)
        assert len(watching.frames) == 2


SCRIPT = """
import torch
from ptoa_torch.watch import watch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watching = watch(model, optimizer, every=1, open=False, run_file="run.pta")
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("END")
"""


def test_a_script_that_never_closes_leaves_a_whole_run_file_and_its_own_last_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "END"
    assert len(RunFile.read(tmp_path / "run.pta")[1]) == 3


def test_steps_between_frames_leave_nothing_behind():
    model, _ = pair(lambda: nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x, counts = torch.ones(2, 2), []
    with quiet(model, optimizer, every=10**6) as watching:
        for step in range(3 * 256):  # losses are folded after as many
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            watching.step(loss)
            if step % 256 == 255:
                gc.collect()
                counts.append(len(gc.get_objects()))
        assert watching.step_count == 3 * 256
    assert counts[-1] - counts[0] < 100


def test_a_watch_that_is_let_go_lets_its_model_go():
    model, optimizer = pair(lambda: nn.Linear(8, 1))
    watching = quiet(model, optimizer)
    train(model, optimizer, watching)
    watching.close()
    kept = weakref.ref(model)
    del model, optimizer, watching
    for _ in range(3):  # a graph's own nodes are let go one collection after what holds them
        gc.collect()
    assert kept() is None


def test_the_graph_of_the_first_forward_is_not_kept():
    model, optimizer = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    with quiet(model, optimizer) as watching:
        output = model(torch.ones(2, 8))
        kept = weakref.ref(output)
        loss = output.sum()
        loss.backward()
        optimizer.step()
        watching.step(loss)
        del output, loss
        gc.collect()
        assert kept() is None


class Pass:
    """A data set that holds a watched model, as a worker process would get it."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, place):
        with torch.no_grad():
            return self.model(torch.full((1, 8), float(place))).item()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_loader_workers_run_a_watched_model_as_if_nothing_were_watched(context):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    right = [Pass(model)[place] for place in range(4)]
    with quiet(model, optimizer) as watching:
        train(model, optimizer, watching, 1)
        loader = torch.utils.data.DataLoader(Pass(model), 2, num_workers=1, multiprocessing_context=context)
        found = [float(value) for batch in loader for value in batch]
        train(model, optimizer, watching, 1)
        assert [frame.step for frame in watching.frames] == [0, 1]
    assert found == pytest.approx(right)
