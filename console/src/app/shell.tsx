// The frame around every page: navigation, title, controls.

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { logout, who } from "../api/client.ts";
import { matchPath } from "../lib/url.ts";
import { Badge, classes, Empty, ErrorBox, Link, Skeleton } from "../ui/basics.tsx";
import { KeyboardIcon, Logo, LogoutIcon, MenuIcon } from "../ui/icons.tsx";
import { LiveSwitch, RangePicker, ThemeSwitch } from "./controls.tsx";
import { helpOpen, ShortcutsHelp, useShortcuts } from "./keyboard.tsx";
import { navigation, type Page, type PageProps, pages } from "./pages.ts";
import { path } from "./router.ts";

/** A page may set a title that says more, such as the name of its trace; null: the page's own. */
export const pageTitle = signal<string | null>(null);

export function usePageTitle(title: string | null | undefined) {
  useEffect(() => {
    pageTitle.value = title ?? null;
    return () => {
      pageTitle.value = null;
    };
  }, [title]);
}

const menuOpen = signal(false);

function find(current: string): { page: Page; params: Record<string, string> } | null {
  for (const page of pages) {
    const params = matchPath(page.pattern, current);
    if (params) return { page, params };
  }
  return null;
}

function Side() {
  const me = who.value;
  const current = path.value;
  return (
    <>
      <aside
        class={classes("side", menuOpen.value && "open")}
        onClick={(event) => (event.target as HTMLElement).closest("a") && (menuOpen.value = false)}
      >
        <Link to="/" class="brand" aria-label="tuft, to the overview">
          <Logo />
          tuft
        </Link>
        <nav class="nav" aria-label="Pages">
          {navigation.map((group) => (
            <div key={group.title}>
              {group.title && <div class="nav-group">{group.title}</div>}
              {group.items.map((item) => {
                const here =
                  item.path === "/" ? current === "/" : current === item.path || current.startsWith(`${item.path}/`);
                return (
                  <Link key={item.path} to={item.path} aria-current={here ? "page" : undefined} title={`g ${item.key}`}>
                    <item.icon />
                    {item.title}
                  </Link>
                );
              })}
            </div>
          ))}
        </nav>
        <div class="side-foot">
          <div class="who">
            <span class="avatar" aria-hidden="true">
              {me?.user.slice(0, 2)}
            </span>
            <span class="clip grow">{me?.user}</span>
            {me?.operator && (
              <Badge tone="accent" title="Sees everything on this server">
                operator
              </Badge>
            )}
          </div>
          <div class="row spread">
            <span class="muted">{me?.version}</span>
            <span class="row tight">
              <button
                type="button"
                class="btn quiet icon small"
                onClick={() => (helpOpen.value = true)}
                aria-label="Keyboard shortcuts"
                title="Keyboard shortcuts (?)"
              >
                <KeyboardIcon />
              </button>
              <button
                type="button"
                class="btn quiet icon small"
                onClick={() => void logout()}
                aria-label="Log out"
                title="Log out"
              >
                <LogoutIcon />
              </button>
            </span>
          </div>
        </div>
      </aside>
      {menuOpen.value && (
        <button type="button" class="scrim" aria-label="Close the menu" onClick={() => (menuOpen.value = false)} />
      )}
    </>
  );
}

const loaded = new Map<Page, ComponentType<PageProps>>();

function Content({ page, params }: { page: Page; params: Record<string, string> }) {
  const [, redraw] = useState(0);
  const [failure, setFailure] = useState<string | null>(null);
  const [crash, reset] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    setFailure(null);
    if (loaded.has(page)) return;
    page
      .load()
      .then((module) => {
        loaded.set(page, module.default);
        redraw((value) => value + 1);
      })
      .catch(() => setFailure("This page could not be loaded. The server may have been updated: reload the console."));
  }, [page]);
  if (crash) return <ErrorBox error={`This page failed: ${crash}`} retry={reset} />;
  if (failure) return <ErrorBox error={failure} retry={() => location.reload()} />;
  const Component = loaded.get(page);
  return Component ? <Component params={params} /> : <Skeleton height={240} />;
}

export function Shell() {
  useShortcuts();
  const found = find(path.value);
  const title = pageTitle.value ?? found?.page.title ?? "Not found";
  useEffect(() => {
    document.title = `${title} · tuft`;
  }, [title]);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        To the content
      </a>
      <Side />
      <div class="content">
        <header class="top">
          <button
            type="button"
            class="btn quiet icon menu-button"
            aria-label="Menu"
            aria-expanded={menuOpen.value}
            onClick={() => (menuOpen.value = true)}
          >
            <MenuIcon />
          </button>
          <div class="crumbs">
            <h1>{title}</h1>
          </div>
          {found?.page.range && <RangePicker />}
          {found?.page.live && <LiveSwitch />}
          <ThemeSwitch />
        </header>
        <main class="page" id="main" tabIndex={-1}>
          {found ? (
            <Content key={found.page.pattern} page={found.page} params={found.params} />
          ) : (
            <Empty title="There is no such page">
              <p>
                The address may be of another version of the console. <Link to="/">Go to the overview</Link>
              </p>
            </Empty>
          )}
        </main>
      </div>
      <ShortcutsHelp />
    </div>
  );
}
