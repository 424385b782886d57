// An endpoint that verifies what it is sent by the library of Standard Webhooks, as other systems would.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const { API, ADMIN_TOKEN } = process.env;
const FORGED = `whsec_${Buffer.alloc(32).toString("base64")}`;

async function call(method, path, body) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${ADMIN_TOKEN}` };
    const reply = await fetch(API + path, { method, headers, body: body && JSON.stringify(body) });
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return reply.status === 204 ? null : reply.json();
}

let secret;
const events = [];
const server = createServer(async (request, reply) => {
    let body = "";
    for await (const part of request) body += part;
    try {
        events.push(new Webhook(secret).verify(body, request.headers));
        reply.writeHead(204).end();
    } catch (error) {
        reply.writeHead(400).end(`${error}`);
    }
    try {
        new Webhook(FORGED).verify(body, request.headers);
        throw new Error("a signature by another secret counts");
    } catch (error) {
        if (error.name === "Error") throw error;
    }
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));

const hook = await call("POST", "/v1/webhooks", { url: `http://127.0.0.1:${server.address().port}/hook` });
secret = hook.secret;
const tested = await call("POST", `/v1/webhooks/${hook.id}/test`);
if (tested.status !== 204) throw new Error(`the library refuses the request: ${JSON.stringify(tested)}`);

const coupon = await call("POST", "/v1/coupons", { kind: "regular", title: "Tea", pay_cents: 1, value_cents: 2 });
while (!events.some((event) => event.subject === `coupons/${coupon.id}`)) {
    await new Promise((again) => setTimeout(again, 50));
}
await call("DELETE", `/v1/webhooks/${hook.id}`);
console.log(`webhook ${hook.id}: ${events.map((event) => event.type).join(", ")}`);
server.closeAllConnections();
server.close();
