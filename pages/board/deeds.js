// Deeds of the dialogs: the values of their fields, and the requests that they send.

const DAY_MS = 86_400_000;

/** A time as an input has it: by the clock of this device. */
function local(ms) {
  const at = new Date(ms);
  return new Date(ms - 60_000 * at.getTimezoneOffset()).toISOString().slice(0, 19);
}

/** Id of a sale of an event, or of a regular coupon of a list. */
export function idOf(coupon) {
  return coupon?.coupon_id ?? coupon?.id;
}

export function emptyValues(kind, nowMs) {
  if (kind !== 'create') return {};
  const soon = Math.ceil(nowMs / 60_000) * 60_000;
  return { title: '', sub_title: '', rules: '', pay: '', value: '', total: '', currency: 'CNY', opens_at: local(soon), closes_at: local(soon + DAY_MS) };
}

/** The values of a coupon's fields. */
export function valuesOf(coupon, words) {
  const decimals = words.decimals(coupon.currency);
  const major = (minor) => (minor / 10 ** decimals).toFixed(decimals);
  const { title, sub_title, rules, sale } = coupon;
  const values = { title, sub_title, rules, pay: major(coupon.pay_cents), value: major(coupon.value_cents) };
  // Fields that are left as they are go back as they came, to the last digit.
  return sale ? { ...values, opens_at: local(Date.parse(sale.opens_at)), closes_at: local(Date.parse(sale.closes_at)), came: sale } : values;
}

/** The request of a dialog. */
export function requestOf({ kind, thing, isRegular, coupon, key, values, currency, revision }, words) {
  const path = `/v1/coupons/${coupon}`;
  const time = (name) => {
    const came = values.came?.[name];
    return came && local(Date.parse(came)) === local(Date.parse(values[name])) ? came : new Date(values[name]).toISOString();
  };
  const minor = (text, of) => Math.round(Number(text) * 10 ** words.decimals(of));
  const about = (of) => ({ title: values.title, sub_title: values.sub_title, rules: values.rules, pay_cents: minor(values.pay, of), value_cents: minor(values.value, of) });
  const windowOf = () => ({ opens_at: time('opens_at'), closes_at: time('closes_at') });
  switch (kind) {
    case 'restock':
      return { method: 'POST', path: `${path}/restock`, body: { key, units: Number(values.units) } };
    case 'edit':
      return { method: 'PATCH', path, body: { revision, ...about(currency), sale: isRegular ? undefined : windowOf() } };
    case 'create': {
      const of = values.currency.toUpperCase();
      const sale = isRegular ? undefined : { total: Number(values.total), ...windowOf() };
      return { method: 'POST', path: '/v1/coupons', headers: { 'idempotency-key': key }, body: { kind: isRegular ? 'regular' : 'flash', ...about(of), currency: of, sale } };
    }
    case 'archive':
      return { method: 'POST', path: `${path}/archive`, body: { accept_loss: false } };
    case 'cancel_unpaid':
      return { method: 'POST', path: `${path}/cancel-unpaid`, body: { reason: values.note } };
    case 'settle':
      return { method: 'POST', path: `/v1/recoveries/${thing}/settle`, body: { note: values.note } };
    case 'discard_all':
      return { method: 'POST', path: '/v1/dead-letters/discard', body: { reason: thing } };
    case 'discard':
      return { method: 'POST', path: `/v1/dead-letters/${thing}/discard` };
    case 'hand_back':
      return { method: 'POST', path: `/v1/payments/${thing}/hand-back` };
    case 'close_payment':
      return { method: 'POST', path: `/v1/payments/${thing}/close`, body: { note: values.note } };
    case 'retry_item':
      return { method: 'POST', path: `/v1/postponed/${thing}/retry` };
    default:
      return { method: 'POST', path: `${path}/${kind}` };
  }
}
