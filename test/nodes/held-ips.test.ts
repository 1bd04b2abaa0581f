/** An egress IP comes and goes by the operator's program, and only where it can be bound. nodes/README.md. */
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createHeldIps } from '../../src/nodes/held-ips.ts'
import { createIpHook } from '../../src/nodes/ip-hook.ts'
import type { IpOwner } from '../../src/store/records/node-records.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const IP = '192.0.2.7'
const EPOCH = 4
const MINE: IpOwner = { ip: IP, nodeId: 'a', epoch: EPOCH, since: 0 }
const THEIRS: IpOwner = { ip: IP, nodeId: 'b', epoch: 3, since: 0 }

function fail(code: string): never {
  throw Object.assign(new Error(code), { code })
}

function world(t: Test, hook: string | null) {
  const folder = t.testdir({})
  const program = join(folder, 'hook')
  const said = join(folder, 'said')
  if (hook !== null) {
    writeFileSync(program, `#!/bin/sh\necho "$1 $2 $STERNPOST_NODE" >> ${said}\n${hook}\n`)
    chmodSync(program, 0o700)
  }
  const state = {
    isBindable: true,
    isBusy: false,
    isGone: false,
    configured: [{ address: IP, source: IP }],
    order: [] as string[],
  }
  const clock = manualClock()
  const settings = () => ({ ip_hook: hook === null ? null : program, ip_hook_timeout: 1_000 })
  const ips = createHeldIps({
    nodeId: 'a',
    epoch: EPOCH,
    configured: () => state.configured,
    hasHook: () => hook !== null,
    runHook: createIpHook(settings, 'a'),
    canBind: async () => state.isBindable,
    onTaken: async () => void state.order.push('taken'),
    onLeaving: async () => void state.order.push('leaving'),
    onChange: async () => void state.order.push('changed'),
    isBusy: () => state.isBusy,
    isGone: () => state.isGone,
    clock,
    logger: createLogger({ level: 'silent' }),
  })
  const calls = (): string[] => (existsSync(said) ? readFileSync(said, 'utf8').trim().split('\n') : [])
  const beat = async (owners: IpOwner[], mayHold = true, mayTake = true) => {
    const wishes = await ips.wishes(mayHold, mayTake)
    ips.heard(owners, wishes.releases)
    await ips.settled()
    return wishes
  }
  return { ips, state, clock, calls, beat }
}

t.test('it comes by the hook, is bound, and mail leaves from it; it goes by the hook', async (t) => {
  const { ips, state, calls, beat } = world(t, 'exit 0')
  t.match(ips.refusalOf(IP), /not taken yet/)
  t.same(await beat([MINE]), { takes: [IP], releases: [] })
  t.same([ips.refusalOf(IP), ips.held(), state.order], [null, [IP], ['taken', 'changed']])
  t.same(await beat([MINE]), { takes: [], releases: [] })
  state.configured = []
  await beat([MINE])
  t.same(calls(), [`acquire ${IP} a`, `release ${IP} a`])
  t.same(state.order.slice(2), ['changed', 'leaving'], 'nothing begins from it before it is stored and gone')
  t.same(await beat([MINE]), { takes: [], releases: [IP] })
  t.match(ips.refusalOf(IP), /not taken/)
})

t.test('it stays while mail leaves from it, but not for ever', async (t) => {
  for (const ends of [true, false]) {
    const { ips, state, clock, calls, beat } = world(t, 'exit 0')
    await beat([MINE])
    Object.assign(state, { isBusy: true, configured: [] })
    const leaving = beat([MINE])
    await until('nothing begins from it', () => ips.held().length === 0)
    await clock.advance(59_000)
    t.same([calls(), state.order.includes('leaving')], [[`acquire ${IP} a`], false])
    if (ends) state.isBusy = false
    await clock.advance(ends ? 200 : 2_000)
    await leaving
    t.same(calls(), [`acquire ${IP} a`, `release ${IP} a`])
  }
})

