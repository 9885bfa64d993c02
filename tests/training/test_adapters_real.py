"""Hooks and `weights.Monitor` inside the real trainers, where these are installed: what the stand-ins of test_adapters imitate."""

from __future__ import annotations

import pytest
import torch
from tests.training.test_adapters import Watcher
from torch import nn

from querist.training import adapters
from querist.weights import Monitor, scan

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages' own, of other packages and of small trainings


def watching(net: nn.Module, out=None) -> Monitor:
    return Monitor(net, every=4, k=4, full_every=2, max_overhead=1e9, out=out)


def equal(one: nn.Module, other: nn.Module) -> bool:
    kept, other = one.state_dict(), other.state_dict()
    return all(torch.equal(kept[name], other[name]) for name in kept)


# ---------------------------------------------------------------------------------------------------------- Lightning


def lightning_module(seed: int = 0):
    from lightning.pytorch import LightningModule

    class Small(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(20, 24), nn.Dropout(0.2), nn.Tanh(), nn.Linear(24, 8))
            self.seen: list[float] = []

        def training_step(self, batch, index):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.seen.append(float(loss))
            return loss

        def validation_step(self, batch, index):
            self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    torch.manual_seed(seed)
    return Small()


def lightning_fit(module, callbacks, epochs=3, accumulate=2, checkpoint=None, root=None):
    from lightning.pytorch import Trainer

    generator = torch.Generator().manual_seed(1)
    rows = torch.utils.data.TensorDataset(
        torch.randn(80, 20, generator=generator), torch.randint(0, 8, (80,), generator=generator)
    )
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
    )
    torch.manual_seed(2)
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    return trainer


def test_lightning_shows_its_training(tmp_path):
    pytest.importorskip("lightning.pytorch")
    watcher, module = Watcher(), lightning_module()
    lightning_fit(module, [adapters.lightning(watcher)], root=tmp_path)
    told = watcher.told
    assert [(what, step, epoch) for what, step, epoch, *_ in told if what != "step"] == [
        ("start", 0, 0),
        ("epoch", 5, 1),
        ("epoch", 10, 2),
        ("epoch", 15, 3),
        ("end", 15, 3),
    ]
    steps = [entry for entry in told if entry[0] == "step"]
    assert [step for _, step, *_ in steps] == list(range(1, 16))
    assert [losses["loss"] for *_, losses, _ in steps] == pytest.approx(module.seen[1::2])
    assert told[0][4] == {}  # the sanity check is no validation
    assert all(set(metrics) == {"val_loss"} for what, *_, metrics in told if what == "epoch")
    assert watcher.model is module
    assert isinstance(watcher.optimizer, torch.optim.Adam)


def test_lightning_stops_where_a_hook_says_so(tmp_path):
    pytest.importorskip("lightning.pytorch")
    watcher = Watcher(stop=4)
    trainer = lightning_fit(lightning_module(), [adapters.lightning(watcher)], root=tmp_path)
    assert trainer.global_step == 4
    assert watcher.told[-1][:2] == ("end", 4)


def test_lightning_is_watched_unchanged_and_goes_on_from_its_checkpoint(tmp_path):
    pytest.importorskip("lightning.pytorch")
    plain, watched = lightning_module(), lightning_module()
    lightning_fit(plain, [], root=tmp_path)
    monitor = watching(watched.net, tmp_path / "run")
    lightning_fit(watched, [adapters.lightning(monitor)], root=tmp_path)
    assert equal(plain, watched)
    result = monitor.result()
    assert result.status == "done"
    assert result.tables["events"]["step"].to_list() == [0, 4, 8, 12, 15]
    assert result.table["layer_id"].to_list() == ["0.weight", "3.weight"]

    part = lightning_module()
    first, twin = watching(part.net, tmp_path / "part"), Watcher()
    trainer = lightning_fit(part, [adapters.lightning(first), adapters.lightning(twin)], epochs=2, root=tmp_path)
    trainer.save_checkpoint(tmp_path / "kept.ckpt")
    again = lightning_module(seed=5)
    second, other = watching(again.net, tmp_path / "part"), Watcher()
    lightning_fit(
        again, [adapters.lightning(second), adapters.lightning(other)], checkpoint=tmp_path / "kept.ckpt", root=tmp_path
    )
    assert other.loaded == len(twin.told)
    assert other.told[0][:2] == ("start", 10)
    assert second.result().tables["events"]["step"].to_list() == [0, 4, 8, 10, 12, 15]
    updates = second.result().tables["trace"].select("step", "update_from").unique().rows()
    assert (12, 10) in updates


