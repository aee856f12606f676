// The Lua client: odd frames, links that break, and servers that forbid them.

import { computer, ensure, Hub, NEXUS, pause, promise, same, shows, until } from './support.mjs';

export async function odd() {
    const hub = await Hub.start();
    const made = computer(hub, { label: 'odd' });
    const link = await hub.link();
    await promise('frames that make no sense are passed over', async () => {
        for (const text of ['', '{', 'null', '[]', '7', '"x"', '{"type":7}', '{"type":"request"}', '{"type":"request","id":7,"method":"ping"}',
            '{"type":"request","id":null,"method":"ping"}', '{"type":"dance"}', '{"type":"hello-ok"}', '{"type":"cancel"}', '{"type":"cancel","id":{}}',
            '{"type":"request","id":"x","method":"ping",}', '['.repeat(50000), '{"a":'.repeat(20000), '"\\ud800"', '"\\uZZZZ"', '01x', '-', '1e', 'tru',
            '{"type":"response","id":"req-1","ok":true}', '\u0000', '{"type":"error"}', '{"type":"error","error":{"a":1}}']) link.ws.send(text);
        link.ws.send(Buffer.from('{"type":"request","id":"req-binary","method":"ping"}'), { binary: true });
        link.ws.send(' {"params" : null , "method":"\\u0070ing","id":"req-spaced","more":[1,{"x":null}],"type":"request"} \n');
        same((await link.answer('req-spaced')).result, 'pong from 12 (Label: odd)');
        ensure(!link.answers.has('req-binary'), 'it answered a binary frame');
        same([hub.links.length, made.errors], [1, []]);
    });
    await promise('what the hub complains about is shown, once', async () => {
        link.tell({ type: 'error', error: 'that was odd' });
        link.tell({ type: 'error', error: 'that was odd' });
        await shows(made, 'the hub says: that was odd');
        await link.get('ping');
        same(made.screen.filter((line) => line.includes('that was odd')).length, 1);
    });
    await promise('a flood that overflows the queue of events does not end it', async () => {
        const busy = link.begin('lua.run', { code: 'os.pullEvent("go") local t = os.epoch("utc") while os.epoch("utc") - t < 4000 do end', timeout: 60 });
        await link.get('ping');
        made.event('go');
        for (let i = 0; i < 3000; i++) link.tell({ type: 'request', id: `req-flood-${i}`, method: 'ping' });
        await until('dropped events', () => made.dropped > 100);
        await link.answer(busy);
        await until('a ping', async () => {
            const id = link.begin('ping');
            await pause(50);
            return link.answers.has(id);
        });
        const from = Date.now();
        await link.lua('sleep(1)');
        ensure(Date.now() - from < 5000, 'timers are lost');
    });
    await made.kill();
    hub.end();
}

