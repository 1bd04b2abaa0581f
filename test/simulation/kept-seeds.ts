/**
 * Seeds that failed once, and what they found: they run with every test. A seed stands for another story when the
 * stories change; then it is one seed more.
 */
export const KEPT_SEEDS: Readonly<Record<number, string>> = {
  38: 'a row that was claimed again before its give-back was heard was in nobody\'s hand',
  263: 'a walk was surprised by mail whose lifetime a jump of the clock had ended',
}
