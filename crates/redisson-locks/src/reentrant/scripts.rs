//! Tests of the scripts, one by one. A row has what Redis holds, the call, its reply, and what Redis holds then.

use private_servers::testing::bound_this_test;

use super::layout::Layout;
use crate::script::tests::{Row, Stage};

#[tokio::test]
async fn a_script_runs_on_a_server_that_does_not_know_it() {
    bound_this_test();
    let mut stage = Stage::new().await;
    let force = Layout::new().force_unlock;
    for _ in 0..2 {
        stage.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        stage.holds(&force, &FORCED).await;
    }
}

#[tokio::test]
async fn acquire_takes_a_free_lock_and_counts_the_entries_of_its_holder() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().acquire, &ACQUIRED).await;
}

const ACQUIRED: [Row; 5] = [
    ("", "a | 9000000 h:1", "nil", "a=h:1:1/9 logged"),
    ("a=h:1:1/5", "a | 9000000 h:1", "nil", "a=h:1:2/9 logged"),
    ("b=h:2:1/5", "a | 9000000 h:1", "nil", "a=h:1:1/9 b=h:2:1/5 logged"),
    ("a=h:2:1/5", "a | 9000000 h:1", "5_units", "a=h:2:1/5"),
    ("a=h:2:1", "a | 9000000 h:1", "-1", "a=h:2:1"),
];

#[tokio::test]
async fn acquire_fenced_draws_a_token_for_each_entry() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().acquire_fenced, &FENCED).await;
}

const FENCED: [Row; 6] = [
    ("", "a t | 9000000 h:1", "[-1 1]", "a=h:1:1/9 t=1 logged"),
    ("t=4", "a t | 9000000 h:1", "[-1 5]", "a=h:1:1/9 t=5 logged"),
    ("a=h:1:1/5 t=4", "a t | 9000000 h:1", "[-1 5]", "a=h:1:2/9 t=5 logged"),
    ("a=h:2:1/5 t=4", "a t | 9000000 h:1", "[5_units -1]", "a=h:2:1/5 t=4"),
    ("a=h:2:1 t=4", "a t | 9000000 h:1", "[-1 -1]", "a=h:2:1 t=4"),
    // Without a token the lock isn't granted.
    ("t=x", "a t | 9000000 h:1", "error", "t=x"),
];

#[tokio::test]
async fn unlock_releases_one_entry_and_keeps_its_answer_in_the_latch() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().unlock, &UNLOCKED).await;
}

const UNLOCKED: [Row; 8] = [
    ("a=h:1:1/5", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "1", "latch=1/3 logged told:{a}"),
    ("a=h:1:2/5", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "0", "a=h:1:1/9 latch=0/3 logged"),
    ("a=h:1:3/5", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "0", "a=h:1:2/9 latch=0/3 logged"),
    ("a=h:2:1/5", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "nil", "a=h:2:1/5"),
    ("", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "nil", ""),
    // Repeated requests.
    (
        "a=h:1:2/5 latch=0/2",
        "a @a latch | 0 9000000 h:1 PUBLISH 3000000",
        "0",
        "a=h:1:2/5 latch=0/2",
    ),
    (
        "a=h:1:1/5 latch=1/2",
        "a @a latch | 0 9000000 h:1 PUBLISH 3000000",
        "1",
        "a=h:1:1/5 latch=1/2",
    ),
    ("latch=1/2", "a @a latch | 0 9000000 h:1 PUBLISH 3000000", "1", "latch=1/2"),
];

#[tokio::test]
async fn force_unlock_takes_a_lock_from_any_holder() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().force_unlock, &FORCED).await;
}

const FORCED: [Row; 3] = [
    ("a=h:1:2/5 b=h:1:1/5", "a @a | 0 PUBLISH", "1", "b=h:1:1/5 logged told:{a}"),
    ("a=x", "a @a | 0 PUBLISH", "1", "logged told:{a}"),
    ("", "a @a | 0 PUBLISH", "0", ""),
];

#[tokio::test]
async fn renew_moves_the_leases_of_locks_that_their_holders_have() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().renew, &RENEWED).await;
}

