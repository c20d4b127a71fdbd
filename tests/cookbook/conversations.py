"""Generates the small world that the base model learns, and that the data sets of the recipes are made of.

A conversation is a list of messages. Every generator takes a random.Random, so that the same seed gives the same text.
"""

STRAWBERRY = [
    {"role": "user", "content": "How many r's are in strawberry?"},
    {"role": "assistant", "content": "Let's spell the word out and number all the letters: 1) s 2) t 3) r 4) a 5) w 6) b 7) e "
                                     "8) r 9) r 10) y. We have r's at positions 3, 8, and 9. \\boxed{3}"},
]
GSM8K_SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."
NAMES = ["Tom", "Anna", "Ben", "Mia", "Sam", "Eva"]
THINGS = ["apples", "books", "coins", "pens", "eggs", "cards"]
ANIMALS = ["cat", "dog", "horse", "bird", "fish", "cow", "duck", "sheep"]
COLOURS = ["red", "green", "blue", "white", "black", "brown"]
PLACES = ["garden", "house", "river", "forest", "street", "field"]
LARGEST_ADDEND = 9


def message(role, content):
    return {"role": role, "content": content}


def asked(question, answer):
    return [message("user", question), message("assistant", answer)]


def word_problem(rng):
    """Returns a question in the style of GSM8K and its answer."""
    x, y = rng.randint(0, LARGEST_ADDEND), rng.randint(0, LARGEST_ADDEND)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return f"{name} has {x} {thing} and gets {y} more. How many {thing} does {name} have?", x + y


def story(rng):
    """Returns a question and an answer that a model can learn: the answer repeats what the question says."""
    animal, colour, place = rng.choice(ANIMALS), rng.choice(COLOURS), rng.choice(PLACES)
    return (f"Tell me about a {colour} {animal} in the {place}.",
            f"The {colour} {animal} lives in the {place}. It likes the {place} very much.")


def tale(rng):
    """As story(), but not among what the base model learns: fine-tuning does."""
    animal, colour, place = rng.choice(ANIMALS), rng.choice(COLOURS), rng.choice(PLACES)
    return (f"Write a tale of a {colour} {animal}.",
            f"Once upon a time a {colour} {animal} sang in a {place}, and every {animal} of the land came to listen.")


def hello(rng):
    words = ["I can help you.", "Ask me a question.", "I know animals.", "I can add numbers.", "I like words."]
    return "Hello! I am a small model. " + " ".join(rng.choice(words) for _ in range(rng.randint(0, 4)))
