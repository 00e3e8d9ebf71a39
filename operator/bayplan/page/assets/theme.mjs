// Light and dark: as in the system, or as the reader selected. The choice is stored in this browser only.

const THEMES = ['auto', 'light', 'dark'];
const KEY = 'bayplan-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

/** Return the stored choice, and apply it. */
export function storedTheme() {
  let theme = 'auto';
  try {
    theme = localStorage.getItem(KEY) ?? theme;
  } catch {
    // Storage may be disabled; the choice then lasts as long as the page.
  }
  if (!THEMES.includes(theme)) theme = 'auto';
  apply(theme);
  return theme;
}

export function setTheme(theme) {
  apply(theme);
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // As above.
  }
}

export function nextTheme(theme) {
  return THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
}

/** Return "light" or "dark". */
export function appliedTheme() {
  const { theme } = document.documentElement.dataset;
  return theme ?? (dark.matches ? 'dark' : 'light');
}

/** Call a function when the system changes between light and dark; returns a function that ends this. */
export function watchTheme(onChange) {
  dark.addEventListener('change', onChange);
  return () => dark.removeEventListener('change', onChange);
}

function apply(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
