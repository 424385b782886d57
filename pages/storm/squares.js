// One square per shopper, in the order of their answers. A crowd that is too large for the screen has one square for
// several shoppers, in the colour of most of them.
//
// Each outcome has a colour and a shape: the legend shows both.

/** Outcomes by their letter in `runs`: name, and the part of a cell that is filled (x, y, width, height). */
export const OUTCOMES = {
  w: { name: 'won', shape: [0, 0, 1, 1] },
  s: { name: 'sold_out', shape: [0.1, 0.1, 0.8, 0.8] },
  b: { name: 'come_back', shape: [0, 0.4, 1, 0.6] },
  u: { name: 'unknown', shape: [0, 0, 0.5, 1] },
  r: { name: 'refused', shape: [0, 0, 1, 0.4] },
};

const CELL_MAX = 10;
const CELL_MIN = 3;
const FLAT_MAX = 200;
const TALL_MAX = 460;

/** Size of a cell, cells in a row, height in cells, and shoppers for one square, for so many shoppers in so wide a place. */
export function layout(shoppers, width) {
  for (const [tall, least] of [[FLAT_MAX, 4], [TALL_MAX, CELL_MIN]]) {
    for (let cell = CELL_MAX; cell >= least; cell -= 1) {
      const columns = Math.floor(width / cell);
      const high = Math.ceil(shoppers / columns);
      if (high * cell <= tall) return { cell, columns, high, each: 1 };
    }
  }
  const columns = Math.floor(width / CELL_MIN);
  const each = Math.ceil(shoppers / (columns * Math.floor(TALL_MAX / CELL_MIN)));
  return { cell: CELL_MIN, columns, high: Math.ceil(Math.ceil(shoppers / each) / columns), each };
}

/** The letter of each square: `runs` is like `w12s3`. */
export function squares(runs, each) {
  const letters = [...runs.matchAll(/([a-z])(\d+)/g)].map(([, letter, count]) => letter.repeat(Number(count))).join('');
  if (each === 1) return letters;
  const most = (group) => {
    const counts = {};
    for (const letter of group) counts[letter] = (counts[letter] ?? 0) + 1;
    return Object.keys(counts).reduce((a, b) => (counts[b] > counts[a] ? b : a));
  };
  return (letters.match(new RegExp(`.{1,${each}}`, 'g')) ?? []).map(most).join('');
}

/** Paints the squares on a canvas. Returns the shoppers for one square. */
export function paint(canvas, storm) {
  const { cell, columns, high, each } = layout(storm.shoppers, canvas.parentElement.clientWidth);
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [columns * cell, high * cell];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const style = getComputedStyle(canvas);
  const on = canvas.getContext('2d');
  on.setTransform(scale, 0, 0, scale, 0, 0);
  on.clearRect(0, 0, width, height);
  const gap = cell > 4 ? 1 : 0.6;
  const size = cell - gap;
  const place = (index) => [(index % columns) * cell, Math.floor(index / columns) * cell];
  const letters = squares(storm.runs, each);
  on.fillStyle = style.getPropertyValue('--square-waiting');
  for (let index = letters.length; index < Math.ceil(storm.shoppers / each); index += 1) on.fillRect(...place(index), size, size);
  for (const [letter, { name, shape: [x, y, wide, tall] }] of Object.entries(OUTCOMES)) {
    on.fillStyle = style.getPropertyValue(`--square-${name.replace('_', '-')}`);
    for (let index = letters.indexOf(letter); index !== -1; index = letters.indexOf(letter, index + 1)) {
      const [left, top] = place(index);
      on.fillRect(left + x * size, top + y * size, wide * size, tall * size);
    }
  }
  return each;
}
