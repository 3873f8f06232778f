"""Trainers: recipes, and the adapters that play the harness's own policies for a back end.

    recipe -> data.examples -> contamination -> trl_adapter (SFT, GRPO, Dr.GRPO) -> card, curve

Rewards are `harness.scoring.rewards`, policies are `harness.rollouts`: nothing here scores or
plays by itself. What is learnt from is read off the rollouts in `sequences`; `diagnostics` and
`hacking` are pure functions over what was logged.
"""
