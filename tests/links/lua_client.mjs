// The ComputerCraft client in clients/computercraft, run by Lua 5.1 in a stand-in for CC (computer.lua), over real sockets.
//
//     node lua_client.mjs [ws-VERSION] [client | hub | SECTION]…
//
// `client` drives it from a hub that is made here, in accelerated time; `hub` installs it from the real hub beside which
// this runs (NEXUS_LINKS, NEXUS_MCP, NEXUS_KEY) and drives it through MCP. Without a word: both, if there is a hub. A section
// is a part of `client`: greeting, lua, files, links, …
// NEXUS_LUA and NEXUS_INSTALL name other files to test in their place, to see that a check can fail.

import { greeting, ending, lua } from './client_lua.mjs';
import { files, peripherals, redstone, turtles } from './client_things.mjs';
import { links, odd } from './client_links.mjs';
import { programs } from './client_programs.mjs';
import { installer } from './client_installer.mjs';
import { endAll } from './computer.mjs';
import { computers, ensure, env, outcome, promise, same, shows, until, WebSocket, words } from './support.mjs';

const sections = { greeting, lua, ending, files, peripherals, turtles, redstone, odd, links, programs, installer };

async function client() {
    for (const section of Object.values(sections)) await section();
    await promise('no computer went without a yield for as long as CC kills it', () => {
        same(computers.flatMap((made) => made.overruns), []);
    });
    await promise('no program ended with an error that nobody expected', () => {
        same(computers.flatMap((made) => [...made.errors, made.stderr].filter(Boolean)), []);
    });
}

const parts = {
    client,
    hub: async () => (await import('./real_hub.mjs')).run({ promise, ensure, same, until, shows, WebSocket, env }),
    ...sections,
};
const limit = setTimeout(() => {
    console.log('FAIL the checks end: not within 280 s');
    endAll().finally(() => process.exit(1));
}, 280_000);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => endAll().finally(() => process.exit(1)));
try {
    for (const name of words.length ? words : ['client', ...(env.NEXUS_MCP ?? env.NEXUS_MCP_URL ? ['hub'] : [])]) {
        if (!parts[name]) throw new Error(`no part ${name}`);
        await parts[name]();
    }
} catch (problem) {
    outcome.broken += 1;
    console.log(`FAIL the checks run: ${problem.stack}`);
} finally {
    clearTimeout(limit);
    await endAll();
    process.exit(outcome.broken ? 1 : 0);
}
