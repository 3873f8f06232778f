"""GRPO where a rollout may be several sequences: TRL's trainer with one row a turn.

TRL takes one sequence a rollout. A policy that refreshes its context trains one a turn: all of
them carry the advantage of their rollout, which is computed over rollouts as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import pad, use_adapter

from trainers.sequences import TokenSequence


class TurnTrainer(GRPOTrainer):
    """TRL's GRPOTrainer; `every` is set by the rollout hook before rewards are asked for.

    Attributes:
        every: The sequences of each rollout of the batch, in the order of the prompts.
    """

    every: Sequence[Sequence[TokenSequence]] = ()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if all(len(of_one) == 1 for of_one in self.every):
            return output
        return self._one_row_a_turn(output)

    def _one_row_a_turn(self, output: dict[str, Any]) -> dict[str, Any]:
        if "old_per_token_logps" in output:
            raise ValueError("one sequence a turn needs every rollout used once (num_iterations=1)")
        trainer: Any = self  # TRL's annotations are those of several trainers at once
        rows = [(i, s) for i, of_one in enumerate(self.every) for s in of_one]
        real = len(rows)
        chunks = trainer.args.steps_per_generation if trainer.model.training else 1
        # Chunks have to be of one size: they are filled up with sequences of no weight.
        rows += [(rows[0][0], _weightless(rows[0][1]))] * (-real % chunks)
        device = output["prompt_ids"].device
        token = trainer._tokenizer.pad_token_id
        made = {
            "prompt_ids": _padded([s.prompt_ids for _, s in rows], token, "left"),
            "prompt_mask": _padded([(1,) * len(s.prompt_ids) for _, s in rows], 0, "left"),
            "completion_ids": _padded([s.completion_ids for _, s in rows], token, "right"),
            "completion_mask": _padded([(1,) * len(s.completion_ids) for _, s in rows], 0, "right"),
            "tool_mask": _padded([s.mask for _, s in rows], 0, "right"),
        }
        made = {name: value.to(device) for name, value in made.items()}
        owners = torch.tensor([i for i, _ in rows], device=device)
        scale = row_scale(self.loss_type, real, len(rows), len(self.every))
        made["advantages"] = output["advantages"][owners] * scale
        weights = made["completion_mask"] * made["tool_mask"]
        made["num_items_in_batch"] = trainer.accelerator.gather(weights.sum()).sum()
        if "ref_per_token_logps" in output:
            made["ref_per_token_logps"] = self._reference(made)
        return made

    def _reference(self, rows: dict[str, Any]) -> Any:
        """Log-probabilities of the reference model, as TRL computes them for its own rows."""
        trainer: Any = self
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        keep = rows["completion_ids"].size(1)
        size = trainer.args.per_device_train_batch_size
        options = trainer.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(trainer.model, options):
            if trainer.ref_model is not None:
                return trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model, ids, mask, keep, batch_size=size
                )[0]
            network: Any = trainer.accelerator.unwrap_model(trainer.model)
            with use_adapter(network, adapter_name="ref" if "ref" in network.peft_config else None):
                return trainer._get_per_token_logps_and_entropies(
                    trainer.model, ids, mask, keep, batch_size=size
                )[0]


def row_scale(loss: str, real: int, rows: int, rollouts: int) -> float:
    """What advantages are multiplied by, so that the loss is that of the rollouts.

    dr_grpo divides by the number of rows: the formula's is the number of rollouts. grpo means
    over rows: those of no weight must not count. The others divide by tokens, which do not
    change. A KL term is not scaled: it stays a mean over rows.

    Args:
        loss: TRL's loss_type.
        real: Rows with weight.
        rows: All rows.
        rollouts: Rollouts they come from.
    """
    if loss == "dr_grpo":
        return rows / rollouts
    return rows / real if loss == "grpo" else 1.0


def _weightless(sequence: TokenSequence) -> TokenSequence:
    return TokenSequence(
        sequence.prompt_ids, sequence.completion_ids, (0,) * len(sequence.completion_ids)
    )


def _padded(rows: Sequence[Sequence[int]], value: int, side: str) -> torch.Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad(tensors, padding_value=value, padding_side=side)
