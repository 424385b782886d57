// A client that is written against the generated types only. That it compiles shows that the types say what a client
// needs; that it ends well shows that they are true.
import type { components, operations } from "./api.js";

type Schemas = components["schemas"];
type Claim = operations["claimCoupon"]["responses"];
type Json<R> = R extends { content: { "application/json": infer B } } ? B : never;
type ProblemOf<R> = R extends { content: { "application/problem+json": infer B } } ? B : never;
/** Every refusal of a claim, by status and code. */
type Refusal = { [S in keyof Claim]: ProblemOf<Claim[S]> }[keyof Claim];

declare const process: { env: Record<string, string | undefined> };
const { API, USER_TOKEN, ADMIN_TOKEN } = process.env;

async function send(method: string, path: string, token: string | undefined, body?: unknown): Promise<Response> {
    const headers: Record<string, string> = { "content-type": "application/json", authorization: `Bearer ${token}` };
    const content = body === undefined ? {} : { body: JSON.stringify(body) };
    return fetch(API + path, { method, headers, ...content });
}

/** What a client does about a refusal: by its code, and about a code that it doesn't know, by its status. */
function advice(refusal: Refusal): string {
    switch (refusal.code) {
        case "already_claimed":
            return `order ${refusal.order_id}`;
        case "sale_paused":
        case "too_many_unpaid_orders":
            return "later";
        default:
            return refusal.retry_after_ms === undefined ? "never" : `again in ${refusal.retry_after_ms} ms`;
    }
}

function check(holds: boolean, what: string): void {
    if (!holds) throw new Error(what);
}

const day = 24 * 3600 * 1000;
const flash: Schemas["NewCoupon"] = {
    kind: "flash",
    title: "Dinner for two",
    pay_cents: 2500,
    value_cents: 5000,
    sale: {
        total: 1,
        opens_at: new Date(Date.now() - day).toISOString(),
        closes_at: new Date(Date.now() + day).toISOString(),
    },
};
const lacking: Schemas["NewCoupon"] = { kind: "flash", title: "t", pay_cents: 1, value_cents: 2 };

const created = await send("POST", "/v1/coupons", ADMIN_TOKEN, flash);
check(created.status === 201, `a coupon is created: ${created.status}`);
const coupon = (await created.json()) as Json<operations["createCoupon"]["responses"][201]>;
check(coupon.sale?.left === 1, "one unit is left");

const refused = await send("POST", "/v1/coupons", ADMIN_TOKEN, lacking);
const problem = (await refused.json()) as ProblemOf<operations["createCoupon"]["responses"][422]>;
check(problem.errors?.[0]?.pointer === "/kind", `the sale is missing: ${JSON.stringify(problem)}`);

const claims = `/v1/coupons/${coupon.id}/claims`;
const claimed = await send("POST", claims, USER_TOKEN);
check(claimed.status === 202, `the claim is accepted: ${claimed.status}`);
const accepted = (await claimed.json()) as Json<Claim[202]>;
const repeat = await send("POST", claims, USER_TOKEN);
check(advice((await repeat.json()) as Refusal) === `order ${accepted.order_id}`, "a repeat names the order");

// By its operation: ids of operations that stood there twice had made this a page of coupons.
const listed = await send("GET", "/v1/orders", USER_TOKEN);
const page = (await listed.json()) as Json<operations["listOrders"]["responses"][200]>;
check(Array.isArray(page.orders), "it is a page of orders");
const next: string | null | undefined = page.next_cursor;
check(next === null, "one page holds all orders");
console.log(`order ${accepted.order_id} of coupon ${coupon.id}`);
