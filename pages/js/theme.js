// Light or dark: as the device has it, until a person chooses.

import { ofDevice } from './store.js';

const THEME = 'flash-sale.theme';

/** Sets the theme that was chosen at an earlier visit. */
export function useTheme() {
  const theme = ofDevice.get(THEME);
  if (theme) document.documentElement.dataset.theme = theme;
}

export function turnTheme() {
  const now = document.documentElement.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  const theme = now === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  ofDevice.set(THEME, theme);
}
