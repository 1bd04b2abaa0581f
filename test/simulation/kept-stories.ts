/**
 * Stories that failed once, in their shortest form, and what they found: they run with every test. Stories are kept,
 * not their seeds alone, since a seed stands for another story when the ways of making them change.
 */
import { SHIPPED, type Settings, type Story } from './story.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

const PLAIN: Settings = { ...SHIPPED, threads: 1, threadDelay: 0.1, commitTime: 2, turnTime: 0, hasWebhook: false }
const MAIL = { what: 'accept', sender: 'two.test', delay: 0, lifetime: 72 * HOUR } as const

export const KEPT_STORIES: readonly { found: string; story: Story }[] = [
  {
    found: "a row that was claimed again before its give-back was heard was in nobody's hand",
    story: {
      seed: 38,
      settings: PLAIN,
      items: [
        {
          at: 0,
          happening: { what: 'habit', domain: 'provider.test', habit: 'greylisting', duration: 20_000, share: 1 },
        },
        { at: 1_000, happening: { ...MAIL, count: 400, domain: 'provider.test', stream: 'bulk' } },
      ],
    },
  },
  {
    found: 'a walk took mail for forgotten whose lifetime had ended by a jump of the clock',
    story: {
      seed: 263,
      settings: { ...PLAIN, commitTime: 30, turnTime: 1 },
      items: [
        { at: 548, happening: { ...MAIL, count: 30, domain: 'north.test', stream: 'bulk', lifetime: 10 * MINUTE } },
        { at: 915, happening: { what: 'jump', milliseconds: HOUR } },
      ],
    },
  },
  {
    found: 'a walk took mail for forgotten whose lifetime had just ended',
    story: {
      seed: 1277,
      settings: { ...PLAIN, commitTime: 30 },
      items: [
        { at: 21_261, happening: { what: 'dns', domain: 'provider.test', answer: 'no-address', duration: 1_000 } },
        {
          at: 21_553,
          happening: { ...MAIL, count: 1, domain: 'provider.test', stream: 'transactional', lifetime: 10 * MINUTE },
        },
      ],
    },
  },
  {
    found: 'the connections of a dead thread counted on, and a pool with a limit of them sent nothing any more',
    story: {
      seed: 227,
      settings: { ...PLAIN, ips: 2, connections: 1, poolConnections: 2, commitTime: 30 },
      items: [
        { at: 69, happening: { ...MAIL, sender: 'one.test', count: 100, domain: 'provider.test', stream: 'bulk' } },
        { at: 254, happening: { ...MAIL, sender: 'one.test', count: 7, domain: 'east.test', stream: 'transactional' } },
        { at: 413, happening: { what: 'thread-death' } },
      ],
    },
  },
  {
    found: 'that an operator had resumed a provider was told before it was stored, and a kill on a full disk undid it',
    story: {
      seed: 1022947,
      settings: { ...PLAIN, commitTime: 30 },
      items: [
        {
          at: 254_168,
          happening: { ...MAIL, sender: 'two.test', count: 1, domain: 'provider.test', stream: 'bulk', delay: 120_000 },
        },
        { at: 254_374, happening: { what: 'suspend-provider', ip: 1, duration: 20_000 } },
        { at: 254_879, happening: { what: 'disk-full', duration: 120_000 } },
        { at: 284_408, happening: { what: 'kill', downFor: 120_000 } },
      ],
    },
  },
  {
    found: 'a resume was answered while another save had its record in hand, and that save failed on a full disk',
    story: {
      seed: 5010958,
      settings: { ...PLAIN, ips: 2, isWarming: true, commitTime: 30 },
      items: [
        {
          at: 284_520,
          happening: {
            ...MAIL,
            sender: 'one.test',
            count: 1,
            domain: 'north.test',
            stream: 'transactional',
            delay: 120_000,
          },
        },
        { at: 284_635, happening: { what: 'suspend-provider', ip: 2, duration: 360_000 } },
        {
          at: 311_014,
          happening: {
            ...MAIL,
            sender: 'one.test',
            count: 7,
            domain: 'north.test',
            stream: 'transactional',
            delay: 120_000,
          },
        },
        {
          at: 621_178,
          happening: { ...MAIL, sender: 'one.test', count: 3, domain: 'provider.test', stream: 'transactional' },
        },
        { at: 622_981, happening: { what: 'disk-full', duration: 360_000 } },
        { at: 850_053, happening: { what: 'stop', downFor: 10 } },
      ],
    },
  },
]