t.test('one that is of another node all at once is let go', async (t) => {
  const { ips, state, calls, beat } = world(t, 'exit 0')
  await beat([MINE])
  await beat([THEIRS])
  t.same([ips.held(), state.order.slice(2)], [[], ['changed', 'leaving']])
  t.same(calls(), [`acquire ${IP} a`, `release ${IP} a`])
  t.equal(ips.refusalOf(IP), 'the node b sends from it')
})

t.test('a hook that fails, takes too long or brings nothing gives it back, and is tried again', async (t) => {
  const faults: [string, boolean, RegExp][] = [
    ['echo "no route" >&2; exit 3', true, /acquire 192\.0\.2\.7 ended with 3: no route/],
    ['sleep 20', true, /took longer than 1000 ms/],
    ['exit 0', false, /cannot be bound here/],
  ]
  for (const [hook, isBindable, problem] of faults) {
    const { ips, state, clock, beat } = world(t, hook)
    state.isBindable = isBindable
    await beat([MINE])
    t.match(ips.refusalOf(IP), problem)
    t.match(ips.problems(), [{ ip: IP, problem }])
    state.configured = []
    t.same(ips.problems(), [], 'of what pools.yaml names')
    state.configured = [{ address: IP, source: IP }]
    t.same(await beat([]), { takes: [], releases: [IP] })
    t.same((await beat([])).takes, [], 'not at once')
    await clock.advance(15_000)
    t.same((await beat([])).takes, [IP])
  }
})

t.test('a hook that takes too long and may not be killed has failed, and ends nothing else', async (t) => {
  const { ips, beat } = world(t, 'sleep 2')
  // As of a hook that is another user's by now.
  t.intercept(process, 'kill', { value: () => fail('EPERM') })
  await beat([MINE])
  t.match(ips.refusalOf(IP), /took longer than 1000 ms/)
})

t.test('one that another node has, or that cannot be bound where there is no hook, is not asked for', async (t) => {
  const { ips, state, beat } = world(t, null)
  await beat([THEIRS], true, false)
  t.same((await beat([THEIRS])).takes, [])
  t.equal(ips.refusalOf(IP), 'the node b sends from it')
  await beat([])
  state.isBindable = false
  t.same((await beat([])).takes, [])
  state.isBindable = true
  t.same((await beat([MINE])).takes, [IP])
  t.same((await beat([MINE], false, false)).takes, [])
  t.same(ips.held(), [], 'a node that drains lets it go')
})

t.test('one whose address has left this machine goes, and is tried again', async (t) => {
  for (const hook of ['exit 0', null]) {
    const { ips, state, clock, beat } = world(t, hook)
    await beat([MINE])
    Object.assign(state, { isGone: true, isBindable: false })
    await beat([MINE])
    t.same([ips.held(), state.order.slice(2)], [[], ['changed', 'leaving']])
    t.match(ips.problems(), [{ ip: IP, problem: /cannot be bound here any more/ }])
    t.same(await beat([]), { takes: [], releases: [IP] })
    Object.assign(state, { isGone: false, isBindable: true })
    await clock.advance(15_000)
    t.same((await beat([MINE])).takes, [IP])
    t.equal(ips.refusalOf(IP), null)
  }
})

t.test('that another node has it is told at once: mail for it is accepted', async (t) => {
  const { state, beat } = world(t, null)
  await beat([], true, false)
  t.same(state.order, [])
  await beat([THEIRS])
  await beat([THEIRS])
  t.same(state.order, ['changed'])
  await beat([], true, false)
  t.same(state.order, ['changed'], 'one that nobody has yet refuses no mail')
  await beat([{ ...THEIRS, nodeId: 'c' }])
  t.same(state.order, ['changed', 'changed'])
})

t.test('the hook takes one that another node has from here, once: an earlier start may have left it', async (t) => {
  const { state, calls, beat } = world(t, 'exit 0')
  await beat([THEIRS])
  await beat([THEIRS])
  t.same(calls(), [`release ${IP} a`])
  await beat([MINE])
  state.configured = []
  await beat([MINE])
  state.configured = [{ address: IP, source: IP }]
  await beat([THEIRS])
  t.same(calls().slice(1), [`acquire ${IP} a`, `release ${IP} a`], 'what left in order has gone')
})
