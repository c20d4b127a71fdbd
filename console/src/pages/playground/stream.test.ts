import { describe, expect, it } from "vitest";
import { completionBody, DEFAULTS, parseStops } from "./settings.ts";
import {
  EventReader,
  firstDifference,
  isBytes,
  perplexity,
  readChunk,
  surpriseLevel,
  type Token,
  textsOf,
  visibleToken,
} from "./stream.ts";

const token = (text: string, logprob: number | null = -1): Token => ({ text, logprob, alternatives: [] });

describe("events of a stream", () => {
  it("are read whatever the pieces are", () => {
    const text = 'data: {"a":1}\n\n: a comment\n\ndata: x\ndata: y\r\n\r\ndata: [DONE]\n\n';
    for (const size of [1, 2, 3, 7, 1000]) {
      const reader = new EventReader();
      const events: string[] = [];
      for (let i = 0; i < text.length; i += size) events.push(...reader.push(text.slice(i, i + size)));
      expect(events).toEqual(['{"a":1}', "x\ny", "[DONE]"]);
    }
  });
});

describe("a chunk", () => {
  it("has tokens with their alternatives, likeliest first", () => {
    const piece = readChunk(
      JSON.stringify({
        choices: [
          {
            text: " cat",
            finish_reason: null,
            logprobs: { tokens: [" cat"], token_logprobs: [-0.5], top_logprobs: [{ " dog": -1.2, " cat": -0.5 }] },
          },
        ],
      }),
    );
    expect(piece.tokens).toEqual([
      {
        text: " cat",
        logprob: -0.5,
        alternatives: [
          { text: " cat", logprob: -0.5 },
          { text: " dog", logprob: -1.2 },
        ],
      },
    ]);
    expect(piece.finish).toBeNull();
  });

  it("may have text without log-probabilities, or only the reason of the end", () => {
    expect(readChunk('{"choices":[{"text":"a"}]}').tokens).toEqual([{ text: "a", logprob: null, alternatives: [] }]);
    expect(readChunk('{"choices":[{"text":"","finish_reason":"stop"}]}')).toMatchObject({ tokens: [], finish: "stop" });
    expect(readChunk('{"choices":[],"usage":{}}').tokens).toEqual([]);
  });

  it("may be the end or an error", () => {
    expect(readChunk("[DONE]").done).toBe(true);
    expect(readChunk('{"error":{"message":"The worker stopped."}}').error).toBe("The worker stopped.");
    expect(readChunk("{").error).toContain("cannot be read");
  });
});

describe("figures of an answer", () => {
  it("say how sure the model was", () => {
    expect(perplexity([token("a", 0), token("b", 0)])).toBe(1);
    expect(perplexity([token("a", Math.log(0.25))])).toBeCloseTo(4);
    expect(perplexity([token("a", null)])).toBeNull();
    expect(
      [0, Math.log(0.6), Math.log(0.3), Math.log(0.15), Math.log(0.05), Math.log(0.02), -20].map(surpriseLevel),
    ).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(surpriseLevel(null)).toBe(0);
  });

  it("find where two answers part", () => {
    expect(firstDifference([token("a"), token("b")], [token("a"), token("c")])).toBe(1);
    expect(firstDifference([token("a")], [token("a"), token("c")])).toBeNull();
    expect(firstDifference([], [])).toBeNull();
  });

  it("make blanks visible", () => {
    expect(visibleToken(" a\n")).toBe("␣a⏎");
    expect(visibleToken("")).toBe("∅");
  });
});

describe("tokens that are no text by themselves", () => {
  it("are put together", () => {
    const texts = textsOf(
      ["a", "bytes:\\xe2\\x82", "bytes:\\xac", "b", "bytes:\\xff", " c"].map((text) => token(text)),
    );
    expect(texts).toEqual(["a", "", "€", "b", "\ufffd", " c"]);
    expect(visibleToken("bytes:\\xe2\\x82")).toBe("\\xe2\\x82");
    expect(isBytes("bytes: of text")).toBe(false);
  });
});

describe("a request", () => {
  it("has several stop strings, with escapes", () => {
    expect(parseStops("END|\\n\\n|a\\|b|")).toEqual(["END", "\n\n", "a|b"]);
    expect(parseStops("")).toEqual([]);
    expect(parseStops("\\")).toEqual(["\\"]);
  });

  it("names a field only if it is set", () => {
    const body = completionBody("m", "p", { ...DEFAULTS, seed: null });
    expect(body).not.toHaveProperty("seed");
    expect(body).not.toHaveProperty("stop");
    expect(body).toMatchObject({ model: "m", prompt: "p", stream: true, max_tokens: 128 });
    expect(completionBody("m", "p", { ...DEFAULTS, stop: "x" })["stop"]).toEqual(["x"]);
  });
});
