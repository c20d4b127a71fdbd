import type { Overview } from "../../api/types.ts";
import { serverNow, tick } from "../../app/state.ts";
import { formatDuration, formatNumber } from "../../lib/units.ts";
import { Badge, classes, Link } from "../../ui/basics.tsx";
import { AlertIcon, CheckIcon, CrossIcon } from "../../ui/icons.tsx";
import type { Notice } from "./attention.ts";

const plural = (count: number, word: string) => `${formatNumber(count)} ${word}${count === 1 ? "" : "s"}`;

/** One sentence for the state of the server, then what needs attention. */
export function Health({ overview, notices, lost }: { overview: Overview; notices: Notice[]; lost: boolean }) {
  void tick.value;
  const bad = lost || !overview.ready || notices.some((notice) => notice.tone === "bad");
  const tone = bad ? "bad" : notices.length ? "warn" : "ok";
  const title = lost
    ? "The server does not answer"
    : !overview.ready
      ? `Not ready: ${overview.reason ?? "the server is starting"}`
      : bad
        ? "Something is broken"
        : notices.length
          ? "Works, but look at this"
          : "Everything works";
  const doing = [
    overview.pending ? `${plural(overview.pending, "operation")} at work` : "nothing to do",
    plural(overview.sessions, "session"),
    plural(overview.runs, "run"),
    plural(overview.samplers, "sampler"),
    ...(overview.users_active === null ? [] : [`${plural(overview.users_active, "user")} active`]),
  ];
  return (
    <section class={classes("card health", tone)} aria-label="Health">
      <span class="health-icon">{tone === "ok" ? <CheckIcon /> : tone === "warn" ? <AlertIcon /> : <CrossIcon />}</span>
      <div class="grow">
        <h2>{title}</h2>
        <p class="muted">
          {doing.join(" · ")} · up {formatDuration(serverNow() - overview.started)}
        </p>
        {notices.length > 0 && (
          <ul class="notices">
            {notices.slice(0, 6).map((notice) => (
              <li key={notice.text}>
                <Badge tone={notice.tone}>{notice.tone === "bad" ? "broken" : "check"}</Badge>
                <span>{notice.text}</span>
                <Link to={notice.to} params={notice.params}>
                  {notice.link}
                </Link>
              </li>
            ))}
          </ul>
        )}
      </div>
    </section>
  );
}
