// A child of soloist in Node: ready, work, stop. Nothing but Node itself.
//
// Node has no Unix datagram sockets, so soloist asks instead: --ready http://127.0.0.1:PORT/ready
import { createServer } from "node:http";

const token = process.env.SOLOIST_TOKEN ?? "none";

// One piece of work. The token goes along with every write to elsewhere.
function work(piece) {
  console.log(`piece ${piece} under token ${token}`);
}

const server = createServer((request, response) => {
  response.statusCode = request.url === "/ready" ? 200 : 404;
  response.end();
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1");

let piece = 0;
const every = setInterval(() => work(++piece), 1000);

function stop() {
  clearInterval(every);
  // Answers what it has accepted. Whatever is left has SOLOIST_STOP_SECONDS; then soloist kills us.
  server.close(() => console.log("ended in order"));
  server.closeIdleConnections();
}
process.once("SIGTERM", stop);
process.once("SIGINT", stop);
