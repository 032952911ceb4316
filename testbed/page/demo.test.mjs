// The demo's page in a real browser.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, afterEach, test } from 'node:test';
import { PICTURES, SOLOIST, ended, environment, launch, open, picture, until, untilShown } from './browser.mjs';

let browser, folder, demo, url, page, errors;

before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'demo-test-'));
  demo = spawn(SOLOIST, ['demo'], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...environment(), TMPDIR: folder } });
  demo.said = '';
  demo.stdout.on('data', data => { demo.said += data; });
  await until(() => /^page: \S+$/m.test(demo.said), () => 'the page\'s address');
  url = /^page: (\S+)$/m.exec(demo.said)[1];
  ({ page, errors } = await open(browser.context));
});

afterEach(async () => {
  await page.close();
  demo.kill('SIGINT');
  await ended(demo);
  rmSync(folder, { recursive: true, force: true });
});

const shows = (id, text) => untilShown(page, id, text);
const switches = () => page.evaluate(() => document.querySelectorAll('#switches tr').length);
const button = wish => page.locator(`button[data-wish="${wish}"]`);

/** Pressed, and over: whoever was hurt is well again. */
async function hurt(wish, press = () => button(wish).click()) {
  const before = await switches();
  await until(() => button(wish).isEnabled(), () => `the button ${wish}`);
  await press();
  await until(async () => await switches() > before && await button(wish).isEnabled(), () => `what ${wish} does to be over`);
}

test('each button hurts the leader in its way, and the proof goes on', async () => {
  const begun = Date.now();
  await page.goto(url);
  await shows('verdict', 'It holds');
  assert.ok(Date.now() - begun < 10_000, 'the first picture is there soon');
  const causes = {
    kill: 'leader killed', freeze: 'leader frozen', 'cut-off': 'leader cut off', 'crash-child': 'child crashed',
    'kill-guard': 'guard killed', 'hand-over': 'handed over', stop: 'leader stopped',
  };
  assert.deepEqual((await page.evaluate(() => [...document.querySelectorAll('.buttons button')].map(one => one.dataset.wish))).sort(), Object.keys(causes).sort());
  for (const [wish, cause] of Object.entries(causes)) {
    await hurt(wish);
    assert.equal(await page.textContent('#switches tr:first-child th'), cause);
    assert.match(await page.textContent('#switches tr:first-child td:last-child'), /^\d+ ms$|^\d+\.\d\d s$/);
    assert.equal(await page.textContent('#overlaps'), '0');
  }
  await shows('verdict', 'It holds');
  assert.match(await page.textContent('#messages'), /^1 to \d+: each once and in order$/);
  assert.match(await page.textContent('#story'), /is frozen \(SIGSTOP\)/);
  await picture(page, 'demo-light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture(page, 'demo-dark');
  // One after the other, as the children wrote it.
  const bars = await page.evaluate(() => [...document.querySelectorAll('#drawing rect.mine')].map(rect => { const { x, width } = rect.getBBox(); return [x, x + width]; }));
  assert.ok(bars.length > 1);
  for (const [index, [from]] of bars.entries()) if (index) assert.ok(from >= bars[index - 1][1] - 1.5, JSON.stringify(bars));
  await button('end').click();
  await shows('connection', 'the demo is over');
  await ended(demo);
  assert.equal(demo.exitCode, 0, demo.said);
  assert.match(demo.said, /The proof holds\./);
  assert.deepEqual(readdirSync(folder), []);
  assert.ok(await button('kill').isDisabled());
  assert.deepEqual(errors, []);
});

test('a keyboard, a phone and a screen reader can use it', async () => {
  await page.setViewportSize({ width: 320, height: 640 });
  await page.goto(url);
  await shows('verdict', 'It holds');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 320, `nothing is wider than the phone: ${wide}`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.wish), 'kill');
  await hurt('kill', () => page.keyboard.press('Enter'));
  if (PICTURES) await picture(page, 'demo-phone');
  for (const [role, name] of [['button', 'Cut it off'], ['img', /story below/], ['region', /The proof/], ['table', /newest first/], ['list', 'The story']]) {
    assert.equal(await page.getByRole(role, { name }).count(), 1, `${role} ${name}`);
  }
  await shows('announcer', 'so far messages');
  assert.deepEqual(errors, []);
});

test('another site can neither press a button nor frame the page, even if it knows the address', async () => {
  await page.goto(url);
  await shows('verdict', 'It holds');
  const other = createServer((_, answer) => { answer.setHeader('content-type', 'text/html'); answer.end('<title>another</title>'); }).listen(0, '127.0.0.1');
  await once(other, 'listening');
  try {
    const { page: attacker } = await open(browser.context);
    await attacker.goto(`http://127.0.0.1:${other.address().port}/`);
    const told = await attacker.evaluate(url => fetch(`${url}kill`, { method: 'POST', mode: 'no-cors' }).then(() => 'an answer', () => 'nothing'), url);
    assert.equal(told, 'nothing');
    const posted = attacker.waitForResponse(answer => answer.url() === `${url}freeze`);
    await attacker.evaluate(url => {
      const form = document.createElement('form');
      form.method = 'post';
      form.action = `${url}freeze`;
      document.body.append(form);
      form.submit();
    }, url);
    assert.equal((await posted).status(), 403);
    await attacker.goto(`http://127.0.0.1:${other.address().port}/`);
    await attacker.evaluate(url => {
      const frame = document.createElement('iframe');
      frame.src = url;
      document.body.append(frame);
      return new Promise(loaded => frame.addEventListener('load', loaded));
    }, url);
    assert.ok(attacker.frames().every(frame => frame.url() !== url), 'the page is in a frame');
    await attacker.close();
  } finally {
    other.close();
  }
  assert.equal(await switches(), 0);
  assert.doesNotMatch(demo.said, /SIGKILL|SIGSTOP/);
});
