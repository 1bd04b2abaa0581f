/**
 * Checks that run beside the soak, each once a minute while the server is up. Whoever has one adds it to the list; what
 * it gives is what does not hold, one text each.
 */
import { createReachCheck } from './reach-check.ts'
import type { SoakScene } from './scene.ts'

export interface SideCheck {
  name: string
  run(scene: SoakScene): Promise<string[]>
}

export const SIDE_CHECKS: SideCheck[] = [
  createReachCheck(),
  {
    name: 'health',
    async run({ api }) {
      const { status, body } = await api.get('/health')
      return status === 200 ? [] : [`answered ${status}: ${JSON.stringify(body)}`]
    },
  },
]
