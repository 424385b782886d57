//! Names of many locks.

use std::fmt::{self, Display, Write};
use std::ops::Index;

/// Names of locks, in the order in which they were added. All names share one buffer, so a name needs no allocation of
/// its own.
///
/// ```
/// use redisson_locks::Names;
///
/// let mut names = Names::default();
/// for user in [7, 42] {
///     names.push(format_args!("shop:{{3}}:user:{user}"));
/// }
/// assert_eq!(&names[1], "shop:{3}:user:42");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    /// For each name, the index after its last byte.
    ends: Vec<usize>,
}

impl Names {
    /// An empty list with room for `names` names that have `bytes` bytes together.
    pub fn with_capacity(names: usize, bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(names) }
    }

    /// Appends a name.
    ///
    /// # Panics
    ///
    /// If displaying `name` fails, which it does for no type of the standard library.
    pub fn push(&mut self, name: impl Display) {
        write!(self.text, "{name}").expect("a name can be displayed");
        self.ends.push(self.text.len());
    }

    /// Number of names; a name that was added twice counts twice.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The names, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|position| &self[position])
    }
}

impl Index<usize> for Names {
    type Output = str;

    /// The name at this position, counted from 0.
    fn index(&self, position: usize) -> &str {
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[position]]
    }
}

impl<N: Display> FromIterator<N> for Names {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        let mut all = Self::default();
        all.extend(names);
        all
    }
}

impl<N: Display> Extend<N> for Names {
    fn extend<I: IntoIterator<Item = N>>(&mut self, names: I) {
        for name in names {
            self.push(name);
        }
    }
}

impl<N: Display> From<Vec<N>> for Names {
    fn from(names: Vec<N>) -> Self {
        names.into_iter().collect()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_places_and_their_borders() {
        let names = Names::from(vec!["b", "", "a:{1}", "b"]);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "", "a:{1}", "b"]);
        assert_eq!((&names[0], &names[1], &names[3]), ("b", "", "b"));
        assert_eq!((names.len(), names.is_empty()), (4, false));
        assert_eq!(format!("{names:?}"), r#"["b", "", "a:{1}", "b"]"#);
        assert!(Names::with_capacity(3, 10).is_empty());
    }
}
