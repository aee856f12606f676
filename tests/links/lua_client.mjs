// The ComputerCraft client in clients/computercraft, run by Lua 5.1 in a stand-in for CC (computer.lua), over real sockets.
//
//     node lua_client.mjs ws-VERSION [client | hub]…
//
// `client` drives it from a hub that is made here, in accelerated time; `hub` installs it from the real hub beside which
// this runs (NEXUS_LINKS, NEXUS_MCP, NEXUS_KEY) and drives it through MCP. Without a word: both, if there is a hub.
// NEXUS_LUA and NEXUS_INSTALL name other files to test in their place, to see that a check can fail.

import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Computer, endAll } from './computer.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const env = process.env;
const words = process.argv.slice(2);
const cache = env.NEXUS_TEST_CACHE ?? join(HERE, '../../.cache/test');
const folder = words[0]?.startsWith('ws-') ? words.shift() : readdirSync(cache).find((name) => name.startsWith('ws-'));
const WebSocket = createRequire(join(cache, folder, 'here.js'))('ws');
const CLIENTS = join(HERE, '../../clients/computercraft');
const NEXUS = readFileSync(env.NEXUS_LUA ?? join(CLIENTS, 'nexus.lua'), 'utf8');
const INSTALL = readFileSync(env.NEXUS_INSTALL ?? join(CLIENTS, 'install.lua'), 'utf8');

// Promises

let broken = 0;
async function promise(name, work) {
    try {
        await work();
        console.log(`ok   ${name}`);
    } catch (problem) {
        broken += 1;
        const where = /lua_client\.mjs:\d+/.exec(problem.stack ?? '')?.[0] ?? '';
        console.log(`FAIL ${name}: ${String(problem.message ?? problem).replace(/\s+/g, ' ').slice(0, 1500)} (${where})`);
    }
}
function ensure(condition, otherwise) {
    if (!condition) throw new Error(typeof otherwise === 'string' ? otherwise : JSON.stringify(otherwise)?.slice(0, 1200));
}
const same = (a, b) => ensure(canon(a) === canon(b), `${canon(a)?.slice(0, 500)} is not ${canon(b)?.slice(0, 500)}`);
const canon = (value) => JSON.stringify(value, (_, v) =>
    v && typeof v === 'object' && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1))) : v);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function until(what, look, seconds = 15) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
        const found = await look();
        if (found) return found;
        if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
        await pause(4);
    }
}

// A hub, as the contract has it

class Hub {
    static async start() {
        const hub = new Hub();
        hub.links = [];
        hub.upgrades = [];
        hub.greets = true;
        hub.refuses = false;
        hub.pages = { '/nexus.lua': NEXUS, '/install.lua': INSTALL };
        hub.tokenNeeded = false;
        hub.http = createServer((request, answer) => {
            const page = hub.pages[request.url];
            if (page === undefined) return answer.writeHead(404).end('no');
            if (page === null) return request.socket.destroy();
            answer.writeHead(200, { 'Content-Type': 'text/plain' });
            answer.end(page.replaceAll('@ADDRESS@', hub.address).replaceAll('@TOKEN_NEEDED@', String(hub.tokenNeeded)));
        });
        hub.server = new WebSocket.Server({ noServer: true, perMessageDeflate: false, maxPayload: 122_880 });
        hub.http.on('upgrade', (request, socket, head) => {
            hub.upgrades.push({ at: Date.now(), url: request.url, headers: request.headers });
            if (hub.refuses) return socket.destroy();
            hub.server.handleUpgrade(request, socket, head, (ws) => hub.links.push(new Link(hub, ws)));
        });
        await new Promise((done) => hub.http.listen(0, '127.0.0.1', done));
        hub.address = `127.0.0.1:${hub.http.address().port}`;
        return hub;
    }

    /** The next link that says hello, after those that were. */
    async link(after = null, seconds = 15) {
        const from = after ? this.links.indexOf(after) + 1 : 0;
        return until('a link that says hello', () => this.links.slice(from).find((link) => link.hellos.length), seconds);
    }

    end() {
        for (const link of this.links) link.ws.terminate();
        this.http.closeAllConnections();
        this.http.close();
    }
}

let requests = 0;
class Link {
    constructor(hub, ws) {
        Object.assign(this, { hub, ws, hellos: [], answers: new Map(), frames: [], closed: null, largest: 0 });
        ws.on('error', () => {});
        ws.on('close', (code) => (this.closed = { code, at: Date.now() }));
        ws.on('message', (data) => {
            const text = data.toString();
            this.largest = Math.max(this.largest, data.length);
            const message = JSON.parse(text);
            this.frames.push({ at: Date.now(), text, message });
            if (message.type === 'hello') {
                this.hellos.push({ at: Date.now(), ...message });
                if (hub.greets) this.tell({ type: 'hello-ok' });
            } else if (message.type === 'response') {
                const known = this.answers.get(message.id) ?? [];
                this.answers.set(message.id, [...known, message]);
            }
        });
    }

