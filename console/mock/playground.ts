// A made-up completion, streamed as the OpenAI-compatible API does, with log-probabilities.

import type { ServerResponse } from "node:http";
import { Random, seedOf } from "./random.ts";

const words =
  " the small model answers in short words and counts what it knows about streams of tokens , adapters and weights ; each step costs some time . It learns from examples until its loss stops falling".split(
    /(?= )/,
  );

export async function playground(body: Record<string, unknown>, response: ServerResponse) {
  const random = new Random(seedOf(String(body["model"]) + String(body["seed"] ?? Date.now())));
  const count = Math.min(Number(body["max_tokens"] ?? 16), 400);
  const alternatives = Number(body["logprobs"] ?? 0);
  const choice = (offset: number) => {
    const token = random.pick(words);
    const logprob = -random.tail(0.4, 1.3);
    const top: Record<string, number> = { [token]: logprob };
    for (let i = 1; i < alternatives; i++) top[random.pick(words)] ??= logprob - random.between(0.2, 3);
    return {
      token,
      logprobs: { tokens: [token], token_logprobs: [logprob], top_logprobs: [top], text_offset: [offset] },
    };
  };
  const made = {
    id: `cmpl-${random.hex(12)}`,
    object: "text_completion",
    created: Math.floor(Date.now() / 1000),
    model: body["model"],
  };
  if (!body["stream"]) {
    const all = Array.from({ length: count }, (_, i) => choice(i));
    response.setHeader("Content-Type", "application/json");
    response.end(
      JSON.stringify({
        ...made,
        choices: [
          {
            index: 0,
            text: all.map((one) => one.token).join(""),
            finish_reason: "length",
            logprobs: {
              tokens: all.map((one) => one.token),
              token_logprobs: all.map((one) => one.logprobs.token_logprobs[0]),
              top_logprobs: all.map((one) => one.logprobs.top_logprobs[0]),
              text_offset: [],
            },
          },
        ],
        usage: { prompt_tokens: 12, completion_tokens: count, total_tokens: 12 + count },
      }),
    );
    return;
  }
  response.setHeader("Content-Type", "text/event-stream");
  for (let i = 0; i < count && !response.destroyed; i++) {
    const { token, logprobs } = choice(i);
    response.write(
      `data: ${JSON.stringify({ ...made, choices: [{ index: 0, text: token, finish_reason: i === count - 1 ? "length" : null, logprobs: alternatives ? logprobs : null }] })}\n\n`,
    );
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  response.end("data: [DONE]\n\n");
}
