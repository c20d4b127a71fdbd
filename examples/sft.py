"""The smallest fine-tuning loop: python examples/sft.py BASE_MODEL (server and key from the environment)."""
import sys

import tinker
from tinker import types

# TINKER_BASE_URL=http://localhost:10610 TINKER_API_KEY=tml-...
client = tinker.ServiceClient()
trainer = client.create_lora_training_client(base_model=sys.argv[1], rank=16)
tokenizer = trainer.get_tokenizer()

prompt, answer = "The capital of Lyonesse is", " Carrow."
prompt_tokens, answer_tokens = (tokenizer.encode(text, add_special_tokens=False) for text in (prompt, answer))
tokens = prompt_tokens + answer_tokens
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={"target_tokens": tokens[1:],
                    "weights": [0.0] * (len(prompt_tokens) - 1) + [1.0] * len(answer_tokens)})

for step in range(30):
    passed = trainer.forward_backward([datum], "cross_entropy")  # both are sent before the first result is awaited
    stepped = trainer.optim_step(types.AdamParams(learning_rate=5e-3))
    print(f"step {step} loss {passed.result().metrics['loss:sum']:.3f}")
    stepped.result()

sampler = trainer.save_weights_and_get_sampling_client()
params = types.SamplingParams(max_tokens=len(answer_tokens), temperature=0.0)
sample = sampler.sample(types.ModelInput.from_ints(prompt_tokens), num_samples=1, sampling_params=params).result()
print(prompt + tokenizer.decode(sample.sequences[0].tokens))
