// The Lua client: its hello, `lua.run`, and how work ends.

import { Computer } from './computer.mjs';
import { base64, canon, computer, ensure, Hub, NEXUS, promise, same, shows, until, WebSocket } from './support.mjs';

export async function greeting() {
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

export async function lua() {
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
            ensure(told.error.includes('ran 5 s without yielding'), [code, told]);
        }
        same(await busy.get('ping'), 'pong from 12 (Label: spinner)');
        same(spinner.overruns, []);
    });
    await promise('lua.run: two that spin at once are both stopped, within what CC allows', async () => {
        const ids = [1, 2, 3].map(() => busy.begin('lua.run', { code: 'os.pullEvent("go") while true do end', timeout: 60 }));
        await busy.get('ping');
        spinner.event('go');
        for (const id of ids) ensure((await busy.answer(id)).result.error.includes('ran 5 s without yielding'), id);
        same(spinner.overruns, []);
    });
    await promise('lua.run: so is what the code starts by parallel, and a program that it runs', async () => {
        for (const code of ['parallel.waitForAny(function() while true do end end, sleep)',
            'parallel.waitForAll(function() sleep(0.2) parallel.waitForAny(function() while true do end end) end)',
            'local f = fs.open("spin.lua", "w") f.write("sleep(0.1) while true do end") f.close() shell.run("spin")']) {
            const told = await busy.lua(code, { timeout: 60 });
            ensure((told.error ?? told.output).includes('ran 5 s without yielding'), [code, told]);
        }
        same(spinner.overruns, []);
        same((await busy.lua('coroutine.wrap(function(...) return coroutine.yield(...) end)(1, 2)')).results, [1, 2]);
        ensure((await busy.lua('coroutine.wrap(function() error("inside", 0) end)()')).error === 'inside', 'wrap');
    });
    await promise('lua.run: a tab that the code opens is not watched by us: it may take its time', async () => {
        await busy.lua(`local f = fs.open("slow.lua", "w")
            f.write('os.pullEvent("work") local t = os.epoch("utc") while os.epoch("utc") - t < 6000 do end print(coroutine.create ~= _G.seen and "worked")') f.close()
            _G.seen = coroutine.create
            shell.openTab("slow")`);
        spinner.event('work');
        await shows(spinner, 'worked');
        same(spinner.overruns, []);
    });
    await spinner.kill();
    await promise('the stand-in ends what never yields, as CC does', async () => {
        const stuck = new Computer(WebSocket, { files: { 'main.lua': 'while true do end' } }, { speed: 30 });
        await stuck.gone;
        same([stuck.screen, stuck.overruns.length], [['Too long without yielding'], 1]);
    });
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

export async function ending() {
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
