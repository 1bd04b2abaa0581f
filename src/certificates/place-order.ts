/**
 * One certificate from one authority: account, order, challenges, key, chain (RFC 8555 §7). Each step that the authority
 * keeps is saved before the next begins, so that whoever is killed goes on with the same order: none is lost, and none
 * is placed twice where the authority lists the orders of an account or hands out an open one again. Throws what the
 * authority or the network says; the order that was saved is then tried again, unless it is at its end. What an authority
 * answers is believed in nothing: a chain that our doors could not use is refused.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import { HOUR, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { AcmeAccountRecord, AcmeOrder, AcmeProof } from '../store/records/certificate-records.ts'
import type { Store } from '../store/store.ts'
import { AcmeRefusal, type AcmeClient, type AcmeLibrary } from './acme-client.ts'

/** How a name is proved. */
export type ChallengeType = AcmeProof['type']

export interface OrderParts {
  store: Pick<Store, 'acmeAccount' | 'saveAcmeAccount'>
  keyRing: KeyRing
  library: AcmeLibrary
  email: string | null
  /** Until the doors of every node answer the proof that was saved last. */
  shown(): Promise<void>
  clock: Pick<Clock, 'now'>
  /** Then the order is left as it is. */
  ended: AbortSignal
}

interface OrderRequest {
  directory: string
  names: string[]
  proof: ChallengeType
  /** What the authority knows the certificate by that this one follows (RFC 9773 §5); null: there is none. */
  replaces: string | null
  /** null: none is under way. */
  order: AcmeOrder | null
  /** For the certificate, sealed; null: a new one. */
  sealedKey: Uint8Array | null
  /** Saved before it resolves; null: the order is at its end. */
  saveOrder(order: AcmeOrder | null): Promise<void>
}

interface IssuedCertificate {
  /** PEM, our own first. */
  chain: string
  /** PEM. */
  key: string
  parsed: X509Certificate
}

const LEAST_PAUSE = SECOND / 4
const MOST_PAUSE = 5 * SECOND
const PAUSE_GROWTH = 1.4
/** With these pauses two minutes: what the authority does takes seconds. */
const MOST_LOOKS = 30

/** What keys are sealed with. */
const accountSealedAs = (directory: string): string => `acme-account:${directory}`
export const certificateSealedAs = (name: string): string => `certificate:${name}`

export async function placeOrder(parts: OrderParts, request: OrderRequest): Promise<IssuedCertificate> {
  const { directory, saveOrder } = request
  let client: AcmeClient | undefined
  try {
    client = await openAccount(parts, directory)
    return await followOrder(client, parts, request, await openOrder(client, parts, request))
  } catch (thrown) {
    if (!(thrown instanceof AcmeRefusal)) throw thrown
    // What the authority has closed, or does not know, is not asked for again.
    if (thrown instanceof NameRefusal || ENDED.has(thrown.type)) await saveOrder(null)
    if (thrown.type === 'accountDoesNotExist') await forgetAccount(parts, directory)
    if (client === undefined || thrown.type !== 'unauthorized' || !(await isClosed(client))) throw thrown
    await parts.store.saveAcmeAccount(await newAccount(parts, directory))
    throw new AcmeRefusal('accountClosed', `${thrown.message}: another account takes its place`, null)
  }
}

/** Of a chain: no authority says so, we do. The second one is good once our clock is: its order stays. */
const UNUSABLE = 'unusable'
export const NOT_YET_VALID = 'notYetValid'

/** Types of problems after which an order leads nowhere. */
const ENDED = new Set([
  'orderInvalid',
  'malformed',
  'unauthorized',
  'orderNotReady',
  'accountDoesNotExist',
  'badCSR',
  'badPublicKey',
  UNUSABLE,
])

