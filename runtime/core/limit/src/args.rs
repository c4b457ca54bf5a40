//! A command word followed by `key=value` pairs, or `--key value`: most programs here are started by another program.
//!
//! Every pair must be asked for: a misspelt key would otherwise measure something else than was meant.

use std::fmt::Display;
use std::str::FromStr;

use crate::Result;

/// The arguments of a program; [`Args::value`] takes pairs out, [`Args::finish`] refuses what is left.
#[derive(Debug)]
pub struct Args {
    command: String,
    pairs: Vec<(String, String)>,
}

impl Args {
    /// Reads the arguments of this process.
    #[must_use]
    pub fn from_env() -> Self {
        Self::parse(std::env::args().skip(1))
    }

    /// The first word is the command; a word without `=` after it is kept and refused by [`Args::finish`].
    pub fn parse(words: impl IntoIterator<Item = String>) -> Self {
        let mut words = words.into_iter();
        let command = words.next().unwrap_or_default();
        let mut pairs = Vec::new();
        while let Some(word) = words.next() {
            let bare = word.strip_prefix("--");
            pairs.push(match (bare.unwrap_or(&word).split_once('='), bare) {
                (Some((key, value)), _) => (key.to_owned(), value.to_owned()),
                (None, Some(key)) => (key.to_owned(), words.next().unwrap_or_default()),
                (None, None) => (word, String::new()),
            });
        }
        Self { command, pairs }
    }

    /// For programs without commands: the first word is a pair like the others.
    #[must_use]
    pub fn without_command(words: impl IntoIterator<Item = String>) -> Self {
        Self::parse(std::iter::once("this program".to_owned()).chain(words))
    }

    /// The first word, empty if there is none.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Takes the value of `key`, or `default` if it was not given.
    ///
    /// # Errors
    /// The value cannot be parsed.
    pub fn value<T>(&mut self, key: &str, default: T) -> Result<T>
    where
        T: FromStr<Err: Display>,
    {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    /// Takes the value of `key`, if it was given.
    ///
    /// # Errors
    /// The value cannot be parsed.
    pub fn optional<T>(&mut self, key: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: Display>,
    {
        let Some(at) = self.pairs.iter().position(|(given, _)| given == key) else { return Ok(None) };
        let (_, value) = self.pairs.remove(at);
        value.parse().map(Some).map_err(|error| format!("{key}={value}: {error}").into())
    }

    /// Like [`Args::value`], and refuses what is above `most`.
    ///
    /// # Errors
    /// The value cannot be parsed or is too large.
    pub fn at_most<T>(&mut self, key: &str, default: T, most: T) -> Result<T>
    where
        T: FromStr<Err: Display> + PartialOrd + Display,
    {
        let value = self.value(key, default)?;
        if value > most {
            return Err(format!("{key}={value} is above the bound {most}").into());
        }
        Ok(value)
    }

    /// Refuses pairs that nobody asked for.
    ///
    /// # Errors
    /// There is such a pair.
    pub fn finish(self) -> Result<()> {
        match self.pairs.first() {
            Some((key, _)) => Err(format!("`{}` does not know `{key}`", self.command).into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn given_values_win_over_defaults() {
        let mut args = args("echo port=7 buf=1");
        assert_eq!(args.command(), "echo");
        assert_eq!(args.value("port", 0u16).unwrap(), 7);
        assert_eq!(args.value("secs", 600u32).unwrap(), 600);
        assert_eq!(args.at_most("buf", 0usize, 1).unwrap(), 1);
        args.finish().unwrap();
    }

    #[test]
    fn dashes_are_accepted() {
        let mut args = args("echo --cycles 7 --secs=8");
        assert_eq!(args.value("cycles", 0u8).unwrap(), 7);
        assert_eq!(args.value("secs", 0u8).unwrap(), 8);
        args.finish().unwrap();
    }

    #[test]
    fn misspelt_unparsable_and_unbounded_values_are_refused() {
        assert!(args("echo prot=7").finish().is_err());
        assert!(args("echo port=x").value("port", 0u16).is_err());
        assert!(args("echo conns=9").at_most("conns", 1usize, 8).is_err());
    }
}
