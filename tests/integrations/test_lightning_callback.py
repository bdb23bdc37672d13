"""The callback in the real Lightning, under the name that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import warnings
from types import MappingProxyType

import pytest

torch = pytest.importorskip("torch")
NAMES = [
    name
    for name in ("lightning.pytorch", "pytorch_lightning")
    if importlib.util.find_spec(name.split(".")[0])
]
if not NAMES:
    pytest.skip("needs lightning or pytorch_lightning", allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what an old release says of its own requirements
    pl = importlib.import_module(NAMES[0])

from ptoa_core.runs import RunFile  # noqa: E402  after what it may be skipped for
from ptoa_integrations.lightning import PTACallback  # noqa: E402

# What Lightning warns about is its own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    return tmp_path


class Module(pl.LightningModule):
    """Least squares; notes the loss of every batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.losses, self.val_losses = [], []

    def loss(self, batch):
        x, y = batch
        return ((self.net(x) - y) ** 2).mean()

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.val_losses.append(self.trainer.callback_metrics["val_loss"].item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class ManualModule(Module):
    """The same, stepping its optimizer itself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = super().training_step(batch, batch_idx)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


class ManualModuleOfTwo(ManualModule):
    """Steps after every second batch, clips before it, and notes the norm that the optimizer gets."""

    clip = 2.0

    def __init__(self):
        super().__init__()
        self.norms = []

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = self.loss(batch)
        self.losses.append(loss.item())
        self.manual_backward(loss / 2)
        if batch_idx % 2:
            self.clip_gradients(optimizer, gradient_clip_val=self.clip, gradient_clip_algorithm="norm")
            grads = [parameter.grad.double().norm() for parameter in self.parameters()]
            self.norms.append(torch.stack(grads).norm().item())
            optimizer.step()
            optimizer.zero_grad()


class FailingModule(Module):
    """Fails in its third batch."""

    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            raise RuntimeError("third batch")
        return super().training_step(batch, batch_idx)


class Counter(pl.Callback):
    """Notes the watch's count before the callback under test ends it."""

    def __init__(self, callback):
        self.callback = callback
        self.counted = None

    def on_train_end(self, trainer, pl_module):
        self.counted = self.callback.watch.step_count


def batches(count):
    generator = torch.Generator().manual_seed(1)
    xs = torch.randn(count * 4, 4, generator=generator)
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(xs, xs.sum(1, keepdim=True)), batch_size=4
    )


def fit(module, callback, *, val=None, resume=None, **changes):
    """Train on six batches; gives the trainer and what the watch counted."""
    counter = Counter(callback)
    settings = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    callbacks = [counter, callback] if callback else []
    trainer = pl.Trainer(**{**settings, **quiet, **changes}, callbacks=callbacks)
    trainer.fit(module, batches(6), val, ckpt_path=resume)
    return trainer, counter.counted


def frames_of(path="run.pta"):
    return list(RunFile.read(path)[1])


@pytest.mark.parametrize("kind", [Module, ManualModule], ids=["automatic", "manual"])
def test_frames_carry_the_loss_of_their_step(kind):
    module = kind()
    trainer, counted = fit(module, PTACallback(every=1, open=False, run_file="run.pta"))
    frames = frames_of()
    assert counted == trainer.global_step == 6
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert [frame.loss for frame in frames] == pytest.approx(module.losses)


class ForwardModule(Module):
    """The same, by the module's own forward."""

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        x, y = batch
        return ((self(x) - y) ** 2).mean()


@pytest.mark.parametrize("kind", [Module, ManualModule, ForwardModule])
def test_every_frame_has_every_block_also_where_only_parts_of_the_module_are_called(kind):
    fit(kind(), PTACallback(every=1, open=False, run_file="run.pta"))
    for frame in frames_of():
        rows = [row for row in frame.blocks if row.id[0] in "lf"]
        assert len(rows) == 3
        assert all(row.act is not None and row.grad is not None for row in rows), frame.step


def test_accumulated_batches_count_once_and_the_loss_is_whole():
    module = Module()
    trainer, counted = fit(
        module, PTACallback(every=1, open=False, run_file="run.pta"), accumulate_grad_batches=2
    )
    frames = frames_of()
    assert counted == trainer.global_step == 3
    assert [frame.step for frame in frames] == [0, 1, 2]
    assert [frame.loss for frame in frames] == pytest.approx(module.losses[1::2])


@pytest.mark.parametrize("kind", [Module, ManualModule], ids=["automatic", "manual"])
def test_the_validation_loss_is_on_one_frame_each_and_sanity_checking_leaves_none(kind):
    module = kind()
    fit(module, PTACallback(every=1, open=False, run_file="run.pta"), val=batches(2), val_check_interval=3)
    measured = [frame.valLoss for frame in frames_of() if frame.valLoss is not None]
    assert len(module.val_losses) == 2
    assert measured == pytest.approx(module.val_losses)


def test_the_metric_that_is_monitored_is_the_validation_loss():
    class Other(Module):
        def validation_step(self, batch, batch_idx):
            self.log("loss/validation", self.loss(batch))

        def on_validation_epoch_end(self):
            if not self.trainer.sanity_checking:
                self.val_losses.append(self.trainer.callback_metrics["loss/validation"].item())

    module = Other()
    callback = PTACallback(every=1, open=False, run_file="run.pta", monitor="loss/validation")
    fit(module, callback, val=batches(2))
    measured = [frame.valLoss for frame in frames_of() if frame.valLoss is not None]
    assert measured == pytest.approx(module.val_losses)


