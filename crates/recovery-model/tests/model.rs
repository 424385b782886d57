//! The protocol with all guards, without each of them, and as the code has it.

use recovery_model::model::Model;
use recovery_model::search::{Found, search};
use recovery_model::settings::{Fault, Guard, Hole, Settings};

fn small() -> Settings {
    use Fault::*;
    Settings {
        users: 2,
        units: 1,
        claims: 2,
        cancels: 1,
        beats: 2,
        faults: 1,
        kinds: vec![ApiDies, WorkerDies, KeeperDies, KeeperPaused, ApiPaused, Restart, RestartedOlder, WentBack, Flushed, SaleLost],
        receipts_dropped: false,
        without: Vec::new(),
        holes: Vec::new(),
    }
}

#[test]
fn try_it() {
    let found: Found = search(&Model::new(small()), 20_000_000);
    println!("{found}");
    let mut two = small();
    two.faults = 2;
    two.beats = 1;
    let t = std::time::Instant::now();
    let found: Found = search(&Model::new(two), 20_000_000);
    println!("{found} {:?}", t.elapsed());
    let _ = (Guard::ALL, Hole::ALL);
}
