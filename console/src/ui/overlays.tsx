// What lies over or beside a page: pop-ups, dialogs, drawers, tabs.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { classes } from "./basics.tsx";
import { CloseIcon } from "./icons.tsx";

/** Calls `onClose` for a press outside of the element and for Escape. */
export function useDismiss(open: boolean, onClose: () => void) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!ref.current?.contains(event.target as Node)) onClose();
    };
    const onEscape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      onClose();
      ref.current?.querySelector<HTMLElement>("button, input")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", onEscape, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", onEscape, true);
    };
  }, [open, onClose]);
  return ref;
}

interface DialogProps {
  open: boolean;
  onClose: () => void;
  title: ComponentChildren;
  /** At the right edge, of full height. */
  drawer?: boolean;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

export function Dialog({ open, onClose, title, drawer, actions, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog) return;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  if (!open) return null;
  return (
    <dialog
      ref={ref}
      class={classes(drawer && "drawer")}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose();
      }}
    >
      <div class={drawer ? "drawer-head" : "row spread"}>
        <h2 id={id}>{title}</h2>
        {actions}
        <button type="button" class="btn quiet icon" onClick={onClose} aria-label="Close">
          <CloseIcon />
        </button>
      </div>
      <div class={drawer ? "drawer-body" : ""}>{children}</div>
    </dialog>
  );
}

/** Details of a selected thing over the right side of the page. */
export function Drawer(props: Omit<DialogProps, "drawer">) {
  return <Dialog {...props} drawer />;
}

interface TabsProps<T extends string> {
  label: string;
  value: T;
  tabs: readonly (readonly [T, ComponentChildren])[];
  onChange: (value: T) => void;
  children: ComponentChildren;
}

export function Tabs<T extends string>({ label, value, tabs, onChange, children }: TabsProps<T>) {
  const id = useId();
  const move = (event: KeyboardEvent) => {
    const offset = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!offset) return;
    const at = tabs.findIndex(([name]) => name === value);
    const next = tabs[(at + offset + tabs.length) % tabs.length]!;
    onChange(next[0]);
    document.getElementById(`${id}-${next[0]}`)?.focus();
  };
  return (
    <div class="stack">
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(([name, text]) => (
          <button
            type="button"
            key={name}
            id={`${id}-${name}`}
            role="tab"
            aria-selected={name === value}
            aria-controls={`${id}-panel`}
            tabIndex={name === value ? 0 : -1}
            onClick={() => onChange(name)}
          >
            {text}
          </button>
        ))}
      </div>
      <div class="stack" id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${value}`}>
        {children}
      </div>
    </div>
  );
}
