"""Writes the data sets that the recipes load, small and generated, in the formats of the real ones.

datasets.load_dataset("openai/gsm8k") takes the directory openai/gsm8k of the working directory, if there is one, and
reads from its README.md which file is which split.
"""
import csv
import datetime
import json
import random

import conversations as world


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write(folder, name, splits, config="default"):
    """`splits`: by name, the rows."""
    lines = ["---", "configs:", f"- config_name: {config}", "  data_files:"]
    for split, rows in splits.items():
        write_lines(folder / name / f"{split}.jsonl", rows)
        lines += [f"  - split: {split}", f"    path: {split}.jsonl"]
    (folder / name / "README.md").write_text("\n".join([*lines, "---", ""]))


def no_robots(rng):
    def row():
        question, answer = world.tale(rng)
        return {"prompt": question, "messages": world.asked(question, answer), "category": "Generation"}
    return {"train": [row() for _ in range(128 * 24)], "test": [row() for _ in range(256)]}


def gsm8k(rng):
    def row():
        question, answer = world.word_problem(rng)
        return {"question": question, "answer": f"They are added.\n#### {answer}"}
    return {"train": [row() for _ in range(128 * 24)], "test": [row() for _ in range(64)]}


def hendrycks(rng):
    question, answer = world.word_problem(rng)
    return {"problem": question, "solution": f"It is \\boxed{{{answer}}}.", "answer": str(answer), "level": "Level 1"}


def deepmath(rng):
    def row():
        question, answer = world.word_problem(rng)
        return {"question": question, "final_answer": str(answer)}
    return {"train": [row() for _ in range(4096)]}


def tulu(rng):
    return {"train": [{"messages": world.asked(*world.story(rng))} for _ in range(4096)]}


def open_thoughts(rng):
    def row():
        question, answer = world.tale(rng)
        return {"conversations": [{"from": "human", "value": question},
                                  {"from": "gpt", "value": f"<think>\nI know it.\n</think>\n\n{answer}"}]}
    return {"train": [row() for _ in range(128 * 12)]}


def hh_rlhf(rng):
    def row():
        question, answer = world.story(rng)
        said = f"\n\nHuman: {question}\n\nAssistant: "
        return {"chosen": said + answer, "rejected": said + "I do not know."}
    return {"train": [row() for _ in range(256 * 8)], "test": [row() for _ in range(64)]}


def sci_know_eval(rng):
    def row():
        x, y = rng.randint(0, 9), rng.randint(0, 9)
        texts = [str(x + y + shift) for shift in rng.sample(range(4), 4)]
        return {"domain": "Chemistry", "details": {"level": "L3"}, "type": "mcq-4-choices",
                "question": f"What is {x} + {y}?", "choices": {"label": list("ABCD"), "text": texts},
                "answerKey": "ABCD"[texts.index(str(x + y))]}
    return {"test": [row() for _ in range(400)]}


def tool_alpaca(rng):
    def row():
        question, answer = world.story(rng)
        return {"instruction": question, "output": answer}
    return {"train": [row() for _ in range(400)]}


def wikitext(rng):
    def line():
        return " ".join(rng.choice([*world.ANIMALS, *world.COLOURS, *world.PLACES, "until", "after", "before", "during",
                                    "between", "the", "and"]) for _ in range(40))
    return {"train": [{"text": line()} for _ in range(4000)]}


def prophet_arena(path, rng):
    """The file of forecasting: one market a row, before and after the day that divides training from validation."""
    columns = ["submission_id", "event_ticker", "title", "snapshot_time", "close_time", "market_outcome", "category",
               "markets", "sources"]
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, columns)
        out.writeheader()
        for number in range(160):
            colour, likely = rng.choice(world.COLOURS), rng.random() < 0.5
            begin = datetime.datetime(2025, 9, 1 if number < 128 else 25, tzinfo=datetime.timezone.utc)
            begin += datetime.timedelta(days=0 if number < 128 else 40)
            source = {"ranking": 1, "title": "The news", "summary": "It is likely." if likely else "It is not likely."}
            out.writerow({
                "submission_id": f"s{number}", "event_ticker": f"E{number}", "title": f"Is the door {colour}?",
                "snapshot_time": begin.isoformat(), "close_time": (begin + datetime.timedelta(days=2)).isoformat(),
                "market_outcome": json.dumps({"Yes": int(likely)}), "category": "World", "markets": json.dumps(["Yes"]),
                "sources": json.dumps([source])})


def write_all(folder):
    rng = random.Random(5)
    write(folder, "HuggingFaceH4/no_robots", no_robots(rng))
    write(folder, "openai/gsm8k", gsm8k(rng), "main")
    write(folder, "HuggingFaceH4/MATH-500", {"test": [hendrycks(rng) for _ in range(32)]})
    write(folder, "zwhe99/DeepMath-103K", deepmath(rng))
    write(folder, "allenai/tulu-3-sft-mixture", tulu(rng))
    write(folder, "open-thoughts/OpenThoughts3-1.2M", open_thoughts(rng))
    write(folder, "Anthropic/hh-rlhf", hh_rlhf(rng))
    write(folder, "hicai-zju/SciKnowEval", sci_know_eval(rng))
    write(folder, "tangqiaoyu/ToolAlpaca", tool_alpaca(rng))
    write(folder, "Salesforce/wikitext", wikitext(rng), "wikitext-103-raw-v1")
    write_lines(folder / "talks.jsonl", [{"messages": world.asked(*world.tale(rng))} for _ in range(1024)])
    prophet_arena(folder / "markets.csv", rng)
