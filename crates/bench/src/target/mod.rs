//! The service under test: started or found, kept, watched and judged.

pub mod service;

pub mod keeper;

pub mod verdict;

pub mod cpu;
