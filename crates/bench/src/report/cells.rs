//! The cells of a table: figures as text.

/// The rows of a table, the head first.
pub type Rows = Vec<Vec<String>>;

/// A row of these texts.
pub fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A duration or a cost with as many digits as mean something; a dash where it isn't known.
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => thousands(value),
    }
}

/// 12,345
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0
            && digit.is_ascii_digit()
            && (digits.len() - at).is_multiple_of(3)
            && !grouped.ends_with('-')
        {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_mean_something() {
        assert_eq!(figure(None), "-");
        assert_eq!(figure(Some(1.234)), "1.23");
        assert_eq!(figure(Some(12.34)), "12.3");
        assert_eq!(figure(Some(999.6)), "1,000");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-123_456.0), "-123,456");
        assert_eq!(thousands(12.0), "12");
    }
}
