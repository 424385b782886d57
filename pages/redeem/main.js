// The clerk's page: takes a code, shows its order, and redeems it.

import { render } from '../vendor/lit-html.js';
import { servedPages } from '../js/bar.js';
import desk from '../js/desk.js';
import { send, session } from '../js/session.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';
import texts from './texts.js';
import { page } from './view.js';

/** Pause between two looks through the camera. */
const SCAN_MS = 250;
/** Refusals of the token. */
const LOCKED = ['invalid_token', 'forbidden'];

const words = new Words(texts, desk);
/**
 * `found` is the order of `code`, with its coupon's `title`; `outcome` is what there is to say of it, `before` tells who
 * has redeemed it, and when. `key` names the redemption, so that a repeat after no answer is told the same.
 */
const nothingYet = { code: '', found: null, outcome: null, before: null, key: null };
const state = { ...nothingYet, served: [], locked: null, busy: false, camera: null, hasCamera: 'BarcodeDetector' in window && 'mediaDevices' in navigator };

const does = {
  async check(event) {
    event.preventDefault();
    await look(new FormData(event.target).get('code').trim());
  },
  async redeem() {
    if (state.busy) return;
    become({ busy: true });
    const { ok, code, body } = await redeemNow();
    if (LOCKED.includes(code)) return become({ busy: false, locked: code });
    const before = code === 'already_redeemed' ? body : null;
    become({ busy: false, before, outcome: ok ? 'redeemed' : code, found: ok ? { ...state.found, ...body } : state.found });
  },
  next() {
    become(nothingYet);
    document.querySelector('[name=code]').value = '';
    document.querySelector('[name=code]').focus();
  },
  async scan() {
    if (state.camera) return stopCamera();
    try {
      become({ ...nothingYet, camera: await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } }) });
      await lookThrough(state.camera);
    } catch {
      stopCamera();
      become({ outcome: 'no_camera' });
    }
  },
  useToken(event) {
    become({ locked: session.use(event) });
  },
  turnLanguage() {
    words.turn();
    show();
  },
  turnTheme,
};

function become(change) {
  const before = state.outcome;
  Object.assign(state, change);
  show();
  if (state.outcome !== null && state.outcome !== before) {
    const { textContent } = document.querySelector('#outcome h2') ?? {};
    document.getElementById('said').textContent = textContent ?? '';
  }
}

function show() {
  document.title = `${words.of('bar.redeem')} · flash-sale`;
  render(page(state, words, does), document.getElementById('page'));
}

function redeemNow() {
  return send('POST', '/v1/redemptions', { code: state.code }, { 'idempotency-key': state.key });
}

/** Finds the order of a code. Of one that has been redeemed, the refusal of a further redemption tells who did it. */
async function look(code) {
  if (state.busy || code === '') return;
  become({ ...nothingYet, code, key: crypto.randomUUID(), busy: true });
  const reply = await send('GET', `/v1/redemptions/${encodeURIComponent(code)}`);
  if (!reply.ok) return become({ busy: false, ...(LOCKED.includes(reply.code) ? { locked: reply.code } : { outcome: reply.code }) });
  const named = await send('GET', `/v1/coupons/${reply.body.coupon_id}`);
  const found = { ...reply.body, title: named.body.title ?? reply.body.coupon_id };
  const told = found.status === 'redeemed' ? await redeemNow() : null;
  const outcome = told ? 'already_redeemed' : found.status === 'paid' ? 'valid' : 'invalid_transition';
  become({ busy: false, found, outcome, before: told && (told.body.redeemed_at ? told.body : found) });
}

/** Looks for a code in the camera's picture until there is one, or the camera is put away. */
async function lookThrough(camera) {
  const video = document.querySelector('video');
  video.srcObject = camera;
  await video.play();
  const detector = new BarcodeDetector({ formats: ['qr_code'] });
  while (state.camera === camera) {
    const [seen] = await detector.detect(video);
    if (seen) {
      stopCamera();
      return look(seen.rawValue.trim());
    }
    await new Promise((over) => setTimeout(over, SCAN_MS));
  }
}

function stopCamera() {
  state.camera?.getTracks().forEach((track) => track.stop());
  become({ camera: null });
}

async function start() {
  useTheme();
  show();
  const locked = await session.enter();
  become({ locked, served: await servedPages() });
  document.querySelector('[name=code]')?.focus();
}

start();
