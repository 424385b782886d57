//! Numbers of orders: `id_block`.

use flash_sale::kit::script::VariadicScript;

use super::stage::Stage;

/// Half of a hundred numbers were taken.
const HALF: &str = "origin=here number=100 last=50";

/// The sequence and its ceiling, the call, its reply, and all that changed. The word `here` stands for the origin of
/// the server.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Checks the rows. The arguments are: numbers in a block, numbers to be left, origin and bounds of the grant, and the last
/// number that the caller has been given.
async fn hold(rows: &[Row]) {
    let mut stage = Stage::new().await;
    let id_block = VariadicScript::new(include_str!("../../../lua/id_block.lua"));
    let here = origin(&stage).await;
    let in_words = here.replace(' ', "_");
    for (sequence, ceiling, call, reply, changes) in rows {
        let ceiling = ceiling.replace("here", &in_words);
        stage.set_all(&[("sequence", *sequence), ("ceiling", &*ceiling)]).await;
        let words: Vec<&str> = call.split(' ').collect();
        let [block, left_min, granted_origin, after, granted, had] = words[..] else {
            panic!("six arguments: {call}");
        };
        let granted_origin = match granted_origin {
            "-" => "",
            "here" => &*here,
            elsewhere => elsewhere,
        };
        let arguments = [block, left_min, granted_origin, after, granted, "60", had];
        let done = stage.run(&id_block, &["sequence", "ceiling"], &arguments).await;
        let found = [done.reply, done.changes].map(|text| text.replace(&here, "here"));
        assert_eq!(found, [*reply, *changes], "{sequence} {ceiling} {call}");
    }
}

/// The life of the server, and its replication id.
async fn origin(stage: &Stage) -> String {
    let information: String = stage.redis(&["INFO"]).await;
    let fact = |name| information.lines().find_map(|line| line.strip_prefix(name));
    let facts = [fact("run_id:"), fact("master_replid:")];
    facts.map(|fact| fact.expect("each server has one")).join(" ")
}

#[tokio::test]
async fn id_block_is_taken_below_the_ceiling() {
    hold(&BLOCKS).await;
}

