//! All kinds of problems, in one table: the titles of problem bodies, the pages under `/docs/problems`, the codes of each
//! operation in `/openapi.json`, and docs/problems.md are made of it.

use std::fmt::Write;

/// Kinds of problems about the same things.
pub struct Group {
    /// Heading of the group.
    pub name: &'static str,
    /// The kinds.
    pub kinds: &'static [Kind],
}

/// A kind of problem.
pub struct Kind {
    /// Name for programs; never changes.
    pub code: &'static str,
    /// HTTP status of each reply with it.
    pub status: u16,
    /// Name for people.
    pub title: &'static str,
    /// State of things that it tells of.
    pub meaning: &'static str,
    /// The client's remedy.
    pub remedy: &'static str,
    /// Example of the words in a reply.
    pub detail: &'static str,
}

/// Path under which the page of each kind is served; the code follows.
pub const PAGES: &str = "/docs/problems/";

impl Kind {
    /// The kind with this code.
    pub fn of(code: &str) -> Option<&'static Self> {
        Self::all().find(|kind| kind.code == code)
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        GROUPS.iter().flat_map(|group| group.kinds)
    }

    /// Address of its page, and `type` of its problem bodies (RFC 9457, section 3.1.1).
    pub fn page(&self) -> String {
        format!("{PAGES}{}", self.code)
    }

    /// True if a reply may tell when to ask again: by the header Retry-After and the member `retry_after_ms`.
    pub fn tells_when(&self) -> bool {
        matches!(self.status, 429 | 503)
            || ["sale_not_started", "too_many_closed_orders"].contains(&self.code)
    }
}

/// The table as a document: docs/problems.md.
pub fn markdown() -> String {
    let mut text = String::from(HEAD);
    for group in GROUPS {
        let _ = write!(
            text,
            "\n## {}\n\n| code | status | meaning | remedy |\n|---|---|---|---|\n",
            group.name
        );
        for Kind { code, status, meaning, remedy, .. } in group.kinds {
            let _ = writeln!(text, "| `{code}` | {status} | {meaning} | {remedy} |");
        }
    }
    text
}

const HEAD: &str = "# Problems

A refusal or an error has a problem body (RFC 9457), whose `code` is one of these. Its `type` is the address of a page
of the running service with the same words: `/docs/problems/sold_out`. The table stands in
`src/http/problem/kinds.rs`; `make problems` writes this document after a change.
";

