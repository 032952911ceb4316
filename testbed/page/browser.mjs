// What the browser's tests share: a browser with a profile of its own, pictures, and waiting with a deadline.
// SOLOIST is the program; SCREENSHOTS, if set, the folder for pictures; CHROMIUM another browser than Debian's.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

export const SOLOIST = resolve(process.env.SOLOIST ?? '../../target/debug/soloist');
export const PICTURES = process.env.SCREENSHOTS;
export const LIMIT = 30_000;
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export async function launch() {
  if (PICTURES) mkdirSync(PICTURES, { recursive: true });
  const profile = mkdtempSync(join(tmpdir(), 'page-profile-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: FLAGS, timeout: 60_000,
  });
  return { context, close: async () => { await context.close(); rmSync(profile, { recursive: true, force: true }); } };
}

/** A page, and what it has said that it should not have. */
export async function open(context) {
  const page = await context.newPage();
  const errors = [];
  page.setDefaultTimeout(LIMIT);
  await page.setViewportSize({ width: 1024, height: 600 });
  page.on('console', message => {
    if (message.type() === 'error' || message.type() === 'warning') errors.push(`${message.text()} (${message.location().url})`);
  });
  page.on('pageerror', error => errors.push(String(error)));
  return { page, errors };
}

export const environment = () => Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SOLOIST')));

export const ended = child => child.exitCode !== null || child.signalCode !== null ? undefined : once(child, 'exit');

export async function until(condition, what) {
  for (const deadline = Date.now() + LIMIT; !(await condition());) {
    assert.ok(Date.now() < deadline, `waited in vain for ${what()}`);
    await new Promise(next => setTimeout(next, 50));
  }
}

// Not page.waitForFunction: the pages' policy forbids what that does in the page.
export async function untilShown(page, id, text) {
  let shown;
  await until(async () => (shown = await page.textContent(`#${id}`)).includes(text), () => `#${id} to show "${text}"; it shows "${shown}"`);
}

export async function picture(page, name) {
  if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true });
}
