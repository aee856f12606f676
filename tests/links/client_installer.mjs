// The installer, and what it leaves on a computer.

import { Computer } from './computer.mjs';
import { computers, ensure, Hub, NEXUS, promise, same, shows, until, WebSocket } from './support.mjs';

export async function installer() {
    const hub = await Hub.start();
    let last = null;
    const next = async () => (last = await hub.link(last));
    const wget = `wget run http://${hub.address}/install.lua`;
    const bare = (files = {}, more = {}) => {
        const made = new Computer(WebSocket, { id: 5, boot: true, ...more, files }, { speed: 10 });
        computers.push(made);
        return made;
    };
    const saved = (files) => Object.fromEntries(Object.entries(files).filter(([, text]) => text !== null));
    const current = NEXUS.replaceAll('@ADDRESS@', hub.address);
    const reboot = async (made, more = {}) => {
        const files = await made.dump();
        await made.kill();
        const again = new Computer(WebSocket, { id: 5, boot: true, ...more, files: saved(files) }, { speed: 10 });
        computers.push(again);
        return again;
    };
    const ENDLESS = 'while true do local _, w = os.pullEvent("poke") print("poked " .. w) end';

    await promise('installer: needs nothing but the address; links at once, and after a reboot', async () => {
        const made = bare();
        made.type(wget);
        const link = await next();
        same(link.hellos[0].computerId, 5);
        await shows(made, 'Nexus is installed');
        await shows(made, 'To undo: delete /nexus.lua /startup/00_nexus.lua');
        const files = await made.dump();
        same(files['/nexus.lua'], current);
        ensure(files['/.settings'].includes(hub.address), files['/.settings']);
        same(Object.keys(saved(files)).sort(), ['/.settings', '/nexus.lua', '/startup/00_nexus.lua']);
        made.type('nexus');
        await shows(made, 'already runs'); // the shell is free
        const again = await reboot(made);
        same(await (await next()).get('ping'), 'pong from 5 (Label: null)');
        await again.kill();
    });
    await promise('installer: twice is an update; the link that runs takes the new file', async () => {
        const made = bare({}, { settings: { mine: 7 } });
        made.type(`${wget} secret`);
        const first = await next();
        same(first.hellos[0].token, 'secret');
        hub.pages['/nexus.lua'] = NEXUS.replace('VERSION = "1.', 'VERSION = "9.');
        made.type(wget);
        const second = await next();
        hub.pages['/nexus.lua'] = NEXUS;
        ensure(second.hellos[0].version.startsWith('9.') && second.hellos[0].token === 'secret', second.hellos[0]);
        await shows(made, 'Nexus is updated');
        await until('the old link to close', () => first.closed);
        const files = await made.dump();
        same(Object.keys(saved(files)).sort(), ['/.settings', '/nexus.lua', '/startup/00_nexus.lua']);
        ensure(files['/.settings'].includes('mine'), files['/.settings']);
        await made.kill();
    });
    await promise('installer: a computer without tabs keeps its shell beside the link, also over an update and a reboot', async () => {
        const made = bare({}, { kind: 'basic' });
        made.type(wget);
        const link = await next();
        made.type('nonsense');
        await shows(made, 'No such program');
        same((await link.lua('1')).results, [1]);
        made.type(wget);
        const second = await next();
        await shows(made, 'Nexus is updated');
        made.type('nonsense');
        await until('the shell', () => made.screen.filter((line) => line === 'No such program').length === 2);
        await until('the old link to close', () => link.closed);
        same((await second.lua('2')).results, [2]);
        const again = await reboot(made, { kind: 'basic' });
        await next();
        again.type('nonsense');
        await shows(again, 'No such program');
        await again.kill();
    });
    for (const kind of ['advanced', 'basic']) {
        for (const [what, files, ours, kept] of [
            ['a startup.lua that never ends', { 'startup.lua': ENDLESS }, '/startup', '/startup.lua'],
            ['a startup that never ends', { startup: ENDLESS }, '/startup', '/startup.lua'],
            ['a folder of startups', { 'startup/50_mine.lua': 'print("mine ran")' },
                kind === 'basic' ? '/startup/90_nexus.lua' : '/startup/00_nexus.lua', '/startup/50_mine.lua'],
        ]) {
            await promise(`installer, ${kind} computer: beside ${what}`, async () => {
                const made = bare({ ...files, 'main.lua': `shell.run("${wget}") os.pullEvent("x")` }, { boot: false, kind });
                await next();
                const now = await made.dump();
                same(now[kept], Object.values(files)[0]);
                ensure(now[ours]?.includes('/nexus.lua beside'), Object.keys(now));
                const again = await reboot(made, { kind });
                const link = await next();
                if (what.includes('folder')) await shows(again, 'mine ran');
                else {
                    again.event('poke', 'me');
                    await shows(again, 'poked me');
                }
                same(await link.get('ping'), 'pong from 5 (Label: null)');
                await again.kill();
            });
        }
    }
    await promise('installer: two ways to start are left alone, and it says which line to add', async () => {
        for (const files of [{ startup: '-- a', 'startup.lua': '-- b' }, { 'startup/x.lua': '-- a', 'startup.lua': '-- b' }]) {
            const made = bare(files);
            made.type(wget);
            await next();
            await shows(made, 'add');
            await shows(made, 'shell.run("/nexus.lua beside")');
            const now = saved(await made.dump());
            same(Object.keys(now).filter((path) => path.includes('startup')).sort(), Object.keys(files).map((path) => `/${path}`).sort());
            for (const [path, text] of Object.entries(files)) same(now[`/${path}`], text);
            await made.kill();
        }
    });
    await promise('installer: a whole address that was set by hand is kept; a host and port is that of the installer', async () => {
        for (const [given, kept] of [['wss://127.0.0.1:1/', true], ['127.0.0.1:1', false]]) {
            const made = bare({}, { settings: { 'nexus.address': given } });
            made.type(wget);
            await shows(made, `linked to ${kept ? given : hub.address}.`);
            if (!kept) await next();
            const { '/.settings': text } = await made.dump();
            same([text.includes(given), text.includes(hub.address)], [kept, !kept]);
            same(made.screen.some((line) => line.includes('set by hand')), kept);
            await made.kill();
        }
    });
    await promise('installer: asks for the token where one is needed, keeps it, and takes none for an answer', async () => {
        hub.tokenNeeded = true;
        const made = bare();
        made.type(wget);
        await shows(made, 'Token:');
        made.type('tøken');
        same((await next()).hellos[0].token, 'tøken');
        made.type(wget); // not asked again
        same((await next()).hellos[0].token, 'tøken');
        await made.kill();
        const none = bare();
        none.type(wget);
        await shows(none, 'Token:');
        none.type('');
        await shows(none, 'not installed');
        same(Object.keys(saved(await none.dump())), []);
        hub.tokenNeeded = false;
        await none.kill();
    });
    await promise('installer: a download that fails leaves everything as it was', async () => {
        const old = { 'nexus.lua': '-- the old one' };
        for (const [what, page] of [['missing', undefined], ['cut', NEXUS.slice(0, 20_000)], ['empty', ''], ['a page', '<html>'], ['broken off', null]]) {
            hub.pages['/nexus.lua'] = page;
            const made = bare(old);
            made.type(wget);
            await shows(made, 'not installed');
            same([what, saved(await made.dump())], [what, { '/nexus.lua': '-- the old one' }]);
            await made.kill();
        }
        hub.pages['/nexus.lua'] = NEXUS;
    });
    await promise('installer: a full disk leaves everything as it was', async () => {
        const made = bare({ 'nexus.lua': '-- the old one' }, { capacity: 20_000 });
        made.type(wget);
        await shows(made, 'not installed');
        same(saved(await made.dump()), { '/nexus.lua': '-- the old one' });
        await made.kill();
    });
    await promise('installer: without websockets it says so and installs nothing', async () => {
        const made = bare({}, { websockets: false });
        made.type(wget);
        await shows(made, 'http.websocket_enabled');
        same(saved(await made.dump()), {});
        await made.kill();
    });
    hub.end();
}