async function followOrder(
  client: AcmeClient,
  parts: OrderParts,
  request: OrderRequest,
  placed: PlacedOrder,
): Promise<IssuedCertificate> {
  const { library, keyRing, ended, clock } = parts
  const { names } = request
  const { url, sealedKey } = placed
  const key = keyRing.open(sealedKey, certificateSealedAs(names[0] ?? ''))
  let order = await client.getOrder({ url } as never)
  if (order.status === 'pending') {
    await proveNames(client, parts, order, {
      ...request,
      saveProof: (proof) => request.saveOrder({ ...placed, proof }),
    })
    order = await settled(client, url, ['pending'], ended)
  }
  if (order.status === 'ready') {
    const [, csr] = await library.crypto.createCsr({ commonName: names[0] ?? '', altNames: names }, key)
    await client.finalizeOrder(order, csr)
  }
  if (order.status !== 'valid') order = await settled(client, url, ['ready', 'processing'], ended)
  const chain = await client.getCertificate(order)
  return { chain, key, parsed: usableChain(chain, key, names, clock.now()) }
}

/** The first of the chain. Throws AcmeRefusal when it is none for our doors. */
function usableChain(chain: string, key: string, names: readonly string[], now: number): X509Certificate {
  const problem = (text: string, type = UNUSABLE): AcmeRefusal => new AcmeRefusal(type, `the certificate ${text}`, null)
  let parsed: X509Certificate
  try {
    parsed = new X509Certificate(chain)
    createSecureContext({ cert: chain, key })
  } catch (thrown) {
    throw problem(`cannot be used: ${errorText(thrown)}`)
  }
  if (!parsed.checkPrivateKey(createPrivateKey(key))) throw problem('is not for our key')
  const missing = names.find((name) => parsed.checkHost(name) === undefined)
  if (missing !== undefined) throw problem(`is not for ${missing}`)
  const [from, to] = [parsed.validFrom, parsed.validTo]
  if (parsed.validToDate.getTime() <= now) throw problem(`has ended on ${to}, by the clock of this server`)
  if (parsed.validFromDate.getTime() > now + MOST_CLOCK_ERROR) {
    throw problem(`begins on ${from}, by the clock of this server in the future`, NOT_YET_VALID)
  }
  return parsed
}

const MOST_CLOCK_ERROR = HOUR

type PlacedOrder = AcmeOrder & { url: string }

/** What is about to be placed is noted before: an order whose answer never came is looked for. */
async function openOrder(client: AcmeClient, parts: OrderParts, request: OrderRequest): Promise<PlacedOrder> {
  const { library, keyRing } = parts
  const { directory, names, saveOrder } = request
  const sealedAs = certificateSealedAs(names[0] ?? '')
  const order = opens(keyRing, request.order?.sealedKey, sealedAs) ? request.order : null
  if (order !== null && order.url !== null) return { ...order, url: order.url }
  const kept = opens(keyRing, request.sealedKey, sealedAs) ? request.sealedKey : null
  let sealedKey = order?.sealedKey ?? kept
  if (sealedKey === null) {
    const key = await library.crypto.createPrivateEcdsaKey('P-256')
    sealedKey = keyRing.seal(key.toString(), sealedAs)
  }
  const found = order === null ? null : await findOrder(client, names)
  if (order === null) await saveOrder({ directory, url: null, sealedKey, proof: null })
  const placed = { directory, url: found ?? (await createOrder(client, request)), sealedKey, proof: null }
  await saveOrder(placed)
  return placed
}

async function createOrder(client: AcmeClient, { names, replaces }: OrderRequest): Promise<string> {
  const identifiers = names.map((value) => ({ type: 'dns', value }))
  if (replaces === null) return (await client.createOrder({ identifiers })).url
  try {
    return (await client.createOrder({ identifiers, replaces } as never)).url
  } catch (thrown) {
    // RFC 9773 §5: it does not know that certificate, as one of another authority or account, or it was replaced before.
    if (!(thrown instanceof AcmeRefusal) || thrown.type === 'rateLimited') throw thrown
    return (await client.createOrder({ identifiers })).url
  }
}

