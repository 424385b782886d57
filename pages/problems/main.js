// The page of problems has all its texts before this runs. The script adds the head, and turns the headings into Chinese.

import { html, render } from '../vendor/lit-html.js';
import { bar, servedPages } from '../js/bar.js';
import desk from '../js/desk.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';
import texts from './texts.js';
import titles from './titles.js';

const words = new Words(texts, desk);
/** English text of each heading. */
const headings = new Map([...document.querySelectorAll('h2, h3')].map((it) => [it, it.textContent]));
let served = [];

const does = {
  turnLanguage() {
    words.turn();
    show();
  },
  turnTheme,
};

function show() {
  document.title = `${words.of('title')} · flash-sale`;
  render(html`<a class="skip" href="#problems">${words.of('skip')}</a>${bar('/docs/problems', served, 'live', words, does)}`, document.getElementById('page'));
  for (const key of ['title', 'about', 'all']) document.getElementById(key).textContent = words.of(key);
  for (const [heading, english] of headings) {
    heading.textContent = words.language === 'zh' ? titles[heading.parentElement.id] ?? words.of(english) : english;
  }
}

/** The head has moved the place down. */
function reveal() {
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

useTheme();
show();
reveal();
served = await servedPages();
show();
