//! Text that is put into a file at places that nest, and where each piece of it ends up.

use std::ops::Range;

/// A part of what is put in; some belong to one mutant.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The inserted text.
    pub text: String,
    /// The mutant that needs it.
    pub number: Option<u32>,
}

/// Code around a range of the file.
#[derive(Debug)]
struct Wrap {
    range: Range<usize>,
    before: Vec<Piece>,
    after: Vec<Piece>,
    numbers: Vec<u32>,
}

/// Everything that is put into one file.
#[derive(Debug, Default)]
pub struct Splices(Vec<Wrap>);

/// A file with everything put in, and where that is now.
#[derive(Debug, Default)]
pub struct Spliced {
    /// The new text.
    pub text: String,
    /// Each mutant's own code.
    pub pieces: Vec<(Range<usize>, u32)>,
    /// The wrapped ranges, each with the mutants that wrap it.
    pub sites: Vec<(Range<usize>, Vec<u32>)>,
}

impl Piece {
    /// Scaffolding, which all mutants of the place share.
    pub fn shared(text: impl Into<String>) -> Self {
        Self { text: text.into(), number: None }
    }

    /// Code of one mutant.
    pub fn of(number: u32, text: impl Into<String>) -> Self {
        Self { text: text.into(), number: Some(number) }
    }
}

impl Splices {
    /// Puts code around a range. Of two ranges one contains the other or they are apart; the outer one comes first.
    pub fn wrap(
        &mut self,
        range: Range<usize>,
        before: Vec<Piece>,
        after: Vec<Piece>,
        numbers: Vec<u32>,
    ) {
        self.0.push(Wrap { range, before, after, numbers });
    }

    /// The file with everything put in.
    pub fn apply(&self, text: &str) -> Spliced {
        // At one offset, what ends there precedes what begins there; inner ends precede outer ones.
        let mut insertions: Vec<(usize, bool, usize)> = Vec::new();
        for (index, wrap) in self.0.iter().enumerate() {
            insertions.push((wrap.range.start, true, index));
            insertions.push((wrap.range.end, false, index));
        }
        insertions.sort_by_key(|&(at, begins, index)| {
            (at, begins, if begins { index } else { usize::MAX - index })
        });
        let mut spliced = Spliced::default();
        let mut begun = vec![0; self.0.len()];
        let mut from = 0;
        for (at, begins, index) in insertions {
            spliced.text.push_str(&text[from..at]);
            from = at;
            let wrap = &self.0[index];
            if begins {
                begun[index] = spliced.text.len();
                spliced.put(&wrap.before);
            } else {
                spliced.put(&wrap.after);
                spliced.sites.push((begun[index]..spliced.text.len(), wrap.numbers.clone()));
            }
        }
        spliced.text.push_str(&text[from..]);
        spliced
    }
}

impl Spliced {
    fn put(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let begin = self.text.len();
            self.text.push_str(&piece.text);
            if let Some(number) = piece.number {
                self.pieces.push((begin..self.text.len(), number));
            }
        }
    }

    /// The mutant whose own code holds this span.
    pub fn owner(&self, span: &Range<usize>) -> Option<u32> {
        let holds = self.pieces.iter().filter(|(range, _)| contains(range, span));
        holds.min_by_key(|(range, _)| range.len()).map(|(_, number)| *number)
    }

    /// The mutants of the innermost place around this span.
    pub fn around(&self, span: &Range<usize>) -> &[u32] {
        let holds = self
            .sites
            .iter()
            .filter(|(range, numbers)| !numbers.is_empty() && contains(range, span));
        holds.min_by_key(|(range, _)| range.len()).map_or(&[], |(_, numbers)| numbers)
    }

    /// The mutants of all places within this span.
    pub fn within(&self, span: &Range<usize>) -> impl Iterator<Item = u32> {
        let sites = self.sites.iter().filter(|(range, _)| contains(span, range));
        sites.flat_map(|(_, numbers)| numbers).copied()
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_code_stands_inside_of_outer_code() {
        let mut splices = Splices::default();
        let around = |name: &str, number| {
            (vec![Piece::shared("<"), Piece::of(number, name)], vec![Piece::shared(">")])
        };
        for (range, name, number) in
            [(0..5, "A", 1), (0..5, "B", 2), (0..1, "C", 3), (4..5, "D", 4)]
        {
            let (before, after) = around(name, number);
            splices.wrap(range, before, after, vec![number]);
        }
        let spliced = splices.apply("a + b;");
        assert_eq!(spliced.text, "<A<B<Ca> + <Db>>>;");
        assert_eq!(spliced.owner(&(5..6)), Some(3));
        assert_eq!(spliced.owner(&(6..7)), None);
        assert_eq!(spliced.around(&(6..7)), [3]);
        assert_eq!(spliced.around(&(9..10)), [2]);
        assert_eq!(spliced.around(&(17..18)), [0; 0]);
    }
}
