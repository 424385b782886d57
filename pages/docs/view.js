// The operations as templates. Nothing here keeps state or calls the service.

import { html, nothing } from '../vendor/lit-html.js';
import { bar } from '../js/bar.js';
import { command, isStream, need, told } from './document.js';

export function page(state, words, does) {
  const { document, served, line, filter } = state;
  return html`
    <a class="skip" href="#docs">${words.of('skip')}</a>
    ${bar('/docs', served, line, words, does)}
    <main class="desk" id="docs" tabindex="-1">
      <h1>${words.of('title')}</h1>
      <p>${words.of('about')} <a href="/openapi.json">/openapi.json</a></p>
      ${document ? html`
        ${tools(state, words, does)}
        ${document.groups.map((group) => groupOf(group, filter, state, words, does))}`
    : html`<p class="panel">${words.of(line === 'lost' ? 'failed' : 'loading')}</p>`}
    </main>`;
}

function tools({ document, token, isDemo, filter }, words, does) {
  return html`
    <div class="panel">
      <div class="fields">
        <label class="wide">${words.of('filter')}<input name="filter" type="search" autocomplete="off" .value=${filter} @input=${does.filter}></label>
        <label class="wide">${words.of('token')}<input name="token" autocomplete="off" spellcheck="false" aria-describedby="token-more" .value=${token} @input=${does.useToken}></label>
      </div>
      <p class="aside" id="token-more">${words.of(isDemo ? 'token.demo' : 'token.more')}</p>
      <ul class="tags">${document.groups.map(({ id, name }) => html`<li><a href="#${id}">${nameOf(name, words)}</a></li>`)}</ul>
    </div>`;
}

function nameOf(name, words) {
  return words.of(`tag.${name}`);
}

function groupOf({ id, name, description, operations }, filter, state, words, does) {
  const isMeant = (it) => `${it.method} ${it.path} ${it.id} ${it.summary}`.toLowerCase().includes(filter.trim().toLowerCase());
  const shown = operations.filter(isMeant);
  if (shown.length === 0) return nothing;
  return html`
    <section class="group" aria-labelledby=${id}>
      <h2 id=${id}>${nameOf(name, words)}</h2>
      <p class="aside" lang="en">${description}</p>
      ${shown.map((operation) => entry(operation, state, words, does))}
    </section>`;
}

function entry(operation, state, words, does) {
  const { id, method, path, summary } = operation;
  const isOpen = state.open.has(id);
  return html`
    <details class="panel operation" id=${id} ?open=${isOpen} @toggle=${(event) => does.toggle(id, event)}>
      <summary><h3><b data-method=${method}>${method.toUpperCase()}</b> <code>${path}</code></h3><span lang="en">${summary}</span></summary>
      ${isOpen ? full(operation, state, words, does) : nothing}
    </details>`;
}

function full(operation, { document, tries }, words, does) {
  const { id, description, parameters, requestBody } = operation;
  const attempt = tries[id];
  const line = command(operation, attempt);
  const scheme = need(operation);
  return html`
    <p lang="en">${marked(description)}</p>
    <p class="aside">${words.of(`need.${scheme ?? 'none'}`)}</p>
    <form @submit=${(event) => does.send(id, event)}>
      ${parameters.length > 0 ? html`<h4>${words.of('parameters')}</h4>` : nothing}
      ${parameters.map((it) => field(it, operation, attempt, document, words, does))}
      ${requestBody ? html`
        <h4>${words.of('body')}</h4>
        ${branch(document.tree(requestBody.content['application/json'].schema), words)}
        <label class="body">${words.of('body.example')}<textarea rows="6" spellcheck="false" .value=${attempt.body ?? ''} @input=${(event) => does.write(id, event)}></textarea></label>` : nothing}
      <h4>${words.of('command')}</h4>
      <pre class="line-of" id="command-${id}">${line}</pre>
      <p class="buttons">
        <button class="other" type="button" @click=${() => does.copy(`command-${id}`)} aria-describedby="command-${id}">${words.of('copy')}</button>
        ${isStream(operation) || scheme === 'signature' ? nothing : html`<button class="go" aria-disabled=${attempt.isBusy}>${words.of(operation.method === 'get' ? 'try' : 'try.change')}</button>`}
      </p>
    </form>
    ${attempt.reply ? answer(attempt.reply, words) : nothing}
    <h4>${words.of('replies')}</h4>
    <dl class="replies">${Object.entries(operation.responses).map(([status, it]) => reply(status, it, document, words))}</dl>`;
}

function field(it, { id }, { values }, document, words, does) {
  const { type } = document.tree(it.schema);
  const key = `${id}-${it.name}`;
  return html`
    <div class="parameter">
      <label for=${key}><code>${it.name}</code> <span class="aside">${words.of(`in.${it.in}`)}${it.required ? html`, ${words.of('required')}` : nothing}</span></label>
      <input id=${key} autocomplete="off" spellcheck="false" aria-describedby="${key}-more" ?required=${it.required} .value=${values[it.name]} @input=${(event) => does.fill(id, it.name, event)}>
      <p class="aside" id="${key}-more" lang="en">${marked(it.description ?? '')} <code>${type}</code></p>
    </div>`;
}

/** A tree of a schema, as lists in lists. */
function branch({ type, description, within }, words) {
  return html`
    <p class="aside" lang="en"><code>${type}</code> ${marked(description)}</p>
    ${within.length > 0 ? html`<ul class="tree" lang="en">${within.map((it) => leaf(it, words))}</ul>` : nothing}`;
}

function leaf({ name, isRequired, type, description, within }, words) {
  return html`
    <li>${name === '' ? nothing : html`<b>${name}</b>`} <code>${type}</code>${isRequired ? nothing : html` <i lang=${words.tag}>${words.of('optional')}</i>`} <span>${marked(description)}</span>
      ${within.length > 0 ? html`<ul class="tree">${within.map((it) => leaf(it, words))}</ul>` : nothing}</li>`;
}

function reply(status, it, document, words) {
  const { words: text, codes } = told(it);
  const bodies = Object.entries(it.content ?? {}).filter(([kind]) => kind !== 'application/problem+json');
  return html`
    <dt>${status}</dt>
    <dd>
      ${text === '' ? nothing : html`<p lang="en">${marked(text)}</p>`}
      ${bodies.map(([kind, { schema }]) => html`<details><summary>${words.of('reply.body')} <code>${kind}</code></summary>${branch(document.tree(schema), words)}</details>`)}
      ${codes.length === 0 ? nothing : html`<ul lang="en">${codes.map(({ name, meaning }) => html`<li><a href="/docs/problems#${name}"><code>${name}</code></a> ${marked(meaning)}</li>`)}</ul>`}
    </dd>`;
}

function answer({ status, code, ms, text }, words) {
  return html`
    <section class="answer" aria-label=${words.of('answer')}>
      <p><b>${status === 0 ? words.of('no_answer') : status}</b> ${code ? html`<a href="/docs/problems#${code}"><code>${code}</code></a>` : nothing} <span class="aside">${words.number.format(ms)} ms</span></p>
      ${text === '' ? nothing : html`<pre tabindex="0">${text}</pre>`}
    </section>`;
}

/** A text whose words in backticks are code. */
function marked(text) {
  return text.split('`').map((part, number) => (number % 2 === 1 ? html`<code>${part}</code>` : part));
}
