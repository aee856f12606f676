// The Lua client beside programs of a player: as a module, in a tab, beside a shell.

import { computer, ensure, Hub, promise, same, shows, until } from './support.mjs';

export async function programs() {
    const hub = await Hub.start();
    let last = null;
    const next = async () => (last = await hub.link(last));
    await promise('as a module under parallel: quiet, beside a program, and gone when that ends and says so', async () => {
        const made = computer(hub, { files: { 'main.lua': 'shell.run("/apps/mine")', 'apps/mine.lua': `
            local nexus = require("/nexus")
            parallel.waitForAny(nexus.run, function()
                for i = 1, 3 do sleep(1) print("mine " .. i) end
                os.pullEvent("finish")
            end)
            nexus.stop()
            print("after") os.pullEvent("never")` } });
        const link = await next();
        same((await link.lua('1')).results, [1]);
        await shows(made, 'mine 3');
        same(made.screen, ['mine 1', 'mine 2', 'mine 3']);
        made.event('finish');
        await shows(made, 'after');
        await until('the link to close', () => link.closed);
        await made.kill();
    });
    await promise('as a module it never ends a program: no http, no address, and it waits', async () => {
        const made = computer(hub, { http: false, files: { 'main.lua': `
            parallel.waitForAny(require("/nexus").run, function() sleep(100) end) print("slept it out") os.pullEvent("x")` } }, { speed: 50 });
        await shows(made, 'slept it out');
        same(made.screen, ['slept it out']);
        await made.kill();
    });
    await promise('as a module it leaves Ctrl+T to the program', async () => {
        const made = computer(hub, { files: { 'main.lua': `
            local nexus = require("/nexus")
            print(pcall(parallel.waitForAny, nexus.run, function()
                repeat local event = os.pullEventRaw() until event == "terminate"
                print("not yet")
                os.pullEvent("never")
            end))
            nexus.stop()
            os.pullEvent("never")` } });
        const link = await next();
        made.event('terminate');
        await shows(made, 'not yet');
        same((await link.lua('4')).results, [4]);
        made.event('terminate');
        await shows(made, 'false\tTerminated');
        await until('the link to close', () => link.closed);
        await made.kill();
    });
    await promise('a module whose file was updated is ended by the same stop', async () => {
        const made = computer(hub, { files: { 'main.lua': `
            local nexus = require("/nexus")
            parallel.waitForAny(nexus.run, function() os.pullEvent("finish") end)
            nexus.stop()
            os.pullEvent("never")` } });
        const first = await next();
        for (let i = 0; i < 2; i++) {
            made.event('nexus_reload');
            await next();
        }
        ensure(first.closed, 'the old link is there');
        made.event('finish');
        await until('the link to close', () => last.closed);
        await made.kill();
    });
    await promise('an updated file has the shell that the old one had, also without the functions of Lua 5.1', async () => {
        for (const lua51 of [true, false]) {
            const made = computer(hub, { lua51 });
            same((await (await next()).lua('type(shell.run)')).results, ['function']);
            made.event('nexus_reload');
            same((await (await next()).lua('type(shell.run)')).results, ['function']);
            await made.kill();
        }
    });
    for (const [what, files, program] of [
        ['startup.lua', { startup: 'shell.run("/nexus.lua beside /startup.lua")', 'startup.lua': 'print("mine") os.pullEvent("never")' }, true],
        ['the shell', { 'startup/90_nexus.lua': 'shell.run("/nexus.lua beside")' }, false],
    ]) {
        await promise(`without tabs, beside ${what}: Ctrl+T ends what a player runs, never the link; \`exit\` does`, async () => {
            const made = computer(hub, { boot: true, kind: 'basic', files });
            const link = await next();
            const lines = (text) => made.screen.filter((line) => line === text).length;
            if (program) await shows(made, 'mine');
            for (let i = 1; i <= 3; i++) {
                made.event('terminate');
                await until('the end of what ran', () => lines('Terminated') === i);
                made.type('nonsense');
                await until('a shell', () => lines('No such program') === i);
                same((await link.lua('5')).results, [5]);
            }
            same([link.closed, hub.links.at(-1) === link], [null, true]);
            made.type('exit');
            await until('the link to close', () => link.closed);
            made.type('nonsense');
            await until('the first shell', () => lines('No such program') === 4);
            await made.kill();
        });
    }
    await promise('a shell that cannot start is not started for ever', async () => {
        const made = computer(hub, { kind: 'basic', files: { 'main.lua': 'shell.run("/nexus.lua beside") print("back") os.pullEvent("never")', 'shell.lua': 'error("no shell", 0)' } });
        await shows(made, 'back');
        same(made.screen, ['no shell', 'back']);
        await made.kill();
    });
    await promise('what it does not know it answers with how it is used', async () => {
        const made = computer(hub, { boot: true });
        for (const [i, word] of ['help', '--help', 'besides /x'].entries()) {
            made.type(`nexus ${word}`);
            await until('usage', () => made.screen.filter((line) => line.includes('nexus beside [program]')).length === i + 1);
        }
        await made.kill();
    });
    await promise('Ctrl+T ends it: the link closes, the turtle has its own functions back', async () => {
        const made = computer(hub, { kind: 'turtle', files: { 'main.lua': `
            local before = turtle.forward
            shell.run("nexus")
            print(turtle.forward == before and "as before" or "changed") os.pullEvent("x")` } });
        const link = await next();
        made.event('terminate');
        await shows(made, 'as before');
        await shows(made, 'Terminated');
        await until('the link to close', () => link.closed);
        await made.kill();
    });
    await promise('in the background: bg nexus leaves the shell free; a second one says that one runs', async () => {
        const made = computer(hub, { boot: true });
        made.type('bg nexus');
        const link = await next();
        made.type('nexus');
        await shows(made, 'already runs');
        same(await link.get('ping'), 'pong from 12 (Label: null)');
        same(hub.links.filter(({ closed }) => !closed).length, 1);
        await made.kill();
    });
    await promise('a program that loads it while a tab has the link waits, and takes over when that ends', async () => {
        const made = computer(hub, { files: {
            'tab.lua': 'local n = require("/nexus") parallel.waitForAny(n.run, function() os.pullEvent("finish") end) n.stop()',
            'main.lua': `
                shell.openTab("tab")
                sleep(1)
                parallel.waitForAny(require("/nexus").run, function() repeat until os.pullEventRaw() == "x" end)`,
        } }, { speed: 30 });
        const link = await next();
        await link.lua('sleep(20)', { timeout: 30 });
        made.event('terminate'); // which the program does not mind
        same((await link.lua('2')).results, [2]);
        same(hub.links.filter(({ closed }) => !closed).length, 1);
        made.event('finish');
        await until('the first link to close', () => link.closed);
        same((await (await next()).lua('3')).results, [3]);
        await made.kill();
    });
    hub.end();
}
