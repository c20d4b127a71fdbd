// The panels that a user keeps in this browser.

import { signal } from "@preact/signals";
import { store, stored } from "../../app/state.ts";
import { decodePanels, encodePanels, type Panel } from "../../lib/panels.ts";

const key = "tuft.panels";
export const savedPanels = signal<Panel[]>(decodePanels(stored(key) ?? ""));

function keep(panels: Panel[]) {
  savedPanels.value = decodePanels(encodePanels(panels));
  store(key, encodePanels(panels));
}

export const addPanels = (panels: Panel[]) => keep([...savedPanels.value, ...panels]);
export const removePanel = (id: string) => keep(savedPanels.value.filter((panel) => panel.id !== id));
export function movePanel(id: string, by: number) {
  const panels = [...savedPanels.value];
  const at = panels.findIndex((panel) => panel.id === id);
  const to = at + by;
  if (at < 0 || to < 0 || to >= panels.length) return;
  const [panel] = panels.splice(at, 1);
  panels.splice(to, 0, panel!);
  keep(panels);
}
