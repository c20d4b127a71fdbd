// Icons of 24 by 24, drawn with the colour of the text around them.

import type { ComponentChildren } from "preact";

function icon(children: ComponentChildren) {
  return function Icon() {
    return (
      <svg
        viewBox="0 0 24 24"
        fill="none"
        stroke="currentColor"
        stroke-width="1.9"
        stroke-linecap="round"
        stroke-linejoin="round"
        aria-hidden="true"
        focusable="false"
      >
        {children}
      </svg>
    );
  };
}

export const OverviewIcon = icon(<path d="M4 13h6V4H4zM14 20h6v-9h-6zM14 8h6V4h-6zM4 20h6v-4H4z" />);
export const TracesIcon = icon(<path d="M4 6h9M8 12h9M12 18h8M4 6v0M4 12h.01M4 18h.01" />);
export const LogsIcon = icon(<path d="M5 5h14M5 10h10M5 15h14M5 20h7" />);
export const MetricsIcon = icon(<path d="M4 4v16h16M8 15l3.5-5 3 3L20 7" />);
export const RunsIcon = icon(<path d="M4 5c3 0 4 11 8 11s5-6 8-6M4 20h16" />);
export const SamplersIcon = icon(
  <path d="M12 3v4M12 17v4M3 12h4M17 12h4M5.6 5.6l2.8 2.8M15.6 15.6l2.8 2.8M5.6 18.4l2.8-2.8M15.6 8.4l2.8-2.8" />,
);
export const PlaygroundIcon = icon(<path d="M4 5h16v11H9l-5 4zM8 9h8M8 12h5" />);
export const TenantsIcon = icon(
  <>
    <circle cx="9" cy="8" r="3.4" />
    <path d="M3 20c0-3.6 2.6-6 6-6s6 2.4 6 6M16 4.8a3.4 3.4 0 0 1 0 6.4M17.5 14.4c2.2.8 3.5 2.8 3.5 5.6" />
  </>,
);
export const SystemIcon = icon(
  <>
    <rect x="4" y="4" width="16" height="7" rx="2" />
    <rect x="4" y="13" width="16" height="7" rx="2" />
    <path d="M8 7.5h.01M8 16.5h.01M12 7.5h4M12 16.5h4" />
  </>,
);
export const MenuIcon = icon(<path d="M4 7h16M4 12h16M4 17h16" />);
export const CloseIcon = icon(<path d="M6 6l12 12M18 6L6 18" />);
export const SearchIcon = icon(
  <>
    <circle cx="11" cy="11" r="6.5" />
    <path d="M16 16l4.5 4.5" />
  </>,
);
export const ClockIcon = icon(
  <>
    <circle cx="12" cy="12" r="8.5" />
    <path d="M12 7v5l3.5 2" />
  </>,
);
export const ChevronDown = icon(<path d="M6 9l6 6 6-6" />);
export const ChevronUp = icon(<path d="M6 15l6-6 6 6" />);
export const ChevronRight = icon(<path d="M9 6l6 6-6 6" />);
export const ChevronLeft = icon(<path d="M15 6l-6 6 6 6" />);
export const SunIcon = icon(
  <>
    <circle cx="12" cy="12" r="4" />
    <path d="M12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4" />
  </>,
);
export const MoonIcon = icon(<path d="M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5z" />);
export const AutoIcon = icon(
  <>
    <circle cx="12" cy="12" r="8.5" />
    <path d="M12 3.5v17a8.5 8.5 0 0 0 0-17z" fill="currentColor" stroke="none" />
  </>,
);
export const PauseIcon = icon(<path d="M9 5v14M15 5v14" />);
export const PlayIcon = icon(<path d="M7 5l12 7-12 7z" />);
export const CopyIcon = icon(
  <>
    <rect x="9" y="9" width="11" height="11" rx="2" />
    <path d="M5 15V6a2 2 0 0 1 2-2h9" />
  </>,
);
export const CheckIcon = icon(<path d="M5 12.5l4.5 4.5L19 7.5" />);
export const AlertIcon = icon(<path d="M12 4L2.8 19.5h18.4zM12 10v4M12 17h.01" />);
export const CrossIcon = icon(<path d="M7 7l10 10M17 7L7 17" />);
export const DotIcon = icon(<circle cx="12" cy="12" r="5" fill="currentColor" />);
export const DownloadIcon = icon(<path d="M12 4v11M7 11l5 5 5-5M4 20h16" />);
export const ExternalIcon = icon(
  <path d="M14 4h6v6M20 4l-9 9M18 14v5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1h5" />,
);
export const KeyboardIcon = icon(
  <>
    <rect x="2.5" y="6" width="19" height="12" rx="2" />
    <path d="M6.5 10h.01M10 10h.01M14 10h.01M17.5 10h.01M8 14h8" />
  </>,
);
export const LogoutIcon = icon(<path d="M14 4h5v16h-5M3 12h11M10 8l4 4-4 4" />);
export const EmptyIcon = icon(<path d="M4 14l3-9h10l3 9v5H4zM4 14h5l1.5 2.5h3L15 14h5" />);
export const ZoomOutIcon = icon(
  <>
    <circle cx="11" cy="11" r="6.5" />
    <path d="M16 16l4.5 4.5M8 11h6" />
  </>,
);
export const PlusIcon = icon(<path d="M12 5v14M5 12h14" />);
export const TrashIcon = icon(<path d="M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13" />);
export const LinkIcon = icon(
  <path d="M10 14a4 4 0 0 0 5.7 0l3-3A4 4 0 0 0 13 5.3l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1" />,
);
export const FollowIcon = icon(<path d="M12 4v13M6 11l6 6 6-6M5 21h14" />);

export function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="#0b5c91" />
      <g fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round">
        <path d="M16 25V12M16 25C16 17 12 14 8 12M16 25c0-8 4-11 8-13M16 12V7" />
      </g>
    </svg>
  );
}
