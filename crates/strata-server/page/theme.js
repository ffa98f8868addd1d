// Runs before the first paint, hence no module: a page must not flash in the other theme. The switch itself is in app.js.
try {
  const theme = localStorage.getItem("strata.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage, no choice: the system's theme
}
