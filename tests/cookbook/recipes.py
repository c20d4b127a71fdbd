"""The recipes that run here, with their flags, and what each has to show.

Every recipe runs with its default flags, which include the size of its batches, except for max_steps and for what stands
here with its reason.
"""
import dataclasses
import json

import data_sets

BASE, CHAT, SMALL = "Qwen/Qwen3.5-9B-Base", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-4B"
MIXTURE, FORECASTER, OLDER = "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.8-27B", "Qwen/Qwen3-8B"
TEACHERS = ["Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-397B-A17B"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    module: str
    models: list
    steps: int
    flags: list = dataclasses.field(default_factory=list)
    why: str = ""            # the reason of the flags
    falls: str = ""          # a metric that must fall from the first to the last third of the steps
    rises: str = ""          # one that must rise
    at_least: float = 0      # by this much
    logs: str = "step"       # a metric that every step must have
    case: str = ""           # distinguishes two runs of one recipe
    max_steps: bool = True   # the recipe has the flag
    first: str = ""          # a module to run before, which writes the data of the recipe
    stdin: str = ""
    says: str = ""           # what the output must contain, for recipes without metrics
    seconds: int = 400

    @property
    def name(self):
        return f"{self.module} ({self.case})" if self.case else self.module

    @property
    def arguments(self):
        return [*self.flags, *([f"max_steps={self.steps}"] if self.max_steps else [])]


def supervised(module, models, steps, **more):
    return Recipe(module, models, steps, falls="train_mean_nll", **more)


REAL_SIZE = "the documents of the real size are 80,000 tokens long"
FEWER = "a smaller batch saves minutes"
RECIPES = [
    supervised("sl_loop", [BASE], 9),
    supervised("sl_basic", [BASE], 9),
    supervised("chat_sl.train", [BASE], 6),
    supervised("prompt_distillation.train", [MIXTURE], 6),
    supervised("distillation.off_policy_reasoning", [BASE], 4),
    Recipe("rl_loop", [BASE], 2, logs="reward/total"),
    Recipe("rl_loop", [BASE], 8, ["learning_rate=1e-3"], case="learning", rises="reward/total", at_least=0.05,
           why="a model of width 64 needs larger steps than one of width 4096"),
    Recipe("rl_basic", [BASE], 2, logs="env/all/reward/total"),
    Recipe("math_rl.train", [CHAT], 3, logs="env/all/reward/total"),
    Recipe("math_rl.train", [CHAT], 4, ["env=gsm8k", "max_tokens=32", "max_steps_off_policy=2"], case="async",
           why="another task, and training on samples of older weights", logs="env/all/reward/total"),
    Recipe("rubric.train", [CHAT, MIXTURE], 1, logs="env/all/reward/total", first="rubric.generate_data"),
    Recipe("forecasting.train", [FORECASTER], 1, ["data_path=markets.csv"], logs="env/all/reward/total",
           why="the data set is downloaded from a fixed address otherwise"),
    Recipe("decisions.forecasting", [FORECASTER], 4, ["data_path=markets.csv"], why="as above"),
    Recipe("decisions.demo", [SMALL], 0, [f"model_name={SMALL}"], max_steps=False, stdin="How do I install it?\n",
           says='"billing"', why="the default model needs the package tml-renderers"),
    Recipe("rl_numerics_check.train", [MIXTURE, f"{MIXTURE}:peft:262144"], 1, logs="env/all/reward/total", why=REAL_SIZE,
           flags=["task.page_chars=200", "task.num_pages_min=3", "task.num_pages_max=4"]),
    Recipe("multiplayer_rl.guess_number.train", [SMALL], 4, ["batch_size=8", "eval_every=0", "learning_rate=1e-3"], why=FEWER,
           rises="env/all/reward/total"),
    Recipe("multiplayer_rl.twenty_questions.train", [SMALL, CHAT], 1, ["batch_size=2", "group_size=4", "eval_every=0"],
           why=FEWER, logs="env/all/reward/total"),
    Recipe("multiplayer_rl.text_arena.train", [SMALL], 1, logs="env/all/reward/total"),
    Recipe("preference.shorter.train", [SMALL], 2, logs="env/all/reward/total"),
    Recipe("preference.dpo.train", [BASE], 6, falls="dpo_loss"),
    Recipe("preference.rlhf.rlhf_pipeline", [BASE], 2),
    Recipe("sdft.train", [OLDER], 2, ["eval_every=0"], logs="sdft/num_datums",
           why="with its default data set the recipe's own evaluation fails: 'list' object has no attribute 'cleanup'"),
    Recipe("sdft.train", [OLDER], 2, ["eval_every=0", "reverse=True", "dataset=toolalpaca"], case="reverse", why="as above",
           logs="sdft/reverse_kl_mean"),
    Recipe("distillation.on_policy_distillation", [BASE, CHAT], 1),
    Recipe("distillation.on_policy_multi_teacher", [CHAT, *TEACHERS], 1),
    Recipe("true_thinking_score.run_small_experiment", [SMALL], 0, max_steps=False, says="Results saved"),
]


def prepare(place, runs):
    """Puts files where the defaults of some recipes expect them."""
    talks = [json.loads(line) for line in (place / "talks.jsonl").read_text().splitlines()]
    data_sets.write_lines(place / runs / "prompt_distillation/data/prompt_distillation_lang.jsonl", talks)
    (place / "tinker_cookbook/example_data").mkdir(parents=True)
