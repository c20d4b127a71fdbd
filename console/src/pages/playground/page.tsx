// The playground: a prompt, one or two models, and their answers token by token.

import { useEffect, useState } from "preact/hooks";
import { useApi } from "../../api/use_api.ts";
import { setParams, useParam } from "../../app/router.ts";
import { ErrorBox } from "../../ui/basics.tsx";
import { CloseIcon, PlayIcon, PlusIcon } from "../../ui/icons.tsx";
import { Pane } from "./pane.tsx";
import { completionBody, DEFAULTS, type Settings, useSettings } from "./settings.ts";
import { firstDifference } from "./stream.ts";
import { useCompletion } from "./use_completion.ts";
import "../traces/traces.css";
import "./playground.css";

interface Models {
  data: { id: string; owned_by?: string }[];
}

/** The prompt stays in the tab: an address is logged on its way, and a prompt may be private. */
const promptKey = "tuft.prompt";

function usePrompt(): [string, (text: string) => void] {
  const [prompt, setPrompt] = useState(() => {
    try {
      return sessionStorage.getItem(promptKey) ?? "";
    } catch {
      return "";
    }
  });
  return [
    prompt,
    (text) => {
      setPrompt(text);
      try {
        sessionStorage.setItem(promptKey, text);
      } catch {
        // Without storage the prompt lasts until the page is left.
      }
    },
  ];
}

export default function PlaygroundPage() {
  const models = useApi<Models>("/oai/api/v1/models?limit=500");
  const [a, setA] = useParam("a");
  const [b, setB] = useParam("b");
  const [two, setTwo] = useParam("two");
  const [plain, setPlain] = useParam("plain");
  const [prompt, setPrompt] = usePrompt();
  const settings = useSettings();
  const left = useCompletion();
  const right = useCompletion();
  const names = models.data?.data.map((model) => model.id) ?? [];
  const isTwo = two === "1" || b !== "";
  // Something sensible is chosen for a reader who comes without a choice.
  useEffect(() => {
    if (!a && names[0]) setA(names[0]);
  }, [a, names[0]]);

  const busy = [left, right].some((one) => one.completion.state === "waiting" || one.completion.state === "streaming");
  const ready = prompt.trim() !== "" && a !== "" && (!isTwo || b !== "");
  const run = () => {
    if (!ready || busy) return;
    void left.start(completionBody(a, prompt, settings));
    if (isTwo) void right.start(completionBody(b, prompt, settings));
  };
  const stop = () => {
    left.stop();
    right.stop();
  };
  const difference = isTwo ? firstDifference(left.completion.tokens, right.completion.tokens) : null;
  return (
    <>
      {models.error && <ErrorBox error={models.error} retry={models.reload} />}
      <div class="playground">
        <section class="card play-form" aria-label="The request">
          <div class="play-models">
            <ModelField letter="A" value={a} names={names} onChange={setA} />
            {isTwo ? (
              <>
                <ModelField letter="B" value={b} names={names} onChange={setB} />
                <button
                  type="button"
                  class="btn quiet small icon"
                  aria-label="Only one model"
                  title="Only one model"
                  onClick={() => setParams({ b: null, two: null }, true)}
                >
                  <CloseIcon />
                </button>
              </>
            ) : (
              <button type="button" class="btn small" onClick={() => setTwo("1")}>
                <PlusIcon /> Compare with another
              </button>
            )}
          </div>
          <label class="field">
            Prompt
            <textarea
              class="input play-prompt"
              rows={6}
              value={prompt}
              placeholder="The text that the model goes on with"
              spellcheck={false}
              onInput={(event) => setPrompt(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
                event.preventDefault();
                run();
              }}
            />
          </label>
          <SettingsForm settings={settings} />
          <div class="row">
            {busy ? (
              <button type="button" class="btn primary" onClick={stop}>
                Stop
              </button>
            ) : (
              <button type="button" class="btn primary" disabled={!ready} onClick={run} title="Ctrl Enter">
                <PlayIcon /> Complete
              </button>
            )}
            <button
              type="button"
              class="btn small"
              aria-pressed={plain !== "1"}
              onClick={() => setPlain(plain === "1" ? null : "1")}
            >
              Colour by likelihood
            </button>
            {plain !== "1" && <Scale />}
          </div>
        </section>
        <div class={isTwo ? "panes two" : "panes"}>
          <Pane letter="A" model={a} completion={left.completion} coloured={plain !== "1"} difference={difference} />
          {isTwo && (
            <Pane letter="B" model={b} completion={right.completion} coloured={plain !== "1"} difference={difference} />
          )}
        </div>
      </div>
    </>
  );
}

interface ModelFieldProps {
  letter: string;
  value: string;
  names: string[];
  onChange: (value: string) => void;
}

/** A name of the list, or any path that is typed. */
function ModelField({ letter, value, names, onChange }: ModelFieldProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <label class="field grow">
      Model {letter}
      <input
        class="input"
        list={`models-${letter}`}
        value={typed}
        placeholder="a base model or tinker://run/sampler_weights/name"
        spellcheck={false}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
      <datalist id={`models-${letter}`}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

function SettingsForm({ settings }: { settings: Settings }) {
  const set = (name: string, value: string, fallback: number | string) =>
    setParams({ [name]: value === "" || value === String(fallback) ? null : value }, true);
  return (
    <div class="play-settings">
      <NumberField
        label="Temperature"
        min={0}
        max={2}
        step={0.1}
        value={settings.temperature}
        onChange={(value) => set("temperature", value, DEFAULTS.temperature)}
      />
      <NumberField
        label="Top p"
        min={0}
        max={1}
        step={0.05}
        value={settings.topP}
        onChange={(value) => set("top_p", value, DEFAULTS.topP)}
      />
      <NumberField
        label="Max tokens"
        min={1}
        max={4096}
        step={1}
        value={settings.maxTokens}
        onChange={(value) => set("max_tokens", value, DEFAULTS.maxTokens)}
      />
      <label class="field">
        Seed
        <input
          class="input"
          value={settings.seed === null ? "" : settings.seed}
          placeholder="any"
          inputMode="numeric"
          title="Both models draw with it. Empty: another one each time"
          onChange={(event) => {
            const text = event.currentTarget.value.trim();
            setParams({ seed: text === "" ? "any" : text === String(DEFAULTS.seed) ? null : text }, true);
          }}
        />
      </label>
      <label class="field">
        Stop at
        <input
          class="input"
          value={settings.stop}
          placeholder="END|\n\n"
          title="Several strings are separated by |; \n is a line break"
          spellcheck={false}
          onChange={(event) => set("stop", event.currentTarget.value, "")}
        />
      </label>
    </div>
  );
}

interface NumberFieldProps {
  label: string;
  min: number;
  max: number;
  step: number;
  value: number;
  onChange: (value: string) => void;
}

function NumberField({ label, min, max, step, value, onChange }: NumberFieldProps) {
  return (
    <label class="field">
      {label}
      <input
        class="input"
        type="number"
        min={min}
        max={max}
        step={step}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    </label>
  );
}

function Scale() {
  const words = ["80 %", "50 %", "25 %", "10 %", "3 %", "1 %", "less"];
  return (
    <span class="scale">
      <span class="muted">likely</span>
      {words.map((word, level) => (
        <span key={word} class={`surprise-${level}`} title={level < 6 ? `at least ${word}` : "less than 1 %"} />
      ))}
      <span class="muted">unlikely</span>
    </span>
  );
}
