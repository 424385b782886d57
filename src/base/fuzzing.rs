//! Inputs for tests: seeds, and each seed with one change at each position.

pub struct Fuzz {
    pub target: &'static str,
    /// Valid inputs, which are then changed.
    pub seeds: Vec<Vec<u8>>,
    /// Texts that replace single bytes.
    pub words: &'static [&'static str],
}

impl Fuzz {
    /// Runs `check` on all seeds and on changed ones: at each position a byte is dropped, flipped, or replaced by a
    /// word.
    ///
    /// # Panics
    ///
    /// When `check` panics.
    pub fn run(self, check: impl Fn(&[u8])) {
        let mut tried = 0;
        for seed in &self.seeds {
            check(seed);
            for at in 0..seed.len() {
                let (before, after) = (&seed[..at], &seed[at + 1..]);
                let turned = [seed[at] ^ 1];
                let texts = self.words.iter().map(|word| word.as_bytes());
                for text in texts.chain([&[][..], &turned]) {
                    check(&[before, text, after].concat());
                    tried += 1;
                }
            }
        }
        println!("{}: {tried} inputs from {} seeds", self.target, self.seeds.len());
    }
}
