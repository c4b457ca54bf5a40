//! Sockets of the Unix family: streams and listeners between processes of one machine.

pub(crate) mod listener;
pub(crate) mod stream;