/// The table.
pub const GROUPS: &[Group] = &[
    Group {
        name: "Claims",
        kinds: &[
            Kind {
                code: "already_claimed",
                status: 409,
                title: "Already claimed",
                meaning: "The user holds a live order of this coupon, or a claim on its way to one. A repeat takes no second unit.",
                remedy: "Go on with the order that `order_id` names.",
                detail: "you have claimed this coupon; `order_id` is the order",
            },
            Kind {
                code: "sale_not_started",
                status: 409,
                title: "Sale not started",
                meaning: "The window of the sale has not opened yet, by the clock of Redis.",
                remedy: "Claim again after the seconds that Retry-After names.",
                detail: "the sale hasn't started; come back after Retry-After seconds",
            },
            Kind {
                code: "sale_paused",
                status: 409,
                title: "Sale paused",
                meaning: "An administrator has suspended the claims on this coupon.",
                remedy: "Tell the user, and look at the coupon again later.",
                detail: "the sale is paused; come back later",
            },
            Kind {
                code: "sale_ended",
                status: 410,
                title: "Sale ended",
                meaning: "The window of the sale has closed, or an administrator has ended the coupon. An end is final.",
                remedy: "Don't claim this coupon again.",
                detail: "the sale has ended",
            },
            Kind {
                code: "sold_out",
                status: 410,
                title: "Sold out",
                meaning: "No unit is left. A unit comes back when another user's order is cancelled, expires or is refunded.",
                remedy: "Tell the user. A later claim succeeds only if a unit has come back.",
                detail: "no unit is left",
            },
            Kind {
                code: "too_many_unpaid_orders",
                status: 409,
                title: "Too many unpaid orders",
                meaning: "The user holds as many unpaid orders as the operator allows.",
                remedy: "Pay or cancel one of them, then claim again.",
                detail: "you hold as many unpaid orders as you may; pay or cancel one first",
            },
            Kind {
                code: "too_many_closed_orders",
                status: 409,
                title: "Too many closed orders",
                meaning: "The user has closed as many orders of this coupon within an hour as the operator allows.",
                remedy: "Claim a regular coupon again, or cancel the order of a flash coupon, after the seconds that Retry-After names. Until then such an order can be paid, or expires.",
                detail: "you have closed too many orders of this coupon; come back after Retry-After seconds",
            },
            Kind {
                code: "not_claimed",
                status: 404,
                title: "Not claimed",
                meaning: "The user has never claimed this coupon.",
                remedy: "Claim it, if that was the purpose.",
                detail: "you haven't claimed this coupon",
            },
            Kind {
                code: "not_traced",
                status: 404,
                title: "Not traced",
                meaning: "The process remembers no steps of such a claim: it was not sent with `X-Trace: 1`, another process took it, newer ones have taken its place, or it is another user's.",
                remedy: "Ask the process that took the claim, soon after it. The order itself is at `/v1/orders/{id}`.",
                detail: "this process remembers no such claim of yours; a claim is followed if it is sent with `X-Trace: 1`",
            },
            Kind {
                code: "too_many_watchers",
                status: 503,
                title: "Too many watchers",
                meaning: "As many clients watch sales and the board as may.",
                remedy: "Read the coupon, or `/v1/board`, every 10 to 20 seconds instead.",
                detail: "as many clients watch as may; ask for the coupon every 10 to 20 seconds instead",
            },
            Kind {
                code: "rate_limited",
                status: 429,
                title: "Too many requests",
                meaning: "The user, or the address of a request without a user, has sent more requests in a second than the operator allows. The request was not carried out.",
                remedy: "Send it again after the seconds that Retry-After names.",
                detail: "you ask too often, and this was not carried out; wait as long as Retry-After says",
            },
            Kind {
                code: "overloaded",
                status: 503,
                title: "Too many claims at once",
                meaning: "More claims wait than the service can take in. This one was not carried out.",
                remedy: "Claim again after the seconds that Retry-After names.",
                detail: "there are more claims than can be taken in, and this one was not carried out; come back after Retry-After seconds",
            },
            Kind {
                code: "recovering",
                status: 503,
                title: "Recovering",
                meaning: "Redis has been started anew or has lost data, and is being compared with Postgres. Whether the request took effect is unknown.",
                remedy: "Send the same request again after the seconds that Retry-After names.",
                detail: "Redis has been started anew or has lost data, and is being compared with Postgres: ask again",
            },
        ],
    },
    Group {
        name: "Orders and payments",
        kinds: &[
            Kind {
                code: "order_not_found",
                status: 404,
                title: "No such order",
                meaning: "The user has no order with this id. An order of another user is not told apart from none, and an order that is not written yet is not there either.",
                remedy: "Ask for the claim at the coupon's `claims/me` while it is pending; else drop the id. A gateway sends its notice again later.",
                detail: "you have no order with this id; a pending one is told by its coupon's claims/me",
            },
            Kind {
                code: "invalid_transition",
                status: 409,
                title: "Can't go there",
                meaning: "The order or coupon has a state from which the requested one can't be reached; `from` and `to` name both.",
                remedy: "Read the order or coupon, and offer what its state allows.",
                detail: "the order is cancelled, and from there it can't become paid",
            },
            Kind {
                code: "already_redeemed",
                status: 409,
                title: "Redeemed already",
                meaning: "Another request has redeemed this order; `redeemed_at` is the time, and `redeemed_by` the clerk.",
                remedy: "Hand nothing out, and show the time to the customer. A clerk whose own answer got lost repeats the request with the same Idempotency-Key.",
                detail: "the coupon was redeemed at 2026-03-01T12:30:00Z by clerk 7: hand nothing out",
            },
            Kind {
                code: "redemption_code_unknown",
                status: 404,
                title: "No such code",
                meaning: "No order has this redemption code.",
                remedy: "Read the code again; it has 16 letters and digits.",
                detail: "no order has this code: it has 16 letters and digits, such as 7K3M-Q9TX-2B8D-HV4N",
            },
            Kind {
                code: "no_redemption_code",
                status: 409,
                title: "No redemption code",
                meaning: "Only a paid order has a redemption code: one that is unpaid has none yet, and one that was redeemed or refunded has none any more.",
                remedy: "Pay for the order first; else drop the code.",
                detail: "the order is unpaid: only a paid one has a redemption code",
            },
            Kind {
                code: "price_differs",
                status: 409,
                title: "Another price",
                meaning: "The order costs another amount than `expected_cents` says. Nothing was paid.",
                remedy: "Show the payer the price of the order, and ask again with it.",
                detail: "the order costs 2500 CNY: show that to the payer before you pay",
            },
            Kind {
                code: "payment_refused",
                status: 409,
                title: "Payment refused",
                meaning: "The payment gateway refuses to open this payment; `detail` has its words.",
                remedy: "Offer the payer another method.",
                detail: "the payment gateway refuses this payment: method_closed",
            },
            Kind {
                code: "payment_elsewhere",
                status: 409,
                title: "Paid elsewhere",
                meaning: "A payment gateway takes the money, and confirms it to the service by itself.",
                remedy: "Send the user to the gateway with the order id.",
                detail: "nothing is paid here: pay at the shop's payment gateway, which confirms the order by its id",
            },
            Kind {
                code: "no_gateway",
                status: 409,
                title: "No payment gateway",
                meaning: "This service has no payment gateway, so no order can be paid.",
                remedy: "Tell the operator, who sets `--payment-callback-secret`.",
                detail: "nothing can be paid: this service has no payment gateway; its operator sets one up by --payment-callback-secret",
            },
            Kind {
                code: "callbacks_off",
                status: 404,
                title: "No callbacks here",
                meaning: "The service expects no notices of a gateway.",
                remedy: "Tell the operator, who sets `--payment-callback-secret`.",
                detail: "no gateway is known here: --payment-callback-secret isn't set",
            },
            Kind {
                code: "invalid_signature",
                status: 403,
                title: "Not signed by the gateway",
                meaning: "The signature of the notice is missing, or was made with another secret or over other bytes.",
                remedy: "Sign the bytes of the body, as they are sent, with the common secret.",
                detail: "send the header `X-Signature`: HMAC-SHA256 of the body with the common secret, in hexadecimal",
            },
            Kind {
                code: "payment_not_found",
                status: 404,
                title: "No such payment",
                meaning: "No payment has this id. A gateway is told so about a refund of a payment that the service has never heard of.",
                remedy: "Compare the id with the list of payments that wait. A gateway sends the notice of the payment first.",
                detail: "there is no payment with this id",
            },
            Kind {
                code: "payment_settled",
                status: 409,
                title: "Payment settled",
                meaning: "An order has the money, or it is back with the payer, or the payment has been closed.",
                remedy: "Nothing is left to do.",
                detail: "nothing is left to do about this payment",
            },
            Kind {
                code: "payment_charged_back",
                status: 409,
                title: "Payment charged back",
                meaning: "The gateway has taken the money back already, so it can't be asked to refund it.",
                remedy: "Close the payment with a note: a unit that the order has kept comes back then.",
                detail: "the gateway has taken the money back already: close this payment with a note",
            },
            Kind {
                code: "payment_id_used_twice",
                status: 409,
                title: "Payment id used twice",
                meaning: "The gateway knows this id for another payment, so it can't be asked to refund this one.",
                remedy: "Return the money by the gateway's own means, then close the payment with a note.",
                detail: "the gateway knows the id for another payment: return the money by the gateway's own means, then close this payment with a note",
            },
        ],
    },
    Group {
        name: "Coupons",
        kinds: &[
            Kind {
                code: "coupon_not_found",
                status: 404,
                title: "No such coupon",
                meaning: "No coupon has this id.",
                remedy: "Drop the id; the list of coupons has the present ones.",
                detail: "there is no coupon with this id",
            },
            Kind {
                code: "comparison_running",
                status: 409,
                title: "A comparison goes on",
                meaning: "The stores are being compared, by this process or another one. One comparison goes on at a time; nothing was begun.",
                remedy: "Read the record of that comparison, or ask again once it has ended.",
                detail: "comparison 17 goes on; its record tells its end",
            },
            Kind {
                code: "idempotency_key_reused",
                status: 422,
                title: "Key used before",
                meaning: "Another request has been carried out under this key: the same member of the staff has created a coupon or begun a comparison by another body. Nothing was done.",
                remedy: "Give each request a key of its own; repeat one only with the same body, byte for byte.",
                detail: "this key has created a coupon by another body; give another creation a key of its own",
            },
            Kind {
                code: "coupon_ended",
                status: 409,
                title: "Coupon ended",
                meaning: "The coupon has ended, and an end is final: nothing about it changes any more.",
                remedy: "Create another coupon.",
                detail: "the coupon has ended, and nothing about it can be changed any more",
            },
            Kind {
                code: "revision_conflict",
                status: 409,
                title: "Changed in the meantime",
                meaning: "The coupon has another revision than the edit was made for. Nothing was changed.",
                remedy: "Read the coupon, make the edit again on what it is now, and send that with its revision.",
                detail: "the coupon has been changed and has revision 4 by now: read it, and edit that",
            },
            Kind {
                code: "precondition_failed",
                status: 412,
                title: "Changed in the meantime",
                meaning: "The coupon has another revision than the header If-Match names, or the header has no tag, or one that no reply about a coupon had. Nothing was changed.",
                remedy: "Read the coupon, make the edit again on what it is now, and send that with the tag of that reply.",
                detail: "the coupon has been changed and has revision 4 by now: read it, and edit that",
            },
            Kind {
                code: "no_sale",
                status: 409,
                title: "No sale",
                meaning: "The coupon is a regular one, and the request is about a sale.",
                remedy: "Leave the sale out, or choose a flash coupon.",
                detail: "a regular coupon has no `sale`",
            },
            Kind {
                code: "stock_only_grows",
                status: 409,
                title: "Stock only grows",
                meaning: "The total of a sale was to become smaller. Units on offer are not taken back.",
                remedy: "End the coupon to sell fewer units.",
                detail: "100 units are on offer, and there can only be more; end the coupon to sell fewer",
            },
            Kind {
                code: "stock_too_large",
                status: 409,
                title: "Too many units",
                meaning: "The total of the sale would exceed the largest that a sale can have.",
                remedy: "Add fewer units, or create another coupon.",
                detail: "a sale has at most 100000000 units",
            },
            Kind {
                code: "restock_key_used",
                status: 409,
                title: "Key used before",
                meaning: "The key has added another number of units to this coupon before. Nothing was added.",
                remedy: "Give each restock a key of its own; repeat one only with the same number of units.",
                detail: "this key has added 50 units before; give another restock a key of its own",
            },
            Kind {
                code: "sale_not_ended",
                status: 409,
                title: "Sale not ended",
                meaning: "Claims on the sale may still be accepted, so it can't be archived.",
                remedy: "End the coupon first, which is final.",
                detail: "the sale hasn't ended: end the coupon first, which is final",
            },
            Kind {
                code: "sale_in_flight",
                status: 409,
                title: "Claims on their way",
                meaning: "Accepted claims of the sale wait to be written to Postgres.",
                remedy: "Ask again a second later. If that goes on, look at the workers.",
                detail: "3 claims of the sale are on their way to Postgres: ask again when a worker has written them",
            },
            Kind {
                code: "sale_not_settled",
                status: 409,
                title: "Sale not settled",
                meaning: "Dead letters, units on their way back, or buyers without an order stand in the way; `detail` names them.",
                remedy: "Settle them, or accept their loss with `accept_loss`.",
                detail: "the sale isn't settled: 1 dead letter is open. Put that right, or accept the loss (`accept_loss`, --accept-loss), which gives it up",
            },
            Kind {
                code: "sale_not_loaded",
                status: 409,
                title: "Sale never loaded",
                meaning: "Redis does not have the sale: it was never loaded, or has been archived.",
                remedy: "There is nothing to archive; and a dead letter of such a sale can only be discarded.",
                detail: "Redis has never had this sale, so there is nothing to archive",
            },
        ],
    },
    Group {
        name: "Operators",
        kinds: &[
            Kind {
                code: "dead_letter_not_found",
                status: 404,
                title: "No such dead letter",
                meaning: "No dead letter has this id.",
                remedy: "Take the id from the list of dead letters.",
                detail: "there is no dead letter with this id",
            },
            Kind {
                code: "dead_letter_closed",
                status: 409,
                title: "Dead letter closed",
                meaning: "The dead letter was closed when its sale was archived.",
                remedy: "Leave it. Make the user good in another way, if need be.",
                detail: "the dead letter has been closed",
            },
            Kind {
                code: "letter_unreadable",
                status: 409,
                title: "Letter unreadable",
                meaning: "The entry names no coupon, user and order, so no order can be made of it.",
                remedy: "Discard the dead letter.",
                detail: "its entry names no coupon, user and order; discard it",
            },
            Kind {
                code: "order_id_taken",
                status: 409,
                title: "Order id of another order",
                meaning: "Another order has the order id of the dead letter.",
                remedy: "Look at both before anything is changed.",
                detail: "another order has its order id; look at both before anything is changed",
            },
            Kind {
                code: "superseded",
                status: 409,
                title: "Superseded",
                meaning: "The user has claimed this coupon again later, and holds that order.",
                remedy: "Discard the dead letter.",
                detail: "the user has claimed this coupon again later, by order 4611686018427387905; discard it",
            },
            Kind {
                code: "no_unit",
                status: 409,
                title: "No unit",
                meaning: "The dead letter holds no unit, and none is left.",
                remedy: "Restock the sale and try again, or discard the dead letter.",
                detail: "no unit is left; restock the sale first, or discard it",
            },
            Kind {
                code: "order_refused",
                status: 409,
                title: "Order refused",
                meaning: "Postgres refuses the order; `detail` has the reason.",
                remedy: "Put the reason right and try again, or discard the dead letter.",
                detail: "Postgres refuses the order: insert or update on table \"orders\" violates foreign key constraint \"orders_coupon_id_fkey\"",
            },
            Kind {
                code: "postponed_not_found",
                status: 404,
                title: "Nothing postponed",
                meaning: "Nothing is postponed under this id: it has been dealt with, or never was postponed.",
                remedy: "Take the id from the list of postponed items.",
                detail: "nothing is postponed under this id; it may have been dealt with",
            },
            Kind {
                code: "recovery_not_found",
                status: 404,
                title: "No such recovery",
                meaning: "No recovery with this id has claims that it could not keep.",
                remedy: "Take the id from the list of recoveries.",
                detail: "no recovery with this id has claims that it could not keep",
            },
            Kind {
                code: "run_not_found",
                status: 404,
                title: "No such comparison",
                meaning: "No comparison has this id. Records are kept for 30 days.",
                remedy: "Take the id from the list of comparisons.",
                detail: "there is no such comparison",
            },
        ],
    },
    Group {
        name: "Every call",
        kinds: &[
            Kind {
                code: "invalid_id",
                status: 400,
                title: "Invalid id",
                meaning: "The id in the path is no whole number from 1 to 9223372036854775807 in decimal digits.",
                remedy: "Send ids as the service gave them, as strings.",
                detail: "an id is a whole number from 1 to 9223372036854775807, in decimal digits",
            },
            Kind {
                code: "invalid_query",
                status: 400,
                title: "Invalid query",
                meaning: "A parameter of the query is unknown, stands there twice, or has a value that it can't have.",
                remedy: "Correct the parameter that `detail` names.",
                detail: "`limit` is a number from 1 to 100",
            },
            Kind {
                code: "invalid_idempotency_key",
                status: 400,
                title: "Invalid idempotency key",
                meaning: "The header Idempotency-Key stands there twice, is empty or too long, or has characters that are not visible ASCII.",
                remedy: "Send it once, with 1 to 255 visible ASCII characters.",
                detail: "send the header `Idempotency-Key` once, with 1 to 255 visible ASCII characters",
            },
            Kind {
                code: "invalid_if_match",
                status: 400,
                title: "Invalid If-Match",
                meaning: "The header If-Match stands there twice, or is neither * nor one tag in double quotes.",
                remedy: "Send the ETag of the reply that the change is made for, as it came.",
                detail: "send the header `If-Match` once, with one tag: that of a reply about the coupon, or its revision as in \"revision-3\"",
            },
            Kind {
                code: "malformed_json",
                status: 400,
                title: "Malformed JSON",
                meaning: "The body is no JSON.",
                remedy: "Correct the body. Nothing was changed.",
                detail: "the body is no JSON: EOF while parsing an object at line 1 column 18",
            },
            Kind {
                code: "invalid_body",
                status: 422,
                title: "Invalid body",
                meaning: "The body is JSON, but has wrong members; `errors` names each by its JSON pointer.",
                remedy: "Correct the members that `errors` names. Nothing was changed.",
                detail: "2 members of the body are wrong; `errors` names each",
            },
            Kind {
                code: "unsupported_media_type",
                status: 415,
                title: "Unsupported media type",
                meaning: "The body is not sent as JSON.",
                remedy: "Send it with `Content-Type: application/json`.",
                detail: "send the body with `Content-Type: application/json`",
            },
            Kind {
                code: "body_too_large",
                status: 413,
                title: "Body too large",
                meaning: "The body has more than 64 KiB.",
                remedy: "Send a smaller one.",
                detail: "a body has at most 65536 bytes",
            },
            Kind {
                code: "body_too_slow",
                status: 408,
                title: "Body too slow",
                meaning: "The body did not come in time. Nothing was carried out.",
                remedy: "Send the request again.",
                detail: "the body didn't come in time, and nothing was carried out",
            },
            Kind {
                code: "host_missing",
                status: 400,
                title: "Host missing",
                meaning: "An HTTP/1.1 request has no header Host, or two.",
                remedy: "Send the header once.",
                detail: "HTTP/1.1 needs the header `Host`, once",
            },
            Kind {
                code: "malformed_request",
                status: 400,
                title: "Malformed request",
                meaning: "The bytes are no HTTP request.",
                remedy: "Speak HTTP/1.1 or HTTP/2.",
                detail: "this is no HTTP request",
            },
            Kind {
                code: "uri_too_long",
                status: 414,
                title: "Path too long",
                meaning: "The request line alone is as long as a whole head may be, 16 KiB.",
                remedy: "Correct the address.",
                detail: "no operation has so long a path",
            },
            Kind {
                code: "head_too_large",
                status: 431,
                title: "Headers too large",
                meaning: "The request line and the headers together have more than 16 KiB, or there are more than 100 headers.",
                remedy: "Send fewer headers, or shorter ones.",
                detail: "the request line and the headers together have at most 16 KiB, and there are at most 100 headers",
            },
            Kind {
                code: "invalid_token",
                status: 401,
                title: "Not authenticated",
                meaning: "The request has no token, or one that the service refuses; WWW-Authenticate tells which.",
                remedy: "Send `Authorization: Bearer` with a valid token. If a token is refused, get a new one from the issuer that shares the service's secret.",
                detail: "send the header `Authorization: Bearer <token>`",
            },
            Kind {
                code: "forbidden",
                status: 403,
                title: "Not allowed",
                meaning: "The token is valid, and does not allow this call.",
                remedy: "Use a token with the role that `detail` names.",
                detail: "this needs a token with the role `admin`",
            },
            Kind {
                code: "cross_site",
                status: 403,
                title: "Asked by another site",
                meaning: "A page of another site asks, in a browser, for what only the own pages may ask for.",
                remedy: "Open the page of the service itself.",
                detail: "a page of another site may not do this",
            },
            Kind {
                code: "invalid_code",
                status: 403,
                title: "Link used or unknown",
                meaning: "The code of a demo's link has been used, or belongs to an earlier start.",
                remedy: "Start the demo again, and open the link that it prints; each link lets one browser tab in.",
                detail: "this link has been used, or is of an earlier start: start the demo again, and open the link that it prints",
            },
            Kind {
                code: "storm_under_way",
                status: 409,
                title: "A storm is under way",
                meaning: "The demo has one storm at a time.",
                remedy: "Wait for its verdict, or stop it.",
                detail: "one storm at a time: wait for its verdict, or stop it by DELETE /demo/storms/current",
            },
            Kind {
                code: "no_storm",
                status: 404,
                title: "No storm",
                meaning: "The demo has no storm under way.",
                remedy: "Start one.",
                detail: "no storm is under way",
            },
            Kind {
                code: "wrong_host",
                status: 421,
                title: "Not the name of this service",
                meaning: "The request names another host than one of this machine.",
                remedy: "Ask at the address that the service has printed.",
                detail: "ask for this at http://localhost or http://127.0.0.1, with the port of the demo",
            },
            Kind {
                code: "not_found",
                status: 404,
                title: "Not found",
                meaning: "No operation has this path.",
                remedy: "Compare the path with the list at /docs.",
                detail: "no operation has this path; /docs lists them all",
            },
            Kind {
                code: "method_not_allowed",
                status: 405,
                title: "Method not allowed",
                meaning: "The path exists, but not with this method; the header Allow lists its methods.",
                remedy: "Use one of these.",
                detail: "the header Allow says which methods this path has",
            },
            Kind {
                code: "internal",
                status: 500,
                title: "Internal error",
                meaning: "A bug of the service. Whether the request took effect is unknown.",
                remedy: "Tell the operator the request id, by which the log has the cause.",
                detail: "this is a bug; the request id finds it in the log",
            },
            Kind {
                code: "unavailable",
                status: 503,
                title: "Unavailable",
                meaning: "A store did not answer, so the outcome is unknown.",
                remedy: "Send the same request again after the seconds that Retry-After names. A claim is safe to repeat.",
                detail: "the outcome is unknown: ask again; a claim is safe to repeat",
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_code_has_one_kind() {
        let codes: HashSet<&str> = Kind::all().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), Kind::all().count());
        assert!(Kind::of("sold_out").is_some_and(|kind| kind.status == 410));
        assert!(Kind::of("sold").is_none());
    }

    #[test]
    fn a_kind_has_a_page_and_may_tell_when_to_ask_again() {
        for (code, tells) in [
            ("rate_limited", true),
            ("unavailable", true),
            ("recovering", true),
            ("sale_not_started", true),
            ("too_many_closed_orders", true),
            ("sold_out", false),
            ("too_many_unpaid_orders", false),
            ("internal", false),
        ] {
            let kind = Kind::of(code).expect("a kind");
            assert_eq!((kind.code, kind.tells_when()), (code, tells));
            assert_eq!(kind.page(), format!("/docs/problems/{code}"));
        }
    }

    #[test]
    fn words_are_sentences_without_markup_of_rust() {
        for kind in Kind::all() {
            for text in [kind.meaning, kind.remedy] {
                assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{text}");
                assert!(!text.contains("::") && !text.contains('|'), "{text}");
            }
            assert!(kind.title.starts_with(char::is_uppercase), "{}", kind.title);
        }
    }

    #[test]
    fn the_document_is_that_of_the_table() {
        let written = include_str!("../../../docs/problems.md");
        assert!(
            written == markdown(),
            "docs/problems.md is older than the table: run `make problems`"
        );
    }

    #[test]
    #[ignore = "no test: `make problems` writes the document by it"]
    fn write_the_document() {
        std::fs::write("docs/problems.md", markdown()).expect("the folder can be written");
    }
}
