// The event stream: read, found dead where it is silent, and opened again, sooner or later.

const SECTIONS = ["policy", "curves", "learned", "decisions", "state"];
const SILENT_MS = 10000;
const LONGEST_WAIT_MS = 15000;
const HIDDEN_MS = 60000;

/**
 * Opens `url` and keeps it open. `took(section, data)` is called with what comes; `changed(status)` with
 * {state: "connecting" | "live" | "lost" | "asleep", retryAt (ms or null), why}.
 *
 * A page that nobody has looked at for a minute gives its place up, and asks again when it is looked at.
 */
export function openConnection(url, took, changed) {
  let source = null;
  let failures = 0;
  let retry = 0;
  let silence = 0;
  let hidden = 0;
  let why = "";

  function open() {
    clearTimeout(retry);
    close();
    source = new EventSource(url);
    const mine = source;
    changed({ state: failures ? "lost" : "connecting", retryAt: null, why });
    for (const section of SECTIONS) {
      mine.addEventListener(section, (event) => {
        if (mine !== source) return;
        heard();
        took(section, JSON.parse(event.data));
      });
    }
    mine.addEventListener("end", () => mine === source && lost("the proxy has stopped"));
    mine.onerror = () => mine === source && lost(mine.readyState === EventSource.CLOSED ? "it was refused" : "it broke off");
    listen();
  }

  function heard() {
    if (failures || why) {
      failures = 0;
      why = "";
    }
    changed({ state: "live", retryAt: null, why: "" });
    listen();
  }

  function listen() {
    clearTimeout(silence);
    silence = setTimeout(() => lost("nothing came for a while"), SILENT_MS);
  }

  function lost(reason) {
    close();
    failures += 1;
    why = reason;
    const wait = Math.min(1000 * 2 ** Math.min(failures - 1, 4), LONGEST_WAIT_MS);
    clearTimeout(retry);
    retry = setTimeout(open, wait);
    changed({ state: "lost", retryAt: Date.now() + wait, why });
  }

  function close() {
    clearTimeout(silence);
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) {
      hidden = setTimeout(() => {
        clearTimeout(retry);
        close();
        changed({ state: "asleep", retryAt: null, why: "" });
      }, HIDDEN_MS);
    } else if (!source) open();
  });
  open();
  return { retry: open };
}
