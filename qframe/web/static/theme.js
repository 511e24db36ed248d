// Before the page is drawn: the theme that was chosen, if it is not the system's.
try {
  const chosen = localStorage.getItem("qframe-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* a browser may refuse to keep anything */ }