# ------------------------------------------------------------------------------------------------------- transformers


def bert(seed: int = 0):
    """A text network of two layers with random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=24,
        num_labels=3,
    )
    return BertForSequenceClassification(config)


def transformers_train(model, callbacks, out, *, steps=12, resume=None, **options):
    from transformers import Trainer, TrainingArguments

    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 60, (64, 12), generator=generator)
    rows = [{"input_ids": row, "labels": row.sum() % 3} for row in tokens]
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        **{"save_strategy": "no", "logging_steps": 1, **options},
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:16], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_transformers_shows_its_training(tmp_path):
    pytest.importorskip("transformers")
    watcher, model = Watcher(), bert()
    trainer = transformers_train(
        model,
        [adapters.transformers(watcher)],
        tmp_path,
        steps=16,
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
    )
    told = watcher.told
    assert [(what, step, epoch) for what, step, epoch, *_ in told if what != "step"] == [
        ("start", 0, 0),
        ("epoch", 4, 1),
        ("epoch", 8, 2),
        ("epoch", 12, 3),
        ("epoch", 16, 4),
        ("end", 16, 4),
    ]
    assert [step for what, step, *_ in told if what == "step"] == list(range(1, 17))
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert told[-1][3]["loss"] == pytest.approx(logged[16])
    assert told[-1][4]["eval_loss"] > 0
    assert watcher.model is model
    assert isinstance(watcher.optimizer, torch.optim.Optimizer)


def test_transformers_stops_where_a_hook_says_so(tmp_path):
    pytest.importorskip("transformers")
    watcher = Watcher(stop=5)
    trainer = transformers_train(bert(), [adapters.transformers(watcher)], tmp_path)
    assert trainer.state.global_step == 5
    assert watcher.told[-1][:2] == ("end", 5)


def test_transformers_is_watched_unchanged_and_goes_on_from_its_checkpoint(tmp_path):
    pytest.importorskip("transformers")
    plain, watched = bert(), bert()
    transformers_train(plain, [], tmp_path / "plain")
    monitor = watching(watched, tmp_path / "run")
    saved = {"save_strategy": "steps", "save_steps": 6, "restore_callback_states_from_checkpoint": True}
    transformers_train(watched, [adapters.transformers(monitor)], tmp_path / "watched", **saved)
    assert equal(plain, watched)
    result = monitor.result()
    assert result.tables["events"]["step"].to_list() == [0, 4, 8, 12]
    assert "bert.encoder.layer.0.attention.self.query.weight" in result.table["layer_id"].to_list()

    # Begun again from the checkpoint of step 6, beside a hook that it does not know.
    again, twin = bert(seed=5), Watcher()
    second = watching(again, tmp_path / "run")
    transformers_train(
        again,
        [adapters.transformers(second), adapters.transformers(twin)],
        tmp_path / "watched",
        resume=str(tmp_path / "watched" / "checkpoint-6"),
        **saved,
    )
    assert equal(again, plain)
    assert twin.told[0][:2] == ("start", 6)
    assert second.result().tables["events"]["step"].to_list() == [0, 4, 8, 12]
    assert dict(second.result().tables["trace"].select("step", "update_from").unique().rows())[8] == 6


def test_a_text_network_is_scanned(tmp_path):
    pytest.importorskip("transformers")
    model = bert()
    result = scan(model, nulls=("signflip",))
    table = result.table
    kinds = dict(table.select("name", "kind").iter_rows())
    assert kinds["bert.embeddings.word_embeddings.weight"] == "embedding"
    assert table.height == sum(p.ndim == 2 and min(p.shape) >= 8 for p in model.parameters())
    verdicts = {f.subject: f.verdict for f in result.findings if f.question == "weights.trained"}
    assert "yes" not in verdicts.values()  # random weights
    model.save_pretrained(tmp_path / "saved")
    kept = scan(tmp_path / "saved", nulls=())
    shared = table.select("name", "log_norm").join(kept.table.select("name", "log_norm"), on="name")
    assert shared.height == table.height
    assert shared["log_norm"].to_list() == pytest.approx(shared["log_norm_right"].to_list(), rel=1e-6)
