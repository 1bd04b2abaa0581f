/** The sandbox in a container of our image, on the host's network, and the requests that tests make of it. */
import { openContainers, type Container, type ContainerOptions } from './containers.ts'
import { freePort } from './serve-process.ts'
import { until } from './until.ts'

export interface SandboxContainer {
  container: Container
  /** GET without a body, else POST; the parsed answer. */
  ask(path: string, body?: object): Promise<Record<string, unknown>>
  /** Sends a mail and waits until it is delivered; its id. */
  deliver(subject: string): Promise<string>
}

type Containers = Awaited<ReturnType<typeof openContainers>>

/** `before`: what of the options stands before the words of the sandbox. */
export async function startSandboxContainer(
  { start }: Containers,
  image: string,
  { words, ...before }: ContainerOptions,
  deadline?: number,
): Promise<SandboxContainer> {
  const ports = ['--port', String(await freePort()), '--smtp-port', String(await freePort())]
  const container = start(image, { ...before, words: [...words, 'sandbox', '--json', ...ports] })
  const line = await untilRunning(container, () => /^\{.*"curl".*\}$/m.exec(container.output())?.[0], deadline)
  const { base_url: baseUrl, key } = JSON.parse(line)
  const ask: SandboxContainer['ask'] = async (path, body) => {
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
    const options = body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) }
    return (await (await fetch(new URL(path, baseUrl), options)).json()) as Record<string, unknown>
  }
  return {
    container,
    ask,
    async deliver(subject) {
      const mail = { from: 'shop@sandbox.test', to: 'ada@dest.test', subject, text: 'Hello' }
      const { message_id: id } = await ask('/v1/email/send', mail)
      const state = async () => ((await ask(`/v1/email/${id}`))['data'] as { state: string }).state
      await until('it is delivered', async () => (await state()) === 'delivered', deadline)
      return String(id)
    },
  }
}

/** Waits for a sign of it; fails at once when the container has ended. */
export function untilRunning<Seen>(container: Container, look: () => Seen | Promise<Seen>, deadline?: number) {
  const lookAtRunning = (): Seen | Promise<Seen> => {
    if (container.exitCode() !== null) throw new Error(`it ended with ${container.exitCode()}: ${container.output()}`)
    return look()
  }
  return until('the container answers', lookAtRunning, deadline)
}
