import os
import sys

import tinker
from tinker import types

model = sys.argv[1]
client = tinker.ServiceClient(base_url="http://localhost:10610", api_key="tml-reader")
trainer = client.create_lora_training_client(base_model=model, rank=8)
tokenizer = trainer.get_tokenizer()
tokens = tokenizer.encode("The harbour master keeps the book of tides.")
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
)
for step in range(3):
    passed = trainer.forward_backward([datum] * 4, "cross_entropy")
    trainer.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    print(f"step {step}: loss {passed.result().metrics['loss:sum']:.2f}")
print("checkpoint", trainer.save_state("step-3").result().path)
weights = trainer.save_weights_for_sampler("step-3").result().path
sampler = client.create_sampling_client(model_path=weights)
for _ in range(2):
    sampler.sample(
        types.ModelInput.from_ints(tokens[:4]), num_samples=2, sampling_params=types.SamplingParams(max_tokens=24)
    ).result()

print("weights", weights)
session_id = client.holder.get_session_id()
session = client.create_rest_client().get_session(session_id).result()
print("tuft.session_id", session_id)
print("tuft.training_run_id", *session.training_run_ids)
print("tuft.sampling_session_id", *session.sampler_ids)
sys.stdout.flush()
os._exit(0)  # see examples/demo.py
