/** How far a long work is, on one line of a terminal that is written over and wiped at the end; nothing elsewhere. */
import type { OutputFlags } from './print.ts'

const BAR_WIDTH = 30

/** `[#####     ]  45 %`; `share` from 0 to 1. */
export function progressBar(share: number): string {
  const done = Math.min(1, Math.max(0, share))
  const bar = '#'.repeat(Math.round(done * BAR_WIDTH)).padEnd(BAR_WIDTH)
  return `[${bar}] ${String(Math.floor(done * 100)).padStart(3)} %`
}

interface ProgressLine {
  /** False: nobody sees it. */
  isShown: boolean
  show(text: string): void
  /** Wipes it. */
  end(): void
}

export function progressLine({ quiet }: OutputFlags): ProgressLine {
  const isShown = process.stderr.isTTY && quiet !== true
  let width = 0
  const write = (text: string): void => {
    if (!isShown) return
    process.stderr.write(`\r${text.padEnd(width)}`)
    width = text.length
  }
  return {
    isShown,
    show: write,
    end() {
      write('')
      if (isShown) process.stderr.write('\r')
    },
  }
}
