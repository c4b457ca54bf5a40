//! TCP: listeners, streams and their halves.

pub(crate) mod listener;
pub(crate) mod split;
pub(crate) mod stream;
