// The verdict in words. No good word without its evidence: only a verdict of the service that says `kept` is praised.

/** Numbers of a verdict that have to be 0, with the keys of their names. */
export const FAULTS = ['lost', 'oversold', 'twice', 'unexplained', 'turned_away'];

/** The head of the verdict: its key, and its tone. Null while there is none. */
export function headOf(storm) {
  if (!storm || storm.stage !== 'done') return null;
  if (storm.no_verdict) return { key: `no_verdict.${storm.no_verdict}`, tone: storm.no_verdict === 'stopped' ? 'plain' : 'warn' };
  const verdict = storm.verdict;
  if (!verdict) return null;
  const clean = FAULTS.every((fault) => verdict[fault] === 0);
  const equal = verdict.sold === verdict.rows && verdict.rows === verdict.buyers;
  if (verdict.word === 'kept' && clean && equal) return { key: 'verdict.kept', tone: 'good' };
  if (verdict.word === 'incomparable') return { key: 'verdict.incomparable', tone: 'warn' };
  return { key: 'verdict.broken', tone: 'bad' };
}
