// Every page answers its question without this file. It looks again at the page that is open, says
// when what is shown is old, and hears the keyboard.
(() => {
  const EVERY_MS = 2000;
  const main = () => document.getElementById("page");
  const stale = document.getElementById("stale");
  const live = document.getElementById("live");
  let paused = false;
  let underWay = false;
  let signedOut = false;
  let seenAt = Date.now();

  // Live.

  const isLive = () => main()?.dataset.live === "yes";
  const tell = () => {
    const old = Math.round((Date.now() - seenAt) / 1000);
    const isOld = isLive() && !paused && !document.hidden && old > 10;
    stale.hidden = !(isOld || signedOut);
    if (signedOut) stale.textContent = `You are not signed in any more, and this is ${old} s old: load the page again.`;
    else if (isOld) stale.textContent = `This is ${old} s old: the console or its store does not reply. It is asked again.`;
    if (live) live.textContent = paused ? "paused: p goes on" : "live";
  };
  const look = () => {
    if (!isLive() || underWay) return;
    underWay = true;
    htmx.trigger(main(), "look");
  };
  document.addEventListener("htmx:before:swap", (event) => {
    const reply = event.detail.ctx?.response;
    const isPage = event.detail.ctx?.text?.includes('id="page"'); // a proxy has pages of its own
    signedOut = reply?.status === 401;
    if (reply?.status >= 400 || !isPage) event.preventDefault(); // what is shown stays, and grows old
    else seenAt = Date.now();
  });
  document.addEventListener("htmx:finally:request", () => { underWay = false; tell(); });
  document.addEventListener("htmx:error", () => { underWay = false; tell(); });
  setInterval(() => { if (!document.hidden && !paused) look(); tell(); }, EVERY_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) look(); });
  tell();

  // Moments, in the reader's own time, when one points at them.

  document.addEventListener("mouseover", (event) => {
    const time = event.target.closest?.("time[datetime]");
    if (time) time.title = `${new Date(time.dateTime).toLocaleString()} here`;
  });

  // Choosing all rows that are shown.

  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-all]")) return;
    for (const each of event.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) each.checked = event.target.checked;
  });

  // Copying: a page over plain HTTP has no clipboard.

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
  });

  // Keyboard.

  const themes = ["", "light", "dark"];
  const turnTheme = () => {
    const root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try { localStorage.setItem("qframe-theme", next); } catch { /* as above */ }
  };
  const step = (by) => {
    const rows = [...document.querySelectorAll("table.rows tbody tr a.open, table.rows tbody tr th a:not(tr:has(a.open) a)")];
    if (!rows.length) return;
    const now = rows.findIndex((each) => each.closest("tr").contains(document.activeElement));
    rows[Math.min(rows.length - 1, Math.max(0, now + by))].focus();
  };
  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const keys = before === "g" ? `g ${event.key}` : event.key;
    before = event.key === "g" && before !== "g" ? "g" : "";
    const link = document.querySelector(`[data-keys="${CSS.escape(keys)}"]`);
    if (keys === "r" && isLive()) look();
    else if (link) link.click();
    else if (keys === "/") document.getElementById("search").focus();
    else if (keys === "j") step(1);
    else if (keys === "k") step(-1);
    else if (keys === "t") turnTheme();
    else if (keys === "p") { paused = !paused; seenAt = Date.now(); tell(); }
    else return;
    event.preventDefault();
  });
})();
