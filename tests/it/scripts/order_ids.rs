//! Order ids of the claim script, which is made of doubles, against exact integers.

use flash_sale::store::redis::Redis;
use flash_sale::store::script::VariadicScript;

use crate::support::shared;

/// Claims whose ids have one second, at most.
const COUNTER: u64 = 1 << 20;
/// The last second that an id can carry.
const SECOND_MAX: u64 = (1 << 31) - 1;
/// Calls of the function in one call of the script.
const CALLS: usize = 500;

/// Arguments of the function: now, the second and the number of the last ids, lane, epoch, and how many ids are made.
type Call = [u64; 6];

/// The function itself, called for each six arguments: the next state of the lane, and the first and the last id.
fn harness() -> &'static str {
    let source = include_str!("../../../lua/claim.lua");
    let begin = source.find("local function next_ids(").expect("the function is there");
    let end = source[begin..].find("\nend\n").expect("it has an end");
    let function = &source[begin..begin + end + "\nend\n".len()];
    let calls = "
        local told = {}
        for i = 1, #ARGV, 6 do
          local numbers = {}
          for n = 0, 5 do numbers[n + 1] = tonumber(ARGV[i + n]) end
          local second, used, id = next_ids(unpack(numbers))
          told[#told + 1] = second
            and string.format('%d %d %s %s', second, used, id(0), id(numbers[6] - 1)) or 'none'
        end
        return told";
    [function, calls].concat().leak()
}

/// The same in exact integers.
fn exact([now, mut second, mut used, lane, epoch, count]: Call) -> String {
    if now > second {
        (second, used) = (now, 0);
    }
    if used + count > COUNTER {
        (second, used) = (second + 1, 0);
    }
    if !(3..=SECOND_MAX).contains(&second) {
        return "none".to_owned();
    }
    let first = (second << 32) | (lane << 26) | ((epoch % 64) << 20) | used;
    format!("{second} {} {first} {}", used + count, first + count - 1)
}

/// Each second beside a power of two, and some of this century; the clock beside it.
fn calls() -> Vec<Call> {
    let powers = (2..31).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
    let seconds = powers.chain([3, 155_000_000, 155_123_457, SECOND_MAX - 1, SECOND_MAX]);
    let mut calls = Vec::new();
    for (n, second) in (0_u64..).zip(seconds) {
        for now in [0, second - 1, second, second + 1, second + 86_400] {
            for used in [0, 1, COUNTER / 2, COUNTER - 2, COUNTER - 1, COUNTER] {
                for count in [1, 2, 300] {
                    let lane = (n + used) % 63;
                    let epoch = [1, 63, 64, 65, (7 << 32) + 5][(n % 5) as usize];
                    calls.push([now, second, used, lane, epoch, count]);
                }
            }
        }
    }
    calls
}

/// The answers of the function to these calls.
async fn told(calls: &[Call]) -> Vec<String> {
    let link = Redis::new(&shared().redis_url).expect("a URL").link().await.expect("it runs");
    let script = VariadicScript::new(harness());
    let arguments: Vec<u64> = calls.iter().flatten().copied().collect();
    script.run(&link, &[], &arguments[..]).await.expect("it runs")
}

#[tokio::test]
async fn ids_are_the_exact_integers_at_all_seconds_and_counts() {
    for part in calls().chunks(CALLS) {
        let expected: Vec<String> = part.iter().copied().map(exact).collect();
        assert_eq!(told(part).await, expected);
    }
}

/// A lane whose clock is set forth and back, and whose calls fill a second: each id is above all ids before it.
#[tokio::test]
async fn ids_of_a_lane_rise_through_steps_of_the_clock_and_full_seconds() {
    let (mut second, mut used, mut last) = (0_u64, 0, 0);
    let clocks = [155_000_000, 155_000_001, 155_000_001, 154_000_000, 155_000_000, 155_000_002];
    for now in clocks.into_iter().cycle().take(60) {
        let told = told(&[[now, second, used, 5, 9, 300_000]]).await.remove(0);
        let [after, counted, first, newest] =
            told.split(' ').map(|word| word.parse::<u64>().expect(&told)).collect::<Vec<_>>()[..]
        else {
            panic!("{told}");
        };
        assert!(first > last && after >= second, "{told} after {last}");
        (second, used, last) = (after, counted, newest);
    }
    assert!(second > 155_000_002, "full seconds have carried into the next one");
}
