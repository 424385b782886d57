//! The rendering of figures: a table in the terminal, and the goals in a document.

pub mod table;

pub mod goals;

pub mod document;

mod limits;

pub mod cells;