    tell(message) {
        // As the hub does it: ASCII only.
        this.ws.send(JSON.stringify(message).replace(/[\x7f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')));
    }

    begin(method, params) {
        const id = `req-${++requests}`;
        this.tell({ type: 'request', id, method, ...(params === undefined ? {} : { params }) });
        return id;
    }

    async answer(id, seconds = 15) {
        return (await until(`an answer to ${id}`, () => this.answers.get(id), seconds))[0];
    }

    ask(method, params, seconds) {
        return this.answer(this.begin(method, params), seconds);
    }

    /** The result of a request that must work. */
    async get(method, params, seconds) {
        const answer = await this.ask(method, params, seconds);
        ensure(answer.ok === true && !('error' in answer), answer);
        return answer.result;
    }

    /** The error of a request that must not. */
    async refusal(method, params, seconds) {
        const answer = await this.ask(method, params, seconds);
        ensure(answer.ok === false && typeof answer.error === 'string', answer);
        return answer.error;
    }

    lua(code, more = {}) {
        return this.get('lua.run', { code, timeout: 10, ...more });
    }
}

const base64 = (data) => Buffer.from(data).toString('base64');
const computers = [];

/** A computer that has the client's file and runs it, unless told otherwise. */
function computer(hub, scenario = {}, how = {}) {
    const files = { 'nexus.lua': NEXUS.replaceAll('@ADDRESS@', hub.address), 'main.lua': 'shell.run("nexus")', ...scenario.files };
    const made = new Computer(WebSocket, { id: 12, ...scenario, files }, { speed: 10, ...how });
    computers.push(made);
    return made;
}

const all = (value) => JSON.stringify(value);
const shows = (made, text) => until(`"${text}" on the screen: ${all(made.screen)}`, () => made.screen.some((line) => line.includes(text)));

async function client() {
    await greeting();
    await lua();
    await ending();
    await files();
    await peripherals();
    await turtles();
    await redstone();
    await odd();
    await links();
    await programs();
    await installer();
    await promise('no computer went without a yield for as long as CC kills it', () => {
        same(computers.flatMap((made) => made.overruns), []);
    });
    await promise('no program ended with an error that nobody expected', () => {
        same(computers.flatMap((made) => [...made.errors, made.stderr].filter(Boolean)), []);
    });
}

async function greeting() {
    const hub = await Hub.start();
    const made = computer(hub, { label: 'base-turtle' });
    const link = await hub.link();
    await promise('hello: id, label, version, kind and capabilities, and nothing that was not set', () => {
        const { at, version, ...hello } = link.hellos[0];
        ensure(/^\d+\.\d+\.\d+$/.test(version), link.hellos[0]);
        same(hello, { type: 'hello', computerId: 12, computerLabel: 'base-turtle', kind: 'computer',
            capabilities: ['status', 'lua', 'files', 'peripherals', 'redstone', 'stop'] });
        same(hub.upgrades[0].url, '/');
        ensure(!hub.upgrades[0].headers.origin, hub.upgrades[0].headers);
    });
    await promise('the screen says whom it is linked to, and as what', () =>
        shows(made, `Nexus: linked to ${hub.address} as 12 (base-turtle)`));
    await promise('ping: the documented line', async () => same(await link.get('ping'), 'pong from 12 (Label: base-turtle)'));
    await promise('a new label is told by a hello on the same link', async () => {
        made.label('smørrebrød 🐢');
        await until('a second hello', () => link.hellos.length > 1);
        same(link.hellos[1].computerLabel, 'smørrebrød 🐢');
        same(await link.get('ping', {}), 'pong from 12 (Label: smørrebrød 🐢)');
        made.label(null);
        await until('a third hello', () => link.hellos.length > 2);
        ensure(!('computerLabel' in link.hellos[2]), link.hellos[2]);
        same(await link.get('ping', null), 'pong from 12 (Label: null)');
        same(hub.links.length, 1);
    });
    await promise('status: kind, uptime, space and host; what is not known is left out', async () => {
        const { uptime, freeSpace, version, ...rest } = await link.get('status', {});
        ensure(uptime > 0 && freeSpace > 0 && version.startsWith('ComputerCraft'), { uptime, freeSpace, version });
        same(rest, { kind: 'computer' });
    });
    await promise('an unknown method is refused, whatever it is called', async () => {
        for (const method of ['fly', '', 'lua', 'turtle', '__index', 7, undefined]) same(await link.refusal(method, {}), 'unknown method');
    });
    await promise('everything it says is ASCII', () => ensure(link.frames.every(({ text }) => /^[\x20-\x7e]*$/.test(text)), 'it is not'));
    await made.kill();

    const bare = computer(hub, { kind: 'pocket', settings: { 'nexus.token': 'tøken', 'nexus.world': 'survival' }, gps: true, at: { x: 1, y: 2, z: 3 } });
    const second = await hub.link(link);
    await promise('an unlabelled computer links, with its token and world from the settings, the token not in the address', async () => {
        const hello = second.hellos[0];
        ensure(!('computerLabel' in hello) && hello.token === 'tøken' && hello.world === 'survival' && hello.kind === 'pocket', hello);
        same(hub.upgrades.at(-1).url, '/');
        same(await second.get('ping'), 'pong from 12 (Label: null)');
        await shows(bare, `linked to ${hub.address} as 12`);
    });
    await promise('status: the position comes from GPS', () =>
        until('a position', async () => canon((await second.get('status')).position) === canon({ x: 1, y: 2, z: 3 })));
    await bare.kill();

    const silent = computer(hub, { kind: 'command', gps: 'silent', settings: { 'nexus.address': `ws://${hub.address}` }, files: { 'nexus.lua': NEXUS } }, { speed: 1 });
    const third = await hub.link(second);
    await promise('status does not wait for GPS; nexus.address may be a whole address', async () => {
        const from = Date.now();
        const told = await third.get('status');
        ensure(Date.now() - from < 1000 && !('position' in told) && told.kind === 'command', told);
    });
    await silent.kill();
    hub.end();
}

async function lua() {
    const hub = await Hub.start();
    const made = computer(hub, { label: 'lua' }, { speed: 4 });
    const link = await hub.link();
    await promise('lua.run: an expression gives its values', async () => {
        same(await link.lua('1 + 1, "two", nil, true, {1, 2}, {a = {}}'),
            { output: '', outputCut: false, results: [2, 'two', null, true, [1, 2], { a: {} }] });
        same((await link.lua('local x = 2 ^ 0.5 return x, 1e300, -7, 2^53')).results, [Math.SQRT2, 1e300, -7, 2 ** 53]);
        same((await link.lua('return')).results, []);
        same((await link.lua('')).results, []);
        same((await link.lua('nil')).results, [null]);
    });
    await promise('lua.run: what JSON cannot hold comes as text', async () => {
        const { results } = await link.lua('local t = {} t.me = t return 0/0, 1/0, print, t, {[1] = 1, [3] = 3}, {[true] = 1}');
        ensure(/nan/i.test(results[0]) && results[1] === 'inf' && results[2].startsWith('function') && results[3].me.startsWith('table'), results);
        same(results.slice(4), [{ 1: 1, 3: 3 }, { true: 1 }]);
    });
    await promise('lua.run: print, write, printError and term.write are caught, also after a wait, and not shown', async () => {
        const { output } = await link.lua('print("secret", 1) write("a") write("b\\n") printError("bad") term.write("t") print() sleep(0.2) print("later") _G.print("global") term.write("end")');
        same(output, 'secret\t1\nab\nbad\nt\nlater\nglobal\nend');
        await link.get('ping');
        ensure(!made.screen.some((line) => /secret|later|global|end$/.test(line)), made.screen);
    });
    await promise('lua.run: what a program shows that the code runs is caught, too', async () => {
        const { output } = await link.lua('local f = fs.open("p.lua", "w") f.write("print(1) sleep(0.1) print(2)") f.close() shell.run("p")');
        same(output.trimEnd(), '1\n2');
    });
    await promise('lua.run: an error is a result, with the output up to it', async () => {
        same(await link.lua('print("so far") error("boom")'), { output: 'so far\n', outputCut: false, results: [], error: 'run:1: boom' });
        ensure(/run:1:/.test((await link.lua('if if')).error), 'no syntax error');
        ensure((await link.lua('error()')).error.includes('nil'), 'error()');
        same((await link.lua('error({message = "from a table"})')).error, 'from a table');
        ensure((await link.lua('error(setmetatable({}, {__tostring = function() error("no") end}))')).error.length > 0, 'bad __tostring');
        same((await link.lua('\u001bLua')).error, 'only text is run');
        ensure((await link.refusal('lua.run', {})).includes('code'), 'no code');
    });
    await promise('lua.run: letters survive both ways; bytes that are no UTF-8 come as Latin-1', async () => {
        same((await link.lua('return "smørrebrød ✅ 🐢", #"ø🐢", "\\"\\\\/\\b\\0\\127"')).results, ['smørrebrød ✅ 🐢', 6, '"\\/\b\0\x7f']);
        same((await link.lua('return "\\233\\150", "ok\\255", "\\237\\160\\128"')).results, ['\u00e9\u0096', 'ok\u00ff', '\u00ed\u00a0\u0080']);
    });
    await promise('lua.run: stopped after its timeout, with the output so far', async () => {
        const told = await link.lua('print("on it") sleep(1000)', { timeout: 2 });
        same(told, { output: 'on it\n', outputCut: false, results: [], error: 'stopped after 2 s' });
    });
    const spinner = computer(hub, { label: 'spinner' }); // in faster time than the rest: it is to waste seconds of it
    const busy = await hub.link(link);
    await promise('lua.run: code that never yields is stopped, and the computer lives', async () => {
        for (const code of ['while true do end', 'while true do pcall(function() while true do end end) end',
            'coroutine.wrap(function() while true do end end)()', 'print(1) sleep(0.1) repeat until false']) {
            const told = await busy.lua(code, { timeout: 60 });
            ensure(told.error.includes('without yielding'), [code, told]);
        }
        same(await busy.get('ping'), 'pong from 12 (Label: spinner)');
        same(spinner.overruns, []);
    });
    await promise('lua.run: two that spin at once are both stopped, within what CC allows', async () => {
        const ids = [1, 2, 3].map(() => busy.begin('lua.run', { code: 'os.pullEvent("go") while true do end', timeout: 60 }));
        await busy.get('ping');
        spinner.event('go');
        for (const id of ids) ensure((await busy.answer(id)).result.error.includes('without yielding'), id);
        same(spinner.overruns, []);
    });
    await spinner.kill();
    await promise('lua.run: output is cut at 48,000 bytes, never within a letter', async () => {
        const told = await link.lua('print(("x"):rep(50000))');
        same([told.output.length, told.outputCut], [48000, true]);
        const wide = await link.lua('print("a" .. ("🐢"):rep(20000))');
        ensure(wide.outputCut && /^a🐢+$/u.test(wide.output), wide.output.slice(-20));
        const short = await link.lua('print(("x"):rep(47999))');
        same([short.output.length, short.outputCut], [48000, false]);
    });
    await promise('lua.run: results are cut at 48,000 bytes', async () => {
        const told = await link.lua('return 1, ("y"):rep(60000), {("z"):rep(60000)}, 4');
        ensure(told.resultsCut === true && told.results[0] === 1 && told.results[1].length > 40000 && told.results[2] === null, told);
        ensure(!('resultsCut' in (await link.lua('return 1'))), 'cut without need');
        const many = await link.lua('local t = {} for i = 1, 3000 do t[i] = ("w"):rep(50) end return unpack(t)');
        ensure(many.resultsCut && JSON.stringify(many.results).length < 60000, many.results.length);
    });
    await promise('lua.run: the largest answer fits into a frame', async () => {
        await link.lua('print(("\\200"):rep(48000)) return ("\\200"):rep(48000)');
        ensure(link.largest <= 120_000 && link.largest > 90_000, link.largest);
    });
    await promise('a frame of 119,000 bytes is understood', async () =>
        same((await link.lua(`--[[${'x'.repeat(118_800)}]] return 7`)).results, [7]));
    await promise('requests run beside each other: a ping and quick code while other code waits', async () => {
        const slow = link.begin('lua.run', { code: 'local _, what = os.pullEvent("door") return what', timeout: 100 });
        const timer = link.begin('lua.run', { code: 'sleep(1) return "slept"', timeout: 100 });
        same(await link.get('ping'), 'pong from 12 (Label: lua)');
        same((await link.lua('1')).results, [1]);
        same((await link.answer(timer)).result.results, ['slept']);
        ensure(!link.answers.has(slow), 'it did not wait');
        made.event('door', 'open');
        same((await link.answer(slow)).result.results, ['open']);
    });
    await promise('more requests than it takes at once are refused, and it goes on', async () => {
        const ids = Array.from({ length: 40 }, () => link.begin('lua.run', { code: 'sleep(2) return 1', timeout: 10 }));
        const told = await Promise.all(ids.map((id) => link.answer(id)));
        ensure(told.some(({ ok, error }) => !ok && error === 'too many requests at once'), told.length);
        ensure(told.filter(({ ok }) => ok).length >= 16, told.length);
    });
    await promise('lua.run: code runs in an environment of its own', async () => {
        await link.lua('leak = 5');
        same((await link.lua('return leak')).results, [null]);
        same((await link.lua('return type(shell.run), type(require), type(turtle)')).results, ['function', 'function', 'nil']);
    });
    await made.kill();
    hub.end();
}

async function ending() {
    const hub = await Hub.start();
    const made = computer(hub);
    const link = await hub.link();
    const mark = (name) => `sleep(3) fs.makeDir("${name}")`;
    const exists = async (name) => (await link.lua(`fs.exists("${name}")`)).results[0];
    await promise('cancel ends the work and gets no answer', async () => {
        const id = link.begin('lua.run', { code: mark('cancelled'), timeout: 60 });
        const control = link.begin('lua.run', { code: mark('control'), timeout: 60 });
        link.tell({ type: 'cancel', id });
        link.tell({ type: 'cancel', id: 'req-999999' });
        await link.answer(control);
        await link.lua('sleep(1)');
        same([await exists('cancelled'), await exists('control')], [false, true]);
        ensure(!link.answers.has(id), 'it answered');
    });
    await promise('stop ends all work at once; each request is told so', async () => {
        const ids = [link.begin('lua.run', { code: mark('stopped'), timeout: 60 }),
            link.begin('peripherals.call', { name: 'left', method: 'wait', arguments: [] })];
        await link.get('files.write', { path: '/half', transfer: 'ab', offset: 0, data: base64('x'), size: 2, last: false });
        same(await link.get('stop', {}), { stopped: 2 });
        for (const id of ids) {
            const { ok, error } = await link.answer(id);
            same({ ok, error }, { ok: false, error: 'stopped' });
        }
        await link.lua('sleep(4)');
        same(await exists('stopped'), false);
        same(await link.get('stop'), { stopped: 0 });
        ensure((await link.refusal('files.write', { path: '/half', transfer: 'ab', offset: 1, data: base64('y'), size: 2, last: true })).includes('offset 0'), 'it went on');
        const left = Object.keys(await made.dump()).filter((path) => /half|part/.test(path));
        same(left, []);
    });
    await promise('a lost link ends the work that it asked for', async () => {
        link.begin('lua.run', { code: mark('orphan'), timeout: 60 });
        await link.get('ping');
        link.ws.terminate();
        const next = await hub.link(link);
        same((await next.lua('sleep(4) return fs.exists("orphan")')).results, [false]);
    });
    await made.kill();
    hub.end();
}

async function files() {
    const hub = await Hub.start();
    const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    const made = computer(hub, { capacity: 400_000, files: { 'docs/b.txt': 'bb', 'docs/a.txt': 'a', 'docs/deep/x': '' } });
    const link = await hub.link();
    const write = (path, transfer, offset, data, size, last) =>
        link.ask('files.write', { path, transfer, offset, data: base64(data), size, last });
    const read = async (path) => {
        const parts = [];
        for (let offset = 0; ;) {
            const { data, size } = await link.get('files.read', { path, offset, length: 60000 });
            const part = Buffer.from(data, 'base64');
            parts.push(part);
            offset += part.length;
            if (offset >= size || part.length === 0) return Buffer.concat(parts);
        }
    };
    await promise('files.list: sorted, with kind, size, time and whether it is read-only', async () => {
        const { path, entries, more } = await link.get('files.list', { path: 'docs/' });
        same([path, more, entries.map(({ name, kind, size, readOnly }) => [name, kind, size, readOnly])],
            ['/docs', false, [['a.txt', 'file', 1, false], ['b.txt', 'file', 2, false], ['deep', 'folder', 0, false]]]);
        ensure(entries[0].modified > 1e12, entries[0]);
        const root = await link.get('files.list', { path: '/' });
        ensure(root.path === '/' && root.entries.some(({ name, readOnly }) => name === 'rom' && readOnly), root);
        same((await link.get('files.list', { path: '/docs', after: 'a.txt' })).entries.map(({ name }) => name), ['b.txt', 'deep']);
        same((await link.get('files.list', { path: 'docs/deep/../deep/..', after: 'zz' })).entries, []);
    });
    await promise('files.list: at most 500 at a time, then the rest', async () => {
        await link.lua('for i = 1, 620 do fs.open(("many/%04d"):format(i), "w").close() end');
        const first = await link.get('files.list', { path: '/many' });
        same([first.entries.length, first.more, first.entries[499].name], [500, true, '0500']);
        const rest = await link.get('files.list', { path: '/many', after: '0500' });
        same([rest.entries.length, rest.more], [120, false]);
    });
    await promise('files: what is not there, or is something else, is refused with its name', async () => {
        ensure((await link.refusal('files.list', { path: '/nowhere' })).includes('/nowhere'), 'list');
        ensure((await link.refusal('files.list', { path: '/docs/a.txt' })).includes('not a folder'), 'list a file');
        ensure((await link.refusal('files.read', { path: '/nowhere', offset: 0, length: 1 })).includes('no such file'), 'read');
        ensure((await link.refusal('files.read', { path: '/docs', offset: 0, length: 1 })).includes('folder'), 'read a folder');
        ensure((await link.refusal('files.read', { path: '/docs/a.txt', offset: -1, length: 1 })).includes('offset'), 'offset');
        ensure((await link.refusal('files.read', { path: 7, offset: 0, length: 1 })).includes('path'), 'path');
    });
    await promise('files.write and files.read: every byte, whole files in pieces, folders are made', async () => {
        const big = Buffer.concat(Array.from({ length: 500 }, () => every));
        for (let offset = 0; offset < big.length; offset += 60000) {
            const part = big.subarray(offset, offset + 60000);
            const told = await write('/new/folder/big.bin', 'c0ffee', offset, part, big.length, offset + part.length === big.length);
            same(told.result, { written: part.length });
            const there = (await link.lua('fs.exists("/new/folder/big.bin")')).results[0];
            same(there, offset + part.length === big.length);
        }
        ensure((await read('/new/folder/big.bin')).equals(big), 'other bytes came back');
        const { data, size, modified } = await link.get('files.read', { path: '/new/folder/big.bin', offset: 127_990, length: 100 });
        ensure(Buffer.from(data, 'base64').equals(big.subarray(127_990)) && size === big.length && modified > 1e12, size);
        same((await link.get('files.read', { path: '/new/folder/big.bin', offset: 128_000, length: 9 })).data, '');
        same((await link.get('files.list', { path: '/new/folder' })).entries.map(({ name }) => name), ['big.bin']);
        for (const size of [0, 1, 2, 3, 4]) {
            same((await write('/small', 'e', 0, every.subarray(250, 250 + size), size, true)).result, { written: size });
            ensure((await read('/small')).equals(every.subarray(250, 250 + size)), size);
        }
    });
    await promise('files.write: a file is replaced whole, or stays as it was', async () => {
        same((await write('/docs/a.txt', '1', 0, 'new', 3, true)).ok, true);
        same(String(await read('/docs/a.txt')), 'new');
        const wrong = [
            ['a wrong offset', async () => { await write('/docs/a.txt', '2', 0, 'abc', 6, false); return write('/docs/a.txt', '2', 4, 'de', 6, true); }],
            ['too few bytes', () => write('/docs/a.txt', '3', 0, 'abc', 6, true)],
            ['too many bytes', () => write('/docs/a.txt', '4', 0, 'abcdefg', 6, true)],
            ['no beginning', () => write('/docs/a.txt', '5', 3, 'def', 6, true)],
            ['another path', async () => { await write('/docs/a.txt', '6', 0, 'abc', 6, false); return write('/docs/b.txt', '6', 3, 'def', 6, true); }],
            ['no base64', () => link.ask('files.write', { path: '/docs/a.txt', transfer: '7', offset: 0, data: '%%%%', size: 3, last: true })],
            ['an odd transfer', () => write('/docs/a.txt', '../x', 0, 'abc', 3, true)],
            ['no space', () => write('/docs/a.txt', '8', 0, 'abc', 1_000_000, false)],
        ];
        for (const [what, run] of wrong) {
            const { ok, error } = await run();
            ensure(ok === false && error, what);
            same([what, String(await read('/docs/a.txt')), String(await read('/docs/b.txt'))], [what, 'new', 'bb']);
        }
        same((await link.get('files.list', { path: '/docs' })).entries.map(({ name }) => name), ['a.txt', 'b.txt', 'deep']);
    });
    await promise('files.write: read-only and folders are refused; a disk that fills up leaves nothing behind', async () => {
        ensure((await write('/rom/x.lua', '9', 0, 'x', 1, true)).error.includes('read-only'), 'rom');
        ensure((await write('/docs', 'a', 0, 'x', 1, true)).error.includes('folder'), 'folder');
        ensure((await write('/', 'a', 0, 'x', 1, true)).error.includes('folder'), 'root');
        const free = (await link.get('status')).freeSpace;
        await write('/fill', 'b', 0, Buffer.alloc(60000), free, false);
        await link.lua(`local f = fs.open("hog", "w") f.write(("x"):rep(${free} - 60000 - 100)) f.close()`);
        ensure((await write('/fill', 'b', 60000, Buffer.alloc(50000), free, false)).error.includes('space'), 'it had space');
        const left = Object.keys(await made.dump()).filter((path) => /fill|part|\.old/.test(path));
        same(left, []);
        await link.lua('fs.delete("hog")');
    });
    await promise('files.write: what a reboot left behind is cleared away', async () => {
        await link.lua('local f = fs.open("docs/.nexus-dead.part", "w") f.write("x") f.close()');
        same((await write('/docs/a.txt', 'd', 0, 'last', 4, true)).ok, true);
        same((await link.get('files.list', { path: '/docs' })).entries.map(({ name }) => name), ['a.txt', 'b.txt', 'deep']);
    });
    await made.kill();

    const stubborn = computer(hub, { files: { 'keep.txt': 'old' }, move_fails: 'keep.txt' });
    const second = await hub.link(link);
    await promise('files.write: if the new file cannot take its place, the old one stays', async () => {
        const error = await second.refusal('files.write', { path: '/keep.txt', transfer: 'f', offset: 0, data: base64('new'), size: 3, last: true });
        ensure(error.includes('denied'), error);
        const left = await stubborn.dump();
        same([left['/keep.txt'], Object.keys(left).filter((path) => /part/.test(path))], ['old', []]);
    });
    await stubborn.kill();
    hub.end();
}

async function peripherals() {
    const hub = await Hub.start();
    const made = computer(hub);
    const link = await hub.link();
    await promise('peripherals.list: names, all types, methods', async () => same(await link.get('peripherals.list', {}), { peripherals: [
        { name: 'left', types: ['energy_cell', 'inventory'], methods: ['describe', 'echo', 'fail', 'getEnergy', 'wait'] },
        { name: 'monitor_3', types: ['monitor'], methods: ['getTextScale'] },
    ] }));
    const call = (method, ...rest) => link.get('peripherals.call', { name: 'left', method, arguments: rest });
    await promise('peripherals.call: arguments and results, with their nulls and lists', async () => {
        same(await call('getEnergy'), { results: [12345] });
        same(await call('echo', 1, null, 'ø', [1, 'b', []], { a: { b: true } }, null), { results: [1, null, 'ø', [1, 'b', {}], { a: { b: true } }, null] });
        const [described] = (await call('describe')).results;
        ensure(described.fine === true && described.call.startsWith('function'), described);
        same((await link.get('peripherals.call', { name: 'left', method: 'getEnergy' })).results, [12345]);
        same((await link.get('peripherals.call', { name: 'left', method: 'echo', arguments: {} })).results, []);
    });
    await promise('peripherals.call: its error, an unknown peripheral and an unknown method are told', async () => {
        same(await link.refusal('peripherals.call', { name: 'left', method: 'fail', arguments: [] }), 'the cell leaks');
        ensure((await link.refusal('peripherals.call', { name: 'top', method: 'x', arguments: [] })).includes('no peripheral named top'), 'top');
        ensure((await link.refusal('peripherals.call', { name: 'left', method: 'x', arguments: [] })).includes('no method x'), 'x');
        ensure((await link.refusal('peripherals.call', { name: 'left', method: 'echo', arguments: 'x' })).includes('arguments'), 'arguments');
    });
    await made.kill();
    hub.end();
}

async function turtles() {
    const hub = await Hub.start();
    const made = computer(hub, { kind: 'turtle', gps: true, fuel: 50, label: 'digger' });
    const link = await hub.link();
    const step = (action, more = {}) => link.get('turtle', { action, ...more });
    await promise('a turtle says so, and that it can move', () => {
        const { kind, capabilities } = link.hellos[0];
        same([kind, capabilities], ['turtle', ['status', 'lua', 'files', 'peripherals', 'turtle', 'redstone', 'stop']]);
    });
    await promise('turtle: status has fuel and position', async () => {
        const told = await until('a position', async () => {
            const now = await link.get('status');
            return now.position && now;
        });
        same([told.kind, told.fuel, told.fuelLimit, told.position], ['turtle', 50, 20000, { x: 100, y: 64, z: -20 }]);
    });
    await promise('turtle: a step tells fuel, position and slot; where it looks is found out by walking', async () => {
        same(await step('forward'), { ok: true, fuel: 49, position: { x: 101, y: 64, z: -20 }, facing: 'east', selected: 1 });
        same((await step('turnRight')).facing, 'south');
        same((await step('forward')).position, { x: 101, y: 64, z: -19 });
        same((await step('back')).position, { x: 101, y: 64, z: -20 });
        same((await step('turnLeft')).facing, 'east');
        same((await step('up')).position, { x: 101, y: 65, z: -20 });
        same((await step('down')).position, { x: 101, y: 64, z: -20 });
        await step('forward');
    });
    await promise('turtle: what does not work is no error, but says why', async () => {
        same(await step('forward'), { ok: false, reason: 'Movement obstructed', fuel: 44, position: { x: 102, y: 64, z: -20 }, facing: 'east', selected: 1 });
        const { ok, reason } = await step('craft');
        same([ok, reason], [false, 'needs a crafting table']);
        same((await step('attack')).reason, 'Nothing to attack here');
    });
    await promise('turtle: looks, digs and places', async () => {
        const seen = await step('inspect');
        same([seen.ok, seen.result], [true, { name: 'minecraft:stone', state: {}, tags: { 'minecraft:mineable/pickaxe': true } }]);
        same([(await step('detect')).result, (await step('detectUp')).result, (await step('compare')).result], [true, false, false]);
        same((await step('dig')).ok, true);
        same([(await step('inspect')).ok, (await step('inspect')).reason], [false, 'No block to inspect']);
        same((await step('select', { slot: 2 })).selected, 2);
        same((await step('place', { text: 'hello' })).ok, true);
    });
    await promise('turtle: inventory, refuel, drop and transfer', async () => {
        same((await step('inventory')).result, { selected: 2, slots: [{ slot: 1, name: 'minecraft:coal', count: 3 },
            { slot: 2, name: 'minecraft:cobblestone', count: 59 }, { slot: 3, name: 'minecraft:cobblestone', count: 1 }] });
        await step('select', { slot: 1 });
        same((await step('refuel', { count: 2 })).fuel, 204);
        same((await step('transferTo', { slot: 5 })).ok, true);
        await step('select', { slot: 2 });
        await step('drop', { count: 9 });
        same((await step('inventory')).result.slots.map(({ slot, count }) => [slot, count]), [[2, 50], [3, 1], [5, 1]]);
        same((await step('refuel')).reason, 'No items to combust');
    });
    await promise('turtle: unknown actions and wrong slots are refused', async () => {
        for (const params of [{}, { action: 'fly' }, { action: 'native' }, { action: 'select' }, { action: 'select', slot: 17 },
            { action: 'select', slot: 1.5 }, { action: 'drop', count: 'x' }]) await link.refusal('turtle', params);
    });
    await promise('turtle: moves of other code are counted, too', async () => {
        await link.lua('turtle.up() turtle.turnLeft() turtle.forward()');
        const { position, facing } = await step('detect');
        same([position, facing], [{ x: 102, y: 65, z: -21 }, 'north']);
    });
    await promise('turtle: a move that was cancelled midway does not leave a wrong position', async () => {
        const id = link.begin('turtle', { action: 'up' });
        link.tell({ type: 'cancel', id });
        const { position } = await link.get('turtle', { action: 'inventory' });
        ensure(position === undefined, position);
        await link.lua('sleep(40)', { timeout: 60 });
        await link.get('status');
        await until('a position', async () => canon((await link.get('status')).position) === canon({ x: 102, y: 66, z: -21 }));
    });
    await promise('an answer that is too large is refused, and the link stays', async () => {
        await link.lua('_G.turtle.inspect = function() return true, { name = ("x"):rep(130000) } end');
        same(await link.refusal('turtle', { action: 'inspect' }), 'answer too large');
        same(await link.get('ping'), 'pong from 12 (Label: digger)');
    });
    await made.kill();

    const lost = computer(hub, { kind: 'turtle', fuel: 1 });
    const second = await hub.link(link);
    await promise('turtle: without GPS it moves all the same, and claims no position', async () => {
        const first = await second.get('turtle', { action: 'forward' });
        same([first.ok, 'position' in first, 'facing' in first, first.fuel], [true, false, false, 0]);
        same((await second.get('turtle', { action: 'forward' })).reason, 'Out of fuel');
    });
    await lost.kill();
    hub.end();
}

async function redstone() {
    const hub = await Hub.start();
    const made = computer(hub);
    const link = await hub.link();
    await promise('redstone.get and redstone.set: all six sides, bundled cables where there are some', async () => {
        const { sides } = await link.get('redstone.get', {});
        same(sides.back, { input: 7, output: 0 });
        same(sides.left, { input: 0, output: 0, bundledInput: 3 });
        same(Object.keys(sides).length, 6);
        same((await link.get('redstone.set', { side: 'top', strength: 15 })).sides.top, { input: 0, output: 15 });
        same((await link.get('redstone.set', { side: 'top', bundled: 65535 })).sides.top, { input: 0, output: 15, bundledOutput: 65535 });
        for (const params of [{ side: 'north', strength: 1 }, { side: 'top', strength: 16 }, { side: 'top' }, { strength: 1 },
            { side: 'top', bundled: -1 }, { side: 'top', strength: 1.5 }]) await link.refusal('redstone.set', params);
    });
    await made.kill();
    hub.end();
}

async function odd() {
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

async function links() {
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
    for (const [what, scenario, word] of [['http', { http: false }, 'http.enabled'], ['websockets', { websockets: false }, 'http.websocket_enabled']]) {
        await promise(`without ${what} it says which setting is off, and ends`, async () => {
            const off = computer(hub, scenario);
            await shows(off, word);
            await off.gone;
            same(off.exit, 'done');
        });
    }
    await promise('without an address it says how to set one', async () => {
        const none = computer(hub, { files: { 'nexus.lua': NEXUS } });
        await shows(none, 'nexus.address');
        await none.gone;
    });
    hub.end();
}

async function programs() {
    const hub = await Hub.start();
    let last = null;
    const next = async () => (last = await hub.link(last));
    await promise('as a module under parallel: quiet, beside a program, and gone when that ends and says so', async () => {
        const made = computer(hub, { files: { 'main.lua': `
            local nexus = require("nexus")
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
            parallel.waitForAny(require("nexus").run, function() sleep(100) end) print("slept it out") os.pullEvent("x")` } }, { speed: 50 });
        await shows(made, 'slept it out');
        same(made.screen, ['slept it out']);
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
            'tab.lua': 'local n = require("nexus") parallel.waitForAny(n.run, function() os.pullEvent("finish") end) n.stop()',
            'main.lua': `
                shell.openTab("tab")
                sleep(1)
                parallel.waitForAny(require("nexus").run, function() os.pullEvent("x") end)`,
        } }, { speed: 30 });
        const link = await next();
        await link.lua('sleep(20)', { timeout: 30 });
        same(hub.links.filter(({ closed }) => !closed).length, 1);
        made.event('finish');
        await until('the first link to close', () => link.closed);
        same((await (await next()).lua('3')).results, [3]);
        await made.kill();
    });
    hub.end();
}

async function installer() {
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

const parts = { client, hub: async () => (await import('./real_hub.mjs')).run({ promise, ensure, same, until, shows, WebSocket, env }) };
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
    broken += 1;
    console.log(`FAIL the checks run: ${problem.stack}`);
} finally {
    clearTimeout(limit);
    await endAll();
    process.exit(broken ? 1 : 0);
}