export async function links() {
    const fast = { speed: 30 };
    const seconds = (ms) => (ms * 30) / 1000;
    const hub = await Hub.start();
    const made = computer(hub, { label: 'link' }, fast);
    let link = await hub.link();
    await promise('a link that breaks comes back by itself and says hello again', async () => {
        await link.lua('sleep(12)', { timeout: 60 });
        link.ws.terminate();
        const next = await hub.link(link);
        same(next.hellos[0].computerLabel, 'link');
        ensure(seconds(next.hellos[0].at - link.closed.at) < 12, seconds(next.hellos[0].at - link.closed.at));
        await shows(made, 'lost');
        link = next;
    });
    for (const code of [4001, 4003]) {
        await promise(`after a close with ${code} it waits the longest`, async () => {
            link.ws.close(code, 'no');
            const next = await hub.link(link);
            const waited = seconds(next.hellos[0].at - link.closed.at);
            ensure(waited > 22 && waited < 45, waited);
            await shows(made, code === 4003 ? 'the token was refused' : 'linked as 12 (link)');
            link = next;
        });
    }
    await promise('a close without a code is a lost link like any other', async () => {
        await link.lua('sleep(12)', { timeout: 60 });
        link.ws.close();
        const next = await hub.link(link);
        ensure(seconds(next.hellos[0].at - link.closed.at) < 12, 'too late');
        link = next;
    });
    await promise('after 90 s of silence it says hello again, on the same link', async () => {
        await link.get('ping');
        const from = Date.now();
        await until('a second hello', () => link.hellos.length > 1);
        const waited = seconds(link.hellos[1].at - from);
        ensure(waited > 88 && waited < 115, waited);
        same(link.closed, null);
    });
    await promise('if that is not answered within 10 s it links anew', async () => {
        hub.greets = false;
        await until('a third hello', () => link.hellos.length > 2);
        const next = await hub.link(link);
        hub.greets = true;
        const waited = seconds(next.hellos[0].at - link.hellos.at(-1).at);
        ensure(waited > 9 && waited < 28, waited);
        ensure(link.closed, 'the old link is still there');
        link = next;
        await until('greeted', () => hub.links.at(-1).hellos.length);
    });
    await promise('a refusal in place of hello-ok is shown, and the longest wait follows', async () => {
        hub.greets = false;
        link = hub.links.at(-1);
        link.ws.terminate();
        const next = await hub.link(link);
        next.tell({ type: 'error', error: 'no place for you' });
        next.ws.close(1008);
        await until('closed', () => next.closed);
        hub.greets = true;
        const after = await hub.link(next);
        ensure(seconds(after.hellos[0].at - next.closed.at) > 22, seconds(after.hellos[0].at - next.closed.at));
        await shows(made, 'the hub says: no place for you');
        link = after;
    });
    await promise('while there is no hub it tries for ever, less and less often, up to 30 s', async () => {
        await link.lua('sleep(12)', { timeout: 60 });
        hub.refuses = true;
        const from = hub.upgrades.length;
        link.ws.terminate();
        await until('eight tries', () => hub.upgrades.length >= from + 8, 30);
        const times = hub.upgrades.slice(from, from + 8).map(({ at }) => at);
        const gaps = times.slice(1).map((at, i) => seconds(at - times[i]));
        [2, 4, 8, 16, 30, 30, 30].forEach((most, i) =>
            ensure(gaps[i] > most * 0.7 && gaps[i] < most + 10, `gap ${i} is ${gaps[i]}; all: ${gaps}`));
        const lines = made.screen.filter((line) => line.includes('Could not connect'));
        same(lines.length, 1);
        hub.refuses = false;
        link = await hub.link(link);
        same(await link.get('ping'), 'pong from 12 (Label: link)');
    });
    await made.kill();
    await promise('an unloaded chunk: the computer comes back with the same id', async () => {
        await until('the socket to close', () => link.closed);
        const again = computer(hub, { label: 'link' }, fast);
        const next = await hub.link(link);
        same(next.hellos[0].computerId, 12);
        await again.kill();
    });

    const blocked = computer(hub, {}, { permitted: () => false, speed: 30 });
    await promise('"Domain not permitted" comes with what the owner of the server has to do', async () => {
        await shows(blocked, 'Domain not permitted');
        await shows(blocked, 'http.rules');
        await pause(300);
        same(blocked.screen.filter((line) => line.includes('Domain not permitted')).length, 1);
    });
    await blocked.kill();
    await promise('without http it says which setting is off, and ends', async () => {
        const off = computer(hub, { http: false });
        await shows(off, 'http.enabled');
        await off.gone;
        same(off.exit, 'done');
    });
    await promise('without websockets it says which setting is off, once, and tries again', async () => {
        const off = computer(hub, { websockets: false }, fast);
        await shows(off, '(Websocket connections are disabled); next try in');
        await shows(off, 'http.websocket_enabled');
        await pause(300);
        same([off.screen.length, off.exit], [2, null]);
        await off.kill();
    });
    await promise('an address may be a host, http:// or ws://, and a host may be called http-something', async () => {
        for (const [given, called] of [['httpbox.lan:3001', 'ws://httpbox.lan:3001/'], ['https', 'ws://https/'], ['wsbox', 'ws://wsbox/'],
            ['http://box:1', 'ws://box:1/'], ['https://box/x', 'wss://box/x'], ['wss://box', 'wss://box/'], ['ws://box/', 'ws://box/']]) {
            const urls = [];
            const made = computer(hub, { settings: { 'nexus.address': given } }, { permitted: (url) => void urls.push(url) });
            same(await until(`a call to ${called}`, () => urls[0]), called);
            await made.kill();
        }
    });
    await promise('without an address it says how to set one', async () => {
        const none = computer(hub, { files: { 'nexus.lua': NEXUS } });
        await shows(none, 'nexus.address');
        await none.gone;
    });
    hub.end();
}
