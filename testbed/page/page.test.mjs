// The listener's page in a real browser, on real replicas with a file as their store.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, afterEach, test } from 'node:test';
import { PICTURES, SOLOIST, ended, environment, launch, open, picture as pictureOf, until, untilShown } from './browser.mjs';

let browser, folder, replicas, page, errors;

before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'page-test-'));
  replicas = [];
  ({ page, errors } = await open(browser.context));
});

afterEach(async () => {
  await page.close();
  for (const replica of replicas) replica.kill('SIGKILL');
  await Promise.all(replicas.map(ended));
  rmSync(folder, { recursive: true, force: true });
});

const shows = (id, text) => untilShown(page, id, text);
const picture = name => pictureOf(page, name);

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const ELECTED = () => ['--store', 'file:lease', '--lease-duration', '4s', '--renew-deadline', '3s', '--retry-period', '500ms'];

async function start(identity, port, flags = ELECTED()) {
  const replica = spawn(SOLOIST, ['run', '--name', 'orders', '--identity', identity, ...flags, '--listen', `127.0.0.1:${port}`, '--', 'sleep', '1000'],
    { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'], env: { ...environment(), TMPDIR: folder, XDG_RUNTIME_DIR: folder } });
  replicas.push(replica);
  replica.log = '';
  replica.stderr.on('data', data => { replica.log += data; });
  await until(() => fetch(`http://127.0.0.1:${port}/readyz`).then(answer => answer.ok, () => false), () => `${identity} to be ready:\n${replica.log}`);
  return replica;
}

/** A leader and a standby, and the page of each. */
async function pair() {
  const ports = [await freePort(), await freePort()];
  const leader = await start('orders-0', ports[0]);
  await until(() => fetch(`http://127.0.0.1:${ports[0]}/leader`).then(answer => answer.ok), () => 'a leader');
  const standby = await start('orders-1', ports[1]);
  return { leader, standby, ports, urls: ports.map(port => `http://127.0.0.1:${port}/`) };
}

test('the leader\'s page shows term, token, validity and child, and the bar shrinks', async () => {
  const { urls } = await pair();
  await page.goto(urls[0]);
  await shows('connection', 'live');
  await shows('leader', 'orders-0 (this replica)');
  await shows('child', 'up');
  assert.match(await page.textContent('#term'), /^\d+$/);
  assert.match(await page.textContent('#token'), /^\d+$/);
  assert.match(await page.textContent('#valid'), /^valid for \d\.\d s of 4 s$/);
  const width = () => page.evaluate(() => parseFloat(document.querySelector('#bar div').style.width));
  let last = await width();
  await until(async () => { const now = await width(); const shrank = now < last; last = now; return shrank; }, () => 'a bar that shrinks');
  await until(async () => { const now = await width(); const grew = now > last; last = now; return grew; }, () => 'a renewal');
  assert.ok(await page.evaluate(() => document.querySelectorAll('#drawing rect.mine').length > 0));
  assert.deepEqual(errors, []);
});

test('the child is shown with its processes, whether it is ready, its health, and its restarts', async () => {
  const port = await freePort();
  await start('orders-0', port, [...ELECTED(), '--health', 'exec:test ! -e ill', '--health-interval', '200ms', '--health-threshold', '1000']);
  await page.goto(`http://127.0.0.1:${port}/`);
  await shows('child', 'up');
  await shows('child-ready', 'yes');
  await shows('health', 'its checks pass');
  const [, pid, guard] = /^(\d+), its guard (\d+)$/.exec(await page.textContent('#pid'));
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  assert.equal(stat.split(') ')[1].split(' ')[1], guard, `the guard is the parent of the child: ${stat}`);
  writeFileSync(join(folder, 'ill'), '');
  await shows('health', 'checks in a row have failed');
  rmSync(join(folder, 'ill'));
  await shows('health', 'its checks pass');
  process.kill(Number(pid), 'SIGKILL');
  await shows('restarts', '1');
  await until(async () => { const now = await page.textContent('#pid'); return now !== '–' && !now.startsWith(pid); }, () => 'another process');
  assert.deepEqual(errors, []);
});

test('the ladder has the timeouts that the replica runs with, to scale', async () => {
  const port = await freePort();
  await start('orders-0', port, [...ELECTED(), '--grace-period', '40s', '--stop-timeout', '20s']);
  await page.goto(`http://127.0.0.1:${port}/`);
  await shows('ladder', '40 s grace period of the Pod');
  await shows('ladder', '20 s until soloist kills the child');
  await shows('ladder', '15 s that the child is told');
  await shows('ladder', '10 s that its stream is told');
  await shows('loss', '4.0 s lease');
  await shows('loss', '3.0 s without a renewal');
  const [grace, stop] = await page.evaluate(() => [...document.querySelectorAll('#ladder .rung')].map(rung => rung.getBoundingClientRect().width));
  assert.ok(Math.abs(stop / grace - 0.5) < 0.01, `${stop} of ${grace}`);
  assert.deepEqual(errors, []);
});

test('a handover is seen live, and in the timeline', async () => {
  const { leader, urls } = await pair();
  await page.goto(urls[1]);
  await shows('leader', 'orders-0');
  await shows('child', 'none');
  // A timeline that says something.
  if (PICTURES) await until(async () => /^for \d\d s/.test(await page.textContent('#since')), () => 'a first leader of ten seconds');
  leader.kill('SIGTERM');
  await ended(leader);
  await shows('leader', 'orders-1 (this replica)');
  await shows('child', 'up');
  await shows('announcer', 'orders-1 (this replica). Child here: up.');
  const lanes = await page.evaluate(() => [...document.querySelectorAll('#drawing text')].map(text => text.textContent));
  assert.ok(lanes.includes('orders-0 leads') && lanes.includes('orders-1 leads (this replica)'), lanes.join());
  const [before, after] = await page.evaluate(() => {
    const box = kind => document.querySelector(`#drawing rect.${kind}`).getBBox();
    return [box('other'), box('mine')].map(({ x, width }) => ({ x, width }));
  });
  assert.ok(before.x + before.width <= after.x + 2, `one after the other: ${JSON.stringify([before, after])}`);
  assert.match(await page.textContent('#rows tr:first-child'), /orders-1leads, term \d+/);
  assert.deepEqual(errors, []);
  if (PICTURES) {
    await until(async () => /^for \d\d s/.test(await page.textContent('#since')), () => 'a term of ten seconds');
    await page.emulateMedia({ colorScheme: 'light' });
    await picture('light');
    await page.emulateMedia({ colorScheme: 'dark' });
    await picture('dark');
    await page.setViewportSize({ width: 375, height: 812 });
    await until(() => page.evaluate(() => Number(document.querySelector('#drawing line').getAttribute('x2')) <= 375), () => 'a narrower drawing');
    await picture('phone');
  }
});

test('a page reconnects by itself when its replica is there again, and says so while it is not', async () => {
  const { leader, ports, urls } = await pair();
  await page.goto(urls[0]);
  await shows('connection', 'live');
  leader.kill('SIGKILL');
  await ended(leader);
  await shows('connection', 'not connected');
  await shows('notice', 'Not connected to this replica for');
  await shows('valid', 'not known while not connected');
  await shows('announcer', 'Not connected to this replica');
  await picture('not-connected');
  await start('orders-0', ports[0]);
  await shows('connection', 'live');
  await shows('leader', 'orders-1');
  assert.ok(await page.isHidden('#notice'));
  // What the browser itself says of a port where nobody listened is all that there is.
  const others = errors.filter(error => !(error.includes('net::ERR_') && error.includes('/events')));
  assert.deepEqual(others, []);
});

test('without an election the page says that every replica runs its child', async () => {
  const port = await freePort();
  await start('orders-0', port, ['--store', 'none']);
  await page.goto(`http://127.0.0.1:${port}/`);
  await shows('leader', 'every replica runs its child');
  await shows('child', 'up');
  assert.ok(await page.isHidden('#lease-card'));
  await picture('everywhere');
  assert.deepEqual(errors, []);
});

test('a phone, a keyboard and a screen reader can use it', async () => {
  const { urls } = await pair();
  await page.setViewportSize({ width: 320, height: 640 });
  await page.goto(urls[0]);
  await shows('child', 'up');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 320, `nothing is wider than the phone: ${wide}`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'window');
  await page.keyboard.press('ArrowUp');
  assert.equal(await page.inputValue('#window'), '60');
  for (const [role, name] of [['meter', 'validity left'], ['combobox', 'show'], ['img', /table below has it as text/], ['region', 'Who leads'], ['table', /timeline as text/], ['list', /told to stop/], ['list', /cannot be renewed/]]) {
    assert.equal(await page.getByRole(role, { name }).count(), 1, `${role} ${name}`);
  }
  assert.equal(await page.getAttribute('#announcer', 'aria-live'), 'polite');
  assert.deepEqual(errors, []);
});
