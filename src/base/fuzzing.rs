//! Inputs of tests: seeds, and each seed with one change at each place.

/// A target, with texts that its inputs are made of.
pub struct Fuzz {
    /// Name of the target.
    pub target: &'static str,
    /// Inputs to begin with.
    pub seeds: Vec<Vec<u8>>,
    /// Texts that are put into inputs.
    pub words: &'static [&'static str],
}

impl Fuzz {
    /// Runs `check` on all seeds and on changed ones: at each place a byte is left out, turned, or gives way to a word.
    ///
    /// # Panics
    ///
    /// When `check` does.
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