const BLOCKS: [Row; 15] = [
    (
        "=50",
        HALF,
        "10 5 - 0 0 50",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    (
        "=50",
        HALF,
        "1 0 - 0 0 0",
        "[BLOCK 51 here]",
        "ceiling.last=51 ceiling.ttl=set sequence=51 sequence.ttl=set",
    ),
    // Up to the last number, and one more.
    (
        "=50",
        HALF,
        "45 5 - 0 0 0",
        "[BLOCK 95 here]",
        "ceiling.last=95 ceiling.ttl=set sequence=95 sequence.ttl=set",
    ),
    ("=50", HALF, "46 5 - 0 0 0", "[CEILING 50 here]", ""),
    ("=50", HALF, "45 6 - 0 0 0", "[CEILING 50 here]", ""),
    // A look.
    ("=50", HALF, "0 50 - 0 0 0", "[BLOCK 50 here]", ""),
    ("=50", HALF, "0 51 - 0 0 0", "[CEILING 50 here]", ""),
    ("", "", "0 0 - 0 0 0", "[CEILING 0 here]", ""),
    // The larger of the two numbers counts, if one was lost, too.
    (
        "=50",
        "origin=here number=100 last=60",
        "10 0 - 0 0 0",
        "[BLOCK 70 here]",
        "ceiling.last=70 ceiling.ttl=set sequence=70 sequence.ttl=set",
    ),
    (
        "=70",
        HALF,
        "10 0 - 0 0 0",
        "[BLOCK 80 here]",
        "ceiling.last=80 ceiling.ttl=set sequence=80 sequence.ttl=set",
    ),
    (
        "",
        HALF,
        "10 0 - 0 0 0",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    (
        "=70",
        "origin=here number=100",
        "10 0 - 0 0 0",
        "[BLOCK 80 here]",
        "ceiling.last=80 ceiling.ttl=set sequence=80 sequence.ttl=set",
    ),
    // A ceiling that does not count: Redis went back, or is another, or the ceiling was lost.
    ("=50", HALF, "10 0 - 0 0 51", "[CEILING 50 here]", ""),
    ("=50", "origin=elsewhere number=100 last=50", "10 0 - 0 0 0", "[CEILING 50 here]", ""),
    ("=50", "origin=here last=50", "10 0 - 0 0 0", "[CEILING 50 here]", ""),
];

#[tokio::test]
async fn id_block_goes_on_behind_the_numbers_that_were_granted_elsewhere() {
    hold(&GRANTS).await;
}

const GRANTS: [Row; 17] = [
    (
        "",
        "",
        "1 0 here 0 1 0",
        "[BLOCK 1 here]",
        "ceiling.last=1 ceiling.number=1 ceiling.origin=here ceiling.ttl=set sequence=1 sequence.ttl=set",
    ),
    (
        "",
        "",
        "10 0 here 200 300 0",
        "[BLOCK 210 here]",
        "ceiling.last=210 ceiling.number=300 ceiling.origin=here ceiling.ttl=set sequence=210 sequence.ttl=set",
    ),
    ("", "", "10 0 elsewhere 200 300 0", "[CEILING 0 here]", ""),
    ("", "", "10 0 here 0 0 0", "[CEILING 0 here]", ""),
    // The grant follows the ceiling.
    (
        "=50",
        HALF,
        "10 0 here 100 200 0",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.number=200 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    // Numbers in between were granted elsewhere.
    (
        "=50",
        HALF,
        "10 0 here 120 200 0",
        "[BLOCK 130 here]",
        "ceiling.last=130 ceiling.number=200 ceiling.ttl=set sequence=130 sequence.ttl=set",
    ),
    (
        "=50",
        HALF,
        "10 0 here 20 200 0",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.number=200 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    (
        "=50",
        "origin=elsewhere number=100 last=50",
        "10 0 here 120 200 0",
        "[BLOCK 130 here]",
        "ceiling.last=130 ceiling.number=200 ceiling.origin=here ceiling.ttl=set sequence=130 sequence.ttl=set",
    ),
    // Redis went back.
    (
        "=50",
        HALF,
        "10 0 here 200 300 150",
        "[BLOCK 210 here]",
        "ceiling.last=210 ceiling.number=300 ceiling.ttl=set sequence=210 sequence.ttl=set",
    ),
    // The grant is known, or is older.
    (
        "=50",
        HALF,
        "10 0 here 80 100 0",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    (
        "=50",
        HALF,
        "10 0 here 60 90 0",
        "[BLOCK 60 here]",
        "ceiling.last=60 ceiling.ttl=set sequence=60 sequence.ttl=set",
    ),
    ("=50", HALF, "60 0 here 80 100 0", "[CEILING 50 here]", ""),
    (
        "=50",
        HALF,
        "10 0 here 80 101 0",
        "[BLOCK 90 here]",
        "ceiling.last=90 ceiling.number=101 ceiling.ttl=set sequence=90 sequence.ttl=set",
    ),
    ("=50", HALF, "60 0 elsewhere 100 200 0", "[CEILING 50 here]", ""),
    // The grant is noted, also without a block.
    (
        "=50",
        HALF,
        "200 0 here 100 200 0",
        "[CEILING 50 here]",
        "ceiling.number=200 ceiling.ttl=set sequence.ttl=set",
    ),
    (
        "=50",
        HALF,
        "0 0 here 100 200 0",
        "[BLOCK 50 here]",
        "ceiling.number=200 ceiling.ttl=set sequence.ttl=set",
    ),
    (
        "",
        "",
        "0 0 here 0 100 0",
        "[BLOCK 0 here]",
        "ceiling.last=0 ceiling.number=100 ceiling.origin=here ceiling.ttl=set sequence=0 sequence.ttl=set",
    ),
];
