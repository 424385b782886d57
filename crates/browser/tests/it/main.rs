//! The pages in a real browser, in front of a real demo with its own stores.
//!
//! `make browser` runs these tests. Each one leaves pictures of what it saw in `target/browser`.

// The page of a sale, as shoppers use it.
mod shop;

// The clerk's page.
mod redeem;

// The board, as an operator uses it.
mod board;

// The page of storms.
mod storm;

// The page of one claim.
mod trace;

// The pages for programmers.
mod docs;

// The page for all: keyboard, languages, contrasts and sizes.
mod access;

// Refusals, and a service that doesn't answer.
mod refusals;

// Pages of other sites, words of strangers, many windows, clocks that are set, processes that are replaced.
mod attacks;

// The pictures of the documents.
mod pictures;

// A demo, and tabs that look at it.
mod support;
