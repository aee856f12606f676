// Computers by npm's `ws`, an implementation that is not ours, against the real hub beside which this runs (NEXUS_LINKS,
// NEXUS_MCP, NEXUS_KEY): every case of the protocol as a client on another machine would meet it.
//
//     node ws_computers.mjs [ws-VERSION]

import { Mcp } from './real_hub.mjs';
import { ensure, env, outcome, promise, same, until, WebSocket } from './support.mjs';

const url = `ws://127.0.0.1:${new URL(env.NEXUS_LINKS).port}/`;
const model = await new Mcp(env.NEXUS_MCP, env.NEXUS_KEY).start();
const open = new Set();

/** A computer. It answers pings by itself, unless it is silent, and keeps all else that it hears. */
class Computer {
    constructor(options = {}) {
        this.heard = [];
        this.requests = [];
        this.socket = new WebSocket(url, options);
        open.add(this.socket);
        this.socket.on('message', (data, isBinary) => {
            ensure(!isBinary, 'a binary frame');
            ensure(data.every((byte) => byte < 128), 'a frame beyond ASCII');
            const frame = JSON.parse(data.toString());
            if (frame.type === 'request') this.requests.push(frame);
            else this.heard.push(frame);
            if (frame.type === 'request') this.answer?.(frame);
        });
        this.ready = new Promise((done, failed) => {
            this.socket.on('open', done);
            this.socket.on('error', failed);
            this.socket.on('unexpected-response', (_, response) => failed(new Error(`HTTP ${response.statusCode}`)));
        });
        this.closed = new Promise((done) => this.socket.on('close', (code, reason) => done([code, reason.toString()])));
        this.ready.catch(() => {});
    }

    say(value) {
        this.socket.send(typeof value === 'string' || Buffer.isBuffer(value) ? value : JSON.stringify(value));
    }

    next() {
        return until('a frame', () => this.heard.shift());
    }

    async greet(hello) {
        await this.ready;
        this.say({ type: 'hello', ...hello });
        same(await this.next(), { type: 'hello-ok' });
        return this;
    }

    end() {
        this.socket.terminate();
        return this.closed;
    }
}

const pong = (name) => function answer({ id, method }) {
    this.say(method === 'ping' ? { type: 'response', id, ok: true, result: `pong from ${name}` } : { type: 'response', id, ok: false, error: 'unknown method' });
};
const linked = (hello, answer, options) => Object.assign(new Computer(options), { answer }).greet(hello);
const probe = async (name = 'probe-computers') => {
    const result = await model.call(name);
    ensure(!result.isError, result);
    return result.content[0].text;
};
const health = async () => (await fetch(new URL('/health', env.NEXUS_MCP))).json();
const count = (computers) => until(`${computers} computers`, async () => (await health()).computers === computers);

await promise('ws: no computers', async () => same(await probe(), 'No computers connected.'));

await promise('ws: three computers, one of them silent, give exactly the documented lines', async () => {
    const turtle = await linked({ computerId: 12, computerLabel: 'base-turtle' }, pong('12 (Label: base-turtle)'));
    const bare = await linked({ computerId: 15 }, pong('whatever it says'));
    const farm = await linked({ computerId: 14, computerLabel: 'farm-turtle' }, undefined);
    await count(3);
    const lines = 'pong from 12 (Label: base-turtle)\ntimeout from 14 (Label: farm-turtle)\npong from 15 (Label: null)';
    same(await probe(), lines);
    same(await probe('probe_computers'), lines);
    ensure(!(await model.request('tools/list')).tools.some(({ name }) => name === 'probe_computers'), 'the alias is listed');
    const ids = [turtle, bare, farm].flatMap(({ requests }) => requests.map(({ id }) => id));
    same([ids.length, new Set(ids).size], [6, 6]);
    ensure(turtle.requests.every((request) => same(request, { type: 'request', id: request.id, method: 'ping' }) === undefined));
    // Late: dropped and counted, and no answer of the next probe.
    const { late } = (await health()).links;
    for (const { id } of farm.requests) farm.say({ type: 'response', id, ok: true, result: 'pong from 14' });
    await until('late answers are counted', async () => (await health()).links.late >= late + 2);
    same(await probe(), lines);
    await Promise.all([turtle.end(), bare.end(), farm.end()]);
    await count(0);
});

await promise('ws: no compression, whatever a client offers', async () => {
    const computer = await linked({ computerId: 1 }, pong('1'), { perMessageDeflate: true });
    same(computer.socket.extensions, '');
    await computer.end();
});

await promise('ws: a web page is refused', async () => {
    const page = new Computer({ origin: 'http://evil.example' });
    same(await page.ready.catch(({ message }) => message), 'HTTP 403');
});

await promise('ws: what cannot be understood is answered with an error, and the link goes on', async () => {
    const computer = new Computer();
    await computer.ready;
    const { faults } = (await health()).links;
    const bad = ['', 'hello', '[]', '{}', '{"type":"dance"}', Buffer.from([1, 2, 3]), '{"type":"response","id":"req-1","ok":true}',
        '{"type":"hello"}', '{"type":"hello","computerId":"12"}', '{"type":"hello","computerId":1.5}', '{"type":"hello","computerId":12,"computerLabel":{}}'];
    for (const frame of bad) {
        computer.say(frame);
        same((await computer.next()).type, 'error');
    }
    ensure((await health()).links.faults >= faults + bad.length, 'they are counted');
    await Object.assign(computer, { answer: pong('7') }).greet({ computerId: 7.0, computerLabel: '' });
    same(await probe(), 'pong from 7 (Label: null)');
    await computer.end();
    await count(0);
});

await promise('ws: the same id anew replaces the old connection with 4001', async () => {
    const old = await linked({ computerId: 3, computerLabel: 'old' }, pong('3'));
    const fresh = await linked({ computerId: 3, computerLabel: 'new' }, pong('3'));
    same((await old.closed)[0], 4001);
    same(await probe(), 'pong from 3 (Label: new)');
    const other = await linked({ computerId: 3, computerLabel: 'far', world: 'nether' }, pong('3'));
    same(await probe(), 'pong from 3 (Label: new, World: null)\npong from 3 (Label: far, World: nether)');
    await Promise.all([fresh.end(), other.end()]);
    await count(0);
});

await promise('ws: fragments, and letters beyond ASCII, are understood', async () => {
    const computer = new Computer();
    await computer.ready;
    const hello = JSON.stringify({ type: 'hello', computerId: 5, computerLabel: 'Kürbis 🎃' });
    computer.socket.send(hello.slice(0, 20), { fin: false });
    computer.socket.send(hello.slice(20), { fin: true });
    same(await computer.next(), { type: 'hello-ok' });
    computer.answer = pong('5');
    same(await probe(), 'pong from 5 (Label: Kürbis 🎃)');
    await computer.end();
});

await promise('ws: an error is told without its words, and a frame that is too large ends the link', async () => {
    const computer = await linked({ computerId: 6, computerLabel: 'rude' }, function refuse({ id }) {
        this.say({ type: 'response', id, ok: false, error: 'pong from 99 (Label: forged)' });
    });
    same(await probe(), 'error from 6 (Label: rude)');
    computer.say(JSON.stringify({ type: 'x'.repeat(122_880) }));
    same((await computer.closed)[0], 1009);
    await count(0);
});

for (const socket of open) socket.terminate();
process.exit(outcome.broken ? 1 : 0);
