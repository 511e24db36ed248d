// Before the page is drawn: that there is script, and the theme that was chosen, if it is not the
// system's.
document.documentElement.dataset.script = "yes";
try {
  const chosen = localStorage.getItem("qframe-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* a browser may refuse to keep anything */ }
