"""The callback in the real Hugging Face Trainer, on a tiny model from a config."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from ptoa_core.runs import RunFile  # noqa: E402  after what it may be skipped for
from ptoa_integrations.hf import PTACallback  # noqa: E402

# What transformers and accelerate warn about is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")


SETTINGS = inspect.signature(transformers.TrainingArguments).parameters
EVALUATES = next(name for name in ("eval_strategy", "evaluation_strategy") if name in SETTINGS)
compiles = pytest.mark.skipif(not hasattr(torch.nn.Module, "compile"), reason="too old to compile here")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def tiny_model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=11,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


def data(count=32):
    ids = torch.randint(11, (count, 8), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in ids]


class Recorder(transformers.TrainerCallback):
    """Notes what the Trainer logs, and the watch's state before the callback under test ends it."""

    def __init__(self, callback):
        self.callback = callback
        self.losses, self.eval_losses, self.norms = {}, {}, {}
        self.steps = self.counted = None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            self.losses[state.global_step] = logs["loss"]
            self.norms[state.global_step] = logs["grad_norm"]

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.eval_losses[state.global_step] = metrics["eval_loss"]

    def on_train_end(self, args, state, control, **kwargs):
        self.steps = state.global_step
        self.counted = self.callback.watch.step_count if self.callback and self.callback.watch else None


def train(callback, model=None, *, resume=None, optimizers=(None, None), **changes):
    """Six steps; gives the recorder and the trained model."""
    model = model or tiny_model()
    settings = {
        "output_dir": "out",
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "seed": 3,
    }
    recorder = Recorder(callback)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**{**settings, **changes}),
        train_dataset=data(),
        eval_dataset=data(8),
        callbacks=[recorder, *([callback] if callback else [])],
        optimizers=optimizers,
    )
    trainer.train(resume_from_checkpoint=resume)
    return recorder, model


def frames_of(path="run.pta"):
    return list(RunFile.read(path)[1])


def test_frames_carry_the_logged_loss_of_their_step():
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"))
    frames = frames_of()
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert [frame.loss for frame in frames] == pytest.approx(
        [recorder.losses[n] for n in range(1, 7)], rel=1e-3
    )


def test_steps_equal_the_trainers():
    recorder, _ = train(PTACallback(every=2, open=False, run_file="run.pta"))
    assert recorder.counted == recorder.steps == 6
    assert [frame.step for frame in frames_of()] == [0, 2, 4]


def test_steps_of_an_optimizer_without_hooks_are_counted_by_the_trainer():
    class Hidden(torch.optim.Optimizer):
        """As an engine's: torch's own beginning is never run, so that no hook of torch's is."""

        def __init__(self, inner):
            self.engine, self.param_groups = inner, inner.param_groups
            self.state, self.defaults = inner.state, {}

        def step(self, closure=None):
            self.engine.step(closure)

        def zero_grad(self, set_to_none=True):
            self.engine.zero_grad(set_to_none)

        def state_dict(self):
            return self.engine.state_dict()

        def load_state_dict(self, state):
            self.engine.load_state_dict(state)

    model, callback = tiny_model(), PTACallback(every=2, open=False, run_file="run.pta")
    optimizer = Hidden(torch.optim.SGD(model.parameters(), lr=0.1))
    recorder, _ = train(callback, model, optimizers=(optimizer, None))
    assert recorder.counted == recorder.steps == 6
    frames = frames_of()
    assert [frame.step for frame in frames] == [0, 2, 4]
    assert all(frame.loss is not None for frame in frames)


def test_accumulated_batches_count_once():
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"), gradient_accumulation_steps=2)
    assert recorder.counted == recorder.steps == 6
    assert len(frames_of()) == 6


def test_the_evaluations_loss_is_on_one_frame_from_its_step_on():
    recorder, _ = train(
        PTACallback(every=1, open=False, run_file="run.pta"), **{EVALUATES: "steps"}, eval_steps=3
    )
    measured = {frame.step: frame.valLoss for frame in frames_of() if frame.valLoss is not None}
    assert list(recorder.eval_losses) == [3, 6]
    assert list(measured.values()) == pytest.approx(list(recorder.eval_losses.values()))
    assert list(measured) == [2, 5]


