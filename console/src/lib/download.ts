// Downloads that need the console's header, which a plain link does not send.

import { request } from "../api/client.ts";

/** Fetches a path and hands the answer to the reader as a file. Throws what `request` throws. */
export async function downloadFile(path: string, name: string): Promise<void> {
  const response = await request(path);
  const url = URL.createObjectURL(await response.blob());
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  // The browser reads the blob after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