/** Of the orders of an account, so many pages and orders are looked at. */
const MOST_PAGES = 10
const MOST_ORDERS = 50
const OPEN_STATES = ['pending', 'ready']

/** URL of an open order for these names (RFC 8555 §7.1.2.1); null: there is none, or the authority lists none. */
async function findOrder(client: AcmeClient, names: readonly string[]): Promise<string | null> {
  try {
    return await lookForOrder(client, names)
  } catch (thrown) {
    // An authority need not list them.
    if (thrown instanceof AcmeRefusal && thrown.type !== 'accountDoesNotExist') return null
    throw thrown
  }
}

async function lookForOrder(client: AcmeClient, names: readonly string[]): Promise<string | null> {
  const requests = requestsOf(client)
  const { orders } = (await requests.apiRequest(client.getAccountUrl(), null, [200])).data
  if (typeof orders !== 'string') return null
  const wanted = names.toSorted().join()
  const urls: string[] = []
  let next: string | undefined = orders
  for (let page = 0; next !== undefined && page < MOST_PAGES; page++) {
    const { data, headers } = await requests.apiRequest(next, null, [200])
    urls.push(...(Array.isArray(data.orders) ? data.orders.map(String) : []))
    next = /<([^>]+)>\s*;\s*rel="?next/.exec(String(headers['link']))?.[1]
  }
  for (const url of urls.toReversed().slice(0, MOST_ORDERS)) {
    const { status, identifiers } = await client.getOrder({ url } as never)
    const isSame =
      identifiers
        .map(({ value }) => value)
        .toSorted()
        .join() === wanted
    if (isSame && OPEN_STATES.includes(status)) return url
  }
  return null
}

/** The library has no verb for the orders of an account, and its verb for a new one also changes one that is there. */
interface SignedRequests {
  createAccount(account: { termsOfServiceAgreed: true; contact: string[] }): Promise<unknown>
  apiRequest(
    url: string,
    payload: null,
    statuses: number[],
  ): Promise<{ data: { orders?: unknown; status?: unknown }; headers: Record<string, unknown> }>
}

const requestsOf = (client: AcmeClient): SignedRequests => (client as unknown as { api: SignedRequests }).api

/** The same key is the same account: an account that was made and not noted is found again. */
async function openAccount(parts: OrderParts, directory: string): Promise<AcmeClient> {
  const { store, keyRing, library, email } = parts
  const sealedAs = accountSealedAs(directory)
  let account: AcmeAccountRecord | null = await store.acmeAccount(directory)
  if (account === null || !opens(keyRing, account.sealedKey, sealedAs)) {
    account = await newAccount(parts, directory)
    await store.saveAcmeAccount(account)
  }
  const client = new library.Client({
    directoryUrl: directory,
    accountKey: keyRing.open(account.sealedKey, sealedAs),
    ...(account.url === null ? {} : { accountUrl: account.url }),
  })
  if (account.url === null) {
    const contact = email === null ? [] : [`mailto:${email}`]
    await requestsOf(client).createAccount({ termsOfServiceAgreed: true, contact })
    await store.saveAcmeAccount({ ...account, url: client.getAccountUrl() })
  }
  return client
}

/** False for what was sealed with another master key, as behind a restore without it: it counts as not there. */
function opens(keyRing: KeyRing, sealed: Uint8Array | null | undefined, sealedAs: string): boolean {
  if (sealed === null || sealed === undefined) return false
  try {
    keyRing.open(sealed, sealedAs)
    return true
  } catch {
    return false
  }
}

async function newAccount({ keyRing, library }: OrderParts, directory: string): Promise<AcmeAccountRecord> {
  const key = await library.crypto.createPrivateEcdsaKey('P-256')
  return { directory, sealedKey: keyRing.seal(key.toString(), accountSealedAs(directory)), url: null }
}

