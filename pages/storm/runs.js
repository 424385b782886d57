// Past storms, as this browser has kept them: what each has come to, and its curve.

import { ofDevice } from '../js/store.js';

const KEPT = 'flash-sale.storms';
const RUNS_MAX = 12;
const POINTS_MAX = 120;

/** All that are kept, newest first: `{storm, points}`. */
export function pastRuns() {
  try {
    return JSON.parse(ofDevice.get(KEPT) ?? '[]');
  } catch {
    return [];
  }
}

/** Keeps a storm that is over, without its squares. A tab that has seen less of it adds nothing. */
export function keepRun(storm, points) {
  const past = pastRuns();
  const before = past.find((run) => run.storm.id === storm.id);
  if (storm.no_verdict === 'stopped' || before?.points.length >= points.length) return;
  const step = Math.ceil(points.length / POINTS_MAX);
  const fewer = points.filter((_, place) => place % step === 0 || place === points.length - 1);
  const all = [{ storm: { ...storm, runs: '' }, points: fewer }, ...past.filter((run) => run !== before)];
  ofDevice.set(KEPT, JSON.stringify(all.sort((a, b) => b.storm.id - a.storm.id).slice(0, RUNS_MAX)));
}

export function forgetRuns() {
  ofDevice.remove(KEPT);
}
