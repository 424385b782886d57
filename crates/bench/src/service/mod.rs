//! The service under test: started or found, kept, watched and judged.

pub mod bare_route;

pub mod target;

pub mod keeper;

pub mod verdict;

pub mod cpu;
