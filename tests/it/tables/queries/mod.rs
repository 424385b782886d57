//! Queries about what passes and operators note, each on rows that differ in one condition, order, bound or default.

// Recoveries that were broken off, their times and their states.
mod recoveries;

// Readings of sales, and their terms.
mod readings;

// Items that a pass has put aside.
mod postponed;

// The book of changes.
mod audit;

// Facts about the installation, and its schema.
mod installation;

// Orders of a day, and rows of a traced claim.
mod counted;

// Orders that are listed, counted and held.
mod orders;

// Epochs of lanes.
mod lanes;
