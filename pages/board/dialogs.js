// Native dialogs of the board's deeds.

import { html, nothing } from '../vendor/lit-html.js';

/** Fields of each dialog: name, type, and the attributes of the input. Dialogs without fields ask only for a word. */
const FIELDS = {
  restock: [['units', 'number', { min: 1, max: 100000000, required: true }], ['key', 'text', { readonly: true }]],
  close_payment: [['note', 'area', { maxlength: 1000, required: true }]],
  edit: [
    ['title', 'text', { maxlength: 200, required: true }], ['sub_title', 'text', { maxlength: 200 }], ['rules', 'area', { maxlength: 4000 }],
    ['pay', 'money', { required: true }], ['value', 'money', { required: true }],
    ['opens_at', 'datetime-local', { required: true }], ['closes_at', 'datetime-local', { required: true }],
  ],
};
FIELDS.settle = FIELDS.cancel_unpaid = FIELDS.close_payment;
FIELDS.create = [...FIELDS.edit.slice(0, 5), ['total', 'number', { min: 1, max: 100000000, required: true }], ['currency', 'text', { maxlength: 3, pattern: '[A-Za-z]{3}', required: true }], ...FIELDS.edit.slice(5)];

/** Fields that a regular coupon lacks. */
const OF_SALES = ['total', 'opens_at', 'closes_at'];

export function dialog({ dialog: it }, words, does) {
  const kind = it?.kind;
  const fields = FIELDS[kind]?.filter(([name]) => !it.isRegular || !OF_SALES.includes(name));
  const about = kind === 'create' && it.isRegular ? 'dialog.create_regular' : `dialog.${kind}`;
  return html`<dialog id="dialog" aria-labelledby="dialog-title" @close=${does.closed}>${it ? html`
    <form @submit=${does.submit} data-kind=${kind}>
      <h2 id="dialog-title">${words.say(about, { text: it.thing })}</h2>
      ${it.name ? html`<p class="mono">${it.name}</p>` : nothing}
      <p class="aside">${words.of(`${about}.more`)}</p>
      ${fields ? html`<div class="fields">${fields.map((of) => field(of, it, words))}</div>` : nothing}
      ${it.code ? html`<p class="refused" role="alert">${words.of(words.has(`refused.${it.code}`) ? `refused.${it.code}` : 'refused')}${it.detail ? html` <span class="detail" lang="en">${it.detail}</span>` : nothing}
        ${['revision_conflict', 'not_loaded'].includes(it.code) ? html`<button class="other small" type="button" id="reload" @click=${does.reload}>${words.of('do.reload')}</button>` : nothing}</p>` : nothing}
      <p class="deeds">
        <button class="other small" type="button" id="dialog-cancel" @click=${does.close}>${words.of('do.cancel')}</button>
        <button class="go small ${['end', 'discard', 'discard_all', 'close_payment', 'archive', 'cancel_unpaid'].includes(kind) ? 'danger' : ''}" id="dialog-do" aria-disabled=${it.busy ? 'true' : 'false'}>${words.of(words.has(`dialog.${kind}.do`) ? `dialog.${kind}.do` : `do.${kind}`)}</button>
      </p>
    </form>` : nothing}</dialog>`;
}

function field([name, type, more], it, words) {
  const value = it.values[name] ?? '';
  const step = type === 'money' ? 10 ** -words.decimals(it.currency) : type === 'datetime-local' ? 1 : nothing;
  return html`<label class=${['title', 'sub_title', 'rules', 'note'].includes(name) ? 'whole' : ''}>${words.of(`field.${name}`)}
    ${type === 'area' ? html`<textarea name=${name} rows="2" maxlength=${more.maxlength} ?required=${more.required} .value=${value}></textarea>`
    : html`<input name=${name} type=${type === 'money' ? 'number' : type} .value=${value} step=${step} min=${more.min ?? (type === 'money' ? 0 : nothing)} max=${more.max ?? (type === 'datetime-local' ? '9999-12-31T23:59' : nothing)}
      maxlength=${more.maxlength ?? nothing} pattern=${more.pattern ?? nothing} ?required=${more.required} ?readonly=${more.readonly} autocomplete="off">`}</label>`;
}
