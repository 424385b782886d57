//! The rendering of figures: a table in the terminal, plots, and a page that needs nothing else.

pub mod html;

mod plots;

pub mod table;

mod limits;

mod cells;