/** The authority, or somebody with its key, has ended the account (RFC 8555 §7.3.6): nothing is taken from it any more. */
async function isClosed(client: AcmeClient): Promise<boolean> {
  try {
    const { status } = (await requestsOf(client).apiRequest(client.getAccountUrl(), null, [200])).data
    return status === 'deactivated' || status === 'revoked'
  } catch (thrown) {
    return thrown instanceof AcmeRefusal && thrown.type === 'unauthorized'
  }
}

/** It is made again with the same key. */
async function forgetAccount({ store }: OrderParts, directory: string): Promise<void> {
  const account = await store.acmeAccount(directory)
  if (account !== null) await store.saveAcmeAccount({ ...account, url: null })
}

type Order = Awaited<ReturnType<AcmeClient['getOrder']>>

interface NameProofs extends Pick<OrderRequest, 'names' | 'proof'> {
  saveProof(proof: AcmeProof | null): Promise<void>
}

/** A challenge that was answered before a kill is asked about again. */
async function proveNames(
  client: AcmeClient,
  { ended, shown }: OrderParts,
  order: Order,
  { names, proof: type, saveProof }: NameProofs,
): Promise<void> {
  if (order.authorizations.length > names.length) throw new Error('the authority asks for more names than we did')
  for (const authorization of await client.getAuthorizations(order)) {
    if (authorization.status === 'valid') continue
    const { value: name } = authorization.identifier
    if (!names.includes(name)) throw new Error('the authority asks for another name than we did')
    const challenge = authorization.challenges.find((each) => each.type === type)
    if (challenge === undefined)
      throw new AcmeRefusal('unsupported', `the authority offers no ${type} for ${name}`, null)
    const { token } = challenge
    await saveProof({ type, name, token, authorization: await client.getChallengeKeyAuthorization(challenge) })
    await shown()
    if (challenge.status === 'pending') await client.completeChallenge(challenge)
    await proved(client, order, { name, proof: type, ended })
  }
  await saveProof(null)
}

interface Proving {
  name: string
  proof: ChallengeType
  ended: AbortSignal
}

async function proved(client: AcmeClient, order: Order, { name, proof, ended }: Proving): Promise<void> {
  for await (const _ of looks(ended)) {
    const found = (await client.getAuthorizations(order)).find(({ identifier }) => identifier.value === name)
    if (found?.status === 'valid') return
    if (found?.status === 'pending') continue
    const error = found?.challenges.find(({ type }) => type === proof)?.error as
      { type?: string; detail?: string } | undefined
    const type = (error?.type ?? 'unauthorized').replace('urn:ietf:params:acme:error:', '')
    throw new NameRefusal(type, error?.detail ?? `the proof for ${name} is ${found?.status}`, name)
  }
}

/** The authority did not find at a name what it asked for. */
export class NameRefusal extends AcmeRefusal {
  readonly domain: string

  constructor(type: string, detail: string, domain: string) {
    super(type, detail, null)
    this.domain = domain
  }
}

/** The order, once it is in none of these states any more. */
async function settled(client: AcmeClient, url: string, passing: string[], ended: AbortSignal): Promise<Order> {
  for await (const _ of looks(ended)) {
    const order = await client.getOrder({ url } as never)
    if (order.status === 'invalid') throw new AcmeRefusal('orderInvalid', 'the authority closed the order', null)
    if (!passing.includes(order.status)) return order
  }
  throw new Error('unreachable')
}

/** Turns at growing distances; throws when there were too many, or at the end. */
async function* looks(ended: AbortSignal): AsyncGenerator<number> {
  for (let look = 0; look < MOST_LOOKS; look++) {
    yield look
    await sleep(Math.min(MOST_PAUSE, LEAST_PAUSE * PAUSE_GROWTH ** look), undefined, { signal: ended })
  }
  throw new Error('the authority did not come to an end with the order')
}
