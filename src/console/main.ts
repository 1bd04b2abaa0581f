/**
 * The console: asks whose session this is, shows the frame with its navigation, and in it the screen of the address.
 * Each screen is a module of its own that is loaded when somebody first goes there.
 */
import { signal } from '@preact/signals'
import { ask, problemText } from './parts/api.ts'
import { html, render, useEffect, useState, type VNode } from './parts/html.ts'
import { KeyHelp, listenToKeys } from './keys.ts'
import { helpIsOpen, palette } from './parts/opened.ts'
import { isLive } from './parts/live.ts'
import { ignoreRepeats } from './parts/once.ts'
import { Passkeys } from './parts/passkeys.ts'
import { comeBack, go, Link, place } from './parts/place.ts'
import { SaidList } from './parts/said.ts'
import { Waiting } from './parts/ui.ts'
import { who, type Who } from './parts/who.ts'
import { shownScreens, type Screen } from './screens.ts'

type Component = () => VNode

const loaded = signal<Readonly<Record<string, Component>>>({})
const problem = signal<string | null>(null)

async function begin(): Promise<void> {
  try {
    const me = await ask<Who>('/console/session')
    comeBack()
    who.value = me
    listenToKeys()
    ignoreRepeats()
  } catch (thrown) {
    problem.value = problemText(thrown)
  }
}

function Console(): VNode {
  if (problem.value !== null) return html`<p class="lone problem" role="alert">${problem.value}</p>`
  if (who.value === null) return html`<${Waiting} />`
  const screens = shownScreens(who.value)
  const [name] = place.value.segments
  const screen = name === undefined ? screens[0] : screens.find(({ path }) => path === name)
  return html`<a class="skip" href="#main">Skip to the content</a>
    <${Frame} screens=${screens} current=${screen} />
    <main id="main" tabindex="-1">
      ${!isLive.value && html`<p class="problem" role="status">The connection to the server is lost; it is tried again.</p>`}
      ${screen === undefined ? html`<${Nowhere} />` : html`<${Current} key=${screen.path} screen=${screen} />`}
    </main>
    <${SaidList} />
    ${helpIsOpen.value && html`<${KeyHelp} />`} ${palette.value !== null && html`<${palette.value} />`}`
}

function Frame({ screens, current }: { screens: readonly Screen[]; current: Screen | undefined }): VNode {
  const { name, role, development } = who.value as Who
  return html`<nav aria-label="Screens">
    <strong class="brand">Sternpost</strong>
    <ul>
      ${screens.map(
        (screen) =>
          html`<li key=${screen.path}>
            <${Link} to=${screen.path} current=${screen === current}>${screen.title}<//>
          </li>`,
      )}
    </ul>
    <div class="person">
      ${development && html`<p class="quiet">Sandbox: nothing leaves this machine.</p>`}
      <p>${name} ${role !== null && html`<span class="quiet">(${role})</span>`}</p>
      ${role !== null && html`<${Passkeys} />`}
      <form method="post" action="/console/logout"><button class="plain">Log out</button></form>
    </div>
  </nav>`
}

/** The screen's module, as soon as it is there. */
function Current({ screen }: { screen: Screen }): VNode {
  const component = loaded.value[screen.path]
  const [isMissing, setIsMissing] = useState(false)
  useEffect(() => {
    if (component !== undefined) return
    screen.load().then(
      (module) => (loaded.value = { ...loaded.value, [screen.path]: module.default }),
      () => setIsMissing(true),
    )
  }, [component, screen])
  // The frame stays: what waits to be undone stands in it.
  if (isMissing) {
    return html`<p class="problem" role="alert">
      This part of the console did not load. The server may be down, or have been upgraded.
      <button onClick=${() => location.reload()}>Reload the page</button>
    </p>`
  }
  return component === undefined ? html`<${Waiting} />` : html`<${component} />`
}

function Nowhere(): VNode {
  return html`<h1>There is nothing here</h1>
    <p><button onClick=${() => go('')}>Go to the first screen</button></p>`
}

render(html`<${Console} />`, document.getElementById('console') as HTMLElement)
void begin()
