//! The rendering of figures: a table in the terminal, plots, and a page that needs nothing else.

pub mod html;

mod plots;

pub mod budget;

pub mod rows;

pub mod table;

pub mod goals;

pub mod document;

mod limits;

pub mod cells;

mod svg;
