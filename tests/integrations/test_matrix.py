"""Every pair of a way to train and a habit of training is held by a test, and the README's table says so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "packages/ptoa-integrations/README.md"

COLUMNS = ("accumulation", "AMP", "clipping", "resume", "compile", "evaluation between")
HF, LIGHTNING, ACCELERATE = (
    f"tests/integrations/test_{name}.py" for name in ("hf_callback", "lightning_callback", "accelerate")
)
RANKS = "tests/torch/test_watch_ranks.py"

# A row: the file of its tests, and the test of each column.
MATRIX = {
    "Trainer": (
        HF,
        "test_accumulated_batches_count_once",
        "test_under_bf16_gradients_and_losses_are_the_trainers",
        "test_gradients_are_those_that_the_optimizer_used",
        "test_a_resumed_run_goes_on_at_the_trainers_step",
        "test_a_compiled_model_is_compiled_as_often_as_without",
        "test_the_evaluations_loss_is_on_one_frame_from_its_step_on",
    ),
    "Lightning, automatic": (
        LIGHTNING,
        "test_accumulated_batches_count_once_and_the_loss_is_whole",
        "test_precision_plugins_leave_the_loss_and_the_count",
        "test_gradients_are_those_that_the_optimizer_used",
        "test_a_resumed_run_goes_on_at_the_trainers_step",
        "test_a_compiled_module_is_compiled_as_often_as_without",
        "test_the_validation_loss_is_on_one_frame_each_and_sanity_checking_leaves_none",
    ),
    "Lightning, manual": (
        LIGHTNING,
        "test_manual_steps_are_counted_as_they_are_made_with_what_was_clipped",
        "test_precision_plugins_leave_the_loss_and_the_count",
        "test_manual_steps_are_counted_as_they_are_made_with_what_was_clipped",
        "test_a_resumed_run_goes_on_at_the_trainers_step",
        "test_a_compiled_module_is_compiled_as_often_as_without",
        "test_the_validation_loss_is_on_one_frame_each_and_sanity_checking_leaves_none",
    ),
    "accelerate": (
        ACCELERATE,
        "test_accumulated_batches_are_one_step_with_the_gradient_of_all",
        "test_mixed_precision_leaves_the_gradients_near_the_exact_ones",
        "test_clipped_gradients_are_the_ones_shown",
        "test_a_run_that_is_loaded_again_is_continued",
        "test_a_compiled_model_is_compiled_as_often_as_without",
        "test_an_evaluation_between_leaves_no_trace",
    ),
    **dict.fromkeys(
        ("DDP", "FSDP2"),
        (
            RANKS,
            "test_accumulated_gradients_are_those_of_all_batches_of_all_ranks",
            "test_under_autocast_gradients_stay_near_the_exact_ones",
            "test_clipped_gradients_are_the_ones_shown",
            "test_a_resumed_run_numbers_its_steps_on",
            "test_a_compiled_model_has_the_same_gradients",
            "test_an_evaluation_between_leaves_no_trace",
        ),
    ),
}


@pytest.mark.parametrize("row", MATRIX)
def test_each_cell_names_a_test_that_is_there(row):
    file, *names = MATRIX[row]
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert len(names) == len(COLUMNS)
    assert set(names) <= there


def test_the_table_of_the_readme_is_this_one():
    head = ["| |", *(f" {column} |" for column in COLUMNS)]
    lines = ["".join(head), "| --- |" + " :-: |" * len(COLUMNS)]
    lines += [f"| {row} |" + " yes |" * len(COLUMNS) for row in MATRIX]
    assert "\n".join(lines) in README.read_text(encoding="utf-8")