def test_watched_weights_are_bit_identical():
    _, plain = train(None)
    _, watched = train(PTACallback(every=1, open=False, run_file=False))
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_gradients_are_those_that_the_optimizer_used():
    """The Trainer logs the norm before it clips; the optimizer sees what is left."""
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"), max_grad_norm=0.8)
    assert min(recorder.norms.values()) < 0.8 < max(recorder.norms.values())
    wanted = [min(recorder.norms[n], 0.8) for n in range(1, 7)]
    assert [frame.gradNorm for frame in frames_of()] == pytest.approx(wanted, rel=1e-4)


def test_under_bf16_gradients_and_losses_are_the_trainers():
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"), bf16=True)
    frames = frames_of()
    assert [frame.gradNorm for frame in frames] == pytest.approx(
        [recorder.norms[n] for n in range(1, 7)], rel=1e-4
    )
    assert [frame.loss for frame in frames] == pytest.approx(
        [recorder.losses[n] for n in range(1, 7)], rel=1e-3
    )


def test_the_loss_of_label_smoothing_is_the_one_that_is_logged():
    """The model's own loss is not what is trained; what is logged takes its place."""
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"), label_smoothing_factor=0.3)
    assert [frame.loss for frame in frames_of()] == pytest.approx(
        [recorder.losses[n] for n in range(1, 7)], rel=1e-3
    )


def test_a_resumed_run_goes_on_at_the_trainers_step():
    train(
        PTACallback(every=1, open=False, run_file="run.pta"),
        save_strategy="steps",
        save_steps=3,
        max_steps=4,
    )
    recorder, _ = train(
        PTACallback(every=1, open=False, run_file="run.pta"), resume=str(Path("out", "checkpoint-3"))
    )
    assert recorder.counted == recorder.steps == 6
    assert [(frame.step, frame.attempt or 1) for frame in frames_of()] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 2),
    ]


def test_what_is_saved_while_watched_is_what_is_saved_without():
    for callback, folder in ((None, "plain"), (PTACallback(every=1, open=False, run_file=False), "watched")):
        train(callback, save_strategy="steps", save_steps=2, output_dir=folder)
    load = transformers.GPT2LMHeadModel.from_pretrained
    plain, watched = (load(f"{name}/checkpoint-4").state_dict() for name in ("plain", "watched"))
    assert list(plain) == list(watched)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_frozen_base_says_so():
    model = tiny_model()
    model.transformer.h.requires_grad_(False)
    train(PTACallback(every=3, open=False, run_file="run.pta"), model)
    said = [block.extra.get("missing", {}).get("weightGradNorm") for block in frames_of()[0].blocks]
    assert "frozen" in said


def test_loader_workers_are_left_alone():
    recorder, _ = train(PTACallback(every=1, open=False, run_file="run.pta"), dataloader_num_workers=2)
    assert recorder.counted == len(frames_of()) == 6


@compiles
def test_a_compiled_model_is_compiled_as_often_as_without():
    def graphs(callback):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        train(callback, torch_compile=True, torch_compile_backend="eager")
        counters = torch._dynamo.utils.counters
        return counters["stats"]["unique_graphs"], dict(counters["graph_break"]), dict(counters["frames"])

    without = graphs(None)
    assert graphs(PTACallback(every=2, open=False, run_file="run.pta")) == without
    frames = frames_of()
    assert [frame.step for frame in frames] == [0, 2, 4]
    assert all(frame.gradNorm for frame in frames)


def test_the_watch_ends_with_the_training_and_one_callback_trains_twice():
    callback = PTACallback(every=3, open=False, run_file=False)
    for _ in range(2):
        recorder, model = train(callback)
        assert callback.watch is None
        assert recorder.counted == 6
        assert not any(module._forward_hooks for module in model.modules())


def test_other_processes_do_nothing():
    callback = PTACallback(every=1, open=False, run_file="run.pta")
    state = transformers.TrainerState(is_world_process_zero=False)
    callback.on_train_begin(None, state, None, model=tiny_model(), optimizer=None)
    callback.on_log(None, state, None, logs={"loss": 1.0})
    callback.on_evaluate(None, state, None, metrics={"eval_loss": 1.0})
    callback.on_train_end(None, state, None)
    assert callback.watch is None


@pytest.mark.parametrize("hidden", ["transformers"])
def test_without_transformers_the_extra_is_named(hidden):
    code = f"import sys; sys.modules[{hidden!r}] = None\nimport ptoa_integrations.hf"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert json.dumps("papertoanything[hf]") in done.stderr
