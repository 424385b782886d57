// What `/openapi.json` says: operations by tag, schemas without references, and requests as examples of them.

/** Of each schema above the path to it, so that one that has itself inside ends. */
const DEPTH_MAX = 6;

/** Id of the first coupon of a demo. */
const FIRST_COUPON = '1024';

export class Document {
  #schemas;

  constructor({ components, paths, tags }) {
    this.#schemas = components.schemas;
    const ofPath = ([path, item]) => Object.entries(item).map(([method, it]) => ({ parameters: [], ...it, path, method, id: it.operationId }));
    this.operations = Object.entries(paths).flatMap(ofPath);
    this.groups = tags.map((tag) => ({ ...tag, id: tag.name.replaceAll(' ', '-'), operations: this.operations.filter((it) => it.tags[0] === tag.name) }));
  }

  operation(id) {
    return this.operations.find((it) => it.id === id);
  }

  /** A schema without references: parts that hold together are one, and null beside one other schema is a mark on that. */
  plain(schema) {
    const { $ref, allOf, oneOf, ...own } = schema;
    if ($ref) return this.plain({ ...this.#schemas[$ref.split('/').at(-1)], ...own });
    if (allOf) {
      const parts = allOf.map((it) => this.plain(it));
      return { type: 'object', ...own, required: parts.flatMap((it) => it.required ?? []), properties: Object.assign({}, ...parts.map((it) => it.properties)) };
    }
    const others = oneOf?.filter((it) => it.type !== 'null');
    if (others?.length === 1) return { ...this.plain(others[0]), isNullable: true };
    return { ...own, ...(oneOf && { oneOf }) };
  }

  /** A schema as a tree: its type in words, its description, and what it has inside. */
  tree(schema, name = '', isRequired = true, depth = 0) {
    const it = this.plain(schema);
    const item = it.items && this.plain(it.items);
    const holder = item ?? it;
    const values = typeof it.additionalProperties === 'object' && it.additionalProperties;
    const within = depth === DEPTH_MAX ? [] : [
      ...Object.entries(holder.properties ?? {}).map(([key, value]) => [value, key, holder.required?.includes(key) ?? false]),
      ...(holder.oneOf ?? []).map((value) => [value, '', true]),
      ...(values ? [[values, '*', true]] : []),
    ];
    return { name, isRequired, type: item ? `array of ${typeOf(item)}` : typeOf(it), description: it.description ?? '', within: within.map((child) => this.tree(...child, depth + 1)) };
  }

  /** A value that a schema allows, with no more members than it needs. */
  sample(schema) {
    const it = this.plain(schema);
    const [type] = [it.type].flat();
    if (it.enum) return it.enum[0];
    if (it.oneOf) return this.sample(it.oneOf[0]);
    if (it.properties) return Object.fromEntries((it.required ?? []).map((key) => [key, this.sample(it.properties[key])]));
    if (it.format === 'date-time') return new Date().toISOString();
    if (type === 'string') return it.pattern?.startsWith('^([1-9]') ? FIRST_COUPON : 'text';
    return { integer: it.minimum ?? 1, number: 1, boolean: false, array: [] }[type] ?? {};
  }

  /** What a form for this operation begins with: values of its parameters by name, and a body. */
  form({ parameters, requestBody }) {
    const first = ({ schema }) => (schema.$ref?.endsWith('/CouponId') ? FIRST_COUPON : '');
    const body = requestBody?.content['application/json']?.schema;
    return { values: Object.fromEntries(parameters.map((it) => [it.name, it.in === 'path' ? first(it) : ''])), body: body ? JSON.stringify(this.sample(body), null, 2) : null };
  }
}

function typeOf({ type, properties, oneOf, format, enum: values, minimum, maximum, minLength, maxLength, pattern, isNullable }) {
  const names = [type ?? (properties ? 'object' : oneOf ? 'one of' : 'any'), isNullable ? 'null' : []].flat();
  const range = (least, most, unit) => (least === undefined && most === undefined ? [] : `${least ?? ''}..${most ?? ''}${unit}`);
  const rule = pattern && pattern.length < 40 ? pattern : [];
  return [names.join(' or '), format ?? [], values ? values.map((it) => JSON.stringify(it)).join(' ') : [], range(minimum, maximum, ''), range(minLength, maxLength, ' characters'), rule].flat().join(', ');
}

/** Whether a reply goes on and on. */
export function isStream({ responses }) {
  return 'text/event-stream' in (responses[200]?.content ?? {});
}

/** The token that an operation needs, by the name of its scheme; undefined for none. */
export function need({ security }) {
  return Object.keys(security[0] ?? {})[0];
}

/** The codes of a reply, and its other words. */
export function told({ description }) {
  const lines = description.split('\n');
  const code = /^\* `([a-z_]+)`: (.*)/;
  return { words: lines.filter((it) => !code.test(it)).join(' '), codes: lines.map((it) => it.match(code)).filter(Boolean).map(([, name, meaning]) => ({ name, meaning })) };
}

/** A filled form as a request: path, headers, body. */
export function request({ parameters, path }, { values, body }) {
  const filled = (place) => parameters.filter((it) => it.in === place && values[it.name] !== '').map(({ name }) => [name, values[name]]);
  const query = new URLSearchParams(filled('query')).toString();
  const full = filled('path').reduce((text, [name, value]) => text.replace(`{${name}}`, encodeURIComponent(value)), path);
  const headers = { ...Object.fromEntries(filled('header')), ...(body !== null && { 'content-type': 'application/json' }) };
  return { path: query === '' ? full : `${full}?${query}`, headers, body };
}

/** A filled form as a line for a shell, with the token in a variable. */
export function command(operation, form) {
  const { path, headers, body } = request(operation, form);
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const scheme = need(operation);
  const secret = scheme === 'signature' ? ['-H "X-Signature: $SIGNATURE"'] : scheme ? ['-H "Authorization: Bearer $TOKEN"'] : [];
  const method = operation.method === 'get' ? [] : [`-X ${operation.method.toUpperCase()}`];
  const sent = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  return ['curl', isStream(operation) ? '-iN' : '-i', ...method, ...secret, ...sent, ...(body === null ? [] : [`-d ${quoted(body)}`]), quoted(location.origin + path)].join(' ');
}
