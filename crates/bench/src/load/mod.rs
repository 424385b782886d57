//! Requests: how many, when, by which users, on which connections, and their answers.

pub mod sending;

pub mod scenario;

pub mod record;

pub mod pace;

pub mod connection;

pub mod crowd;
