// The Lua client: files, peripherals, turtles, redstone.

import { base64, canon, computer, ensure, Hub, promise, same, shows, until } from './support.mjs';

export async function files() {
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

export async function peripherals() {
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

export async function turtles() {
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

    const helped = computer(hub, { kind: 'turtle', gps: true, files: { 'main.lua': `
        local up, down = turtle.up, turtle.down
        function turtle.up() up() error("it broke", 0) end
        function turtle.down() down() print("down") os.pullEvent("never") end
        parallel.waitForAny(require("/nexus").run, function()
            os.pullEvent("go")
            print(pcall(turtle.up))
            os.pullEvent("go")
            print(pcall(turtle.down))
            os.pullEvent("never")
        end)` } });
    const third = await hub.link(second);
    const height = async (y) => until(`a position ${y} high`, async () => (await third.get('status')).position?.y === y);
    await promise('turtle: a move that ends by an error, or by Ctrl+T, leaves no wrong position, and GPS tells the right one', async () => {
        await height(64);
        helped.event('go');
        await shows(helped, 'false\tit broke');
        ensure(!('position' in (await third.get('turtle', { action: 'inventory' }))), 'it claims a position');
        await third.lua('sleep(31)', { timeout: 60 });
        await height(65);
        helped.event('go');
        await shows(helped, 'down');
        helped.event('terminate');
        await shows(helped, 'false\tTerminated');
        await third.lua('sleep(31)', { timeout: 60 });
        await height(64);
    });
    await helped.kill();

    const listening = computer(hub, { kind: 'turtle', gps: true, modem: true, files: { 'main.lua': `
        local locate = gps.locate
        function gps.locate(...) print("asked") return locate(...) end
        peripheral.call("top", "open", 65534)
        parallel.waitForAny(require("/nexus").run, function()
            os.pullEvent("closed")
            peripheral.call("top", "close", 65534)
            os.pullEvent("never")
        end)` } });
    const fourth = await hub.link(third);
    await promise('GPS is not asked while another program does; one that stays open is no reason for ever', async () => {
        ensure(!('position' in (await fourth.get('status'))), 'it has a position');
        await fourth.lua('sleep(1)');
        same([(await fourth.get('status')).position, listening.screen], [undefined, []]);
        await fourth.lua('sleep(11)', { timeout: 60 });
        await until('a position', async () => (await fourth.get('status')).position);
        same((await fourth.lua('return peripheral.call("top", "isOpen", 65534)')).results, [true]);
        listening.event('closed');
        await fourth.lua('sleep(31)', { timeout: 60 });
        const asked = listening.screen.length;
        await until('a second question', async () => (await fourth.get('status')) && listening.screen.length > asked);
        await until('a closed channel', async () => !(await fourth.lua('return peripheral.call("top", "isOpen", 65534)')).results[0]);
    });
    await listening.kill();
    hub.end();
}

export async function redstone() {
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
