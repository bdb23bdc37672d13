"""The run files of the callbacks read back as every other run file does."""

from __future__ import annotations

import pytest

from ptoa_core import jsontext, runs

torch = pytest.importorskip("torch")


def tiny_training(run_file):
    """Options that keep a callback's watch on disk alone."""
    return {"every": 1, "open": False, "run_file": str(run_file)}


@pytest.mark.filterwarnings("ignore")  # the trainers warn about themselves
def test_run_file_of_the_lightning_callback_reads_back(tmp_path):
    lightning = pytest.importorskip("lightning")
    from ptoa_integrations.lightning import PTACallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, _):
            return self(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 4)), batch_size=4)
    callback = PTACallback(**tiny_training(tmp_path / "run.pta"))
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], default_root_dir=tmp_path,
    )
    trainer.fit(Module(), data)
    assert_reads_back(tmp_path / "run.pta", steps=3)


@pytest.mark.filterwarnings("ignore")
def test_run_file_of_the_hugging_face_callback_reads_back(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from ptoa_integrations.hf import PTACallback

    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=17, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    )
    rows = [{"input_ids": torch.arange(8) % 17, "labels": torch.arange(8) % 17} for _ in range(6)]
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )
    callback = PTACallback(**tiny_training(tmp_path / "run.pta"))
    transformers.Trainer(model=model, args=args, train_dataset=rows, callbacks=[callback]).train()
    assert_reads_back(tmp_path / "run.pta", steps=3)


def assert_reads_back(path, steps):
    header, frames = runs.RunFile.read(str(path))
    assert header["v"] == 1
    assert [frame.step for frame in frames] == list(range(steps))
    lines = path.read_bytes().splitlines()
    assert len(lines) == steps + 1
    for line in lines:
        assert jsontext.dumps(jsontext.loads(line)).encode() == line
