/**
 * The verbs of the command line, each in a file that is loaded when it is asked for: the program is large, and somebody
 * waits at the prompt. Rejects when a file cannot be loaded.
 */
import type { Command } from 'commander'
import type { LoadStarters } from './server/sandbox.ts'

type AddVerbs = (program: Command, loadStarters: LoadStarters) => void

interface VerbFile {
  /** First words of a command line that need this file alone. */
  names: readonly string[]
  load: () => Promise<AddVerbs>
}

/** In the order of the help. */
export const VERB_FILES: readonly VerbFile[] = [
  { names: ['serve'], load: async () => (await import('./server/sandbox.ts')).addServeCommand },
  { names: ['sandbox'], load: async () => (await import('./server/sandbox.ts')).addSandboxCommand },
  { names: ['setup'], load: async () => (await import('./setup/setup.ts')).addSetupCommand },
  { names: ['status', 'top'], load: async () => (await import('./server/status.ts')).addStatusCommands },
  { names: ['logs'], load: async () => (await import('./server/logs.ts')).addLogsCommand },
  { names: ['check'], load: async () => (await import('./server/check.ts')).addCheckCommand },
  { names: ['doctor'], load: async () => (await import('./server/doctor.ts')).addDoctorCommand },
  { names: ['reload'], load: async () => (await import('./server/config.ts')).addReloadCommand },
  { names: ['config'], load: async () => (await import('./server/config.ts')).addConfigCommands },
  { names: ['key'], load: async () => (await import('./sending/key.ts')).addKeyCommands },
  { names: ['console'], load: async () => (await import('./server/console.ts')).addConsoleCommands },
  { names: ['domain'], load: async () => (await import('./sending/domain.ts')).addDomainCommands },
  { names: ['send'], load: async () => (await import('./mail/send.ts')).addSendCommand },
  { names: ['message'], load: async () => (await import('./mail/message.ts')).addMessageCommands },
  { names: ['stats'], load: async () => (await import('./mail/stats.ts')).addStatsCommand },
  { names: ['queue'], load: async () => (await import('./mail/queue.ts')).addQueueCommands },
  { names: ['ip'], load: async () => (await import('./sending/ip.ts')).addIpCommands },
  { names: ['pool'], load: async () => (await import('./sending/pool.ts')).addPoolCommands },
  { names: ['path'], load: async () => (await import('./sending/path.ts')).addPathCommands },
  { names: ['provider'], load: async () => (await import('./sending/provider.ts')).addProviderCommands },
  { names: ['suppression'], load: async () => (await import('./mail/suppression.ts')).addSuppressionCommands },
  { names: ['webhook'], load: async () => (await import('./mail/webhook.ts')).addWebhookCommands },
  { names: ['listen'], load: async () => (await import('./mail/listen.ts')).addListenCommand },
  { names: ['bounce'], load: async () => (await import('./mail/bounce.ts')).addBounceCommands },
  { names: ['recipient'], load: async () => (await import('./mail/recipient.ts')).addRecipientCommands },
  { names: ['certificate'], load: async () => (await import('./server/certificate.ts')).addCertificateCommands },
  { names: ['node'], load: async () => (await import('./server/node.ts')).addNodeCommands },
  { names: ['backup'], load: async () => (await import('./server/backup.ts')).addBackupCommands },
  { names: ['restore'], load: async () => (await import('./server/database.ts')).addRestoreCommand },
  { names: ['migrate', 'verify'], load: async () => (await import('./server/database.ts')).addMigrateCommands },
  { names: ['version'], load: async () => (await import('./version.ts')).addVersionCommand },
  // It names all the others.
  { names: [], load: async () => (await import('./completion.ts')).addCompletionCommand },
]

/** Adds the verb that is named, or all: for help, completion, and a name that is none. */
export async function addVerbs(program: Command, loadStarters: LoadStarters, name?: string): Promise<void> {
  const named = VERB_FILES.filter(({ names }) => name !== undefined && names.includes(name))
  const loaded = await Promise.all((named.length === 0 ? VERB_FILES : named).map(({ load }) => load()))
  for (const add of loaded) add(program, loadStarters)
}
