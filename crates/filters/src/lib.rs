//! The filters that ship with Strait, a module each.
//!
//! Nothing here registers itself: the binary names every filter that it offers in one list. A
//! filter is its configuration type, whose doc comments are its reference, and what is built of
//! it, which cannot be invalid. To add one, write a module like [`headers`] and a line in that list.
#![forbid(unsafe_code)]

pub mod headers;
