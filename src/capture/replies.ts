/** Rules that tell the capture server what to answer (capture/README.md "Rules for replies"). In memory alone. */

export const STAGES = ['connect', 'ehlo', 'starttls', 'mail', 'rcpt', 'data', 'dot'] as const
export type Stage = (typeof STAGES)[number]

export type RuleReply =
  | { kind: 'reply'; code: number; text: string } // a refusal; the text begins with its enhanced code, if any
  | { kind: 'close' } // the connection ends without a word
  | { kind: 'missing' } // STARTTLS is not offered
  | { kind: 'delay'; milliseconds: number } // real time

export interface ReplyRule {
  /** `*`, a domain, or an address with `*` for any characters; in lower case. */
  to: string
  stage: Stage
  reply: RuleReply
  /** Uses left; null: for ever. */
  times: number | null
  /** 0 to 1. */
  probability: number
}

export interface StageActions {
  delayMilliseconds: number
  /** null: as usual. */
  end: Extract<RuleReply, { kind: 'reply' | 'close' }> | null
}

export type CaptureReplies = ReturnType<typeof createCaptureReplies>

/** `random` is 0 to 1, without 1. */
export function createCaptureReplies(random: () => number = Math.random) {
  let rules: ReplyRule[] = []
  const draw = (rule: ReplyRule): boolean => {
    if (random() >= rule.probability) return false
    if (rule.times !== null) rule.times -= 1
    if (rule.times === 0) rules = rules.filter((other) => other !== rule)
    return true
  }

  return {
    /** In place of those that are there. */
    set: (wanted: readonly ReplyRule[]) => void (rules = wanted.map((rule) => ({ ...rule }))),
    rules: (): ReplyRule[] => rules.map((rule) => ({ ...rule })),
    /** Returns how many there were. */
    clear(): number {
      const count = rules.length
      rules = []
      return count
    },
    /** Draws the rules for what happens now. `recipients` is empty before the first RCPT TO. */
    actionsFor(stage: Stage, recipients: readonly string[]): StageActions {
      let delayMilliseconds = 0
      for (const rule of rules) {
        const { reply } = rule
        if (rule.stage !== stage || reply.kind === 'missing' || !isMeant(rule.to, recipients) || !draw(rule)) continue
        if (reply.kind !== 'delay') return { delayMilliseconds, end: reply }
        delayMilliseconds += reply.milliseconds
      }
      return { delayMilliseconds, end: null }
    },
    /** Draws the rules that take STARTTLS out of the answer to EHLO. */
    hidesStarttls: (): boolean => rules.some((rule) => rule.reply.kind === 'missing' && draw(rule)),
  }
}

/** True for one of the recipients, or for all when none is known yet. */
function isMeant(pattern: string, recipients: readonly string[]): boolean {
  if (pattern === '*') return true
  const wanted = pattern.includes('@') ? pattern : `*@${pattern}`
  const expression = new RegExp(`^${wanted.split('*').map(literally).join('.*')}$`)
  return recipients.some((recipient) => expression.test(recipient.toLowerCase()))
}

function literally(text: string): string {
  // Whatever might mean something in a regular expression.
  return text.replace(/[^a-z0-9]/g, '\\$&')
}
