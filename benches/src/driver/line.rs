//! A line `WORD key=value key=value …`, which is how the programs answer.

use std::collections::BTreeMap;

use runtime_limit::Result;

/// The pairs of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(BTreeMap<String, String>);

impl Line {
    /// Reads a line that starts with `word`; any other is not for us.
    #[must_use]
    pub fn parse(line: &str, word: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        if fields.next() != Some(word) {
            return None;
        }
        let pair = |field: &str| field.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Self(fields.filter_map(pair).collect()))
    }

    /// A field as text.
    ///
    /// # Errors
    /// There is no such field.
    pub fn text(&self, key: &str) -> Result<&str> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("no `{key}` in {:?}", self.0).into())
    }

    /// A field as a number.
    ///
    /// # Errors
    /// There is no such field, or it is no number.
    pub fn number(&self, key: &str) -> Result<f64> {
        Ok(self.text(key)?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_follow_the_word() {
        let line = Line::parse("RESULT server=ours cpu_ns=3.5", "RESULT").unwrap();
        assert_eq!(line.text("server").unwrap(), "ours");
        assert_eq!(line.number("cpu_ns").unwrap().to_bits(), 3.5f64.to_bits());
        assert!(line.number("server").is_err() && line.text("rate").is_err());
        assert_eq!(Line::parse("READY port=1", "RESULT"), None);
    }
}
