// An xDS client of grpc-js. It calls the services given as the first
// argument, separated by commas, one after the other, as many times a second in
// all as the second says. For each line "N" on standard input it makes N calls
// and prints what became of them as a line of JSON.
'use strict';

const readline = require('readline');
const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const METHOD = '/grpc.testing.TestService/EmptyCall';
const DEADLINE_MS = 5000;

const [targets, perSecond] = process.argv.slice(2);
const clients = targets.split(',').map((t) => new grpc.Client(t, grpc.credentials.createInsecure()));
const bytes = (b) => b;

// call makes one call by a client and adds its outcome.
function call(client, outcome) {
  return new Promise((done) => {
    let place = '';
    const options = { deadline: Date.now() + DEADLINE_MS };
    client
      .makeUnaryRequest(METHOD, bytes, bytes, Buffer.alloc(0), options, (err) => {
        if (err) {
          const text = `${grpc.status[err.code]}: ${err.details}`;
          outcome.failed[text] = (outcome.failed[text] || 0) + 1;
        } else {
          outcome.served[place] = (outcome.served[place] || 0) + 1;
        }
        done();
      })
      .on('metadata', (m) => { place = String(m.get('hostname')[0] || ''); });
  });
}

// send makes n calls at the rate, without waiting for one before the next.
async function send(n) {
  const outcome = { served: {}, failed: {} };
  const began = Date.now();
  const calls = [];
  for (let i = 0; i < n; i++) {
    const wait = began + (i * 1000) / Number(perSecond) - Date.now();
    if (wait > 0) await new Promise((r) => setTimeout(r, wait));
    calls.push(call(clients[i % clients.length], outcome));
  }
  await Promise.all(calls);
  return outcome;
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await send(Number(line))));
  }
  clients.forEach((c) => c.close());
  process.exit(0);
}

main();