@pytest.mark.parametrize("kind", [Module, ManualModule], ids=["automatic", "manual"])
def test_a_resumed_run_goes_on_at_the_trainers_step(kind):
    trainer, _ = fit(kind(), PTACallback(every=1, open=False, run_file="run.pta"))
    trainer.save_checkpoint("six.ckpt")
    trainer, counted = fit(
        kind(), PTACallback(every=2, open=False, run_file="run.pta"), resume="six.ckpt", max_epochs=2
    )
    assert counted == trainer.global_step == 12
    steps = [(frame.step, frame.attempt or 1) for frame in frames_of()]
    assert steps == [*((n, 1) for n in range(6)), (6, 2), (8, 2), (10, 2)]


def test_gradients_are_those_that_the_optimizer_used():
    """Lightning clips before the step; the float64 norm of what is left is no larger than the limit."""
    norms = []

    class Noting(Module):
        def on_before_optimizer_step(self, optimizer):
            grads = [parameter.grad.double() for parameter in self.parameters()]
            norms.append(torch.stack([grad.norm() for grad in grads]).norm().item())

    fit(Noting(), PTACallback(every=1, open=False, run_file="run.pta"), gradient_clip_val=2.0)
    assert min(norms) < 2.0 < max(norms)
    wanted = [min(norm, 2.0) for norm in norms]
    assert [frame.gradNorm for frame in frames_of()] == pytest.approx(wanted, rel=1e-4)


def test_manual_steps_are_counted_as_they_are_made_with_what_was_clipped():
    module = ManualModuleOfTwo()
    trainer, counted = fit(module, PTACallback(every=1, open=False, run_file="run.pta"))
    assert counted == trainer.global_step == 3
    assert max(module.norms) == pytest.approx(module.clip)
    assert [frame.gradNorm for frame in frames_of()] == pytest.approx(module.norms, rel=1e-5)


@pytest.mark.parametrize("kind", [Module, ManualModule], ids=["automatic", "manual"])
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true", "64-true"])
def test_precision_plugins_leave_the_loss_and_the_count(precision, kind):
    try:
        pl.Trainer(precision=precision, accelerator="cpu", logger=False)
    except ValueError as error:
        pytest.skip(str(error))
    module = kind()
    trainer, counted = fit(
        module, PTACallback(every=1, open=False, run_file="run.pta"), precision=precision
    )
    frames = frames_of()
    assert counted == trainer.global_step == len(frames) == 6
    assert [frame.loss for frame in frames] == pytest.approx(module.losses)
    assert all(frame.gradNorm for frame in frames)


def test_a_fast_run_for_developers_is_one_frame():
    fit(Module(), PTACallback(every=1, open=False, run_file="run.pta"), val=batches(1), fast_dev_run=True)
    assert [frame.step for frame in frames_of()] == [0]


@pytest.mark.skipif(not hasattr(torch.nn.Module, "compile"), reason="too old to compile here")
@pytest.mark.parametrize("kind", [Module, ManualModule], ids=["automatic", "manual"])
def test_a_compiled_module_is_compiled_as_often_as_without(kind):
    def graphs(callback):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        module = kind()
        if kind is Module:
            module = torch.compile(module, backend="eager")
        else:
            module.net.compile(backend="eager")
        fit(module, callback)
        counters = torch._dynamo.utils.counters
        return counters["stats"]["unique_graphs"], dict(counters["graph_break"])

    without = graphs(None)
    assert graphs(PTACallback(every=1, open=False, run_file="run.pta")) == without
    frames = frames_of()
    assert len(frames) == 6
    assert all(frame.gradNorm for frame in frames)


@pytest.mark.parametrize("kind", [Module, ManualModule, ManualModuleOfTwo])
def test_watched_weights_are_bit_identical(kind):
    plain, watched = kind(), kind()
    fit(plain, None)
    fit(watched, PTACallback(every=1, open=False, run_file=False))
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_a_run_that_fails_ends_the_watch():
    callback = PTACallback(every=1, open=False, run_file=False)
    module = FailingModule()
    with pytest.raises(RuntimeError, match="third batch"):
        fit(module, callback)
    assert callback.watch is None
    assert not any(part._forward_hooks for part in module.modules())


def test_one_callback_trains_twice():
    callback = PTACallback(every=2, open=False, run_file=False)
    for _ in range(2):
        assert fit(Module(), callback)[1] == 6
        assert callback.watch is None


def test_other_processes_do_nothing():
    class Elsewhere:
        is_global_zero = False
        global_step = 1
        sanity_checking = False
        callback_metrics = MappingProxyType({"val_loss": 1.0})

    callback = PTACallback(every=1, open=False)
    callback.on_train_start(Elsewhere, None)
    callback.on_validation_end(Elsewhere, None)
    callback.on_train_end(Elsewhere, None)
    assert callback.watch is None


@pytest.mark.parametrize("name", NAMES)
def test_the_base_class_is_that_of_what_the_script_loaded(name):
    code = (
        f"import {name} as pl\n"
        "from ptoa_integrations.lightning import PTACallback\n"
        "print([base.__module__ for base in PTACallback.__bases__], issubclass(PTACallback, pl.Callback))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == f"['{name}.callbacks.callback'] True", done.stderr


@pytest.mark.skipif(len(NAMES) < 2, reason="needs both names")
def test_with_both_loaded_the_callback_is_both():
    code = (
        "import lightning.pytorch, pytorch_lightning\n"
        "from ptoa_integrations.lightning import PTACallback\n"
        "bases = (lightning.pytorch.Callback, pytorch_lightning.Callback)\n"
        "print(*(issubclass(PTACallback, base) for base in bases))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "True True", done.stderr


def test_without_lightning_the_extra_is_named():
    hide = "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None"
    code = f"{hide}\nimport ptoa_integrations.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert '"papertoanything[lightning]"' in done.stderr