const RENEWED: [Row; 6] = [
    ("a=h:1:1/5 b=h:2:2/5", "a b | 9000000 h:1 h:2", "[1 1]", "a=h:1:1/9 b=h:2:2/9 logged"),
    (
        "a=h:1:1/5 b=h:2:1/5 c=h:1:1/5",
        "a b d c | 9000000 h:1 h:1 h:1 h:1",
        "[1 0 0 1]",
        "a=h:1:1/9 b=h:2:1/5 c=h:1:1/9 logged",
    ),
    ("a=h:2:1/5", "a | 9000000 h:1", "[0]", "a=h:2:1/5"),
    // In-memory locks.
    ("a=h:1:1/5 b=h:2:2/5", "a b | 9000000 h:1 h:2 1", "[1 1]", "a=h:1:1/9 b=h:2:2/9"),
    ("a=h:1:1/5", "a | 9000000 h:1 1", "[1]", "a=h:1:1/9"),
    ("a=h:1:1/5", "a | 9000000 h:1 0", "[1]", "a=h:1:1/9 logged"),
];

#[tokio::test]
async fn cut_leases_shortens_only_leases_that_are_too_long() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().cut_leases, &CUT).await;
}

const CUT: [Row; 3] = [
    (
        "a=h:1:1/9 b=h:1:1/5 c=h:1:1",
        "a b c d | 6000000 4000000",
        "1",
        "a=h:1:1/4 b=h:1:1/5 c=h:1:1 logged",
    ),
    ("a=h:1:1/9 b=h:2:1/7", "a b | 6000000 4000000", "2", "a=h:1:1/4 b=h:2:1/4 logged"),
    ("a=h:1:1/5", "a | 6000000 4000000", "0", "a=h:1:1/5"),
];

#[tokio::test]
async fn acquire_batch_takes_each_lock_that_is_free() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().acquire_batch, &BATCH_ACQUIRED).await;
}

const BATCH_ACQUIRED: [Row; 10] = [
    ("", "a b c | 9000000 h:1 0", "[]", "a=h:1:1/9 b=h:1:1/9 c=h:1:1/9 logged"),
    ("", "a | 9000000 h:1 0", "[]", "a=h:1:1/9 logged"),
    // In-memory locks.
    ("", "a b c | 9000000 h:1 1", "[]", "a=h:1:1/9 b=h:1:1/9 c=h:1:1/9"),
    // Held elsewhere: the first, some, all; also by a key of another type.
    ("a=h:2:1/5", "a b c | 9000000 h:1 0", "[1]", "a=h:2:1/5 b=h:1:1/9 c=h:1:1/9 logged"),
    (
        "b=h:2:1/5 d=x",
        "a b c d | 9000000 h:1 0",
        "[2 4]",
        "a=h:1:1/9 b=h:2:1/5 c=h:1:1/9 d=x logged",
    ),
    ("a=h:2:1/5 b=x", "b a | 9000000 h:1 0", "[1 2]", "a=h:2:1/5 b=x"),
    ("a=h:2:1/5 b=h:2:1/5", "a b | 9000000 h:1 1", "[1 2]", "a=h:2:1/5 b=h:2:1/5"),
    // Names that occur twice.
    ("", "a a | 9000000 h:1 0", "[]", "a=h:1:1/9 logged"),
    ("", "a b a b | 9000000 h:1 0", "[]", "a=h:1:1/9 b=h:1:1/9 logged"),
    ("b=h:2:1/5", "a b b a | 9000000 h:1 0", "[2 3]", "a=h:1:1/9 b=h:2:1/5 logged"),
];

#[tokio::test]
async fn unlock_batch_frees_the_locks_of_its_holder_and_wakes_up_their_waiters() {
    bound_this_test();
    let mut stage = Stage::new().await;
    stage.holds(&Layout::new().unlock_batch, &BATCH_UNLOCKED).await;
}

const BATCH_UNLOCKED: [Row; 7] = [
    (
        "a=h:1:1/5 b=h:1:1/5 {t}:c=h:1:1/5",
        "a b {t}:c | 0 h:1 @* 0",
        "3",
        "logged told:{a} told:{t}:c",
    ),
    // In-memory locks.
    ("a=h:1:1/5 {t}:c=h:1:1/5", "a {t}:c | 0 h:1 @* 1", "2", "told:{a} told:{t}:c"),
    // A name in braces has the same channel as the name without them.
    ("{a}=h:1:1/5", "{a} | 0 h:1 @* 0", "1", "logged told:{a}"),
    // Held elsewhere, of another type, free, and given twice.
    ("a=h:2:1/5 {t}:c=x b=h:1:1/5", "a {t}:c b d | 0 h:1 @* 0", "1", "a=h:2:1/5 {t}:c=x logged"),
    ("a=h:2:1/5", "a | 0 h:1 @* 0", "0", "a=h:2:1/5"),
    ("a=h:1:1/5", "a a | 0 h:1 @* 0", "1", "logged told:{a}"),
    ("", "a | 0 h:1 @* 0", "0", ""),
];
