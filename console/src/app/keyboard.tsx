// Shortcuts of the whole console, and the page that lists them.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Dialog } from "../ui/overlays.tsx";
import { navigation } from "./pages.ts";
import { navigate } from "./router.ts";
import { theme, toggleLive } from "./state.ts";

export const helpOpen = signal(false);
const waitMillis = 1200;

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

const visible = (selector: string) =>
  [...document.querySelectorAll<HTMLElement>(selector)].find((element) => element.offsetParent !== null);

export function useShortcuts() {
  useEffect(() => {
    let prefix = Number.NEGATIVE_INFINITY;
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
      if (document.querySelector("dialog[open]") && event.key !== "?") return;
      const afterG = performance.now() - prefix < waitMillis;
      prefix = Number.NEGATIVE_INFINITY;
      if (afterG) {
        const item = navigation.flatMap((group) => group.items).find((candidate) => candidate.key === event.key);
        if (item) {
          event.preventDefault();
          navigate(item.path);
        }
        return;
      }
      switch (event.key) {
        case "g":
          prefix = performance.now();
          return;
        case "?":
          helpOpen.value = !helpOpen.value;
          return;
        case "/": {
          const field = visible('[data-keys="search"]');
          if (!field) return;
          event.preventDefault();
          field.focus();
          return;
        }
        case "j":
        case "k": {
          // Hands the key to the first table of the page, unless one has the focus already.
          const table = visible('[data-keys="table"]');
          if (!table || table.contains(document.activeElement)) return;
          table.focus({ preventScroll: true });
          table.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: true }));
          return;
        }
        case " ":
          if ((event.target as HTMLElement).closest("button, a, summary, [role=tab]")) return;
          event.preventDefault();
          toggleLive();
          return;
        case "d":
          theme.value = theme.value === "dark" ? "light" : "dark";
          return;
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

const general: [string[], string][] = [
  [["/"], "Search or filter"],
  [["j", "k"], "Next and previous row"],
  [["Enter"], "Open the row"],
  [["Esc"], "Close, or leave the field"],
  [["Space"], "Pause and go on"],
  [["d"], "Light or dark"],
  [["?"], "This list"],
];

export function ShortcutsHelp() {
  return (
    <Dialog open={helpOpen.value} onClose={() => (helpOpen.value = false)} title="Keyboard">
      <div class="grid-2 shortcuts">
        <dl>
          {general.map(([keys, what]) => (
            <div key={what}>
              <dt>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <dl>
          {navigation
            .flatMap((group) => group.items)
            .map((item) => (
              <div key={item.path}>
                <dt>
                  <kbd>g</kbd>
                  <kbd>{item.key}</kbd>
                </dt>
                <dd>{item.title}</dd>
              </div>
            ))}
        </dl>
      </div>
    </Dialog>
  );
}
